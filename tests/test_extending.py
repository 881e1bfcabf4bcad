"""What CONTRIBUTING says about adding a reader, a scorer and an engine is done here, on a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SAYS = re.compile(r"  # (.*)$", re.MULTILINE)


@dataclass
class Recipe:
    """One section of CONTRIBUTING: the file to write, lines to add to others, and how the new thing is used."""

    new: dict[str, str] = field(default_factory=dict)
    changes: dict[str, list[str]] = field(default_factory=dict)
    use: str = ""

    @classmethod
    def read(cls, title: str) -> Recipe:
        text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
        section = re.search(rf"^### {title}\n(.*?)(?=^##)", text, re.DOTALL | re.MULTILINE)
        assert section is not None, title
        recipe = cls()
        for kind, block in re.findall(r"^```(\w+)\n(.*?)^```", section[1], re.DOTALL | re.MULTILINE):
            head, _, rest = block.partition("\n")
            if kind == "diff":
                recipe.add_changes(block.splitlines())
            elif head == "# use":
                recipe.use = rest
            else:
                recipe.new[head.removeprefix("# ")] = rest
        return recipe

    def add_changes(self, lines: list[str]) -> None:
        for line in lines:
            if line.startswith("--- "):
                changes = self.changes[line[4:]] = []
            else:
                changes.append(line)

    def apply(self, root: Path) -> None:
        for name, text in self.new.items():
            assert not (root / name).exists()
            (root / name).write_text(text, encoding="utf-8")
        for name, changes in self.changes.items():
            path = root / name
            path.write_text(changed(path.read_text(encoding="utf-8"), changes), encoding="utf-8")


def changed(text: str, changes: list[str]) -> str:
    """' ' and '-' find a line, from the last one on; '+' adds one behind it, or takes the place of what '-' names."""
    lines, at, removed = text.splitlines(), 0, ""
    for change in changes:
        sign, part = change[0], change[1:]
        if sign == "+" and removed:
            lines[at], removed = lines[at].replace(removed, part), ""
        elif sign == "+":
            at += 1
            lines.insert(at, part)
        else:
            at = next(n for n in range(at, len(lines)) if lines[n].startswith(part))
            removed = part if sign == "-" else ""
    return "\n".join(lines) + "\n"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages and the test of their order of imports."""
    shutil.copytree(ROOT / "src", tmp_path / "src")  # with what is compiled: it need not be done again
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "test_imports.py", tmp_path / "tests")
    return tmp_path


MOST_FILES = {"A reader of files": 1, "A scorer": 2, "An engine": 2, "A pretrained model": 0}


@pytest.mark.parametrize(("title", "most_files"), MOST_FILES.items())
def test_it_takes_a_new_file_and_lines_in_few_others(title: str, most_files: int, copy: Path) -> None:
    recipe = Recipe.read(title)
    assert len(recipe.new) == (0 if title == "A pretrained model" else 1)
    assert len(recipe.changes) <= most_files
    recipe.apply(copy)
    printed = run(copy, "-W", "error", "-c", recipe.use)
    assert printed.splitlines() == [
        says for line in recipe.use.splitlines() if "print(" in line for says in SAYS.findall(line)
    ]


def test_all_of_it_together_keeps_the_order_of_imports(copy: Path) -> None:
    for title in MOST_FILES:
        Recipe.read(title).apply(copy)
    order = ("-k", "has_its_place or point_upwards or import_cycle or stay_short")
    run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_imports.py", *order)


def run(copy: Path, *arguments: str) -> str:
    """Python with the copy in the place of the package."""
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=copy, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_changes_go_where_they_are_said_to() -> None:
    text = "import a\n\nTABLE = {\n    1: 2,\n}\nNAMES = ('x')  # all\n"
    changes = [" import a", "+import b", " TABLE", "+    0: 1,", "-NAMES = ('x')", "+NAMES = ('x', 'y')"]
    assert (
        changed(text, changes)
        == "import a\nimport b\n\nTABLE = {\n    0: 1,\n    1: 2,\n}\nNAMES = ('x', 'y')  # all\n"
    )
