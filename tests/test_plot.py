"""Figures hold what they say they show."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geopatch import plot
from geopatch.errors import DataError, GeoPatchError, MissingExtraError
from geopatch.evaluate.rows import Row
from geopatch.evaluate.stress import STRESSES, curve
from geopatch.signal import Signal
from geopatch.warp import warped

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
    for drawing in (plot.check_installed, lambda: plot.hits(QUERY, "V", shown(1), "title")):
        with pytest.raises(MissingExtraError, match=r"geopatch-ts\[plot\]"):
            drawing()


def row(stress: str, seed: int = 0, recall: float = 0.5, scorer: str = "fused", data: str = "Waves_TEST") -> Row:
    scores = {"recall@1": recall, "map": recall / 2}
    return Row(data, "d", "default", "c", seed, "standard", "p", scorer, stress, scores, 8, 0, 1.0, 1.0, None, "cpu")


def lines(axes: Any) -> dict[str, tuple[list[float], list[float]]]:
    """x and y of each named line of a panel."""
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}


def test_stress_examples_has_a_panel_for_each_stress_over_the_clean_window() -> None:
    figure = plot.stress_examples(QUERY)
    assert len(figure.axes) == len(STRESSES) - 1
    for axes, name in zip(figure.axes, STRESSES[1:], strict=True):
        drawn = lines(axes)
        assert "as recorded" in drawn
        assert axes.get_title(loc="left")
        assert axes.get_ylabel() == ("slope of each patch, log(1 + v)" if name == "geometry-noise" else "lead, centred")
    middle = np.median(QUERY.values)
    warp, _, differently, noise, span, shuffle = figure.axes
    np.testing.assert_allclose(lines(warp)["query"][1], warped(QUERY).values[:, 0] - middle, atol=1e-6)
    np.testing.assert_allclose(lines(differently)["gallery"][1], warped(QUERY, -0.1).values[:, 0] - middle, atol=1e-6)
    assert lines(noise)["query"] != lines(noise)["as recorded"]
    assert np.isnan(lines(span)["query"][1]).sum() == 10
    assert [text.get_text() for text in shuffle.texts] == ["6", "4", "3", "7", "5", "8", "1", "2"]


@pytest.mark.parametrize("length", [1, 3, 40])
def test_any_window_can_be_an_example(length: int) -> None:
    values = np.random.default_rng(0).normal(size=(length, 2))
    assert len(plot.stress_examples(Signal.from_array(values)).axes) == len(STRESSES) - 1


def test_drop_curves_draws_what_the_rows_say() -> None:
    recall = {"clean": 0.9, "warped queries": 0.5, "warp-queries@0.05": 0.8, "shuffle@8": 0.3}
    rows = [row(stress, seed, value + 0.02 * seed) for seed in (0, 1) for stress, value in recall.items()]
    rows += [row("clean", 0, 0.7, "cosine"), row("shuffle@8", 0, 0.6, "cosine")]
    figure = plot.drop_curves(rows)
    warp, shuffle, *below = figure.axes
    assert [axes.get_title(loc="left") for axes in (warp, shuffle)] == ["warp, queries only", "another order"]
    assert len(below) == 2
    strengths, recalls = lines(warp)["fused"]
    assert strengths == [0.0, 0.05, 0.1]
    assert recalls == pytest.approx([0.91, 0.81, 0.51])
    assert lines(shuffle)["cosine"] == ([0.0, 8.0], [0.7, 0.6])
    assert lines(below[0])["fused"][1] == pytest.approx([0.455, 0.405, 0.255])
    assert (below[0].get_ylabel(), below[1].get_xlabel()) == ("mAP", "number of chunks")


def test_drop_curves_of_every_stress() -> None:
    names = {stress.text for name in STRESSES for stress in curve(name)}
    figure = plot.drop_curves([row(name) for name in sorted(names)])
    assert len(figure.axes) == 2 * (len(STRESSES) - 1)
    for axes, name in zip(figure.axes, STRESSES[1:], strict=False):
        assert lines(axes)["fused"][0] == [stress.strength for stress in curve(name)]


def test_several_collections_are_averaged() -> None:
    rows = [
        row(stress, 0, value, data=data)
        for stress in ("clean", "shuffle@8")
        for data, value in (("a", 0.2), ("b", 0.6))
    ]
    figure = plot.drop_curves(rows)
    assert lines(figure.axes[0])["fused"][1] == pytest.approx([0.4, 0.4])
    assert "mean of 2 collections" in figure.get_suptitle()


def test_drop_curves_without_a_stress_is_refused() -> None:
    with pytest.raises(DataError, match="expected rows measured under a stress, got none"):
        plot.drop_curves([row("clean")])


def test_drop_curves_of_two_protocols_is_refused() -> None:
    rows = [row("shuffle@8"), replace(row("shuffle@8"), protocol="strict-cross-record")]
    with pytest.raises(DataError, match="got default standard, default strict-cross-record; draw each alone"):
        plot.drop_curves(rows)


def test_save_all_writes_both_formats_into_a_new_folder(tmp_path: Path) -> None:
    paths = plot.save_all(plot.stress_examples(QUERY), tmp_path / "new" / "stress_examples")
    assert [path.name for path in paths] == ["stress_examples.png", "stress_examples.svg"]
    assert [path.read_bytes()[:4] for path in paths] == [b"\x89PNG", b"<?xm"]


def test_save_all_below_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(GeoPatchError, match=r"cannot write .*; give another folder"):
        plot.save_all(plot.stress_examples(QUERY), tmp_path / "file" / "examples")
