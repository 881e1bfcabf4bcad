"""Filters as SQL conditions over the tables of `rows`."""

from __future__ import annotations

from typing import Any

from geopatch.gallery.entry import PLACE_FIELDS, Value
from geopatch.gallery.filters import All, Either, Equal, Filter, Not, Order, kind
from geopatch.gallery.rows import marks, tag_value

Condition = tuple[str, list[Any]]  # SQL with a mark for each value, and the values

KINDS = {"id": "text", "record": "text", "start_s": "number", "stop_s": "number"}
NUMBER = "typeof(value) IN ('integer', 'real')"  # to SQLite any text is larger than any number


def condition(where: Filter | None) -> Condition:
    """What the column n of an entry must meet for it to pass a filter."""
    if where is None:
        return "1", []
    if isinstance(where, Not):
        inner, values = condition(where.part)
        return f"NOT ({inner})", values
    if isinstance(where, (All, Either)):
        return _joined(where)
    if where.name in PLACE_FIELDS:
        return _on_place(where)
    if isinstance(where, Equal):
        test, found = f"value IN ({marks(where.values)})", [tag_value(value) for value in where.values]
    else:
        test, found = f"value {where.sign} ? AND {NUMBER}", [where.value]
    return f"n IN (SELECT n FROM tag WHERE name = ? AND {test})", [where.name, *found]


def _joined(where: All | Either) -> Condition:
    parts = [condition(part) for part in where.parts]
    word, empty = (" AND ", "1") if isinstance(where, All) else (" OR ", "0")
    return word.join(f"({sql})" for sql, _ in parts) or empty, [value for _, values in parts for value in values]


def _on_place(where: Equal | Order) -> Condition:
    """Place fields are columns of one kind; a value of another kind never meets them."""
    if isinstance(where, Order):
        return (f"{where.name} {where.sign} ?", [where.value]) if KINDS[where.name] == "number" else ("0", [])
    values: list[Value] = [value for value in where.values if kind(value) == KINDS[where.name]]
    return f"{where.name} IN ({marks(values)})", values
