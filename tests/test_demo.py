"""The demo runs, measures and draws."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from geopatch import demo
from geopatch.cli import main
from geopatch.data.sample import ecg_windows
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.server.sample import sample_gallery


def test_demo_measures_both_samples_and_draws_hits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["demo", "--out", str(tmp_path / "demo"), "--steps", "2", "--json"])
    told = json.loads(capsys.readouterr().out)
    seen = {(row["data"], row["stress"]) for row in told["rows"]}
    assert seen == {
        (data, stress) for data in ("BasicMotions_TEST", "ecg_windows") for stress in ("clean", "warped queries")
    }
    assert (tmp_path / "demo" / "hits.png").read_bytes().startswith(b"\x89PNG")
    assert told["figure"] == str(tmp_path / "demo" / "hits.png")


def test_no_sample_of_the_search_was_trained_on() -> None:
    before, after = demo._by_time(ecg_windows(), demo.TRAIN_S)
    assert max(signal.start_s + signal.duration_s for signal in before.signals) <= demo.TRAIN_S
    assert min(signal.start_s for signal in after.signals) >= demo.TRAIN_S
    assert len(before) > len(after) > 300


def test_drawn_hits_do_not_overlap() -> None:
    windows = ecg_windows().subset(np.arange(20))
    kept = demo._apart(windows, np.asarray([4, 5, 3, 6, 2]))
    assert kept == [4, 6, 2]


def test_a_gallery_to_look_at_is_made_once(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        place = sample_gallery(tmp_path / "new", said.append, progress=False, device="cpu", steps=1)
    assert len(said) == 1
    with Gallery.open(place, model=GeoPatch.load(tmp_path / "new" / "ecg-model", device="cpu")) as gallery:
        assert len(gallery) == 6 * 179
        assert {record.name for record in gallery.contents().records} >= {"119", "208"}
