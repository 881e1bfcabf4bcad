"""Laws of relative tempo: the unit of time, padding, order, gaps, no anchors, one anchor; and what is made of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from geopatch.config import HARMONICS, RHYTHM, ModelConfig
from geopatch.errors import ConfigError
from geopatch.model.rhythm_columns import RhythmColumns
from geopatch.patches import stack
from geopatch.rhythm import GAP, LEVEL, rhythm, tempo_track
from geopatch.search.weighing import probes, rhythm_cosines, weighed, with_rhythm_of
from geopatch.signal import Signal

LENGTH, AROUND = 256, 8
EVEN = np.arange(-900, 1300, 100).astype(np.float64)
EARLY = np.where(EVEN == 100, 60.0, EVEN)  # one beat comes 40 samples early
RELATIVE = [RHYTHM.index(name) for name in RHYTHM if name not in LEVEL]

Floats = npt.NDArray[np.float64]


def columns(anchors: Floats | None, length: float = LENGTH) -> dict[str, float]:
    return dict(zip(RHYTHM, rhythm([anchors], [length], AROUND)[0].tolist(), strict=True))  # type: ignore[list-item]


def drawn(seed: int, count: int = 30) -> Floats:
    steps = np.random.default_rng(seed).uniform(40, 160, count)
    marks: Floats = np.cumsum(steps) - 1000
    return marks


def naive(anchors: Sequence[float], length: int) -> dict[str, float]:
    """Interval by interval."""
    spans = list(itertools.pairwise(anchors))
    touching = [n for n, (start, stop) in enumerate(spans) if stop > 0 and start < length]
    first, last = max(touching[0] - AROUND, 0), min(touching[-1] + AROUND, len(spans) - 1)
    logs = {n: float(np.log(spans[n][1] - spans[n][0])) for n in range(first, last + 1)}
    median = float(np.median(list(logs.values())))
    own = [n for n in logs if 0 <= spans[n][1] < length] or touching
    steps = {n: logs[n] - logs[n - 1] for n in logs if n - 1 in logs}  # to interval n
    pairs = [steps[n] * steps[n - 1] for n in steps if n - 1 in steps]
    return {
        "shortest": min(logs[n] for n in own) - median,
        "longest": max(logs[n] for n in own) - median,
        "fall": min(steps[n] for n in own if n in steps),
        "rise": max(steps[n + 1] for n in own if n + 1 in steps),
        "spread": float(np.std(list(logs.values()))),
        "change": float(np.mean([abs(step) for step in steps.values()])),
        "alternation": float(np.mean(pairs) / np.mean(np.square(list(steps.values())))),
        "tempo": float(np.log(np.mean([np.exp(logs[n]) for n in touching]))),
        "surroundings": median,
    }


@pytest.mark.parametrize("seed", range(5))
def test_it_is_what_one_would_count_by_hand(seed: int) -> None:
    anchors = drawn(seed)
    assert columns(anchors) == pytest.approx(naive(anchors.tolist(), LENGTH))


def test_an_even_clock_has_no_relative_tempo() -> None:
    even = columns(EVEN)
    assert [even[name] for name in RHYTHM if name not in LEVEL] == pytest.approx([0.0] * len(RELATIVE))
    assert even["tempo"] == even["surroundings"] == pytest.approx(np.log(100))


def test_an_early_beat_is_short_and_a_pause_follows() -> None:
    early = columns(EARLY)
    assert early["shortest"] == pytest.approx(np.log(0.6))
    assert early["fall"] == pytest.approx(np.log(0.6))
    assert early["rise"] == pytest.approx(np.log(1.4 / 0.6))
    assert early["alternation"] < 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.floats(0.01, 100))
def test_the_unit_of_time_cancels(seed: int, unit: float) -> None:
    anchors = drawn(seed)
    own, other = columns(anchors), columns(unit * anchors, unit * LENGTH)
    for name in RHYTHM:
        shift = np.log(unit) if name in LEVEL else 0.0
        assert other[name] == pytest.approx(own[name] + shift, abs=1e-8), name


def test_neither_the_rate_nor_the_order_of_anchors_matters() -> None:
    values = np.random.default_rng(0).normal(size=600)
    signal = Signal.from_array(values, rate_hz=100.0, anchors=drawn(0) + 200)
    turned = replace(signal, anchors=np.random.default_rng(1).permutation(drawn(0) + 200))
    half = signal.at_rate(50.0)
    own, other, slow = (stack([one], surroundings=AROUND).rhythm for one in (signal, turned, half))
    assert own is not None
    assert other is not None
    assert slow is not None
    assert torch.equal(own, other)
    assert torch.allclose(own[:, RELATIVE], slow[:, RELATIVE], atol=1e-5)


def test_no_window_depends_on_those_beside_it() -> None:
    marks = [drawn(0), None, np.asarray([5.0]), drawn(1, 60), drawn(2, 12)]
    together = rhythm(marks, [LENGTH] * 5, AROUND)
    alone = np.concatenate([rhythm([one], [LENGTH], AROUND) for one in marks])
    assert np.allclose(together, alone, equal_nan=True)
    track = tempo_track(marks, [LENGTH] * 5, AROUND, LENGTH + 7)
    assert not track[:, LENGTH:].any(), "padding is no signal"
    assert np.allclose(track[3, :LENGTH], tempo_track(marks[3:4], [LENGTH], AROUND, LENGTH)[0])


@pytest.mark.parametrize("anchors", [None, np.zeros(0), np.asarray([100.0]), np.asarray([-900.0, -800.0])])
def test_without_anchors_near_it_nothing_is_known(anchors: Floats | None) -> None:
    assert np.isnan(rhythm([anchors], [LENGTH], AROUND)).all()
    assert not tempo_track([anchors], [LENGTH], AROUND, LENGTH).any()


def test_one_interval_has_a_tempo_but_nothing_to_be_measured_by() -> None:
    own = columns(np.asarray([20.0, 120.0]))
    assert own["tempo"] == pytest.approx(np.log(100))
    assert all(np.isnan(own[name]) for name in RHYTHM if name not in LEVEL)


def test_where_anchors_are_missing_there_is_no_interval() -> None:
    torn = EVEN[(EVEN <= 100) | (EVEN > 100 + 100 * GAP)]
    assert columns(torn)["longest"] == pytest.approx(0.0)
    assert columns(EVEN[EVEN != 100])["longest"] == pytest.approx(np.log(2)), "a pause is an interval"
    track = tempo_track([torn], [LENGTH], AROUND, LENGTH)[0]
    assert not track[110:].any(), "nothing is known in the gap"


def test_a_sample_has_the_tempo_of_its_interval() -> None:
    track = tempo_track([EARLY], [LENGTH], AROUND, LENGTH)[0]
    assert np.allclose(track[5, :2], np.log(0.6))
    assert np.allclose(track[100, :2], [np.log(1.4), np.log(1.4 / 0.6)])
    assert (track[:, 2] == 1).all()


def test_a_window_of_a_window_knows_as_much() -> None:
    signal = Signal.from_array(np.random.default_rng(0).normal(size=2000), anchors=np.cumsum(drawn(0, 40) % 50 + 20))
    once, twice = signal.window(700, 900), signal.window(600, 1000).window(100, 300)
    own, other = (stack([one], surroundings=AROUND).rhythm for one in (once, twice))
    assert own is not None
    assert other is not None
    assert torch.allclose(own, other, atol=1e-6)


def fitted(names: tuple[str, ...] = RHYTHM) -> tuple[RhythmColumns, torch.Tensor]:
    known = torch.from_numpy(rhythm([drawn(seed) for seed in range(40)], [LENGTH] * 40, AROUND)).float()
    made = RhythmColumns(ModelConfig(clock_share=0.3, rhythm=names))
    made.learn([known])
    return made, known


def test_cosines_fall_with_the_distance() -> None:
    made, _ = fitted(("tempo",))
    numbers = torch.linspace(-2, 2, 41)[:, None] * made.spread + made.centre
    vectors = made(torch.cat([torch.zeros(41, RHYTHM.index("tempo")), numbers, torch.zeros(41, 1)], dim=1))
    cosine = vectors @ vectors[0]
    assert torch.allclose(vectors.norm(dim=1), torch.ones(41), atol=1e-6)
    assert (cosine.diff() < 0).all()
    assert cosine[-1] == pytest.approx(0.0, abs=1e-3), "as far apart as columns reach to one side"


def test_what_is_not_known_adds_nothing() -> None:
    made, known = fitted()
    vectors = made(torch.cat([known[:1], torch.full_like(known[:1], torch.nan)]))
    assert vectors.shape[1] == 2 * len(HARMONICS) * len(RHYTHM)
    assert vectors[0].norm() == pytest.approx(1.0, abs=1e-6)
    assert not vectors[1].any()
    shape = torch.nn.functional.normalize(torch.ones(2, 4), dim=1)
    both = made.beside(shape, torch.cat([known[:1], torch.full_like(known[:1], torch.nan)]))
    assert torch.allclose(both[1, :4], shape[1]), "a window without a clock is its shape"
    assert torch.allclose(both.norm(dim=1), torch.ones(2), atol=1e-6)
    assert float(both[0, 4:].square().sum()) == pytest.approx(0.3, abs=1e-6)


def unit(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    drawn = np.random.default_rng(seed).normal(size=shape)
    vectors: npt.NDArray[np.float32] = (drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)).astype(np.float32)
    return vectors


@pytest.mark.parametrize("clock", [0.0, 0.3, 0.7, 1.0])
def test_a_search_can_take_shape_and_rhythm_apart(clock: float) -> None:
    shape, beat, share = unit(9, 6), unit(9, 4, seed=1), 0.2
    stored = np.concatenate([(1 - share) ** 0.5 * shape, share**0.5 * beat], axis=1)
    expected = (1 - clock) * shape @ shape.T + clock * beat @ beat.T
    own = weighed(stored, clock, 4)
    assert np.allclose(own @ own.T, expected, atol=1e-6)
    looked_up = probes(stored, clock, 4) @ stored.T
    assert (np.argsort(-looked_up, axis=1) == np.argsort(-expected, axis=1)).all(), "found in the order they are ranked"
    added = rhythm_cosines(own.astype(np.float64), own.astype(np.float64), 4)
    assert np.allclose(added, clock * beat @ beat.T, atol=1e-6)
    assert weighed(stored, None, 4) is stored
    assert probes(stored, None, 4) is stored


def test_chance_has_the_rhythms_that_are_there() -> None:
    stored = unit(5, 10)
    mixed = with_rhythm_of(unit(7, 10, seed=2), stored, 4)
    assert np.allclose(np.linalg.norm(mixed, axis=1), 1, atol=1e-6)
    assert all(any(np.allclose(row[-4:], other[-4:]) for other in stored) for row in mixed)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"clock_share": 1.5}, "clock_share must be at most 1"), ({"rhythm": ("tempo",)}, "a clock_share above 0")],
)
def test_settings_that_say_nothing_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**settings)  # type: ignore[arg-type]
