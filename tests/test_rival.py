"""Baselines are measured as the encoder is."""

from __future__ import annotations

import numpy as np
import pytest

from geopatch.data.collection import Collection
from geopatch.errors import ConfigError
from geopatch.protocol import Protocol
from geopatch.signal import Signal
from geopatch_lab.baselines import make
from geopatch_lab.rival import Rival, evaluate_rival, train_rival


def steps(count: int = 8) -> Collection:
    """Windows at two levels; the Euclidean distance tells them apart."""
    labels = np.asarray(["low", "high"] * (count // 2))
    draw = np.random.default_rng(0)
    signals = [
        Signal(
            draw.normal(float(label == "high"), 0.1, size=(20, 1)).astype(np.float32),
            id=str(n),
            record="ab"[n % 4 // 2],
            start_s=100.0 * n,
        )
        for n, label in enumerate(labels)
    ]
    return Collection("steps", tuple(signals), labels)


@pytest.fixture
def rival() -> Rival:
    return train_rival(make("euclidean"), steps(), seed=3)


def test_rows_say_what_was_measured(rival: Rival) -> None:
    clean, warped = evaluate_rival(rival, steps(), target="level")
    assert (clean.preset, clean.scorer, clean.seed, clean.target) == ("euclidean, keep", "own", 3, "level")
    assert clean.scores["recall@1"] == 1.0
    assert (clean.stress, warped.stress) == ("clean", "warped queries")
    assert clean.per_class.keys() == {"low", "high"}


def test_protocols_apply(rival: Rival) -> None:
    alone = steps(2)
    row = evaluate_rival(rival, steps(), protocol=Protocol("strict-cross-record"), stresses=("clean",))[0]
    assert row.scores["recall@1"] == 1.0
    penalised = evaluate_rival(rival, steps(), protocol=Protocol("penalised-cross-record"), stresses=("clean",))[0]
    assert penalised.scores["recall@1"] < 1.0
    with pytest.raises(ValueError, match="no two windows"):
        evaluate_rival(rival, alone)


def test_a_baseline_has_no_geometry_to_disturb(rival: Rival) -> None:
    with pytest.raises(ConfigError, match="euclidean has no geometry that noise could touch"):
        evaluate_rival(rival, steps(), stresses=("geometry-noise",))
