"""How fast a gallery takes windows, how large it grows, how fast and how well it finds. Machines are noisy.

    python benchmarks/gallery.py [--windows 200000] [--place PLACE]

With GEOPATCH_DATA set, embeddings are of MITDB windows (and points between them, where more are asked for than are
encoded); without, of random clusters.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from geopatch.config import TrainConfig
from geopatch.data.physionet import DS1, DS2, read_wfdb
from geopatch.data.recording import cut_windows
from geopatch.data.sample import ecg_windows
from geopatch.engines import About, Entries, Widths
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery

WIDTHS = Widths(embedding=128, patches=16, token=64)
ABOUT = About("benchmark", WIDTHS, patch_length=16, rate_hz=128.0, length=256)
BATCH, QUERIES, K = 512, 200, 50
RECORDS, STEPS = 8, 150
Vectors = npt.NDArray[np.float32]


def embeddings(draw: np.random.Generator) -> tuple[str, Vectors, Vectors]:
    """Vectors to search among, and queries that are not among them."""
    root = os.environ.get("GEOPATCH_DATA")
    if root is None:
        centres = draw.normal(size=(300, WIDTHS.embedding))
        vectors = unit(centres[draw.integers(0, 300, 20_000)] + draw.normal(size=(20_000, WIDTHS.embedding)) * 0.7)
        return "random clusters", vectors[QUERIES:], vectors[:QUERIES]
    sample = ecg_windows()
    model = GeoPatch(train=TrainConfig(min_steps=STEPS, max_steps=STEPS)).fit(sample.signals, sample.labels)
    vectors, queries = (
        model.transform(cut_windows("mitdb", [read_wfdb(Path(root, "mitdb", name)) for name in names]).signals)
        for names in (DS1[:RECORDS], DS2[:1])
    )
    return f"{len(vectors)} MITDB windows", vectors, queries[draw.permutation(len(queries))[:QUERIES]]


def unit(vectors: npt.NDArray[np.floating]) -> Vectors:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def batches(vectors: Vectors, windows: int, draw: np.random.Generator) -> Iterator[Entries]:
    for start in range(0, windows, BATCH):
        rows = np.arange(start, min(start + BATCH, windows))
        embedding = vectors[rows % len(vectors)]
        if start >= len(vectors):  # between two of them
            share = draw.uniform(0.2, 0.8, size=(len(rows), 1))
            embedding = unit(share * embedding + (1 - share) * vectors[draw.integers(0, len(vectors), len(rows))])
        yield as_entries(rows, embedding, draw)


def as_entries(rows: npt.NDArray[np.int64], embedding: Vectors, draw: np.random.Generator) -> Entries:
    count = len(rows)
    tokens = draw.normal(size=(count, WIDTHS.patches, WIDTHS.token)).astype(np.float32)
    return Entries(
        ABOUT.encoder,
        tuple(f"{n // 1800}@{n % 1800}s" for n in rows),
        embedding,
        tokens / np.linalg.norm(tokens, axis=2, keepdims=True),
        np.ones((count, WIDTHS.patches), dtype=np.bool_),
        np.zeros((count, WIDTHS.patches, 2), dtype=np.float32),
        tuple(str(n // 1800) for n in rows),
        (rows % 1800).astype(np.float64),
        (rows % 1800).astype(np.float64) + 2.0,
        tuple({"subject": str(n // 1800), "beat": "NNNNVS"[n % 6], "age": int(n % 90)} for n in rows),
        (None,) * count,
    )


def rss_mb(name: str = "VmRSS") -> float:
    status = Path("/proc/self/status").read_text()
    return float(next(line.split()[1] for line in status.splitlines() if line.startswith(name))) / 1024


def asked(gallery: Gallery, queries: Vectors, truth: list[set[str]], where: str | None = None) -> str:
    """Milliseconds for one query, and the share of the true nearest K that is found."""
    gallery.shortlist(queries[:1], K, where)
    times, found = [], []
    for query, true in zip(queries, truth, strict=True):
        start = time.perf_counter()
        shortlist = gallery.shortlist(query[None], K, where)[0]
        times.append((time.perf_counter() - start) * 1e3)
        found.append(len(true & set(shortlist.ids)) / max(len(true), 1))
    p99 = np.percentile(times, 99)
    return f"p50 {statistics.median(times):7.2f} ms   p99 {p99:7.2f} ms   recall@{K} {np.mean(found):.4f}"


def nearest(parts: Iterator[Entries], queries: Vectors, where: str | None = None) -> list[set[str]]:
    """The truth, by comparing everything."""
    ids: list[str] = []
    scores: list[Vectors] = []
    for part in parts:
        kept = [n for n in range(len(part)) if where is None or part.metadata[n]["beat"] == "S"]
        ids += [part.ids[n] for n in kept]
        scores.append(queries @ part.embedding[kept].T)
    order = np.argsort(-np.concatenate(scores, axis=1), axis=1)[:, :K]
    return [{ids[n] for n in row} for row in order]


def main(windows: int, place: str) -> None:
    draw = np.random.default_rng(0)
    told, vectors, queries = embeddings(draw)
    print(f"{windows} windows from {told}; {place.split(':')[0] if '://' in place else 'embedded'} engine")
    before, start = rss_mb(), time.perf_counter()
    with Gallery.create(place, ABOUT) as gallery:
        gallery.add(batches(vectors, windows, np.random.default_rng(1)))
        seconds = time.perf_counter() - start
        raw = windows * 4 * (WIDTHS.embedding + WIDTHS.patches * WIDTHS.token)
        print(
            f"add        {windows / seconds:9.0f} windows/s   memory grew by {rss_mb('VmHWM') - before:.0f} MB at most"
        )
        print(
            f"disk       {gallery.info().bytes / 1e6:9.0f} MB   {gallery.info().bytes / raw:.2f} x vectors and tokens"
        )
        where = "beat == 'S'"
        truth = nearest(batches(vectors, windows, np.random.default_rng(1)), queries)
        some = nearest(batches(vectors, windows, np.random.default_rng(1)), queries, where)
        start = time.perf_counter()
        gallery.shortlist(queries[:1], K)
        print(f"first      {(time.perf_counter() - start) * 1e3:9.0f} ms")
        print(f"compared   {asked(gallery, queries, truth)}")
        print(f"  filtered {asked(gallery, queries[:50], some[:50], where)}")
        start = time.perf_counter()
        gallery.optimize()
        print(f"optimize   {time.perf_counter() - start:9.1f} s")
        print(
            f"disk       {gallery.info().bytes / 1e6:9.0f} MB   {gallery.info().bytes / raw:.2f} x vectors and tokens"
        )
        print(f"indexed    {asked(gallery, queries, truth)}")
        print(f"  filtered {asked(gallery, queries[:50], some[:50], where)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", type=int, default=200_000)
    parser.add_argument("--place", help="where to make the gallery; a temporary folder unless told")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        main(arguments.windows, arguments.place or f"{folder}/gallery")
