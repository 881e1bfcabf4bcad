"""Recordings from a table: which column is the time, the id, the label and which are channels; long, wide or one recording.

What is guessed is said: a reading carries its notes as plain sentences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timezone
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import ConfigError, MissingExtraError, SignalError
from geopatch.signal import Signal
from geopatch.timeline import (
    EvenClock,
    Times,
    TimeTextError,
    datetime_times,
    even_clock,
    numeric_times,
    text_times,
    unit_of,
)

Place = Callable[[int], str]  # where row n of a table stands in its file
Floats = npt.NDArray[np.float64]

NONE = "none"  # instead of a column's name: there is no such column
TIME_NAMES = {"time", "t", "timestamp", "timestamps", "datetime", "date", "date_time", "time_stamp", "seconds", "sec"}
TIME_NAMES |= {"elapsed", "elapsed_time", "time_of_day", "utc", "zeit", "ms", "us", "ns", "epoch", "unix", "unixtime"}
ID_NAMES = {"id", "record", "record_id", "recording", "recording_id", "series_id", "signal_id"}
LABEL = "label"
COUNTERS = {"", "index", "sample", "sample #", "n", "row", "unnamed: 0", "__index_level_0__", "column_0"}
NOT_MEASURED = ("", "?", "-", "na", "n/a", "nan", "null", "none", "<na>")  # in any case of letters
UNIT_IN_NAME = re.compile(r"(.*?)\s*(?:\[([^\]]*)\]|\(([^)]*)\))\s*")
TIME_UNIT_IN_NAME = re.compile(r"(time|t|timestamp|elapsed|elapsed_time|epoch)[_ ](s|sec|seconds|ms|us|ns|min)")
PLAIN_UNITS = set(
    [
        "mV",
        "uV",
        "µV",
        "μV",
        "nV",
        "V",
        "g",
        "G",
        "mg",
        "m/s",
        "m/s2",
        "m/s^2",
        "m/s²",
        "dps",
        "deg/s",
        "°/s",
        "rad/s",
        "deg",
        "°",
        "rad",
        "°C",
        "C",
        "K",
        "F",
        "Hz",
        "bpm",
        "mmHg",
        "%",
        "Pa",
        "kPa",
    ]
)
PLAIN_UNITS |= set(
    [
        "hPa",
        "bar",
        "mbar",
        "A",
        "mA",
        "uA",
        "µA",
        "N",
        "Nm",
        "W",
        "kW",
        "kg",
        "m",
        "mm",
        "cm",
        "km",
        "s",
        "ms",
        "uT",
        "µT",
        "T",
        "lux",
        "dB",
        "dBm",
        "rpm",
        "ohm",
        "l/min",
        "ppm",
        "a.u.",
        "au",
        "adu",
    ]
)
NUMBERED = re.compile(r"(?:t|t_|time_|sample_|step_)(\d+)", re.IGNORECASE)
MANY_COLUMNS = 64  # with more, a row of numbers without names is a signal
NAMES_SHOWN = 6


@dataclass(frozen=True)
class ReadOptions:
    """What a reader is told where names cannot be guessed.

    Parameters
    ----------
    time : str, optional
        The column of times; "none" where there is none.
    id : str, optional
        The column that names the recording of each row; "none" where there is none.
    channels : tuple of str, optional
        The channels to read, in this order; by default all.
    units : mapping or tuple of str, optional
        The unit of each channel, by name or in their order. That of the time column is s, ms, us or ns.
    rate_hz : float, optional
        Samples a second, for files that do not say it.
    """

    time: str | None = None
    id: str | None = None
    channels: tuple[str, ...] | None = None
    units: Mapping[str, str] | tuple[str, ...] | None = None
    rate_hz: float | None = None

    def __post_init__(self) -> None:
        if self.rate_hz is not None and not 0 < self.rate_hz < float("inf"):
            raise ConfigError(f"rate_hz must be more than 0, got {self.rate_hz}")

    def unit(self, channel: str, place: int) -> str | None:
        """The unit that was given for a channel; None where none was."""
        if isinstance(self.units, Mapping):
            return self.units.get(channel)
        if not self.units:
            return None
        return self.units[0] if len(self.units) == 1 else self.units[place] if place < len(self.units) else None


@dataclass(frozen=True, eq=False)
class TableReading:
    """The recordings of a table, a label and metadata for each, and what was understood."""

    signals: tuple[Signal, ...]
    labels: npt.NDArray[np.str_] | None
    metadata: tuple[Mapping[str, str], ...]
    notes: tuple[str, ...]
    numbered: bool = False  # the ids only say which row of the table it was


@dataclass(eq=False)
class _Roles:
    time: str | None = None
    id: str | None = None
    label: str | None = None
    channels: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def read_table(
    table: Any, name: str, options: ReadOptions, *, place: Place = lambda row: f"row {row + 1}", rows: str | None = None
) -> TableReading:
    """The recordings of an eager narwhals frame.

    `rows` says what a row is where neither a time nor an id does: "signals", "samples", or None to go by the names.
    """
    if not len(table):
        raise SignalError(f"{name} has column names but no rows; expected at least one sample")
    roles = _roles(table, options, place)
    if roles.time is None and _row_is_a_signal(table, roles, rows):
        return _wide(table, name, roles, options, place)
    return _long(table, name, roles, options, place)


def _roles(table: Any, options: ReadOptions, place: Place) -> _Roles:
    roles = _Roles()
    names = list(table.columns)
    roles.time = _chosen(names, options.time, "time") or (None if options.time else _time_column(table))
    rest = [column for column in names if column != roles.time]
    roles.id = _chosen(rest, options.id, "id") or (None if options.id else _named(rest, ID_NAMES))
    roles.label = _named([column for column in rest if column != roles.id], {LABEL})
    special = {roles.time, roles.id, roles.label}
    for column in (column for column in names if column not in special):
        kind = _kind(table[column])
        if column.lower() in COUNTERS and kind == "numbers" and _counts(_floats(table[column], place)):
            roles.skipped[column] = "it counts the rows"
        elif kind == "numbers":
            roles.channels.append(column)
        elif kind == "text":
            roles.texts.append(column)
        else:
            roles.skipped[column] = kind
    if roles.id is not None and roles.time is None and _is_counter_id(table, roles, options):
        roles.skipped[roles.id] = "it counts the rows"
        roles.id = None
    _select(roles, options)
    if not roles.channels:
        raise SignalError(f"no column of numbers is left to be a channel: the table has {_listed(names)}")
    return roles


def _select(roles: _Roles, options: ReadOptions) -> None:
    """Only the channels that were asked for, in their order."""
    if options.channels is None:
        return
    by_name = {**{_unit_split(column)[0]: column for column in roles.channels}, **{c: c for c in roles.channels}}
    missing = [channel for channel in options.channels if channel not in by_name]
    if missing and len(options.channels) == len(roles.channels) and all(c.isdigit() for c in roles.channels):
        return  # a table without a header: they are names for its columns
    if missing:
        raise SignalError(f"there is no column of numbers {missing[0]!r}; the table has {_listed(roles.channels)}")
    kept = [by_name[channel] for channel in options.channels]
    roles.skipped |= {column: "it was not asked for" for column in roles.channels if column not in kept}
    roles.channels = kept


def _chosen(names: Sequence[str], wanted: str | None, what: str) -> str | None:
    if wanted is None or wanted.lower() == NONE:
        return None
    match = [name for name in names if name == wanted] or [name for name in names if name.lower() == wanted.lower()]
    if not match:
        raise SignalError(f"there is no column {wanted!r} for the {what}; the table has {_listed(names)}")
    return match[0]


def _named(names: Sequence[str], wanted: set[str]) -> str | None:
    return next((name for name in names if name.strip().lower() in wanted), None)


def _time_column(table: Any) -> str | None:
    """By name, else the only column of dates, else a first column without a name that holds dates."""
    for column in table.columns:
        plain = _unit_split(column)[0].strip().lower()
        if plain in TIME_NAMES or TIME_UNIT_IN_NAME.fullmatch(column.strip().lower()):
            return str(column)
    dates = [column for column in table.columns if _kind(table[column]) == "dates"]
    if len(dates) == 1:
        return str(dates[0])
    first = table.columns[0]
    if _kind(table[first]) == "text":
        head = [text for text in table[first].head(3).to_list() if text]
        try:
            text_times([str(text) for text in head])
        except (ValueError, IndexError):
            return None
        return str(first) if head and all(any(mark in str(text) for mark in ":-./") for text in head) else None
    return None


def _kind(series: Any) -> str:
    """numbers, text, or dates; otherwise why it is no column of a signal."""
    nw = narwhals()
    dtype = series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        return "numbers" if series.null_count() < len(series) else "it is empty"
    if dtype in (nw.Datetime, nw.Date, nw.Duration):
        return "dates"
    if dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object):
        texts = series.drop_nulls()
        if not len(texts):
            return "it is empty"
        head = texts.head(200).to_list()
        measured = [str(value) for value in head if str(value).strip().lower() not in NOT_MEASURED]
        if not measured:
            return "numbers" if len(texts) > len(head) else "it is empty"
        return "numbers" if any(_is_float(text) for text in measured) else "text"
    if str(dtype) == "Unknown":
        return "it is empty"
    return f"it holds {dtype}"


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _floats(series: Any, place: Place) -> Floats:
    """The column as numbers, NaN where it was not measured; a word among numbers is refused with its place."""
    nw = narwhals()
    if series.dtype.is_numeric() or series.dtype == nw.Boolean:
        return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
    floats = np.full(len(series), np.nan)
    for row, value in enumerate(series.to_list()):
        text = "" if value is None else str(value).strip()
        if text.lower() in NOT_MEASURED:
            continue
        if not _is_float(text):
            raise SignalError(
                f"{place(row)}: expected a number in column {series.name!r}, got {_short(text)}; "
                "leave the field empty where nothing was measured"
            )
        floats[row] = float(text)
    return floats


def _counts(numbers: Floats) -> bool:
    """Whether numbers count 0, 1, 2, ... or 1, 2, 3, ..."""
    return bool(len(numbers) and numbers[0] in (0, 1) and (np.diff(numbers) == 1).all())


def _is_counter_id(table: Any, roles: _Roles, options: ReadOptions) -> bool:
    """An id that is another in every row and only counts is no id: the rows are samples of one recording."""
    if options.id is not None or roles.label is not None or len(table) < 2 or _numbered_names(roles.channels):
        return False
    series = table[roles.id]
    if not series.dtype.is_numeric() or len(roles.channels) > MANY_COLUMNS:
        return False
    return _counts(np.asarray(series.cast(narwhals().Float64).to_numpy()))


def _row_is_a_signal(table: Any, roles: _Roles, rows: str | None) -> bool:
    if roles.id is not None:
        unique = table[roles.id].n_unique() == len(table)
        return unique and (
            _numbered_names(roles.channels) or _plain_numbers(roles.channels) or len(roles.channels) > MANY_COLUMNS
        )
    if rows is not None:
        return rows == "signals"
    if _numbered_names(roles.channels):
        return True
    return _plain_numbers(roles.channels) and (roles.label is not None or len(roles.channels) > MANY_COLUMNS)


def _numbered_names(names: Sequence[str]) -> bool:
    """t0, t1, t2, ... or times such as 0.0, 0.02, 0.04: names of samples, not of channels."""
    if len(names) < 2:
        return False
    numbers = [NUMBERED.fullmatch(name) for name in names]
    if all(numbers):
        places = [int(match[1]) for match in numbers if match]
        return all(after == before + 1 for before, after in zip(places, places[1:], strict=False))
    return name_step(names) is not None and not all(name.isdigit() for name in names)


def _plain_numbers(names: Sequence[str]) -> bool:
    return len(names) > 1 and names[0] in ("0", "1") and all(name.isdigit() for name in names)


def name_step(names: Sequence[str]) -> float | None:
    """The step of names that are evenly growing numbers."""
    try:
        numbers = np.asarray([float(name) for name in names])
    except ValueError:
        return None
    steps = np.diff(numbers)
    even = len(steps) and steps[0] > 0 and np.allclose(steps, steps[0], rtol=1e-3)
    return float(np.mean(steps)) if even else None


def _wide(table: Any, name: str, roles: _Roles, options: ReadOptions, place: Place) -> TableReading:
    """Each row a signal of one channel."""
    values = np.stack([_floats(table[column], place) for column in roles.channels], axis=1).astype(np.float32)
    step_s = None if _plain_numbers(roles.channels) else name_step(roles.channels)
    rate_hz = options.rate_hz if step_s is None else 1 / step_s
    ids = [str(row) for row in range(len(table))] if roles.id is None else _texts(table, roles.id, place)
    units = None if options.units is None else (options.unit("", 0) or "",)
    signals = []
    for row, id in enumerate(ids):
        measured = np.flatnonzero(~np.isnan(values[row]))
        length = int(measured[-1]) + 1 if len(measured) else values.shape[1]
        signals.append(Signal.from_array(values[row, :length], id, rate_hz, units=units))
    notes = [f"each of the {len(table)} rows is a signal of {len(roles.channels)} samples of one channel"]
    notes += [_rate_note(rate_hz, "the names of the columns" if step_s else "the rate given")]
    labels = None if roles.label is None else np.asarray(_texts(table, roles.label, place))
    metadata = _row_metadata(table, roles, range(len(table)))
    return TableReading(tuple(signals), labels, metadata, (*notes, *_skip_notes(roles)), roles.id is None)


def _long(table: Any, name: str, roles: _Roles, options: ReadOptions, place: Place) -> TableReading:
    """Rows are samples: of one recording, or of the one that the id names."""
    groups = _groups(table, roles.id, name, place)
    times = None if roles.time is None else _times(table, roles.time, options, place)
    values = np.empty((len(table), len(roles.channels)), dtype=np.float32)
    with np.errstate(over="ignore"):  # beyond float32 is inf, which Signal refuses
        for n, column in enumerate(roles.channels):
            values[:, n] = _floats(table[column], place)
    names, units = _names_and_units(roles, options)
    signals: list[Signal] = []
    notes: list[str] = [_layout_note(roles, len(groups), len(table))]
    for id, rows in groups.items():
        part = values if rows is None else values[rows]
        signal, said = _recording(part, id, times, rows, names, units, roles.time, options)
        signals.append(signal)
        notes += [f"{id}: {note}" if len(groups) > 1 and said else note for note in said]
    firsts = [0 if rows is None else int(rows[0]) for rows in groups.values()]
    labels = _long_labels(table, roles, groups, place)
    metadata = _constant_texts(table, roles, groups, firsts)
    return TableReading(tuple(signals), labels, metadata, (*_unique(notes), *_skip_notes(roles)))


def _recording(
    values: npt.NDArray[np.float32],
    id: str,
    times: Times | None,
    rows: npt.NDArray[np.int64] | None,
    names: Sequence[str],
    units: Sequence[str] | None,
    column: str | None,
    options: ReadOptions,
) -> tuple[Signal, list[str]]:
    if times is None:
        note = _rate_note(options.rate_hz, "the rate given")
        return Signal.from_array(values, id, options.rate_hz, names, units=units), [note]
    own = times if rows is None else Times(times.seconds[rows], times.start_time, times.source)
    counted = _counting(own)
    if counted is not None:
        note = f"column {column!r} counts samples, {_rate_note(options.rate_hz, 'the rate given')}"
        return Signal.from_array(counted.regrid(values), id, options.rate_hz, names, units=units), [
            note,
            *counted.notes,
        ]
    clock = even_clock(own, f"recording {id!r}")
    said = [f"{clock.rate_hz:g} Hz from column {column!r} ({times.source})", *clock.notes]
    if options.rate_hz is not None and abs(options.rate_hz / clock.rate_hz - 1) > 1e-6:
        said.append(f"the rate given, {options.rate_hz:g} Hz, is not used: the times say {clock.rate_hz:g} Hz")
    signal = Signal.from_array(clock.regrid(values), id, clock.rate_hz, names, start_time=clock.start_time, units=units)
    return signal, said


def _counting(times: Times) -> EvenClock | None:
    """The clock of times that are 0, 1, 2, ... or 1, 2, 3, ...: numbers of samples, not seconds."""
    seconds = times.seconds[np.isfinite(times.seconds)]
    if times.source != "seconds" or not len(seconds) or (seconds != np.round(seconds)).any():
        return None
    ordered = np.sort(seconds)
    if ordered[0] not in (0, 1) or (
        len(ordered) > 1 and (np.median(np.diff(ordered)) != 1 or not np.diff(ordered).all())
    ):
        return None
    if len(ordered) == 1:
        return EvenClock(1.0, 1, np.zeros(1, np.int64), np.zeros(1, np.int64), None, None, ())
    return even_clock(times, "the sample numbers")


def _times(table: Any, column: str, options: ReadOptions, place: Place) -> Times:
    nw, series = narwhals(), table[column]
    unit = _time_unit(column, options)
    if series.dtype.is_numeric():
        return numeric_times(series.cast(nw.Float64).to_numpy(), unit)
    if series.dtype == nw.Duration:
        return Times(series.to_numpy().astype("timedelta64[ns]").astype(np.float64) * 1e-9, None, "durations")
    if series.dtype in (nw.Datetime, nw.Date):
        zone = getattr(series.dtype, "time_zone", None)
        plain = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if zone else series
        return datetime_times(plain.to_numpy().astype("datetime64[ns]"), _zone(zone))
    texts = [None if text is None else str(text) for text in series.to_list()]
    if all(text is None or not text.strip() or _is_float(text) for text in texts):
        return numeric_times(np.asarray([float(text) if text and text.strip() else np.nan for text in texts]), unit)
    try:
        return text_times(texts)
    except TimeTextError as error:
        raise SignalError(
            f"{place(error.row)}: expected a time in column {column!r}, got {_short(error.text)}; "
            "write numbers or ISO times such as 2026-05-01T12:00:00.5"
        ) from error


def _zone(name: str | None) -> Any:
    if name is None:
        return None
    if name.upper() in ("UTC", "Z"):
        return timezone.utc
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return timezone.utc


def _time_unit(column: str, options: ReadOptions) -> str | None:
    """The unit that the options or the column's name say."""
    if isinstance(options.units, Mapping) and column in options.units:
        unit = unit_of(options.units[column])
        if unit is None:
            raise ConfigError(
                f"the unit of the time column {column!r} is s, ms, us or ns, got {options.units[column]!r}"
            )
        return unit
    lower = column.strip().lower()
    plain, unit_text = _unit_split(column)
    match = TIME_UNIT_IN_NAME.fullmatch(lower)
    return unit_of(match[2] if match else unit_text or plain)


