"""The demo searches without a label or a fit, measures, and shows what labels add."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geopatch import demo, read
from geopatch.cli import main
from geopatch.cli.demo import _program
from geopatch.data.collection import Collection
from geopatch.data.sample import basic_motions, ecg_windows, mitdb_minutes
from geopatch.demo import sample_gallery
from geopatch.errors import DataError, GalleryError
from geopatch.estimator import GeoPatch
from geopatch.evaluate.rows import Row
from geopatch.gallery import Gallery
from geopatch.kernels import fitting
from geopatch.search import Span

PNG = b"\x89PNG"
NAMES = ("BasicMotions_TEST", "ecg_windows")


def run(out: Path, *flags: str) -> str:
    """What a demo prints."""
    with redirect_stdout(io.StringIO()) as said:
        main(["demo", "--out", str(out), *flags])
    return said.getvalue()


def few_samples() -> tuple[tuple[Collection, Collection], ...]:
    """A sixth of the ECG to fit on, all of it to search."""
    before, after = demo._by_time(ecg_windows(), demo.FIT_S)
    return basic_motions(), (before.subset(range(0, len(before), 6)), after)


@pytest.fixture(scope="module", autouse=True)
def quick() -> Any:
    """Fits see few views of few windows, and are measured once."""
    kept, measure = list[Row](), demo.measure

    def once(say: demo.Say, **how: Any) -> list[Row]:
        kept.extend([] if kept else measure(say, **how))
        return list(kept)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "VIEWS", 500)
        patch.setattr(fitting, "SAMPLE_VIEWS", 256)
        patch.setattr(demo, "samples", few_samples)
        patch.setattr(demo, "measure", once)
        yield


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "out"


@pytest.fixture(scope="module")
def result(out: Path) -> dict[str, Any]:
    """What a short demo says of itself."""
    said: dict[str, Any] = json.loads(run(out, "--json", "--train", "--steps", "2"))
    return said


def test_demo_measures_both_samples_three_ways_and_draws(result: dict[str, Any], out: Path) -> None:
    seen = {(row["data"], row["preset"], row["stress"]) for row in result["rows"]}
    assert seen == {
        (data, preset, stress)
        for data in NAMES
        for preset in ("general", "instant", "default")
        for stress in ("clean", "warped queries")
    }
    assert result["figures"] == [str(out / "hits.png"), str(out / "alignment.png")]
    assert all(Path(figure).read_bytes().startswith(PNG) for figure in result["figures"])


def test_hits_are_of_other_patients_apart_certified_and_no_coincidence(result: dict[str, Any]) -> None:
    places = [(hit["record"], hit["start_s"]) for hit in result["hits"]]
    assert len(places) == demo.SHOWN
    for n, (record, start_s) in enumerate(places):
        assert record != demo.QUERY_RECORD
        assert all(abs(start_s - other) >= demo.MIN_GAP_S for name, other in places[:n] if name == record)
    assert all("nearest by cosine" in hit["certificate"]["covers"] for hit in result["hits"])
    assert all(hit["chance"] < 0.01 for hit in result["hits"])
    assert all(hit["metadata"] == {"beat": demo.QUERY_BEAT} for hit in result["hits"])
    assert result["summary"].startswith(f"{demo.SHOWN} of the {demo.SHOWN} ")


def test_the_gallery_holds_its_model_and_the_third_minute(result: dict[str, Any]) -> None:
    _, after = demo._by_time(ecg_windows(), demo.FIT_S)
    assert after.labels is not None
    with Gallery.open(result["gallery"], read_only=True) as gallery:
        assert len(gallery) == len(after)
        assert gallery.count(f"start_s < {demo.FIT_S}") == 0
        assert gallery.count("beat == 'V'") == after.labels.tolist().count("V") > 0
        assert gallery.search(after.signals[0], k=1)[0].id == after.signals[0].id


def test_the_search_that_it_names_works(result: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    main([*result["again"], "--json"])
    again = json.loads(capsys.readouterr().out)
    assert len(again["hits"]) == demo.SHOWN
    assert all(hit["record"] != demo.QUERY_RECORD for hit in again["hits"])
    assert all(Path(figure).read_bytes().startswith(PNG) for figure in again["figures"])


def test_demo_can_be_run_again_and_prints_hits_before_it_measures(result: dict[str, Any], out: Path) -> None:
    said = run(out)
    for hit in result["hits"]:
        assert hit["id"] in said
    for place in (result["gallery"], *result["figures"]):
        assert place in said
    assert " ".join(result["again"]) in said
    assert "drift by less than the radius" in said
    assert said.index("no label is used") < said.index(result["hits"][0]["id"]) < said.index("instant")
    assert "demo --train" in said
    assert "default" not in said


def test_steps_without_training_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(tmp_path, "--steps", "2")
    assert ended.value.code == 2
    assert "--train" in capsys.readouterr().err


def test_a_folder_that_is_no_gallery_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(GalleryError, match="gallery"):
        demo.make_gallery(tmp_path, GeoPatch(), ecg_windows())
    assert (tmp_path / "mine").read_text() == "precious"


def test_the_program_is_named_as_it_can_be_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "geopatch"
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setenv("PATH", "")
    assert _program() == str(program)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _program() == "geopatch"
    monkeypatch.setattr(sys, "argv", ["__main__.py"])
    assert _program() == f"{sys.executable} -m geopatch"


def test_no_sample_of_the_search_was_fitted_on() -> None:
    before, after = demo._by_time(ecg_windows(), demo.FIT_S)
    assert max(signal.start_s + signal.duration_s for signal in before.signals) <= demo.FIT_S
    assert min(signal.start_s for signal in after.signals) >= demo.FIT_S
    assert len(before) > len(after) > 300


def test_a_gallery_to_look_at_is_made_once(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        place = sample_gallery(tmp_path / "new", said.append, device="cpu")
    assert len(said) == 1
    with Gallery.open(place) as gallery:
        assert len(gallery) == 6 * 179
        assert {record.name for record in gallery.contents().records} >= {"119", "208"}
        hits = gallery.search(Span("119", 130.2, 132.2), k=3, protocol=demo.PROTOCOL)  # what the page opens on
        assert len(hits) == 3


def test_the_built_in_ecg_can_be_written_as_files_that_are_read_as_they_were(tmp_path: Path) -> None:
    said = run(tmp_path, "--recordings", str(tmp_path / "ecg"))
    assert "6 recordings" in said
    assert "index" in said
    for recording in mitdb_minutes():
        (signal,) = read(tmp_path / "ecg" / f"{recording.subject}.csv").signals
        assert signal.id == recording.signal.id
        assert signal.rate_hz == pytest.approx(360, rel=1e-4)
        assert signal.channels == recording.signal.channels
        assert signal.units == ("mV", "mV")
        assert np.abs(signal.values - recording.signal.values).max() <= 0.0005 + 1e-6
    with pytest.raises(DataError, match="is there already"):
        demo.write_recordings(tmp_path / "ecg")
