"""What the tests share: one thread, fixed seeds, small signals of awkward kinds."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import settings

from geopatch.signal import Signal

torch.set_num_threads(1)

settings.register_profile("geopatch", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("geopatch")


@pytest.fixture(autouse=True)
def seeds() -> None:
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def no_figure_is_left_open() -> Iterator[None]:
    """Each test closes what it drew, so that the next does not count it."""
    yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def walk(length: int, channels: int, seed: int) -> Signal:
    """A random walk: values with slope, bends and noise."""
    steps = np.random.default_rng(seed).normal(size=(length, channels))
    return Signal.from_array(np.cumsum(steps, axis=0), id=f"walk {length}x{channels} #{seed}")


def awkward(channels: int) -> list[Signal]:
    """Signals of unequal lengths, among them each kind that breaks careless code."""
    rng = np.random.default_rng(channels)
    gaps = rng.normal(size=(45, channels)).astype(np.float32)
    gaps[:4], gaps[20:31], gaps[44:] = np.nan, np.nan, np.nan
    unmeasured = rng.normal(size=(38, channels)).astype(np.float32)
    unmeasured[:, -1] = np.nan if channels > 1 else unmeasured[:, -1]
    return [
        walk(60, channels, seed=1),
        Signal.from_array(np.full((51, channels), 123.4), id="constant"),
        Signal.from_array(gaps, id="gaps"),
        Signal.from_array(unmeasured, id="last channel not measured"),
        Signal.from_array(rng.normal(size=(1, channels)), id="one sample"),
        Signal.from_array(rng.normal(size=(5, channels)), id="shorter than a patch"),
        walk(97, channels, seed=2),
    ]


@pytest.fixture(params=[1, 3], ids=["one channel", "three channels"])
def awkward_signals(request: pytest.FixtureRequest) -> list[Signal]:
    return awkward(request.param)


@pytest.fixture
def mixed_signals() -> list[Signal]:
    """The awkward signals with two channels."""
    return awkward(2)
