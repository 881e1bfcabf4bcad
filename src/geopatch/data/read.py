"""Read: one door to every file format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from geopatch.data.archive import read_arff, read_ts, read_tsv
from geopatch.data.collection import Collection
from geopatch.data.npz import read_npz
from geopatch.data.source import check_file
from geopatch.data.tables import read_csv, read_parquet
from geopatch.errors import DataError

READERS: dict[str, Callable[[Path], Collection]] = {
    ".arff": read_arff,
    ".csv": read_csv,
    ".npz": read_npz,
    ".parquet": read_parquet,
    ".ts": read_ts,
    ".tsv": read_tsv,
    ".txt": read_tsv,
}


def read(path: str | Path) -> Collection:
    """The signals of a file, and their labels if it has them; the suffix says which format it is."""
    path = check_file(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path.name}: cannot read {path.suffix or 'a file without suffix'}; give {', '.join(READERS)}")
    return reader(path)
