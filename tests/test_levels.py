"""Windows at several lengths: what is searched is found at any length, to the sample, in a chain where it is long."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from commands import runner
from galleries import everything, same

import geopatch
from geopatch.data.front_end import LEVEL_FACTOR, FrontEnd
from geopatch.engines.rows import Rows
from geopatch.errors import ConfigError
from geopatch.gallery import Gallery
from geopatch.indexing.settings import IndexSettings
from geopatch.kernels import fitting
from geopatch.search import Hits, placing, refine
from geopatch.search.chain import parts_of
from geopatch.search.levels import OVERLAPPING, Levels, shared
from geopatch.search.placing import evidence
from geopatch.search.refine import best_fit
from geopatch.signal import Signal

RATE_HZ, WINDOW_S = 50.0, 2.0
Values = npt.NDArray[np.float64]


def wave(draw: np.random.Generator, samples: int) -> Values:
    """Smooth noise (T, 2): no two parts of it are alike."""
    rough = draw.normal(size=(samples + 40, 2))
    kernel = np.hanning(17) / np.hanning(17).sum()
    return np.stack([np.convolve(column, kernel, "valid")[:samples] for column in rough.T], axis=1)


def stretched(values: Values, length: int) -> Values:
    at = (np.arange(length) + 0.5) * len(values) / length - 0.5
    return np.stack([np.interp(at, np.arange(len(values)), column) for column in values.T], axis=1)


@dataclass(frozen=True)
class Planted:
    """Recordings, and for each motif where it begins and ends: (record, first sample, last but one)."""

    signals: list[Signal]
    motifs: dict[str, Values]
    copies: dict[str, list[tuple[str, int, int]]]
    place: Path

    def query(self, name: str) -> Signal:
        return Signal(self.motifs[name].astype(np.float32), "query", RATE_HZ, ("x", "y"))

    def copy_of(self, name: str, hits: Hits) -> list[tuple[str, int, int] | None]:
        """The copy that each hit overlaps by half."""
        spans = [(copy, (copy[0], copy[1] / RATE_HZ, copy[2] / RATE_HZ)) for copy in self.copies[name]]
        places = [(hit.record, hit.start_s, hit.stop_s) for hit in hits]
        return [next((copy for copy, span in spans if shared(place, span) >= 0.5), None) for place in places]


@pytest.fixture(scope="module", autouse=True)
def _short_fits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"VIEWS": 2000, "SAMPLE_VIEWS": 512, "RANK": 128}.items():
            patch.setattr(fitting, name, value)
        yield


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Three recordings of 80 s; a short, a middle and a long motif at speeds 1, 0.8 and 1.25."""
    draw = np.random.default_rng(3)
    motifs = {"short": wave(draw, 60), "middle": wave(draw, 110), "long": wave(draw, 500)}
    copies: dict[str, list[tuple[str, int, int]]] = {name: [] for name in motifs}
    signals = []
    for n, speed in enumerate((1.0, 0.8, 1.25)):
        values = wave(draw, 4000)
        for start, name in ((137, "short"), (900, "middle"), (1501, "long"), (2703, "short"), (3311, "middle")):
            length = round(len(motifs[name]) / speed)
            values[start : start + length] = stretched(motifs[name], length)
            copies[name].append((f"r{n}", start, start + length))
        values += 0.001 * draw.normal(size=values.shape)
        signals.append(Signal(values.astype(np.float32), f"r{n}", RATE_HZ, ("x", "y")))
    place = tmp_path_factory.mktemp("levels") / "gallery"
    geopatch.index(signals, place, window_s=WINDOW_S, shortest_s=WINDOW_S / 2, longest_s=2 * WINDOW_S).close()
    return Planted(signals, motifs, copies, place)


@pytest.fixture
def gallery(planted: Planted) -> Iterator[Gallery]:
    with Gallery.open(planted.place, read_only=True) as opened:
        yield opened


def test_levels_are_a_constant_factor_apart_and_hold_both_ends() -> None:
    levels = FrontEnd(2.0, shortest_s=0.5, longest_s=4.0).levels_s
    assert (levels[0], levels[-1]) == (0.5, 4.0)
    assert 2.0 in levels
    ratios = np.asarray(levels[1:]) / np.asarray(levels[:-1])
    assert ratios.max() <= LEVEL_FACTOR + 1e-6
    np.testing.assert_allclose(ratios, 2**0.5, rtol=1e-4)
    assert FrontEnd(2.0).levels_s == (2.0,)
    assert FrontEnd(None).levels_s == ()


