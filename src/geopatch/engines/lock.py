"""One writer at a time. The system lets go of the lock when the process ends, however it ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from geopatch.errors import GalleryError

NAME = "writer.lock"


class WriterLock:
    """An open, locked file."""

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def lock(folder: Path) -> WriterLock:
    """Become the writer of a folder, or say which process is; the lock file names it."""
    if not folder.is_dir():
        raise GalleryError(f"{folder} is no gallery: there is no such folder; create one first, or give another path")
    try:
        handle = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise GalleryError(
            f"gallery {folder} cannot be written ({error.strerror}); open it read-only, or see whether you may write"
        ) from error
    try:
        _take(handle)
    except OSError as error:
        holder = os.read(handle, 32).decode(errors="replace").strip()
        os.close(handle)
        raise GalleryError(
            f"gallery {folder} is being written by process {holder or 'unknown'}; "
            "wait until it is done, or open the gallery read-only"
        ) from error
    os.ftruncate(handle, 0)
    os.write(handle, str(os.getpid()).encode())
    return WriterLock(handle)


if sys.platform == "win32":
    import msvcrt

    FAR = 1024  # other processes may read what lies before the locked byte

    def _take(handle: int) -> None:
        os.lseek(handle, FAR, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        os.lseek(handle, 0, os.SEEK_SET)

else:
    import fcntl

    def _take(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
