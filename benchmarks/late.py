"""How long late interaction takes for one query: 50 candidates of 16 tokens of 64 numbers, gathered from 20,000."""

from __future__ import annotations

import time

import numpy as np

from geopatch.scoring import SCORERS
from geopatch.search.ranking import one_thread

CANDIDATES, SHORTLIST, PATCHES, WIDTH, REPEATS = 20_000, 50, 16, 64, 3_000


def main() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.normal(size=(CANDIDATES, PATCHES, WIDTH)).astype(np.float32)
    tokens /= np.linalg.norm(tokens, axis=-1, keepdims=True)
    valid = np.ones((CANDIDATES, PATCHES), dtype=bool)
    cosine = np.zeros(SHORTLIST, dtype=np.float32)
    for scorer in ("maxsim", "fused", "bridge", "aligned", "fused-aligned"):
        times = []
        for _ in range(REPEATS):
            rows = rng.integers(0, CANDIDATES, SHORTLIST)
            started = time.perf_counter()
            with one_thread():
                SCORERS[scorer].score(cosine, tokens[0], valid[0], tokens[rows], valid[rows])
            times.append((time.perf_counter() - started) * 1e6)
        middle, late = np.percentile(times, [50, 99])
        print(f"{scorer:13s} p50 {middle:4.0f} us  p99 {late:4.0f} us")


if __name__ == "__main__":
    main()
