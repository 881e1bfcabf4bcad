"""Sound in the encoder: tokens of groups of bands against a naive twin, more of them for long windows, other tracts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import naive
import numpy as np
import numpy.typing as npt
import pytest
import torch

from geopatch.config import DISTORTIONS, ModelConfig
from geopatch.estimator import GeoPatch
from geopatch.evaluate.rows import config_digest
from geopatch.kernels import fitting
from geopatch.kernels.band_tokens import BAND_FEATURES, BAND_GROUPS, CHANGE_WEIGHT, PARTS, REACH, band_features
from geopatch.kernels.bank import draw_mixes
from geopatch.model import digest
from geopatch.patches import stack
from geopatch.signal import Signal
from geopatch.views import TRACT, MildClock, view

STILL = MildClock(0.0, 0.0, 0.0, 0.0)


@pytest.fixture(autouse=True)
def few_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick fits: what is tested does not depend on how many views there are."""
    for name, value in {"VIEWS": 200, "MAX_VIEWS": 8, "SAMPLE_VIEWS": 64, "TOKEN_VIEWS": 60, "RANK": 32}.items():
        monkeypatch.setattr(fitting, name, value)


def spoken(count: int = 6, length: int = 90, bands: int = 16, seed: int = 0, name: str = "mel") -> list[Signal]:
    """Smooth frames of sound, of unequal lengths."""
    draw = np.random.default_rng(seed)
    names = tuple(f"{name} {number}" for number in range(bands))
    walks = [np.cumsum(draw.normal(size=(length - 3 * n, bands)), axis=0).astype(np.float32) for n in range(count)]
    return [Signal((walk - walk.mean(0)) / walk.std(0), f"u{n}", 100.0, names) for n, walk in enumerate(walks)]


def naive_tokens(
    values: npt.NDArray[np.float64], centres: list[float], width: float, token: float
) -> npt.NDArray[np.float64]:
    """Values (C, T) read as steps: the mean of each group, and of its slope, in thirds of spans."""
    bands, length = values.shape
    groups = []
    for group in range(BAND_GROUPS):
        start, stop = group * bands // BAND_GROUPS, -(-(group + 1) * bands // BAND_GROUPS)
        groups.append(values[start:stop].mean(0))
    reach = round(REACH * token)
    span, scale = range(-reach, reach + 1), sum(k * k for k in range(-reach, reach + 1))
    held = [np.concatenate([[one[0]] * reach, one, [one[-1]] * reach]) for one in groups]
    slopes = [[sum(k * one[t + reach + k] for k in span) / scale for t in range(length)] for one in held]
    tracks = [*groups, *(CHANGE_WEIGHT * token * np.asarray(one) for one in slopes)]
    rows = []
    for centre in centres:
        row = []
        for track in tracks:
            for part in range(PARTS):
                low = centre + width * (part / PARTS - 0.5)
                row.append(naive.step_mean(track, low, low + width / PARTS))
        rows.append(row)
    return np.asarray(rows)


def test_tokens_of_bands_equal_their_naive_twin() -> None:
    values = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 20, 60)))
    valid = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    tokens = band_features(values, valid)
    assert tokens.shape == (2, 5, BAND_FEATURES)
    for row, count in enumerate((5, 3)):
        middles = [(number + 0.5) * 60 / count for number in range(count)]
        twin = naive_tokens(values[row].numpy(), middles, 2 * 60 / count, 60 / 5)
        np.testing.assert_allclose(tokens[row, :count].numpy(), twin, atol=1e-10)


def test_tokens_of_bands_depend_on_their_own_window_alone() -> None:
    signals = spoken()
    model = GeoPatch("instant", device="cpu").fit(signals)
    together, alone = model.encode(signals), model.encode(signals[2:3])
    assert model.encoder_.config.bands
    np.testing.assert_allclose(together.tokens[2], alone.tokens[0], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(alone.tokens[0], axis=1), 1, atol=1e-5)


def test_all_numbers_of_a_token_are_a_turn_of_its_features() -> None:
    signals = spoken(length=60)[:1]
    model = GeoPatch("instant", device="cpu").fit(spoken(length=60))
    half, encoder = model.encoder_.kernels, model.encoder_
    assert half is not None
    windows = encoder.scale(stack(signals))
    values = fitting.evened(half, windows).values.transpose(1, 2)
    scaffold = half.scaffold(windows.lengths)
    raw = band_features(values, scaffold.valid)[0].numpy()
    tokens = model.encode(signals).tokens[0]
    norm = np.linalg.norm(raw, axis=1)
    np.testing.assert_allclose(tokens @ tokens.T, raw @ raw.T / np.outer(norm, norm), atol=1e-4)


