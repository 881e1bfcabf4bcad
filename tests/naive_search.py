"""Entries drawn by chance, and the obvious slow search over them: one candidate, one pair of tokens at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import naive
import numpy as np

from geopatch.engines import About, Entries, Widths
from geopatch.protocol import Places
from geopatch.scoring import SHARPNESS
from geopatch.signal import Signal

ABOUT = About("some encoder", Widths(6, 4, 5), patch_length=8, rate_hz=16.0, length=32)
LENGTH_S = 2.0


def entries_of(count: int, seed: int = 0, records: int = 4, *, windows: bool = True) -> Entries:
    """Windows of 2 s that half overlap, of several records, some with padded tokens."""
    rng = np.random.default_rng(seed)
    embedding = rng.normal(size=(count, ABOUT.widths.embedding)) + 1
    valid = np.arange(ABOUT.widths.patches) < rng.integers(1, ABOUT.widths.patches + 1, size=(count, 1))
    tokens = rng.normal(size=(count, ABOUT.widths.patches, ABOUT.widths.token)) + 0.5
    tokens = tokens / np.linalg.norm(tokens, axis=-1, keepdims=True) * valid[..., None]
    start_s = np.arange(count) // records * LENGTH_S / 2
    names = [f"r{n % records}" for n in range(count)]
    patch_s = np.arange(ABOUT.widths.patches)[:, None] * 0.5 + np.asarray([0.0, 0.5])
    kept = [Signal(rng.normal(size=(32, 1)).cumsum(0), f"w{n}", 16.0, (), names[n], start_s[n]) for n in range(count)]
    return Entries(
        ABOUT.encoder,
        tuple(f"w{n}" for n in range(count)),
        (embedding / np.linalg.norm(embedding, axis=1, keepdims=True)).astype(np.float32),
        tokens.astype(np.float32),
        valid,
        (patch_s * valid[..., None]).astype(np.float32),
        tuple(names),
        start_s,
        start_s + LENGTH_S,
        tuple({"even": n % 2 == 0, "place": n} for n in range(count)),
        tuple(kept) if windows else (None,) * count,
    )


def search(
    entries: Entries,
    query: int,
    k: int,
    *,
    scorer: str = "fused",
    shortlist: int = 50,
    passes: Callable[[dict[str, Any]], bool] = lambda fields: True,
    protocol: str = "standard",
    guard_s: float = 0.0,
    min_gap_s: float = 0.0,
    min_score: float = -np.inf,
    tempos: Sequence[Entries] = (),
) -> list[tuple[str, float]]:
    """Ids and scores of the hits of an entry. `tempos` are the entries with the query at each tempo in its place."""
    tempos = tempos or (entries,)
    where = Places(np.asarray(entries.ids), np.asarray(entries.records), entries.start_s, entries.stop_s)
    candidates = [
        n
        for n in range(len(entries))
        if passes(entries.fields(n)) and naive.protocol(protocol, guard_s, where, where.records, query, n)[0]
    ]
    candidates.sort(key=lambda n: -max(cosine(one, query, n) for one in tempos))
    scored = [(n, max(score(one, query, n, scorer) for one in tempos)) for n in candidates[:shortlist]]
    scored.sort(key=lambda pair: -pair[1])
    kept: list[tuple[int, float]] = []
    for n, value in scored:
        if value >= min_score and not any(near(entries, n, other, min_gap_s) for other, _ in kept):
            kept.append((n, value))
    return [(entries.ids[n], value) for n, value in kept[:k]]


def score(entries: Entries, query: int, n: int, scorer: str) -> float:
    tokens = entries.tokens.astype(np.float64)
    parts = (tokens[query], entries.valid[query], tokens[n], entries.valid[n])
    if scorer == "maxsim":
        return naive.maxsim(*parts)
    if scorer == "fused":
        return cosine(entries, query, n) + naive.symmetric_maxsim(*parts)
    if scorer in ("aligned", "fused-aligned"):
        return naive.aligned(*parts) + (cosine(entries, query, n) if scorer == "fused-aligned" else 0.0)
    return naive.bridge(*parts, SHARPNESS) if scorer == "bridge" else cosine(entries, query, n)


def cosine(entries: Entries, query: int, n: int) -> float:
    return naive.dot(entries.embedding[query].astype(np.float64), entries.embedding[n].astype(np.float64))


def near(entries: Entries, one: int, other: int, gap_s: float) -> bool:
    return entries.records[one] == entries.records[other] and abs(entries.start_s[one] - entries.start_s[other]) < gap_s


def dtw(query: Sequence[Any], candidate: Sequence[Any], width: int) -> float:
    """The length of the cheapest path between both starts and both ends, less than `width` off the two diagonals."""
    rows, columns = len(query), len(candidate)
    best = np.full((rows + 1, columns + 1), np.inf)
    best[0, 0] = 0
    for i in range(rows):
        for j in range(columns):
            low, high = i - max(0, rows - columns) - width + 1, i + max(0, columns - rows) + width
            if low <= j < high:
                cost = sum((a - b) ** 2 for a, b in zip(query[i], candidate[j], strict=True))
                best[i + 1, j + 1] = cost + min(best[i, j], best[i, j + 1], best[i + 1, j])
    return float(np.sqrt(best[rows, columns]))
