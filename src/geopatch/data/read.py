"""Read: one function for every file format, and data sets of the UEA/UCR archive by name or folder."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from geopatch.data.archive import read_arff, read_ts, read_tsv
from geopatch.data.array_files import holds_split, read_npz_split
from geopatch.data.collection import Collection, WindowSet, WindowSplit
from geopatch.data.reading import RecordingFile, read_recordings
from geopatch.dataframes import is_frame
from geopatch.errors import DataError, SignalError
from geopatch.inputs import read_frame
from geopatch.read_options import ReadOptions
from geopatch.signal import Signal

# The first of these that a folder has for both train and test is read.
ARCHIVE: dict[str, Callable[[Path], Collection]] = {
    ".ts": read_ts,
    ".arff": read_arff,
    ".tsv": read_tsv,
    ".txt": read_tsv,
}
N_NAMES_SHOWN = 5
FRAME = "frame"  # what a frame is called, which has no name of its own


def read(
    path: Any,
    *,
    time: str | None = None,
    id: str | None = None,
    channels: Sequence[str] | None = None,
    units: Mapping[str, str] | Sequence[str] | str | None = None,
    rate_hz: float | None = None,
) -> Collection:
    """Read recordings from a file, a folder, a WFDB record or a frame, and their labels if they have them.

    Parameters
    ----------
    path : str, Path or frame
        A file, a folder with everything below it, or a WFDB record with or without `.hea`. `docs/data.md` lists the
        formats. Or a frame of pandas or polars, also lazy, or an xarray object.
    time : str, optional
        The column of times, where its name does not say so; "none" to take a table without one.
    id : str, optional
        The column that names the recording of each row; "none" to take a table without one.
    channels : sequence of str, optional
        The channels to read, in this order; by default all.
    units : mapping, sequence or str, optional
        The unit of each channel, by name, in their order, or one for all.
    rate_hz : float, optional
        Samples a second, for what does not say it by a header or a column of times.

    Returns
    -------
    Collection
        The recordings in the order of the file or of the files' names. `notes` says what was understood of them.

    Raises
    ------
    DataError
        If a file cannot be read; the message names it, and its line where there is one.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "walk.csv")
    ...     _ = path.write_text("time,left [g],right [g]\\n0.00,1,2\\n0.02,3,4\\n0.04,5,6\\n")
    ...     read(path)
    Collection('walk', 1 signals of 3 samples at 50 Hz, 2 channels (left, right))
    """
    options = ReadOptions(
        time,
        id,
        None if channels is None else tuple(channels),
        (units,) if isinstance(units, str) else units if isinstance(units, Mapping) or units is None else tuple(units),
        rate_hz,
    )
    if is_frame(path):
        return _from_frame(path, options)
    name = Path(path)
    readings = list(read_recordings(name, options))
    return _one_collection(name, readings)


def _from_frame(frame: Any, options: ReadOptions) -> Collection:
    readings = read_frame(frame, FRAME, options)
    labels = [reading.labels for reading in readings if reading.labels is not None]
    return Collection(
        FRAME,
        tuple(signal for reading in readings for signal in reading.signals),
        np.concatenate(labels) if len(labels) == len(readings) else None,
        tuple(row for reading in readings for row in reading.metadata),
        tuple(dict.fromkeys(note for reading in readings for note in reading.notes)),
    )


def _one_collection(path: Path, readings: Sequence[RecordingFile]) -> Collection:
    signals = [signal for reading in readings for signal in reading.signals]
    if not path.is_dir() and _only_count(readings[0].file.id, signals):  # the numbers of one file stand alone
        signals = [replace(signal, id=str(n)) for n, signal in enumerate(signals)]
    labelled = all(reading.labels is not None for reading in readings)
    labels = (
        np.concatenate([reading.labels for reading in readings if reading.labels is not None]) if labelled else None
    )
    try:
        return Collection(
            path.stem,
            tuple(signals),
            labels,
            tuple(row for reading in readings for row in reading.metadata),
            tuple(_notes(readings)),
        )
    except SignalError as error:
        raise DataError(f"{path.name}: {error}") from error


def _only_count(name: str, signals: Sequence[Signal]) -> bool:
    return [signal.id for signal in signals] == [f"{name}/{n}" for n in range(len(signals))]


def _notes(readings: Sequence[RecordingFile]) -> Iterator[str]:
    for reading in readings:
        for note in reading.notes:
            yield note if len(readings) == 1 else f"{reading.file.path.name}: {note}"


def load_split(name_or_folder: str | Path, root: str | Path = ".") -> tuple[Collection, Collection]:
    """Read train and test of a data set.

    Parameters
    ----------
    name_or_folder : str or Path
        A folder with `<Name>_TRAIN` and `<Name>_TEST` files, or a name to look for.
    root : str or Path, default="."
        Where a name is looked for, and in the folders in it: as `<Name>/`, as such files, and as `<Name>.npz`.

    Returns
    -------
    tuple of Collection
        The train and the test side.

    Raises
    ------
    DataError
        If there is no such data set, or one of its files cannot be read.
    """
    train, test = _load(name_or_folder, Path(root))
    if train.signals[0].values.shape[1] != test.signals[0].values.shape[1]:
        raise DataError(
            f"{train.name} has {train.signals[0].values.shape[1]} channels but {test.name} has "
            f"{test.signals[0].values.shape[1]}; they are not of one data set"
        )
    return train, test


def archive_split(name: str, root: Path) -> WindowSplit:
    """The archive's own split of a data set, as windows."""
    train, test = load_split(name, root)
    return WindowSplit(_with_classes(test), _with_classes(train))


