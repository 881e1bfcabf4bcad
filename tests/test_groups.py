"""Groups: level and scale chosen on groups that were left out, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from geopatch.config import ModelConfig, TrainConfig
from geopatch.errors import SignalError
from geopatch.estimator import GeoPatch
from geopatch.kernels import fitting
from geopatch.patches import stack
from geopatch.signal import Signal
from geopatch.train.amplitude import choose_amplitude

SMALL: dict[str, Any] = {"embedding": 8, "width": 16, "device": "cpu"}


@pytest.fixture(autouse=True)
def few_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick fits: what is tested does not depend on how many views there are."""
    for name, value in {"VIEWS": 400, "MAX_VIEWS": 8, "SAMPLE_VIEWS": 128, "TOKEN_VIEWS": 60, "RANK": 32}.items():
        monkeypatch.setattr(fitting, name, value)


def shapes(groups: int = 6, each: int = 8, *, level: float = 0.0) -> tuple[list[Signal], list[str], list[str]]:
    """Bumps of two kinds by several devices, each device with a level of its own."""
    draw = np.random.default_rng(0)
    signals, labels, devices = [], [], []
    for group in range(groups):
        for n in range(each):
            time = np.linspace(0, 1, 48) + draw.uniform(-0.05, 0.05)
            turns = 1 + n % 2
            values = np.sin(2 * np.pi * turns * time) + 0.1 * draw.normal(size=48) + level * group
            signals.append(Signal.from_array(values, id=f"{group}-{n}"))
            labels.append("one turn" if turns == 1 else "two turns")
            devices.append(f"device {group}")
    return signals, labels, devices


def numbers(names: list[str]) -> torch.Tensor:
    return torch.from_numpy(np.unique(names, return_inverse=True)[1].astype(np.int64))


def test_a_level_of_each_device_is_taken_away_where_other_devices_are_searched() -> None:
    signals, labels, devices = shapes(level=25.0)
    choice = choose_amplitude(stack(signals), numbers(labels), numbers(devices), ModelConfig(**_model()), TrainConfig())
    assert choice is not None
    assert choice.chosen == "zscore"
    assert choice.recall["zscore"] > choice.recall["keep"]
    assert choice.across_groups
    assert (choice.groups, choice.folds, choice.queries) == (6, 3, 48)


def test_a_level_that_tells_classes_apart_is_kept() -> None:
    draw = np.random.default_rng(1)
    signals = [Signal.from_array(draw.normal(size=40) + 9 * (n % 2), id=str(n)) for n in range(40)]
    labels, groups = torch.arange(40) % 2, torch.arange(40) // 10
    choice = choose_amplitude(stack(signals), labels, groups, ModelConfig(**_model()), TrainConfig())
    assert choice is not None
    assert choice.chosen == "keep"
    assert choice.recall["keep"] == 1.0


def test_where_each_group_has_labels_of_its_own_the_groups_left_out_are_searched_together() -> None:
    signals, _, devices = shapes(groups=4)
    groups = numbers(devices)
    choice = choose_amplitude(stack(signals), groups, groups, ModelConfig(**_model()), TrainConfig())
    assert choice is not None
    assert not choice.across_groups


def test_one_group_is_nothing_to_judge_by() -> None:
    signals, labels, _ = shapes(groups=2)
    nobody = torch.zeros(len(signals), dtype=torch.int64)
    assert choose_amplitude(stack(signals), numbers(labels), nobody, ModelConfig(**_model()), TrainConfig()) is None


def test_the_choice_and_its_evidence_stand_in_the_model_card(tmp_path: Path) -> None:
    signals, labels, devices = shapes(level=25.0)
    model = GeoPatch("instant", **SMALL).fit(signals, labels, groups=devices)
    assert model.encoder_.config.amplitude == "zscore"
    model.save(tmp_path / "model")
    card = GeoPatch.load(tmp_path / "model").card_
    assert card.choices["amplitude"]["chosen"] == "zscore"
    assert card.choices["amplitude"]["groups"] == 6
    assert card.data["groups"] == 6
    text = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "| amplitude chosen by | leave-groups-out, R@1 by the fixed kernels, mean over classes: keep " in text
    assert "(6 groups, 48 queries, searched in other groups) |" in text


@pytest.mark.parametrize("settings", [{"amplitude": "keep"}, {"amplitude": "zscore"}])
def test_what_was_set_is_not_chosen(settings: dict[str, Any]) -> None:
    signals, labels, devices = shapes(level=25.0)
    model = GeoPatch("instant", **SMALL, **settings).fit(signals, labels, groups=devices)
    assert model.encoder_.config.amplitude == settings["amplitude"]
    assert model.card_.choices == {}


def test_without_labels_or_groups_nothing_is_chosen() -> None:
    signals, labels, devices = shapes(groups=2, level=25.0)
    for model in (GeoPatch("instant", **SMALL).fit(signals, labels), GeoPatch(**SMALL).fit(signals, groups=devices)):
        assert model.encoder_.config.amplitude == "keep"
        assert model.card_.choices == {}


BAD_GROUPS: dict[str, tuple[Any, str]] = {
    "too few": (["a"] * 3, r"expected one group for each of 16 signals, got groups of shape \(3,\)"),
    "missing": ([None, *["a"] * 15], "groups must be of one kind|groups contain NaN or inf, or are missing"),
}


@pytest.mark.parametrize("name", BAD_GROUPS)
def test_groups_that_do_not_fit_are_refused(name: str) -> None:
    signals, labels, _ = shapes(groups=2)
    groups, message = BAD_GROUPS[name]
    with pytest.raises(SignalError, match=message):
        GeoPatch("instant", **SMALL).fit(signals, labels, groups=groups)


def _model() -> dict[str, Any]:
    return {"halves": ("kernels",), "embedding": 8, "width": 16}
