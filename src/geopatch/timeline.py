"""A column of times as an even clock: its rate, its jitter, its holes, and the wall-clock time of the first sample."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import SignalError

Seconds = npt.NDArray[np.float64]
Values = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]

UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
UNIT_NAMES = {"sec": "s", "secs": "s", "second": "s", "seconds": "s", "milliseconds": "ms", "millis": "ms"}
UNIT_NAMES |= {"µs": "us", "μs": "us", "microseconds": "us", "nanoseconds": "ns", "minutes": "min", "hours": "h"}
EPOCHS = (("s", 1e9, 4.2e9), ("ms", 1e12, 4.2e12), ("us", 1e15, 4.2e15), ("ns", 1e18, 4.2e18))  # 2001 to 2103
NO_DATE = datetime(1900, 1, 1)  # of times of day without a date, as in datetime.strptime
CLOCK = re.compile(r"(\d{1,3}):(\d\d)(?::(\d\d(?:[.,]\d*)?))?")
ZONE = re.compile(r"(?<=[\d.])\s*(Z|UTC|[+-]\d\d:?\d\d)$", re.IGNORECASE)
EUROPEAN = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})[ T]+(.+)")
SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})[ T]+(.+)")

AS_GIVEN = 0.02  # of a step: what lies so near to an even clock is taken to lie on it
JITTER = 0.5  # of a step: up to here times are regridded
SHORT_SHARE = 0.01  # of the steps may be shorter than that: more is no even clock
DRIFT = 5e-4  # relative: a rate so near to a round one is that of a crystal that runs a little fast or slow
EXPANSION = 4  # samples of the even clock for each that was measured, at most


@dataclass(frozen=True, eq=False)
class Times:
    """Times of rows in seconds from `origin`, as they were written."""

    seconds: Seconds  # NaN where a row has none
    start_time: datetime | None = None  # of second 0
    source: str = ""  # what they were written as: "ISO times", "epoch ms", "seconds"


@dataclass(frozen=True, eq=False)
class EvenClock:
    """An even clock through the times of rows, and where on it each of them lies."""

    rate_hz: float
    samples: int
    order: Places  # rows in the order of time
    places: Places  # sample of each ordered row
    seconds: Seconds | None  # of each ordered row, where its values are to be regridded
    start_time: datetime | None
    notes: tuple[str, ...]

    def regrid(self, values: Values) -> Values:
        """The values (rows, C) on the even clock (samples, C), NaN in its holes."""
        if self.seconds is not None:
            return _interpolated(values, self.order, self.seconds, self.rate_hz, self.samples)
        if self.samples == len(values) == len(self.order):
            return values[self.order]
        even = np.full((self.samples, values.shape[1]), np.nan, dtype=np.float32)
        even[self.places] = values[self.order]
        return even


def numeric_times(numbers: npt.NDArray[Any], unit: str | None) -> Times:
    """Times from numbers: epoch where they are as large as that, else seconds, or the unit that a name says."""
    values = np.asarray(numbers, dtype=np.float64)
    middle = float(np.nanmedian(np.abs(values))) if np.isfinite(values).any() else 0.0
    for epoch, low, high in EPOCHS:
        if low <= middle < high and unit in (None, epoch):
            first = values[np.isfinite(values)][0]
            start = datetime.fromtimestamp(0, timezone.utc) + timedelta(seconds=float(first) * UNITS_S[epoch])
            return Times((values - first) * UNITS_S[epoch], start, f"epoch {epoch}")
    unit = unit or "s"
    return Times(values * UNITS_S[unit], None, {"s": "seconds"}.get(unit, unit))


def datetime_times(values: npt.NDArray[np.datetime64], zone: Any = None) -> Times:
    """Times from dates; `zone` is that of an aware column, whose values are in UTC."""
    ticks = values.astype("datetime64[ns]")
    missing = np.isnat(ticks)
    if missing.all():
        return Times(np.full(len(ticks), np.nan))
    first = ticks[~missing][0]
    seconds = (ticks - first).astype(np.float64) * 1e-9
    seconds[missing] = np.nan
    start = datetime(1970, 1, 1) + timedelta(microseconds=int(first.astype(np.int64)) // 1000)
    if zone is not None:
        start = start.replace(tzinfo=timezone.utc).astimezone(zone)
    return Times(seconds, start, "dates")


def text_times(texts: Sequence[str | None]) -> Times:
    """Times from text: ISO 8601 with or without zone, 31.12.2026 12:00, 12/31/2026 12:00, or 12:00:00.5 alone."""
    plain = [(text or "").strip() for text in texts]
    first = next((text for text in plain if text), "")
    if CLOCK.fullmatch(first):
        return _clock_times(plain)
    if EUROPEAN.fullmatch(first):
        plain = _rearranged(plain, EUROPEAN, (3, 2, 1))
    elif SLASHED.fullmatch(first):
        plain = _rearranged(plain, SLASHED, _slash_order(plain))
    return _iso_times(plain)


def unit_of(text: str) -> str | None:
    """The unit of time that a word names, such as ms of milliseconds; None for any other word."""
    word = text.strip().lower()
    word = UNIT_NAMES.get(word, word)
    return word if word in UNITS_S else None


def even_clock(times: Times, what: str) -> EvenClock:
    """The even clock of rows at these times; an uneven one is refused with its figures.

    Times that are even but for rounding are taken as they stand; small jitter and slow drift are regridded by linear
    interpolation; rows that lack are holes.
    """
    timed = np.flatnonzero(np.isfinite(times.seconds))
    notes = [f"{len(times.seconds) - len(timed)} rows have no time and are left out"] * (
        len(timed) < len(times.seconds)
    )
    seconds = times.seconds[timed]
    if len(seconds) < 2 or not np.ptp(seconds) > 0:
        raise SignalError(f"{what}: expected two or more different times, got {len(seconds)} rows of one time")
    order = np.argsort(seconds, kind="stable")
    if (np.diff(seconds) < 0).any():
        notes.append("rows are brought into the order of time")
    order, seconds = timed[order], seconds[order]
    clock = _counted(seconds) or _placed(seconds, what)
    start = times.start_time
    start = None if start is None else start + timedelta(seconds=float(seconds[0]))
    return EvenClock(clock.rate_hz, clock.samples, order, clock.places, clock.seconds, start, (*notes, *clock.notes))


def _counted(seconds: Seconds) -> EvenClock | None:
    """The clock of rows that follow each other without a hole, even but for the digits to which times are written."""
    rows = np.arange(len(seconds), dtype=np.float64)
    step_s, first_s = np.polyfit(rows, seconds, 1)
    off_s = float(np.abs(seconds - (first_s + step_s * rows)).max())
    resolution_s = _resolution_s(seconds)
    coarse = bool((np.diff(seconds) == 0).any())
    if off_s > max(AS_GIVEN * step_s, (0.8 if coarse else 0.51) * resolution_s):
        return None
    rate_hz = _round_rate(
        1 / step_s, resolution_s / float(seconds[-1] - seconds[0]) if off_s > AS_GIVEN * step_s else 0
    )
    if abs(rate_hz * step_s - 1) * len(seconds) > 0.5 and not coarse:
        return None  # it drifts from the round rate by a sample: it is regridded
    notes = [f"times are written to {resolution_s:g} s, rows are counted between them"] if coarse else []
    return _clock(rate_hz, len(seconds), rows.astype(np.int64), None, notes)


def _placed(seconds: Seconds, what: str) -> EvenClock:
    """The clock of rows with holes, jitter or drift."""
    steps, resolution_s = np.diff(seconds), _resolution_s(seconds)
    median_s = float(np.median(steps))
    short = float(np.mean(steps < (1 - JITTER) * median_s))
    regular = steps < (1 + JITTER) * median_s
    if median_s == 0 or (resolution_s > 0.4 * median_s and not regular.mean() > 0.8):
        raise _uneven(steps, what, f"and times are written to {resolution_s:g} s only")
    if short > SHORT_SHARE:
        raise _uneven(steps, what, f"{short:.0%} of them shorter than half of that")
    span_s = float(seconds[-1] - seconds[0])
    rate_hz = _round_rate(float(regular.sum() / steps[regular].sum()), max(resolution_s / span_s, 1e-9))
    samples = round(span_s * rate_hz) + 1
    if samples > EXPANSION * len(seconds):
        raise _uneven(steps, what, f"{1 - len(seconds) / samples:.0%} of the samples would be holes")
    exact = (seconds - seconds[0]) * rate_hz
    exact += np.median(np.round(exact) - exact)  # the first row may be the one that is off
    places = np.clip(np.round(exact), 0, samples - 1).astype(np.int64)
    notes = _hole_notes(places, rate_hz)
    if np.abs(exact - places).max() <= max(AS_GIVEN, 0.51 * resolution_s * rate_hz) and (np.diff(places) > 0).all():
        return _clock(rate_hz, samples, places, None, notes)
    jitter = float(np.abs(steps[regular] * rate_hz - 1).max())
    text = f"steps differ by up to {jitter:.0%}; regridded to {rate_hz:g} Hz by linear interpolation"
    return _clock(rate_hz, samples, places, seconds - seconds[0], [text, *notes])


def _clock(rate_hz: float, samples: int, places: Places, seconds: Seconds | None, notes: Sequence[str]) -> EvenClock:
    return EvenClock(rate_hz, samples, np.arange(len(places)), places, seconds, None, tuple(notes))


def _hole_notes(places: Places, rate_hz: float) -> list[str]:
    steps = np.diff(places)
    holes = steps[steps > 1] - 1
    if not len(holes):
        return []
    longest = holes.max() / rate_hz
    plural = "s" if len(holes) > 1 else ""
    return [
        f"{len(holes)} hole{plural} of {holes.sum() / rate_hz:.4g} s in all (longest {longest:.4g} s), filled with NaN"
    ]


def _interpolated(values: Values, order: Places, seconds: Seconds, rate_hz: float, samples: int) -> Values:
    """Linear between neighbours in time; NaN where none lies within a step and a half."""
    grid = np.arange(samples) / rate_hz
    after = np.clip(np.searchsorted(seconds, grid), 1, len(seconds) - 1)
    before = after - 1
    width = np.maximum(seconds[after] - seconds[before], 1e-300)
    share = np.clip((grid - seconds[before]) / width, 0.0, 1.0)[:, None]
    left, right = values[order[before]], values[order[after]]
    mixed = np.where(share == 0, left, np.where(share == 1, right, left + share * (right - left)))
    nearest = np.minimum(np.abs(grid - seconds[before]), np.abs(grid - seconds[after])) * rate_hz
    in_hole = (width * rate_hz > 1 + 2 * JITTER) & (nearest > JITTER)
    at_edge = (width * rate_hz > 1 + 2 * JITTER) & ~in_hole  # beside a hole: the nearest row, not a mix across it
    mixed[at_edge] = np.where(share[at_edge] < 0.5, left[at_edge], right[at_edge])
    mixed[in_hole] = np.nan
    return mixed.astype(np.float32)


def _resolution_s(seconds: Seconds) -> float:
    """The power of ten of a second to which times are written."""
    differences = seconds - seconds[0]
    for exponent in range(1, -10, -1):
        unit = 10.0**exponent
        ticks = differences / unit
        if np.abs(ticks - np.round(ticks)).max() < 1e-3:
            return unit
    return 0.0


def _round_rate(rate_hz: float, uncertainty: float) -> float:
    """The roundest rate within what the times leave open; slow rates by their period."""
    if rate_hz < 1:
        return 1 / _round_number(1 / rate_hz, uncertainty)
    return _round_number(rate_hz, uncertainty)


def _round_number(value: float, uncertainty: float) -> float:
    for digits in (0, 1, 2, 3):
        plain = round(value, digits)
        if plain and abs(plain - value) <= value * max(uncertainty, DRIFT if digits == 0 else 1e-6):
            return float(plain)
    return value


def _uneven(steps: Seconds, what: str, why: str) -> SignalError:
    low, middle, high = np.min(steps), np.median(steps), np.max(steps)
    return SignalError(
        f"{what}: the times are uneven: steps of {low:.4g} to {high:.4g} s, in the median {middle:.4g} s, {why}; "
        "resample the recording, or leave the column out and give the rate"
    )


def _clock_times(texts: Sequence[str]) -> Times:
    """Hours, minutes and seconds. From midnight on they count as time that went by, else as time of day."""
    seconds = np.full(len(texts), np.nan)
    for row, text in enumerate(texts):
        match = CLOCK.fullmatch(text)
        if match:
            seconds[row] = int(match[1]) * 3600 + int(match[2]) * 60 + float((match[3] or "0").replace(",", "."))
        elif text:
            raise TimeTextError(row, text)
    wrapped = np.cumsum(np.diff(seconds, prepend=seconds[:1]) < -43200) * 86400.0  # past midnight
    first = float(seconds[np.isfinite(seconds)][0])
    seconds = seconds + wrapped
    if first < 60:
        return Times(seconds, None, "hours:minutes:seconds")
    return Times(seconds - first, NO_DATE + timedelta(seconds=first), "times of day without a date")


class TimeTextError(ValueError):
    """A text that is no time, and its row."""

    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)
        self.row, self.text = row, text


def _iso_times(texts: Sequence[str]) -> Times:
    first = next((text for text in texts if text), "")
    zone = ZONE.search(first)
    ends = {text[zone.start() :] for text in texts if text} if zone else {""}
    offset = _offset(zone[1]) if zone else None
    if len(ends) == 1:
        cut = len(next(iter(ends)))
        local = [text[: len(text) - cut] if cut else text for text in texts]
        values, shifts = _parsed(local, texts), None
    else:
        zones = [ZONE.search(text) for text in texts]
        for row, (found_zone, text) in enumerate(zip(zones, texts, strict=True)):
            if text and found_zone is None:
                raise TimeTextError(row, text)
        local = [text[: match.start()] if match else text for match, text in zip(zones, texts, strict=True)]
        shifts = np.asarray([_offset_s(match) - _offset_s(zone) for match in zones])
        values = _parsed(local, texts)
    if shifts is not None:
        values = values - (shifts * 1e9).astype("timedelta64[ns]")
    times = datetime_times(values)
    start = times.start_time
    if offset is not None and start is not None:
        start = start.replace(tzinfo=offset)
    return Times(times.seconds, start, "ISO times" if zone is None else "ISO times with a zone")


def _parsed(local: Sequence[str], texts: Sequence[str]) -> npt.NDArray[np.datetime64]:
    try:
        plain = [text.replace(",", ".").replace("/", "-") or "NaT" for text in local]
        parsed = np.asarray(plain, dtype="S").astype("datetime64[ns]")
    except (ValueError, UnicodeEncodeError):
        for row, text in enumerate(local):
            try:
                np.datetime64(text.replace(",", ".").replace("/", "-") or "NaT", "ns")
            except ValueError:
                raise TimeTextError(row, texts[row]) from None
        raise TimeTextError(0, texts[0]) from None
    return parsed


def _offset(text: str) -> timezone:
    if text.upper() in ("Z", "UTC"):
        return timezone.utc
    return timezone(timedelta(seconds=_signed_s(text)))


def _offset_s(match: re.Match[str] | None) -> float:
    return 0.0 if match is None or match[1].upper() in ("Z", "UTC") else _signed_s(match[1])


def _signed_s(text: str) -> float:
    digits = text[1:].replace(":", "")
    return (-1 if text[0] == "-" else 1) * (int(digits[:2]) * 3600.0 + int(digits[2:]) * 60.0)


def _rearranged(texts: Sequence[str], form: re.Pattern[str], order: tuple[int, int, int]) -> list[str]:
    """Dates of another order as ISO text."""
    year, month, day = order
    plain = []
    for row, text in enumerate(texts):
        match = form.fullmatch(text)
        if text and not match:
            raise TimeTextError(row, text)
        plain.append(f"{match[year]}-{int(match[month]):02d}-{int(match[day]):02d}T{match[4]}" if match else "")
    return plain


def _slash_order(texts: Sequence[str]) -> tuple[int, int, int]:
    """12/31/2026 or 31/12/2026: whichever the numbers allow; refused where both are possible."""
    pairs = {(int(match[1]), int(match[2])) for text in texts if (match := SLASHED.fullmatch(text))}
    first, second = max(first for first, _ in pairs), max(second for _, second in pairs)
    if (first > 12) == (second > 12):
        raise SignalError("dates such as 1/2/2026 may start with the day or the month; write them as 2026-02-01")
    return (3, 1, 2) if second > 12 else (3, 2, 1)
