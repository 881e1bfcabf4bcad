"""The folder of a gallery: its SQLite file, who may write it, its upgrade, and what goes wrong as one line.

The writer's lock is filelock's, which also refuses a second writer in the same process, is free at once after kill -9
(0.5 ms, measured) and is tested by its authors on Windows. It does not name the holder: `writer.pid` does.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from geopatch.engines.about import About, upgraded_fields
from geopatch.engines.engine import CREATED, OF_GALLERY, now
from geopatch.engines.packing import dump_channels, unpack_window
from geopatch.errors import GalleryError, LockedError, NotFoundError, StorageError

if TYPE_CHECKING:
    from filelock import BaseFileLock

LOCK, HOLDER = "writer.lock", "writer.pid"
UPGRADE_BATCH = 1000
FILE = "gallery.sqlite"
PAGE_BYTES = 32768  # tokens of one entry take about 4 kB: several fit into a page with little left over
MAPPED_BYTES = 2**31 - 2**16  # as much as SQLite maps
BUSY_MS = 10_000

# `n` grows with every write and is never used again, so that what is new since a moment is what has a larger n; `gone`
# lists what was removed since the index was built. `tag` has a row for every metadata value, record and time in its own
# type (flags as blobs, so that true is not 1): filters are answered from it. `channels` are the channel names as JSON,
# empty where there are none. The column `told` has its name from format 1: there any version looks for the format.
# `model` has a row where the gallery holds its model; galleries made before it did have no such table.
MODEL_TABLE = "CREATE TABLE IF NOT EXISTS model (checkpoint BLOB NOT NULL)"
# `document` keeps texts beside the entries, by what they are about and its name; it is made when first written to.
DOCUMENT_TABLE = (
    "CREATE TABLE IF NOT EXISTS document (kind TEXT NOT NULL, name TEXT NOT NULL, content TEXT NOT NULL, "
    "PRIMARY KEY (kind, name)) WITHOUT ROWID"
)
ADD_CHANNELS = "ALTER TABLE entry ADD COLUMN channels TEXT NOT NULL DEFAULT ''"
INDEX_CHANNELS = "CREATE INDEX entry_channels ON entry (channels)"
SCHEMA = f"""
CREATE TABLE about (engine TEXT NOT NULL, told TEXT NOT NULL);
CREATE TABLE entry (n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, record TEXT NOT NULL,
    start_s REAL NOT NULL, stop_s REAL NOT NULL, metadata TEXT NOT NULL, embedding BLOB NOT NULL);
CREATE TABLE detail (n INTEGER PRIMARY KEY, tokens BLOB NOT NULL, valid BLOB NOT NULL, patch_s BLOB NOT NULL,
    window BLOB);
