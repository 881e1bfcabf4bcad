"""Signal that a threshold is set on: parts of stored records from all over a gallery, put together from windows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from geopatch.engines.engine import Record
from geopatch.engines.filters import All, Equal, Filter, Order, Where, as_filter
from geopatch.errors import GalleryError
from geopatch.gallery import Gallery

Values = npt.NDArray[np.float32]

MOST_RECORDS = 240  # of which parts are read
SEED = 11


def background(
    gallery: Gallery, seconds: float, least_s: float, part_s: float, *, apart_from: str = "", where: Where = None
) -> Iterator[Values]:
    """Parts (T, C) of stored records at the gallery's rate, `seconds` together, of `part_s`, at least `least_s`.

    Windows of the record `apart_from` are left out where there are others: what is looked for happens there.
    """
    passing = None if where is None else set(gallery.embeddings(where).records)
    records = [
        record
        for record in gallery.records()
        if record.stop_s - record.start_s >= least_s and (passing is None or record.name in passing)
    ]
    others = [record for record in records if record.name != apart_from]
    draw = np.random.default_rng(SEED)
    chosen = _spread(others or records, min(MOST_RECORDS, max(int(seconds / part_s), 1)), draw)
    if not chosen:
        raise GalleryError(f"the gallery has no record of {least_s:.3g} s or more to set a threshold on")
    left_s = seconds
    for place, record in enumerate(chosen):
        duration_s = min(max(left_s / (len(chosen) - place), least_s), record.stop_s - record.start_s)
        start_s = record.start_s + draw.uniform(0, record.stop_s - record.start_s - duration_s)
        left_s -= duration_s
        yield from _joined(gallery, record.name, start_s, start_s + duration_s, as_filter(where))


def _spread(records: list[Record], count: int, draw: np.random.Generator) -> list[Record]:
    if len(records) <= count:
        return records
    return [records[n] for n in sorted(draw.choice(len(records), count, replace=False))]


def _joined(gallery: Gallery, record: str, start_s: float, stop_s: float, where: Filter | None) -> Iterator[Values]:
    """The values that the gallery keeps of a part of a record, cut where some are missing."""
    parts: list[Filter] = [Equal("record", (record,)), Order("start_s", "<", stop_s), Order("stop_s", ">", start_s)]
    clock_hz = gallery.about.clock_hz
    values: Values | None = None
    filled = np.zeros(round((stop_s - start_s) * clock_hz), dtype=np.bool_)
    for entries in gallery.scan(where=All((*parts, where) if where is not None else tuple(parts))):
        for window in entries.windows:
            if window is None or window.clock_hz != clock_hz:
                continue
            window = window.arranged(gallery.about.channels) if window.channels else window
            if values is None:
                values = np.full((len(filled), window.values.shape[1]), np.nan, dtype=np.float32)
            first = round((window.start_s - start_s) * clock_hz)
            inside = slice(max(first, 0), max(min(first + window.length, len(filled)), 0))
            values[inside] = window.values[max(-first, 0) :][: len(filled[inside])]
            filled[inside] = True
    if values is None:
        return
    edges = np.flatnonzero(np.diff(np.concatenate([[False], filled, [False]]).astype(np.int8)))
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        yield values[first:last]
