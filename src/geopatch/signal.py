"""A signal: values over time with a rate and an id. NaN means not measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import MissingExtraError, SignalError

Values = npt.NDArray[np.float32]
Anchors = npt.NDArray[np.float64]

SLOWEST_HZ = 0.001
ID_COLUMN, TIME_COLUMN, LABEL_COLUMN = "id", "time", "label"


@dataclass(frozen=True, eq=False)
class Signal:
    """Values (T, C) on an even clock. A window is a signal that knows its record and where in it it starts."""

    values: Values  # (T, C)
    id: str
    rate_hz: float | None = None  # None: not known
    channels: tuple[str, ...] = ()
    record: str = ""
    start_s: float = 0.0
    anchors: Anchors | None = field(default=None, repr=False)  # samples of alignment marks: R peaks, word times
    observed: npt.NDArray[np.bool_] = field(init=False, repr=False)  # (T, C)

    def __post_init__(self) -> None:
        values = _numeric(self.values, self.id)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "observed", ~np.isnan(values))
        if self.anchors is not None:
            object.__setattr__(self, "anchors", _sorted_anchors(self.anchors, self.id))
        _check(self)

    @classmethod
    def from_array(
        cls,
        values: npt.ArrayLike,
        id: str = "0",
        rate_hz: float | None = None,
        channels: Sequence[str] = (),
        anchors: Anchors | None = None,
    ) -> Signal:
        """One signal from (T,) or (T, C) numbers."""
        return cls(_array(values, id), id=id, rate_hz=rate_hz, channels=tuple(channels), anchors=anchors)

    @property
    def length(self) -> int:
        return int(self.values.shape[0])

    @property
    def clock_hz(self) -> float:
        """Samples a second; where the rate is not known, a sample counts as a second."""
        return 1.0 if self.rate_hz is None else self.rate_hz

    @property
    def duration_s(self) -> float:
        return self.length / self.clock_hz

    def at_rate(self, rate_hz: float | None) -> Signal:
        """The signal at this rate: resampled where its own is known and differs, taken to have it where it is not."""
        if rate_hz is None or self.rate_hz == rate_hz:
            return self
        return replace(self, rate_hz=float(rate_hz)) if self.rate_hz is None else self.resampled(rate_hz)

    def arranged(self, channels: Sequence[str]) -> Signal:
        """The signal with its channels in this order, matched by name where both sides have names."""
        wanted = tuple(channels)
        if not wanted or not self.channels or self.channels == wanted:
            return self
        if not set(wanted) <= set(self.channels):
            raise SignalError(
                f"signal {self.id!r} has the channels {', '.join(self.channels)}; expected {', '.join(wanted)}: "
                "rename its channels, or leave the names out to take them as they stand"
            )
        places = [self.channels.index(name) for name in wanted]
        return replace(self, values=self.values[:, places], channels=wanted)

    def resampled(self, rate_hz: float) -> Signal:
        """The same signal at another rate, by polyphase filtering. What was not measured stays so."""
        from scipy.signal import resample_poly

        if self.rate_hz is None:
            raise SignalError(f"signal {self.id!r} has no rate to be resampled from; give it its rate_hz")
        if min(rate_hz, self.rate_hz) < SLOWEST_HZ:
            raise SignalError(
                f"signal {self.id!r}: can resample {SLOWEST_HZ} Hz and more, not {self.rate_hz} to {rate_hz}"
            )
        ratio = Fraction(rate_hz).limit_denominator(1000) / Fraction(self.rate_hz).limit_denominator(1000)
        values = resample_poly(self.bridged(), ratio.numerator, ratio.denominator, axis=0, padtype="line")
        before = np.minimum(np.arange(len(values)) * ratio.denominator // ratio.numerator, self.length - 1)
        return replace(
            self,
            values=np.where(self.observed[before], values, np.nan),
            rate_hz=float(rate_hz),
            anchors=None if self.anchors is None else self.anchors * float(ratio),
        )

    def bridged(self) -> Values:
        """The values with every gap bridged by a straight line; a channel that was never measured is 0."""
        return np.stack([_bridged(column) for column in self.values.T], axis=1)

    def window(self, start: int, stop: int) -> Signal:
        """The samples start..stop as a signal that remembers its record, and the anchors next to it on either side."""
        if not 0 <= start < stop <= self.length:
            raise SignalError(f"signal {self.id!r} has {self.length} samples, not the span {start}..{stop}")
        start_s = self.start_s + start / self.clock_hz
        return replace(
            self,
            values=self.values[start:stop],
            id=f"{self.id}@{start_s:.10g}s",
            record=self.record or self.id,
            start_s=start_s,
            anchors=None if self.anchors is None else _anchors_around(self.anchors, start, stop),
        )


class LazySignals(Sequence[Signal]):
    """Signals that are read when they are asked for, so that there can be more of them than memory holds."""

    rate_hz: float | None
    lengths: npt.NDArray[np.int64]  # (N,) samples of each, known without reading it


def as_signals(X: Any) -> Sequence[Signal]:
    """Signals from what people have: (N, T) or (N, T, C) arrays, lists of unequal arrays, frames, signals."""
    if isinstance(X, Signal):
        return [X]
    if isinstance(X, LazySignals):
        return X
    if _is_frame(X):
        return from_frame(X)
    if hasattr(X, "__array__") and not isinstance(X, (list, tuple)):
        return _from_stack(np.asarray(X))
    if not isinstance(X, Iterable) or isinstance(X, (str, bytes)):
        raise SignalError(f"expected an array, a list of arrays, a frame or signals, got {type(X).__name__}")
    items = [item if isinstance(item, Signal) else _array(item, str(n)) for n, item in enumerate(X)]
    if not items:
        raise SignalError("expected at least one signal, got none")
    if all(not isinstance(item, Signal) and item.ndim == 0 for item in items):
        return _from_stack(np.asarray(items))
    return [item if isinstance(item, Signal) else Signal.from_array(item, id=str(n)) for n, item in enumerate(items)]


def from_frame(frame: Any, rate_hz: float | None = None) -> list[Signal]:
    """Signals from a pandas or polars frame.

    With an `id` column the frame is long: rows of one id are one signal, ordered by `time` if there is one, and every
    other column but `label` is a channel of numbers. Without it the frame is wide: each row is a signal of one channel.
    """
    table = _narwhal(frame)
    if ID_COLUMN not in table.columns:
        numbers = table.drop(LABEL_COLUMN, strict=False) if LABEL_COLUMN in table.columns else table
        return _from_stack(numbers.to_numpy(), rate_hz)
    if table.is_empty():
        raise SignalError("expected at least one signal, got a frame without rows")
    channels = [name for name in table.columns if name not in (ID_COLUMN, TIME_COLUMN, LABEL_COLUMN)]
    if TIME_COLUMN in table.columns:
        table = table.sort(ID_COLUMN, TIME_COLUMN)
    groups = table.with_columns(table[ID_COLUMN].cast(_narwhals().String)).group_by(ID_COLUMN)
    return [
        Signal.from_array(group.select(channels).to_numpy(), id=str(key[0]), rate_hz=rate_hz, channels=channels)
        for key, group in sorted(groups, key=lambda item: _natural(str(item[0][0])))
    ]


def frame_labels(frame: Any) -> npt.NDArray[np.str_] | None:
    """The label of each signal that `from_frame` gives, in the same order; None without a `label` column."""
    table = _narwhal(frame)
    if LABEL_COLUMN not in table.columns:
        return None
    missing = table[LABEL_COLUMN].is_null() | table[LABEL_COLUMN].cast(_narwhals().String).is_in(["nan"])
    if missing.any():
        row = missing.to_list().index(True)
        raise SignalError(f"row {row} of the frame has no label; give it one, or leave the column out")
    if ID_COLUMN not in table.columns:
        return np.asarray(table[LABEL_COLUMN].to_list(), dtype=str)
    found: dict[str, str] = {}
    for id, label in zip(table[ID_COLUMN].to_list(), table[LABEL_COLUMN].to_list(), strict=True):
        if found.setdefault(str(id), str(label)) != str(label):
            raise SignalError(f"signal {str(id)!r} has two labels, {found[str(id)]!r} and {str(label)!r}; give it one")
    return np.asarray([found[id] for id in sorted(found, key=_natural)], dtype=str)


def _natural(text: str) -> tuple[int, float, str]:
    """Numbers in order of size, before text: '2' stands before '10'."""
    return (0, float(text), text) if text.replace(".", "", 1).isdecimal() else (1, 0.0, text)


def _narwhals() -> Any:
    try:
        import narwhals
    except ImportError as error:
        raise MissingExtraError("narwhals", "frames", "reading a pandas or polars frame") from error
    return narwhals


def _narwhal(frame: Any) -> Any:
    return _narwhals().from_native(frame, eager_only=True)


def _is_frame(X: Any) -> bool:
    return hasattr(X, "columns") and hasattr(X, "shape")


def _from_stack(stack: npt.NDArray[Any], rate_hz: float | None = None) -> list[Signal]:
    if stack.ndim not in (2, 3):
        raise SignalError(
            f"expected an array (N, T) or (N, T, C), got {stack.ndim}D with shape {stack.shape}. "
            "Reshape your data: one window is X[None, :] and one feature is X.reshape(-1, 1)"
        )
    if 0 in stack.shape:
        raise SignalError(
            f"expected at least one signal of one sample, got 0 feature(s) (shape={stack.shape}) "
            "while a minimum of 1 is required."
        )
    return [Signal.from_array(values, id=str(n), rate_hz=rate_hz) for n, values in enumerate(stack)]


def _sorted_anchors(anchors: Any, id: str) -> Anchors:
    found = np.unique(np.asarray(anchors, dtype=np.float64).ravel())
    if not np.isfinite(found).all():
        raise SignalError(f"signal {id!r} has an anchor that is no finite number; leave out anchors that are missing")
    return found


def _anchors_around(anchors: Anchors, start: int, stop: int) -> Anchors:
    """Those within start..stop and one more on either side, so that a clock need not guess beyond the last."""
    first, last = np.searchsorted(anchors, [start, stop])
    around: Anchors = anchors[max(first - 1, 0) : last + 1] - start
    return around


def _bridged(column: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """A channel with its gaps bridged by straight lines; 0 where nothing was measured."""
    known = np.flatnonzero(~np.isnan(column))
    if len(known) == 0:
        return np.zeros_like(column)
    bridged: npt.NDArray[np.float64] = np.interp(np.arange(len(column)), known, column[known])
    return bridged.astype(np.float32)


def _array(values: npt.ArrayLike, id: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise SignalError(f"signal {id!r}: expected (T,) or (T, C) numbers, got rows of unequal length") from error


def _numeric(values: Any, id: str) -> Values:
    raw = _array(values, id)
    if raw.ndim == 1:
        raw = raw[:, None]
    if raw.dtype.kind == "c":
        raise SignalError(f"signal {id!r}: expected real numbers, got complex. Complex data not supported")
    if raw.dtype.kind in "OUS":
        try:
            raw = raw.astype(np.float64)
        except (TypeError, ValueError) as error:
            detail = f"argument must be a string or a number; {error}" if isinstance(error, TypeError) else str(error)
            raise SignalError(f"signal {id!r}: expected numbers, got {detail}; NaN marks what is missing") from error
    if raw.dtype.kind not in "biuf":
        raise SignalError(f"signal {id!r}: expected numbers, got {raw.dtype}; a time column is called {TIME_COLUMN!r}")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes inf and is refused as such
        return np.ascontiguousarray(raw, dtype=np.float32)


def _check(signal: Signal) -> None:
    values, id = signal.values, signal.id
    if values.ndim != 2 or 0 in values.shape:
        raise SignalError(f"signal {id!r}: expected values (T, C) with T, C >= 1, got shape {values.shape}")
    if np.isinf(values).any():
        raise SignalError(
            f"signal {id!r} contains inf at sample {int(np.argwhere(np.isinf(values))[0, 0])}; "
            "infinity is no measurement: use NaN for what is missing"
        )
    if not signal.observed.any():
        raise SignalError(f"signal {id!r} is all NaN; give at least one measured sample or leave the signal out")
    if signal.rate_hz is not None and not signal.rate_hz > 0:
        raise SignalError(f"signal {id!r}: expected rate_hz > 0, got {signal.rate_hz}")
    if signal.channels and len(signal.channels) != values.shape[1]:
        raise SignalError(f"signal {id!r} has {values.shape[1]} channels but {len(signal.channels)} channel names")