CREATE TABLE tag (name TEXT NOT NULL, value NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (name, value, n)) WITHOUT ROWID;
CREATE TABLE gone (at INTEGER PRIMARY KEY AUTOINCREMENT, n INTEGER NOT NULL);
CREATE TABLE indexed (generation INTEGER NOT NULL, last INTEGER NOT NULL, windows INTEGER NOT NULL);
INSERT INTO indexed VALUES (0, 0, 0);
{MODEL_TABLE};
{DOCUMENT_TABLE};
{ADD_CHANNELS};
{INDEX_CHANNELS};
"""


def create_file(folder: Path, about: About, engine: str, model: bytes | None) -> None:
    """An empty file in an existing folder, for the engine of that name."""
    with one_line_errors(folder):
        connection = sqlite3.connect(folder / FILE, isolation_level=None)
        try:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(f"BEGIN; {SCHEMA}")
            connection.execute("INSERT INTO about VALUES (?, ?)", (engine, about_text(about)))
            write_model(connection, model)
            write_document(connection, OF_GALLERY, CREATED, now())
            connection.execute("COMMIT")
        finally:
            connection.close()


def about_text(about: About) -> str:
    return json.dumps(about.as_dict())


def write_model(connection: sqlite3.Connection, model: bytes | None) -> None:
    """Put a packed checkpoint in the place of the one that is there."""
    connection.execute(MODEL_TABLE)
    connection.execute("DELETE FROM model")
    if model is not None:
        connection.execute("INSERT INTO model VALUES (?)", (model,))


def write_document(connection: sqlite3.Connection, kind: str, name: str, content: str | None) -> None:
    """Put a text in the place of the one of that name; None takes it away."""
    connection.execute(DOCUMENT_TABLE)
    connection.execute("DELETE FROM document WHERE kind = ? AND name = ?", (kind, name))
    if content is not None:
        connection.execute("INSERT INTO document VALUES (?, ?, ?)", (kind, name, content))


def engine_of(folder: Path) -> str:
    """The name of the engine that a folder belongs to."""
    with one_line_errors(folder):
        connection = connect(folder, read_only=True)
        try:
            return str(connection.execute("SELECT engine FROM about").fetchone()[0])
        finally:
            connection.close()


def upgrade_file(folder: Path) -> bool:
    """Bring a file of format 1 to format 2 in one transaction; false where it had that format already.

    A process that is killed meanwhile leaves the file as it was. The index stays valid: no entry gets another n.
    """
    with one_line_errors(folder):
        connection = connect(folder, read_only=False)
        try:
            connection.execute("BEGIN IMMEDIATE")
            fields = json.loads(connection.execute("SELECT told FROM about").fetchone()[0])
            if fields.get("format") != 1:
                return False
            connection.execute(ADD_CHANNELS)
            _fill_channels(connection)
            connection.execute(INDEX_CHANNELS)
            connection.execute("UPDATE about SET told = ?", (json.dumps(upgraded_fields(fields)),))
            connection.execute("COMMIT")
            return True
        finally:
            connection.close()  # without the commit, nothing was changed


def _fill_channels(connection: sqlite3.Connection) -> None:
    """Channel names from the windows that were kept."""
    query, last = "SELECT n, window FROM detail WHERE n > ? AND window IS NOT NULL ORDER BY n LIMIT ?", 0
    while rows := connection.execute(query, (last, UPGRADE_BATCH)).fetchall():
        last = rows[-1][0]
        windows = ((n, unpack_window(blob)) for n, blob in rows)
        named = [(dump_channels(window.channels), n) for n, window in windows if window is not None and window.channels]
        connection.executemany("UPDATE entry SET channels = ? WHERE n = ?", named)


def lock_folder(folder: Path) -> BaseFileLock:
    """Become the writer of a folder, or say which process is. The lock ends with the process, however it ends."""
    from filelock import FileLock, Timeout

    if not folder.is_dir():
        raise NotFoundError(f"{folder} is no gallery: there is no such folder; create one first, or give another path")
    lock = FileLock(folder / LOCK, thread_local=False)  # whichever thread closes the gallery lets go of it
    try:
        lock.acquire(blocking=False)
        (folder / HOLDER).write_text(str(os.getpid()))
    except Timeout as error:
        raise LockedError(
            f"gallery {folder} is being written by process {_holder(folder)}; "
            "wait until it is done, or open the gallery read-only"
        ) from error
    except OSError as error:
        lock.release()
        raise StorageError(
            f"gallery {folder} cannot be written ({error.strerror}); open it read-only, or see whether you may write"
        ) from error
    return lock


def _holder(folder: Path) -> str:
    try:
        return (folder / HOLDER).read_text()[:32] or "unknown"
    except OSError:
        return "unknown"


def connect(folder: Path, read_only: bool) -> sqlite3.Connection:
    if not (folder / FILE).is_file():
        raise NotFoundError(f"{folder} is no gallery: it has no {FILE}; create one first, or give another path")
    place = (folder / FILE).absolute().as_uri()
    connection = _opened(f"{place}?mode={'ro' if read_only else 'rw'}")
    try:
        connection.execute("SELECT count(*) FROM about").fetchone()
    except sqlite3.OperationalError:
        if not read_only:
            raise
        connection.close()  # a disk that cannot be written: nobody can be writing there, and nothing waits in the log
        connection = _opened(f"{place}?immutable=1")
    connection.execute("PRAGMA synchronous = FULL")
    if read_only:  # a page is then read without a call of the system; who writes wants an error of the disk as an error
        connection.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}")
    return connection


def _opened(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    return connection


FULL = "free some space, what was added before is safe"
UNWRITABLE = "it cannot be written; open it read-only, or give a path you may write to"
# SQLite's result code, its message (Python 3.10 has no codes), and what to do.
CURES = (
    (13, "is full", f"the disk is full; {FULL}"),
    (8, "readonly", UNWRITABLE),
    (10, "disk i/o", f"the disk refused (full, over its quota or broken); {FULL}"),
    (14, "unable to open", "its file cannot be opened; see whether you may read and write there"),
    (BUSY := 5, "locked", "another process is changing it; try again when that is done"),
    (26, "not a database", "its file is damaged or none of a gallery; restore it from a copy"),
    (11, "malformed", "its file is damaged; restore it from a copy"),
    (1, "no such table", "its file is none of a gallery; give another path"),
)


@contextmanager
def one_line_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.ProgrammingError as error:
        raise GalleryError(f"gallery {folder}: it is closed; open it again ({error})") from error
    except sqlite3.Error as error:
        code, cure = _cure(error)
        kind = LockedError if code == BUSY else StorageError
        raise kind(f"gallery {folder}: {cure} ({error})") from error


def _cure(error: sqlite3.Error) -> tuple[int, str]:
    number = getattr(error, "sqlite_errorcode", None)  # the low byte is the kind of error, the rest its detail
    for code, message, cure in CURES:
        if (message in str(error).lower()) if number is None else (number & 0xFF) == code:
            return code, cure
    return 0, "see whether its disk is well"
