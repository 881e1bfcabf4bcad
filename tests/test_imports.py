"""Laws of the layout: imports point upwards, files stay short, nothing is pickled, light doors stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import geopatch
import geopatch_lab

ROOT = Path(geopatch.__file__).parent
LAB = Path(geopatch_lab.__file__).parent
PACKAGES = [path.parent for root in (ROOT, LAB) for path in sorted(root.glob("*/__init__.py"))]
SOURCES = sorted([*ROOT.rglob("*.py"), *LAB.rglob("*.py")])

# The reading order: a module may import only from those that stand before it.
ORDER = (
    "version",
    "errors",
    "jit",
    "memory",
    "namespace",
    "config",
    "storage",
    "notebook",
    "arrays",
    "signal",
    "times",
    "timeline",
    "read_options",
    "columns",
    "frames",
    "dataframes",
    "inputs",
    "warp",
    "protocol",
    "scaffold",
    "clock",
    "rhythm",
    "geometry",
    "patches",
    "views",
    "kernels",
    "model",
    "train",
    "dtw",
    "aligned_loop",
    "aligned",
    "progress",
    "scoring",
    "encoding",
    "training_set",
    "parameters",
    "estimator",
    "data",
    "evaluate",
    "plot",
    "engines",
    "search",
    "gallery",
    "indexing",
    "watching",
    "server",
    "demo",
    "cli",
    "__main__",
)
# That of the laboratory, which may import from every module of the product, and no module of the product from it.
LAB_ORDER = ("baselines", "rival", "score_tables", "stability", "plot", "study", "cli")
ORDERS = {"geopatch": ORDER, "geopatch_lab": LAB_ORDER}
MAX_LINES = 320
VAGUE = {"utils", "common", "helpers", "misc", "base", "manager"}
PICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "shelve", "joblib.dump", "joblib.load"}
PICKLERS |= {f"{module}.{name}" for module in ("torch", "torch.serialization") for name in ("load", "save")}
HEAVY = ("torch", "sklearn", "rich", "click", "polars", "matplotlib")
NOT_FOR_TRAINING = (
    "sklearn",
    "scipy",
    "rich",
    "click",
    "polars",
    "narwhals",
    "matplotlib",
    "pandas",
    "lightning_fabric",
)


@dataclass(frozen=True)
class Import:
    """One imported name with its place, e.g. `geopatch.signal.Signal` at line 12."""

    line: int
    name: str


def imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[Import]:
    """Every import of a file, wherever it stands: top level, in functions, under TYPE_CHECKING, by import_module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = absolute(node, module, is_package)
            yield from (Import(node.lineno, f"{source}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            named = [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)]
            yield from (Import(node.lineno, name) for name in named if isinstance(name, str))


def absolute(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """The full name of the module that `from ... import` reads, relative dots resolved."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    kept = parts[: len(parts) - node.level + is_package]
    return ".".join([*kept, node.module] if node.module else kept)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports_of(path: Path) -> list[Import]:
    return list(imports(tree_of(path), module_name(path), path.name == "__init__.py"))


def shown(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT.parent)}:{line}"


def wrong_direction(importer: str, imported: str) -> str | None:
    """Why `importer` may not import `imported`, both full names; None where it may."""
    package, *rest = imported.split(".")
    home, *own_parts = importer.split(".")
    if package not in ORDERS or not own_parts:
        return None
    if package != home:
        return None if home == "geopatch_lab" else "the product never imports the laboratory"
    order, own, other = ORDERS[package], own_parts[0], rest[0] if rest else ""
    if other not in order:
        return f"import from the module that defines it, not from the package `{package}`"
    if own == other or order.index(other) < order.index(own):
        return None
    return f"`{own}` may import only from what stands before it in its order, and `{other}` stands after it"


def owner(name: str, modules: set[str]) -> str:
    """The module that an imported name comes from: the longest known part of it."""
    while name not in modules and "." in name:
        name = name.rpartition(".")[0]
    return name


def pickling(path: Path) -> Iterator[str]:
    """Each place of a file that reads or writes pickles."""
    tree = tree_of(path)
    for found in imports_of(path):
        if found.name in PICKLERS or found.name.split(".")[0] in PICKLERS:
            yield f"{shown(path, found.line)}: imports {found.name}"
    aliases = {a.asname: a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names if a.asname}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            head, dot, rest = ast.unparse(node).partition(".")
            if aliases.get(head, head) + dot + rest in PICKLERS:
                yield f"{shown(path, node.lineno)}: uses {ast.unparse(node)}"
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            yield f"{shown(path, node.value.lineno)}: allows pickles"


def lines_of_code(path: Path) -> int:
    """Lines of a file without its docstrings, which may be as long as a user needs them."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [node for node in ast.walk(tree_of(path)) if isinstance(node, kinds)]
    first = [node.body[0] for node in documented if ast.get_docstring(node) is not None]
    return len(path.read_text().splitlines()) - sum((node.end_lineno or 0) - node.lineno + 1 for node in first)


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)


def test_every_top_level_module_has_its_place() -> None:
    modules = [module_name(path).split(".") for path in SOURCES]
    strangers = {parts[1] for parts in modules if len(parts) > 1 and parts[1] not in ORDERS[parts[0]]}
    assert not strangers, f"{sorted(strangers)}: give each its place in ORDER (tests/test_imports.py)"


def test_imports_point_upwards() -> None:
    wrong = [
        f"{shown(path, found.line)}: import of {found.name}: {reason}"
        for path in SOURCES
        for found in imports_of(path)
        if (reason := wrong_direction(module_name(path), found.name))
    ]
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: f"{path.parent.name}.{path.name}")
def test_packages_have_no_import_cycle(package: Path) -> None:
    paths = {module_name(path): path for path in package.rglob("*.py")}
    graph = {
        name: {owner(found.name, set(paths)) for found in imports_of(path)} & set(paths) - {name}
        for name, path in paths.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' <- '.join(error.args[1])}")


def test_files_stay_short() -> None:
    lengths = {shown(path, 1): lines_of_code(path) for path in SOURCES}
    long = {place: length for place, length in lengths.items() if length > MAX_LINES}
    assert not long, f"over {MAX_LINES} lines, is there a second noun in there? {long}"


def test_names_say_what_a_module_holds() -> None:
    vague = [shown(path, 1) for path in SOURCES if VAGUE & set(module_name(path).split("."))]
    assert not vague, f"name these by what they hold: {vague}"


def test_nothing_is_pickled() -> None:
    found = [line for path in SOURCES for line in pickling(path)]
    assert not found, "\n" + "\n".join(found)


def test_importing_the_package_is_light() -> None:
    done = run_python(f"import sys, geopatch; print(*({set(HEAVY)} & set(sys.modules)))")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [], "`import geopatch` alone must load none of these"


def test_a_gallery_alone_is_light() -> None:
    done = run_python(f"import sys, geopatch.engines; print(*({set(HEAVY)} & set(sys.modules)))")
    assert done.stdout.split() == [], f"a gallery of encoded windows must load none of these {done.stderr}"


def test_training_needs_only_torch_numpy_and_safetensors() -> None:
    block = f"import sys; sys.modules.update(dict.fromkeys({NOT_FOR_TRAINING}))"
    needed = [name for path in SOURCES if (name := module_name(path)).startswith(("geopatch.model", "geopatch.train"))]
    done = run_python(f"{block}; import {', '.join(needed)}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("geopatch.signal", "geopatch.errors.SignalError", True),
        ("geopatch.errors", "geopatch.signal.Signal", False),
        ("geopatch.model.stem", "geopatch.model.layers.Gate", True),
        ("geopatch.model.stem", "geopatch.train.fit", False),
        ("geopatch.data.archive", "geopatch.Signal", False),
        ("geopatch.data.archive", "numpy.array", True),
        ("geopatch", "geopatch.cli.main", True),
        ("geopatch_lab.study.run", "geopatch.cli.main", True),
        ("geopatch_lab.baselines.dtw", "geopatch_lab.study.run", False),
        ("geopatch.cli.app", "geopatch_lab.cli.reproduce", False),
    ],
)
def test_the_rule_itself(importer: str, imported: str, allowed: bool) -> None:
    assert (wrong_direction(importer, imported) is None) == allowed


def test_every_kind_of_import_is_seen() -> None:
    code = """
import geopatch.one
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from geopatch.two import Two
def late():
    from ..three import Three
    from . import four
    importlib.import_module("geopatch.five")
"""
    found = [(item.line, item.name) for item in imports(ast.parse(code), "geopatch.model.stem", is_package=False)]
    assert sorted(found) == [
        (2, "geopatch.one"),
        (3, "typing.TYPE_CHECKING"),
        (5, "geopatch.two.Two"),
        (7, "geopatch.three.Three"),
        (8, "geopatch.model.four"),
        (9, "geopatch.five"),
    ]


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "from torch import save",
        "import torch\ntorch.load('x')",
        "import torch as t\nt.save(1, 'x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
    ],
)
def test_every_kind_of_pickling_is_seen(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path / "geopatch")
    source = tmp_path / "geopatch" / "model.py"
    source.parent.mkdir()
    source.write_text(code)
    assert len(list(pickling(source))) == 1
