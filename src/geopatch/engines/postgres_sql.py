"""The tables of a gallery on a PostgreSQL server, and filters as conditions over them."""

from __future__ import annotations

import json
from typing import Any

from geopatch.engines.about import About
from geopatch.engines.entry import PLACE_FIELDS
from geopatch.engines.filters import All, Either, Equal, Filter, Not, Order, kind

Condition = tuple[str, list[Any]]  # SQL with a mark for each value, and the values

KINDS = {"id": "text", "record": "text", "start_s": "number", "stop_s": "number"}
COLUMNS = "n, id, record, start_s, stop_s, metadata, embedding, tokens, valid, patch_s, kept_window"
INSERT = (
    "INSERT INTO entry (id, record, start_s, stop_s, metadata, tags, embedding, tokens, valid, patch_s, kept_window) "
    "VALUES (%s, %s, %s, %s, %s, %s::jsonb, %s::vector, %s, %s, %s, %s)"
)
# `tags` repeats the metadata in the form that is filtered; `metadata` is the text as it came, to the last digit.
# Tokens and windows do not compress: EXTERNAL spares the server the attempt.
SCHEMA = """
CREATE TABLE about (told TEXT NOT NULL);
CREATE TABLE entry (n BIGSERIAL PRIMARY KEY, id TEXT NOT NULL UNIQUE, record TEXT NOT NULL, start_s FLOAT8 NOT NULL,
    stop_s FLOAT8 NOT NULL, metadata TEXT NOT NULL, tags JSONB NOT NULL, embedding vector({width}) NOT NULL,
    tokens BYTEA NOT NULL, valid BYTEA NOT NULL, patch_s BYTEA NOT NULL, kept_window BYTEA);
ALTER TABLE entry ALTER COLUMN embedding SET STORAGE PLAIN;
ALTER TABLE entry ALTER COLUMN tokens SET STORAGE EXTERNAL;
ALTER TABLE entry ALTER COLUMN kept_window SET STORAGE EXTERNAL;
CREATE INDEX entry_tags ON entry USING gin (tags jsonb_path_ops);
"""
INDEX = "CREATE INDEX IF NOT EXISTS entry_embedding ON entry USING hnsw (embedding vector_ip_ops)"


def schema(about: About) -> str:
    return SCHEMA.format(width=about.widths.embedding)


def condition(where: Filter | None) -> Condition:
    """What an entry must meet to pass a filter; never NULL, so that NOT turns it round."""
    if where is None:
        return "TRUE", []
    if isinstance(where, Not):
        inner, values = condition(where.part)
        return f"NOT ({inner})", values
    if isinstance(where, (All, Either)):
        return _joined(where)
    if where.name in PLACE_FIELDS:
        return _on_place(where)
    if isinstance(where, Equal):
        tests = [json.dumps({where.name: value}) for value in where.values]
        return " OR ".join(["tags @> %s::jsonb"] * len(tests)) or "FALSE", list(tests)
    number = f"(tags ->> %s)::float8 {where.sign} %s"
    values = [where.name, where.name, float(where.value)]
    return f"CASE WHEN jsonb_typeof(tags -> %s) = 'number' THEN {number} ELSE FALSE END", values


def _joined(where: All | Either) -> Condition:
    parts = [condition(part) for part in where.parts]
    word, empty = (" AND ", "TRUE") if isinstance(where, All) else (" OR ", "FALSE")
    return word.join(f"({sql})" for sql, _ in parts) or empty, [value for _, values in parts for value in values]


def _on_place(where: Equal | Order) -> Condition:
    """Place fields are columns of one kind; a value of another kind never meets them."""
    if isinstance(where, Order):
        fits = KINDS[where.name] == "number"
        return (f"{where.name} {where.sign} %s", [float(where.value)]) if fits else ("FALSE", [])
    wanted = KINDS[where.name]
    values: list[Any] = [value for value in where.values if kind(value) == wanted]
    if wanted == "text":
        return f"{where.name} = ANY(%s::text[])", [values]
    return f"{where.name} = ANY(%s::float8[])", [[float(value) for value in values]]
