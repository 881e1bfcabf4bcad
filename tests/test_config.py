"""Laws of the settings: each lives in one place, a conflict is an error that names both, and digests stay."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from geopatch.config import PRESETS, ModelConfig, PatchConfig, TrainConfig, check_reconstruction
from geopatch.errors import ConfigError
from geopatch.estimator import GeoPatch
from geopatch.evaluate.rows import config_digest

MODEL = ModelConfig(halves=("learned",), patch_length=4, max_patches=4, width=16, embedding=8, layers=1, heads=1)
X = np.cumsum(np.random.default_rng(0).normal(size=(6, 14)), axis=1)


def tiny(**changes: Any) -> GeoPatch:
    return GeoPatch(**{"model": MODEL, "max_steps": 1, "device": "cpu", **changes})


def test_a_seed_is_no_setting_of_the_training() -> None:
    """It is `random_state` of the estimator, and stands nowhere else."""
    with pytest.raises(TypeError, match="seed"):
        TrainConfig(seed=7)  # type: ignore[call-arg]
    assert tiny(random_state=7).fit(X).card_.train["seed"] == 7


def test_fewer_steps_than_the_least_lower_the_least() -> None:
    assert TrainConfig(max_steps=100).steps(10_000) == 100
    assert TrainConfig(max_steps=100).min_steps == 100
    assert TrainConfig(max_steps=1400).min_steps == TrainConfig().min_steps == 1200
    with pytest.raises(ConfigError, match="max_steps is 100 and min_steps 200"):
        TrainConfig(min_steps=200, max_steps=100)
    with pytest.raises(ConfigError, match="max_steps must be at least 1, got 0"):  # names what was set
        TrainConfig(max_steps=0)


def test_a_preset_beside_a_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"preset='paper' and model=ModelConfig\(.*are both given"):
        tiny(preset="paper").fit(X)


@pytest.mark.parametrize(("kind", "weight"), [("operator", 0.0), ("head", 0.0), ("none", 0.1)])
def test_a_reconstruction_and_its_weight_go_together(kind: str, weight: float) -> None:
    model, train = dataclasses.replace(MODEL, reconstruction=kind), TrainConfig(max_steps=1, reconstruction=weight)
    with pytest.raises(ConfigError, match=f"reconstruction is {kind!r} and its weight.* is {weight:g}; set both"):
        GeoPatch(model=model, train=train, device="cpu").fit(X)
    check_reconstruction(dataclasses.replace(model, reconstruction="head"), TrainConfig(reconstruction=0.1))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"width": 32}, r"width=32 and model\.width=16 are both given; give one of them"),
        ({"max_steps": 3, "train": TrainConfig(max_steps=2)}, r"max_steps=3 and train\.max_steps=2 are both given"),
        ({"model": ModelConfig(halves=("learned",), channels=3)}, r"model has channels=3, the signals have 1"),
    ],
)
def test_a_setting_in_two_places_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tiny(**parameters).fit(X)


def test_parameters_and_configs_make_one_setting() -> None:
    estimator = GeoPatch("paper", width=32, max_steps=50, train=TrainConfig(batch_size=16))
    assert estimator.model_config == dataclasses.replace(PRESETS["paper"], width=32)
    assert estimator.train_config == TrainConfig(max_steps=50, batch_size=16)
    assert GeoPatch().model_config == PRESETS["default"]
    assert GeoPatch().train_config == TrainConfig()
    assert GeoPatch(model=MODEL, dropout=0.5).model_config == dataclasses.replace(MODEL, dropout=0.5)


def test_the_digests_of_the_published_rows_stay() -> None:
    """Those of version 0.1, which knew no fixed kernels and one kind of view."""
    train = TrainConfig(robust_to=())
    learned = {name: dataclasses.replace(PRESETS[name], halves=("learned",)) for name in ("default", "paper")}
    digests = {name: config_digest(model, train) for name, model in learned.items()}
    assert digests == {"default": "a1f1333d18ff", "paper": "031d2a143b46"}
    others = [config_digest(PRESETS[name], train) for name in ("instant", "default")]
    assert len({*digests.values(), *others, config_digest(learned["default"], TrainConfig())}) == 5


def test_what_the_data_decides_is_no_setting() -> None:
    default = PRESETS["default"]
    assert config_digest(dataclasses.replace(default, length=99, channels=3)) == config_digest(default)
    assert config_digest(dataclasses.replace(default, kernel_share=0.3)) != config_digest(default)
    instant = PRESETS["instant"]
    assert config_digest(dataclasses.replace(instant, kernel_share=0.3)) == config_digest(instant)


def test_the_preset_follows_the_labels() -> None:
    for name, config in PRESETS.items():
        assert GeoPatch(name).model_config == config
    with pytest.raises(ConfigError, match="preset must be one of instant, default, paper, got 'large'"):
        GeoPatch("large").fit(X)


@pytest.mark.parametrize("name", ["layers", "max_steps", "batch_size", "learning_rate", "temperature"])
def test_a_setting_of_the_trained_half_without_one_is_refused(name: str) -> None:
    for estimator in (GeoPatch().set_params(**{name: 2}), GeoPatch("instant").set_params(**{name: 2})):
        with pytest.raises(ConfigError, match=rf"{name}=2 is for the half that is trained.* give labels or preset="):
            estimator.fit(X)


@pytest.mark.parametrize("kind", [PatchConfig, ModelConfig, TrainConfig])
def test_every_setting_has_a_help_text(kind: type) -> None:
    for field in dataclasses.fields(kind):
        assert field.metadata["help"].endswith(".")


@pytest.mark.parametrize("module", ["geopatch.config", "geopatch.cli.options", "geopatch.cli.fit"])
def test_settings_and_flags_load_nothing_heavy(module: str) -> None:
    code = (
        f"import sys, {module}; print(*({{'torch', 'numpy', 'sklearn', 'scipy', 'polars', 'rich'}} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
