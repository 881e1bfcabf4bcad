"""The front end: how recordings become the windows that a model was fitted on. A model carries it in its card."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from geopatch.data.audio import AudioConfig, frames
from geopatch.data.recording import Recording, WindowConfig, band_passed
from geopatch.errors import CheckpointError, ConfigError
from geopatch.signal import Signal

if TYPE_CHECKING:
    from geopatch.estimator import GeoPatch

CARD_FIELD = "front_end"
LEVEL_FACTOR = 1.42  # between the lengths of windows of two levels, at most; see docs/any-length.md


@dataclass(frozen=True)
class FrontEnd:
    """How recordings become windows, besides the rate and the channels, which a model has from its training windows.

    Parameters
    ----------
    window_s : float, optional
        Seconds of a window; None where each recording is one window.
    overlap : float, default=0.5
        The share of a window that the next one repeats.
    band_hz : tuple of float, optional
        The band that recordings are filtered to before they are cut.
    audio : AudioConfig, optional
        How sound becomes frames; None where recordings are no sound.
    shortest_s, longest_s : float, optional
        Seconds of the shortest and the longest window, where there are windows at several lengths.
    anchors : {"annotated", "detected", "auto", "none"}, default="annotated"
        Where the anchors of recordings come from; "auto" detects those of recordings that bring none.
    """

    window_s: float | None = None
    overlap: float = 0.5
    band_hz: tuple[float, float] | None = None
    audio: AudioConfig | None = None
    shortest_s: float | None = None
    longest_s: float | None = None
    anchors: str = "annotated"

    @property
    def levels_s(self) -> tuple[float, ...]:
        """The lengths of windows in seconds, shortest first; empty where each recording is one window."""
        if self.window_s is None:
            return ()
        shorter = _between(self.window_s, self.shortest_s or self.window_s)
        longer = _between(self.window_s, self.longest_s or self.window_s)
        return (*reversed(shorter), self.window_s, *longer)

    @classmethod
    def of(cls, model: GeoPatch | None) -> FrontEnd | None:
        """That of a model; None where it was fitted on windows as they came.

        Parameters
        ----------
        model : GeoPatch or None
            A fitted model.

        Returns
        -------
        FrontEnd or None
            What its card says.

        Raises
        ------
        CheckpointError
            When the card says something that this version does not know.
        """
        fields = None if model is None else model.card_.data.get(CARD_FIELD)
        return None if fields is None else cls.from_dict(fields)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a model's card.

        Returns
        -------
        dict
            What `from_dict` reads.
        """
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> FrontEnd:
        """Read what `as_dict` wrote.

        Parameters
        ----------
        fields : mapping
            The stored values.

        Returns
        -------
        FrontEnd
            The same front end.

        Raises
        ------
        CheckpointError
            When a value is not known to this version.
        """
        try:
            audio, band = fields["audio"], fields["band_hz"]
            own = {"audio": None if audio is None else AudioConfig(**audio), "band_hz": band and (band[0], band[1])}
            return cls(**{**fields, **own})
        except (TypeError, KeyError, ConfigError) as error:
            raise CheckpointError(f"the model's front end is not known to this version ({error})") from error

    def window(self, rate_hz: float | None, duration_s: float) -> WindowConfig:
        """How a recording of this duration is cut.

        Parameters
        ----------
        rate_hz : float or None
            Samples a second of the windows; None where nobody knows it, and a sample counts as a second.
        duration_s : float
            How long the recording lasts, which is that of its window where each recording is one.

        Returns
        -------
        WindowConfig
            For `Gallery.add_recording`.
        """
        length_s = duration_s if self.window_s is None else self.window_s
        return WindowConfig(rate_hz or 1.0, length_s, self.overlap, self.band_hz, self.anchors)

    def framed(self, signal: Signal) -> Signal:
        """Sound as frames; anything else as it is.

        Parameters
        ----------
        signal : Signal
            A recording or a query.

        Returns
        -------
        Signal
            What windows are cut from.
        """
        if self.audio is None or signal.channels == self.audio.channels:
            return signal
        if signal.rate_hz is None or signal.values.shape[1] == len(self.audio.channels):
            return signal
        return replace(frames(signal.at_rate(self.audio.rate_hz), self.audio), start_time=signal.start_time)

    def recording(self, recording: Recording) -> Recording:
        """A recording with sound as frames.

        Parameters
        ----------
        recording : Recording
            As it was read.

        Returns
        -------
        Recording
            What windows are cut from; its beats and rhythms are gone where it was sound.
        """
        signal = self.framed(recording.signal)
        return recording if signal is recording.signal else Recording(signal, recording.subject)

    def anchored(self, signal: Signal) -> Signal:
        """A signal with anchors detected, where recordings have theirs so and it brings none.

        Parameters
        ----------
        signal : Signal
            A recording, as `framed` returns it.

        Returns
        -------
        Signal
            The same signal; cut parts from it afterwards, so that they keep the anchors round them.
        """
        if self.anchors not in ("detected", "auto") or signal.anchors is not None:
            return signal
        return Recording(signal, signal.id).anchored(self.anchors).signal

    def query(self, signal: Signal) -> Signal:
        """A signal to search by, as windows are made: sound as frames, with anchors, within the band.

        Parameters
        ----------
        signal : Signal
            A query that was not cut from stored windows.

        Returns
        -------
        Signal
            The same at the front end's band; its rate and channels are the gallery's matter.
        """
        framed = self.anchored(self.framed(signal))
        return framed if self.band_hz is None else band_passed(framed, *self.band_hz)


def _between(window_s: float, end_s: float) -> list[float]:
    """Lengths from the first to the second, without the first, as far apart as each other."""
    steps = math.ceil(abs(math.log(end_s / window_s)) / math.log(LEVEL_FACTOR) - 1e-9)
    return [float(f"{window_s * (end_s / window_s) ** (n / steps):.6g}") for n in range(1, steps + 1)]
