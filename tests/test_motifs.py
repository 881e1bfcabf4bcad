"""Motifs and anomalies: the fast way equals comparing all with all, and nothing that overlaps counts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import Run, runner
from galleries import ABOUT, entries_of
from serving import client_of, make_place

from geopatch.engines import Embeddings, Entries
from geopatch.errors import ConfigError, NotFoundError
from geopatch.gallery import Gallery
from geopatch.search import neighbours
from geopatch.search.motifs import apart, lonely, motif_groups
from geopatch.search.neighbours import Neighbours


def windows_of(vectors: np.ndarray, records: int = 5, length_s: float = 2.0) -> Embeddings:
    """Windows that start a second after each other, in turn in one of several records."""
    count, unit = len(vectors), vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    start_s = (np.arange(count) // records).astype(np.float64)
    names = tuple(f"r{n % records}" for n in range(count))
    ids = tuple(f"w{n}" for n in range(count))
    return Embeddings("digest", ids, names, start_s, start_s + length_s, unit.astype(np.float32))


def planted(count: int, seed: int = 0) -> Embeddings:
    """Noise with three things that are repeated: 40, 20 and 10 times, far apart in time."""
    draw = np.random.default_rng(seed)
    vectors = draw.normal(size=(count, 32))
    for size, first in ((40, 0), (20, 1), (10, 2)):
        rows = np.arange(first * 7, count, count // 45)[:size] + first
        vectors[rows] = vectors[rows[0]] + 0.05 * draw.normal(size=(size, 32))
    return windows_of(vectors)


def naive_nearest(windows: Embeddings) -> tuple[list[float], list[int]]:
    cosines, rows = [], []
    for n in range(len(windows)):
        best, row = -np.inf, -1
        for m in range(len(windows)):
            overlap = windows.start_s[n] < windows.stop_s[m] and windows.start_s[m] < windows.stop_s[n]
            if windows.records[n] == windows.records[m] and overlap:
                continue
            cosine = float(windows.vectors[n].astype(float) @ windows.vectors[m].astype(float))
            if cosine > best:
                best, row = cosine, m
        cosines.append(best)
        rows.append(row)
    return cosines, rows


def test_the_nearest_of_every_window_is_that_of_all_pairs() -> None:
    windows = planted(300)
    nearest, (cosines, rows) = Neighbours(windows).nearest(), naive_nearest(windows)
    np.testing.assert_allclose(nearest.cosine, cosines, atol=1e-5)
    assert nearest.row.tolist() == rows


def test_a_large_gallery_is_bounded_from_below(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = Neighbours(planted(2_000))
    exact = windows.nearest()
    monkeypatch.setattr(neighbours, "EXACT_BELOW", 100)
    monkeypatch.setattr(neighbours, "GROUP", 64)
    near = windows.nearest()
    assert (near.cosine <= exact.cosine + 1e-5).all()
    repeated = exact.cosine > 0.9
    assert (near.row[repeated] >= 0).all()
    assert (near.cosine[repeated] > 0.9).mean() > 0.9


@pytest.mark.parametrize("exact_below", [10_000, 100])
def test_anomalies_are_exact(exact_below: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "EXACT_BELOW", exact_below)
    monkeypatch.setattr(neighbours, "GROUP", 64)
    windows = planted(700)
    cosines, rows = naive_nearest(windows)
    expected = apart(Neighbours(windows), np.argsort(cosines).tolist(), 12)
    answer = lonely(Neighbours(windows), 12)
    assert [row for row, _, _ in answer] == expected
    assert [near for _, near, _ in answer] == [rows[row] for row in expected]
    np.testing.assert_allclose([cosine for *_, cosine in answer], [cosines[row] for row in expected], atol=1e-5)


@pytest.mark.parametrize("exact_below", [10_000, 100])
def test_motifs_are_the_most_repeated_first(exact_below: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "EXACT_BELOW", exact_below)
    monkeypatch.setattr(neighbours, "GROUP", 64)
    groups = motif_groups(Neighbours(planted(1_800)), 5, least=0.8)
    assert [len(rows) for rows, _ in groups] == [40, 20, 10]
    everyone = [row for rows, _ in groups for row in rows]
    assert len(everyone) == len(set(everyone))
    assert all(cosines[0] == 1.0 and min(cosines) >= 0.8 for _, cosines in groups)
    assert all(cosines == sorted(cosines, reverse=True) for _, cosines in groups)


def test_windows_that_overlap_in_time_are_neither_likes_nor_neighbours() -> None:
    vectors = np.repeat(np.random.default_rng(0).normal(size=(1, 8)), 6, axis=0)
    one_record = windows_of(vectors, records=1, length_s=3.0)
    ((rows, _),) = motif_groups(Neighbours(one_record), 3)
    spans = sorted((one_record.start_s[row], one_record.stop_s[row]) for row in rows)
    assert len(rows) == 2
    assert spans[0][1] <= spans[1][0]
    together = replace(one_record, start_s=np.zeros(6), stop_s=np.ones(6))
    assert motif_groups(Neighbours(together), 3) == []
    assert lonely(Neighbours(together), 3) == []


def test_noise_has_no_motif_beyond_chance() -> None:
    windows = windows_of(np.random.default_rng(1).normal(size=(500, 32)))
    assert motif_groups(Neighbours(windows), 5, least=0.95) == []


def stored(count: int = 60) -> Entries:
    """Entries of which every fifth is the same thing, at places that do not overlap."""
    entries = entries_of([f"w {n}" for n in range(count)])
    vectors = entries.embedding.copy()
    vectors[::5] = vectors[0]
    start_s = 3 * np.arange(count, dtype=np.float64)
    return replace(entries, embedding=vectors, start_s=start_s, stop_s=start_s + 2.0)


def test_a_gallery_lists_motifs_and_anomalies(tmp_path: Path) -> None:
    with Gallery.create(tmp_path / "gallery", ABOUT) as gallery:
        assert gallery.motifs() == []
        assert gallery.anomalies() == []
        gallery.add(stored())
        motif = gallery.motifs(k=1)[0]
        assert (motif.rank, motif.count, motif.chance) == (1, len(motif.members), None)
        assert {member.id for member in motif.members[:12]} == {f"w {n}" for n in range(0, 60, 5)}
        assert motif.as_dict(members=2)["members"][1]["cosine"] == pytest.approx(1.0, abs=1e-5)
        assert any(member.window is not None for member in motif.members)
        lone = gallery.anomalies(k=3)
        assert [one.rank for one in lone] == [1, 2, 3]
        assert lone[0].distance >= lone[1].distance >= lone[2].distance > 0.05
        assert lone[0].place.id not in {member.id for member in motif.members}
        assert lone[0].as_dict()["nearest"]["id"] == lone[0].nearest.id
        some = gallery.anomalies(k=60, where={"sex": "F"})
        assert 0 < len(some) == gallery.count({"sex": "F"})
        with pytest.raises(ConfigError, match="k must be at least 1"):
            gallery.motifs(0)
        with pytest.raises(NotFoundError, match="no entry has a field 'colour'"):
            gallery.anomalies(where="colour == 'red'")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def test_the_command_line_lists_and_draws_both(place: Path, run: Run, tmp_path: Path) -> None:
    for verb, key in (("motifs", "times"), ("anomalies", "distance")):
        figure = tmp_path / f"{verb}.png"
        table = run(verb, place / "gallery", "-k", 3, "--plot", figure, "--device", "cpu")
        assert (table.code, table.err) == (0, "")
        assert key in table.out
        assert "record" in table.out
        assert figure.stat().st_size > 10_000
        rows = json.loads(run(verb, place / "gallery", "-k", 2, "--json", "--device", "cpu").out)[verb]
        assert len(rows) == 2
        assert rows[0]["rank"] == 1
    refused = run("anomalies", place / "gallery", "--plot", tmp_path / "x.pdf")
    assert refused.code == 2
    assert "--plot" in refused.err


def test_the_server_answers_with_both(place: Path) -> None:
    with client_of(place) as client:
        motifs = client.get("/api/motifs", params={"k": 2, "members": 3, "windows": True}).json()["motifs"]
        assert motifs[0]["count"] >= len(motifs[0]["members"]) >= 2
        assert motifs[0]["members"][0]["window"]["values"]
        answer = client.get("/api/anomalies", params={"k": 4, "where": '{"second": {"<": 6}}'}).json()
        assert len(answer["anomalies"]) == 4
        assert all(one["start_s"] < 6 and one["window"] is None for one in answer["anomalies"])
        assert client.get("/api/anomalies", params={"where": "{"}).status_code == 422
        assert client.get("/api/motifs", params={"k": 0}).status_code == 422
