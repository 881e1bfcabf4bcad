"""The columns of a table: which one is the time, the id or the label, which are channels, and which are left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import ConfigError, MissingExtraError, SignalError
from geopatch.read_options import NONE, ReadOptions
from geopatch.times import text_times, unit_of

Place = Callable[[int], str]  # where row n of a table stands in its file
Floats = npt.NDArray[np.float64]

TIME_NAMES = {"time", "t", "timestamp", "timestamps", "datetime", "date", "date_time", "time_stamp", "seconds", "sec"}
TIME_NAMES |= {"elapsed", "elapsed_time", "time_of_day", "utc", "zeit", "ms", "us", "ns", "epoch", "unix", "unixtime"}
ID_NAMES = {"id", "record", "record_id", "recording", "recording_id", "series_id", "signal_id"}
LABEL = "label"
COUNTERS = {"", "index", "sample", "sample #", "n", "row", "unnamed: 0", "__index_level_0__"}
NOT_MEASURED = ("", "?", "-", "na", "n/a", "nan", "null", "none", "<na>")  # in any case of letters
UNIT_IN_NAME = re.compile(r"(.*?)\s*(?:\[([^\]]*)\]|\(([^)]*)\))\s*")
TIME_UNIT_IN_NAME = re.compile(r"(?:time|t|timestamp|elapsed|elapsed_time|epoch)[_ ](s|sec|seconds|ms|us|ns|min)")
PLAIN_UNITS = set(
    "mV uV µV μV nV V g G mg m/s m/s2 m/s^2 m/s² dps deg/s °/s rad/s deg ° rad °C C K F Hz bpm mmHg % Pa kPa hPa bar "  # noqa: SIM905
    "mbar A mA uA µA N Nm W kW kg m mm cm km s ms uT µT T lux dB dBm rpm ohm l/min ppm a.u. au adu".split()
)
NUMBERED = re.compile(r"(?:t|t_|time_|sample_|step_)(\d+)", re.IGNORECASE)
MANY_COLUMNS = 64  # with more, a row of numbers without names is a signal
NAMES_SHOWN = 6
HEAD = 200  # fields looked at to tell words from numbers


@dataclass(eq=False)
class Roles:
    """What each column of a table is."""

    time: str | None = None
    id: str | None = None
    label: str | None = None
    numbers: list[str] = field(default_factory=list)  # the channels, or the samples of a wide table
    texts: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # and why

    def skip(self, column: str, why: str) -> None:
        self.skipped[column] = why
        self.numbers = [name for name in self.numbers if name != column]


def find_roles(table: Any, options: ReadOptions, *, counters: bool) -> Roles:
    """The role of each column of a narwhals frame, by the options, its name and what stands in it.

    With `counters`, an id that only counts the rows is none.
    """
    names = [str(name) for name in table.columns]
    roles = Roles(time=_chosen(names, options.time, "time") or (None if options.time else _time_column(table)))
    rest = [column for column in names if column != roles.time]
    roles.id = _chosen(rest, options.id, "id") or (None if options.id else _named(rest, ID_NAMES))
    roles.label = _named([column for column in rest if column != roles.id], {LABEL})
    for column in (name for name in names if name not in {roles.time, roles.id, roles.label}):
        kind = kind_of(table[column])
        if kind == "text":
            roles.texts.append(column)
        elif kind in ("numbers", "empty"):
            roles.numbers.append(column)
        else:
            roles.skipped[column] = kind
    if counters and roles.id is not None and roles.time is None and _only_counts(table, roles, options):
        roles.skipped[roles.id] = "it counts the rows"
        roles.id = None
    return roles


def keep_channels(table: Any, roles: Roles, options: ReadOptions, place: Place) -> None:
    """Of the columns of numbers those that are channels: neither empty nor counters, and those that were asked for."""
    for column in list(roles.numbers):
        if kind_of(table[column]) == "empty":
            roles.skip(column, "it is empty")
        elif column.strip().lower() in COUNTERS and counts(floats(table[column], place)):
            roles.skip(column, "it counts the rows")
    _select(roles, options)
    if not roles.numbers:
        raise SignalError(f"no column of numbers is left to be a channel: the table has {listed(table.columns)}")


def _select(roles: Roles, options: ReadOptions) -> None:
    if options.channels is None:
        return
    by_name = {split_unit(column)[0]: column for column in roles.numbers} | {c: c for c in roles.numbers}
    missing = [channel for channel in options.channels if channel not in by_name]
    if missing and unnamed(roles.numbers) and len(options.channels) == len(roles.numbers):
        return  # a table without a header: they are names for its columns
    if missing:
        raise SignalError(f"there is no column of numbers {missing[0]!r}; the table has {listed(roles.numbers)}")
    kept = [by_name[channel] for channel in options.channels]
    for column in [column for column in roles.numbers if column not in kept]:
        roles.skip(column, "it is not among the channels to read")
    roles.numbers = kept


def _chosen(names: Sequence[str], wanted: str | None, what: str) -> str | None:
    if wanted is None or wanted.lower() == NONE:
        return None
    match = [name for name in names if name == wanted] or [name for name in names if name.lower() == wanted.lower()]
    if not match:
        raise SignalError(f"there is no column {wanted!r} for the {what}; the table has {listed(names)}")
    return match[0]


def _named(names: Sequence[str], wanted: set[str]) -> str | None:
    return next((name for name in names if name.strip().lower() in wanted), None)


def _time_column(table: Any) -> str | None:
    """By name, else the only column of dates, else a first column of text that holds times."""
    for column in map(str, table.columns):
        lower = column.strip().lower()
        if split_unit(lower)[0] in TIME_NAMES or TIME_UNIT_IN_NAME.fullmatch(lower):
            return column if kind_of(table[column]) != "empty" else None
    dates = [str(column) for column in table.columns if kind_of(table[column]) == "dates"]
    if len(dates) == 1:
        return dates[0]
    first = str(table.columns[0])
    return first if kind_of(table[first]) == "text" and are_times(table[first].head(3).to_list()) else None


def are_times(texts: Sequence[Any]) -> bool:
    """Whether texts are times of day or dates with them."""
    try:
        text_times([str(text) for text in texts if text])
    except (ValueError, IndexError):
        return False
    return any(texts) and all(":" in str(text) for text in texts if text)


def kind_of(series: Any) -> str:
    """numbers, text, dates or empty; otherwise why it is no column of a signal."""
    nw, dtype = narwhals(), series.dtype
    if not len(series) or series.null_count() == len(series):
        return "empty"
    if dtype.is_numeric() or dtype == nw.Boolean:
        return "numbers"
    if dtype in (nw.Datetime, nw.Date, nw.Duration):
        return "dates"
    if dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object):
        head = [str(value) for value in series.drop_nulls().head(HEAD).to_list()]
        measured = [text for text in head if text.strip().lower() not in NOT_MEASURED]
        if not measured:
            return "empty"
        return "numbers" if 2 * sum(map(is_float, measured)) >= len(measured) else "text"
    return f"it holds {dtype}"


def is_float(text: str) -> bool:
    """Whether a text is a number; 1_000, which Python takes for one, is not."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def floats(series: Any, place: Place) -> Floats:
    """The column as numbers, NaN where it was not measured; a word among numbers is refused with its place."""
    nw = narwhals()
    if series.dtype.is_numeric() or series.dtype == nw.Boolean or series.null_count() == len(series):
        return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
    numbers = np.full(len(series), np.nan)
    for row, value in enumerate(series.to_list()):
        text = "" if value is None else str(value).strip()
        if text.lower() in NOT_MEASURED:
            continue
        if not is_float(text):
            raise no_number(str(series.name), place(row), text)
        numbers[row] = float(text)
    return numbers