def _groups(table: Any, id: str | None, name: str, place: Place) -> dict[str, npt.NDArray[np.int64] | None]:
    """The rows of each recording, in the order in which ids first appear; None: all rows."""
    if id is None:
        return {name: None}
    nw = narwhals()
    _check_filled(table, id, place)
    ids = table.select(nw.col(id).cast(nw.String).alias("__id"))
    unique = ids["__id"].unique(maintain_order=True).to_list()
    codes = {text: code for code, text in enumerate(unique)}
    places = np.fromiter((codes[text] for text in ids["__id"].to_list()), dtype=np.int64, count=len(table))
    order = np.argsort(places, kind="stable")
    ends = np.searchsorted(places[order], np.arange(len(unique) + 1))
    return {text: order[ends[n] : ends[n + 1]] for n, text in enumerate(unique)}


def _check_filled(table: Any, column: str, place: Place) -> None:
    nw = narwhals()
    missing = table[column].is_null() | table[column].cast(nw.String).is_in(["nan", "NaN"])
    if missing.any():
        row = missing.to_list().index(True)
        raise SignalError(f"{place(row)}: column {column!r} is empty; give every row its {column}")


def _texts(table: Any, column: str, place: Place) -> list[str]:
    _check_filled(table, column, place)
    return [str(text) for text in table[column].cast(narwhals().String).to_list()]


