"""What a shortlist from tokens costs against one from embeddings: time, memory and disk, on made-up utterances.

    python benchmarks/tokens.py [--windows 5000] [--patches 16] [--place PLACE]

An utterance is a sequence of sounds, of 60, as long as it has patches; a voice moves each token its own way, and noise
is added. The embedding is the mean of the tokens. A query is a sentence that twenty voices have said, by another voice.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gallery import rss_mb, unit

from geopatch.engines import About, Entries, Shortlist, Widths
from geopatch.gallery import Gallery

WIDTH, SOUNDS, VOICES, QUERIES, K, BATCH = 64, 60, 20, 50, 50, 500
NOISE, VOICE = 0.12, 0.1  # per number of a token
Vectors = npt.NDArray[np.float32]


def tokens_of(rows: npt.NDArray[np.int64], voices: npt.NDArray[np.int64], patches: int) -> Vectors:
    """Tokens (N, K, d) of sentence n // VOICES by the voice."""
    sounds = np.random.default_rng(0).normal(size=(SOUNDS, WIDTH)) / 8
    made = np.empty((len(rows), patches, WIDTH), dtype=np.float32)
    for place, (row, voice) in enumerate(zip(rows // VOICES, voices, strict=True)):
        sentence, draw = np.random.default_rng((1, row)), np.random.default_rng((2, row, voice))
        shift = np.random.default_rng((3, voice)).normal(size=WIDTH) * VOICE
        said = sounds[sentence.integers(0, SOUNDS, patches)]
        made[place] = unit(said + shift + draw.normal(size=(patches, WIDTH)) * NOISE)
    return made


def batches(windows: int, patches: int, about: About) -> Iterator[Entries]:
    for start in range(0, windows, BATCH):
        rows = np.arange(start, min(start + BATCH, windows))
        tokens = tokens_of(rows, rows % VOICES, patches)
        count = len(rows)
        yield Entries(
            about.encoder,
            tuple(f"{row // VOICES} by {row % VOICES}" for row in rows),
            unit(tokens.mean(1)),
            tokens,
            np.ones((count, patches), dtype=np.bool_),
            np.zeros((count, patches, 2), dtype=np.float32),
            tuple(str(row) for row in rows),
            np.zeros(count),
            np.ones(count),
            tuple({"voice": int(row % VOICES)} for row in rows),
            (None,) * count,
        )


def asked(shortlist: Callable[[int], Shortlist], sentences: npt.NDArray[np.int64]) -> str:
    """Milliseconds of this process for one query, and of how many queries a right one is in the shortlist."""
    shortlist(0)
    times, right = [], 0
    for n, sentence in enumerate(sentences):
        start = time.process_time()
        ids = shortlist(n).ids
        times.append((time.process_time() - start) * 1e3)
        right += any(id.startswith(f"{sentence} by ") for id in ids)
    middle, late = np.percentile(times, [50, 95])
    return f"p50 {middle:7.2f} ms  p95 {late:7.2f} ms  right in {K}: {right / len(sentences):.3f}"


def main(windows: int, patches: int, place: str) -> None:
    about = About("benchmark", Widths(WIDTH, patches, WIDTH), patch_length=16, rate_hz=50.0, length=256)
    rows = np.random.default_rng(7).choice(windows // VOICES, QUERIES) * VOICES
    tokens = tokens_of(rows, np.full(len(rows), VOICES), patches)
    embedding, valid = unit(tokens.mean(1)), np.ones(tokens.shape[:2], dtype=np.bool_)
    with Gallery.create(place, about) as gallery:
        gallery.add(batches(windows, patches, about))
        print(f"{windows} windows of {patches} tokens, {gallery.info().bytes / 1e6:.0f} MB on disk")

        def by_vector(n: int) -> Shortlist:
            return gallery.shortlist(embedding[n : n + 1], K)[0]

        def by_tokens(n: int) -> Shortlist:
            return gallery.token_shortlist(tokens[n : n + 1], valid[n : n + 1], K)[0]

        for name, shortlist in (("embeddings", by_vector), ("tokens", by_tokens)):
            before, start = rss_mb(), time.perf_counter()
            shortlist(0)
            cost = f"first {time.perf_counter() - start:6.2f} s, memory +{rss_mb() - before:5.0f} MB"
            print(f"{name:12s} {cost}  {asked(shortlist, rows // VOICES)}")
        start = time.perf_counter()
        gallery.optimize()
        index_bytes = sum(file.stat().st_size for file in Path(place).glob("index-*/tokens/*"))
        print(f"optimize     {time.perf_counter() - start:6.1f} s, +{index_bytes / 1e6:.0f} MB on disk for tokens")
        print(f"{'tokens':12s} after optimize: {asked(by_tokens, rows // VOICES)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=5_000)
    parser.add_argument("--patches", type=int, default=16)
    parser.add_argument("--place", help="where to make the gallery; a temporary folder by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        main(arguments.windows, arguments.patches, arguments.place or f"{folder}/gallery")
