"""Tables as text: every way to write the same numbers gives the same recording; errors name the line."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geopatch.data import read
from geopatch.data.collection import Collection
from geopatch.errors import DataError, MissingExtraError

LONG = """id,time,x,y,label
007,1,3,4,walk
007,0,1,2,walk
b,0,5,?,run
b,1,,NA,run
b,2,9,10,run
"""


def text(folder: Path, content: str | bytes, name: str = "a.csv", **options: object) -> Collection:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read(path, **options)  # type: ignore[arg-type]


def test_long_table(tmp_path: Path) -> None:
    collection = text(tmp_path, LONG, rate_hz=50.0)
    assert [signal.id for signal in collection.signals] == ["007", "b"]
    assert collection.labels is not None
    assert collection.labels.tolist() == ["walk", "run"]
    first, second = collection.signals
    assert (first.channels, first.rate_hz) == (("x", "y"), 50.0)
    np.testing.assert_array_equal(first.values, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(second.values, [[5, np.nan], [np.nan, np.nan], [9, 10]])
    assert "times in 'time' count samples; 50 Hz from the rate given" in collection.notes


WRITTEN = {
    "commas": ("time,x [g],y [g]", ",", ".", "\n", "utf-8"),
    "windows": ("time,x [g],y [g]", ",", ".", "\r\n", "utf-8-sig"),
    "semicolons": ("time;x [g];y [g]", ";", ",", "\n", "utf-8"),
    "tabs": ("time\tx [g]\ty [g]", "\t", ".", "\r\n", "utf-8"),
    "latin-1": ("time;x [g];y [g]", ";", ",", "\r\n", "latin-1"),
    "utf-16": ("time;x [g];y [g]", ";", ",", "\r\n", "utf-16"),
    "old Macintosh": ("time,x [g],y [g]", ",", ".", "\r", "utf-8"),
    "bars": ("time|x [g]|y [g]", "|", ".", "\n", "utf-8"),
    "units below": ("time,x,y\ns,g,g", ",", ".", "\n", "utf-8"),
    "quoted": ('"time","x [g]","y [g]"', ",", ".", "\n", "utf-8"),
    "preamble": ("Logger AX3\nSerial: 17\n\ntime,x [g],y [g]", ",", ".", "\n", "utf-8"),
    "comments": ("# of a logger\ntime,x [g],y [g]", ",", ".", "\n", "utf-8"),
    "R": ("time x y\n", " ", ".", "\n", "utf-8"),
}


@pytest.mark.parametrize("way", WRITTEN)
def test_the_same_table_in_every_writing(tmp_path: Path, way: str) -> None:
    header, mark, decimal, end, encoding = WRITTEN[way]
    values = np.random.default_rng(0).normal(size=(200, 2)).round(3)
    rows = [mark.join(f"{v:.3f}".replace(".", decimal) for v in (n / 50, *row)) for n, row in enumerate(values)]
    content = end.join([*header.split("\n"), *rows, ""])
    collection = text(tmp_path, content.encode(encoding))
    (signal,) = collection.signals
    np.testing.assert_array_equal(signal.values, values.astype(np.float32))
    assert (signal.id, signal.rate_hz, signal.channels) == ("a", 50.0, ("x", "y"))
    assert signal.units == (None if way == "R" else ("g", "g"))


def test_letters_beyond_ascii(tmp_path: Path) -> None:
    for encoding in ("utf-8", "latin-1", "utf-16"):
        collection = text(tmp_path, "time;Höhe [°C]\n0,0;1,5\n0,5;2,5\n".encode(encoding))
        assert (collection.signals[0].channels, collection.signals[0].units) == (("Höhe",), ("°C",))


@pytest.mark.parametrize(
    ("content", "shape", "note"),
    [
        ("\n".join(f"{n},{n + 1},{n + 2}" for n in range(7, 3007)), (3000, 3), "one recording of 3 channels"),
        ("x,y,z\n" + "\n".join("1,2,3" for _ in range(3000)), (3000, 3), "one recording of 3 channels"),
        ("0,1,2\n" + "\n".join("1,2,3" for _ in range(3000)), (3000, 3), "one recording of 3 channels"),
        ("V1,V2,V3\n" + "\n".join("1,2,3" for _ in range(3000)), (3000, 3), "one recording of 3 channels"),
        (",x\n" + "\n".join(f"{n},5" for n in range(9)), (9, 1), "column '' is left out: it counts the rows"),
        ("id,x\n" + "\n".join(f"{n},5" for n in range(9)), (9, 1), "column 'id' is left out: it counts the rows"),
    ],
)
def test_rows_are_samples_of_one_recording(tmp_path: Path, content: str, shape: tuple[int, int], note: str) -> None:
    collection = text(tmp_path, content)
    assert [signal.values.shape for signal in collection.signals] == [shape]
    assert any(note in line for line in collection.notes), collection.notes


@pytest.mark.parametrize(
    ("content", "name", "labels"),
    [
        ("t0,t1,label\n1,2,a\n3,4,b\n", "a.csv", ["a", "b"]),
        ("0,1,label\n1,2,a\n3,4,b\n", "a.csv", ["a", "b"]),
        ("a\t1\t2\nb\t3\t4\n", "a.tsv", ["a", "b"]),
        ("a,1,2\nb,3,4\n", "a.csv", ["a", "b"]),
        ("1,1,2\n2,3,4\n", "a_TRAIN.csv", ["1", "2"]),
        ("1  1.0  2.0\n2  3.0  4.0\n", "a_TEST.txt", ["1", "2"]),
        ("id,0,1\nfirst,1,2\nsecond,3,4\n", "a.csv", None),
        ("0.0,0.5\n1,2\n3,4\n", "a.csv", None),
    ],
)
def test_rows_are_signals(tmp_path: Path, content: str, name: str, labels: list[str] | None) -> None:
    if content.startswith("0.0"):
        content = content.replace("0.0,0.5", "label,0.0,0.5").replace("\n1,", "\na,1,").replace("\n3,", "\nb,3,")
        labels = ["a", "b"]
    collection = text(tmp_path, content, name)
    assert [signal.values.ravel().tolist() for signal in collection.signals] == [[1, 2], [3, 4]]
    assert (None if collection.labels is None else collection.labels.tolist()) == labels


def test_more_than_64_columns_without_a_header_are_signals(tmp_path: Path) -> None:
    rows = "\n".join(",".join(str(n + m / 100) for m in range(80)) for n in range(5))
    assert text(tmp_path, rows).signals[0].length == 79  # the first field is the class


def test_times_in_the_names_of_columns_give_the_rate(tmp_path: Path) -> None:
    collection = text(tmp_path, "id,0.00,0.02,0.04\na,1,2,3\nb,4,5,6\n")
    assert [(signal.id, signal.rate_hz) for signal in collection.signals] == [("a", 50.0), ("b", 50.0)]


def test_what_is_said_of_columns_that_are_left_out(tmp_path: Path) -> None:
    content = "time,x,note,subject,empty,label\n0,1,calm,s1,,a\n0.5,2,loud,s1,,a\n1.0,3,calm,s1,,b\n"
    collection = text(tmp_path, content)
    assert collection.signals[0].channels == ("x",)
    assert collection.metadata == ({"subject": "s1"},)
    assert collection.labels is None
    for said in ("'note' is left out: it holds text", "'empty' is left out: it is empty", "'label' is left out"):
        assert any(said in note for note in collection.notes), (said, collection.notes)


def test_times_of_a_table_without_a_header(tmp_path: Path) -> None:
    rows = [f"2026-05-01T12:00:{n:02d}Z,{n},{-n}" for n in range(30)]
    (signal,) = text(tmp_path, "\n".join(rows)).signals
    assert signal.values.tolist() == [[n, -n] for n in range(30)]
    assert (signal.rate_hz, signal.start_time) == (1.0, datetime(2026, 5, 1, 12, tzinfo=timezone.utc))


def test_columns_by_name(tmp_path: Path) -> None:
    content = "wann,a,b,wer\n0,1,2,r1\n20,3,4,r1\n40,5,6,r1\n0,7,8,r2\n20,9,10,r2\n"
    collection = text(tmp_path, content, time="wann", id="wer", channels=["b"], units={"b": "mV", "wann": "ms"})
    assert [(s.id, s.rate_hz, s.channels, s.units) for s in collection.signals] == [
        ("r1", 50.0, ("b",), ("mV",)),
        ("r2", 50.0, ("b",), ("mV",)),
    ]
    with pytest.raises(DataError, match=r"a.csv: there is no column 'c' for the time; the table has wann, a, b, wer"):
        text(tmp_path, content, time="c")
    with pytest.raises(DataError, match=r"a.csv: there is no column of numbers 'q'; the table has wann, a, b"):
        text(tmp_path, content, channels=["q"])


def test_names_and_units_for_a_table_without_a_header(tmp_path: Path) -> None:
    (signal,) = text(tmp_path, "1,2\n3,4\n", channels=["x", "y"], units="g", rate_hz=10.0).signals
    assert (signal.channels, signal.units, signal.rate_hz) == (("x", "y"), ("g", "g"), 10.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (LONG.replace("5,?", "five,?"), "a.csv: line 4: expected a number in column 'x', got 'five'; leave the field"),
        (LONG.replace("007,0", "007,soon"), "line 3: expected a (number|time) in column 'time', got 'soon'"),
        ('id,x,label\na,1,"two\nlines"\nb,one,c\nb,2,c\n', "line 4: expected a number in column 'x', got 'one'"),
        (LONG.replace("9,10,run", "9,10,"), "a.csv: line 6: column 'label' is empty; give every row its label"),
        (LONG.replace("9,10,run", "9,10,11,run"), "a.csv line 6: expected 5 fields, as in the first line, got 6"),
        (LONG.replace("9,10,run", "9,inf,run"), "a.csv: signal 'b' contains inf at sample 2"),
        ("a,b\n1,2\n3\n4,5\n", "a.csv line 3: expected 2 fields, as in the first line, got 1"),
        ("t0,t1\n?,\n1,2\n", "a.csv: signal '0' is all NaN"),
        ("t0,t1\n", "a.csv: the table has column names but no rows"),
        ("x,x\n1,2\n", "a.csv: expected a header with different column names, got 'x' twice"),
        ("\n\n", "a.csv holds no table: it has no line of text"),
        (b"id,x\na,\0\0", "a.csv holds binary data, expected a table as text"),
        (b"\xff\xfe1\x002", "a.csv starts as UTF-16 text but is none"),
        ("time,x\n0,1\n5,2\n1,3\n9,1\n", "the times are uneven: steps of 1 to 4 s, in the median 4 s"),
        ("when,who\nnow,me\nthen,you\n", "no column of numbers is left to be a channel: the table has when, who"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        text(tmp_path, content)


def test_a_last_line_that_is_cut_off_is_left_out_and_said(tmp_path: Path) -> None:
    collection = text(tmp_path, "time,x,y\n0.0,1,2\n0.5,3,4\n1.0,5")
    assert collection.signals[0].values.tolist() == [[1, 2], [3, 4]]
    assert "the last line is cut off and left out" in collection.notes


def test_without_polars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtraError, match=r"needs polars, which is not installed; pip install '.*\[frames\]'"):
        text(tmp_path, LONG)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=2), min_size=2, max_size=40),
    st.sampled_from([";", "\t", "|", ","]),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["utf-8", "utf-8-sig", "latin-1", "utf-16"]),
)
def test_what_is_written_is_read(
    tmp_path: Path, rows: list[list[float]], mark: str, comma: bool, end: str, encoding: str
) -> None:
    decimal = "," if comma and mark != "," else "."
    lines = [mark.join(repr(value).replace(".", decimal) for value in row) for row in rows]
    collection = text(tmp_path, end.join([f"x{mark}y", *lines, ""]).encode(encoding))
    np.testing.assert_array_equal(collection.signals[0].values, np.asarray(rows, dtype=np.float32))
