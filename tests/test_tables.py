"""Tables: long with an id, wide without one; text among numbers is named by file, line and column."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from geopatch.data.array_files import read_csv, read_npz, read_parquet
from geopatch.errors import DataError, MissingExtraError

LONG = """id,time,x,y,label
007,1,3,4,walk
007,0,1,2,walk
b,0,5,?,run
b,1,,NA,run
b,10,9,10,run
"""


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_long_csv(tmp_path: Path) -> None:
    collection = read_csv(write(tmp_path, "long.csv", LONG), rate_hz=50.0)
    assert collection.name == "long"
    assert [signal.id for signal in collection.signals] == ["007", "b"]
    assert collection.labels is not None
    assert collection.labels.tolist() == ["walk", "run"]
    first, second = collection.signals
    assert first.channels == ("x", "y")
    assert first.rate_hz == 50.0
    np.testing.assert_array_equal(first.values, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(second.values, [[5, np.nan], [np.nan, np.nan], [9, 10]])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_signals_keep_the_order_in_which_they_appear(suffix: str, tmp_path: Path) -> None:
    ids = ["s0", "s2", "s1", "s10", "s2", "s0", "7", "11", "7"]
    frame = pl.DataFrame({"id": ids, "x": [float(n) for n in range(9)], "label": [f"of {id}" for id in ids]})
    path = tmp_path / f"a.{suffix}"
    frame.write_csv(path) if suffix == "csv" else frame.write_parquet(path)
    collection = read_csv(path) if suffix == "csv" else read_parquet(path)
    assert [signal.id for signal in collection.signals] == ["s0", "s2", "s1", "s10", "7", "11"]
    assert collection.labels is not None
    assert collection.labels.tolist() == [f"of {signal.id}" for signal in collection.signals]
    assert {signal.rate_hz for signal in collection.signals} == {None}


def test_times_may_be_dates(tmp_path: Path) -> None:
    text = "id,time,x\na,2024-01-02 00:00:00,2\na,2024-01-01 00:00:00,1\n"
    assert read_csv(write(tmp_path, "a.csv", text)).signals[0].values[:, 0].tolist() == [1, 2]


def test_wide_csv(tmp_path: Path) -> None:
    collection = read_csv(write(tmp_path, "wide.csv", "0, 1, 2, label\n1, 2, 3,a\n4,nan,6,b\n\n\n"))
    assert [signal.id for signal in collection.signals] == ["0", "1"]
    np.testing.assert_array_equal(collection.signals[1].values[:, 0], [4, np.nan, 6])
    assert collection.labels is not None
    assert collection.labels.tolist() == ["a", "b"]


def test_csv_without_labels_and_with_byte_order_mark(tmp_path: Path) -> None:
    collection = read_csv(write(tmp_path, "a.csv", b"\xef\xbb\xbfid,x\r\na,1\r\na,2\r\n"))
    assert collection.labels is None
    assert collection.signals[0].values[:, 0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LONG.replace("5,?", "five,?"), "a.csv line 4: expected a number in column 'x', got 'five'; leave the field"),
        (
            LONG.replace("007,0", "007,soon"),
            "a.csv line 3: expected a number or an ISO date in column 'time', got 'soon'",
        ),
        ("time,x\n0,1\n1,2\n", "a.csv has a column 'time' but no 'id'; add an id, the same in all rows of one signal"),
        ('id,x,label\na,1,"two\nlines"\n\nb,one,c\n', "a.csv line 4: column 'id' is empty; give every row its id"),
        ('id,x,label\na,1,"two\nlines"\nb,one,c\n', "a.csv line 4: expected a number in column 'x', got 'one'"),
        (LONG.replace("9,10,run", "9,10,"), "a.csv line 6: column 'label' is empty; give every row its label"),
        (LONG.replace("9,10,run", "9,10,walk"), "a.csv: signal 'b' has two labels, 'run' and 'walk'"),
        (LONG.replace("9,10,run", "9,10,11,run"), "a.csv line 6: expected 5 fields, as in the header, got 6"),
        (LONG.replace("9,10,run", "9,inf,run"), "a.csv: signal 'b' contains inf at sample 2"),
        ("t0,t1\n?,\n1,2\n", "a.csv: signal '0' is all NaN"),
        ("t0,t1\n", "a.csv has column names but no rows"),
        ("0.5,0.25\n1,2\n", "a.csv line 1: expected a header with different column names, got numbers; add a header"),
        ("x,x\n1,2\n", "a.csv line 1: expected a header with different column names, got 'x' twice"),
        (",x\n0,2\n", "a.csv line 1: column 1 of the header has no name; name it or write without an index"),
        ("\n\n", "a.csv cannot be read as CSV: empty CSV; write it again"),
        ("id\rx\n1,2\n", "a.csv line 1: new-line character seen in unquoted field .*; write the file again"),
        (b"id,x\na,1\nb,\xe9\n", "a.csv line 3: expected UTF-8 text, got byte 0xe9 at column 3"),
        ('id,x\na,"1\n', "a.csv cannot be read as CSV|a.csv line 2: expected a number"),
    ],
)
def test_csv_says_what_is_wrong_and_where(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_csv(write(tmp_path, "a.csv", text))


def test_parquet_is_read_as_the_csv_is(tmp_path: Path) -> None:
    source = write(tmp_path, "long.csv", LONG)
    frame = pl.read_csv(source, null_values=["?", "NA"], schema_overrides={"id": pl.String})
    frame.write_parquet(tmp_path / "long.parquet")
    assert read_parquet(tmp_path / "long.parquet").digest() == read_csv(source).digest()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": ["a", "a"], "x": ["1", "one"]}, "a.parquet row 2: expected a number in column 'x', got 'one'"),
        ({"id": ["a", None], "x": [1.0, 2.0]}, "a.parquet row 2: column 'id' is empty"),
        ({"id": ["a"], "x": [date(2024, 1, 1)]}, "a.parquet: expected numbers in column 'x', got Date; leave it out"),
        ({"id": [], "x": []}, "a.parquet has column names but no rows"),
    ],
)
def test_parquet_says_what_is_wrong_and_where(tmp_path: Path, columns: dict[str, list[Any]], message: str) -> None:
    pl.DataFrame(columns).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=message):
        read_parquet(tmp_path / "a.parquet")


def test_text_is_no_parquet(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a.parquet cannot be read as Parquet: .*; write it again"):
        read_parquet(write(tmp_path, "a.parquet", "id,x\na,1\n"))


@pytest.mark.parametrize("reader", [read_csv, read_parquet])
def test_without_polars(reader: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtraError, match=r"needs polars, which is not installed; pip install '.*\[frames\]'"):
        reader(write(tmp_path, "a.csv", LONG))


def test_npz_with_everything(tmp_path: Path) -> None:
    X = np.asarray([[[1, 2], [3, np.nan]], [[5, 6], [np.nan, np.nan]]])
    np.savez(tmp_path / "a.npz", X=X, y=np.asarray([1, 2]), ids=np.asarray(["p", "q"]), rate_hz=360)
    collection = read_npz(tmp_path / "a.npz")
    assert [(signal.id, signal.length, signal.rate_hz) for signal in collection.signals] == [
        ("p", 2, 360),
        ("q", 1, 360),
    ]
    assert collection.labels is not None
    assert collection.labels.tolist() == ["1", "2"]


def test_npz_with_values_alone(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.arange(6, dtype=np.int16).reshape(2, 3))
    collection = read_npz(tmp_path / "a.npz")
    assert collection.labels is None
    assert [signal.id for signal in collection.signals] == ["0", "1"]
    assert collection.signals[1].values[:, 0].tolist() == [3, 4, 5]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"data": np.ones((2, 3))}, "a.npz: expected an array X, got data"),
        ({"X_train": np.ones((2, 3))}, "a.npz: expected an array X, got X_train; this is a train/test split, use load"),
        ({"X": np.ones(3)}, r"a.npz: expected X as numbers \(N, T\) or \(N, T, C\), got float64 of shape \(3,\)"),
        ({"X": np.asarray([["a", "b"]])}, r"a.npz: expected X as numbers .*, got <U1 of shape \(1, 2\)"),
        ({"X": np.ones((2, 0))}, "a.npz: signal '0': expected values"),
        ({"X": np.ones((0, 2))}, "a.npz: collection 'a': expected at least one signal, got none"),
        ({"X": np.ones((2, 3)), "y": np.ones(3)}, r"a.npz: collection 'a' has 2 signals but labels of shape \(3,\)"),
        ({"X": np.ones((2, 3)), "ids": np.ones(3)}, r"a.npz: expected 2 ids, one for each signal, got shape \(3,\)"),
        ({"X": np.ones((2, 3)), "ids": np.ones(2)}, "a.npz: collection 'a' has id '1.0' twice"),
        (
            {"X": np.ones((2, 3)), "rate_hz": np.ones(2)},
            r"a.npz: expected rate_hz as one number, got float64 of .*\(2,\)",
        ),
        ({"X": np.ones((2, 3)), "rate_hz": np.asarray(0)}, "a.npz: signal '0': expected rate_hz > 0, got 0"),
        ({"X": np.full((2, 3), np.nan)}, "a.npz: signal '0' is all NaN"),
        (
            {"X": np.asarray([[1], [2, 3]], dtype=object)},
            "a.npz: array 'X' holds Python objects, .* refused; save numbers",
        ),
    ],
)
def test_npz_says_what_is_wrong(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=message):
        read_npz(tmp_path / "a.npz")


def test_npz_that_is_something_else(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a.npz is no .npz archive or is cut off; write it again with numpy.savez"):
        read_npz(write(tmp_path, "a.npz", "text"))
    with (tmp_path / "b.npz").open("wb") as file:
        np.save(file, np.ones((2, 3)))
    with pytest.raises(DataError, match=r"b.npz is one .npy array, expected .npz; save it with numpy.savez"):
        read_npz(tmp_path / "b.npz")


def test_npz_that_is_damaged(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.ones((20, 30)))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[1000:1010] = b"0123456789"
    with pytest.raises(DataError, match=r"a.npz: array 'X' is damaged \(.*\); write the file again"):
        read_npz(write(tmp_path, "a.npz", bytes(data)))
    with pytest.raises(DataError, match=r"b.npz is no .npz archive or is cut off"):
        read_npz(write(tmp_path, "b.npz", bytes(data[:1000])))
