"""Uploads: one signal from the bytes of a file. Nothing is unpickled, and no name that a client sends is opened."""

from __future__ import annotations

import ast
import io
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.errors import DataError, MissingExtraError, SignalError
from geopatch.server.readers import read_csv_bytes, read_wfdb_bytes
from geopatch.server.refusal import RefusedError
from geopatch.server.settings import Limits
from geopatch.signal import Signal

Files = Mapping[str, bytes]  # by their names, of which only the ending counts
ENDINGS = ".csv .tsv .txt .json .npy .wav .flac .zip, or .hea with its .dat"
MAX_ID = 200
NPY, MAX_HEADER = b"\x93NUMPY", 10_000
MIN_HZ, MAX_HZ = 0.001, 1e7


def read_upload(files: Files, limits: Limits, rate_hz: float | None = None) -> Signal:
    """The signal of one file, or of a WFDB header with its data; `rate_hz` says what a file itself does not."""
    if not files or not all(files.values()):
        raise DataError("expected a file with something in it, got none or an empty one; send it as the part `file`")
    name, ending = _kind(files)
    try:
        signal = _read(name, ending, files, limits)
    except SignalError as error:
        raise DataError(f"{name}: {error}") from error
    return checked(signal, limits, rate_hz)


def checked(signal: Signal, limits: Limits, rate_hz: float | None = None) -> Signal:
    """The signal, if it is not too large and its rate makes sense."""
    if signal.values.size > limits.values or signal.values.shape[1] > limits.channels:
        raise DataError(
            f"a signal may have {limits.values} values in {limits.channels} channels, "
            f"got {signal.length} samples of {signal.values.shape[1]}; send a part of it"
        )
    rate = rate_hz if signal.rate_hz is None else signal.rate_hz
    if rate is not None and not MIN_HZ <= rate <= MAX_HZ:
        raise DataError(f"expected a rate of {MIN_HZ:g} to {MAX_HZ:g} Hz, got {rate:g}")
    if rate == signal.rate_hz and max(len(signal.id), len(signal.record)) <= MAX_ID:
        return signal
    return replace(signal, id=signal.id[:MAX_ID], rate_hz=rate, record=signal.record[:MAX_ID])


def _kind(files: Files) -> tuple[str, str]:
    """The file whose ending names the format, and that ending."""
    names = sorted(files, key=lambda name: not name.lower().endswith(".hea"))
    return names[0], PurePosixPath(names[0]).suffix.lower()


def _read(name: str, ending: str, files: Files, limits: Limits) -> Signal:
    stem = PurePosixPath(name).stem[:MAX_ID] or "upload"
    if ending == ".hea":
        return read_wfdb_bytes(files, limits.values)
    if ending == ".zip":
        return read_wfdb_bytes(_unzipped(files[name], limits.upload_bytes), limits.values)
    reader = READERS.get(ending)
    if reader is None:
        raise RefusedError(415, f"cannot read {ending or 'a file without an ending'!r}; send one of {ENDINGS}")
    return reader(files[name], stem, limits.values)


def _read_json(data: bytes, stem: str, most: int) -> Signal:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataError("the file is no JSON, or nested too deeply; write it again") from error
    fields = content if isinstance(content, dict) else {"values": content}
    rate_hz, channels, anchors = fields.get("rate_hz"), fields.get("channels") or [], fields.get("anchors")
    plain = isinstance(rate_hz, (int, float)) and not isinstance(rate_hz, bool)
    if rate_hz is not None and not (plain and math.isfinite(rate_hz)):
        raise DataError("expected rate_hz as one number")
    if not isinstance(channels, list) or not all(isinstance(channel, str) for channel in channels):
        raise DataError("expected channels as a list of names")
    id, marks = str(fields.get("id") or stem), None if anchors is None else json_numbers(anchors, "anchors")
    return Signal.from_array(json_values(fields.get("values")), id, rate_hz, channels, marks)


