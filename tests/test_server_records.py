"""Records for drawing: minima and maxima in bounded memory, equal to those of the whole record."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from galleries import ABOUT, entries_of
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import client_of, make_place

from geopatch.errors import ConfigError
from geopatch.gallery import Gallery
from geopatch.server.records import Envelope, draw_record
from geopatch.server.refusal import RefusedError
from geopatch.signal import Signal

Pieces = list[tuple[int, int]]


def piece(start: int, length: int) -> npt.NDArray[np.float32]:
    """Two channels of samples that depend on their number alone, with gaps."""
    numbers = np.arange(start, start + length)
    values = np.stack([np.sin(numbers * 12.9898) * 43.7, np.cos(numbers * 3.1)], axis=1).astype(np.float32)
    values[numbers % 7 == 0] = np.nan
    return values


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(-4000, 4000), st.integers(1, 90)), min_size=1, max_size=30), st.integers(2, 40))
def test_an_envelope_equals_that_of_the_whole(pieces: Pieces, most: int) -> None:
    envelope, whole = Envelope(most, 2), np.full((8200, 2), np.nan, dtype=np.float32)
    for start, length in pieces:
        envelope.add(start, piece(start, length))
        whole[start + 4096 :][:length] = piece(start, length)
    first, last = min(start for start, _ in pieces), max(start + length for start, length in pieces)
    assert (envelope.start, envelope.stop) == (first, last)
    size, rows = envelope.bucket, envelope.rows()
    edges = range(first // size * size, last, size)
    assert len(edges) <= most
    parts = [whole[max(edge + 4096, 0) : edge + 4096 + size] for edge in edges]
    expected = [pick(part) for part in parts for pick in (lowest, highest)]
    np.testing.assert_array_equal(rows, expected[::2] if size == 1 else expected)


def lowest(part: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.asarray(np.fmin.reduce(part, axis=0))


def highest(part: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.asarray(np.fmax.reduce(part, axis=0))


def test_an_envelope_does_not_grow_with_the_times() -> None:
    envelope = Envelope(100, 2)
    envelope.add(0, piece(0, 50))
    envelope.add(10**18, piece(0, 50))
    assert len(envelope.rows()) <= 200
    assert np.isfinite(envelope.rows()).any(axis=1).sum() == 4  # the first bucket and the last


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    """A record of 12,000 windows of 32 samples at 16 Hz, half overlapping, and one without values."""
    made = Gallery.create(tmp_path_factory.mktemp("long") / "gallery", ABOUT)
    ids = [f"long@{n}" for n in range(12_000)]
    starts = np.arange(12_000, dtype=np.float64)
    windows = [Signal(piece(16 * n, 32), id, 16.0, ("a", "b"), "long", float(n)) for n, id in enumerate(ids)]
    encoded = replace(entries_of(ids), records=("long",) * len(ids), start_s=starts, stop_s=starts + 2)
    made.add(replace(encoded, windows=tuple(windows)))
    made.add(replace(entries_of(["bare"], keep_windows=False), records=("bare",)))
    return made


def test_a_long_record_is_drawn(gallery: Gallery) -> None:
    drawing = draw_record(gallery, "long", -1e12, 1e12, 4000, 8_000_000)
    assert (drawing.signal.start_s, drawing.stop_s, drawing.bucket) == (0.0, 12_001.0, 128)
    assert drawing.signal.length <= 4000
    whole = piece(0, 16 * 12_001)
    np.testing.assert_array_equal(drawing.signal.values[:2], [lowest(whole[:128]), highest(whole[:128])])
    np.testing.assert_array_equal(drawing.signal.values[-1], highest(whole[len(whole) // 128 * 128 :]))


def test_a_short_part_has_every_sample(gallery: Gallery) -> None:
    for points in (None, 400):
        drawing = draw_record(gallery, "long", 11_000.25, 11_010.0, points, 8_000_000)
        assert (drawing.bucket, drawing.signal.start_s, drawing.stop_s) == (1, 11_000.25, 11_010.0)
        np.testing.assert_array_equal(drawing.signal.values, piece(176_004, 156))


def test_what_cannot_be_drawn(gallery: Gallery) -> None:
    with pytest.raises(ConfigError, match="has more than 1000 samples there; request a shorter part, or give `points`"):
        draw_record(gallery, "long", -1e12, 1e12, None, 2000)
    for name, start_s, stop_s in (("bare", -1e12, 1e12), ("nowhere", -1e12, 1e12), ("long", 20_000, 20_001)):
        with pytest.raises(RefusedError, match="keeps no values"):
            draw_record(gallery, name, start_s, stop_s, 100, 2000)


def test_a_record_over_http(tmp_path: Path) -> None:
    with client_of(make_place(tmp_path)) as client:
        whole = client.get("/api/record", params={"name": "119"}).json()
        drawn = client.get("/api/record", params={"name": "119", "points": 100}).json()
        wrong = client.get("/api/record", params={"name": "119", "points": 3})
    assert (whole["bucket"], whole["samples"], whole["stop_s"]) == (1, 13 * 128, 13.0)
    assert (drawn["bucket"], drawn["start_s"], drawn["stop_s"]) == (64, whole["start_s"], whole["stop_s"])
    values = np.frombuffer(base64.b64decode(whole["data"]), "<f4").reshape(-1, 64, 2)
    rows = np.frombuffer(base64.b64decode(drawn["data"]), "<f4").reshape(-1, 2, 2)
    np.testing.assert_array_equal(rows, np.stack([values.min(axis=1), values.max(axis=1)], axis=1))
    assert wrong.status_code == 422