def _long_labels(
    table: Any, roles: _Roles, groups: Mapping[str, npt.NDArray[np.int64] | None], place: Place
) -> npt.NDArray[np.str_] | None:
    """One label for each recording; a label that changes within the only one is left out and said so."""
    if roles.label is None:
        return None
    texts = np.asarray(_texts(table, roles.label, place), dtype=object)
    labels = []
    for id, rows in groups.items():
        own = list(dict.fromkeys(texts if rows is None else texts[rows]))
        if len(own) > 1 and rows is None:
            roles.skipped[roles.label] = f"it changes within the recording ({_listed(own)})"
            return None
        if len(own) > 1:
            raise SignalError(f"signal {id!r} has two labels, {own[0]!r} and {own[1]!r}; give it one")
        labels.append(own[0])
    return np.asarray(labels, dtype=str)


def _constant_texts(
    table: Any, roles: _Roles, groups: Mapping[str, npt.NDArray[np.int64] | None], firsts: Sequence[int]
) -> tuple[Mapping[str, str], ...]:
    """Columns of text that say the same throughout a recording, as its metadata."""
    metadata: list[dict[str, str]] = [{} for _ in groups]
    for column in roles.texts:
        texts = np.asarray(table[column].cast(narwhals().String).to_list(), dtype=object)
        constant = all(len(set(texts if rows is None else texts[rows])) == 1 for rows in groups.values())
        if not constant:
            roles.skipped[column] = "it holds text that changes within a recording"
            continue
        for row, first in zip(metadata, firsts, strict=True):
            if texts[first] is not None:
                row[column] = str(texts[first])
    return tuple(metadata)


