"""geopatch data: what it lists, counts and prepares, for people and for machines."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from commands import Run, runner

from geopatch.data.cache import Cache
from geopatch.data.catalog import CATALOG

DATA = Path(os.environ.get("GEOPATCH_DATA", "nowhere"))


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`geopatch data` in a folder of its own, without a network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for variable in ("GEOPATCH_DATA", "GEOPATCH_CACHE"):
        monkeypatch.delenv(variable, raising=False)

    def refused(*_arguments: Any, **_settings: Any) -> None:
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(urllib.request, "urlopen", refused)

    return runner(capsys, "data")


@pytest.fixture
def waves(tmp_path: Path) -> Path:
    """A root that holds one small set of the archive."""
    (tmp_path / "sets" / "Waves").mkdir(parents=True)
    for part, rows in (("TRAIN", "1,2,3:a\n3,2,1:b\n"), ("TEST", "1,2,4,4:a\n4,2,1:b\n2,2,2:b\n")):
        (tmp_path / "sets" / "Waves" / f"Waves_{part}.ts").write_text(f"@classLabel true a b\n@data\n{rows}")
    return tmp_path / "sets"


def test_the_list_says_what_is_there(run: Run, waves: Path) -> None:
    done = run("list", "--data-root", waves)
    assert (done.code, done.err) == (0, "")
    for name in CATALOG:
        assert any(line.split()[:2] == [name, "no"] for line in done.out.splitlines())
    assert "of the UEA/UCR archive, whole series, target class (1): Waves" in done.out
    told = {found["name"]: found for found in json.loads(run("list", "--data-root", waves, "--json").out)}
    assert set(told) == {*CATALOG, "Waves"}
    assert told["Waves"]["there"]
    assert not told["mitdb"]["there"]
    assert told["mitdb"]["targets"] == ["subject", "beat", "rhythm", "rate"]


def test_the_list_needs_no_root(run: Run, tmp_path: Path) -> None:
    done = run("list", "--data-root", tmp_path / "nowhere")
    assert done.code == 0
    assert "archive" not in done.out


def test_info_counts_windows_and_classes(run: Run, waves: Path) -> None:
    done = run("info", "Waves", "--data-root", waves)
    assert done.code == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert ["test", "3", "3", "-", "-", "1", "3", "to", "4"] in lines
    assert ["class", "test", "2", "b", "2,", "a", "1"] in lines
    assert "licence: " in done.out


def test_info_for_machines_is_one_object(run: Run, waves: Path) -> None:
    done = run("info", "Waves", "--data-root", waves, "--json")
    assert done.err == ""
    told = json.loads(done.out)
    assert (told["name"], told["home"]) == ("Waves", "https://www.timeseriesclassification.com/")
    assert told["parts"]["train"]["targets"] == {"class": {"a": 1, "b": 1}}
    assert told["parts"]["test"]["windows"] == 3
    assert told["parts"]["test"]["records"] == ["0", "1", "2"]


def test_many_classes_are_summed_up(run: Run, tmp_path: Path) -> None:
    rows = "".join(f"1,2,{n}:{n % 9}\n" for n in range(12))
    for part in ("TRAIN", "TEST"):
        (tmp_path / f"Many_{part}.ts").write_text(f"@classLabel true {' '.join('012345678')}\n@data\n{rows}")
    assert ["class", "test", "9", "1", "to", "2", "each"] in [
        line.split() for line in run("info", "Many").out.splitlines()
    ]


@pytest.mark.parametrize("name", ["mitdb", "Wave"])
def test_info_never_downloads(run: Run, waves: Path, name: str) -> None:
    done = run("info", name, "--data-root", waves)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("geopatch: ")
    assert done.err.count("\n") == 1
    assert "the download" not in done.err
    assert "GEOPATCH_DATA" in done.err


def test_prepare_refuses_what_cannot_be_found_before_it_begins(run: Run, waves: Path) -> None:
    done = run("prepare", "Waves", "nsrdb", "--data-root", waves)
    assert (done.code, done.out) == (2, "")
    assert "nsrdb is not there: looked in" in done.err
    assert "the download failed: Name or service not known" in done.err
    assert done.err.count("\n") == 1
    assert sorted(path.name for path in waves.iterdir()) == ["Waves"]


def test_prepare_leaves_a_cache(run: Run, waves: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    done = run("prepare", "Waves", "--data-root", waves, "--cache", made)
    assert (done.code, done.out) == (0, f"Waves: 2 train windows, 3 test windows in {made / 'Waves'}\n")
    Cache(made / "Waves").verify()
    again = run("prepare", "Waves", "--data-root", waves, "--cache", made)
    assert again.out.endswith("(nothing had changed)\n")
    told = json.loads(run("prepare", "Waves", "--data-root", waves, "--cache", made, "--json").out)
    counts = {"train": 2, "test": 3}
    assert told == [{"name": "Waves", "folder": str(made / "Waves"), "built": False, "windows": counts}]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--length-s", "3"], "Waves has whole series, not recordings; leave length_s out"),
        (["--band", "low,high"], "band must be two frequencies like 0.5,40, got 'low,high'"),
    ],
)
def test_prepare_refuses_settings_that_do_not_fit(run: Run, waves: Path, flags: list[str], message: str) -> None:
    done = run("prepare", "Waves", "--data-root", waves, *flags)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


@pytest.mark.parametrize("arguments", [[], ["list"], ["info"], ["prepare"]])
def test_help_is_there_for_each(run: Run, arguments: list[str]) -> None:
    done = run(*arguments, "--help")
    assert done.code == 0
    assert "Usage: geopatch data" in done.out


@pytest.mark.skipif(not (DATA / "arctic").is_dir(), reason="GEOPATCH_DATA names no folder of data sets")
@pytest.mark.parametrize(
    ("name", "part", "target", "classes"),
    [("nstdb", "test", "subject", 2), ("nsrdb", "train", "subject", 18),
     ("arctic", "test", "prompt", 148), ("BasicMotions", "test", "class", 4)],
)  # fmt: skip
def test_info_on_real_sets(run: Run, name: str, part: str, target: str, classes: int) -> None:
    told = json.loads(run("info", name, "--data-root", DATA, "--json").out)
    assert len(told["parts"][part]["targets"][target]) == classes
    assert sum(told["parts"][part]["targets"][target].values()) == told["parts"][part]["windows"]
