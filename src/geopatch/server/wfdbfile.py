"""A WFDB record from memory: header and data as bytes, so that the names in a header never become paths.

The wfdb library, which reads WFDB everywhere else here, opens the files that a header names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt

from geopatch.errors import DataError
from geopatch.signal import Signal

Samples = npt.NDArray[np.int64]
# Bytes of one sample, and what marks one that was not measured.
FORMATS = {"16": (2.0, -(2**15)), "61": (2.0, -(2**15)), "80": (1.0, -128), "212": (1.5, -2048), "24": (3.0, -(2**23))}
FORMATS |= {"32": (4.0, -(2**31))}
GAIN = re.compile(r"(?P<gain>[-+.\deE]+)(\((?P<baseline>-?\d+)\))?(/(?P<units>\S+))?")
DEFAULT_GAIN, DEFAULT_HZ = 200.0, 250.0
MOST_CHANNELS = 512


@dataclass(frozen=True)
class Channel:
    """One line of a header."""

    file: str
    format: str
    gain: float
    baseline: int
    name: str


def read_wfdb_bytes(files: Mapping[str, bytes], most: int) -> Signal:
    """The signal of a header and the data files that it names, in physical units."""
    name = next((name for name in files if name.lower().endswith(".hea")), None)
    if name is None:
        raise DataError("expected a WFDB header, a file that ends in .hea, with its .dat beside it")
    record, rate_hz, length, channels = _header(files[name])
    data = {PurePosixPath(other).name: content for other, content in files.items()}
    columns: dict[int, npt.NDArray[np.float32]] = {}
    for file in dict.fromkeys(channel.file for channel in channels):
        places = [n for n, channel in enumerate(channels) if channel.file == file]
        content = data.get(PurePosixPath(file).name)
        if content is None:
            raise DataError(f"the header names {file[:60]!r}, which did not come with it; send both")
        columns |= zip(places, _columns(content, [channels[n] for n in places], length, most), strict=True)
    if len({len(column) for column in columns.values()}) != 1:
        raise DataError("the data files of the record have unequal lengths; send them again")
    values = np.stack([columns[n] for n in range(len(channels))], axis=1)
    return Signal.from_array(values, record, rate_hz, [channel.name for channel in channels])


def _columns(content: bytes, channels: Sequence[Channel], length: int, most: int) -> list[npt.NDArray[np.float32]]:
    """The channels that stand in one file, a sample of each in turn."""
    kinds = {channel.format for channel in channels}
    if len(kinds) != 1 or not kinds <= set(FORMATS):
        raise DataError(f"expected one WFDB format of {', '.join(FORMATS)}, got {', '.join(sorted(kinds))[:60]}")
    size, gap = FORMATS[kinds.copy().pop()]
    length = length or int(len(content) / size / len(channels))
    count = length * len(channels)
    if count > most or math.ceil(count * size) > len(content):
        raise DataError(f"the header promises {length} samples of {len(channels)} channels, the data holds fewer")
    raw = _samples(content, kinds.pop(), count).reshape(length, len(channels))
    return [
        np.where(raw[:, n] == gap, np.nan, (raw[:, n] - channel.baseline) / channel.gain).astype(np.float32)
        for n, channel in enumerate(channels)
    ]


def _samples(content: bytes, format: str, count: int) -> Samples:
    if format in ("16", "61", "32"):
        kind = {"16": "<i2", "61": ">i2", "32": "<i4"}[format]
        return np.frombuffer(content, dtype=kind, count=count).astype(np.int64)
    if format == "80":
        return np.frombuffer(content, dtype=np.uint8, count=count).astype(np.int64) - 128
    if format == "24":
        parts = np.frombuffer(content, dtype=np.uint8, count=3 * count).reshape(-1, 3).astype(np.int64)
        return _signed(parts[:, 0] | parts[:, 1] << 8 | parts[:, 2] << 16, 24)
    pairs = math.ceil(count / 2)
    padded = content[: 3 * pairs].ljust(3 * pairs, b"\0")
    low, middle, high = np.frombuffer(padded, dtype=np.uint8).reshape(-1, 3).astype(np.int64).T
    both = np.stack([low | (middle & 0x0F) << 8, high | (middle & 0xF0) << 4], axis=1)
    return _signed(both.ravel()[:count], 12)


def _signed(values: Samples, bits: int) -> Samples:
    return np.where(values >= 1 << (bits - 1), values - (1 << bits), values)


def _header(content: bytes) -> tuple[str, float, int, list[Channel]]:
    """Record, rate, length (0: not told) and channels."""
    lines = [line.strip() for line in content[:1_000_000].decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    try:
        record, count, *rest = lines[0].split()
        rate_hz = float(re.split(r"[/(]", rest[0])[0]) if rest else DEFAULT_HZ
        length = int(rest[1]) if len(rest) > 1 else 0
        if "/" in record:
            raise DataError("the record has several segments; send one of them")
        if not 1 <= int(count) <= MOST_CHANNELS or len(lines) <= int(count) or length < 0 or not rate_hz > 0:
            raise ValueError("no such count, length or rate")
        return record, rate_hz, length, [_channel(line, n) for n, line in enumerate(lines[1 : int(count) + 1])]
    except (ValueError, IndexError, OverflowError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError("the .hea file is no WFDB header of one record; send it again") from error


def _channel(line: str, n: int) -> Channel:
    file, format, *rest = line.split(maxsplit=8)
    found = GAIN.fullmatch(rest[0]) if rest else None
    gain = float(found["gain"]) if found else 0.0
    zero = int(rest[2]) if len(rest) > 2 else 0
    baseline = int(found["baseline"]) if found and found["baseline"] else zero
    if not math.isfinite(gain) or abs(baseline) > 2**32:
        raise ValueError("no such gain or baseline")
    name = rest[6].strip() if len(rest) > 6 else f"channel {n}"
    return Channel(file, format, gain or DEFAULT_GAIN, baseline, name[:100])
