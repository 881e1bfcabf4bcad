"""`geopatch search`: every kind of query, tables and JSON, figures, and one line for whatever a user can cure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from commands import Ran, Run, runner
from naive_search import ABOUT, entries_of

from geopatch.config import ModelConfig, TrainConfig
from geopatch.data.physionet import read_wfdb
from geopatch.data.sample import ecg_windows
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.protocol import MEANING
from geopatch.scoring import SCORERS
from geopatch.search import SearchOptions

DATA = Path(os.environ.get("GEOPATCH_DATA", "nowhere"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a gallery of ECG windows, the same without values, and a file of queries."""
    folder = tmp_path_factory.mktemp("place")
    windows = ecg_windows().subset(np.arange(0, 1000, 25))
    config = ModelConfig(halves=("learned",), width=16, embedding=8, layers=1, heads=1)
    train = TrainConfig(epochs=1, min_steps=2, max_steps=2, batch_size=8)
    model = GeoPatch(model=config, train=train, device="cpu").fit(windows.signals, windows.labels)
    model.save(folder / "model")
    assert windows.labels is not None
    rows = [{"label": str(label)} for label in windows.labels]
    for name, keep in (("gallery", True), ("bare", False)):
        with Gallery.create(folder / name, model) as made:
            made.add(windows.signals, metadata=rows, keep_windows=keep)
    X = np.stack([signal.values for signal in windows.signals[:3]])
    np.savez(folder / "queries.npz", X=X, ids=np.asarray(["one", "two", "three"]), rate_hz=128.0)
    return folder


