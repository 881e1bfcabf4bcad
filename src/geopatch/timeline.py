"""The even clock of a recording: the rate of its times, their jitter and drift, and the holes between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from geopatch.errors import SignalError
from geopatch.times import Seconds, Times, later

Rows = npt.NDArray[np.float32]  # (rows, C)
Places = npt.NDArray[np.int64]

NEAR = 0.02  # of a step: what lies so near to an even clock is taken to lie on it
JITTER = 0.5  # of a step: up to here times are regridded
SHORT_SHARE = 0.01  # of the steps may be shorter than that: more is no even clock
DRIFT = 5e-4  # relative: a rate so near to a whole number is that of a crystal that runs a little fast or slow
EXPANSION = 4  # samples of the even clock for each that was measured, at most
LONGEST_STEP_S = 1e8  # three years
SESSION_ROWS = 16  # the least that counts as a recording of its own beyond a long hole


@dataclass(frozen=True, eq=False)
class EvenClock:
    """An even clock through the times of rows, and where on it each of them lies."""

    rate_hz: float
    samples: int
    order: Places  # rows in the order of time
    places: Places  # sample of each ordered row
    seconds: Seconds | None  # of each ordered row, where its values are to be regridded
    start_time: datetime | None = None
    notes: tuple[str, ...] = ()

    def regrid(self, values: Rows) -> Rows:
        """The values (rows, C) on the even clock (samples, C), NaN in its holes."""
        if self.seconds is not None:
            return _interpolated(values[self.order], self.seconds, self.rate_hz, self.samples)
        if self.samples == len(values) == len(self.order):
            return values[self.order]
        even = np.full((self.samples, values.shape[1]), np.nan, dtype=np.float32)
        even[self.places] = values[self.order]
        return even


def sessions(times: Times) -> list[Places]:
    """The rows of each session, in the order of time: a hole longer than all that was measured parts two of them."""
    order = np.argsort(times.seconds, kind="stable")  # NaN stands last
    order = order[: np.count_nonzero(np.isfinite(times.seconds))]
    steps = np.diff(times.seconds[order])
    if len(steps) < 2 * SESSION_ROWS:
        return [order]
    measured_s = float(np.median(steps)) * len(order)
    parts = np.split(order, np.flatnonzero(steps > measured_s) + 1)
    return parts if measured_s > 0 and min(map(len, parts)) >= SESSION_ROWS else [order]


def even_clock(times: Times, what: str) -> EvenClock:
    """The even clock of rows at these times; an uneven one is refused with its figures.

    Times that are even but for rounding are taken as they stand; small jitter and slow drift are regridded by linear
    interpolation; rows that lack are holes.
    """
    timed = np.flatnonzero(np.isfinite(times.seconds))
    untimed = len(times.seconds) - len(timed)
    notes = [f"{untimed} rows have no time and are left out"] if untimed else []
    seconds = times.seconds[timed]
    if len(times.seconds) == len(timed) == 1:
        return EvenClock(1.0, 1, timed, np.zeros(1, dtype=np.int64), None, times.start_time)
    if len(seconds) < 2 or not seconds.min() < seconds.max():
        came = f"{len(seconds)} rows of one time" if len(seconds) else "none"
        raise SignalError(f"{what}: expected rows at two or more different times, got {came}; mend the times")
    order = np.argsort(seconds, kind="stable")
    if (np.diff(seconds) < 0).any():
        notes.append("rows are brought into the order of time")
    order, seconds = timed[order], seconds[order]
    with np.errstate(all="ignore"):  # times that no clock shows are refused below
        clock = _counted(seconds) or _placed(seconds, what)
    start = None if times.start_time is None else later(times.start_time, float(seconds[0]))
    return EvenClock(clock.rate_hz, clock.samples, order, clock.places, clock.seconds, start, (*notes, *clock.notes))


def _counted(seconds: Seconds) -> EvenClock | None:
    """The clock of rows that follow each other without a hole, even but for the digits to which times are written."""
    rows = np.arange(len(seconds), dtype=np.float64)
    step_s, first_s = _line(rows, seconds)
    off_s = float(np.abs(seconds - (first_s + step_s * rows)).max())
    resolution_s = _resolution_s(seconds)
    coarse = bool((np.diff(seconds) == 0).any())
    if not off_s <= max(NEAR * step_s, (0.8 if coarse else 0.51) * resolution_s) or not step_s < LONGEST_STEP_S:
        return None
    open_share = resolution_s / float(seconds[-1] - seconds[0]) if off_s > NEAR * step_s else 0.0
    rate_hz = _round_rate(1 / step_s, open_share)
    if abs(rate_hz * step_s - 1) * len(seconds) > 0.5 and not coarse:
        return None  # it drifts from the round rate by a sample: it is regridded
    notes = (f"times are written to {resolution_s:g} s, rows are counted between them",) if coarse else ()
    return EvenClock(rate_hz, len(seconds), rows.astype(np.int64), rows.astype(np.int64), None, None, notes)


def _placed(seconds: Seconds, what: str) -> EvenClock:
    """The clock of rows with holes, jitter or drift."""
    steps, span_s = np.diff(seconds), float(seconds[-1] - seconds[0])
    resolution_s, regular = _resolution_s(seconds), _check_steps(steps, _resolution_s(seconds), what)
    rate_hz = _round_rate(float(regular.sum() / steps[regular].sum()), max(resolution_s / span_s, 1e-9))
    if not span_s * rate_hz < EXPANSION * len(seconds):
        raise _uneven(steps, what, f"{1 - len(seconds) / (span_s * rate_hz):.0%} of the samples would be holes")
    samples = round(span_s * rate_hz) + 1
    exact = (seconds - seconds[0]) * rate_hz
    exact += np.median(np.round(exact) - exact)  # the first row may be the one that is off
    places = np.clip(np.round(exact), 0, samples - 1).astype(np.int64)
    notes, order = _hole_notes(places, rate_hz), np.arange(len(seconds))
    if np.abs(exact - places).max() <= max(NEAR, 0.51 * resolution_s * rate_hz) and (np.diff(places) > 0).all():
        return EvenClock(rate_hz, samples, order, places, None, None, tuple(notes))
    jitter = float(np.abs(steps[regular] * rate_hz - 1).max())
    own_hz = float(regular.sum() / steps[regular].sum())
    off = f"steps differ by up to {jitter:.0%}" if jitter > NEAR else f"the clock runs at {own_hz:.6g} Hz"
    text = f"{off}; regridded to {rate_hz:g} Hz by linear interpolation"
    samples = int(span_s * rate_hz + NEAR) + 1  # none beyond the last row
    return EvenClock(rate_hz, samples, order, places, seconds - seconds[0], None, (text, *notes))


def _check_steps(steps: Seconds, resolution_s: float, what: str) -> npt.NDArray[np.bool_]:
    """Which steps are those of the clock, and not holes; times that make no even clock are refused."""
    median_s = float(np.median(steps))
    regular: npt.NDArray[np.bool_] = steps < (1 + JITTER) * median_s
    if not 0 < median_s < LONGEST_STEP_S or (resolution_s > 0.4 * median_s and not regular.mean() > 0.8):
        raise _uneven(steps, what, f"and times are written to {resolution_s:g} s only")
    short = float(np.mean(steps < (1 - JITTER) * median_s))
    if short > SHORT_SHARE:
        raise _uneven(steps, what, f"{short:.0%} of them shorter than half of that")
    return regular


def _line(rows: Seconds, seconds: Seconds) -> tuple[float, float]:
    """Slope and start of the straight line nearest to the times."""
    centred = rows - rows.mean()
    slope = float(centred @ (seconds - seconds.mean()) / (centred @ centred))
    return slope, float(seconds.mean() - slope * rows.mean())


def _hole_notes(places: Places, rate_hz: float) -> list[str]:
    steps = np.diff(places)
    holes = (steps[steps > 1] - 1) / rate_hz
    if not len(holes):
        return []
    in_all = f"{holes.sum():.4g} s in all, the longest {holes.max():.4g} s" if len(holes) > 1 else f"{holes[0]:.4g} s"
    return [f"{len(holes)} hole{'s' * (len(holes) > 1)} of {in_all}, filled with NaN"]


def _interpolated(values: Rows, seconds: Seconds, rate_hz: float, samples: int) -> Rows:
    """Linear between neighbours in time; beside a hole the nearest row, NaN within it."""
    grid = np.arange(samples) / rate_hz
    after = np.clip(np.searchsorted(seconds, grid), 1, len(seconds) - 1)
    width = np.maximum(seconds[after] - seconds[after - 1], 1e-300)
    share = np.clip((grid - seconds[after - 1]) / width, 0.0, 1.0)
    wide = width * rate_hz > 1 + 2 * JITTER
    nearest = np.minimum(share, 1 - share) * width * rate_hz
    share = np.where(wide, np.round(share), share).astype(np.float32)
    even = np.empty((samples, values.shape[1]), dtype=np.float32)
    for column, own in zip(even.T, values.T, strict=True):  # a column at a time: less memory
        left, right = own[after - 1], own[after]
        nearer = np.where(share < 0.5, left, right)
        with np.errstate(invalid="ignore"):  # of infinity, which Signal refuses
            mixed = left + share * (right - left)
        column[:] = np.where(wide | np.isnan(mixed), nearer, mixed)
    even[wide & (nearest > JITTER)] = np.nan
    return even


def _resolution_s(seconds: Seconds) -> float:
    """The power of ten of a second to which times are written; 0 where they are finer than nanoseconds."""
    differences = seconds - seconds[0]
    for exponent in range(1, -10, -1):
        ticks = differences / 10.0**exponent
        if np.abs(ticks - np.round(ticks)).max() < 1e-3:
            return 10.0**exponent
    return 0.0


def _round_rate(rate_hz: float, uncertainty: float) -> float:
    """The roundest rate within what the times leave open; slow rates by their period."""
    return 1 / _round_number(1 / rate_hz, uncertainty) if rate_hz < 1 else _round_number(rate_hz, uncertainty)


def _round_number(value: float, uncertainty: float) -> float:
    for digits in (0, 1, 2, 3):
        plain = round(value, digits)
        if plain and abs(plain - value) <= value * max(uncertainty, DRIFT if digits == 0 else 1e-6):
            return float(plain)
    return value


def _uneven(steps: Sequence[float] | Seconds, what: str, why: str) -> SignalError:
    low, middle, high = np.min(steps), np.median(steps), np.max(steps)
    return SignalError(
        f"{what}: the times are uneven: steps of {low:.4g} to {high:.4g} s, in the median {middle:.4g} s, {why}; "
        "resample the recording, or leave the column out and give the rate"
    )