def split_files(name: str, root: Path) -> tuple[Path, ...]:
    """Where `load_split` finds a name: its train and its test file, one .npz that holds both, or nothing."""
    for base in _bases(root):
        pair = _pair(base / name, name) or _pair(base, name)
        if pair:
            return pair
        if (base / f"{name}.npz").is_file():
            return (base / f"{name}.npz",)
    return ()


def known_sets(root: Path) -> set[str]:
    """The names that `load_split` finds."""
    names: set[str] = set()
    for base in _bases(root):
        names.update(_names_in(base))
        names.update(file.stem for file in base.glob("*.npz") if holds_split(file))
        names.update(folder.name for folder in base.glob("*") if folder.is_dir() and _pair(folder, folder.name))
    return names


def _load(name_or_folder: str | Path, root: Path) -> tuple[Collection, Collection]:
    folder = Path(name_or_folder)
    name = folder.name
    if len(folder.parts) != 1 or name == "..":
        return _load_folder(folder)
    files = split_files(name, root)
    if files:
        return read_npz_split(files[0]) if len(files) == 1 else _read_pair(*files)
    if folder.is_dir():
        return _load_folder(folder)
    raise unknown_set(name, root)


def _bases(root: Path) -> list[Path]:
    if not root.is_dir():
        raise DataError(f"{root} is no folder; expected the folder that holds the data sets")
    return [root, *sorted(place for place in root.glob("*") if place.is_dir())]


def _load_folder(folder: Path) -> tuple[Collection, Collection]:
    """The data set named as its folder, or the only one in it."""
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder; expected one with _TRAIN and _TEST files, or the name of a data set")
    names = sorted(set(_names_in(folder)))
    own = [name for name in names if name == folder.resolve().name] or names
    pair = _pair(folder, own[0]) if len(own) == 1 else None
    if pair is None:
        raise DataError(
            f"{folder}: expected <Name>_TRAIN and <Name>_TEST files of one data set ({', '.join(ARCHIVE)}), "
            f"got {', '.join(names[:N_NAMES_SHOWN]) or 'none'}; name the folder as the set"
        )
    return _read_pair(*pair)


def _pair(folder: Path, name: str) -> tuple[Path, Path] | None:
    for suffix in ARCHIVE:
        train, test = folder / f"{name}_TRAIN{suffix}", folder / f"{name}_TEST{suffix}"
        if train.is_file() and test.is_file():
            return train, test
    return None


def _read_pair(train: Path, test: Path) -> tuple[Collection, Collection]:
    reader = ARCHIVE[train.suffix]
    return reader(train), reader(test)


def _names_in(folder: Path) -> Iterator[str]:
    for file in folder.glob("*_TRAIN.*"):
        name = file.name.partition("_TRAIN.")[0]
        if _pair(folder, name):
            yield name


def unknown_set(name: str, root: Path) -> DataError:
    """What to say about a name that is not there: where it was looked for, and what is nearest."""
    places = f"{root}/{name}/, {root}/*/{name}/ and {root}/*/{name}.npz"
    known = {known.lower(): known for known in sorted(known_sets(root))}
    nearest = [known[low] for low in difflib.get_close_matches(name.lower(), known, n=N_NAMES_SHOWN, cutoff=0.0)]
    there = f"of {len(known)} data sets there the nearest are {', '.join(nearest)}" if known else "there are none there"
    return DataError(f"no data set {name!r}: looked for {places}; {there}")


def _with_classes(collection: Collection) -> WindowSet:
    if collection.labels is None:
        raise DataError(f"{collection.name} has no class labels; `read` gives its signals without them")
    return WindowSet(collection.name, collection.signals, {"class": collection.labels})
