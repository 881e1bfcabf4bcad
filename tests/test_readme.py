"""README is true: its numbers are those of the rows, its links lead somewhere, its tree is that of the files."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))


@pytest.fixture
def front_page(monkeypatch: pytest.MonkeyPatch) -> Any:
    """runs/front_page.py, which makes the tables."""
    monkeypatch.syspath_prepend(ROOT / "runs")
    yield import_module("front_page")
    sys.modules.pop("front_page", None)


@pytest.mark.parametrize("name", ["README.md", "docs/gallery.md"])
def test_tables_are_made_from_rows(name: str, front_page: Any) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert front_page.MARKED.search(text)
    assert front_page.filled(text, front_page.parts()) == text, "run: python runs/report.py"


def test_an_imbalanced_target_leads_with_the_mean_over_classes(front_page: Any) -> None:
    from geopatch.evaluate.rows import Summary

    scores = {"recall@1": 0.831, "class_mean_recall@1": 0.458}
    classes = {"N": {"queries": 90.0}, "V": {"queries": 10.0}}
    line = Summary("mitdb", "default", "fused", "clean", 3, scores, {}, 1.0, per_class=classes)
    assert front_page.headline(line) == ".458 (.831)"
    even = Summary("mitdb", "default", "fused", "clean", 3, scores, {}, 1.0)
    assert front_page.headline(even) == ".831"


def test_no_number_of_the_front_page_is_typed(front_page: Any) -> None:
    """Outside the marks there is no score."""
    text = front_page.MARKED.sub("", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert not re.findall(r"(?<![\d\w])[01]?\.\d{3}\b|[+-]\d+\.\d points", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_pictures_are_there(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            place = page.parent / path if path else page
            assert place.exists(), f"{page.name} points to {target}"
            assert not anchor or anchor in anchors(place), f"{page.name} points to {target}"


def anchors(page: Path) -> set[str]:
    """The names under which the headings of a page can be linked to."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_tree_names_every_module() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    tree = re.search(r"^src/geopatch/ .*?(?=^src/geopatch_lab/)", text, re.DOTALL | re.MULTILINE)
    assert tree is not None
    named = re.findall(r"^  (\w+)(?:\.py|/)", tree[0], re.MULTILINE)
    sources = {path.stem for path in (ROOT / "src" / "geopatch").iterdir() if path.suffix == ".py" or path.is_dir()}
    unsaid = {"__init__", "__main__", "__pycache__", "version", "progress", "demo", "arrays", "notebook"}
    assert sources - unsaid == set(named)


def test_the_tree_stands_in_the_order_of_imports() -> None:
    from test_imports import ORDER

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = [name for name in re.findall(r"^  (\w+)(?:\.py|/) +\S", text, re.MULTILINE) if name in ORDER]
    assert named[: len(set(named))] == sorted(set(named), key=ORDER.index)
