"""The tutorial notebook: its cells run from top to bottom, and find what the text says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from geopatch.kernels import fitting

NOTEBOOK = Path(__file__).parents[1] / "examples" / "tutorial.ipynb"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit sees few views."""
    monkeypatch.setattr(fitting, "VIEWS", 4000)
    monkeypatch.setattr(fitting, "SAMPLE_VIEWS", 2048)


def test_the_cells_of_the_tutorial_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert len(names["gallery"].about.channels) in (0, 2)
    assert all(hit.record != "119" for hit in names["hits"])
    assert names["hits"][0].record == "208", "the beats of patient 208 are most like it"


def test_its_outputs_are_kept_for_those_who_only_read() -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    pictures = [output for cell in cells for output in cell["outputs"] if "image/png" in output.get("data", {})]
    assert len(pictures) == 2
    assert all(cell["outputs"] for cell in cells[:-1])
