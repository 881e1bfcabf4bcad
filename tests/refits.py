"""Signals, small models and a law for tests of refits, also for processes that these start."""

from __future__ import annotations

import dataclasses

import numpy as np

from geopatch.config import ModelConfig, TrainConfig
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.signal import Signal

RATE_HZ = 32.0
SMALL = ModelConfig(halves=("learned",), patch_length=8, max_patches=6, width=16, embedding=8, layers=1, heads=1)
TRAIN = TrainConfig(epochs=1, min_steps=1, max_steps=1, batch_size=8)
WIDE = dataclasses.replace(SMALL, embedding=12, width=8, max_patches=4)
COUNT = 30


def estimator(config: ModelConfig = SMALL, seed: int = 0) -> GeoPatch:
    return GeoPatch(model=config, train=TRAIN, random_state=seed, device="cpu")


def signals(count: int = COUNT, channels: tuple[str, ...] = ()) -> list[Signal]:
    draw = np.random.default_rng(5)
    lengths = draw.integers(40, 65, size=count)
    return [
        Signal(
            np.cumsum(draw.normal(size=(length, 2)), axis=0).astype(np.float32),
            f"s{n}",
            RATE_HZ,
            channels,
            record=f"r{n % 3}",
            start_s=float(4 * n),
        )
        for n, length in enumerate(lengths)
    ]


def check_itself(gallery: Gallery, count: int = 5) -> None:
    """Each signal finds itself: only vectors of one encoder do."""
    some = signals()[:count]
    for one, hits in zip(some, gallery.search_batch(some, k=1, scorer="cosine"), strict=True):
        assert hits[0].id == one.id
        assert abs(hits[0].score - 1) < 1e-5
