"""A gallery as a table in one file, Parquet or Arrow, for other tools. Raw windows stay in the gallery."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from geopatch.engines.about import Widths, check_encoder
from geopatch.engines.engine import Engine
from geopatch.engines.entry import Entries, Value
from geopatch.engines.filters import Filter, kind
from geopatch.errors import GalleryError, MissingExtraError
from geopatch.storage import atomic_file

BATCH = 1024
SUFFIXES = (".parquet", ".arrow")
Kinds = dict[str, set[str]]


def export_entries(engine: Engine, path: Path, where: Filter | None = None) -> int:
    """Write all entries that pass a filter, a batch at a time, and say how many."""
    if path.suffix not in SUFFIXES:
        raise GalleryError(f"cannot export to {path.name}: expected a name that ends in {' or '.join(SUFFIXES)}")
    polars = _polars()
    kinds, about = _kinds(engine.scan(BATCH, where)), engine.refresh()
    schema = _schema(polars, about.widths, kinds)
    written = 0

    def batches(columns: Any, _predicate: Any, _rows: Any, _size: Any) -> Iterator[Any]:
        nonlocal written
        for entries in engine.scan(BATCH, where):
            check_encoder(about, entries.encoder, "the rest, refitted meanwhile,")
            written += len(entries)
            frame = polars.DataFrame(_columns(entries, kinds), schema=schema)
            yield frame if columns is None else frame.select(columns)

    frame = polars.io.plugins.register_io_source(batches, schema=schema)
    with atomic_file(path) as partial:
        (frame.sink_parquet if path.suffix == ".parquet" else frame.sink_ipc)(partial, engine="streaming")
    return written


def _kinds(batches: Iterable[Entries]) -> Kinds:
    """What kinds of values each metadata name has: whole, fraction, flag or text."""
    kinds: Kinds = {}
    for entries in batches:
        for row in entries.metadata:
            for name, value in row.items():
                kinds.setdefault(name, set()).add(_kind(value))
    return dict(sorted(kinds.items()))


def _kind(value: Value) -> str:
    return kind(value) if kind(value) != "number" else "whole" if isinstance(value, int) else "fraction"


def _schema(polars: Any, widths: Widths, kinds: Kinds) -> Any:
    real = polars.Float32
    fields = [polars.Field(name, _dtype(polars, values)) for name, values in kinds.items()]
    schema = {
        "id": polars.String,
        "record": polars.String,
        "start_s": polars.Float64,
        "stop_s": polars.Float64,
        "embedding": polars.Array(real, widths.embedding),
        "tokens": polars.Array(real, (widths.patches, widths.token)),
        "valid": polars.Array(polars.Boolean, widths.patches),
        "patch_s": polars.Array(real, (widths.patches, 2)),
    }
    return polars.Schema({**schema, **({"metadata": polars.Struct(fields)} if fields else {})})


def _dtype(polars: Any, values: set[str]) -> Any:
    if values <= {"whole", "fraction"}:
        return polars.Int64 if values == {"whole"} else polars.Float64
    return polars.Boolean if values == {"flag"} else polars.String


def _columns(entries: Entries, kinds: Kinds) -> dict[str, Any]:
    columns: dict[str, Any] = {"id": entries.ids, "record": entries.records}
    columns |= {
        name: getattr(entries, name) for name in ("start_s", "stop_s", "embedding", "tokens", "valid", "patch_s")
    }
    if kinds:
        columns["metadata"] = [{name: _cell(row.get(name), kinds[name]) for name in kinds} for row in entries.metadata]
    return columns


def _cell(value: Value | None, values: set[str]) -> Value | None:
    """A value as its column holds it; a name with values of several kinds is exported as text."""
    if value is None or isinstance(value, str) or values in ({"flag"}, {"whole"}):
        return value
    return float(value) if values <= {"whole", "fraction"} else json.dumps(value)


def _polars() -> Any:
    try:
        import polars
        import polars.io.plugins
    except ImportError as error:
        raise MissingExtraError("polars", "frames", "exporting a gallery") from error
    return polars
