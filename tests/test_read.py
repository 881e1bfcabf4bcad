"""One door: the suffix decides, and what cannot be read says so in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from geopatch.data import read
from geopatch.errors import DataError

TEXTS = {
    "a.ts": "@univariate true\n@classLabel true x\n@data\n1,2:x\n",
    "a.arff": "@relation a\n@attribute t0 numeric\n@attribute t1 numeric\n@attribute class {x}\n@data\n1,2,x\n",
    "a.tsv": "x\t1\t2\n",
    "a.txt": "x\t1\t2\n",
    "a.csv": "t0,t1,label\n1,2,x\n",
    "A.CSV": "t0,t1,label\n1,2,x\n",
}


@pytest.mark.parametrize("name", [*TEXTS, "a.npz", "a.parquet"])
def test_every_suffix_gives_the_same_signal(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name in TEXTS:
        path.write_text(TEXTS[name])
    elif name == "a.npz":
        np.savez(path, X=[[1, 2]], y=["x"])
    else:
        pl.DataFrame({"t0": [1], "t1": [2], "label": ["x"]}).write_parquet(path)
    collection = read(str(path))
    assert collection.name == path.stem
    assert collection.signals[0].values.tolist() == [[1], [2]]
    assert collection.labels is not None
    assert collection.labels.tolist() == ["x"]


@pytest.mark.parametrize(("name", "came"), [("a.docx", ".docx"), ("notes", "a file without suffix")])
def test_unknown_suffix_lists_the_known(tmp_path: Path, name: str, came: str) -> None:
    (tmp_path / name).write_text("1,2,3\n")
    with pytest.raises(
        DataError, match=rf"{name}: cannot read {came}; expected .csv, .tsv, .txt, .parquet, .*, .ts, .arff"
    ):
        read(tmp_path / name)


@pytest.mark.parametrize("suffix", ["ts", "arff", "tsv", "txt", "csv", "parquet", "npz"])
def test_what_is_not_there_or_empty(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    with pytest.raises(DataError, match=rf"a.{suffix}: no such file; check the path"):
        read(path)
    path.touch()
    with pytest.raises(DataError, match=rf"a.{suffix} is empty \(0 bytes\); expected data"):
        read(path)


def test_a_folder_is_read_whole(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no file that can be read; expected .csv"):
        read(tmp_path)
    (tmp_path / "b.csv").write_text("x,y\n1,2\n3,4\n")
    (tmp_path / "a.csv").write_text("y,x\n5,6\n")
    collection = read(tmp_path)
    assert [(signal.id, signal.values.tolist()) for signal in collection.signals] == [
        ("a", [[5, 6]]),
        ("b", [[2, 1], [4, 3]]),
    ]
    (tmp_path / "c.csv").write_text("x\n5\n")
    with pytest.raises(DataError, match=r"signal 'c' has 1 channel \(x\), signal 'a' has 2 channels"):
        read(tmp_path)


def test_a_file_that_may_not_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.ts").write_text(TEXTS["a.ts"])
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"a.ts cannot be opened: .*Permission denied; check its permissions"):
        read(tmp_path / "a.ts")


def test_every_error_is_one_line(tmp_path: Path) -> None:
    for name in ("a.ts", "a.arff", "a.tsv", "a.csv", "a.npz", "a.parquet"):
        (tmp_path / name).write_text("no\ndata\nhere\n")
        with pytest.raises(DataError, match=f"^[^\n]*{name}[^\n]*$"):
            read(tmp_path / name)
