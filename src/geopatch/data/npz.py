"""NumPy's `.npz`: arrays (N, T) or (N, T, C) of signals, padded with NaN to one length. Nothing in it is executed."""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.data.collection import Collection
from geopatch.data.source import check_file, cut_padding
from geopatch.errors import DataError, SignalError
from geopatch.signal import Signal

Arrays = dict[str, npt.NDArray[Any]]

SPLIT = ("X_train", "y_train", "X_test", "y_test")
DAMAGED = (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error, struct.error)


def read_npz(path: str | Path) -> Collection:
    """Signals of array `X`, with the arrays `y` (labels), `ids` and `rate_hz` if the file has them."""
    path = check_file(path)
    arrays = read_arrays(path)
    if "X" not in arrays:
        hint = "; this is a train/test split, use load_split" if "X_train" in arrays else ""
        raise DataError(f"{path.name}: expected an array X, got {', '.join(arrays) or 'none'}{hint}")
    return collection(path, path.stem, arrays)


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
    return collection(path, f"{path.stem}_TRAIN", train), collection(path, f"{path.stem}_TEST", test)


def read_arrays(path: Path) -> Arrays:
    """All arrays of the file, without pickle: an object array could run code when it is read."""
    with path.open("rb") as file:  # given a path, np.load leaves broken files open
        try:
            loaded = np.load(file, allow_pickle=False)
        except DAMAGED as error:
            raise DataError(f"{path.name} is no .npz archive or is cut off; write it again with numpy.savez") from error
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise DataError(f"{path.name} is one .npy array, expected .npz; save it with numpy.savez(path, X=...)")
        return {name: _array(path, loaded, name) for name in loaded.files}


def _array(path: Path, loaded: np.lib.npyio.NpzFile, name: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(loaded[name])
    except DAMAGED as error:
        if "allow_pickle" in str(error):
            raise DataError(
                f"{path.name}: array {name!r} holds Python objects, which could run code and are refused; "
                "save numbers, and pad signals of unequal lengths with NaN"
            ) from error
        raise DataError(f"{path.name}: array {name!r} is damaged ({error}); write the file again") from error


def collection(path: Path, name: str, arrays: Arrays) -> Collection:
    """The signals of `X` with what `y`, `ids` and `rate_hz` say of them."""
    stack = _stack(path, arrays["X"])
    ids = arrays.get("ids", np.arange(len(stack))).astype(str)
    if ids.shape != (len(stack),):
        raise DataError(f"{path.name}: expected {len(stack)} ids, one for each signal, got shape {ids.shape}")
    rate_hz = _rate_hz(path, arrays["rate_hz"]) if "rate_hz" in arrays else None
    try:
        signals = [
            Signal.from_array(cut_padding(values.T).T, id=str(id), rate_hz=rate_hz)
            for id, values in zip(ids, stack, strict=True)
        ]
        return Collection(name, tuple(signals), arrays.get("y"))
    except SignalError as error:
        raise DataError(f"{path.name}: {error}") from error


def _stack(path: Path, stack: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if stack.ndim not in (2, 3) or stack.dtype.kind not in "fiub":
        raise DataError(
            f"{path.name}: expected X as numbers (N, T) or (N, T, C), got {stack.dtype} of shape {stack.shape}"
        )
    stack = stack if stack.ndim == 3 else stack[:, :, None]
    return stack if stack.dtype.kind == "f" else stack.astype(np.float64)


def _rate_hz(path: Path, rate_hz: npt.NDArray[Any]) -> float:
    if rate_hz.size != 1 or rate_hz.dtype.kind not in "fiu":
        raise DataError(f"{path.name}: expected rate_hz as one number, got {rate_hz.dtype} of shape {rate_hz.shape}")
    return float(rate_hz.reshape(()))
