"""A signal: values over time with a rate and an id. NaN means not measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from geopatch.arrays import (
    SURROUNDINGS,
    Anchors,
    Values,
    anchors_around,
    as_array,
    as_values,
    bridge,
    sorted_anchors,
)
from geopatch.errors import SignalError
from geopatch.notebook import sparkline, table

__all__ = ["Anchors", "LazySignals", "Signal", "Values"]

SLOWEST_HZ = 0.001
BANDS = "mel "  # what the names of neighbouring bands of a spectrum start with
NAMES_SHOWN = 4  # of channels, in one-line descriptions


@dataclass(frozen=True, eq=False)
class Signal:
    """Evenly sampled values with an id; a window is a signal that knows its record and its start.

    Parameters
    ----------
    values : array of shape (T,) or (T, C)
        The samples, kept as float32 (T, C). NaN marks what was not measured.
    id : str
        The name by which hits, errors and galleries refer to the signal.
    rate_hz : float, optional
        Samples a second. None means not known: a sample then counts as a second.
    channels : tuple of str, optional
        A name for each channel. Signals with names are matched by name, not by position.
    record : str, optional
        The id of the recording that a window was cut from.
    start_s : float, default=0.0
        Where in its record a window starts, in seconds (in samples where the rate is not known).
    anchors : array of shape (A,), optional
        Samples of alignment marks (R peaks, word times), from which a clock can be made. They may lie outside of the
        signal.
    start_time : datetime, optional
        The wall-clock time of the first sample, with or without a zone; None where it is not known.
    units : tuple of str, optional
        The unit of each channel, such as mV; an empty text where it is not known. None: none is known.

    Raises
    ------
    SignalError
        If the values are not (T, C) numbers, hold infinity or nothing measured at all, or if rate, names or anchors do
        not fit.

    Examples
    --------
    >>> import numpy as np
    >>> signal = Signal(np.zeros((256, 2)), "100", rate_hz=128.0, channels=("MLII", "V5"))
    >>> signal.duration_s
    2.0
    >>> signal.window(64, 128)
    Signal('100@0.5s', 64 samples at 128 Hz, 2 channels (MLII, V5))
    """

    values: Values  # (T, C)
    id: str
    rate_hz: float | None = None
    channels: tuple[str, ...] = ()
    record: str = ""
    start_s: float = 0.0
    anchors: Anchors | None = None
    start_time: datetime | None = None
    units: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        values = as_values(self.values, self.id)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "channels", tuple(self.channels))
        if self.units is not None:
            object.__setattr__(self, "units", tuple(self.units))
        if self.anchors is not None:
            object.__setattr__(self, "anchors", sorted_anchors(self.anchors, self.id))
        _check(self)

    def __repr__(self) -> str:
        return f"Signal({self.id!r}, {self.length} samples{at_hz(self.rate_hz)}, {channel_text(self)})"

    def _repr_html_(self) -> str:
        return table([signal_row(self)])

    @classmethod
    def from_array(
        cls,
        values: npt.ArrayLike,
        id: str = "0",
        rate_hz: float | None = None,
        channels: Sequence[str] = (),
        anchors: Anchors | None = None,
        start_time: datetime | None = None,
        units: Sequence[str] | None = None,
    ) -> Signal:
        """Make one signal from numbers.

        Parameters
        ----------
        values : array-like of shape (T,) or (T, C)
            The samples; NaN marks what was not measured.
        id : str, default="0"
            The name of the signal.
        rate_hz : float, optional
            Samples a second; None means not known.
        channels : sequence of str, optional
            A name for each channel.
        anchors : array of shape (A,), optional
            Samples of alignment marks.
        start_time : datetime, optional
            The wall-clock time of the first sample.
        units : sequence of str, optional
            The unit of each channel.

        Returns
        -------
        Signal
            The signal.

        Examples
        --------
        >>> Signal.from_array([1.0, 2.0, 3.0], id="a", rate_hz=10.0)
        Signal('a', 3 samples at 10 Hz, 1 channel)
        """
        own_units = None if units is None else tuple(units)
        return cls(
            as_array(values, id), id, rate_hz, tuple(channels), anchors=anchors, start_time=start_time, units=own_units
        )

    @property
    def observed(self) -> npt.NDArray[np.bool_]:
        """Which values (T, C) were measured."""
        return ~np.isnan(self.values)

    @property
    def length(self) -> int:
        """Number of samples."""
        return int(self.values.shape[0])

    @property
    def clock_hz(self) -> float:
        """Samples a second; where the rate is not known, a sample counts as a second."""
        return 1.0 if self.rate_hz is None else self.rate_hz

    @property
    def duration_s(self) -> float:
        """Seconds from the first sample to the end of the last; samples where the rate is not known."""
        return self.length / self.clock_hz

    def at_rate(self, rate_hz: float | None) -> Signal:
        """Bring the signal to a rate: resample it, or take it to have the rate where its own is not known.

        Parameters
        ----------
        rate_hz : float or None
            Samples a second; None leaves the signal as it is.

        Returns
        -------
        Signal
            A signal of that rate; the same object where nothing changes.
        """
        if rate_hz is None or self.rate_hz == rate_hz:
            return self
        if self.rate_hz is not None:
            return self.resampled(rate_hz)
        return replace(self, rate_hz=float(rate_hz), start_s=self.start_s / rate_hz)

    def arranged(self, channels: Sequence[str]) -> Signal:
        """Bring the channels into an order, matched by name where both sides have names.

        Parameters
        ----------
        channels : sequence of str
            The names in the wanted order; channels of other names are left out. Empty: as they stand.

        Returns
        -------
        Signal
            The arranged signal; the same object where nothing changes.

        Raises
        ------
        SignalError
            If the signal has names and lacks one of these, or a name stands twice.

        Examples
        --------
        >>> leads = Signal.from_array([[1.0, 2.0]], channels=("V5", "MLII"))
        >>> leads.arranged(("MLII", "V5")).values.tolist()
        [[2.0, 1.0]]
        """
        wanted = tuple(channels)
        if not wanted or not self.channels or self.channels == wanted:
            return self
        unique = len(set(wanted)) == len(wanted) and len(set(self.channels)) == len(self.channels)
        if not (unique and set(wanted) <= set(self.channels)):
            raise SignalError(
                f"signal {self.id!r} has the channels {', '.join(self.channels)}; expected {', '.join(wanted)}: "
                "rename its channels, or leave the names out to take them as they stand"
            )
        places = [self.channels.index(name) for name in wanted]
        units = None if self.units is None else tuple(self.units[place] for place in places)
        return replace(self, values=self.values[:, places], channels=wanted, units=units)

    def resampled(self, rate_hz: float) -> Signal:
        """Resample by polyphase filtering; what was not measured stays so, and anchors move along.

        Parameters
        ----------
        rate_hz : float
            Samples a second of the result.

        Returns
        -------
        Signal
            The same signal at another rate.

        Raises
        ------
        SignalError
            If the signal's own rate is not known, or a rate is below 0.001 Hz.
        """
        from scipy.signal import resample_poly

        if self.rate_hz is None:
            raise SignalError(f"signal {self.id!r} has no rate to be resampled from; give it its rate_hz")
        if min(rate_hz, self.rate_hz) < SLOWEST_HZ:
            raise SignalError(
                f"signal {self.id!r}: can resample {SLOWEST_HZ} Hz and more, not {self.rate_hz} to {rate_hz}"
            )
        ratio = Fraction(rate_hz).limit_denominator(1000) / Fraction(self.rate_hz).limit_denominator(1000)
        padding: Literal["line", "mean"] = "line" if self.length > 1 else "mean"  # one sample has no line through it
        values = resample_poly(self.bridged(), ratio.numerator, ratio.denominator, axis=0, padtype=padding)
        before = np.minimum(np.arange(len(values)) * ratio.denominator // ratio.numerator, self.length - 1)
        return replace(
            self,
            values=np.where(self.observed[before], values, np.nan),
            rate_hz=float(rate_hz),
            anchors=None if self.anchors is None else self.anchors * float(ratio),
        )

    def bridged(self) -> Values:
        """Bridge every gap by a straight line.

        Returns
        -------
        array of shape (T, C)
            The values without NaN; a channel that was never measured is 0.
        """
        return np.stack([bridge(column) for column in self.values.T], axis=1)

    def window(self, start: int, stop: int, suffix: str = "", *, surroundings: int = SURROUNDINGS) -> Signal:
        """Cut out a span of samples that remembers its record.

        Parameters
        ----------
        start, stop : int
            First sample, and the sample after the last.
        suffix : str, optional
            What is put behind its id, which is made of the record and the start.
        surroundings : int, default=16
            Anchors to keep on either side of the span, from which its tempo beside theirs is told.

        Returns
        -------
        Signal
            The span with its record and start, the anchors in it and the nearest ones on either side.

        Raises
        ------
        SignalError
            If the span does not lie within the signal.
        """
        if not 0 <= start < stop <= self.length:
            raise SignalError(f"signal {self.id!r} has {self.length} samples, not the span {start}..{stop}")
        start_s = self.start_s + start / self.clock_hz
        values = self.values[start:stop]
        if np.isnan(values).all():
            raise all_missing(f"{self.id}@{start_s:.10g}s{suffix}")
        part = object.__new__(type(self))  # what a checked signal holds need not be checked again
        part.__dict__.update(
            self.__dict__,
            values=values,
            id=f"{self.id}@{start_s:.10g}s{suffix}",
            record=self.record or self.id,
            start_s=start_s,
            anchors=None if self.anchors is None else anchors_around(self.anchors, start, stop, surroundings),
            start_time=self.time_at(start),
        )
        return part

    def time_at(self, sample: float) -> datetime | None:
        """Tell the wall-clock time of a sample.

        Parameters
        ----------
        sample : float
            Samples from the first, which is 0.

        Returns
        -------
        datetime or None
            Its time, in the zone of `start_time`; None where that or the rate is not known.

        Examples
        --------
        >>> Signal.from_array([0.0] * 9, rate_hz=2.0, start_time=datetime(2026, 5, 1, 12)).time_at(4).isoformat()
        '2026-05-01T12:00:02'
        """
        if sample == 0 or self.start_time is None:
            return self.start_time
        return None if self.rate_hz is None else self.start_time + timedelta(seconds=sample / self.rate_hz)


class LazySignals(Sequence[Signal]):
    """Signals that are read when they are used, so that there can be more of them than memory holds."""

    rate_hz: float | None
    lengths: npt.NDArray[np.int64]  # (N,) samples of each, known without reading it


def are_bands(channels: Sequence[str] | None) -> bool:
    """Whether these are the names of neighbouring bands of a spectrum: frames of sound."""
    return bool(channels) and all(name.startswith(BANDS) for name in channels or ())


def at_hz(rate_hz: float | None) -> str:
    """`" at 128 Hz"` for the one-line descriptions; nothing where the rate is not known."""
    return "" if rate_hz is None else f" at {rate_hz:g} Hz"


def rate_text(rate_hz: float | None) -> str:
    """The rate of a signal in an error message."""
    return "no known rate" if rate_hz is None else f"{rate_hz:g} Hz"


def channel_text(signal: Signal) -> str:
    """`2 channels (MLII, V5)`, with the first names only where there are many."""
    count, names = signal.values.shape[1], ", ".join(signal.channels[:NAMES_SHOWN])
    more = ", ..." if len(signal.channels) > NAMES_SHOWN else ""
    return f"{count} channel{'s' * (count > 1)}{f' ({names}{more})' if names else ''}"


def signal_row(signal: Signal) -> dict[str, object]:
    """A row of a notebook's table, with a drawing of the first channel."""
    return {
        "id": signal.id,
        "record": signal.record,
        "start_s": signal.start_s,
        "samples": signal.length,
        "rate_hz": signal.rate_hz,
        "channels": ", ".join(signal.channels) or signal.values.shape[1],
        "values": sparkline(signal.values),
    }


