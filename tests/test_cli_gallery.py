"""`geopatch gallery` on the command line: each verb once, and one line for what a user can cure."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars
import pytest
from commands import Run, runner

from geopatch.config import ModelConfig, TrainConfig
from geopatch.data.sample import mitdb_minutes
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.signal import Signal

SMALL = ModelConfig(halves=("learned",), patch_length=4, max_patches=4, width=16, embedding=8, layers=1, heads=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    draw = np.random.default_rng(0)
    some = [Signal.from_array(draw.normal(size=(64, 2)), id=str(n), rate_hz=32.0) for n in range(8)]
    GeoPatch(model=SMALL, train=TrainConfig(epochs=1, min_steps=1, max_steps=1), device="cpu").fit(some).save(folder)
    return folder


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    return runner(capsys, "gallery")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three signals of 64 samples and two channels, and a long one."""
    draw, rows = np.random.default_rng(1), list[dict[str, object]]()
    for id, length in (("a", 64), ("b", 64), ("c", 64), ("long", 200)):
        rows += [{"id": id, "label": id.upper(), "x": draw.normal(), "y": draw.normal()} for _ in range(length)]
    polars.DataFrame(rows).write_csv(tmp_path / "signals.csv")
    return tmp_path / "signals.csv"


def test_a_gallery_from_its_making_to_its_export(run: Run, model: Path, table: Path) -> None:
    assert run("create", "g", "--model", model).out == "created the gallery g\n"
    assert run("add", "g", table, "--model", model, "--set", "site=A", "--set", "year=1979").out == (
        "added 4 windows to g, which has 4\n"
    )
    again = ("add", "g", table, "--model", model, "--set", "year=1980")
    assert "the gallery has 'a', 'b', 'c' and 1 more already" in run(*again).err
    assert "4 replaced others of the same id" in run(*again, "--existing", "replace").out
    found = json.loads(run("info", "g", "--json").out)
    assert (found["windows"], found["engine"], found["about"]["rate_hz"]) == (4, "embedded", 32.0)
    assert "8 numbers, 4 tokens of 16" in run("info", "g").out
    with Gallery.open("g", read_only=True) as gallery:
        assert gallery.get("b").metadata == ({"file": "signals.csv", "label": "B", "year": 1980},)
    assert json.loads(run("copy", "g", "exact:h", "--where", "label in ('A', 'B')", "--json").out)["windows"] == 2
    assert json.loads(run("optimize", "h", "--json").out)["indexed"] == 0
    assert run("export", "h", "out.parquet").out == "exported 2 windows to out.parquet\n"
    assert polars.read_parquet("out.parquet")["id"].to_list() == ["a", "b"]
    assert "the gallery has no entry 'nowhere'; nothing was removed" in run("remove", "g", "a", "nowhere").err
    done = run("remove", "g", "a", "nowhere", "--missing", "ignore")
    assert done.out == "removed 1 windows from g, which has 3\n"
    assert "no entry has a field 'yaer'; fields are:" in run("remove", "g", "--where", "yaer == 1980").err
    assert json.loads(run("remove", "g", "--where", "year == 1980", "--json").out) == {
        "place": "g",
        "removed": 3,
        "windows": 0,
    }


def test_signals_are_cut_into_windows(run: Run, model: Path, table: Path) -> None:
    run("create", "g", "--model", model)
    # A table without times is taken to have the model's 32 Hz.
    done = run("add", "g", table, "--model", model, "--window-s", "1", "--overlap", "0", "--prefix", "p/", "--json")
    assert json.loads(done.out)["written"] == 2 + 2 + 2 + 6
    with Gallery.open("g", read_only=True) as gallery:
        found = gallery.get("p/long@2s")
    assert (found.records, found.start_s[0], found.stop_s[0]) == (("p/long",), 2.0, 3.0)
    assert found.metadata[0]["label"] == "LONG"


