"""geopatch stability: what it measures, prints, writes and draws."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from geopatch.cli import main
from geopatch.config import ModelConfig, TrainConfig
from geopatch.data.collection import Collection
from geopatch.errors import ConfigError, DataError
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Trained
from geopatch.signal import Signal
from geopatch_lab.plot.stability import bound_figure, drift_figure, margin_figure, preference_figure
from geopatch_lab.stability import Finding, Size, StabilityRow, append_stability, measure_stability, read_stability
from geopatch_lab.stability.finding import of_topic, spread_of

MODEL = ModelConfig(halves=("learned",), patch_length=4, max_patches=4, width=16, embedding=8, layers=1, heads=1)
TRAIN = TrainConfig(epochs=1, min_steps=2, max_steps=2, batch_size=4)
TINY = Size(drift_windows=4, every=9, bound_windows=3, patches=8, etas=(0.1, 0.4), R=(1,), queries=5)
TOPICS = {"drift", "affine", "constants", "bound", "margin", "preference", "dominance", "protocol"}


def waves(count: int = 12) -> Collection:
    """Windows of three records, half overlapping, in two classes."""
    rng, time = np.random.default_rng(0), np.linspace(0, 1, 24)
    made = []
    for n in range(count):
        values = np.sin(2 * np.pi * (1 + 2 * (n % 2)) * time + rng.uniform(0, 6))[:, None]
        record = Signal.from_array(np.tile(values, (9, 1)), id=f"r{n % 3}", rate_hz=24.0)
        made.append(record.window(12 * (n // 3), 12 * (n // 3) + 24))
    return Collection("waves", tuple(made), np.asarray((["slow", "fast"] * count)[:count]))


def fitted(boundaries: str = "fixed") -> Trained:
    data = waves()
    model = replace(MODEL, boundaries=boundaries)
    return Trained(GeoPatch(model=model, train=TRAIN, device="cpu").fit(data.signals, data.labels), "default", 0, 1.0)


@pytest.fixture(scope="module")
def rows() -> list[StabilityRow]:
    return measure_stability(fitted(), waves(), twin=fitted("adaptive"), size=TINY)


def test_every_topic_is_measured_and_says_where_it_comes_from(rows: list[StabilityRow]) -> None:
    assert {row.topic for row in rows} == TOPICS
    assert all(row.data == "waves" and row.versions["torch"] and row.data_digest for row in rows)
    drifts = {(row.setting["rule"], row.setting["weights"]) for row in of_topic(rows, "drift")}
    assert drifts == {("fixed", "own"), ("adaptive", "shared"), ("adaptive", "own")}
    assert all(row.values["boundary_max"] == 0 for row in of_topic(rows, "drift", rule="fixed"))
    assert all(row.values["violations"] == 0 for row in of_topic(rows, "bound", constants="maximum"))
    assert all(row.values["certified_flips"] == 0 for row in of_topic(rows, "margin"))


def test_rows_survive_a_file(rows: list[StabilityRow], tmp_path: Path) -> None:
    append_stability(tmp_path / "new" / "rows.jsonl", rows)
    again = read_stability(tmp_path / "new" / "rows.jsonl")
    assert [row.as_dict() for row in again] == [row.as_dict() for row in rows]


def test_measuring_twice_gives_the_same(rows: list[StabilityRow]) -> None:
    again = measure_stability(fitted(), waves(), twin=fitted("adaptive"), size=TINY)
    for one, other in zip(rows, again, strict=True):
        assert other.values == pytest.approx(one.values, nan_ok=True)


def test_windows_without_records_have_no_preference() -> None:
    data = waves()
    alone = Collection("alone", tuple(replace(one, record="", id=one.id) for one in data.signals), data.labels)
    found = measure_stability(fitted(), alone, size=TINY)
    assert {row.topic for row in found} == TOPICS - {"preference", "dominance"}
    assert {row.setting["protocol"] for row in of_topic(found, "protocol")} == {"standard"}


def test_figures_hold_what_was_measured(rows: list[StabilityRow]) -> None:
    drift, bound = drift_figure(rows), bound_figure(rows)
    assert len(drift.axes) == 6
    assert [axes.get_title(loc="left") for axes in drift.axes[:3]] == ["another clock", "another gain", "noise"]
    line = drift.axes[0].lines[0]
    found = sorted(of_topic(rows, "drift", rule="fixed", kind="warp"), key=lambda row: float(row.setting["strength"]))
    np.testing.assert_allclose(
        np.asarray(line.get_ydata()), [row.values["total_mean"] / row.values["apart"] for row in found]
    )
    medians = [np.asarray(line.get_ydata()).tolist() for line in bound.axes[0].lines]
    expected = [row.values["median"] for row in of_topic(rows, "bound", level="token", constants="maximum")]
    assert medians[0] == pytest.approx(expected)
    assert len(margin_figure(rows).axes) == 2
    assert len(preference_figure(rows).axes) == 2


def test_a_figure_of_nothing_is_refused(rows: list[StabilityRow]) -> None:
    for draw in (drift_figure, bound_figure, margin_figure, preference_figure):
        with pytest.raises(DataError, match="got none"):
            draw([])
    mixed = [*rows, *(replace(row, data="other") for row in rows)]
    with pytest.raises(DataError, match="rows of one collection"):
        drift_figure(mixed)


def test_bad_rows_sizes_and_topics_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"topic": "drift"}\n')
    with pytest.raises(DataError, match=r"line 1 is no stability row"):
        read_stability(tmp_path / "bad.jsonl")
    with pytest.raises(DataError, match="cannot read stability rows"):
        read_stability(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="topic must be one of"):
        Finding("luck", {}, {}, 1)
    with pytest.raises(ConfigError, match="patches must be"):
        Size(patches=0)
    with pytest.raises(ConfigError, match="at least one eta"):
        Size(etas=())


def test_median_mean_and_p90() -> None:
    found = spread_of(np.arange(11, dtype=np.float64), "x_")
    assert found == pytest.approx({"x_median": 5.0, "x_mean": 5.0, "x_p90": 9.0})
    assert np.isnan(list(spread_of(np.zeros(0)).values())).all()


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("geopatch_lab.cli.stability.QUICK", TINY)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = 0
        try:
            main(["stability", *arguments])
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_the_verb_measures_a_model_on_a_file(run: Run, tmp_path: Path) -> None:
    fitted().estimator.save(tmp_path / "model")
    data = waves()
    np.savez(tmp_path / "waves.npz", X=np.stack([one.values for one in data.signals]), y=np.asarray(data.labels))
    asked = ("waves.npz", "--model", "model", "--quick", "--device", "cpu", "--out", "found")
    code, out, err = run(*asked)
    assert code == 0, err
    for title in ("drift:", "constants of the factors", "bound:", "margin:", "R@1 / mAP by protocol"):
        assert title in out
    assert "…" not in out, "the tables are legible on 80 columns"
    names = {path.name for path in (tmp_path / "found").iterdir()}
    assert names == {"stability.jsonl"} | {f"{n}.{s}" for n in ("drift", "bound", "margin") for s in ("png", "svg")}
    code, out, _ = run(*asked, "--json")
    told = json.loads(out)
    assert len(told["rows"]) == len(read_stability(told["file"])), "the rows of the last run stand in the file, once"


def test_the_verb_trains_on_the_built_in_sample(run: Run, tmp_path: Path) -> None:
    tiny = ("--max-patches=4", "--width=16", "--embedding=8", "--layers=1", "--heads=1", "--batch-size=4")
    code, out, err = run("--quick", "--device=cpu", "--min-steps=1", "--max-steps=1", *tiny)
    assert code == 0, err
    assert "preference:" in out
    assert "adaptive patches" in err
    assert (tmp_path / "stability" / "preference.png").is_file()
    weights = {row.setting["weights"] for row in of_topic(read_stability("stability/stability.jsonl"), "drift")}
    assert weights == {"own", "shared"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--target", "rhythm"), "target of the built-in sample must be one of beat"),
        (("nothing.npz", "--model", "nowhere"), "nothing.npz"),
        (("--model", "nowhere", "--width", "16"), "leave training flags out"),
    ],
)
def test_mistakes_are_one_line(run: Run, arguments: tuple[str, ...], told: str) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert told in err
    assert err.count("\n") == 1
