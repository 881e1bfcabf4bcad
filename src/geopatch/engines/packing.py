"""Entries as rows of plain values and bytes, the form in which engines keep them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from geopatch.engines.about import About
from geopatch.engines.entry import Checked, Entries, Metadata
from geopatch.signal import Signal

Row: TypeAlias = tuple[Any, ...]


def as_entries(rows: Sequence[Row], about: About) -> Entries:
    """Rows in the order of COLUMNS as columns."""
    columns = list(zip(*rows, strict=True)) or [()] * 11
    _, ids, records, start_s, stop_s, metadata, embedding, tokens, valid, patch_s, windows = columns
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
    )


def _array(blobs: Sequence[bytes], dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    return np.frombuffer(b"".join(blobs), dtype=dtype).reshape(shape).copy()


def entry_row(entries: Entries, n: int) -> Row:
    place = (entries.records[n], float(entries.start_s[n]), float(entries.stop_s[n]))
    return (entries.ids[n], *place, dump(entries.metadata[n]), entries.embedding[n].astype("<f4").tobytes())


def detail_row(entries: Entries, n: int) -> Row:
    tokens, patch_s = (part.astype("<f4").tobytes() for part in (entries.tokens[n], entries.patch_s[n]))
    return tokens, entries.valid[n].tobytes(), patch_s, pack_window(entries.windows[n])


def dump(metadata: Metadata) -> str:
    return json.dumps(dict(metadata), ensure_ascii=False)


def pack_window(signal: Signal | None) -> bytes | None:
    """A window as compressed bytes. Alike bytes of neighbouring samples are put side by side, which zlib likes."""
    if signal is None:
        return None
    about = [signal.id, signal.rate_hz, signal.channels, signal.record, signal.start_s, *signal.values.shape]
    values = signal.values.T.astype("<f4").copy().view(np.uint8).reshape(-1, 4).T.tobytes()
    return zlib.compress(json.dumps(about).encode() + b"\n" + values, level=1)


def unpack_window(blob: bytes | None) -> Signal | None:
    if blob is None:
        return None
    about, _, values = zlib.decompress(blob).partition(b"\n")
    id, rate_hz, channels, record, start_s, samples, width = json.loads(about)
    bytes_ = np.frombuffer(values, np.uint8).reshape(4, -1).T.copy()
    columns = bytes_.view("<f4").reshape(width, samples)
    return Signal(columns.T, id, rate_hz, tuple(channels), record, start_s)
