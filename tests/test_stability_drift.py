"""Boundary and feature drift: the fixed scaffold has no boundary drift, and the two parts bound the whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from geopatch.config import ModelConfig
from geopatch.errors import ConfigError, SignalError
from geopatch.model.encoder import Encoder
from geopatch.patches import stack
from geopatch.signal import Signal
from geopatch.warp import warped
from geopatch_lab.stability.drift import Drift, drift, drift_curves, family, gained, noisy, recut

SMALL = ModelConfig(
    halves=("learned",), channels=2, patch_length=8, max_patches=5, width=16, embedding=8, layers=1, heads=1
)
CONFIGS = {
    "default": SMALL,
    "patch stem": replace(SMALL, stem="patch", patch_encoder="cnn", amplitude="zscore"),
    "level and scale": replace(SMALL, amplitude="both", curvature_channel=True),
    "set": replace(SMALL, aggregate="set", descriptors=("slope",)),
}


def signals(count: int = 6, channels: int = 2) -> list[Signal]:
    rng = np.random.default_rng(0)
    return [
        Signal.from_array(np.cumsum(rng.normal(size=(48 + 4 * n, channels)), axis=0), id=f"w{n}") for n in range(count)
    ]


def encoder(config: ModelConfig = SMALL) -> Encoder:
    torch.manual_seed(0)
    made = Encoder(config).eval()
    for parameter in made.parameters():  # FiLM and gate start at nothing: let them do something
        torch.nn.init.normal_(parameter, std=0.3)
    return made


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_fixed_scaffold_has_no_boundary_drift_and_the_adaptive_one_has(config: ModelConfig) -> None:
    first = signals()
    second = [warped(signal, 0.1) for signal in first]
    fixed, adaptive = (drift(encoder(config), first, second, rule) for rule in ("fixed", "adaptive"))
    assert (fixed.boundary == 0).all()
    assert (fixed.shift == 0).all()
    assert (fixed.total == fixed.feature).all()
    assert (fixed.total > 1e-4).all()
    assert (adaptive.boundary > 1e-4).any()
    assert (adaptive.shift > 0).any()


@pytest.mark.parametrize("rule", ["fixed", "adaptive"])
def test_the_parts_bound_the_whole(rule: str) -> None:
    first = signals()
    found = drift(encoder(), first, [noisy(signal, 0.3, place) for place, signal in enumerate(first)], rule)
    assert (found.total <= found.boundary + found.feature + 1e-5).all()


def test_equals_its_twin() -> None:
    """R(P, y) by hand: one window at a time, each of the three encoded alone."""
    model, first = encoder(), signals()
    second = [warped(signal, 0.08) for signal in first]
    found = drift(model, first, second, "adaptive")
    for place, (one, other) in enumerate(zip(first, second, strict=True)):
        a, b = (model.patch(model.scale(stack([signal]))) for signal in (one, other))
        rule_a, rule_b = (family(batch, model.config, "adaptive") for batch in (a, b))
        cuts = (recut(a, rule_a, model.config), recut(a, rule_b, model.config), recut(b, rule_b, model.config))
        with torch.inference_mode():
            own, cross, last = (model(batch).embedding[0] for batch in cuts)
        expected = [float((x - y).norm()) for x, y in ((own, last), (own, cross), (cross, last))]
        measured = [found.total[place], found.boundary[place], found.feature[place]]
        np.testing.assert_allclose(measured, expected, atol=2e-6)


@pytest.mark.parametrize("boundaries", ["fixed", "adaptive", "random"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_recutting_on_the_rule_of_the_encoder_is_what_it_does_itself(config: ModelConfig, boundaries: str) -> None:
    model = encoder(replace(config, boundaries=boundaries))
    batch = model.patch(model.scale(stack(signals())))
    again = recut(batch, family(batch, model.config, boundaries), model.config)
    assert torch.equal(again.scaffold.starts, batch.scaffold.starts)
    assert torch.equal(again.patches, batch.patches)
    torch.testing.assert_close(again.geometry.descriptors, batch.geometry.descriptors)
    torch.testing.assert_close(again.geometry.evidence, batch.geometry.evidence)


def test_the_same_observation_does_not_drift() -> None:
    found = drift(encoder(), signals(), signals(), "adaptive")
    assert not np.stack([found.total, found.boundary, found.feature, found.shift, found.moved]).any()
    assert not found.share.any()


def test_the_share_of_boundary_drift() -> None:
    zero = np.zeros(3)
    found = Drift(zero, np.asarray([0.0, 1.0, 3.0]), np.asarray([0.0, 1.0, 1.0]), zero, zero)
    assert found.share.tolist() == [0.0, 0.5, 0.75]


def test_curves_have_a_finding_for_each_strength_and_rise() -> None:
    found = drift_curves(encoder(), signals(), "adaptive", {"warp": (0.0, 0.02, 0.1), "gain": (0.4,)}, "shared")
    told = [(one.setting["kind"], one.setting["strength"]) for one in found]
    assert told == [("warp", 0.0), ("warp", 0.02), ("warp", 0.1), ("gain", 0.4)]
    totals = [one.values["total_mean"] for one in found[:3]]
    assert totals[0] == 0 < totals[1] < totals[2]
    assert all(one.values["violations"] == 0 and one.values["apart"] > 0 and one.count == 6 for one in found)
    assert {one.setting["weights"] for one in found} == {"shared"}


def test_other_observations_are_what_they_say() -> None:
    signal = Signal.from_array(np.ones((100, 1)), id="one")
    assert gained(signal, 0.4).values[25, 0] == pytest.approx(1.4)
    assert (noisy(signal, 0.3).values == 1).all(), "a channel that is flat has no spread"
    wave = Signal.from_array(np.sin(np.arange(4000.0))[:, None], id="wave")
    assert np.std(noisy(wave, 0.3).values - wave.values) == pytest.approx(0.3 * np.std(wave.values), rel=0.05)
    assert not np.array_equal(noisy(wave, 0.3, 0).values, noisy(wave, 0.3, 1).values)


def test_what_cannot_be_measured_is_refused() -> None:
    model, first = encoder(), signals()
    with pytest.raises(SignalError, match="equal lengths"):
        drift(model, first, first[::-1], "fixed")
    with pytest.raises(SignalError, match="at least one pair"):
        drift(model, [], [], "fixed")
    with pytest.raises(ConfigError, match="rule must be one of"):
        drift(model, first, first, "random")
    with pytest.raises(ConfigError, match="kind must be one of"):
        drift_curves(model, first, "fixed", {"shuffle": (1.0,)})
    for kind, strength in (("warp", 0.2), ("gain", 1.0), ("noise", -0.1), ("noise", float("nan"))):
        with pytest.raises(ConfigError, match=f"{kind} strength"):
            drift_curves(model, first, "fixed", {kind: (strength,)})
