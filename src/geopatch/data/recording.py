"""A long recording with its beats and rhythms, and the windows that are cut from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from geopatch.arrays import SURROUNDINGS
from geopatch.data.anchors import detect_anchors
from geopatch.data.collection import UNKNOWN, Labels, WindowSet
from geopatch.errors import ConfigError, SignalError, at_least, one_of
from geopatch.notebook import table
from geopatch.signal import Signal, at_hz, channel_text, signal_row

Samples = npt.NDArray[np.int64]

# AAMI groups. The first of V, S, F, Q with a beat in a window names it; all other windows are N.
AAMI = {"N": "NLRej", "S": "AaJS", "V": "VE", "F": "F", "Q": "/fQ"}
NAMING_ORDER = ("V", "S", "F", "Q")
TARGETS = ("subject", "beat", "rhythm", "rate")
RATE_BAND_BPM = 10
ANCHORS = ("annotated", "detected", "auto", "none")
RAIL_RUN = 5  # equal samples in a row at the least or greatest value of a channel: the converter was at its limit


def _no_samples() -> Samples:
    return np.zeros(0, dtype=np.int64)


def _no_names() -> Labels:
    return np.zeros(0, dtype=str)


@dataclass(frozen=True, eq=False)
class Recording:
    """A long signal of one subject: at which sample each beat lies and its symbol, and where each rhythm begins."""

    signal: Signal
    subject: str
    beat_samples: Samples = field(default_factory=_no_samples)
    beat_symbols: Labels = field(default_factory=_no_names)
    rhythm_samples: Samples = field(default_factory=_no_samples)
    rhythm_names: Labels = field(default_factory=_no_names)

    def __post_init__(self) -> None:
        for marks in (self.beat_samples, self.rhythm_samples):
            outside = marks[(marks < 0) | (marks >= self.signal.length)]
            if len(outside):
                raise SignalError(
                    f"recording {self.signal.id!r} has {self.signal.length} samples but a mark at sample {outside[0]}"
                )

    def __repr__(self) -> str:
        signal = self.signal
        return (
            f"Recording({signal.id!r}, {signal.length} samples{at_hz(signal.rate_hz)}, {channel_text(signal)}, "
            f"subject {self.subject}, {len(self.beat_samples)} beats, {len(self.rhythm_samples)} rhythms)"
        )

    def _repr_html_(self) -> str:
        return table([{**signal_row(self.signal), "subject": self.subject, "beats": len(self.beat_samples)}])

    def at_rate(self, rate_hz: float) -> Recording:
        """The recording at a rate, its marks moved along; one whose rate is not known is taken to have it."""
        signal = self.signal.at_rate(rate_hz)
        share = rate_hz / (self.signal.rate_hz or rate_hz)

        def moved(marks: Samples) -> Samples:
            return np.minimum(np.round(marks * share).astype(np.int64), signal.length - 1)

        return replace(
            self, signal=signal, beat_samples=moved(self.beat_samples), rhythm_samples=moved(self.rhythm_samples)
        )

    def without_saturation(self) -> Recording:
        """Its saturated stretches as gaps: they tell that a limit was passed, not by how much."""
        values = self.signal.values.copy()
        for column in values.T:
            column[saturated(column)] = np.nan
        if not np.isfinite(values).any():
            return self
        return replace(self, signal=replace(self.signal, values=values))

    def anchored(self, source: str) -> Recording:
        """With the anchors of its clock: beats that are annotated, or detected; or those annotated, else detected.

        A recording without annotated beats keeps the anchors of its signal.
        """
        one_of("anchors", source, ANCHORS)
        if source == "none":
            return replace(self, signal=replace(self.signal, anchors=None))
        if source != "detected" and len(self.beat_samples):
            return replace(self, signal=replace(self.signal, anchors=self.beat_samples.astype(np.float64)))
        if source == "annotated" or (source == "auto" and self.signal.anchors is not None):
            return self
        anchors = detect_anchors(self.signal, ecg=True if len(self.beat_samples) else None)
        return replace(self, signal=replace(self.signal, anchors=anchors.trusted()))

    def band_passed(self, low_hz: float, high_hz: float) -> Recording:
        """Without drift below a band and noise above it. Filtered forwards and backwards, so that nothing moves."""
        return replace(self, signal=band_passed(self.signal, low_hz, high_hz))


@dataclass(frozen=True)
class WindowConfig:
    """How recordings are cut into windows."""

    rate_hz: float = 128.0
    length_s: float = 2.0
    overlap: float = 0.5  # share of a window that the next one repeats
    band_hz: tuple[float, float] | None = None
    anchors: str = "annotated"  # annotated | detected | auto: annotated, else detected | none
    surroundings: int = SURROUNDINGS  # anchors that a window keeps from before its start and from after its end

    def __post_init__(self) -> None:
        at_least("rate_hz", self.rate_hz, 0.001)
        at_least("length_s * rate_hz", self.length_s * self.rate_hz, 1)
        at_least("overlap", self.overlap, 0)
        at_least("1 - overlap", 1 - self.overlap, 0.01)
        at_least("surroundings", self.surroundings, 1)
        one_of("anchors", self.anchors, ANCHORS)


def cut_windows(
    name: str,
    recordings: Sequence[Recording],
    config: WindowConfig | None = None,
    levels_s: Sequence[float] = (),
) -> WindowSet:
    """Windows of all recordings, none across the end of one, with their targets.

    A recording whose rate is not known is taken to have that of the windows. Of several lengths, the windows that have
    not that of the config have theirs in their ids.
    """
    config = config or WindowConfig()
    lengths_s = levels_s or (config.length_s,)
    windows: list[Signal] = []
    labels: dict[str, list[str]] = {target: [] for target in TARGETS}
    for recording in recordings:
        prepared = prepare(recording, config)
        observed = prepared.signal.observed
        for length_s in lengths_s:
            suffix = "" if length_s == config.length_s else f"+{length_s:.6g}s"
            for start, stop in spans(prepared.signal.length, replace(config, length_s=length_s)):
                if not observed[start:stop].any():
                    continue  # nothing was measured there
                windows.append(prepared.signal.window(start, stop, suffix, surroundings=config.surroundings))
                for target, label in targets(prepared, start, stop).items():
                    labels[target].append(label)
    if not windows:
        raise SignalError(f"{name}: no recording lasts the {min(lengths_s):g} s of one window; give a shorter length_s")
    return WindowSet(name, tuple(windows), {target: np.asarray(column) for target, column in labels.items()})


def prepare(recording: Recording, config: WindowConfig) -> Recording:
    """A recording at the rate and within the band of its windows, with their anchors and without saturation."""
    recording = recording if recording.signal.rate_hz else recording.at_rate(config.rate_hz)
    prepared = recording.without_saturation().anchored(config.anchors).at_rate(config.rate_hz)
    return prepared if config.band_hz is None else prepared.band_passed(*config.band_hz)


def band_passed(signal: Signal, low_hz: float, high_hz: float) -> Signal:
    """A signal without drift below a band and noise above it. Filtered forwards and backwards: nothing moves."""
    from scipy.signal import butter, sosfiltfilt

    if not 0 < low_hz < high_hz < signal.clock_hz / 2:
        raise ConfigError(
            f"band_hz must lie within 0 and {signal.clock_hz / 2:g} Hz, low before high, got {low_hz:g} to {high_hz:g}"
        )
    sections = butter(2, [low_hz, high_hz], btype="bandpass", fs=signal.clock_hz, output="sos")
    reach = min(6 * len(sections) + 3, signal.length - 1)  # samples put before and after; a short signal has fewer
    passed = sosfiltfilt(sections, signal.bridged(), axis=0, padlen=reach)
    return replace(signal, values=np.where(signal.observed, passed, np.nan))


def spans(samples: int, config: WindowConfig) -> Iterator[tuple[int, int]]:
    """First and last-but-one sample of every whole window."""
    length = round(config.length_s * config.rate_hz)
    step = max(round(length * (1 - config.overlap)), 1)
    for start in range(0, samples - length + 1, step):
        yield start, start + length


def targets(recording: Recording, start: int, stop: int) -> dict[str, str]:
    """What a window of a recording is an example of."""
    first, last = np.searchsorted(recording.beat_samples, [start, stop])
    return {
        "subject": recording.subject,
        "beat": aami_class(recording.beat_symbols[first:last]) if last > first else UNKNOWN,
        "rhythm": _rhythm(recording, start, stop),
        "rate": _rate_band(recording, int(first), int(last)),
    }


def saturated(column: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Which samples of a channel lie in a run at its least or greatest value. A constant channel has none."""
    at_limit = np.zeros(len(column), dtype=bool)
    low, high = np.nanmin(column, initial=np.inf), np.nanmax(column, initial=-np.inf)
    if not low < high:
        return at_limit
    for rail in (low, high):
        edges = np.flatnonzero(np.diff((column == rail).astype(np.int8), prepend=0, append=0))
        for start, stop in edges.reshape(-1, 2):
            at_limit[start:stop] = stop - start >= RAIL_RUN
    return at_limit


def aami_class(symbols: Labels) -> str:
    """V if any ventricular beat is among them, else S, else F, else Q, else N."""
    present = set(symbols.tolist())
    return next((name for name in NAMING_ORDER if not present.isdisjoint(AAMI[name])), "N")


def _rhythm(recording: Recording, start: int, stop: int) -> str:
    """The rhythm that holds through the whole window; unknown before the first mark and where it changes."""
    place = int(np.searchsorted(recording.rhythm_samples, start, side="right")) - 1
    following = recording.rhythm_samples[place + 1 : place + 2]
    if place < 0 or (len(following) and following[0] < stop):
        return UNKNOWN
    return str(recording.rhythm_names[place])


def _rate_band(recording: Recording, first: int, last: int) -> str:
    """The band of 10 beats a minute of the mean interval between the window's beats and their neighbours."""
    beats = recording.beat_samples[max(first - 1, 0) : last + 1]
    if len(beats) < 2 or last == first:
        return UNKNOWN
    bpm = 60 * recording.signal.clock_hz / float(np.diff(beats).mean())
    low = int(bpm // RATE_BAND_BPM) * RATE_BAND_BPM
    return f"{low}-{low + RATE_BAND_BPM} bpm"
