"""A gallery of a folder as one file, taken while it is written and searched, and put back in one change.

The file is a SQLite database with all rows of the gallery and its model; the index is left out, as it is made from the
rows.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

from geopatch.engines.about import About
from geopatch.engines.folder import FILE, PAGE_BYTES, connect, lock_folder, one_line_errors
from geopatch.errors import ExistsError, GalleryError, NotFoundError
from geopatch.storage import atomic_file, atomic_folder

PAGES = 2000  # copied between two reports
TABLES = ("entry", "detail", "tag", "model", "document")
Report = Callable[[int, int], None]  # bytes copied so far, of how many


def backup_file(folder: Path, path: Path, report: Report | None = None) -> int:
    """Write a gallery as it is at one moment to a new file, and say how many bytes that has."""
    if path.exists():
        raise ExistsError(f"cannot back up to {path}: it exists already; give another path")

    def progress(_status: int, remaining: int, total: int) -> None:
        if report is not None:
            report((total - remaining) * PAGE_BYTES, total * PAGE_BYTES)

    with one_line_errors(folder), atomic_file(path) as partial:
        source, target = connect(folder, read_only=True), sqlite3.connect(partial)
        try:
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM about").fetchone()  # from here on, what others write is not seen
            source.backup(target, pages=PAGES, progress=progress)
            target.execute("PRAGMA journal_mode = DELETE")  # all of it in the one file
        finally:
            target.close()
            source.close()
    return path.stat().st_size


def restore_file(path: Path, folder: Path) -> None:
    """Make a new gallery of a backup, or bring one that is there to what the backup holds, in one change."""
    _check_backup(path)
    if not folder.exists():
        with one_line_errors(folder), atomic_folder(folder) as partial:
            _create(path, partial)
        return
    lock = lock_folder(folder)
    try:
        with one_line_errors(folder):
            _replace(path, folder)
    finally:
        lock.release()


def _check_backup(path: Path) -> None:
    if not path.is_file():
        raise NotFoundError(f"there is no backup {path}; give the file that `geopatch gallery backup` wrote")
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            whole = connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
            About.from_dict(json.loads(connection.execute("SELECT told FROM about").fetchone()[0]), path)
        finally:
            connection.close()
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise GalleryError(f"{path} is no backup of a gallery ({error}); give a file that `backup` wrote") from error
    if not whole:
        raise GalleryError(f"the backup {path} is damaged; take another one")


def _create(path: Path, folder: Path) -> None:
    source, target = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True), sqlite3.connect(folder / FILE)
    try:
        source.backup(target)
        target.execute("PRAGMA journal_mode = WAL")
        target.execute("UPDATE indexed SET last = 0, windows = 0")  # the index was left out
        target.execute("DELETE FROM gone")
        target.commit()
    finally:
        target.close()
        source.close()


def _replace(path: Path, folder: Path) -> None:
    """Row by row within one transaction: readers see the old rows until its end, and by the generation that all are
    others.
    """
    connection = connect(folder, read_only=False)
    try:
        connection.execute("ATTACH DATABASE ? AS backup", (str(path),))
        connection.execute("BEGIN IMMEDIATE")
        there = {row[0] for row in connection.execute("SELECT name FROM backup.sqlite_master WHERE type = 'table'")}
        for table in TABLES:
            if table in there:
                columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA backup.table_info({table})"))
                connection.execute(f"DELETE FROM main.{table}")
                connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM backup.{table}")
        connection.execute("UPDATE main.about SET told = (SELECT told FROM backup.about)")
        connection.execute("UPDATE main.indexed SET generation = generation + 1, last = 0, windows = 0")
        connection.execute("DELETE FROM main.gone")
        connection.execute("COMMIT")
    finally:
        connection.close()  # without the commit, nothing was changed
