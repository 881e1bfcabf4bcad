"""Entries for tests of galleries: small vectors, metadata of every kind, windows with gaps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import naive
import numpy as np

from geopatch.engines import About, Entries, Metadata, Value, Widths
from geopatch.engines.engine import Shortlist
from geopatch.engines.filters import Filter
from geopatch.engines.postgres_moving import add_shards
from geopatch.gallery import Gallery
from geopatch.signal import Signal

WIDTHS = Widths(embedding=12, patches=4, token=6)
ABOUT = About("0123456789abcdef", WIDTHS, patch_length=8, rate_hz=16.0, length=32)
CHANNELS = ((), ("I", "II"))
COLUMNS = ("embedding", "tokens", "valid", "patch_s", "start_s", "stop_s")
TUPLES = ("encoder", "ids", "records", "metadata", "channels")
ENGINES = ("exact", "embedded", "postgresql", "postgresql with shards")


@dataclass
class Ground:
    """Where galleries of one engine are made."""

    engine: str
    folder: Path
    url: str = ""
    shards: Sequence[str] = ()
    _count: Iterator[int] = field(default_factory=itertools.count)

    def place(self) -> str:
        name = f"g{next(self._count)}"
        if self.engine.startswith("postgresql"):
            place = f"{self.url}_{name}"
            if self.shards:
                add_shards(place, self.shards)
            return place
        return f"{'exact:' if self.engine == 'exact' else ''}{self.folder / name}"

    def gallery(self) -> Gallery:
        return Gallery.create(self.place(), ABOUT)


def metadata_of(n: int) -> Metadata:
    """Text, whole numbers, fractions and flags, and every name missing now and then."""
    row: dict[str, Value] = {
        "sex": "FM"[n % 2],
        "age": 20 + n % 50,
        "noise": n / 7,
        "paced": n % 3 == 0,
        "the lead": f"V{n % 4}",
    }
    return {name: value for place, (name, value) in enumerate(row.items()) if (n + place) % 5}


def entries_of(ids: list[str], seed: int = 0, *, keep_windows: bool = True) -> Entries:
    """Entries that look encoded, the same for the same seed."""
    draw, count = np.random.default_rng(seed), len(ids)
    embedding = draw.normal(size=(count, WIDTHS.embedding)).astype(np.float32)
    embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    valid = np.arange(WIDTHS.patches)[None] < draw.integers(1, WIDTHS.patches + 1, size=(count, 1))
    tokens = draw.normal(size=(count, WIDTHS.patches, WIDTHS.token)).astype(np.float32) * valid[..., None]
    patch_s = draw.uniform(size=(count, WIDTHS.patches, 2)).astype(np.float32) * valid[..., None]
    start_s = draw.integers(0, 1000, size=count) / 8
    return Entries(
        ABOUT.encoder,
        tuple(ids),
        embedding,
        tokens.astype(np.float32),
        valid,
        patch_s.astype(np.float32),
        tuple(f"rec {int(place) % 3}" for place in start_s),
        start_s,
        start_s + 2.0,
        tuple(metadata_of(int(draw.integers(0, 200))) for _ in ids),
        tuple(_window(id, draw) if keep_windows and n % 3 else None for n, id in enumerate(ids)),
        tuple(CHANNELS[n % 4 > 0] for n in range(count)),  # also of windows that are not kept
    )


def _window(id: str, draw: np.random.Generator) -> Signal:
    values = draw.normal(size=(32, 2)).astype(np.float32)
    values[3:5, 1] = np.nan
    return Signal(values, id, 16.0, ("I", "II"), record="r", start_s=0.1, anchors=np.asarray([-2.5, 0.0, 31 / 7]))


def same(first: Entries, second: Entries) -> bool:
    """Every column, to the last bit."""
    columns = all(np.array_equal(getattr(first, name), getattr(second, name)) for name in COLUMNS)
    told = all(getattr(first, name) == getattr(second, name) for name in TUPLES)
    windows = zip(first.windows, second.windows, strict=True)
    return columns and told and all(_same_window(*pair) for pair in windows)


def _same_window(first: Signal | None, second: Signal | None) -> bool:
    if first is None or second is None:
        return first is second
    about = ("id", "rate_hz", "channels", "record", "start_s")
    named = all(getattr(first, name) == getattr(second, name) for name in about)
    marks, others = (np.zeros(0) if one.anchors is None else one.anchors for one in (first, second))
    return named and np.array_equal(marks, others) and np.array_equal(first.values, second.values, equal_nan=True)


def everything(gallery: Gallery) -> dict[str, Entries]:
    return {id: batch.take([n]) for batch in gallery.scan(7) for n, id in enumerate(batch.ids)}


def naive_shortlist(entries: Entries, query: np.ndarray, k: int, where: Filter | None) -> list[tuple[str, float]]:
    passing = [n for n in range(len(entries)) if where is None or where.matches(entries.fields(n))]
    scored = [(entries.ids[n], float(np.dot(entries.embedding[n], query))) for n in passing]
    return sorted(scored, key=lambda pair: -pair[1])[:k]


def naive_token_shortlist(
    entries: Entries, tokens: np.ndarray, valid: np.ndarray, k: int, where: Filter | None, ordered: bool = False
) -> list[tuple[str, float]]:
    passing = [n for n in range(len(entries)) if where is None or where.matches(entries.fields(n))]
    query = tokens.astype(np.float64)
    stored = entries.tokens.astype(np.float64)
    score = naive.aligned if ordered else naive.maxsim
    scored = [(entries.ids[n], score(query, valid, stored[n], entries.valid[n])) for n in passing]
    return sorted(scored, key=lambda pair: -pair[1])[:k]


def agrees(found: Shortlist, expected: list[tuple[str, float]]) -> bool:
    """The same ids with the same scores, best first; scores may differ by rounding."""
    close = np.allclose(found.scores, [score for _, score in expected], atol=1e-5)
    return close and set(found.ids) == {id for id, _ in expected} and bool((np.diff(found.scores) <= 1e-6).all())