def test_files_without_ids_are_kept_apart(run: Run, model: Path, tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    for name in ("train", "test"):
        rows = draw.normal(size=(20, 2, 16)).round(3)
        lines = [":".join(",".join(map(str, channel)) for channel in row) + ":x" for row in rows]
        header = ["@problemName p", "@timeStamps false", "@missing false", "@univariate false", "@dimension 2"]
        header += ["@equalLength true", "@seriesLength 16", "@classLabel true x", "@data"]
        (tmp_path / f"{name}.ts").write_text("\n".join([*header, *lines]))
    run("create", "g", "--model", model)
    files = ("add", "g", "train.ts", "test.ts", "--model", model, "--json")
    assert json.loads(run(*files).out)["windows"] == 40
    assert "'train/0', 'train/1', 'train/2' and 17 more already" in run(*files).err
    assert json.loads(run(*files, "--existing", "skip").out)["written"] == 0
    assert json.loads(run(*files, "--prefix", "b/", "--existing", "skip").out)["written"] == 20
    with Gallery.open("g", read_only=True) as gallery:
        assert gallery.get("test/19").metadata[0]["file"] == "test.ts"
        assert "b/0" in gallery


def test_known_windows_can_be_skipped(run: Run, model: Path, table: Path) -> None:
    run("create", "g", "--model", model)
    run("add", "g", table, "--model", model, "--drop-windows")
    assert json.loads(run("add", "g", table, "--model", model, "--existing", "skip", "--json").out)["written"] == 0
    with Gallery.open("g", read_only=True) as gallery:
        assert gallery.get("a").windows == (None,)


def test_wfdb_records_are_windowed(run: Run, model: Path, tmp_path: Path) -> None:
    wfdb = pytest.importorskip("wfdb")
    recording = mitdb_minutes()[0]
    values = recording.signal.values[:7200].astype(np.float64)
    names = list(recording.signal.channels)
    wfdb.wrsamp("r1", fs=360, units=["mV", "mV"], sig_name=names, p_signal=values, fmt=["16", "16"])
    beats = recording.beat_samples < 7200
    wfdb.wrann("r1", "atr", recording.beat_samples[beats], symbol=list(recording.beat_symbols[beats]))
    run("create", "g", "--model", model)
    for name in ("r1", "r1.hea"):
        done = run("add", "g", tmp_path / name, "--model", model, "--existing", "replace", "--json")
        assert json.loads(done.out)["windows"] == 19  # 20 s in windows of 2 s, half overlapping
    with Gallery.open("g", read_only=True) as gallery:
        found = gallery.get("r1@4s")
    assert (found.records, found.stop_s[0], found.metadata[0]["subject"]) == (("r1",), 6.0, "r1")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["info", "nowhere"], "nowhere is no gallery"),
        (["create", "g"], "Missing option '--model'"),
        (["create", "g", "--model", "nowhere"], "nowhere is no model folder"),
        (["remove", "g"], "either ids, --record or --where"),
        (["remove", "g", "a", "--where", "x == 1"], "either ids, --record or --where"),
        (["export", "g", "out.csv"], "g is no gallery"),
        (["info", "ftp://x"], "expected a folder, exact:FOLDER or postgresql"),
    ],
    ids=str,
)
def test_errors_are_one_line(run: Run, arguments: list[str], told: str) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1


def test_settings_that_are_none(run: Run, model: Path, table: Path) -> None:
    run("create", "g", "--model", model)
    assert "--set takes NAME=VALUE, got 'x'" in run("add", "g", table, "--model", model, "--set", "x").err
    assert "cannot read the filter" in run("remove", "g", "--where", "x ==").err
    assert "cannot export to out.csv" in run("export", "g", "out.csv").err
    assert "exists already" in run("create", "g", "--model", model).err


def test_a_gallery_is_looked_after(run: Run, model: Path, table: Path) -> None:
    run("create", "g", "--model", model)
    run("add", "g", table, "--set", "site=A")
    assert run("relabel", "g", "--set", "site=B", "--unset", "file", "--record", "a").out == (
        "changed the metadata of 1 windows of g\n"
    )
    assert "say what to change" in run("relabel", "g").err
    assert "backed up 4 windows of g to g.backup" in run("backup", "g", "g.backup").out
    assert run("remove", "g", "--record", "b", "--record", "c").out == "removed 2 windows from g, which has 2\n"
    assert "no record 'b'" in run("remove", "g", "--record", "b").err
    assert "g is there already" in run("restore", "g.backup", "g").err
    assert "restored 4 windows from g.backup to g" in run("restore", "g.backup", "g", "--replace").out
    assert "restored 4 windows" in run("restore", "g.backup", "again").out
    with Gallery.open("again", read_only=True) as gallery:
        assert gallery.get("a").metadata == ({"label": "A", "site": "B"},)
    shown = run("info", "again", "--records").out
    assert "records    4" in shown
    assert "channels   x, y" in shown
    assert "learned, fitted on 8 windows" in shown
    assert "created    20" in shown
    assert "  long: 0 to " in shown
    fields = json.loads(run("info", "again", "--json").out)
    assert {row["name"] for row in fields["records"]} == {"a", "b", "c", "long"}
    assert (fields["layouts"], fields["model"]["windows"]) == ([["x", "y"]], 8)
