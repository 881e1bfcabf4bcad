"""Files and folders that are written whole or not at all.

The work goes to a hidden sibling, which takes the place of the target only when all of it has reached the disk.
Whatever ends the block early (an error, Ctrl-C) removes the sibling and leaves the target as it was.

No kept library does this: `atomicwrites`, which did it for single files, has been archived since 2022 and points to
`os.replace`, which is used here; models, caches and galleries are folders.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from geopatch.errors import GeoPatchError

_CURES = {
    errno.ENOSPC: "the disk is full; free some space or give a path on another disk",
    errno.EDQUOT: "your disk quota is used up; free some space or give a path on another disk",
    errno.EFBIG: "the file grows larger than the system allows; raise the limit or give a path on another disk",
    errno.EACCES: "no permission to write there; give a path in a folder that you may write to",
    errno.EPERM: "no permission to write there; give a path in a folder that you may write to",
    errno.EROFS: "the disk is read-only; give a path on another disk",
    errno.EIO: "the disk reports an input/output error; give a path on another disk",
}


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary sibling of `path` to write to; it replaces `path` when the block ends well."""
    target = _real(path)
    partial = target.with_name(f".partial-{os.getpid()}-{target.name}")  # the suffix stays last: np.save reads it
    with _one_line_errors(target, partial):
        _check_file(target)
        try:
            yield partial
            _sync(partial)
            os.replace(partial, target)
            _sync_folder(target.parent)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | os.PathLike[str], overwrite: bool = False) -> Iterator[Path]:
    """A temporary sibling folder of `path` to fill; it becomes `path` when the block ends well.

    An existing folder is replaced only with `overwrite`, and is kept beside the new one until that is in place.
    """
    target = _real(path)
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    with _one_line_errors(target, partial):
        _check_folder(target, overwrite)
        try:
            _remove(partial)
            partial.mkdir()
            yield partial
            _sync_tree(partial)
            _check_folder(target, overwrite)  # another process may have been faster
            _swap(partial, target)
            _sync_folder(target.parent)
        finally:
            _remove(partial)


def _real(path: str | os.PathLike[str]) -> Path:
    """The place a path stands for; writing goes through links instead of replacing them."""
    return Path(os.path.realpath(os.path.expanduser(path)))


def _check_parent(target: Path) -> None:
    if not target.parent.is_dir():
        raise GeoPatchError(
            f"cannot write {target}: there is no folder {target.parent}; create it first or give another path"
        )


def _check_file(target: Path) -> None:
    _check_parent(target)
    if target.is_dir():
        raise GeoPatchError(f"cannot write {target}: expected a file, but a folder is there; give another path")


def _check_folder(target: Path, overwrite: bool) -> None:
    _check_parent(target)
    if target.exists() and not target.is_dir():
        raise GeoPatchError(f"cannot write {target}: expected a folder, but a file is there; give another path")
    if target.exists() and not overwrite:
        raise GeoPatchError(f"cannot write {target}: the folder exists already; give another path or allow overwriting")


def _swap(partial: Path, target: Path) -> None:
    """Put the finished folder in place; the old one is deleted last, or put back."""
    if not target.exists():
        os.rename(partial, target)
        return
    old = _old(target)
    _remove(old)
    try:
        os.rename(target, old)
        os.rename(partial, target)
    except BaseException:
        if old.exists() and not target.exists():
            os.rename(old, target)
        raise
    _remove(old)


def _old(target: Path) -> Path:
    return target.with_name(f".{target.name}.old-{os.getpid()}")


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _sync_tree(folder: Path) -> None:
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            _sync(Path(place, name))
        _sync_folder(Path(place))


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened
        _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _one_line_errors(target: Path, partial: Path) -> Iterator[None]:
    """Turn the system's errors about the target into a GeoPatchError; errors about other files pass."""
    try:
        yield
    except GeoPatchError:
        raise
    except Exception as error:
        reason = _reason(error, (target, partial, _old(target)))
        if reason is None:
            raise
        raise GeoPatchError(f"cannot write {target}: {reason}") from error


def _reason(error: Exception, places: tuple[Path, ...]) -> str | None:
    """What hindered the writing and what to do about it, or None where it was something else."""
    number = _number(error)
    if not isinstance(error, OSError):
        return _CURES.get(number)
    default = f"{error.strerror or error}; mend that or give another path"
    return _CURES.get(number, default) if _concerns(error, places) else None


def _number(error: Exception) -> int:
    """The system's error number, also where a library leaves it in the text (safetensors, polars) or out (numpy)."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if re.search(r"\d+ requested and \d+ written", str(error)):
        return errno.ENOSPC
    match = re.search(r"\(os error (\d+)\)", str(error))
    return int(match[1]) if match else 0


def _concerns(error: OSError, places: tuple[Path, ...]) -> bool:
    """Whether the error names one of the places or something in it, or nothing at all, as write and fsync do."""
    if not isinstance(error.filename, str | bytes | os.PathLike):
        return True
    path = Path(os.fsdecode(error.filename))
    return any(place in (path, *path.parents) for place in places)
