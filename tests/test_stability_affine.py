"""The affine gauge on real windows: what it may not change, what it would show if it did, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from geopatch.config import PatchConfig
from geopatch.data.sample import ecg_windows
from geopatch.errors import SignalError
from geopatch.geometry import affine_residual, local_residual
from geopatch.signal import Signal
from geopatch_lab.stability import affine, affine_findings


def test_no_gauge_changes_what_is_left() -> None:
    found = affine_findings(ecg_windows().signals[::90], PatchConfig())
    assert len(found) == len(affine.GAUGES)
    for one in found:
        assert one.values["change_max"] < 1e-9, one.setting
        assert one.values["size_median"] > 0.1, "there is something that could change"
        assert one.values["too_slow"] < 0.1


def test_a_residual_that_knows_its_unit_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affine, "local_residual", lambda tracks, weights: affine_residual(tracks, weights)[0])
    assert affine_findings(ecg_windows().signals[:2], PatchConfig())[-1].values["change_max"] > 0.5


def test_the_change_is_that_of_one_track() -> None:
    """A curve in one patch, by hand."""
    track = np.arange(16.0)[:, None] ** 2
    found = affine_findings([Signal.from_array(track)], PatchConfig(patch_length=16, max_patches=1))
    plain = local_residual(torch.from_numpy(track), torch.ones(16))
    assert found[0].values["size_median"] == pytest.approx(float(plain.abs().max()))
    assert [one.count for one in found] == [1] * len(affine.GAUGES)


def test_a_constant_has_no_rate_and_is_counted_as_such() -> None:
    for one in affine_findings([Signal.from_array(np.full((40, 2), 3.0))], PatchConfig()):
        assert one.values == {"change_max": 0.0, "size_median": 0.0, "too_slow": 1.0}


def test_a_gap_is_no_part_of_a_track() -> None:
    values = np.cumsum(np.random.default_rng(0).normal(size=(64, 1)), axis=0)
    values[20:30] = np.nan
    for one in affine_findings([Signal.from_array(values)], PatchConfig()):
        assert one.values["change_max"] < 1e-9


def test_no_windows_are_refused() -> None:
    with pytest.raises(SignalError, match="expected windows whose patches are tracks, got none"):
        affine_findings([], PatchConfig())
