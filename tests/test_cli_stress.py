"""geopatch stress: what it measures, prints and draws, and its tables."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import Run, runner

from geopatch.cli.tables import print_classes, print_drops, print_summaries
from geopatch.config import ModelConfig, TrainConfig
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Summary, curve, default_stresses, read_rows
from geopatch.evaluate.stress import STRESSES
from geopatch.scoring import encoded_scorers

TINY = ["--patch-length=4", "--max-patches=4", "--width=16", "--embedding=8", "--layers=1", "--heads=1"]
TINY += ["--halves=learned", "--epochs=1", "--min-steps=2", "--max-steps=2", "--batch-size=4", "--device=cpu"]
MODEL = ModelConfig(halves=("learned",), patch_length=4, max_patches=4, width=16, embedding=8, layers=1, heads=1)
TRAIN = TrainConfig(epochs=1, min_steps=2, max_steps=2, batch_size=4)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`geopatch stress` in a folder of its own, with a file of waves and a model of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GEOPATCH_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "80")

    return runner(capsys, "stress")


def waves(count: int = 8) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.float64]], list[str]]:
    rng, time = np.random.default_rng(0), np.linspace(0, 1, 24)
    X = [np.sin(2 * np.pi * (1 + 2 * (n % 2)) * time + rng.uniform(0, 6)) for n in range(count)]
    return np.asarray(X), (["slow", "fast"] * count)[:count]


@pytest.fixture(scope="module")
def trained() -> GeoPatch:
    return GeoPatch(model=MODEL, train=TRAIN, device="cpu").fit(*waves())


@pytest.fixture
def model(trained: GeoPatch, tmp_path: Path) -> list[str]:
    """The arguments that measure a trained model on a file."""
    X, y = waves()
    np.savez(tmp_path / "waves.npz", X=X, y=np.asarray(y))
    trained.save(tmp_path / "model")
    return ["waves.npz", "--model", "model", "--device", "cpu"]


def test_every_stress_and_scorer_with_the_drop(run: Run, model: list[str]) -> None:
    ran = run(*model)
    assert (ran.code, ran.err) == (0, "")
    table = ran.out.splitlines()
    assert table[0].strip() == "waves under stress (model)"
    assert table[1].split() == ["stress", "scorer", "R@1", "drop", "mAP", "drop", "seeds"]
    shown = [line.split() for line in table[3:] if line]
    names = ["clean", "warp-queries@0.1", *(stress.text for stress in default_stresses()[2:])]
    assert [line[:2] for line in shown] == [[name, scorer] for name in names for scorer in encoded_scorers()]
    assert {len(line) for line in shown} == {5, 7}  # clean has no drop
    assert max(map(len, table)) <= 80


def test_the_drop_is_clean_less_stressed(run: Run, model: list[str]) -> None:
    told = json.loads(run(*model, "--json").out)
    rows = {(row["stress"], row["scorer"]): row["scores"] for row in told["rows"]}
    (line,) = [line.split() for line in run(*model).out.splitlines() if line.split()[:2] == ["shuffle@8", "fused"]]
    clean, stressed = rows["clean", "fused"], rows["shuffle@8", "fused"]
    assert float(line[3]) == pytest.approx(clean["recall@1"] - stressed["recall@1"], abs=6e-4)
    assert float(line[5]) == pytest.approx(clean["map"] - stressed["map"], abs=6e-4)


def test_chosen_stresses_and_scorers(run: Run, model: list[str]) -> None:
    chosen = ["--stress", "span-mask@0.4", "--stress", "shuffle", "--scorers", "bridge, cosine"]
    told = json.loads(run(*model, *chosen, "--json").out)
    assert [(row["stress"], row["scorer"]) for row in told["rows"]] == [
        (stress, scorer) for stress in ("clean", "span-mask@0.4", "shuffle@8") for scorer in ("bridge", "cosine")
    ]
    assert told["figures"] == []


def test_a_curve_holds_the_strength_that_was_given(run: Run, model: list[str]) -> None:
    told = json.loads(run(*model, "--curve", "--stress", "shuffle@3", "--scorers", "cosine", "--json").out)
    assert [row["stress"] for row in told["rows"]] == [
        "clean", "shuffle@2", "shuffle@3", "shuffle@4", "shuffle@8", "shuffle@16",
    ]  # fmt: skip


def test_all_curves_and_their_figures(run: Run, model: list[str], tmp_path: Path) -> None:
    ran = run(*model, "--curve", "--scorers", "cosine", "--figures", "new/figures", "--json")
    told = json.loads(ran.out)
    points = {stress.text for name in STRESSES for stress in curve(name)}
    assert {row["stress"] for row in told["rows"]} == points
    assert len(told["rows"]) == len(points)
    names = ["stress_examples.png", "stress_examples.svg", "drop_curves.png", "drop_curves.svg"]
    assert told["figures"] == [f"new/figures/{name}" for name in names]
    assert {path.name for path in (tmp_path / "new" / "figures").iterdir()} == set(names)


def test_clean_alone_has_no_curve(run: Run, model: list[str]) -> None:
    ran = run(*model, "--stress", "clean", "--figures", "figures")
    assert ran.code == 0
    assert [line for line in ran.out.splitlines() if line.startswith("figure")] == [
        "figure: figures/stress_examples.png",
        "figure: figures/stress_examples.svg",
    ]


def test_training_for_each_seed(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "Waves"
    folder.mkdir()
    for part in ("TRAIN", "TEST"):
        X, y = waves()
        rows = [",".join(map(str, values)) + f":{label}" for values, label in zip(X, y, strict=True)]
        (folder / f"Waves_{part}.ts").write_text("@classLabel true slow fast\n@data\n" + "\n".join(rows) + "\n")
    ran = run("Waves", "--seeds", "0-1", "--rows", "rows.jsonl", "--stress", "shuffle", "--scorers", "cosine", *TINY)
    assert ran.code == 0
    assert "Waves, class, default preset, seed 1" in ran.err
    assert "±" in ran.out
    found = read_rows(tmp_path / "rows.jsonl")
    assert [(row.seed, row.stress) for row in found] == [(s, name) for s in (0, 1) for name in ("clean", "shuffle@8")]
    assert found[0].per_class.keys() == {"slow", "fast"}


BAD = {
    "a protocol that changes nothing": (
        ["--protocol", "strict-cross-record"],
        "strict-cross-record makes no sense on",
    ),
    "unknown stress": (["--stress", "heat"], "stress must be one of clean, warp-queries"),
    "bad strength": (["--stress", "shuffle@x"], "a stress looks like shuffle or shuffle@8, got 'shuffle@x'"),
    "too strong": (["--stress", "warp-queries@0.3"], "warp strength must lie within"),
    "unknown scorer": (
        ["--scorers", "cosine,magic"],
        "scorer must be one of cosine, maxsim, fused, bridge, aligned, fused-aligned, got 'magic'",
    ),
    "seeds of a trained model": (["--seeds", "0-2"], "--model measures a model that is trained"),
    "training flags": (["--epochs", "3"], "--model measures a model that is trained"),
    "rows are a folder": (["--rows", "model"], "expected a file, but a folder is there"),
    "figures are a file": (["--figures", "waves.npz"], "cannot write waves.npz/drop_curves.png"),
    "unknown protocol": (["--protocol", "kind"], "'kind' is not one of"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_a_user_can_cure_is_one_line(case: str, run: Run, model: list[str], tmp_path: Path) -> None:
    flags, message = BAD[case]
    before = set(tmp_path.rglob("*"))
    ran = run(*model, *flags)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("geopatch: ")
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert set(tmp_path.rglob("*")) == before


def test_without_matplotlib_figures_are_refused_first(
    run: Run, model: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = run(*model, "--figures", "figures", "--rows", "rows.jsonl")
    assert (ran.code, (tmp_path / "rows.jsonl").exists()) == (2, False)
    assert "geopatch-ts[plot]" in ran.err


# Tables

SCORES = {"recall@1": 0.9, "recall@5": 1.0, "mrr": 0.5, "map": 0.25, "class_mean_recall@1": 0.6, "class_mean_map": 0.15}
CLASSES = {"N": {"recall@1": 0.99, "map": 0.3, "queries": 90.0}, "V": {"recall@1": 0.21, "map": 0.1, "queries": 10.0}}
LINE = Summary(
    "mitdb beat", "default", "fused", "clean", 1, SCORES, dict.fromkeys(SCORES, 0.0), 1.0, "standard", CLASSES
)
EVEN = {label: {**values, "queries": 50.0} for label, values in CLASSES.items()}


def printed(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    return [line.split() for line in lines]


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_the_class_mean_stands_beside_an_imbalanced_target(capsys: pytest.CaptureFixture[str]) -> None:
    print_summaries([LINE])
    table = printed(capsys)
    assert table[1:3] == [["class", "class"], ["data", "queries", "scorer", "R@1", "R@1", "MRR", "mAP", "mAP", "seeds"]]
    assert table[4] == ["mitdb", "beat", "clean", "fused", "0.900", "0.600", "0.500", "0.250", "0.150", "1"]
    print_summaries([replace(LINE, per_class=EVEN)])
    assert printed(capsys)[1] == ["data", "queries", "scorer", "R@1", "R@5", "MRR", "mAP", "seeds"]


def test_drops_of_an_imbalanced_target(capsys: pytest.CaptureFixture[str]) -> None:
    lower = {name: value - 0.1 for name, value in SCORES.items()}
    print_drops([LINE, replace(LINE, stress="warped queries", scores=lower)])
    table = printed(capsys)
    assert table[5] == ["warp-queries@0.1", "fused", "0.800", "0.100", "0.500", "0.100", "0.150", "0.100", "1"]


def test_rows_from_before_classes_have_no_class_mean(capsys: pytest.CaptureFixture[str]) -> None:
    old = {name: value for name, value in SCORES.items() if not name.startswith("class")}
    print_summaries([LINE, replace(LINE, data="old", scores=old, per_class={})])
    assert printed(capsys)[5] == ["old", "clean", "fused", "0.900", "-", "0.500", "0.250", "-", "1"]


def test_every_class_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_classes([LINE])
    table = printed(capsys)
    assert table[1] == ["data", "queries", "scorer", "class", "count", "R@1", "mAP"]
    assert table[3] == ["mitdb", "beat", "clean", "fused", "N", "90", "0.990", "0.300"]
    assert table[4] == ["mitdb", "beat", "clean", "fused", "V", "10", "0.210", "0.100"]


def test_another_protocol_has_its_own_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_summaries([LINE, replace(LINE, protocol="strict-cross-record")])
    titles = [" ".join(line) for line in printed(capsys) if line[:1] == ["retrieval"]]
    assert titles == [
        "retrieval on the test split (default)",
        "retrieval on the test split (default, strict-cross-record)",
    ]


def test_a_drop_of_nothing_has_no_sign(capsys: pytest.CaptureFixture[str]) -> None:
    print_drops([LINE, replace(LINE, stress="shuffle@8", scores={n: v + 1e-9 for n, v in SCORES.items()})])
    assert "-0.000" not in capsys.readouterr().out
