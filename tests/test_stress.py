"""Stresses: each equals its obvious slow twin, does nothing at strength 0, and edits nothing."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from conftest import walk
from hypothesis import given
from hypothesis import strategies as st

from geopatch.errors import ConfigError
from geopatch.evaluate import stress as stress_module
from geopatch.evaluate.stress import (
    KINDS,
    QUERY_DISTORTIONS,
    Stress,
    chunk_order,
    curve,
    default_stresses,
    distortions,
    masked,
    shuffled,
)
from geopatch.signal import Signal
from geopatch.warp import STRONGEST, warped

CHANGING = [name for name in KINDS if name not in ("clean", "geometry-noise")]  # those that change windows


def naive_warp(values: npt.NDArray[np.float32], strength: float = 0.1) -> npt.NDArray[np.float64]:
    """sigma(t) = t + strength T sin(2 pi t / T), one sample and one channel at a time."""
    length, channels = values.shape
    out = np.empty((length, channels))
    for t in range(length):
        time = min(max(t + strength * length * math.sin(2 * math.pi * t / length), 0), length - 1)
        left = math.floor(time)
        for c in range(channels):
            low, high = float(values[left, c]), float(values[min(left + 1, length - 1), c])
            out[t, c] = low if time == left else low + (high - low) * (time - left)
    return out


@pytest.mark.parametrize("length", [1, 2, 3, 50, 101])
@pytest.mark.parametrize("strength", [-0.15, 0.03, 0.1])
def test_equals_the_naive_loop(length: int, strength: float) -> None:
    signal = walk(length, 2, seed=length)
    np.testing.assert_allclose(
        warped(signal, strength).values, naive_warp(signal.values, strength), rtol=1e-5, atol=1e-5
    )


def test_the_default_is_a_tenth_of_the_window() -> None:
    signal = walk(80, 1, seed=0)
    np.testing.assert_allclose(warped(signal).values, naive_warp(signal.values), rtol=1e-5, atol=1e-5)
    assert np.abs(warped(signal).values - signal.values).max() > 0.1


def test_a_ramp_shows_the_clock_itself() -> None:
    length = 64
    ramp = Signal.from_array(np.arange(length))
    time = np.arange(length)
    clock = np.clip(time + 0.1 * length * np.sin(2 * np.pi * time / length), 0, length - 1)
    np.testing.assert_allclose(warped(ramp).values[:, 0], clock, atol=1e-4)


def test_strength_0_is_the_identity() -> None:
    signal = walk(33, 3, seed=0)
    np.testing.assert_array_equal(warped(signal, 0.0).values, signal.values)


@given(st.floats(-0.999 * STRONGEST, 0.999 * STRONGEST), st.integers(1, 200))
def test_time_never_runs_backwards(strength: float, length: int) -> None:
    ramp = warped(Signal.from_array(np.arange(length)), strength).values[:, 0]
    assert (np.diff(ramp) >= 0).all()


@pytest.mark.parametrize("strength", [STRONGEST, -0.2, 5.0, math.nan])
def test_too_strong_is_refused(strength: float) -> None:
    with pytest.raises(ConfigError, match=r"warp strength must lie within \+-0\.159 so that time runs forward"):
        warped(walk(20, 1, seed=0), strength)


def test_what_was_not_measured_stays_so() -> None:
    signal = walk(60, 2, seed=3)
    values = signal.values.copy()
    values[20:30, 0], values[1, 0], values[0, 1] = np.nan, np.nan, np.nan
    out = warped(Signal.from_array(values)).values
    np.testing.assert_array_equal(np.isnan(out), np.isnan(naive_warp(values)))
    assert np.isnan(out[:, 0]).any()
    assert out[0, 0] == values[0, 0]  # the first sample is read at its own time, whatever stands beside it
    measured = ~np.isnan(out)
    np.testing.assert_array_equal(out[measured], warped(signal).values[measured])


def test_a_constant_stays_constant() -> None:
    np.testing.assert_array_equal(warped(Signal.from_array(np.full((40, 2), 3.7))).values, np.float32(3.7))


def test_one_sample_stays_as_it_is() -> None:
    np.testing.assert_array_equal(warped(Signal.from_array([[2.5, -1.0]])).values, [[2.5, -1.0]])


def test_the_input_is_not_edited() -> None:
    signal = walk(30, 2, seed=1)
    before = signal.values.copy()
    warped(signal)
    np.testing.assert_array_equal(signal.values, before)


def test_only_the_values_change() -> None:
    window = Signal.from_array(np.arange(40.0), id="r", rate_hz=4.0, channels=["x"]).window(8, 32)
    found = warped(window)
    assert (found.id, found.rate_hz, found.channels) == (window.id, 4.0, ("x",))
    assert (found.record, found.start_s) == ("r", 2.0)


def naive_mask(values: npt.NDArray[np.float32], strength: float, place: int) -> npt.NDArray[np.float32]:
    """Every start at which something stays measured, one drawn; its samples one at a time set to NaN."""
    length = len(values)
    size = round(strength * length)
    measured = [not np.isnan(values[t]).all() for t in range(length)]
    starts = []
    for start in range(length - size + 1):
        if any(measured[t] for t in range(length) if not start <= t < start + size):
            starts.append(start)
    out = values.copy()
    if starts:
        start = starts[np.random.default_rng((1337, place)).integers(len(starts))]
        for t in range(start, start + size):
            for c in range(values.shape[1]):
                out[t, c] = np.nan
    return out


def naive_shuffle(values: npt.NDArray[np.float32], chunks: int) -> npt.NDArray[np.float32]:
    """Chunk after chunk, sample after sample; the first chunks take what is over."""
    length = len(values)
    count = max(min(chunks, length), 1)
    sizes = [length // count + (n < length % count) for n in range(count)]
    starts = [sum(sizes[:n]) for n in range(count)]
    return np.asarray([values[starts[n] + i] for n in chunk_order(count) for i in range(sizes[n])])


def test_the_defaults_are_these() -> None:
    assert {stress.name: stress.strength for stress in default_stresses()} == {
        "clean": 0.0,
        "warp-queries": 0.1,
        "warp-both-alike": 0.1,
        "warp-both-differently": 0.1,
        "geometry-noise": 0.2,
        "span-mask": 0.2,
        "shuffle": 8.0,
    }


@pytest.mark.parametrize("length", [1, 2, 3, 5, 50, 101])
@pytest.mark.parametrize("strength", [0.0, 0.1, 0.2, 0.6, 0.95])
def test_a_mask_equals_the_naive_loop(length: int, strength: float) -> None:
    for place in range(5):
        signal = walk(length, 2, seed=length)
        np.testing.assert_array_equal(
            masked(signal, strength, place).values, naive_mask(signal.values, strength, place)
        )


@given(st.integers(4, 200), st.floats(0.0, 0.74), st.integers(0, 10**6))
def test_a_mask_takes_exactly_its_share_in_a_row(length: int, strength: float, place: int) -> None:
    signal = Signal.from_array(np.arange(2.0 * length).reshape(length, 2))
    lost = np.isnan(masked(signal, strength, place).values)
    assert (lost[:, 0] == lost[:, 1]).all()
    gone = np.flatnonzero(lost[:, 0])
    assert len(gone) == round(strength * length)
    assert len(gone) == 0 or gone[-1] - gone[0] + 1 == len(gone)


def test_the_default_mask_is_a_fifth_of_the_window() -> None:
    assert np.isnan(masked(walk(140, 1, seed=0)).values).sum() == 28


def test_masks_differ_by_the_place_of_the_window_alone() -> None:
    signal = walk(100, 1, seed=0)
    found = Stress("span-mask", 0.2).queries([signal] * 8)
    lost = [tuple(np.flatnonzero(np.isnan(query.values[:, 0]))) for query in found]
    assert len(set(lost)) > 4
    again = Stress("span-mask", 0.2).queries([walk(100, 1, seed=9)] * 8)
    assert lost == [tuple(np.flatnonzero(np.isnan(query.values[:, 0]))) for query in again]


def test_a_mask_leaves_something_measured() -> None:
    values = np.full((20, 1), np.nan)
    values[[3, 12]] = 1.0
    for place in range(30):
        assert masked(Signal.from_array(values), 0.8, place).observed.any()
    values[3] = np.nan
    for place in range(30):
        found = masked(Signal.from_array(values), 0.9, place).values
        np.testing.assert_array_equal(found, values.astype(np.float32))  # every span of 18 holds the one sample


@pytest.mark.parametrize("length", [1, 2, 5, 7, 8, 9, 50, 101])
@pytest.mark.parametrize("chunks", [0, 1, 2, 4, 8, 16])
def test_a_shuffle_equals_the_naive_loop(length: int, chunks: int) -> None:
    signal = walk(length, 2, seed=length)
    np.testing.assert_array_equal(shuffled(signal, chunks).values, naive_shuffle(signal.values, chunks))


def test_the_default_shuffle_has_8_chunks() -> None:
    found = shuffled(Signal.from_array(np.arange(80.0))).values[:, 0].reshape(8, 10)
    assert [int(chunk[0]) // 10 for chunk in found] == np.random.default_rng(1337).permutation(8).tolist()


@given(st.integers(1, 200), st.integers(0, 40))
def test_a_shuffle_is_a_permutation_that_keeps_chunks(length: int, chunks: int) -> None:
    found = shuffled(Signal.from_array(np.arange(length)), chunks).values[:, 0].astype(int)
    assert sorted(found) == list(range(length))
    count = max(min(chunks, length), 1)
    assert (np.diff(found) != 1).sum() < count  # cuts at most between chunks
    assert count == 1 or found.tolist() != list(range(length))


@pytest.mark.parametrize("count", range(2, 40))
def test_another_order_is_another(count: int) -> None:
    order = chunk_order(count)
    assert sorted(order) == list(range(count)) != order.tolist()


@pytest.mark.parametrize("name", KINDS)
def test_strength_0_changes_nothing_and_is_clean(name: str, mixed_signals: list[Signal]) -> None:
    stress = Stress(name, -0.0)
    assert stress.queries(mixed_signals) == stress.gallery(mixed_signals) == mixed_signals
    assert (stress.text, stress.digest) == ("clean", Stress("clean", 0).digest)


@pytest.mark.parametrize(
    ("name", "query", "gallery"),
    [
        ("clean", 0, 0),
        ("warp-queries", 0.1, 0),
        ("warp-both-alike", 0.1, 0.1),
        ("warp-both-differently", 0.1, -0.1),
        ("geometry-noise", 0, 0),
    ],
)
def test_which_side_is_warped(name: str, query: float, gallery: float, mixed_signals: list[Signal]) -> None:
    stress = Stress.parse(name)
    for sides, strength in ((stress.queries, query), (stress.gallery, gallery)):
        for found, signal in zip(sides(mixed_signals), mixed_signals, strict=True):
            np.testing.assert_allclose(found.values, naive_warp(signal.values, strength), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CHANGING)
def test_inputs_are_not_edited_and_ids_stay(name: str, mixed_signals: list[Signal]) -> None:
    before = [signal.values.copy() for signal in mixed_signals]
    stress = Stress.parse(name)
    for found in (stress.queries(mixed_signals), stress.gallery(mixed_signals)):
        assert [signal.id for signal in found] == [signal.id for signal in mixed_signals]
        assert [signal.length for signal in found] == [signal.length for signal in mixed_signals]
    for signal, values in zip(mixed_signals, before, strict=True):
        np.testing.assert_array_equal(signal.values, values)


@pytest.mark.parametrize("name", CHANGING)
def test_queries_do_change(name: str) -> None:
    signal = walk(64, 2, seed=3)
    (found,) = Stress.parse(name).queries([signal])
    assert (np.nan_to_num(found.values) != signal.values).any()


def test_what_was_not_measured_is_never_made_up() -> None:
    values = walk(80, 1, seed=5).values.copy()
    values[30:44] = np.nan
    signal = Signal.from_array(values)
    assert np.isnan(masked(signal).values[30:44]).all()
    assert np.isnan(shuffled(signal).values).sum() == 14


@pytest.mark.parametrize("name", KINDS)
def test_a_curve_holds_0_and_the_default(name: str) -> None:
    found = [stress.strength for stress in curve(name)]
    assert found == sorted(set(found))
    assert {0.0, KINDS[name].default} <= set(found)
    assert [stress.strength for stress in curve("shuffle", [0, 3])] == [0.0, 3.0]


@pytest.mark.parametrize("name", KINDS)
def test_what_a_row_says_can_be_read(name: str) -> None:
    for stress in curve(name):
        assert Stress.parse(stress.text) == (stress if stress.strength else Stress("clean", 0))


def test_rows_keep_the_names_they_had() -> None:
    assert Stress.parse("clean").text == "clean"
    assert Stress.parse("warp-queries") == Stress.parse("warped queries") == Stress("warp-queries", 0.1)
    assert Stress("warp-queries", 0.1).text == "warped queries"
    assert Stress("warp-queries", 0.05).text == "warp-queries@0.05"
    assert Stress.parse("shuffle").text == "shuffle@8"


def test_every_meaning_has_its_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    stresses = {stress.text: stress for name in KINDS for stress in curve(name)}
    digests = {stress.digest for stress in stresses.values()}
    assert len(digests) == len(stresses)
    monkeypatch.setattr(stress_module, "SEED", 7)
    assert Stress.parse("shuffle").digest not in digests


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("heat", "stress must be one of clean, warp-queries, .*, got 'heat'"),
        ("heat@2", "stress must be one of .*, got 'heat'"),
        ("span-mask@much", r"a stress looks like span-mask or span-mask@0\.2, got 'span-mask@much'"),
        ("span-mask@1", r"mask strength is a share of the window, at least 0 and below 1, got 1\.0"),
        ("span-mask@nan", "mask strength is a share"),
        ("span-mask@-0.1", "mask strength is a share"),
        ("warp-both-alike@0.2", "so that time runs forward, got 0.2"),
        ("geometry-noise@-1", r"noise strength must be 0 or more times the spread of a descriptor, got -1\.0"),
        ("geometry-noise@inf", "noise strength must be"),
        ("shuffle@2.5", r"shuffle strength is a whole number of chunks, 0 or more, got 2\.5"),
        ("shuffle@inf", "shuffle strength is a whole number"),
        ("shuffle@nan", "shuffle strength is a whole number"),
        ("zoom@1", r"strength is a share of the window, at least 0 and below 1, got 1\.0"),
        ("drop@-0.1", "strength is a share of the window"),
        ("speed@4", r"speed strength is the spread of log speeds, within 0 and 3, got 4\.0"),
        ("speed@nan", "speed strength is the spread"),
        ("noise@inf", "strength must be 0 or more times the spread of a channel, got inf"),
        ("gain@2.5", r"gain strength must lie within 0 and 2\.5, so that no gain is negative, got 2\.5"),
        ("clean@1", r"clean has no strength, got 1\.0"),
        ("", "stress must be one of"),
    ],
)
def test_a_bad_stress_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Stress.parse(text)


def test_anchors_go_where_the_samples_go() -> None:
    anchors = np.array([-4.0, 3.0, 20.0, 41.0, 66.0])
    signal = Signal.from_array(np.arange(64.0), id="s", anchors=anchors)
    seen = warped(signal, 0.1)
    assert seen.anchors is not None
    assert seen.anchors[[0, -1]].tolist() == [-4, 66], "beyond the window nothing moves"
    read = np.interp(seen.anchors[1:-1], np.arange(64), seen.values[:, 0])
    np.testing.assert_allclose(read, anchors[1:-1], atol=0.05)
    moved = shuffled(signal)
    assert moved.anchors is not None
    inside = [int(mark) for mark in moved.anchors if 0 <= mark < 64]
    assert sorted(moved.values[inside, 0].tolist()) == [3, 20, 41]


NEW = QUERY_DISTORTIONS[1:]
ON_A_CLOCK = ("speed", "zoom", "squeeze", "shift")


def one(name: str, signal: Signal, place: int = 0) -> Signal:
    """A window under a distortion at its default, as the query of this place."""
    return Stress.parse(name).queries([signal] * (place + 1))[place]


def test_the_distortions_are_clean_and_nine() -> None:
    assert {stress.name: stress.strength for stress in distortions()} == {
        "clean": 0.0,
        "warp-queries": 0.1,
        "speed": 0.4,
        "zoom": 0.2,
        "squeeze": 0.2,
        "shift": 0.1,
        "noise": 0.2,
        "wander": 0.5,
        "gain": 1.0,
        "drop": 0.15,
    }


@pytest.mark.parametrize("name", NEW)
def test_a_distortion_leaves_the_gallery_alone_and_can_be_repeated(name: str, mixed_signals: list[Signal]) -> None:
    stress = Stress.parse(name)
    assert stress.gallery(mixed_signals) == mixed_signals
    for first, second in zip(stress.queries(mixed_signals), stress.queries(mixed_signals), strict=True):
        np.testing.assert_array_equal(first.values, second.values)


@pytest.mark.parametrize("name", [name for name in NEW if name != "squeeze"])
def test_chance_comes_from_the_place(name: str) -> None:
    same = Stress.parse(name).queries([walk(100, 1, seed=0)] * 12)
    assert len({query.values.tobytes() for query in same}) > (1 if name == "shift" else 8)


@pytest.mark.parametrize("name", NEW)
def test_distortions_of_one_sample_and_of_two(name: str) -> None:
    for length in (1, 2):
        signal = Signal.from_array(np.arange(2.0 * length).reshape(length, 2))
        for place in range(5):
            query = one(name, signal, place)
            assert query.values.shape == (length, 2)
            assert np.isfinite(query.values).all()


@pytest.mark.parametrize("name", NEW)
def test_a_gap_is_not_filled(name: str) -> None:
    values = walk(80, 2, seed=5).values.copy()
    values[30:60, 0] = np.nan
    for place in range(8):
        query = one(name, Signal.from_array(values), place)
        assert np.isfinite(query.values[:, 1]).all()
        assert np.isnan(query.values[:, 0]).sum() >= 15
        if name not in ON_A_CLOCK:
            assert np.isnan(query.values[30:60, 0]).all()


def test_a_query_of_which_nothing_would_be_left_stays() -> None:
    values = np.full((40, 1), np.nan)
    values[0] = 1.0
    for name in NEW:
        for place in range(6):
            assert np.isfinite(one(name, Signal.from_array(values), place).values).any()


@pytest.mark.parametrize("name", ON_A_CLOCK)
@pytest.mark.parametrize("length", [2, 5, 50, 101])
def test_a_clock_runs_forward_within_the_window(name: str, length: int) -> None:
    for place in range(6):
        clock = one(name, Signal.from_array(np.arange(length)), place).values[:, 0]
        assert (np.diff(clock) >= 0).all()
        assert 0 <= clock[0] <= clock[-1] <= length - 1


def test_six_speeds_are_a_broken_line_from_end_to_end() -> None:
    clock = one("speed", Signal.from_array(np.arange(601)), 3).values[:, 0]
    assert clock[[0, -1]].tolist() == [0, 600]
    slopes = np.diff(clock).reshape(6, 100)
    np.testing.assert_allclose(slopes, slopes[:, :1].repeat(100, axis=1), atol=1e-3)
    assert len(np.unique(slopes[:, 0].round(3))) == 6


def test_speeds_are_log_normal() -> None:
    queries = Stress("speed", 0.4).queries([Signal.from_array(np.arange(601))] * 400)
    logs = np.log([np.diff(query.values[::100, 0]) for query in queries])  # (400, 6), less the log of their sum
    assert logs.std(1, ddof=1).mean() == pytest.approx(0.4 * 0.95, abs=0.02)  # of six: 5 % below the spread


def test_a_zoom_is_a_random_part_of_the_window() -> None:
    starts = []
    for place in range(40):
        clock = one("zoom", Signal.from_array(np.arange(101)), place).values[:, 0]
        np.testing.assert_allclose(np.diff(clock), 0.8, atol=1e-4)
        starts.append(clock[0])
    assert 0 <= min(starts) < 4
    assert 16 < max(starts) <= 20


def test_a_squeeze_holds_the_ends() -> None:
    clock = one("squeeze", Signal.from_array(np.arange(101))).values[:, 0]
    np.testing.assert_array_equal(clock[:11], 0)
    np.testing.assert_array_equal(clock[90:], 100)
    np.testing.assert_allclose(np.diff(clock[10:91]), 1.25, atol=1e-4)


def test_a_shift_goes_either_way() -> None:
    ramp = np.arange(100)
    seen = {tuple(one("shift", Signal.from_array(ramp), place).values[:, 0]) for place in range(12)}
    assert seen == {tuple(np.clip(ramp + step, 0, 99).astype(np.float32)) for step in (-10, 10)}


def test_noise_and_wander_are_in_spreads_of_all_queries() -> None:
    signals = [Signal.from_array(np.random.default_rng(n).normal(n, [1, 30], (500, 2))) for n in range(4)]
    spread = np.concatenate([signal.values for signal in signals]).std(0)
    for name, height in (("noise", 0.2), ("wander", 0.5 / math.sqrt(2))):
        queries = Stress.parse(name).queries(signals * 10)
        added = np.stack([query.values - signal.values for query, signal in zip(queries, signals * 10, strict=True)])
        np.testing.assert_allclose(np.sqrt((added**2).mean((0, 1))) / spread, height, rtol=0.15)
        assert (added[:, :, 0] / spread[0] != added[:, :, 1] / spread[1]).any()  # each channel its own
        if name == "wander":
            assert (np.abs(added) <= 0.5 * spread + 1e-3).all()


def test_a_constant_collection_has_no_spread() -> None:
    signal = Signal.from_array(np.full((30, 2), 7.25))
    for name in ("noise", "wander"):
        np.testing.assert_array_equal(one(name, signal).values, signal.values)


def test_a_gain_is_one_number_for_all_channels() -> None:
    signal = walk(60, 2, seed=1)
    gains = []
    for place in range(60):
        gain = one("gain", signal, place).values / signal.values
        np.testing.assert_allclose(gain, gain[0, 0], rtol=1e-5)
        gains.append(gain[0, 0])
    assert 0.6 <= min(gains) < 0.66
    assert 1.54 < max(gains) <= 1.6


def naive_drop(values: npt.NDArray[np.float32], kept: int, start: int) -> npt.NDArray[np.float64]:
    """Sample after sample on the line between the two that are kept beside the span."""
    out = values.astype(np.float64)
    left, right = values[max(start - 1, 0)], values[min(start + kept, len(values) - 1)]
    for step in range(kept):
        out[start + step] = left + (right - left) * (step + 1) / (kept + 1)
    return out


def test_a_drop_is_bridged_by_a_line() -> None:
    signal = walk(100, 2, seed=4)
    for place in range(20):
        query = one("drop", signal, place)
        changed = np.flatnonzero((query.values != signal.values).any(1))
        start = int(changed[0])
        assert 13 <= len(changed) <= changed[-1] - start + 1 <= 15
        candidates = [naive_drop(signal.values, 15, max(start - shift, 0)) for shift in range(3)]
        assert any(np.allclose(query.values, candidate, atol=1e-4) for candidate in candidates)


@pytest.mark.parametrize("name", ON_A_CLOCK)
def test_marks_follow_the_clock(name: str) -> None:
    anchors = np.array([-4.0, 3.0, 20.0, 41.0, 58.0, 66.0])
    signal = Signal.from_array(np.arange(64.0), id="s", anchors=anchors)
    for place in range(6):
        query = one(name, signal, place)
        assert query.anchors is not None
        inside = (query.anchors >= 0) & (query.anchors <= 63) & (anchors >= 0) & (anchors <= 63)
        assert inside.any()
        read = np.interp(query.anchors[inside], np.arange(64), query.values[:, 0])
        np.testing.assert_allclose(read, anchors[inside], atol=1.3)  # a corner of the clock lies between two samples
        assert (np.diff(query.anchors) > 0).all()


@pytest.mark.parametrize("name", ["noise", "wander", "gain", "drop"])
def test_marks_stay_where_time_does(name: str) -> None:
    signal = Signal.from_array(np.arange(64.0), id="s", anchors=np.array([3.0, 20.0]))
    np.testing.assert_array_equal(one(name, signal).anchors, signal.anchors)
