"""Flags that several verbs share, and flags made from the fields of a config."""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from geopatch.config import PRESETS, TRAIN_PRESETS, ModelConfig, TrainConfig
from geopatch.errors import ConfigError, GeoPatchError, one_of

Command = TypeVar("Command", bound=Callable[..., Any])

FILLED_FROM_DATA = ("channels", "length", "patch_count", "bands")
OF_KERNELS = {  # what fixed kernels alone look at
    "model_": (
        *("halves", "prior_windows", "amplitude", "patch_length", "max_patches", "patch_budget", "stride"),
        *("width", "embedding", "clock_share", "rhythm", "surroundings"),
    ),
    "train_": ("warp", "shift", "amplitude", "noise", "robust_to"),
}
TRAIN_NAMES = {"amplitude": "view-amplitude", "reconstruction": "reconstruction-weight"}  # the model has these, too

preset = click.option(
    "--preset",
    type=click.Choice(tuple(PRESETS)),
    show_default="default with labels, instant without",
    help="Encoder to start from: fixed kernels alone (instant), these and a trained half (default), or the paper's.",
)
device = click.option(
    "--device", default="auto", show_default=True, help="Where to compute: auto, cpu, cuda or cuda:N."
)
devices = click.option(
    "--devices", default=1, show_default=True, help="How many GPUs (or CPU processes) train together."
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
target = click.option(
    "--target", help="What makes two windows alike: class, subject, beat, rhythm, rate, prompt or speaker."
)
data_root = click.option(
    "--data-root",
    envvar="GEOPATCH_DATA",
    default=".",
    show_default="the folder you are in",
    type=click.Path(path_type=Path),
    help="Where data sets are looked for by name (or the variable GEOPATCH_DATA).",
)

cache = click.option(
    "--cache",
    envvar="GEOPATCH_CACHE",
    default="cache",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Folder for what is prepared (or the variable GEOPATCH_CACHE).",
)


def config_flags(command: Command) -> Command:
    """Every field of ModelConfig and TrainConfig as a flag; what is left out comes from the preset."""
    for prefix, kind in (("train", TrainConfig), ("model", ModelConfig)):
        hints = typing.get_type_hints(kind)
        for field in reversed(dataclasses.fields(kind)):
            if field.name not in FILLED_FROM_DATA:
                command = _flag(prefix, field, hints[field.name])(command)
    return command


def preset_for(preset: str | None, *, labelled: bool) -> str:
    """The preset of --preset, or the one for data with labels or without."""
    return preset or ("default" if labelled else "instant")


def model_config(preset: str, flags: Mapping[str, Any]) -> ModelConfig:
    """The preset with what flags change; a flag of the trained half is refused where there is none."""
    model = dataclasses.replace(PRESETS[preset], **_values("model_", flags))
    for prefix, names in () if model.is_trained else OF_KERNELS.items():
        for name in _values(prefix, flags).keys() - set(names):
            raise ConfigError(
                f"--{_flag_name(prefix, name)} is for the half that is trained, and fixed kernels alone (the preset "
                "instant, which is the one without labels) have none; leave it out, or give labels or --preset default"
            )
    return model


def train_config(flags: Mapping[str, Any], preset: str = "default") -> TrainConfig:
    """The training of a preset with what flags change."""
    return TrainConfig(**{**TRAIN_PRESETS.get(preset, {}), **_values("train_", flags)})


def complete_files(_context: click.Context, _option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Shell completion by the files that are there, for an argument that is a file or a name."""
    return [CompletionItem(incomplete, type="file")]


def check_place(path: Path) -> None:
    """Refuse before the work, not after it, a path that nothing can be written to."""
    _check_folder(path, path.absolute().parent)


def check_file_place(path: Path) -> None:
    check_place(path)
    _refuse_folder(path)


def check_figure(path: Path) -> None:
    """Refuse before the work a figure that could not be written after it."""
    one_of("the ending of --plot", path.suffix.lower(), (".png", ".svg"))
    check_file_place(path)


def check_new_model(path: Path) -> None:
    """Refuse a folder that is there: a model is not saved over anything."""
    if path.exists():
        raise GeoPatchError(f"{path} is there already; choose another --out")
    check_place(path)


def check_rows_place(path: Path) -> None:
    """Rows are added to a file; folders that lack on the way to it are made."""
    _refuse_folder(path)
    if path.exists() and not os.access(path, os.W_OK):
        raise GeoPatchError(f"cannot write {path}: no permission; give another path")
    _check_folder(path, next(folder for folder in path.absolute().parents if folder.exists()))


def _check_folder(path: Path, folder: Path) -> None:
    if not folder.is_dir():
        raise GeoPatchError(f"cannot write {path}: there is no folder {folder}; create it first or give another path")
    if not os.access(folder, os.W_OK):
        raise GeoPatchError(f"cannot write {path}: no permission to write in {folder}; give another path")


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise GeoPatchError(f"cannot write {path}: expected a file, but a folder is there; give another path")


def _values(prefix: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags of one config that were set, by the names of its fields."""
    own = {name[len(prefix) :]: value for name, value in flags.items() if name.startswith(prefix)}
    return {name: value for name, value in own.items() if value is not None}


def _flag(prefix: str, field: dataclasses.Field[Any], hint: Any) -> Callable[[Command], Command]:
    name = _flag_name(f"{prefix}_", field.name)
    destination, choices = f"{prefix}_{field.name}", field.metadata["choices"]
    help = f"{field.metadata['help']}{_default(prefix, field)}"
    if hint is bool:
        return click.option(f"--{name}/--no-{name}", destination, default=None, help=help)
    if hint == tuple[str, ...]:
        help = f"{field.metadata['help']} Of {', '.join(choices)}.{_default(prefix, field)}"
        return click.option(f"--{name}", destination, callback=_names, metavar="NAME,NAME,...", help=help)
    return click.option(f"--{name}", destination, type=click.Choice(choices) if choices else _plain(hint), help=help)


def _flag_name(prefix: str, field: str) -> str:
    name = field.replace("_", "-")
    return TRAIN_NAMES.get(name, name) if prefix == "train_" else name


def _default(prefix: str, field: dataclasses.Field[Any]) -> str:
    """The default as a help text shows it; that of another preset beside it where it differs."""
    if field.default is None:
        return ""
    presets: dict[str, Any] = PRESETS
    if prefix == "train":
        presets = {name: TrainConfig(**changes) for name, changes in TRAIN_PRESETS.items()}
    others = {name: getattr(config, field.name) for name, config in presets.items()}
    differing = [f"; {name}: {_shown(value)}" for name, value in others.items() if value != field.default]
    default = "all" if field.default == field.metadata["choices"] else _shown(field.default)
    return f"  [default: {default}{''.join(differing)}]"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(value) or "none" if isinstance(value, tuple) else str(value)


def _plain(hint: Any) -> Any:
    """int | None -> int."""
    if isinstance(hint, types.UnionType):
        return next(kind for kind in typing.get_args(hint) if kind is not type(None))
    return hint


def _names(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(name for name in value.split(",") if name)


def seed_list(text: str) -> list[int]:
    """'0-2' or '0,1,2' -> [0, 1, 2]."""
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        try:
            numbers = range(int(first), int(last or first) + 1)
        except ValueError as error:
            raise ConfigError(f"seeds must look like 0-2 or 0,1,2, got {text!r}") from error
        if not numbers:
            raise ConfigError(f"seeds must name at least one, got {part!r}; the smaller comes first")
        seeds.extend(numbers)
    return seeds
