"""Where a gallery lives, and the engine that keeps it there.

A path is a folder of the embedded engine, `exact:PATH` one of the exact engine, and
`postgresql://user@host:5432/database/gallery` is on a server.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from geopatch.engines.about import About
from geopatch.engines.backup import Report, backup_file, restore_file
from geopatch.engines.engine import Engine
from geopatch.engines.folder import engine_of
from geopatch.errors import GalleryError

# Module and class of each engine by the scheme of its places. A further engine is a module and a line here.
ENGINES = {
    "embedded": "geopatch.engines.embedded:Embedded",
    "exact": "geopatch.engines.exact:Exact",
    "postgres": "geopatch.engines.postgres:Postgres",
    "postgresql": "geopatch.engines.postgres:Postgres",
    "postgresql with shards": "geopatch.engines.postgres_shards:Sharded",  # no scheme: the server says that it has some
}
FOLDERS = ("embedded", "exact")  # a folder's own file says which of these it is of; the first is the default
SERVERS = ("postgres", "postgresql")
SCHEME = re.compile(r"([a-z][a-z0-9+-]+):")  # two letters at least: C: is a drive
Place = str | os.PathLike[str]


def create_engine(place: Place, about: About, model: bytes | None = None) -> Engine:
    """A new, empty gallery, open for writing, which holds its packed model where one is given."""
    scheme, rest = _split(place)
    _engine(scheme).create(rest, about, model)
    return open_engine(place, read_only=False)


def open_engine(place: Place, *, read_only: bool) -> Engine:
    """The gallery that is there."""
    scheme, rest = _split(place)
    engine: Engine = _engine(_stored(scheme, rest))(rest, read_only=read_only)
    return engine


def upgrade_engine(place: Place) -> bool:
    """Bring an older gallery to the present format; false where it has that already."""
    scheme, rest = _split(place)
    return bool(_engine(_stored(scheme, rest)).upgrade(rest))


def backup_engine(place: Place, path: Path, report: Report | None = None) -> int:
    """Write the gallery of a folder to one file, also while it is used, and say how many bytes that has."""
    return backup_file(_folder(place), path, report)


def restore_engine(path: Path, place: Place) -> None:
    """A new gallery of a folder from a backup, or one that is there brought to what the backup holds."""
    restore_file(path, _folder(place))


def _folder(place: Place) -> Path:
    scheme, rest = _split(place)
    if scheme not in FOLDERS:
        raise GalleryError(
            "a gallery on a server is backed up with the server's own tools, such as pg_dump; or copy it to a folder: "
            "geopatch gallery copy"
        )
    return Path(rest).expanduser()


def _split(place: Place) -> tuple[str, str]:
    """The scheme, and what its engine takes: a folder, or the whole address."""
    text = os.fspath(place)
    match = SCHEME.match(text)
    scheme = match[1] if match and match[1] in ENGINES else FOLDERS[0]
    if scheme in FOLDERS:
        text = text.removeprefix(f"{scheme}:")
        if "://" in text:
            raise GalleryError(f"expected a folder, exact:FOLDER or postgresql://..., got {text!r}")
    return scheme, text


def _stored(scheme: str, rest: str) -> str:
    """The engine of the gallery that is there."""
    if scheme in FOLDERS:
        return engine_of(Path(rest).expanduser())
    if scheme in SERVERS:
        from geopatch.engines.postgres_sql import has_shards

        return "postgresql with shards" if has_shards(rest) else scheme
    return scheme


def _engine(scheme: str) -> Any:
    module, _, name = ENGINES[scheme].partition(":")
    return getattr(import_module(module), name)