def test_a_gallery_holds_windows_of_each_length(gallery: Gallery) -> None:
    front = gallery.front_end
    assert front is not None
    assert (front.shortest_s, front.window_s, front.longest_s) == (1.0, 2.0, 4.0)
    lengths = {round(float(length), 2) for batch in gallery.scan() for length in batch.stop_s - batch.start_s}
    assert lengths == {round(round(level * RATE_HZ) / RATE_HZ, 2) for level in front.levels_s}
    assert {"r0@1s", "r0@1s+1s"} <= set(everything(gallery))


@pytest.mark.parametrize("name", ["short", "middle", "long"])
def test_every_copy_is_found_at_its_speed_and_an_exact_one_to_the_sample(
    gallery: Gallery, planted: Planted, name: str
) -> None:
    copies = planted.copies[name]
    hits = gallery.search(planted.query(name), k=len(copies))
    met = planted.copy_of(name, hits)
    assert set(met) == set(copies)
    for hit, copy in zip(hits, met, strict=True):
        assert copy is not None
        start, stop = round(hit.start_s * RATE_HZ), round(hit.stop_s * RATE_HZ)
        slack = 0 if copy[0] == "r0" else 1
        assert abs(start - copy[1]) <= slack
        assert abs(stop - copy[2]) <= slack
        assert hit.speed == pytest.approx({"r0": 1.0, "r1": 0.8, "r2": 1.25}[copy[0]], rel=0.02)
        assert hit.segment is not None
        assert hit.segment.start_s == pytest.approx(hit.start_s)
        assert hit.segment.length == stop - start


