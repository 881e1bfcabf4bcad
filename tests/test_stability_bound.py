"""The descriptor bound: constants that are known exactly, and a bound that holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from geopatch.config import ModelConfig
from geopatch.errors import ConfigError, SignalError
from geopatch.model.encoder import Encoder
from geopatch.patches import stack
from geopatch.signal import Signal
from geopatch_lab.stability.bound import CONSTANTS, LEVELS, bound_sweep, displacements, measured_set, noise, tightness
from geopatch_lab.stability.lipschitz import Pathway, jacobians, norms, pathway, steepness

SMALL = ModelConfig(
    halves=("learned",), channels=2, patch_length=8, max_patches=5, width=16, embedding=8, layers=1, heads=1
)
SIZES = {"B": 6, "K": 4, "G": 3, "d": 5, "D": 7}


def linear_pathway(seed: int = 0) -> tuple[Pathway, list[float]]:
    """An encoder of matrices, whose constants are their spectral norms; every second window lacks a patch."""
    torch.manual_seed(seed)
    B, K, G, d, D = SIZES.values()
    W, V, U = (torch.randn(size, dtype=torch.float64) for size in ((G, d), (d, d), (d, D)))
    valid = torch.ones(B, K, dtype=torch.bool)
    valid[::2, -1] = False
    opening = torch.rand(B, K, dtype=torch.float64) * valid
    offset = 20 * torch.randn(B, D, dtype=torch.float64)

    def head(gated: Tensor) -> Tensor:
        return (gated @ U * valid[..., None]).sum(1) / valid.sum(1, keepdim=True) + offset

    g = torch.randn(B, K, G, dtype=torch.float64) * valid[..., None]
    path = Pathway(g, opening, valid, lambda x: x @ W, lambda c: c @ V, head)
    return path, [float(torch.linalg.matrix_norm(matrix, 2)) for matrix in (W, V, U)]


def test_the_constants_of_a_linear_encoder_are_those_of_its_matrices() -> None:
    path, (gamma, f, A) = linear_pathway()
    found = steepness(path)
    assert found.gamma[path.valid].tolist() == pytest.approx([gamma] * int(path.valid.sum()))
    assert found.f[path.valid].tolist() == pytest.approx([f] * int(path.valid.sum()))
    assert found.A.tolist() == pytest.approx([A] * len(path.valid)), "|M| times a block of U / |M|"
    heads = path.head(path.tokens(path.descriptors))
    torch.testing.assert_close(found.N, 1 / heads.norm(dim=1))
    assert not found.gamma[~path.valid].any()


def test_the_whole_is_the_jacobian_of_the_embedding() -> None:
    path, _ = linear_pathway()
    found = steepness(path)
    direct = norms(jacobians(path.embedding, path.descriptors)) * path.valid.sum(1, keepdim=True)
    torch.testing.assert_close(found.whole * path.opening, direct)


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_holds_on_a_linear_encoder(seed: int) -> None:
    path, known = linear_pathway(seed)
    found = measured_set([path], 0.4)
    assert [found.maximum.gamma, found.maximum.f, found.maximum.A] == pytest.approx(known)
    assert found.least <= found.maximum.product
    for eta in (0.05, 0.4):
        for one in tightness(found, eta, 200):
            if one.setting["constants"] == "maximum" or one.setting["level"] == "token":
                assert one.values["violations"] == 0, one.setting
                assert 0 < one.values["median"] <= one.values["p90"] <= one.values["max"] <= 1 + 1e-9


def test_one_number_wide_the_token_bound_is_met() -> None:
    """With one descriptor and one feature there is one direction: what is observed is what is allowed."""
    valid = torch.ones(3, 2, dtype=torch.bool)
    g = torch.randn(3, 2, 1, dtype=torch.float64)
    path = Pathway(g, torch.full((3, 2), 0.5), valid, lambda x: 3 * x, lambda c: -2 * c, lambda z: z.mean(1) + 4)
    for one in tightness(measured_set([path], 0.1), 0.1, 6):
        if one.setting["level"] == "token":
            assert [one.values[name] for name in ("median", "mean", "p90")] == pytest.approx([1, 1, 1])


def test_displacements_equal_their_twin() -> None:
    path, _ = linear_pathway()
    own = steepness(path)
    delta = noise(path, torch.ones(SIZES["G"], dtype=torch.float64) * 0.1, (1, 2, 3))
    assert not delta[~path.valid].any()
    found = displacements(path, own, delta)
    before = path.embedding(path.descriptors)
    patches = []
    for b in range(SIZES["B"]):
        inside = [k for k in range(SIZES["K"]) if path.valid[b, k]]
        moved = path.embedding(path.descriptors + delta)[b]
        assert float(found["window"].observed[b]) == pytest.approx(float((moved - before[b]).norm()))
        mean = sum(float(path.opening[b, k] * delta[b, k].norm()) for k in inside) / len(inside)
        assert float(found["window"].weighted[b]) == pytest.approx(mean)
        for k in inside:
            alone = torch.zeros_like(delta)
            alone[b, k] = delta[b, k]
            patches.append(float((path.embedding(path.descriptors + alone)[b] - before[b]).norm()))
    assert found["patch"].observed.tolist() == pytest.approx(patches)


def test_jacobians_equal_those_of_autograd() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 5)).double()
    x = torch.randn(2, 3, 3, dtype=torch.float64)
    found = jacobians(net, x)
    for b in range(2):
        for k in range(3):
            exact = torch.autograd.functional.jacobian(net, x[b, k])
            torch.testing.assert_close(found[b, k], exact)
            torch.testing.assert_close(norms(found)[b, k], torch.linalg.matrix_norm(exact, 2))


def signals(count: int = 4) -> list[Signal]:
    rng = np.random.default_rng(0)
    return [Signal.from_array(np.cumsum(rng.normal(size=(50 + 9 * n, 2)), axis=0), id=f"w{n}") for n in range(count)]


def encoder(config: ModelConfig) -> Encoder:
    torch.manual_seed(0)
    made = Encoder(config).eval()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made


CONFIGS = {
    "default": SMALL,
    "paper": replace(SMALL, stem="patch", patch_encoder="cnn", amplitude="zscore", global_branch=False),
    "set, attention, no gate": replace(SMALL, aggregate="set", patch_encoder="attention", gate=False),
    "gated, level and scale": replace(SMALL, fuse="gated", amplitude="both"),
    "concat": replace(SMALL, fuse="concat"),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_pathway_is_the_encoder(config: ModelConfig) -> None:
    model = encoder(config)
    path = pathway(model, signals())
    assert model.learned is not None
    with torch.inference_mode():
        expected = model.learned(model.patch(model.scale(stack(signals()))))
    torch.testing.assert_close(path.embedding(path.descriptors).float(), expected.embedding, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(path.tokens(path.descriptors).float(), expected.gated, atol=2e-5, rtol=1e-4)
    assert next(model.parameters()).dtype == torch.float32, "the encoder itself stays as it was"


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_sweep_has_every_level_and_kind_and_the_factors_multiply(config: ModelConfig) -> None:
    constants, *found = bound_sweep(encoder(config), signals(), (0.05, 0.2), 40)
    assert len(found) == 2 * len(LEVELS) * len(CONSTANTS)
    product = np.prod([constants.values[f"maximum_{name}"] for name in ("gamma", "f", "A", "N")])
    assert constants.values["maximum_product"] == pytest.approx(product)
    assert constants.values["least"] <= constants.values["maximum_product"] * (1 + 1e-9)
    small, large = (
        next(one for one in found if one.setting == {"eta": eta, "level": "patch", "constants": "maximum"})
        for eta in (0.05, 0.2)
    )
    assert small.count >= 40
    assert large.values["bound_median"] > 2 * small.values["bound_median"]


def test_what_cannot_be_bounded_is_refused() -> None:
    with pytest.raises(ConfigError, match="takes no geometry"):
        pathway(encoder(replace(SMALL, fuse="none")), signals())
    with pytest.raises(SignalError, match="needs windows"):
        bound_sweep(encoder(SMALL), [])
    path, _ = linear_pathway()
    with pytest.raises(ConfigError, match="patches must be"):
        tightness(measured_set([path], 0.1), 0.1, 0)
    with pytest.raises(ConfigError, match="eta must be"):
        tightness(measured_set([path], 0.1), 0.0)