def json_values(values: Any) -> npt.NDArray[np.float32]:
    """Numbers (T,) or (T, C) from lists, null where nothing was measured."""
    numbers = json_numbers(values, "values")
    if numbers.ndim not in (1, 2):
        raise DataError(f"expected `values` as (T,) or (T, C) numbers, got {numbers.ndim} dimensions")
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)


def json_numbers(values: Any, name: str) -> npt.NDArray[np.float64]:
    if not isinstance(values, list):
        raise DataError(f"expected `{name}` as a list of numbers or of rows of numbers, got {type(values).__name__}")
    try:
        return np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(f"expected `{name}` as numbers or rows of as many numbers each, null for gaps") from error


def _read_npy(data: bytes, stem: str, most: int) -> Signal:
    """Header and size are checked before anything is allocated; objects, which would be unpickled, are refused."""
    try:
        shape, fortran, dtype, start = _npy_header(data)
    except (ValueError, KeyError, TypeError, SyntaxError, RecursionError, MemoryError, struct.error) as error:
        raise DataError("the file is no .npy array, or is cut off; write it again with numpy.save") from error
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise DataError(f"expected an array of numbers, got {str(dtype)[:40]}; Python objects are never loaded")
    if len(shape) not in (1, 2):
        raise DataError(f"expected an array (T,) or (T, C), got {len(shape)} dimensions")
    size, available = math.prod(shape) * dtype.itemsize, len(data) - start
    if size != available or size > most * dtype.itemsize or min(shape) < 0:
        raise DataError(f"the header of the .npy file promises {size} bytes, {available} came; write it again")
    values = np.frombuffer(data, dtype=dtype, offset=start).reshape(shape, order="F" if fortran else "C")
    return Signal.from_array(values, id=stem)


def _npy_header(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order, type and where the values start. numpy's own reader also runs text through Python's tokenizer."""
    start, form = {b"\1": (10, "<H"), b"\2": (12, "<I")}[data[6:7]]
    (size,) = struct.unpack(form, data[8:start])
    if not data.startswith(NPY) or size > MAX_HEADER:
        raise ValueError("no such header")
    header = ast.literal_eval(data[start : start + size].decode("latin-1").strip())
    shape, kind = header["shape"], header["descr"]
    if not isinstance(kind, str) or not isinstance(shape, tuple) or not all(type(n) is int for n in shape):
        raise ValueError("no plain array")
    return shape, bool(header["fortran_order"]), np.dtype(kind), start + size


def _read_audio(data: bytes, stem: str, most: int) -> Signal:
    soundfile = _soundfile()
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as sound:
            frames = most // max(sound.channels, 1)
            if sound.frames > frames:
                raise DataError(f"the sound has {sound.frames} samples of {sound.channels} channels, too many; cut it")
            values, rate_hz = sound.read(frames, dtype="float32", always_2d=True), float(sound.samplerate)
    except (soundfile.SoundFileError, OSError, ValueError, TypeError, MemoryError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError("the file cannot be read as wav or flac; write it again") from error
    return Signal.from_array(values, id=stem, rate_hz=rate_hz)


def _unzipped(data: bytes, most: int) -> dict[str, bytes]:
    """Header and data of a WFDB record in a zip. Sizes are counted while reading; those in the archive may be wrong."""
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()][:1000]
            for info in (one for one in members if one.filename.lower().endswith((".hea", ".dat"))):
                with archive.open(info) as member:
                    part = member.read(most + 1)
                most -= len(part)
                if most < 0:
                    raise DataError("the zip holds more than an upload may; send one record")
                files[PurePosixPath(info.filename).name] = part
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, RuntimeError, NotImplementedError, EOFError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError("the file is no zip, or is damaged; write it again") from error
    return files


def _soundfile() -> Any:
    try:
        import soundfile
    except ImportError as error:
        raise MissingExtraError("soundfile", "serve", "reading sound") from error
    return soundfile


READERS: dict[str, Callable[[bytes, str, int], Signal]] = {
    ".csv": read_csv_bytes,
    ".tsv": read_csv_bytes,
    ".txt": read_csv_bytes,
    ".json": _read_json,
    ".npy": _read_npy,
    ".wav": _read_audio,
    ".flac": _read_audio,
}