@pytest.fixture
def run(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(place)

    return runner(capsys, "search")


def stored(place: Path, n: int = 0) -> str:
    with Gallery.open(place / "gallery", read_only=True) as opened:
        return next(opened.scan()).ids[n]


def ids(ran: Ran) -> list[str]:
    assert ran.code == 0, ran.err
    return [hit["id"] for hit in json.loads(ran.out)["hits"]]


def test_by_the_id_of_a_stored_window(run: Run, place: Path) -> None:
    id = stored(place)
    told = ids(run("gallery", "--id", id, "-k", 3, "--json"))
    with Gallery.open(place / "gallery", read_only=True) as opened:
        assert told == [hit.id for hit in opened.search(id, 3)]


def test_the_table_names_hits_their_times_and_metadata(run: Run, place: Path) -> None:
    ran = run("gallery", "--id", stored(place), "-k", 2, "--certify", "--explain")
    assert ran.code == 0
    assert all(name in ran.out for name in ("id", "record", "start s", "stop s", "fused", "radius", "label=N"))
    assert "1, 2: " in ran.out
    assert ran.out.count("similarity") >= 32


def test_the_shortlist_from_tokens(run: Run, place: Path) -> None:
    id = stored(place)
    near = ids(run("gallery", "--id", id, "-k", 3, "--shortlist", "tokens:3", "--scorer", "aligned", "--json"))
    with Gallery.open(place / "gallery", read_only=True) as opened:
        assert near == [hit.id for hit in opened.search(id, 3, shortlist="tokens:3", scorer="aligned")]
    assert len(ids(run("gallery", "--id", id, "-k", 3, "--shortlist", "7", "--json"))) == 3
    refused = run("gallery", "--id", id, "--shortlist", "vectors")
    assert refused.code == 2
    assert "shortlist must be a number from 1 on, tokens" in refused.err


def test_by_a_signal_of_a_file(run: Run) -> None:
    first = ids(run("gallery", "queries.npz", "--model", "model", "-k", 2, "--json"))
    assert first == ids(run("gallery", "queries.npz", "--row", 0, "--model", "model", "-k", 2, "--json"))
    assert first == ids(run("gallery", "queries.npz", "--id", "one", "--model", "model", "-k", 2, "--json"))
    assert first[0] != ids(run("gallery", "queries.npz", "--row", 2, "--model", "model", "-k", 1, "--json"))[0]


def test_by_a_part_of_a_stored_record(run: Run, place: Path) -> None:
    window = ecg_windows().signals[0]
    whole = ["--record", window.record, "--start", window.start_s, "--stop", window.start_s + window.duration_s]
    assert ids(run("gallery", *whole, "--json")) == ids(run("gallery", "--id", stored(place), "--json"))
    half = ["--record", window.record, "--start", window.start_s, "--stop", window.start_s + 1]
    assert len(ids(run("gallery", *half, "--model", "model", "--json"))) == 10


@pytest.mark.skipif(not (DATA / "mitdb" / "100.dat").is_file(), reason="needs GEOPATCH_DATA with mitdb")
def test_by_a_part_of_a_recording(run: Run, place: Path) -> None:
    recording = ["gallery", DATA / "mitdb" / "100", "--start", 0, "--stop", 2, "--model", "model"]
    query = read_wfdb(DATA / "mitdb" / "100").signal.resampled(128.0).window(0, 256)
    with Gallery.open(place / "gallery", model=GeoPatch.load(place / "model"), read_only=True) as opened:
        assert ids(run(*recording, "--json")) == [hit.id for hit in opened.search(query)]
    strict = json.loads(run(*recording, "--protocol", "strict-cross-record", "--json").out)["hits"]
    assert all(hit["record"] != "100" for hit in strict)
    assert (
        "lasts 1805.56 s, which does not hold 1900 to 1902 s" in run(*recording[:2], "--start=1900", "--stop=1902").err
    )


def test_what_to_leave_out(run: Run, place: Path) -> None:
    asked = ["gallery", "--id", stored(place), "-k", 20, "--json"]
    record = stored(place).split("@")[0]
    strict = json.loads(run(*asked, "--protocol", "strict-cross-record").out)["hits"]
    assert strict
    assert all(hit["record"] != record for hit in strict)
    labelled = json.loads(run(*asked, "--where", "label != 'N'").out)["hits"]
    assert all(hit["metadata"]["label"] != "N" for hit in labelled)
    best = json.loads(run(*asked).out)["hits"]
    assert ids(run(*asked, "--min-score", best[4]["score"] - 1e-6)) == [hit["id"] for hit in best[:5]]
    apart = json.loads(run(*asked, "--min-gap", 1000).out)["hits"]
    assert len({hit["record"] for hit in apart}) == len(apart)


@pytest.mark.parametrize("scorer", ["cosine", "dtw"])
def test_figures_of_all_hits_and_of_the_best(run: Run, place: Path, tmp_path: Path, scorer: str) -> None:
    figure = tmp_path / "hits.svg"
    ran = run(
        "gallery", "--id", stored(place), "--model", "model", "--scorer", scorer, "-k", 3, "--plot", figure, "--json"
    )
    assert json.loads(ran.out)["figures"] == [str(figure), str(tmp_path / "hits-alignment.svg")]
    assert all(Path(file).read_bytes().startswith(b"<?xml") for file in json.loads(ran.out)["figures"])


def test_nothing_found_is_no_error(run: Run, place: Path) -> None:
    asked = ["gallery", "--id", stored(place), "--where", "label == 'nothing'"]
    assert run(*asked).out == "no hits\n"
    assert json.loads(run(*asked, "--json", "--plot", "never.png").out) == {"hits": [], "notes": [], "figures": []}


def test_every_mistake_is_one_line(run: Run, place: Path) -> None:
    id = stored(place)
    mistakes: list[tuple[list[object], str]] = [
        (["gallery"], "search by one of: a file QUERY"),
        (["gallery", "--id", "nobody"], "has no entry 'nobody'"),
        (["gallery", "--id", id, "--row", 1], "--row has no meaning"),
        (["gallery", "--record", "100", "--start", 1], "give both --start and --stop"),
        (["gallery", "queries.npz", "--model", "model", "--row", 7], "has 3 signals, so --row lies within 0 and 2"),
        (["gallery", "queries.npz", "--model", "model", "--id", "four"], "has no signal 'four'; the first is 'one'"),
        (["gallery", "queries.npz", "--model", "model", "--id", "one", "--row", 1], "--id or --row, not both"),
        (["gallery", "queries.npz", "--model", "nowhere"], "nowhere is no model folder"),
        (["gallery", "absent.csv", "--model", "model"], "no such file"),
        (["gallery", "absent", "--start", 0, "--stop", 1], "absent: no such file"),
        (["nowhere", "--id", id], "nowhere"),
        (["gallery", "--id", id, "--scorer", "best"], "'best' is not one of"),
        (["gallery", "--id", id, "-k", 0], "k must be at least 1"),
        (["gallery", "--id", id, "--where", "label ="], "cannot read the filter"),
        (["gallery", "--id", id, "--plot", "x.bmp"], "must be one of .png, .svg"),
        (["gallery", "--id", id, "--plot", "absent/x.png"], "there is no folder"),
        (["bare", "--id", id, "--plot", "x.png"], "keeps no values"),
    ]
    for arguments, expected in mistakes:
        ran = run(*arguments)
        assert (ran.code, ran.out) == (2, ""), arguments
        assert ran.err.startswith("geopatch: "), arguments
        assert ran.err.count("\n") == 1, arguments
        assert expected in ran.err, arguments


LIGHT = """
import resource, sys
from geopatch.cli import main
main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, *sys.modules, file=sys.stderr)
"""
HEAVY = {"torch", "sklearn", "scipy", "polars", "matplotlib", "pydantic"}


def in_a_process(*arguments: str) -> tuple[str, float, set[str]]:
    """What a verb prints, the CPU seconds of the whole process, and which modules it loaded."""
    done = subprocess.run([sys.executable, "-c", LIGHT, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    seconds, *modules = done.stderr.split()
    return done.stdout, float(seconds), set(modules)


def test_searching_by_a_stored_id_is_light(tmp_path: Path) -> None:
    """No torch: the window is encoded already."""
    with Gallery.create(tmp_path / "gallery", ABOUT) as made:
        made.add(entries_of(20))
    out, seconds, modules = in_a_process("search", str(tmp_path / "gallery"), "--id", "w3", "-k", "3")
    assert len(out.splitlines()) == 5
    assert not modules & HEAVY
    assert seconds < 1.5


@pytest.mark.parametrize("verb", ["search", "evaluate", "stress"])
def test_help_is_light(verb: str) -> None:
    out, _, modules = in_a_process(verb, "--help")
    assert not modules & {"numpy", "rich", *HEAVY}
    assert out.startswith(f"Usage: geopatch {verb}")


def test_every_option_of_a_search_is_a_flag(run: Run) -> None:
    told = " ".join(run("--help").out.split())
    for item in fields(SearchOptions):
        if item.name != "windows":
            flag = "-k" if item.name == "k" else f"--{item.name.removesuffix('_s').replace('_', '-')} "
            assert flag in told, item.name
            assert item.metadata["help"].split(";")[0] in told
    assert "|".join(SCORERS) in told
    assert "|".join(MEANING) in told
