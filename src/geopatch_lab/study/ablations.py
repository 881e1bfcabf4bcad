"""The ablations: each is the learned half of the default with one thing changed, so that a difference has one cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from geopatch.config import DESCRIPTORS, PRESETS, ModelConfig, TrainConfig
from geopatch.errors import one_of

FULL = "learned"  # the learned half of the default, alone: what is changed
INSTANT = "instant"
RECONSTRUCTION = 0.1  # weight of the loss where it is switched on


@dataclass(frozen=True)
class Setting:
    """What is trained and how."""

    model: ModelConfig
    train: TrainConfig


Change = Callable[[Setting], Setting]


def _model(**changed: Any) -> Change:
    return lambda setting: replace(setting, model=replace(setting.model, **changed))


def _train(**changed: Any) -> Change:
    return lambda setting: replace(setting, train=replace(setting.train, **changed))


def _minus(descriptor: str) -> Change:
    return _model(descriptors=tuple(name for name in DESCRIPTORS if name != descriptor))


def _stride_of_a_patch(setting: Setting) -> Setting:
    return _model(stride=setting.model.patch_length)(setting)


def _other_aggregate(setting: Setting) -> Setting:
    return _model(aggregate="set" if setting.model.aggregate == "ordered" else "ordered")(setting)


def _operator(setting: Setting) -> Setting:
    return _train(reconstruction=RECONSTRUCTION)(_model(reconstruction="operator")(setting))


ABLATIONS: dict[str, Change] = {  # of the paper's design
    "boundaries-adaptive": _model(boundaries="adaptive"),
    "boundaries-random": _model(boundaries="random"),
    "stride-of-a-patch": _stride_of_a_patch,
    "K-8": _model(max_patches=8),
    "K-32": _model(max_patches=32),
    "l-8": _model(patch_length=8),
    "l-32": _model(patch_length=32),
    "no-geometry": _model(fuse="none"),
    "minus-slope": _minus("slope"),
    "minus-curvature": _minus("curvature"),
    "minus-acceleration": _minus("acceleration"),
    "minus-residual": _minus("residual"),
    "minus-confidence": _minus("confidence"),
    "minus-position": _minus("position"),
    "curvature-channel": _model(curvature_channel=True),
    "fuse-concat": _model(fuse="concat"),
    "fuse-gated": _model(fuse="gated"),
    "no-gate": _model(gate=False),
    "no-decorrelation": _train(decorrelation=0.0),
    "other-aggregate": _other_aggregate,
    "attention-encoder": _model(patch_encoder="attention"),
    "operator-reconstruction": _operator,
}
UNDONE: dict[str, Change] = {  # what this project adds to the paper's design, taken away again
    "patch-only-stem": _model(stem="patch"),
    "zscore-only": _model(amplitude="zscore"),
}
ALL_ABLATIONS = {**ABLATIONS, **UNDONE}
WITHOUT_LABELS = (INSTANT,)  # get none, even where there are some
BEFORE: dict[str, ModelConfig] = {  # no fixed kernels, and views with a clock alone: what version 0.1 was
    FULL: replace(PRESETS["default"], halves=("learned",)),
    "paper": PRESETS["paper"],
}
ENCODERS = ("default", INSTANT, *BEFORE, *ALL_ABLATIONS)


def setting(name: str, train: TrainConfig | None = None) -> Setting:
    """A preset, the learned half alone, or an ablation of it, by its name."""
    one_of("encoder", name, ENCODERS)
    train = train or TrainConfig()
    if name in PRESETS and name not in BEFORE:
        return Setting(PRESETS[name], train)
    train = replace(train, robust_to=())
    if name in BEFORE:
        return Setting(BEFORE[name], train)
    return ALL_ABLATIONS[name](Setting(BEFORE[FULL], train))
