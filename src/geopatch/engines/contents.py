"""What is in a gallery, for those who choose from it: its records, and its metadata with how often a value occurs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from geopatch.engines.entry import Value

MOST_VALUES = 50


@dataclass(frozen=True)
class Record:
    """A record with windows in the gallery, from the start of the first to the stop of the last."""

    name: str
    windows: int
    start_s: float
    stop_s: float


@dataclass(frozen=True)
class Field:
    """One name of the metadata."""

    name: str
    values: tuple[tuple[Value, int], ...]  # the most frequent and how often, most frequent first
    distinct: int
    low: float | None  # of those that are numbers
    high: float | None


@dataclass(frozen=True)
class Contents:
    records: tuple[Record, ...]
    fields: tuple[Field, ...]


def contents_from(
    records: Iterable[tuple[str, int, float, float]], values: Iterable[tuple[str, Value, int]]
) -> Contents:
    """From a row for each record, and a row for each name and value of the metadata, with counts."""
    by_name: dict[str, list[tuple[Value, int]]] = defaultdict(list)
    for name, value, count in values:
        by_name[name].append((value, int(count)))
    found = (Record(name, int(count), float(start), float(stop)) for name, count, start, stop in sorted(records))
    return Contents(tuple(found), tuple(_field(name, by_name[name]) for name in sorted(by_name)))


def _field(name: str, values: list[tuple[Value, int]]) -> Field:
    ranked = sorted(values, key=lambda pair: (-pair[1], str(pair[0])))
    numbers = [float(value) for value, _ in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    low, high = (min(numbers), max(numbers)) if numbers else (None, None)
    return Field(name, tuple(ranked[:MOST_VALUES]), len(values), low, high)
