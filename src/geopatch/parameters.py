"""What the parameters of an estimator come to: one config, one seed, one device; and those of a saved model."""

from __future__ import annotations

import dataclasses
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar

import torch
from sklearn.utils import check_random_state

from geopatch.config import DISTORTIONS, SOUND_DISTORTIONS, ModelConfig, TrainConfig
from geopatch.errors import CheckpointError, ConfigError, GeoPatchError
from geopatch.model.checkpoint import Card, PackedCheckpoint

LARGEST_SEED = 2**63 - 1

Config = TypeVar("Config", ModelConfig, TrainConfig)


def changed_config(config: Config, where: str, changes: dict[str, Any]) -> Config:
    """A config with some settings changed; one that it sets itself is refused."""
    kind = type(config)
    default = kind()
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    own = {name: value for name, value in values.items() if value != getattr(default, name)}
    for name in changes.keys() & own.keys():
        raise ConfigError(f"{name}={changes[name]!r} and {where}.{name}={own[name]!r} are both given; give one of them")
    return kind(**own, **changes)


def views_for(train: TrainConfig, model: ModelConfig) -> TrainConfig:
    """The settings with the views of sound among "all of them", where channels are bands of a spectrum."""
    if not model.bands or train.robust_to != DISTORTIONS:
        return train
    return dataclasses.replace(train, robust_to=(*DISTORTIONS, *SOUND_DISTORTIONS))


def seed_of(random_state: Any) -> int:
    """The number that random numbers start from; drawn where None or a RandomState is given."""
    if isinstance(random_state, Integral):
        seed = int(random_state)
        if not 0 <= seed <= LARGEST_SEED:
            raise ConfigError(f"random_state must lie within 0 and {LARGEST_SEED}, got {seed}")
        return seed
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError as error:
        raise ConfigError(
            f"random_state must be a whole number, a RandomState or None, got {random_state!r}"
        ) from error


def checked_card(card: Card, folder: str | Path | PackedCheckpoint) -> tuple[Card, TrainConfig]:
    """A card of this version or of 0.1, and the settings of its training."""
    try:
        before = {"robust_to": ()}  # version 0.1 had one kind of view
        settings = {name: value for name, value in (before | card.train).items() if name != "seed"}
        train, seed, data = TrainConfig(**settings), int(card.train.get("seed", 0)), dict(card.data)
        rate_hz = float(data["rate_hz"] or 1)
        if "channels" not in data:  # version 0.1 knew no names, and wrote a rate that it did not know as 1 Hz
            data |= {"channels": [], "rate_hz": None if rate_hz == 1 else rate_hz}
    except (GeoPatchError, TypeError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{folder}: the model card is not one of this version ({error}); save it again"
        ) from error
    return dataclasses.replace(card, train={**dataclasses.asdict(train), "seed": seed}, data=data), train


def device_of(name: str) -> torch.device:
    """The device of a name: "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}")
    usable = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= usable:
        raise ConfigError(f"this machine has {usable} usable CUDA GPU(s), not the device {name!r}; use auto")
    return device
