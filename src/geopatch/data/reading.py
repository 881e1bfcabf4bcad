"""Reading: every file of a folder, one at a time, as recordings with what was understood of it.

`list_files` finds what can be read, `read_file` reads one; `read_recordings` is both. A folder may be larger than
memory: only one file's recordings are held.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.data.file_reading import FileReading
from geopatch.data.formats import FORMATS, companions, is_companion
from geopatch.data.recording import Recording
from geopatch.data.source import check_file
from geopatch.data.wfdb_records import wfdb_segments
from geopatch.errors import DataError, GeoPatchError, MissingExtraError
from geopatch.read_options import ReadOptions
from geopatch.signal import Signal

Value = str | int | float | bool
Skip = Callable[["InputFile", DataError], None]

CHUNK_BYTES = 1 << 20
FOLDER_FORMATS = tuple(suffix for suffix in FORMATS if suffix != ".json")  # which mostly describe other files


@dataclass(frozen=True)
class InputFile:
    """A file that can be read, the files that belong to it, and the id that its recording gets.

    Parameters
    ----------
    path : Path
        The file; of a WFDB record its header.
    id : str
        Its path within the folder that was given, without the suffix; the name alone where the file itself was given.
    parts : tuple of Path
        The file and those that belong to it, such as the data and annotations of a WFDB record.
    within_folder : bool
        Whether a folder was given and the file is in it.
    """

    path: Path
    id: str
    parts: tuple[Path, ...]
    within_folder: bool = False

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the bytes of all parts: it changes when one of them does."""
        sha = hashlib.sha256()
        for part in self.parts:
            sha.update(f"{part.name}\0".encode())
            with part.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    sha.update(chunk)
        return sha.hexdigest()


@dataclass(frozen=True, eq=False)
class RecordingFile:
    """What one file holds.

    Parameters
    ----------
    file : InputFile
        Where it comes from, with its digest.
    recordings : tuple of Recording
        Each with its signal; with beats and rhythms where the file has annotations.
    labels : array of shape (N,), optional
        The class of each recording, where the file says it.
    metadata : tuple of mapping
        What headers, columns of text, the sidecar table and the path say of each recording.
    notes : tuple of str
        What was understood, as sentences: layout, rate and where it comes from, jitter, holes, what was left out and
        why.
    """

    file: InputFile
    recordings: tuple[Recording, ...]
    labels: npt.NDArray[np.str_] | None
    metadata: tuple[Mapping[str, Value], ...]
    notes: tuple[str, ...]

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The signal of each recording."""
        return tuple(recording.signal for recording in self.recordings)


def list_files(paths: str | Path | Iterable[str | Path], skip: Skip | None = None) -> list[InputFile]:
    """The files that can be read under paths, in the order of their names.

    Parameters
    ----------
    paths : path or iterable of paths
        Files, folders with everything below them, or WFDB records by their names without a suffix.
    skip : callable, optional
        Called with every file of a folder that is of no known format. One that was named itself is refused.
    """
    several = [paths] if isinstance(paths, (str, Path)) else list(paths)
    files: list[InputFile] = []
    for path in map(Path, several):
        files += _in_folder(path, skip) if path.is_dir() else [_named(path)]
    _check_distinct(files)
    return files


def read_file(file: InputFile, options: ReadOptions | None = None) -> RecordingFile:
    """The recordings of one file; what is wrong with it is one line that names it."""
    try:
        check_file(file.path)
        reading = FORMATS[suffix_of(file.path)](file.path, file.id, options or ReadOptions())
    except MissingExtraError:
        raise
    except DataError as error:
        raise _naming(file, error) from error
    except GeoPatchError as error:
        raise DataError(f"{file.path}: {error}") from error
    return _named_recordings(file, reading)


def read_recordings(
    paths: str | Path | Iterable[str | Path], options: ReadOptions | None = None, *, skip: Skip | None = None
) -> Iterator[RecordingFile]:
    """Read all files under paths, one at a time.

    Parameters
    ----------
    paths : path or iterable of paths
        As in `list_files`.
    options : ReadOptions, optional
        What the files do not say themselves.
    skip : callable, optional
        Called with each file that cannot be read and the error that names it; the others are read. By default the
        error is raised.
    """
    for file in list_files(paths, skip):
        try:
            reading = read_file(file, options)
        except DataError as error:
            if skip is None:
                raise
            skip(file, error)
            continue
        yield reading


def suffix_of(path: Path) -> str:
    return path.suffix.lower()


def _named(path: Path) -> InputFile:
    """A file that was named itself; a WFDB record also without its suffix."""
    header = path.with_name(f"{path.name}.hea")
    if not path.exists() and header.is_file():
        path = header
    if suffix_of(path) == ".dat" and path.with_suffix(".hea").is_file():
        path = path.with_suffix(".hea")
    check_file(path)
    if suffix_of(path) not in FORMATS:
        raise _unknown(path)
    return InputFile(path, path.stem, companions(path))


def _in_folder(folder: Path, skip: Skip | None) -> list[InputFile]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not _hidden(path.relative_to(folder)))
    names, segments = set(paths), wfdb_segments(paths)
    readable = [path for path in paths if suffix_of(path) in FOLDER_FORMATS and path not in segments]
    for path in paths:
        if skip is not None and suffix_of(path) not in FOLDER_FORMATS and not is_companion(path, names):
            skip(InputFile(path, path.stem, (path,), True), _unknown(path))
    if not readable:
        raise DataError(f"{folder} has no file that can be read; expected {', '.join(FOLDER_FORMATS)}")
    stems = [path.relative_to(folder).with_suffix("").as_posix() for path in readable]
    ids = [
        path.relative_to(folder).as_posix() if stems.count(stem) > 1 else stem
        for path, stem in zip(readable, stems, strict=True)
    ]
    return [InputFile(path, id, companions(path), True) for path, id in zip(readable, ids, strict=True)]


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _unknown(path: Path) -> DataError:
    came = path.suffix or "a file without suffix"
    return DataError(f"{path}: cannot read {came}; expected {', '.join(FORMATS)}")


def _check_distinct(files: Sequence[InputFile]) -> None:
    seen: dict[str, Path] = {}
    for file in files:
        if file.id in seen and seen[file.id] != file.path:
            raise DataError(
                f"{file.path} and {seen[file.id]} would both be recording {file.id!r}; rename one, or give the folder "
                "that holds both"
            )
        seen[file.id] = file.path


def _naming(file: InputFile, error: DataError) -> DataError:
    return error if file.path.name in str(error) else DataError(f"{file.path}: {error}")


def _named_recordings(file: InputFile, reading: FileReading) -> RecordingFile:
    """With the file's id before those that only count, and within a folder before all that are the file's own."""
    recordings = reading.recordings
    ids = [recording.signal.id for recording in recordings]
    own = all(id == file.id or id.startswith(f"{file.id}/") for id in ids)
    if reading.numbered or (file.within_folder and not own):
        recordings = tuple(
            replace(recording, signal=replace(recording.signal, id=f"{file.id}/{recording.signal.id}"))
            for recording in recordings
        )
    return RecordingFile(file, recordings, reading.labels, tuple(map(_plain, reading.metadata)), reading.notes)


def _plain(metadata: Mapping[str, Any]) -> dict[str, Value]:
    return {name: value for name, value in metadata.items() if value is not None and value != ""}
