"""Laws of the losses: fast == double-loop twin, also where there is nothing to compare, and gradients stay finite."""

from __future__ import annotations

import math

import naive
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from geopatch.train.objective import classification, decorrelation, reconstruction, supervised_contrastive


def unit(*shape: int) -> Tensor:
    return F.normalize(torch.randn(shape, dtype=torch.float64), dim=-1)


def mask_of(*rows: int, size: int) -> Tensor:
    return torch.arange(size) < torch.tensor(rows)[:, None]


def own(queries: int, keys: int, first: int = 0) -> Tensor:
    """Query q is key first + q."""
    return torch.arange(keys) == torch.arange(queries)[:, None] + first


def finite_gradient(loss: Tensor, *inputs: Tensor) -> bool:
    found = torch.autograd.grad(loss, inputs)
    return all(bool(gradient.isfinite().all()) for gradient in found)


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 2, 2], [0] * 6, [0, 1, 2, 3, 4, 4], [0, 0, 0, 0, 0, 1]])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_contrast_equals_its_twin(labels: list[int], temperature: float) -> None:
    z, label, same = unit(6, 4), torch.tensor(labels), own(6, 6)
    found = supervised_contrastive(z, label, z, label, same, temperature).item()
    twin = naive.supervised_contrastive(z.numpy(), labels, z.numpy(), labels, same.numpy(), temperature)
    assert found == pytest.approx(twin, rel=1e-9)


@pytest.mark.parametrize("first", [0, 3])
def test_contrast_against_the_keys_of_all_processes(first: int) -> None:
    keys, labels, same = unit(6, 4), [0, 1, 0, 1, 0, 2], own(3, 6, first)
    query, asked = keys[first : first + 3], labels[first : first + 3]
    found = supervised_contrastive(query, torch.tensor(asked), keys, torch.tensor(labels), same, 0.5)
    twin = naive.supervised_contrastive(query.numpy(), asked, keys.numpy(), labels, same.numpy(), 0.5)
    assert found.item() == pytest.approx(twin, rel=1e-9)


def test_contrast_by_hand() -> None:
    """Two pairs at right angles: each query sees its partner at cosine 1 and two others at 0."""
    z, label = torch.eye(2).repeat(2, 1), torch.tensor([0, 1, 0, 1])
    found = supervised_contrastive(z, label, z, label, own(4, 4), 1.0)
    assert found.item() == pytest.approx(math.log((math.e + 2) / math.e))


@pytest.mark.parametrize("labels", [[0, 1, 2], [0]])
def test_contrast_without_positives_is_zero(labels: list[int]) -> None:
    z = unit(len(labels), 4).requires_grad_()
    label = torch.tensor(labels)
    loss = supervised_contrastive(z, label, z, label, own(len(labels), len(labels)), 0.1)
    assert loss.item() == 0
    assert len(labels) == 1 or finite_gradient(loss, z)


def test_contrast_does_not_hang_on_the_order() -> None:
    z, label, order = unit(8, 4), torch.randint(0, 3, (8,)), torch.randperm(8)
    first = supervised_contrastive(z, label, z, label, own(8, 8), 0.1)
    turned = supervised_contrastive(z[order], label[order], z[order], label[order], own(8, 8), 0.1)
    assert first.item() == pytest.approx(turned.item())


def test_contrast_draws_positives_together() -> None:
    label = torch.tensor([0, 0, 1, 1])
    near, far = torch.eye(4)[[0, 0, 1, 1]], torch.eye(4)[[0, 1, 0, 1]]
    assert supervised_contrastive(near, label, near, label, own(4, 4), 0.1) < 0.01
    assert supervised_contrastive(far, label, far, label, own(4, 4), 0.1) > 5


@given(counts=st.lists(st.integers(0, 5), min_size=1, max_size=4), width=st.integers(1, 4))
def test_decorrelation_equals_its_double_loop(counts: list[int], width: int) -> None:
    gated = torch.randn(
        len(counts), 5, width, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(counts))
    )
    valid = mask_of(*counts, size=5)
    twin = naive.decorrelation(gated.numpy(), valid.numpy())
    assert decorrelation(gated, valid).item() == pytest.approx(twin, abs=1e-9)