def test_hits_are_in_the_order_of_score_and_fit_and_show_the_grid(
    gallery: Gallery, planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    hits = gallery.search(planted.query("middle"), k=8)
    assert min(hit.fit or 0.0 for hit in hits[:6]) > 0.98 > max(hit.fit or 0.0 for hit in hits[6:])
    for hit in hits:
        entry = gallery.get(hit.id)
        assert (hit.window_start_s, hit.window_stop_s) == (entry.start_s[0], entry.stop_s[0])
        assert {"start_s", "stop_s", "speed", "window_start_s", "window_stop_s"} <= set(hit.as_dict())
    monkeypatch.setattr(placing, "evidence", lambda scores, fits, crowding: -np.asarray(scores))
    worst = [hit.score for hit in gallery.search(planted.query("middle"), k=3)]
    assert worst == sorted(worst)
    assert worst[-1] < hits[-1].score


@pytest.mark.parametrize("name", ["short", "middle", "long"])
def test_hits_overlap_neither_each_other_nor_the_query(gallery: Gallery, planted: Planted, name: str) -> None:
    record, start, stop = planted.copies[name][0]
    span = gallery.span(record, start / RATE_HZ, stop / RATE_HZ)
    hits = gallery.search(span, k=12)
    places = [(hit.record, hit.start_s, hit.stop_s) for hit in hits]
    own = (record, span.start_s, span.stop_s)
    assert all(shared(first, second) <= OVERLAPPING for first, second in combinations([own, *places], 2))
    assert len(hits) > 3
    if name != "long":
        overlapping = gallery.search(span, k=12, overlapping=True)
        assert any(shared((hit.record, hit.start_s, hit.stop_s), own) > 0.9 for hit in overlapping)


def test_hits_keep_the_gap_that_is_wanted(gallery: Gallery, planted: Planted) -> None:
    hits = gallery.search(planted.query("short"), k=6, min_gap_s=20.0)
    starts = [(hit.record, hit.start_s) for hit in hits]
    assert all(one[0] != two[0] or abs(one[1] - two[1]) >= 20.0 for one, two in combinations(starts, 2))


def test_a_long_query_is_cut_and_its_chain_is_in_order(gallery: Gallery, planted: Planted) -> None:
    query = planted.query("long")
    parts = parts_of(query, Levels((1.0, 2.0, 4.0), 2.0))
    assert len(parts) == 3
    assert np.array_equal(np.concatenate([part.values for part in parts]), query.values)
    hits = gallery.search(query, k=3, certify=True)
    assert {hit.record for hit in hits} == {"r0", "r1", "r2"}
    for hit in hits:
        assert hit.chance is not None
        assert hit.chance < 1e-3
        assert hit.certificate is not None
        assert "longer than the windows" in hit.certificate.covers
        seconds = [match.hit_s for match in hit.explain().matches]
        assert 0 <= min(start for start, _ in seconds) < hit.stop_s - hit.start_s
    assert not gallery.search(query, k=3, min_score=5.0)
    assert len(gallery.search(query, k=9, max_chance=1e-3)) == 3


def test_a_chain_needs_its_parts_in_order(gallery: Gallery, planted: Planted) -> None:
    """The motif with its thirds turned round scores less than in order."""
    parts = np.split(planted.motifs["long"][:498], 3)
    turned = Signal(np.concatenate(parts[::-1]), "turned", RATE_HZ, ("x", "y"))
    straight = Signal(np.concatenate(parts), "straight", RATE_HZ, ("x", "y"))
    chances = [gallery.search(query, k=1)[0].chance for query in (straight, turned)]
    assert chances[0] is not None
    assert chances[1] is not None
    assert chances[0] < chances[1] * 0.1


def test_a_query_that_is_too_short_is_refused_and_a_short_one_said(gallery: Gallery, planted: Planted) -> None:
    short = planted.query("short")
    with pytest.raises(ConfigError, match=r"lasts 0.2 s, the shortest windows of this gallery 1 s; mark a longer part"):
        gallery.search(short.window(0, 10))
    assert "index with --shortest-s 0.6" in gallery.search(short.window(0, 30)).notes[0]
    assert not gallery.search(short).notes


def test_windows_of_one_length_refuse_nothing(planted: Planted, tmp_path: Path) -> None:
    """As it was before there were several."""
    one = WINDOW_S
    with geopatch.index(planted.signals, tmp_path / "gallery", window_s=one, shortest_s=one, longest_s=one) as gallery:
        assert gallery.front_end == FrontEnd(WINDOW_S)
        assert set(everything(gallery)) == {f"r{n}@{start}s" for n in range(3) for start in range(79)}
        hits = gallery.search(planted.query("short").window(0, 10), k=3)
        assert len(hits) == 3
        assert "the shortest windows 2 s" in hits.notes[0]


def test_a_killed_run_ends_with_the_same_levels(
    planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Gallery.open(planted.place, read_only=True) as gallery:
        model, whole = gallery.model, everything(gallery)
    assert model is not None
    Gallery.create(tmp_path / "gallery", model).close()
    put, left = Rows.put, [1]

    def failing(rows: Rows, entries: object) -> None:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        put(rows, entries)  # type: ignore[arg-type]

    monkeypatch.setattr(Rows, "put", failing)
    for _ in range(10):
        left[0] = 1
        try:
            geopatch.index(planted.signals, tmp_path / "gallery").close()
            break
        except KeyboardInterrupt:
            continue
    with Gallery.open(tmp_path / "gallery", read_only=True) as gallery:
        again = everything(gallery)
    assert list(again) == list(whole)
    assert all(same(again[id], whole[id]) for id in whole)


def test_lengths_out_of_order_and_other_lengths_are_refused(planted: Planted, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="shortest_s must be at most window_s, got 3 and 2"):
        IndexSettings(window_s=2.0, shortest_s=3.0)
    with pytest.raises(ConfigError, match="give longest_s or whole, not both"):
        IndexSettings(whole=True, longest_s=3.0)
    shutil.copytree(planted.place, tmp_path / "gallery")
    with pytest.raises(ConfigError, match=r"longest_s is 4.0 in this gallery, got 8.0"):
        geopatch.index(planted.signals, tmp_path / "gallery", longest_s=8.0)


def test_a_recording_added_by_hand_has_all_lengths(planted: Planted, tmp_path: Path) -> None:
    shutil.copytree(planted.place, tmp_path / "gallery")
    with Gallery.open(tmp_path / "gallery") as gallery:
        before = len(gallery)
        gallery.add_recording(replace(planted.signals[0], id="again"))
        assert len(gallery) == before * 4 // 3
        hits = gallery.search(planted.query("middle"), k=8)
        assert sum(hit.record == "again" for hit in hits) == 2


def test_the_command_line_shows_speed_and_both_spans(planted: Planted, capsys: pytest.CaptureFixture[str]) -> None:
    run = runner(capsys, "search", str(planted.place))
    flags = ["--record", "r0", "--start", "18", "--stop", "20.2", "-k", "3"]
    answer = json.loads(run(*flags, "--json").out)
    assert {"speed", "window_start_s", "window_stop_s"} <= set(answer["hits"][0])
    assert "speed" in run(*flags).out
    refused = run("--record", "r0", "--start", "18", "--stop", "18.2")
    assert refused.code == 2
    assert len(refused.err.strip().splitlines()) == 1


def test_hits_are_drawn_onto_the_query_or_as_they_are(gallery: Gallery, planted: Planted) -> None:
    hits = gallery.search(planted.query("middle"), k=6)
    slow = next(n for n, hit in enumerate(hits) if hit.record == "r1")

    def drawn(aligned: bool) -> float:
        axes = hits.plot(aligned=aligned).axes[2 + 2 * slow]  # two channels each, the query's first
        return float(np.asarray(axes.lines[1].get_xdata())[-1])

    length_s = planted.query("middle").duration_s
    assert drawn(True) == pytest.approx(length_s, abs=2 / RATE_HZ)
    assert drawn(False) == pytest.approx(hits[slow].window.duration_s, abs=2 / RATE_HZ)  # type: ignore[union-attr]


def naive_fit(query: Values, around: Values) -> tuple[int, int]:
    """The span of the largest correlation, tried at every start and length."""
    best = (-2.0, 0, 0)
    for length in range(len(query) // 2, 2 * len(query)):
        own = stretched(query, length)
        own = own - own.mean(0)
        for start in range(len(around) - length + 1):
            part = around[start : start + length] - around[start : start + length].mean(0)
            product = float((own * part).sum() / np.sqrt((own**2).sum() * (part**2).sum()))
            best = max(best, (product, start, start + length))
    return best[1:]


@pytest.mark.parametrize("speed", [0.75, 1.0, 1.3])
def test_a_fit_is_that_of_the_naive_search(speed: float) -> None:
    draw = np.random.default_rng(5)
    query = wave(draw, 24)
    length = round(24 / speed)
    around = np.concatenate([wave(draw, 20), 3.0 + 2.0 * stretched(query, length), wave(draw, 20)])
    around /= around.std(0)
    fit = best_fit(query, around, (17, 17 + round(1.15 * length)))
    assert fit is not None
    assert (fit.start, fit.stop) == naive_fit(query / around.std(0), around)
    assert fit.correlation > 0.99


@pytest.mark.parametrize(("samples", "channels"), [(30, 1), (150, 2)])
def test_a_fit_by_the_loop_is_that_by_transforms(samples: int, channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(samples)
    query, around = (draw.normal(size=(n, channels)).cumsum(0) for n in (samples, 2 * samples))
    around[samples // 3 : samples // 3 + samples] += query
    fits = []
    for most in (0, 10**9):
        monkeypatch.setattr(refine, "MOST_PRODUCTS", most)
        fits.append(best_fit(query, around, (samples // 2, samples + samples // 2)))
    assert fits[0] is not None
    assert fits[1] is not None
    assert (fits[0].start, fits[0].stop) == (fits[1].start, fits[1].stop)
    assert fits[0].correlation == pytest.approx(fits[1].correlation, abs=1e-9)


def test_a_short_query_is_ranked_by_its_fit_and_a_long_one_by_its_score() -> None:
    levels = Levels((0.5, 1.0, 2.0), 1.0)
    scores, fits = [0.8, 0.6], [0.5, 0.75]
    short, long = (evidence(scores, fits, levels.crowding(seconds)) for seconds in (0.4, 1.5))
    assert short.argmax() == 1
    assert long.argmax() == 0
    assert levels.crowding(0.01) == 16.0  # no more places than that are fitted


def test_what_is_flat_has_no_fit() -> None:
    assert best_fit(np.ones((40, 1)), np.random.default_rng(0).normal(size=(90, 1)), (20, 60)) is None
