"""Every public name explains itself: numpydoc's own validation, examples that run, and help for every verb and flag."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import click
import pytest
from numpydoc.validate import validate

import geopatch
from geopatch.cli.app import geopatch as program

PACKAGES = ["geopatch", *(f"geopatch.{one.name}" for one in iter_modules(geopatch.__path__) if one.ispkg)]
EXPLAINED = [name for name in geopatch.__all__ if name != "__version__"]

# No docstring; no summary; parameters that are not documented, not there, or without a type; no Returns; no Yields.
SUMMARY = {"GL08", "SS01"}
SECTIONS = SUMMARY | {"PR01", "PR02", "PR04", "RT01", "YD01"}


def members(owner: type) -> Iterator[str]:
    """The public methods and properties that our own classes define, also those inherited from one of ours."""
    for name in dir(owner):
        if name.startswith("_"):
            continue
        home = next((base for base in owner.__mro__ if name in vars(base)), None)
        value = inspect.getattr_static(owner, name)
        is_member = isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value)
        if home is not None and home.__module__.split(".")[0] == "geopatch" and is_member:
            yield name


def public_names() -> Iterator[str]:
    """Full names, each thing once: under the shortest package that exports it."""
    seen: set[int] = set()
    for package in PACKAGES:
        module: ModuleType = import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isfunction(value)) or id(value) in seen:
                continue
            seen.add(id(value))
            yield f"{package}.{name}"
            if inspect.isclass(value):
                yield from (f"{package}.{name}.{member}" for member in members(value))


def is_property(name: str) -> bool:
    owner, _, member = name.rpartition(".")
    package, _, last = owner.rpartition(".")
    value = getattr(import_module(package), last, None) if package else None
    return inspect.isclass(value) and isinstance(inspect.getattr_static(value, member), property)


@pytest.mark.parametrize("name", list(public_names()))
def test_a_public_name_has_a_numpydoc_docstring(name: str) -> None:
    codes = SUMMARY if is_property(name) or name == "geopatch.engines.Engine" else SECTIONS  # a Protocol is not made
    faults = [f"{code}: {text}" for code, text in validate(name)["errors"] if code in codes]
    assert not faults, f"{name}\n" + "\n".join(faults)


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_name_of_the_package_has_an_example_that_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warnings are errors here, as in every test."""
    monkeypatch.chdir(tmp_path)
    value = getattr(geopatch, name)
    text = inspect.getdoc(value) or ""
    assert re.search(r"^Examples\n-+$", text, re.MULTILINE), f"{name} has no section Examples"
    example = doctest.DocTestParser().get_doctest(text, dict(vars(import_module(value.__module__))), name, None, 0)
    assert example.examples, f"the section Examples of {name} has no line that starts with >>>"
    said: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    results = doctest.DocTestRunner(optionflags=flags).run(example, out=said.append)
    assert not results.failed, "".join(said)


def commands(command: click.Command, path: str, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, f"{path} {name}", click.Context(inner, info_name=name, parent=context))


COMMANDS = dict(commands(program, "geopatch", click.Context(program, info_name="geopatch")))


def explains(text: str | None) -> bool:
    """At least three words, and more than the place of a setting with its default."""
    return text is not None and len(text.split()) >= 3 and not re.match(r"\[\w+\]\s+default\b", text)


@pytest.mark.parametrize("path", COMMANDS)
def test_a_verb_and_its_options_have_help(path: str) -> None:
    command = COMMANDS[path]
    assert explains(command.help), f"{path}: {command.help!r}"
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    mute = [f"{path} {one.opts[0]}: {one.help!r}" for one in options if not explains(one.help)]
    assert not mute, "\n" + "\n".join(mute)


@pytest.mark.parametrize(
    ("text", "enough"),
    [(None, False), ("Only these; all.", True), ("Seed.", False), ("[train] default 0.05", False)],
)
def test_what_counts_as_help(text: str | None, enough: bool) -> None:
    assert explains(text) is enough
