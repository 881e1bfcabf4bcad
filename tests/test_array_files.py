"""Arrays of NumPy: what numpy writes is what is read; what claims more than it holds, or runs code, is refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geopatch.data import read
from geopatch.data.array_files import read_npz
from geopatch.errors import DataError


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


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
        ({}, "a.npz: expected an array X, got none"),
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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.integers(1, 40), st.integers(1, 3), st.sampled_from(["f2", "f4", "f8", "i2", "u1", ">f4"]), st.booleans())
def test_npy_is_what_numpy_reads(tmp_path: Path, length: int, width: int, kind: str, fortran: bool) -> None:
    array = np.random.default_rng(length).normal(size=(length, width), scale=20).astype(kind)
    np.save(tmp_path / "a.npy", np.asfortranarray(array) if fortran else array)
    (signal,) = read(tmp_path / "a.npy", rate_hz=50.0).signals
    np.testing.assert_array_equal(signal.values, array.astype(np.float32))
    assert (signal.id, signal.rate_hz) == ("a", 50.0)


def test_an_array_of_three_dimensions_holds_signals(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(24.0).reshape(2, 6, 2))
    assert [signal.values.shape for signal in read(tmp_path / "a.npy").signals] == [(6, 2), (6, 2)]


def test_columns_of_an_npz_file_are_a_table(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", time=np.arange(50) / 25, x=np.arange(50.0), y=-np.arange(50.0))
    (signal,) = read(tmp_path / "a.npz").signals
    assert (signal.id, signal.rate_hz, signal.channels) == ("a", 25.0, ("x", "y"))
    np.savez(tmp_path / "b.npz", ecg=np.ones((100, 2)), fs=360)
    assert repr(read(tmp_path / "b.npz").signals[0]) == "Signal('b', 100 samples at 360 Hz, 2 channels)"
    np.savez(tmp_path / "c.npz", x=np.ones(3), y=np.ones(4))
    with pytest.raises(DataError, match=r"c.npz: expected X, one array, or columns of equal length, got x, y"):
        read(tmp_path / "c.npz")


def with_header(shape: str, kind: str = "<f4", data: bytes = b"") -> bytes:
    header = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"no array", "is no .npy array"),
        (with_header("(268435456,)"), "promises 1073741824 bytes, 0 came"),
        (with_header("(99999999999999, 99999999)"), "promises"),
        (with_header("(-1,)"), "promises"),
        (with_header("(2,)", "<c8", b"\0" * 16), "array of numbers"),
        (with_header("(2,)", "|O", b"\0" * 16), "objects are never loaded"),
        (with_header("(2,)" + "(" * 5000), "no .npy array"),
        (with_header("(1, 1, 1, 2)", data=b"\0" * 8), "got 4 dimensions"),
    ],
)
def test_an_array_that_is_wrong_is_one_line(tmp_path: Path, data: bytes, line: str) -> None:
    with pytest.raises(DataError, match=line):
        read(write(tmp_path, "a.npy", data))


def test_an_archive_that_would_unpack_to_gigabytes_is_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((300, 300_000), dtype=np.float32))
    with pytest.raises(DataError, match=r"a.npz claims 36\d* bytes of values in \d+; it is damaged"):
        read_npz(tmp_path / "a.npz")
