"""geopatch evaluate and fit on prepared recordings: targets, protocols, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Run
from test_cli import TINY, run  # noqa: F401

from geopatch.data.cache import window_pairs, write_cache
from geopatch.data.physionet import unnamed_where_leads_differ
from geopatch.data.recording import cut_windows
from geopatch.data.sample import mitdb_minutes


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Minutes of ECG under the name of a data set whose source is not there: the cache alone serves."""
    recordings = unnamed_where_leads_differ(mitdb_minutes())
    train, test = (cut_windows("ecg", side) for side in (recordings[:3], recordings[3:]))
    (tmp_path / "cache").mkdir()
    splits = {"train": window_pairs(train), "test": window_pairs(test)}
    write_cache(tmp_path / "cache" / "mitdb", "mitdb", splits, length=256)
    write_cache(tmp_path / "cache" / "nstdb", "nstdb", {"test": window_pairs(test)}, length=256)
    return tmp_path / "cache"


FEW = ["--train-per-record", "8", "--test-per-record", "6"]


@pytest.mark.parametrize("protocol", ["standard", "strict-nonoverlap", "penalised-cross-record"])
def test_beats_under_a_protocol(run: Run, cache: Path, protocol: str) -> None:  # noqa: F811
    ran = run("evaluate", "mitdb", "--target", "beat", "--protocol", protocol, "--cache", cache, "--json", *FEW, *TINY)
    rows = json.loads(ran.out)
    assert {(row["target"], row["protocol"]) for row in rows} == {("beat", protocol)}
    assert rows[0]["queries"] + rows[0]["without_positive"] == 18
    assert "class_mean_recall@1" in rows[0]["scores"]


def test_the_first_target_is_the_default_and_classes_have_a_table(run: Run, cache: Path) -> None:  # noqa: F811
    ran = run("evaluate", "mitdb", "--cache", cache, "--per-class", *FEW, *TINY)
    assert ran.code == 0
    assert "mitdb, subject, default preset, seed 0" in ran.err
    assert "by the class of the query" in ran.out


def test_a_model_trained_on_one_set_is_measured_on_another(run: Run, cache: Path) -> None:  # noqa: F811
    ran = run("fit", "mitdb", "--target", "beat", "--cache", cache, "--out", "model", *TINY)
    assert ran.code == 0
    rows = json.loads(run("evaluate", "nstdb", "--model", "model", "--cache", cache, "--json", *FEW).out)
    assert {row["data"] for row in rows} == {"nstdb"}


BAD = {
    "no positive": (
        ["mitdb", "--target", "subject", "--protocol", "strict-cross-record"],
        "target 'subject' under strict-cross-record makes no sense on mitdb: every right candidate is of the query's",
    ),
    "unknown target": (["mitdb", "--target", "mood"], "target of mitdb must be one of subject, beat, rhythm, rate"),
    "a target of another family": (["mitdb", "--target", "prompt"], "target of mitdb must be one of"),
    "no train side": (["nstdb"], "nstdb has no train side"),
    "negative guard": (["mitdb", "--guard-s", "-1"], "guard_s must be at least 0"),
    "unknown scorer": (["mitdb", "--scorers", "best"], "scorer must be one of cosine, maxsim, fused, bridge"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_makes_no_sense_is_refused_before_training(run: Run, cache: Path, case: str) -> None:  # noqa: F811
    arguments, message = BAD[case]
    ran = run("evaluate", *arguments, "--cache", cache, *FEW, *TINY)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert "training" not in ran.err
