"""Recordings from a table: its rows are samples of one recording, samples of several, or signals.

What is guessed is said: a reading carries its notes as plain sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timezone, tzinfo
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.columns import (
    MANY_COLUMNS,
    Place,
    Roles,
    find_roles,
    floats,
    is_float,
    keep_channels,
    listed,
    name_step,
    names_and_units,
    narwhals,
    numbered_names,
    plain_numbers,
    short,
    time_unit,
)
from geopatch.errors import SignalError
from geopatch.read_options import ReadOptions
from geopatch.signal import Signal
from geopatch.timeline import EvenClock, even_clock, sessions
from geopatch.times import Times, TimeTextError, datetime_times, numeric_times, text_times

Labels = npt.NDArray[np.str_]
Places = npt.NDArray[np.int64]
Groups = dict[str, Places | None]  # the rows of each recording; None: all of them

NO_RATE = "rate not known: a sample counts as a second"
CHANNEL_COLUMNS, VALUE = ("channel", "variable", "signal", "sensor"), "value"
IDS_SHOWN = 3
LEFT_OUT = "column "  # notes that start so are of columns that are left out


@dataclass(frozen=True, eq=False)
class TableReading:
    """The recordings of a table, a label and metadata for each, and what was understood."""

    signals: tuple[Signal, ...]
    labels: Labels | None
    metadata: tuple[Mapping[str, str], ...]
    notes: tuple[str, ...]
    numbered: bool = False  # the ids only say which row of the table it was


def row_place(row: int) -> str:
    """Where a row stands, in errors of tables that have no lines."""
    return f"row {row + 1}"


def read_table(
    table: Any, name: str, options: ReadOptions, *, place: Place = row_place, rows: str | None = None
) -> TableReading:
    """The recordings of an eager narwhals frame.

    `rows` says what a row is where neither a time nor an id does: "signals", "samples", or None to go by the names.
    """
    if not len(table):
        raise SignalError("the table has column names but no rows; expected at least one sample")
    table = _by_channel(table)
    roles = find_roles(table, options, counters=rows is None)
    if roles.time is None and roles.numbers and _row_is_a_signal(table, roles, rows):
        return _wide(table, roles, options, place, padded=rows is None)
    keep_channels(table, roles, options, place)
    return _long(table, name, roles, options, place)


def _by_channel(table: Any) -> Any:
    """A table with the name of the channel in a column and its value in another, as one with a column a channel."""
    names = {str(name).lower(): str(name) for name in table.columns}
    channel = next((names[name] for name in CHANNEL_COLUMNS if name in names), None)
    if channel is None or VALUE not in names or table[channel].dtype.is_numeric():
        return table
    rest = [name for name in table.columns if name not in (channel, names[VALUE])]
    if not rest:
        return table
    return table.pivot(on=channel, index=rest, values=names[VALUE], aggregate_function="first")


def _row_is_a_signal(table: Any, roles: Roles, rows: str | None) -> bool:
    numbered, plain = numbered_names(roles.numbers), plain_numbers(roles.numbers)
    many = len(roles.numbers) > MANY_COLUMNS
    if roles.id is not None:
        return (numbered or plain or many) and table[roles.id].n_unique() == len(table)
    if rows is not None:
        return rows == "signals"
    return numbered or (plain and (roles.label is not None or many))


def _wide(table: Any, roles: Roles, options: ReadOptions, place: Place, *, padded: bool) -> TableReading:
    """Each row a signal of one channel; of padded rows what is not measured at their end is cut off."""
    values = _values(table, roles, place)
    step_s = None if plain_numbers(roles.numbers) else name_step(roles.numbers)
    rate_hz = options.rate_hz if step_s is None else 1 / step_s
    ids = [str(row) for row in range(len(table))] if roles.id is None else texts_of(table, roles.id, place)
    unit = options.unit("", 0)
    signals = []
    for id, row in zip(ids, values, strict=True):
        measured = np.flatnonzero(~np.isnan(row))
        own = row[: measured[-1] + 1] if padded and len(measured) else row
        signals.append(Signal.from_array(own, id, rate_hz, units=unit and (unit,)))
    rate = _rate_note(rate_hz, "the names of the columns" if step_s else "the rate given")
    notes = [f"each of the {len(table)} rows is a signal of {len(roles.numbers)} samples of one channel", rate]
    labels = None if roles.label is None else np.asarray(texts_of(table, roles.label, place), dtype=str)
    columns = {column: table[column].cast(narwhals().String).to_list() for column in roles.texts}
    metadata = tuple(
        {name: str(texts[row]) for name, texts in columns.items() if texts[row] is not None} for row in range(len(ids))
    )
    return TableReading(tuple(signals), labels, metadata, (*notes, *_skip_notes(roles)), roles.id is None)


def _values(table: Any, roles: Roles, place: Place) -> npt.NDArray[np.float32]:
    values = np.empty((len(table), len(roles.numbers)), dtype=np.float32)
    with np.errstate(over="ignore"):  # beyond float32 is inf, which Signal refuses
        for n, column in enumerate(roles.numbers):
            values[:, n] = floats(table[column], place)
    return values


def _long(table: Any, name: str, roles: Roles, options: ReadOptions, place: Place) -> TableReading:
    """Rows are samples: of one recording, or of the one that the id names."""
    groups = _groups(table, roles.id, name, place)
    understood = [_layout_note(roles, len(groups), len(table))]
    times = None if roles.time is None else _times(table, roles.time, options, place)
    if times is not None:
        whole, groups = groups, _by_session(groups, times)
        understood += _session_notes(whole, groups)
    values, (names, units) = _values(table, roles, place), names_and_units(roles, options)
    signals: list[Signal] = []
    notes: dict[str, list[str]] = {}
    for id, rows in groups.items():
        part = values if rows is None else values[rows]
        timed = _timed(None if times is None else times.of(rows), id, roles.time, options)
        start = None if timed.clock is None else timed.clock.start_time
        part = part if timed.clock is None else timed.clock.regrid(part)
        signals.append(Signal.from_array(part, id, timed.rate_hz, names, start_time=start, units=units))
        for note in timed.notes:
            notes.setdefault(note, []).append(id)
    labels, metadata = _long_labels(table, roles, groups, place), _constant_texts(table, roles, groups)
    understood += [*_merged(notes, len(groups)), *_skip_notes(roles)]
    return TableReading(tuple(signals), labels, metadata, tuple(understood))


@dataclass(frozen=True, eq=False)
class TimedRows:
    """The rate of a recording, the clock on which its rows lie (None: they follow each other), and what to say."""

    rate_hz: float | None
    clock: EvenClock | None
    notes: tuple[str, ...]


def _timed(times: Times | None, id: str, column: str | None, options: ReadOptions) -> TimedRows:
    rate = _rate_note(options.rate_hz, "the rate given")
    if times is None:
        return TimedRows(options.rate_hz, None, (rate,))
    if _are_sample_numbers(times):
        clock = even_clock(times, f"recording {id!r}")
        notes = (f"times in {column!r} count samples; {rate}", *clock.notes)
        return TimedRows(options.rate_hz, clock, notes)
    clock = even_clock(times, f"recording {id!r}")
    notes = (f"{clock.rate_hz:.10g} Hz from column {column!r} ({times.source})", *clock.notes)
    if options.rate_hz is not None and abs(options.rate_hz / clock.rate_hz - 1) > 1e-6:
        notes += (f"the rate given, {options.rate_hz:g} Hz, is not used: the times say {clock.rate_hz:g} Hz",)
    return TimedRows(clock.rate_hz, clock, notes)


def _are_sample_numbers(times: Times) -> bool:
    """Whether times are 0, 1, 2, ... or 1, 2, 3, ..., perhaps with holes: numbers of samples, not seconds."""
    seconds = np.sort(times.seconds[np.isfinite(times.seconds)])
    if times.source != "seconds" or not len(seconds) or seconds[0] not in (0, 1):
        return False
    steps = np.diff(seconds)
    whole = bool((seconds == np.round(seconds)).all() and steps.all())
    return whole and (not len(steps) or float(np.median(steps)) == 1)


def _times(table: Any, column: str, options: ReadOptions, place: Place) -> Times:
    nw, series = narwhals(), table[column]
    unit = time_unit(column, options)
    if series.dtype.is_numeric():
        return numeric_times(np.asarray(series.cast(nw.Float64).to_numpy()), unit)
    if series.dtype == nw.Duration:
        ticks = series.to_numpy().astype("timedelta64[ns]")
        return Times(np.where(np.isnat(ticks), np.nan, ticks.astype(np.float64) * 1e-9), None, "durations")
    if series.dtype in (nw.Datetime, nw.Date):
        zone = getattr(series.dtype, "time_zone", None)
        plain = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if zone else series
        return datetime_times(plain.to_numpy().astype("datetime64[us]"), _zone(zone))
    texts = [None if text is None else str(text).strip() for text in series.to_list()]
    words = [row for row, text in enumerate(texts) if text and not is_float(text)]
    if not words:
        return numeric_times(np.asarray([float(text) if text else np.nan for text in texts]), unit)
    try:
        if 2 * len(words) < sum(map(bool, texts)):
            raise TimeTextError(words[0], str(texts[words[0]]))
        return text_times(texts)
    except TimeTextError as error:
        raise SignalError(
            f"{place(error.row)}: expected a time in column {column!r}, got {short(error.text)}; "
            "write numbers or ISO times such as 2026-05-01T12:00:00.5"
        ) from error


def _zone(name: str | None) -> tzinfo | None:
    if name is None or name.upper() in ("UTC", "Z"):
        return timezone.utc if name else None
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return timezone.utc


def _groups(table: Any, id: str | None, name: str, place: Place) -> Groups:
    """The rows of each recording, in the order in which ids first appear."""
    if id is None:
        return {name: None}
    texts = texts_of(table, id, place)
    codes = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    places = np.fromiter((codes[text] for text in texts), dtype=np.int64, count=len(texts))
    order = np.argsort(places, kind="stable")
    ends = np.searchsorted(places[order], np.arange(len(codes) + 1))
    return {text: order[ends[n] : ends[n + 1]] for text, n in codes.items()}


def _by_session(groups: Groups, times: Times) -> Groups:
    """The groups, each that has long holes as several."""
    parted: Groups = {}
    for id, rows in groups.items():
        own = sessions(times.of(rows))
        if len(own) == 1:
            parted[id] = rows
            continue
        for n, part in enumerate(own, start=1):
            parted[f"{id}/{n}"] = part if rows is None else rows[part]
    return parted


def _session_notes(whole: Groups, parted: Groups) -> list[str]:
    parts = [id for id in parted if id not in whole]
    return [f"holes longer than all that was measured part it: {listed(parts)}"] if parts else []


def texts_of(table: Any, column: str, place: Place) -> list[str]:
    """A column as text; an empty field is refused with its place."""
    nw = narwhals()
    texts = table[column].cast(nw.String).to_list()
    for row, text in enumerate(texts):
        if text is None or text != text or str(text) in ("nan", "NaN"):
            raise SignalError(f"{place(row)}: column {column!r} is empty; give every row its {column}")
    return [str(text) for text in texts]


def _long_labels(table: Any, roles: Roles, groups: Groups, place: Place) -> Labels | None:
    """One label for each recording; a label that changes within the only one is left out and said so."""
    if roles.label is None:
        return None
    texts = np.asarray(texts_of(table, roles.label, place), dtype=object)
    labels = []
    for id, rows in groups.items():
        own = list(dict.fromkeys(texts if rows is None else texts[rows]))
        if len(own) > 1 and roles.id is None:
            roles.skipped[roles.label] = f"it changes within the recording ({listed(own)})"
            return None
        if len(own) > 1:
            raise SignalError(
                f"signal {id!r} has two labels, {own[0]!r} and {own[1]!r}; give it one, or rename the column"
            )
        labels.append(own[0])
    return np.asarray(labels, dtype=str)


def _constant_texts(table: Any, roles: Roles, groups: Groups) -> tuple[Mapping[str, str], ...]:
    """Columns of text that say the same throughout a recording, as its metadata."""
    metadata: list[dict[str, str]] = [{} for _ in groups]
    for column in roles.texts:
        texts = np.asarray(table[column].cast(narwhals().String).to_list(), dtype=object)
        sets = [set(texts if rows is None else texts[rows]) for rows in groups.values()]
        if any(len(own) > 1 for own in sets):
            roles.skipped[column] = "it holds text that changes within a recording"
            continue
        for row, own in zip(metadata, sets, strict=True):
            text = own.pop()
            if text is not None:
                row[column] = str(text)
    return tuple(metadata)


def _layout_note(roles: Roles, recordings: int, rows: int) -> str:
    channels = f"{len(roles.numbers)} channel{'s' * (len(roles.numbers) > 1)}"
    if roles.id is None:
        return f"one recording of {channels}, {rows} rows are its samples"
    return f"{recordings} recording{'s' * (recordings > 1)} of {channels}, named by column {roles.id!r}"


def _rate_note(rate_hz: float | None, source: str) -> str:
    return NO_RATE if rate_hz is None else f"{rate_hz:.10g} Hz from {source}"


def _skip_notes(roles: Roles) -> list[str]:
    return [f"{LEFT_OUT}{column!r} is left out: {why}" for column, why in roles.skipped.items()]


def _merged(notes: Mapping[str, Sequence[str]], recordings: int) -> list[str]:
    """Each note once, with the recordings that it is said of unless these are all."""
    merged = []
    for note, ids in notes.items():
        more = f" and {len(ids) - IDS_SHOWN} more" if len(ids) > IDS_SHOWN else ""
        merged.append(note if len(ids) == recordings else f"{', '.join(ids[:IDS_SHOWN])}{more}: {note}")
    return merged
