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

from geopatch.errors import ConfigError, GeoPatchError
from geopatch.model import PRESETS, ModelConfig
from geopatch.train import TrainConfig

Command = TypeVar("Command", bound=Callable[..., Any])
Config = TypeVar("Config", ModelConfig, TrainConfig)

FILLED_FROM_DATA = ("channels", "seed")

preset = click.option(
    "--preset", type=click.Choice(tuple(PRESETS)), default="default", show_default=True, help="Which encoder."
)
device = click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
devices = click.option(
    "--devices", default=1, show_default=True, help="Train on several GPUs (or CPU processes) at once."
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
    """Every field of ModelConfig and TrainConfig as a flag; what is not given comes from the preset."""
    for kind in (TrainConfig, ModelConfig):
        for field in reversed(dataclasses.fields(kind)):
            if field.name not in FILLED_FROM_DATA:
                command = _flag(kind, field)(command)
    return command


def model_config(preset: str, flags: Mapping[str, Any]) -> ModelConfig:
    return _changed(PRESETS[preset], "model_", flags)


def train_config(flags: Mapping[str, Any]) -> TrainConfig:
    return _changed(TrainConfig(), "train_", flags)


def check_place(path: Path) -> None:
    """Refuse before the work, not after it, a path that nothing can be written to."""
    _check_folder(path, path.absolute().parent)


def check_file_place(path: Path) -> None:
    check_place(path)
    _refuse_folder(path)


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


def _changed(config: Config, prefix: str, flags: Mapping[str, Any]) -> Config:
    given = {name[len(prefix) :]: value for name, value in flags.items() if name.startswith(prefix)}
    return dataclasses.replace(config, **{name: value for name, value in given.items() if value is not None})


def _flag(kind: type, field: dataclasses.Field[Any]) -> Callable[[Command], Command]:
    prefix = "model" if kind is ModelConfig else "train"
    name = field.name.replace("_", "-")
    flag = f"--{name}" if kind is ModelConfig else f"--{TRAIN_NAMES.get(name, name)}"
    hint = typing.get_type_hints(kind)[field.name]
    help = f"[{prefix}] default {_told(field.default)}"
    if hint is bool:
        return click.option(f"{flag}/--no-{name}", f"{prefix}_{field.name}", default=None, help=help)
    if hint == tuple[str, ...]:
        return click.option(flag, f"{prefix}_{field.name}", callback=_names, help=f"{help}, separated by commas")
    return click.option(flag, f"{prefix}_{field.name}", type=_plain(hint), default=None, help=help)


TRAIN_NAMES = {"amplitude": "view-amplitude", "reconstruction": "reconstruction-weight"}  # the model has these, too


def _plain(hint: Any) -> Any:
    """int | None -> int."""
    if isinstance(hint, types.UnionType):
        return next(kind for kind in typing.get_args(hint) if kind is not type(None))
    return hint


def _told(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _names(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(name for name in value.split(",") if name)


def seed_list(text: str) -> list[int]:
    """'0-2' or '0,1,2' -> [0, 1, 2]."""
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        try:
            found = range(int(first), int(last or first) + 1)
        except ValueError as error:
            raise ConfigError(f"seeds must look like 0-2 or 0,1,2, got {text!r}") from error
        if not found:
            raise ConfigError(f"seeds must name at least one, got {part!r}; the smaller comes first")
        seeds.extend(found)
    return seeds