def no_number(column: str, where: str, text: str) -> SignalError:
    """What is said of a word among numbers."""
    came = f"expected a number in column {column!r}, got {short(text)}"
    return SignalError(f"{where}: {came}; leave the field empty where nothing was measured")


def counts(numbers: Floats) -> bool:
    """Whether numbers count 0, 1, 2, ... or 1, 2, 3, ..."""
    return bool(len(numbers) and numbers[0] in (0, 1) and (np.diff(numbers) == 1).all())


def _only_counts(table: Any, roles: Roles, options: ReadOptions) -> bool:
    """An id that is another in every row and only counts is no id: the rows are samples of one recording."""
    if options.id is not None or roles.label is not None or len(table) < 2 or numbered_names(roles.numbers):
        return False
    many = len(roles.numbers) > MANY_COLUMNS or plain_numbers(roles.numbers)
    series = table[roles.id]
    if many or kind_of(series) != "numbers":
        return False
    try:
        return counts(floats(series, str))
    except SignalError:
        return False


def numbered_names(names: Sequence[str]) -> bool:
    """t0, t1, t2, ... or times such as 0.0, 0.02, 0.04: names of samples, not of channels."""
    if len(names) < 2:
        return False
    numbers = [NUMBERED.fullmatch(name) for name in names]
    if all(numbers):
        places = [int(match[1]) for match in numbers if match]
        return all(after == before + 1 for before, after in pairwise(places))
    return name_step(names) is not None and not unnamed(names)


