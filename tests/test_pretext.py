"""Laws of the six-tuple: masks, hidden spans, the same spans every time."""

from __future__ import annotations

import pytest
import torch

from geopatch.errors import ConfigError
from geopatch.patches import PatchBatch, PatchConfig, WindowBatch, patchify
from geopatch.train.pretext import PretextConfig, six_tuple

LABELS = torch.tensor([1, 0, 2])
SAMPLES = torch.tensor([4, 9, 2])


@pytest.fixture
def batch() -> PatchBatch:
    torch.manual_seed(0)
    lengths = torch.tensor([100, 40, 11])
    values = torch.randn(3, 100, 2)
    inside = torch.arange(100) < lengths[:, None]
    return patchify(WindowBatch(values * inside[..., None], inside.float(), lengths), PatchConfig(max_patches=6))


def test_identity_shows_all_that_is_there(batch: PatchBatch) -> None:
    found = six_tuple(batch, LABELS, SAMPLES)
    assert torch.equal(found.x_raw, found.y_raw)
    assert torch.equal(found.q, batch.inside & batch.valid[..., None])
    assert torch.equal(found.p, batch.valid)
    assert torch.equal(found.label, LABELS)


@pytest.mark.parametrize("hidden", [0.0, 0.25, 0.5])
def test_masks_hold_everywhere(batch: PatchBatch, hidden: float) -> None:
    found = six_tuple(batch, LABELS, SAMPLES, PretextConfig(hidden))
    assert not found.q[~found.p].any()
    assert not found.x_raw[~found.q].any()
    assert not found.y_raw[~(batch.inside & found.p[..., None])].any()
    assert torch.equal(found.x_raw[found.q], found.y_raw[found.q])
    assert not found.g[~found.p].any()


def test_hidden_is_the_share_in_whole_spans(batch: PatchBatch) -> None:
    found = six_tuple(batch, LABELS, SAMPLES, PretextConfig(hidden=0.5, span=4))
    whole = batch.inside.all(-1)
    assert whole.any()
    assert (found.q[whole].sum(-1) == 8).all()
    spans = found.q[whole].view(-1, 4, 4)
    assert torch.equal(spans.any(-1), spans.all(-1))


def test_a_window_hides_the_same_wherever_it_stands(batch: PatchBatch) -> None:
    config = PretextConfig(hidden=0.25)
    order = torch.tensor([2, 0, 1])
    moved = patchify(batch.windows.rows(order), PatchConfig(max_patches=6))
    there, here = (
        six_tuple(which, LABELS, which_samples, config)
        for which, which_samples in ((batch, SAMPLES), (moved, SAMPLES[order]))
    )
    assert torch.equal(here.q, there.q[order])
    assert not torch.equal(there.q[0, 0], there.q[0, 1]) or not torch.equal(there.q[0], there.q[1])
    other = six_tuple(batch, LABELS, SAMPLES, PretextConfig(hidden=0.25, seed=1))
    assert not torch.equal(other.q, there.q)


@pytest.mark.parametrize("wrong", [{"hidden": -0.1}, {"hidden": 1.1}, {"span": 0}])
def test_bad_settings(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"must be at least"):
        PretextConfig(**wrong)  # type: ignore[arg-type]
