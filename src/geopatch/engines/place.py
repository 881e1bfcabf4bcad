"""Where a gallery lives, and the engine that keeps it there.

A path is a folder of the embedded engine, `exact:PATH` one of the exact engine, and
`postgresql://user@host:5432/database/gallery` stands on a server.
"""

from __future__ import annotations

import os
from pathlib import Path

from geopatch.engines.about import About
from geopatch.engines.embedded import Embedded
from geopatch.engines.engine import Engine
from geopatch.engines.exact import Exact
from geopatch.engines.postgres import Postgres
from geopatch.engines.rows import Rows, engine_of
from geopatch.errors import GalleryError
from geopatch.storage import atomic_folder

EXACT, SERVER = "exact:", ("postgresql://", "postgres://")
LOCAL: dict[str, type[Exact]] = {engine.name: engine for engine in (Exact, Embedded)}
Place = str | os.PathLike[str]


def create_engine(place: Place, about: About) -> Engine:
    """A new, empty gallery, open for writing."""
    if _is_server(place):
        Postgres.create(os.fspath(place), about)
        return open_engine(place, read_only=False)
    folder, name = _folder(place)
    with atomic_folder(folder) as partial:
        Rows.create(partial, about, name)
    return open_engine(place, read_only=False)


def open_engine(place: Place, *, read_only: bool) -> Engine:
    """The gallery that is there; a folder says itself which engine it is of."""
    if _is_server(place):
        return Postgres(os.fspath(place), read_only=read_only)
    folder, _ = _folder(place)
    return LOCAL[engine_of(folder)](folder, read_only=read_only)


def _is_server(place: Place) -> bool:
    return os.fspath(place).startswith(SERVER)


def _folder(place: Place) -> tuple[Path, str]:
    text = os.fspath(place)
    if "://" in text:
        raise GalleryError(f"expected a folder, exact:FOLDER or postgresql://..., got {text!r}")
    exact = text.startswith(EXACT)
    return Path(text[len(EXACT) :] if exact else text).expanduser(), Exact.name if exact else Embedded.name