def _row_metadata(table: Any, roles: _Roles, rows: Sequence[int]) -> tuple[Mapping[str, str], ...]:
    columns = {column: table[column].cast(narwhals().String).to_list() for column in roles.texts}
    return tuple({name: str(texts[row]) for name, texts in columns.items() if texts[row] is not None} for row in rows)


def _names_and_units(roles: _Roles, options: ReadOptions) -> tuple[list[str], list[str] | None]:
    if all(column.isdigit() for column in roles.channels):  # a table without names
        names = list(options.channels or ())
        units = [options.unit(name, n) or "" for n, name in enumerate(names or roles.channels)]
        return names, units if any(units) else None
    split = [_unit_split(column) for column in roles.channels]
    names = [plain for plain, _ in split]
    if len(set(names)) < len(names):
        names = list(roles.channels)
    units = [options.unit(name, n) or unit for n, (name, (_, unit)) in enumerate(zip(names, split, strict=True))]
    return names, units if any(units) else None


def _unit_split(column: str) -> tuple[str, str]:
    """`ax [g]` -> ax and g. In round brackets only what is known to be a unit: `ECG (lead II)` is a name."""
    match = UNIT_IN_NAME.fullmatch(column)
    if match is None or not match[1]:
        return column, ""
    if match[2] is not None:
        return match[1], match[2].strip()
    return (match[1], match[3].strip()) if match[3].strip() in PLAIN_UNITS else (column, "")


def _layout_note(roles: _Roles, recordings: int, rows: int) -> str:
    channels = f"{len(roles.channels)} channel{'s' * (len(roles.channels) > 1)}"
    if roles.id is None:
        return f"one recording of {channels}, {rows} rows are its samples"
    return f"{recordings} recording{'s' * (recordings > 1)} of {channels}, named by column {roles.id!r}"


def _rate_note(rate_hz: float | None, source: str) -> str:
    return "rate not known: a sample counts as a second" if rate_hz is None else f"{rate_hz:g} Hz from {source}"


def _skip_notes(roles: _Roles) -> list[str]:
    return [f"column {column!r} left out: {why}" for column, why in roles.skipped.items()]


def _unique(notes: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(notes))


def _listed(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > NAMES_SHOWN else ""
    return f"{', '.join(map(str, names[:NAMES_SHOWN]))}{more}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def narwhals() -> Any:
    """The library, or a line that says how to get it."""
    try:
        import narwhals
    except ImportError as error:
        raise MissingExtraError("narwhals", "frames", "reading a table") from error
    return narwhals
