"""Watches: thresholds by false alarms an hour, one event a happening, streams that come out the same however cut."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from commands import runner

from geopatch.errors import ConfigError, GalleryError, SignalError
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.search import Span
from geopatch.search.levels import nearness
from geopatch.signal import Signal
from geopatch.watching import AlarmRate, Watch, Watcher
from geopatch.watching.levels import PRIOR, QUANTILE, StreamLevel, prior_of, score_at
from geopatch.watching.picking import Picker, peaks
from geopatch.watching.samples import Samples
from geopatch.watching.scores import WindowEncoder

LENGTH = 64


def noise(draw: np.random.Generator, samples: int) -> np.ndarray:
    return np.convolve(draw.normal(size=samples + 8), np.hanning(9), "valid")[:samples] / 2


def shape() -> np.ndarray:
    time = np.linspace(0, 1, LENGTH)
    values: np.ndarray = 9 * np.sin(2 * np.pi * (2 * time + 4 * time**2)) * np.hanning(LENGTH)
    return values


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    """Four records of noise; in the first, a shape from sample 1280 on; a sample counts as a second."""
    draw = np.random.default_rng(0)
    records = [noise(draw, 64 * 240) for _ in range(4)]
    records[0][1280 : 1280 + LENGTH] += shape()
    opened = Gallery.create(tmp_path_factory.mktemp("place") / "gallery", GeoPatch.pretrained("general"))
    for n, values in enumerate(records):
        opened.add_recording(Signal(values[:, None], f"r{n}"))
    return opened


@pytest.fixture(scope="module")
def watch(gallery: Gallery) -> Watch:
    return Watch.create(gallery, Span("r0", 1280, 1344), 0.1)


def stream_with(places: list[int], seconds: int = 120, seed: int = 7) -> np.ndarray:
    values = noise(np.random.default_rng(seed), 64 * seconds)
    for place in places:
        values[place : place + LENGTH] += shape()
    return values


def test_each_happening_is_reported_once_and_in_its_place(gallery: Gallery, watch: Watch) -> None:
    places = [700, 2000, 2100, 5003]
    assert gallery.model is not None
    watcher = Watcher(gallery.model, {"shape": watch})
    alarms = watcher.push("s", stream_with(places)) + watcher.end("s")
    starts = [alarm.match.start for alarm in alarms]
    assert len(starts) == len(places)
    assert all(abs(start - place) <= LENGTH // 4 for start, place in zip(starts, places, strict=True))
    assert all(alarm.false_alarms_per_hour <= 0.1 and alarm.watch == "shape" for alarm in alarms)
    assert all(alarm.start_s == pytest.approx(alarm.grid_start_s, abs=20) for alarm in alarms)
    assert "s" not in watcher.streams


@pytest.mark.parametrize("chunk", [13, 64, 5000])
def test_it_does_not_matter_how_a_stream_is_cut_up(gallery: Gallery, watch: Watch, chunk: int) -> None:
    assert gallery.model is not None
    values = stream_with([300, 900], seconds=20)
    whole, parts = (Watcher(gallery.model, {"a": watch}) for _ in range(2))
    expected = whole.push("s", values) + whole.end("s")
    alarms = [one for at in range(0, len(values), chunk) for one in parts.push("s", values[at : at + chunk])]
    alarms += parts.end("s")
    assert [one.match.start for one in alarms] == [one.match.start for one in expected] != []
    np.testing.assert_allclose([one.match.score for one in alarms], [one.match.score for one in expected], atol=1e-5)


def test_streams_together_are_as_one_by_one(gallery: Gallery, watch: Watch) -> None:
    assert gallery.model is not None
    streams = {f"s{n}": stream_with([300 + 40 * n], seconds=15, seed=n) for n in range(3)}
    watcher = Watcher(gallery.model, {"a": watch, "b": watch})
    for name in streams:
        watcher.open(name, 1)
    both = watcher.push_many([(name, values[:, None].astype(np.float32)) for name, values in streams.items()])
    for (name, values), alarms in zip(streams.items(), both, strict=True):
        alone = Watcher(gallery.model, {"a": watch}).push("x", values)
        assert [one.match.start for one in alarms if one.watch == "b"] == [one.match.start for one in alone] != []
        assert {one.stream for one in alarms} == {name}


def test_a_stream_sent_again_from_where_it_is_safe_gives_the_same(gallery: Gallery, watch: Watch) -> None:
    assert gallery.model is not None
    values = stream_with([500, 2000, 3000])[:, None].astype(np.float32)
    whole = Watcher(gallery.model, {"a": watch})
    expected = [one.match.start for one in whole.push("s", values) + whole.end("s")]
    for cut in (100, 560, 600, 2070, 3066):
        first = Watcher(gallery.model, {"a": watch})
        before = first.push("s", values[:cut])
        safe = first.safe("s")
        assert safe <= cut
        stops = {"a": max((one.match.stop for one in before), default=0)}
        levels = {"a": json.loads(json.dumps(first.streams["s"].levels["a"].as_dict()))}
        second = Watcher(gallery.model, {"a": watch})
        second.open("s", 1, first=safe, last_matches=stops, levels=levels)
        after = second.push("s", values[second.streams["s"].samples.received :]) + second.end("s")
        assert [one.match.start for one in before + after] == expected


def test_a_stream_of_another_rate_is_resampled_the_same_in_any_parts() -> None:
    values = noise(np.random.default_rng(3), 3000)[:, None].astype(np.float32)
    whole = Signal(values, "x", 250.0).resampled(128.0).values
    samples = Samples("x", 250.0, 128.0, 1)
    parts = [samples.push(values[at : at + 77]) for at in range(0, 3000, 77)]
    joined = np.concatenate([*parts, samples.push(np.zeros((0, 1), np.float32), last=True)])
    assert len(joined) == len(whole)
    np.testing.assert_allclose(joined[1:-20], whole[1:-20], atol=2e-3)
    later = Samples("x", 250.0, 128.0, 1, first=1000)
    start = later.done
    rest = later.push(values[later.first :])
    np.testing.assert_allclose(rest, whole[start : start + len(rest)], atol=2e-3)


def test_the_threshold_gives_the_rate_on_signal_that_it_has_not_seen() -> None:
    draw = np.random.default_rng(0)

    def scores(count: int) -> np.ndarray:
        vectors = draw.normal(size=(count, 24))
        cosines: np.ndarray = vectors[:, 0] / np.linalg.norm(vectors, axis=1)
        return cosines

    rate = AlarmRate.of_peaks(nearness(scores(20_000)), hours=10.0)
    for per_hour in (0.5, 2.0):
        alarms = (nearness(scores(2_000_000)) >= rate.threshold(per_hour)).sum() / 1000.0
        assert per_hour / 2 < alarms < 2 * per_hour
        assert rate.per_hour(rate.threshold(per_hour)) == pytest.approx(per_hour)


def test_what_is_looked_for_does_not_raise_its_own_threshold() -> None:
    draw = np.random.default_rng(1)
    null = draw.beta(2, 12, size=2000)
    clean, mixed = (AlarmRate.of_peaks(nearness(one), 1.0) for one in (null, [*null, 0.99, 0.995, 0.992]))
    assert mixed.threshold(1.0) == pytest.approx(clean.threshold(1.0), abs=0.05)
    with pytest.raises(ConfigError, match="must lie above 0 and within"):
        clean.threshold(1e6)
    with pytest.raises(ConfigError, match="index more recordings"):
        AlarmRate.of_peaks([0.1, 0.2], 1.0)


def test_what_is_reported_stands_out_from_its_own_stream() -> None:
    draw = np.random.default_rng(4)
    near, ends = draw.exponential(0.3, 4000), np.arange(8, 32_008, 8)
    prior = prior_of(near)
    assert len(prior) == PRIOR
    low, high = StreamLevel(prior, 256), StreamLevel(prior, 256)
    first, second = low.excess(ends, near), high.excess(ends, near + 1.5)
    assert (first[3000:] > 0).mean() == pytest.approx(1 - QUANTILE, abs=0.02)
    np.testing.assert_allclose(first[3000:], second[3000:], atol=0.1)  # a stream that is nearer throughout
    assert second[:10].mean() > first[:10].mean() + 1  # before anything is known of it
    assert score_at(float(nearness(0.7))) == pytest.approx(0.7)


def test_a_level_taken_up_again_from_its_block_goes_on_as_before() -> None:
    draw = np.random.default_rng(6)
    near, ends = draw.exponential(0.3, 300), np.arange(8, 2408, 8)
    whole = StreamLevel((0.1, 0.2), 256)
    expected = whole.excess(ends, near)
    for cut in (10, 100, 259):
        before = StreamLevel((0.1, 0.2), 256)
        before.excess(ends[:cut], near[:cut])
        again = StreamLevel.from_dict(json.loads(json.dumps(before.as_dict())), 256)
        start = int(np.searchsorted(ends, before.start))
        np.testing.assert_allclose(again.excess(ends[start:], near[start:]), expected[start:])


def test_windows_of_a_stream_are_encoded_as_those_of_a_gallery(gallery: Gallery) -> None:
    assert gallery.model is not None
    draw = np.random.default_rng(5)
    windows = [noise(draw, length)[:, None].astype(np.float32) for length in (64, 51, 80, 256)]
    missing = np.full((64, 1), np.nan, dtype=np.float32)
    vectors = WindowEncoder(gallery.model).embed([*windows, missing])
    expected = gallery.model.encode([Signal(window, str(n)) for n, window in enumerate(windows)]).embedding
    np.testing.assert_allclose(vectors[:-1], expected, atol=1e-5)
    assert np.isnan(vectors[-1]).all()


def test_peaks_overlap_no_better_one() -> None:
    stops = np.arange(10, 60, 2)
    scores = np.asarray([0.1 * (n % 7) for n in range(len(stops))])
    best = peaks(stops - 10, stops, scores)
    kept: list[tuple[int, float]] = []
    for stop, score in sorted(zip(stops.tolist(), scores.tolist(), strict=True), key=lambda pair: -pair[1]):
        if all(abs(stop - other) >= 10 for other, _ in kept):
            kept.append((stop, score))
    assert best == pytest.approx([score for _, score in kept])


def test_a_picker_gives_the_best_of_windows_that_overlap() -> None:
    picker = Picker(0.5, hold=4)
    scores = {10: 0.2, 12: 0.6, 14: 0.9, 16: 0.7, 18: 0.8, 20: 0.8, 22: 0.6, 24: 0.7, 26: 0.1, 28: 0.1, 30: 0.1}
    decided = {stop: picker.take(stop - 10, stop, score, score) for stop, score in scores.items()}
    matches = {stop: match for stop, match in decided.items() if match is not None}
    assert {stop: (match.start, match.score) for stop, match in matches.items()} == {18: (4, 0.9), 28: (14, 0.7)}
    assert picker.release(40) is None


def test_what_cannot_be_watched_is_refused(gallery: Gallery, watch: Watch) -> None:
    assert gallery.model is not None
    with pytest.raises(SignalError, match="has 2 channels, the gallery's model takes 1"):
        Watcher(gallery.model).push("s", np.zeros((5, 2)))
    with pytest.raises(ConfigError, match="check rate_hz"):
        Watcher(gallery.model).push("s", np.zeros(5), rate_hz=1e-9)
    with pytest.raises(ConfigError, match="8 samples or more"):
        Watch.create(gallery, Span("r0", 1280, 1284))
    assert watch.rate.hours > 0.05
    with pytest.raises(GalleryError, match="no record of"):
        Watch.create(gallery, Span("r0", 1280, 6000))


def test_the_command_line_prints_a_line_for_each_event(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, draw = tmp_path / "gallery", np.random.default_rng(0)
    with Gallery.create(place, GeoPatch.pretrained("general")) as made:
        for n in range(2):
            made.add_recording(Signal(noise(draw, 64 * 120)[:, None], f"r{n}"))
    query = tmp_path / "q.csv"
    query.write_text("value\n" + "\n".join(f"{value:.5f}" for value in shape()))
    lines = "".join(f"{value:.5f}\n" for value in stream_with([700, 2000], seconds=40)) + "\n"
    run = runner(capsys, "watch")
    flags = ("--query", query, "--stdin", "--false-alarms-per-hour", 0.1, "--device", "cpu")
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    ran = run(place, *flags)
    assert ran.code == 0, ran.err
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert [round(row["start_s"] / 64) for row in rows] == [11, 31]
    assert all(row["latency_ms"] > 0 and row["false_alarms_per_hour"] < 0.1 for row in rows)
    assert "watching at 0." in ran.err
    for text, line in (
        ("1,2\n", "has 2 channels"),
        ("1\n1,2\n", "line 2 of the stream has 2 values"),
        ("x\n", "no sample"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        refused = run(place, *flags)
        assert (refused.code, line in refused.err) == (2, True), refused.err
    assert "--stdin" in run(place, "--query", query).err
    assert "watch for one of" in run(place, "--stdin").err
