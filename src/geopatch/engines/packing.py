"""Entries as rows of plain values and bytes, the form in which engines keep them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from geopatch.engines.about import About
from geopatch.engines.entry import Channels, Checked, Entries, Metadata
from geopatch.signal import Signal

Row: TypeAlias = tuple[Any, ...]


def as_entries(rows: Sequence[Row], about: About) -> Entries:
    """Rows in the order of COLUMNS as columns."""
    columns = list(zip(*rows, strict=True)) or [()] * 12
    _, ids, records, start_s, stop_s, metadata, channels, embedding, tokens, valid, patch_s, windows = columns
    count, widths = len(rows), about.widths
    return Entries(
        about.encoder,
        tuple(ids),
        _array(embedding, "<f4", (count, widths.embedding)),
        _array(tokens, "<f4", (count, widths.patches, widths.token)),
        _array(valid, "?", (count, widths.patches)),
        _array(patch_s, "<f4", (count, widths.patches, 2)),
        tuple(records),
        np.asarray(start_s, dtype=np.float64),
        np.asarray(stop_s, dtype=np.float64),
        tuple(Checked(json.loads(row)) for row in metadata),
        tuple(unpack_window(blob) for blob in windows),
        tuple(load_channels(row) for row in channels),
    )


def _array(blobs: Sequence[bytes], dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    return np.frombuffer(b"".join(blobs), dtype=dtype).reshape(shape).copy()


def entry_row(entries: Entries, n: int) -> Row:
    """Id, record, start, stop, metadata, channels and embedding of one entry."""
    place = (entries.records[n], float(entries.start_s[n]), float(entries.stop_s[n]))
    texts = dump(entries.metadata[n]), dump_channels(entries.channels[n])
    return (entries.ids[n], *place, *texts, pack_embedding(entries, n))


def pack_embedding(entries: Entries, n: int) -> bytes:
    return bytes(entries.embedding[n].astype("<f4").tobytes())


def detail_row(entries: Entries, n: int) -> Row:
    return (*token_row(entries, n), pack_window(entries.windows[n]))


def token_row(entries: Entries, n: int) -> Row:
    tokens, patch_s = (part.astype("<f4").tobytes() for part in (entries.tokens[n], entries.patch_s[n]))
    return tokens, entries.valid[n].tobytes(), patch_s


def token_arrays(
    rows: Sequence[Row], about: About
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Numbers (N,), tokens (N, K, d) and which are valid (N, K) from rows of a number and what `token_row` packs."""
    count, widths = len(rows), about.widths
    numbers = np.asarray([row[0] for row in rows], dtype=np.int64)
    tokens = _array([row[1] for row in rows], "<f4", (count, widths.patches, widths.token))
    return numbers, tokens, _array([row[2] for row in rows], "?", (count, widths.patches))


def dump(metadata: Metadata) -> str:
    return json.dumps(dict(metadata), ensure_ascii=False)


def dump_channels(channels: Channels) -> str:
    """Channel names as JSON; empty text where there are none."""
    return json.dumps(channels) if channels else ""


def load_channels(text: str) -> Channels:
    return tuple(json.loads(text)) if text else ()


def pack_window(signal: Signal | None) -> bytes | None:
    """A window as compressed bytes. Bytes of equal rank are put side by side, which zlib compresses better."""
    if signal is None:
        return None
    anchors = None if signal.anchors is None else signal.anchors.tolist()
    header = [signal.id, signal.rate_hz, signal.channels, signal.record, signal.start_s, *signal.values.shape, anchors]
    header += [signal.start_time and signal.start_time.isoformat(), signal.units]
    values = signal.values.T.astype("<f4").copy().view(np.uint8).reshape(-1, 4).T.tobytes()
    return zlib.compress(json.dumps(header).encode() + b"\n" + values, level=1)


def unpack_window(blob: bytes | None) -> Signal | None:
    """A window from its bytes, also those of format 1: without anchors, and with 1 Hz where no rate was known.

    Windows of earlier versions have neither a wall-clock time nor units.
    """
    if blob is None:
        return None
    header, _, values = zlib.decompress(blob).partition(b"\n")
    id, rate_hz, channels, record, start_s, samples, width, *rest = json.loads(header)
    columns = np.frombuffer(values, np.uint8).reshape(4, -1).T.copy().view("<f4").reshape(width, samples)
    if not rest:
        rate_hz = None if rate_hz == 1 else rate_hz
    anchors, start_time, units = (*rest, None, None, None)[:3]
    start_time = None if start_time is None else datetime.fromisoformat(start_time)
    return Signal(columns.T, id, rate_hz, tuple(channels), record, start_s, anchors, start_time, units)