def test_decorrelation_of_scattered_tokens() -> None:
    gated, valid = torch.randn(2, 5, 3, dtype=torch.float64), torch.tensor([[1, 0, 1, 0, 1], [0, 0, 1, 1, 0]]).bool()
    assert decorrelation(gated, valid).item() == pytest.approx(naive.decorrelation(gated.numpy(), valid.numpy()))


@pytest.mark.parametrize("count", [0, 1])
def test_decorrelation_needs_two_tokens(count: int) -> None:
    gated = torch.randn(1, 5, 3, requires_grad=True)
    loss = decorrelation(gated, mask_of(count, size=5))
    assert loss.item() == 0
    assert finite_gradient(loss, gated)


def test_decorrelation_divides_by_all_windows_of_the_batch() -> None:
    """A window of one token counts as 0 in the mean, as in Eq. decorrelation."""
    gated = torch.ones(2, 3, 4)
    assert decorrelation(gated, mask_of(3, 1, size=3)).item() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [([[1.0, 0.0], [0.0, 1.0]], 0.0), ([[1.0, 0.0], [2.0, 0.0]], 1.0), ([[1.0, 0.0], [-3.0, 0.0]], 1.0)],
)
def test_decorrelation_by_hand(tokens: list[list[float]], expected: float) -> None:
    found = decorrelation(torch.tensor([tokens]), torch.ones(1, 2, dtype=torch.bool))
    assert found.item() == pytest.approx(expected, abs=1e-6)


def test_decorrelation_ignores_padded_tokens() -> None:
    gated, valid = torch.randn(2, 5, 3), mask_of(3, 2, size=5)
    assert torch.equal(decorrelation(gated, valid), decorrelation(gated.masked_fill(~valid[..., None], 9.0), valid))


def test_decorrelation_of_tokens_of_zero_is_finite() -> None:
    gated = torch.zeros(2, 4, 3, requires_grad=True)
    loss = decorrelation(gated, mask_of(4, 2, size=4))
    assert loss.item() == 0
    assert finite_gradient(loss, gated)


@pytest.mark.parametrize("channels", [1, 3])
def test_reconstruction_equals_its_twin(channels: int) -> None:
    rebuilt, target = torch.randn(2, 3, 4, channels), torch.randn(2, 3, 4, channels)
    inside = mask_of(4, 2, 0, 4, 1, 0, size=4).reshape(2, 3, 4)
    found = reconstruction(rebuilt, target, inside).item()
    twin = naive.reconstruction(rebuilt.double().numpy(), target.double().numpy(), inside.numpy())
    assert found == pytest.approx(twin, rel=1e-5)
    moved = rebuilt + (~inside[..., None]) * 100.0
    assert reconstruction(moved, target, inside).item() == found


def test_reconstruction_of_nothing_is_zero() -> None:
    assert reconstruction(torch.ones(1, 2, 3, 1), torch.zeros(1, 2, 3, 1), torch.zeros(1, 2, 3).bool()).item() == 0


def test_classification_is_cross_entropy_over_cosines() -> None:
    embedding, prototypes, labels = unit(5, 4), torch.randn(3, 4), torch.tensor([0, 1, 2, 0, 1])
    found = classification(embedding.float(), prototypes, labels, 0.1).item()
    directions = prototypes.numpy() / np.linalg.norm(prototypes.numpy(), axis=1, keepdims=True)
    losses = []
    for z, label in zip(embedding.numpy(), labels.tolist(), strict=True):
        scores = [math.exp(naive.dot(z, direction) / 0.1) for direction in directions]
        losses.append(-math.log(scores[label] / sum(scores)))
    assert found == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    assert classification(embedding.float(), 7 * prototypes, labels, 0.1).item() == pytest.approx(found, rel=1e-5)