def plain_numbers(names: Sequence[str]) -> bool:
    """0, 1, 2, ... or 1, 2, 3, ...: names of samples, or of columns that have none."""
    return len(names) > 1 and unnamed(names) and counts(np.asarray([float(name) for name in names]))


def unnamed(names: Sequence[str]) -> bool:
    """Whether columns have numbers for names."""
    return all(name.isdecimal() for name in names)


def name_step(names: Sequence[str]) -> float | None:
    """The step of names that are evenly growing numbers."""
    try:
        numbers = np.asarray([float(name) for name in names])
    except ValueError:
        return None
    with np.errstate(all="ignore"):
        steps = np.diff(numbers)
    even = len(steps) and 0 < steps[0] < np.inf and np.allclose(steps, steps[0], rtol=1e-3)
    return float(np.mean(steps)) if even else None


def names_and_units(roles: Roles, options: ReadOptions) -> tuple[list[str], list[str] | None]:
    """The names of the channels without their units, and these; no names where columns have none."""
    split = [split_unit(column) for column in roles.numbers]
    names = [plain for plain, _ in split]
    if len(set(names)) < len(names):
        names = list(roles.numbers)
    if unnamed(names):
        names = list(options.channels or ())
    own = names or [""] * len(split)
    units = [options.unit(name, n) or unit for n, (name, (_, unit)) in enumerate(zip(own, split, strict=True))]
    return names, units if any(units) else None


def split_unit(column: str) -> tuple[str, str]:
    """`ax [g]` -> ax and g. In round brackets only what is known to be a unit: `ECG (lead II)` is a name."""
    match = UNIT_IN_NAME.fullmatch(column)
    if match is None or not match[1]:
        return column, ""
    if match[2] is not None:
        return match[1], match[2].strip()
    return (match[1], match[3].strip()) if match[3].strip() in PLAIN_UNITS else (column, "")


def time_unit(column: str, options: ReadOptions) -> str | None:
    """The unit of a time column that the options or its name say."""
    if isinstance(options.units, Mapping) and column in options.units:
        unit = unit_of(options.units[column])
        if unit is None:
            came = options.units[column]
            raise ConfigError(f"the unit of the time column {column!r} is s, ms, us or ns, got {came!r}")
        return unit
    lower = column.strip().lower()
    plain, unit_text = split_unit(lower)
    match = TIME_UNIT_IN_NAME.fullmatch(lower)
    return unit_of(match[1] if match else unit_text or plain)


def listed(names: Sequence[object]) -> str:
    """The first of many names."""
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"{', '.join(map(str, names[:NAMES_SHOWN]))}{more}"


def short(text: str) -> str:
    """Text of a file, short enough for an error line."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def narwhals() -> Any:
    """The library, or a line that says how to get it."""
    try:
        import narwhals
    except ImportError as error:
        raise MissingExtraError("narwhals", "frames", "reading a table or a frame") from error
    return narwhals
