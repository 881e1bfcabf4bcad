"""Files of NumPy: one array (`.npy`), or several with labels, ids and a rate (`.npz`). Nothing in them is executed."""

from __future__ import annotations

import ast
import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.data.collection import Collection
from geopatch.data.source import check_claim, check_file, cut_padding
from geopatch.errors import DataError, SignalError
from geopatch.signal import Signal

Arrays = dict[str, npt.NDArray[Any]]

SPLIT = ("X_train", "y_train", "X_test", "y_test")
NPY, MAX_HEADER = b"\x93NUMPY", 10_000
DAMAGED = (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error, struct.error)


def read_npy(path: str | Path) -> npt.NDArray[Any]:
    """The array of an `.npy` file, mapped into memory: header and size are checked before anything is allocated.

    Objects, which would be unpickled, are refused.
    """
    path = check_file(path)
    with path.open("rb") as file:
        head = file.read(MAX_HEADER + 16)
    try:
        shape, fortran, dtype, start = _npy_header(head)
    except (ValueError, KeyError, TypeError, SyntaxError, RecursionError, MemoryError, struct.error) as error:
        raise DataError(f"{path.name} is no .npy array, or is cut off; write it again with numpy.save") from error
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise DataError(f"{path.name}: expected an array of numbers, got {str(dtype)[:40]}; objects are never loaded")
    size, available = math.prod(shape) * dtype.itemsize, path.stat().st_size - start
    if size != available or not size or min(shape) < 0:
        raise DataError(f"{path.name}: its header promises {size} bytes, {available} came; write it again")
    return np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")


def _npy_header(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order, type and where the values start. numpy's own reader also runs text through Python's tokenizer."""
    start, form = {b"\1": (10, "<H"), b"\2": (12, "<I"), b"\3": (12, "<I")}[data[6:7]]
    (size,) = struct.unpack(form, data[8:start])
    if not data.startswith(NPY) or size > MAX_HEADER:
        raise ValueError("no such header")
    header = ast.literal_eval(data[start : start + size].decode("latin-1").strip())
    shape, kind = header["shape"], header["descr"]
    if not isinstance(kind, str) or not isinstance(shape, tuple) or not all(type(n) is int for n in shape):
        raise ValueError("no plain array")
    return shape, bool(header["fortran_order"]), np.dtype(kind), start + size


def read_npz(path: str | Path) -> Collection:
    """Signals of array `X`, with the arrays `y` (labels), `ids` and `rate_hz` if the file has them."""
    path = check_file(path)
    arrays = read_arrays(path)
    if "X" not in arrays:
        hint = "; this is a train/test split, use load_split" if "X_train" in arrays else ""
        raise DataError(f"{path.name}: expected an array X, got {', '.join(arrays) or 'none'}{hint}")
    return _npz_collection(path, path.stem, arrays)


def holds_split(path: Path) -> bool:
    """Whether a file has the arrays of a train/test split; its values are not read."""
    try:
        with zipfile.ZipFile(path) as file:
            return {f"{name}.npy" for name in SPLIT} <= set(file.namelist())
    except DAMAGED:
        return False


def read_npz_split(path: str | Path) -> tuple[Collection, Collection]:
    """Train and test of a file with `X_train`, `y_train`, `X_test` and `y_test`."""
    path = check_file(path)
    arrays = read_arrays(path)
    missing = [name for name in SPLIT if name not in arrays]
    if missing:
        raise DataError(f"{path.name}: expected arrays X_train, y_train, X_test, y_test, got no {', '.join(missing)}")
    train, test = ({"X": arrays[f"X_{part}"], "y": arrays[f"y_{part}"]} for part in ("train", "test"))
    return _npz_collection(path, f"{path.stem}_TRAIN", train), _npz_collection(path, f"{path.stem}_TEST", test)


def read_arrays(path: Path) -> Arrays:
    """All arrays of the file, without pickle: an object array could run code when it is read."""
    _check_claims(path)
    with path.open("rb") as file:  # given a path, np.load leaves broken files open
        try:
            loaded = np.load(file, allow_pickle=False)
        except DAMAGED as error:
            raise DataError(f"{path.name} is no .npz archive or is cut off; write it again with numpy.savez") from error
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise DataError(f"{path.name} is one .npy array, expected .npz; save it with numpy.savez(path, X=...)")
        return {name: _npz_array(path, loaded, name) for name in loaded.files}


def _check_claims(path: Path) -> None:
    """Refuse an archive whose arrays would unpack to far more than its size."""
    try:
        with zipfile.ZipFile(path) as file:
            claimed = sum(info.file_size for info in file.infolist())
    except DAMAGED:
        return  # said below, in better words
    check_claim(path, claimed)


def _npz_array(path: Path, loaded: np.lib.npyio.NpzFile, name: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(loaded[name])
    except DAMAGED as error:
        if "allow_pickle" in str(error):
            raise DataError(
                f"{path.name}: array {name!r} holds Python objects, which could run code and are refused; "
                "save numbers, and pad signals of unequal lengths with NaN"
            ) from error
        raise DataError(f"{path.name}: array {name!r} is damaged ({error}); write the file again") from error


def _npz_collection(path: Path, name: str, arrays: Arrays) -> Collection:
    """The signals of `X` with what `y`, `ids` and `rate_hz` say of them."""
    stack = _npz_stack(path, arrays["X"])
    ids = arrays.get("ids", np.arange(len(stack))).astype(str)
    if ids.shape != (len(stack),):
        raise DataError(f"{path.name}: expected {len(stack)} ids, one for each signal, got shape {ids.shape}")
    rate_hz = _npz_rate_hz(path, arrays["rate_hz"]) if "rate_hz" in arrays else None
    try:
        signals = [
            Signal.from_array(cut_padding(values.T).T, id=str(id), rate_hz=rate_hz)
            for id, values in zip(ids, stack, strict=True)
        ]
        return Collection(name, tuple(signals), arrays.get("y"))
    except SignalError as error:
        raise DataError(f"{path.name}: {error}") from error


def _npz_stack(path: Path, stack: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if stack.ndim not in (2, 3) or stack.dtype.kind not in "fiub":
        raise DataError(
            f"{path.name}: expected X as numbers (N, T) or (N, T, C), got {stack.dtype} of shape {stack.shape}"
        )
    stack = stack if stack.ndim == 3 else stack[:, :, None]
    return stack if stack.dtype.kind == "f" else stack.astype(np.float64)


def _npz_rate_hz(path: Path, rate_hz: npt.NDArray[Any]) -> float:
    if rate_hz.size != 1 or rate_hz.dtype.kind not in "fiu":
        raise DataError(f"{path.name}: expected rate_hz as one number, got {rate_hz.dtype} of shape {rate_hz.shape}")
    return float(rate_hz.reshape(()))