def test_a_saved_model_of_sound_reads_sound_alike(tmp_path: Path) -> None:
    signals = spoken()
    model = GeoPatch("instant", device="cpu").fit(signals)
    model.save(tmp_path / "model")
    loaded = GeoPatch.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(loaded.encode(signals).tokens, model.encode(signals).tokens)
    assert loaded.partial_fit(spoken(seed=1)).encode(signals).tokens.shape == model.encode(signals).tokens.shape


def test_bands_are_known_by_their_names_and_their_views_are_of_sound() -> None:
    sound, others = GeoPatch("instant", device="cpu"), GeoPatch("instant", device="cpu")
    assert sound.fit(spoken()).card_.train["robust_to"] == (*DISTORTIONS, "tract")
    assert others.fit(spoken(name="lead")).card_.train["robust_to"] == DISTORTIONS
    assert not others.encoder_.config.bands
    chosen = GeoPatch("instant", device="cpu", robust_to=("noise",)).fit(spoken())
    assert chosen.card_.train["robust_to"] == ("noise",)


def test_kernels_read_runs_of_neighbouring_bands() -> None:
    for row in draw_mixes(20, 0, neighbours=True).flatten(0, 1):
        places = row.nonzero().squeeze(1)
        assert (places.diff() == 1).all()
        assert float(row.square().sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("length", "unit", "settings", "expected"),
    [
        (256, 1024, {}, 16),
        (1024, 1024, {}, 16),
        (1025, 1024, {}, 17),
        (2048, 1024, {}, 32),
        (100_000, 1024, {}, 64),
        (100_000, 1024, {"patch_budget": 16}, 16),
        (100_000, 1024, {"max_patches": 80}, 80),
        (150, 100 * 2 / 3, {}, 36),
    ],
)
def test_patches_grow_with_the_length_within_their_budget(
    length: float, unit: float, settings: dict[str, Any], expected: int
) -> None:
    assert ModelConfig(**settings).patches_for(length, unit) == expected


def test_sound_has_more_tokens_and_short_windows_have_as_many_as_before() -> None:
    sound = GeoPatch("instant", device="cpu").fit(spoken(length=220))
    assert sound.encode(spoken(length=220)).tokens.shape[1] == 51  # 24 a second of the median window
    series = GeoPatch("instant", device="cpu").fit(spoken(length=220, name="lead"))
    assert series.encoder_.config.patch_count is None
    assert series.encode(spoken(length=220, name="lead")).tokens.shape[1] == 16


def test_settings_that_came_later_change_no_name_where_they_are_not_used() -> None:
    model = GeoPatch("instant", device="cpu").fit(spoken(name="lead"))
    assert not model.encoder_.config.bands
    before = digest(model.encoder_)
    model.encoder_.config = replace(model.encoder_.config, patch_count=20)
    assert digest(model.encoder_) != before
    assert config_digest(ModelConfig()) == config_digest(ModelConfig(patch_count=16))
    assert config_digest(ModelConfig()) != config_digest(ModelConfig(patch_budget=16))


def test_another_tract_reads_bands_higher_or_lower_and_moves_nothing_in_time() -> None:
    ramp = np.tile(np.arange(16.0, dtype=np.float32), (40, 1))
    windows = stack([Signal.from_array(ramp, id=str(n)) for n in range(200)])
    seen = view(windows, ("tract",), STILL, generator=torch.Generator().manual_seed(0)).windows.values
    factor = seen[:, 0, 5] / 5  # a ramp read at f c is f c
    expected = (factor[:, None] * torch.arange(16)).clamp(max=15)
    torch.testing.assert_close(seen, expected[:, None].expand_as(seen), atol=1e-4, rtol=1e-4)
    assert (factor.log().abs() <= TRACT + 1e-5).all()
    assert 0.3 < float((factor == 1).float().mean()) < 0.7  # half of the windows have no distortion
    assert float(factor.min()) < 0.9
    assert float(factor.max()) > 1.1


def test_one_token_spans_the_window() -> None:
    tokens = band_features(torch.ones(1, 16, 20), torch.ones(1, 1, dtype=torch.bool))
    torch.testing.assert_close(tokens[0, 0, : BAND_GROUPS * PARTS], torch.ones(BAND_GROUPS * PARTS))
    torch.testing.assert_close(tokens[0, 0, BAND_GROUPS * PARTS :], torch.zeros(BAND_GROUPS * PARTS))
