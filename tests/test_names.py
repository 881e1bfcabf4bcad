"""Names of both packages: every class has its own, and words that say nothing about the thing stay retired."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"
PACKAGES = ("geopatch", "geopatch_lab")
SOURCES = sorted(path for package in PACKAGES for path in (SRC / package).rglob("*.py"))
SCRIPTS = sorted(path for path in (SRC / "geopatch/server/page").glob("*.js") if path.name != "uplot.js")

# Each says how a value came or where it lies, not what it is. `at_once` is two parts in a row.
RETIRED = frozenset(
    ["found", "told", "asked", "given", "wish", "wishes", "desk", "shelf", "sureness", "looks", "few", "tail"]
) | {"at_once"}
RETIRED_CLASSES = frozenset(
    ["Asked", "Desk", "Given", "Question", "Shelf", "Sureness", "Tail", "Told", "Wish", "Wishes"]
)
JS_NAME = re.compile(
    r"\b(?:const|let|var|function|class)\s+(\w+)"  # declarations
    r"|[,{(]\s*(\w+)\s*(?=[:=,)}])"  # parameters, keys, parts of a destructured value
    r"|\.(\w+)\b"  # attributes
)


def retired_in(name: str) -> list[str]:
    """The retired words in an identifier: snake_case parts, camelCase humps, and a class name as a whole."""
    if name in RETIRED_CLASSES:
        return [name]
    parts = [part.lower() for part in re.split(r"_+", name) if part]
    pairs = {f"{one}_{two}" for one, two in pairwise(parts)}
    return sorted(RETIRED & ({*parts} | pairs))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def python_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every identifier that the code itself declares or uses, with its line."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Name):
            yield line, node.id
        elif isinstance(node, ast.Attribute):
            yield line, node.attr
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield line, node.name
        elif isinstance(node, ast.arg | ast.keyword) and node.arg:
            yield line, node.arg
        elif isinstance(node, ast.alias):
            yield line, (node.asname or node.name).rsplit(".", 1)[-1]
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield line, node.name
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield from ((line, name) for name in node.names)


def javascript_names(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("//", 1)[0]
        yield from ((number, name) for names in JS_NAME.findall(code) for name in names if name)


def faults_of(path: Path) -> list[str]:
    is_script = path.suffix == ".js"
    names = javascript_names(path.read_text(encoding="utf-8")) if is_script else python_names(tree_of(path))
    place = path.relative_to(SRC)
    return [f"{place}:{line}: {name} ({word})" for line, name in sorted({*names}) for word in retired_in(name)]


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for path in SOURCES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(SRC)}:{node.lineno}")
    shared = [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]
    assert not shared, "\n" + "\n".join(shared)


@pytest.mark.parametrize("path", [*SOURCES, *SCRIPTS], ids=lambda path: str(path.relative_to(SRC)))
def test_no_identifier_has_a_retired_word(path: Path) -> None:
    faults = faults_of(path)
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("found", ["found"]),
        ("was_told", ["told"]),
        ("AT_ONCE", ["at_once"]),
        ("rows_at_once", ["at_once"]),
        ("Tail", ["Tail"]),
        ("_FEW_WINDOWS", ["few"]),
        ("NotFoundError", []),
        ("details", []),
        ("once", []),
        ("curtail", []),
    ],
)
def test_retired_words_are_recognised_as_parts_of_names(name: str, words: list[str]) -> None:
    assert retired_in(name) == words


def test_names_of_code_are_read_from_python_and_javascript() -> None:
    code = "def f(given):\n    told = given.asked\n    return g(few=told)\n"
    assert {name for _, name in python_names(ast.parse(code)) if retired_in(name)} == {"given", "told", "asked", "few"}
    script = "const found = (told) => a.desk;  // asked\nf({shelf: 1})\n"
    assert {name for _, name in javascript_names(script) if retired_in(name)} == {"found", "told", "desk", "shelf"}
