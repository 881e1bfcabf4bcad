"""Figures hold what they say they show."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from geopatch import plot
from geopatch.errors import GeoPatchError, MissingExtraError
from geopatch.signal import Signal

QUERY = Signal.from_array(np.sin(np.linspace(0, 9, 50)), id="query", rate_hz=10.0, channels=("lead",))


def shown(count: int) -> list[plot.Shown]:
    recording = Signal.from_array(np.arange(80.0), id="r", rate_hz=10.0, channels=("lead",))
    return [plot.Shown(recording.window(n, n + 50), "V", 0.9, right=n % 2 == 0) for n in range(count)]


@pytest.mark.parametrize("count", [1, 3, 4])
def test_hits_draws_the_query_and_every_hit_over_it(count: int) -> None:
    figure = plot.hits(QUERY, "V", shown(count), "title")
    top, *below = figure.axes
    assert len(below) == count
    assert len(top.lines) == 1
    assert len(plot.hits(QUERY, "V", shown(count), "title", QUERY).axes[0].lines) == 2
    assert all(len(axes.lines) == 2 for axes in below)
    assert below[0].get_title(loc="left") == "1. r, 0 s · V · 0.90"
    assert [axes.lines[1].get_color() for axes in below][:2] == [plot.RIGHT, plot.WRONG][:count]
    np.testing.assert_allclose(np.asarray(top.lines[0].get_xdata())[[0, -1]], [0.0, 4.9])


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_save_writes_the_format_of_the_ending(tmp_path: Path, suffix: str, start: bytes) -> None:
    path = tmp_path / f"hits.{suffix}"
    plot.save(plot.hits(QUERY, "V", shown(1), "title"), path)
    assert path.read_bytes().startswith(start)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_save_into_a_missing_folder_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(GeoPatchError, match="cannot write"):
        plot.save(plot.hits(QUERY, "V", shown(1), "title"), tmp_path / "nowhere" / "hits.png")


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"geopatch-ts\[plot\]"):
        plot.hits(QUERY, "V", shown(1), "title")