def all_missing(id: str) -> SignalError:
    """The error for a signal without any measured sample."""
    return SignalError(f"signal {id!r} is all NaN; give at least one measured sample or leave the signal out")


def _check(signal: Signal) -> None:
    values, id = signal.values, signal.id
    if values.ndim != 2 or 0 in values.shape:
        raise SignalError(f"signal {id!r}: expected values (T, C) with T, C >= 1, got shape {values.shape}")
    finite = np.count_nonzero(np.isfinite(values))
    if finite < values.size and np.isinf(values).any():
        raise SignalError(
            f"signal {id!r} contains inf at sample {int(np.argwhere(np.isinf(values))[0, 0])}; "
            "infinity is no measurement: use NaN for what is missing"
        )
    if not finite:
        raise all_missing(id)
    if signal.rate_hz is not None and not signal.rate_hz > 0:
        raise SignalError(f"signal {id!r}: expected rate_hz > 0, got {signal.rate_hz}")
    if signal.channels and len(signal.channels) != values.shape[1]:
        raise SignalError(f"signal {id!r} has {values.shape[1]} channels but {len(signal.channels)} channel names")
    if signal.units is not None and len(signal.units) != values.shape[1]:
        raise SignalError(
            f"signal {id!r} has {values.shape[1]} channels but {len(signal.units)} units; '' where unknown"
        )
