"""Moments within a recording: seconds, times of day and dates, all as seconds from its start."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta
from typing import TypeAlias

from geopatch.errors import ConfigError
from geopatch.times import NO_DATE

Moment: TypeAlias = float | str | time | datetime

CLOCK = re.compile(r"\d{1,2}:\d\d(:\d\d([.,]\d+)?)?")
FORMS = "seconds (75.5), a time of day (12:03:10) or a date and time (2026-05-01T12:03:10)"


def seconds_between(start: Moment, stop: Moment, begin: datetime | None, what: str) -> tuple[float, float]:
    """Seconds from the start of a recording that began at `begin`; a time of day is the first one after it.

    A stop that is a time of day is the first one after the start.
    """
    start_s = _seconds(start, begin, what, 0.0)
    return start_s, _seconds(stop, begin, what, start_s)


def _seconds(moment: Moment, begin: datetime | None, what: str, after_s: float) -> float:
    if isinstance(moment, str):
        moment = _parsed(moment.strip())
    if isinstance(moment, (int, float)):
        return float(moment)
    if begin is None:
        raise ConfigError(f"{what} has no wall-clock time, so {moment} says nothing; give seconds from its start")
    if isinstance(moment, time):
        return _of_day(moment, begin, after_s)
    if begin.date() == NO_DATE.date():
        raise ConfigError(f"{what} has times of day without a date; give a time of day or seconds, not {moment}")
    if (moment.tzinfo is None) != (begin.tzinfo is None):
        if moment.tzinfo is not None:
            raise ConfigError(f"the times of {what} have no zone; give {moment.replace(tzinfo=None)} without one")
        moment = moment.replace(tzinfo=begin.tzinfo)
    return (moment - begin).total_seconds()


def _of_day(moment: time, begin: datetime, after_s: float) -> float:
    day = datetime.combine(begin.date(), moment.replace(tzinfo=None), begin.tzinfo)
    seconds = (day - begin).total_seconds()
    while seconds < after_s:
        seconds += timedelta(days=1).total_seconds()
    return seconds


def _parsed(text: str) -> float | time | datetime:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        if CLOCK.fullmatch(text):
            whole, _, part = text.replace(",", ".").partition(".")
            hours, minutes, seconds = [*map(int, whole.split(":")), 0][:3]
            return time(hours, minutes, seconds, int(f"{part:0<6}"[:6]))
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise ConfigError(f"expected {FORMS}, got {text!r}") from error
