"""Times as they are written: numbers, dates and text, as seconds from the first and its wall-clock time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import SignalError

Seconds = npt.NDArray[np.float64]

UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
UNIT_NAMES = {"sec": "s", "secs": "s", "second": "s", "seconds": "s", "milliseconds": "ms", "millis": "ms"}
UNIT_NAMES |= {"\u00b5s": "us", "\u03bcs": "us", "microseconds": "us", "nanoseconds": "ns", "minutes": "min"}
EPOCHS = (("s", 1e9, 4.2e9), ("ms", 1e12, 4.2e12), ("us", 1e15, 4.2e15), ("ns", 1e18, 4.2e18))  # 2001 to 2103
NO_DATE = datetime(1900, 1, 1)  # of times of day without a date, as in datetime.strptime
CLOCK = re.compile(r"(\d{1,3}):(\d\d)(?::(\d\d(?:[.,]\d*)?))?")
ZONE = re.compile(r"(?<=\d)\s*(Z|UTC|[+-]\d\d:?\d\d)$", re.IGNORECASE)
EUROPEAN = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})[ T]+(\S.*)")
SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})[ T]+(\S.*)")
MICROSECONDS = len("2026-12-31T12:00:00.000000")  # digits beyond them are cut
DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d(:\d\d(:\d\d(\.\d*)?)?)?)?")


@dataclass(frozen=True, eq=False)
class Times:
    """The time of each row in seconds, NaN where it has none, and the wall-clock time of second 0."""

    seconds: Seconds
    start_time: datetime | None = None
    source: str = ""  # what they were written as: "ISO times", "epoch ms", "seconds"

    def of(self, rows: npt.NDArray[np.int64] | None) -> Times:
        """Those of some rows; None: all."""
        return self if rows is None else Times(self.seconds[rows], self.start_time, self.source)


class TimeTextError(ValueError):
    """A text that is no time, and its row."""

    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)
        self.row, self.text = row, text


def numeric_times(numbers: npt.NDArray[Any], unit: str | None) -> Times:
    """Times from numbers: epoch where they are as large as that, else seconds, or the unit that a name says."""
    values = np.where(np.isfinite(numbers), numbers, np.nan).astype(np.float64)
    finite = values[np.isfinite(values)]
    middle = float(np.median(np.abs(finite))) if len(finite) else 0.0
    for epoch, low, high in EPOCHS:
        if low <= middle < high and unit in (None, epoch):
            start = later(datetime(1970, 1, 1, tzinfo=timezone.utc), float(finite[0]) * UNITS_S[epoch])
            return Times((values - finite[0]) * UNITS_S[epoch], start, f"epoch {epoch}")
    with np.errstate(over="ignore"):
        return Times(values * UNITS_S[unit or "s"], None, "seconds" if unit in (None, "s") else str(unit))


def datetime_times(values: npt.NDArray[np.datetime64], zone: tzinfo | None = None, source: str = "dates") -> Times:
    """Times from dates; `zone` is that of an aware column, whose values are in UTC."""
    missing = np.isnat(values)
    if missing.all():
        return Times(np.full(len(values), np.nan))
    first = values[~missing][0]
    unit = np.datetime_data(values.dtype)[0]
    ticks = (values - first).astype(np.float64)
    seconds = np.where(missing, np.nan, ticks * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[unit])
    micros = int(first.astype("datetime64[us]").astype(np.int64))
    start = later(datetime(1970, 1, 1), micros / 1e6, micros)
    if zone is not None and start is not None:
        start = start.replace(tzinfo=timezone.utc).astimezone(zone)
    return Times(seconds, start, source)


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


def later(start: datetime, seconds: float, micros: int | None = None) -> datetime | None:
    """So many seconds (or microseconds, to the last) after a time; None beyond the years that a datetime can hold."""
    try:
        return start + (timedelta(seconds=seconds) if micros is None else timedelta(microseconds=micros))
    except OverflowError:
        return None


def _clock_times(texts: Sequence[str]) -> Times:
    """Hours, minutes and seconds. From midnight on they count as time that went by, else as time of day."""
    seconds = np.full(len(texts), np.nan)
    for row, text in enumerate(texts):
        match = CLOCK.fullmatch(text)
        if match:
            seconds[row] = int(match[1]) * 3600 + int(match[2]) * 60 + float((match[3] or "0").replace(",", "."))
        elif text:
            raise TimeTextError(row, text)
    timed = np.flatnonzero(np.isfinite(seconds))
    days = np.cumsum(np.diff(seconds[timed], prepend=seconds[timed][:1]) < -43200)  # past midnight
    seconds[timed] += days * 86400.0
    first = float(seconds[timed][0])
    if first < 60:
        return Times(seconds, None, "hours:minutes:seconds")
    return Times(seconds - first, later(NO_DATE, first), "times of day without a date")


def _iso_times(texts: Sequence[str]) -> Times:
    zones = _zones(texts)
    cuts = [0 if zone is None else len(text) - zone.start() for zone, text in zip(zones, texts, strict=True)]
    values = _parsed([text[: len(text) - cut] if cut else text for text, cut in zip(texts, cuts, strict=True)], texts)
    first = next((zone for zone in zones if zone is not None), None)
    if first is None:
        return datetime_times(values, source="ISO times")
    offsets_s = {zone[1]: _offset_s(zone[1]) for zone in zones if zone is not None}
    own_s = offsets_s[first[1]]
    if len(set(offsets_s.values())) > 1:
        shifts = np.asarray([0 if zone is None else offsets_s[zone[1]] - own_s for zone in zones])
        values = values - (shifts * 1_000_000).astype("timedelta64[us]")
    times = datetime_times(values, source="ISO times with a zone")
    zone = timezone.utc if own_s == 0 else timezone(timedelta(seconds=own_s))
    start = None if times.start_time is None else times.start_time.replace(tzinfo=zone)
    return Times(times.seconds, start, times.source)


def _zones(texts: Sequence[str]) -> list[re.Match[str] | None]:
    """The zone of each time; either all have one or none."""
    zones = [ZONE.search(text) if ":" in text else None for text in texts]
    some = any(zone is not None for zone in zones)
    for row, (zone, text) in enumerate(zip(zones, texts, strict=True)):
        if some and text and zone is None:
            raise TimeTextError(row, text)
    return zones


def _parsed(local: Sequence[str], texts: Sequence[str]) -> npt.NDArray[np.datetime64]:
    """Dates in microseconds: nanoseconds would end in the year 2262."""
    plain = [text.replace(",", ".").replace("/", "-").rstrip() or "NaT" for text in local]
    for row, text in enumerate(plain):
        if text != "NaT" and not DATE.fullmatch(text):
            raise TimeTextError(row, texts[row])
    try:
        return np.asarray([text[:MICROSECONDS] for text in plain], dtype="S").astype("datetime64[us]")
    except ValueError:
        for row, text in enumerate(plain):
            try:
                np.asarray([text[:MICROSECONDS]], dtype="S").astype("datetime64[us]")
            except ValueError:
                raise TimeTextError(row, texts[row]) from None
        raise


def _offset_s(text: str) -> int:
    if text.upper() in ("Z", "UTC"):
        return 0
    digits = text[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    if seconds >= 86400:
        raise SignalError(f"a zone {text} is more than a day off UTC; mend the times")
    return -seconds if text[0] == "-" else seconds


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


def time_text(moment: datetime) -> str:
    """A wall-clock time for people, to the hundredth of a second; without a date where there is none."""
    text = f"{moment:%H:%M:%S}.{moment.microsecond // 10_000:02d}" if moment.microsecond else f"{moment:%H:%M:%S}"
    return text if moment.date() == NO_DATE.date() else f"{moment:%Y-%m-%d} {text}"
