"""Windows of long recordings: where they lie and what they are examples of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geopatch.data.collection import UNKNOWN, WindowSet
from geopatch.data.recording import Recording, WindowConfig, aami_class, cut_windows, spans, targets
from geopatch.data.sample import mitdb_minutes
from geopatch.errors import ConfigError, SignalError
from geopatch.signal import Signal


def recording(seconds: float = 10.0, rate_hz: float = 100.0, beats: str = "NNVNN", id: str = "r") -> Recording:
    """A beat every 2 s from second 1 on; rhythm N, from second 6 on AFIB."""
    time = np.arange(round(seconds * rate_hz)) / rate_hz
    samples = (np.arange(len(beats)) * 2 + 1) * rate_hz
    rhythm = np.asarray([0, 6 * rate_hz], dtype=np.int64)
    return Recording(
        Signal.from_array(np.sin(2 * np.pi * time), id=id, rate_hz=rate_hz),
        f"subject of {id}",
        samples.astype(np.int64),
        np.asarray(list(beats)),
        rhythm,
        np.asarray(["N", "AFIB"]),
    )


CONFIG = WindowConfig(rate_hz=100.0)


def test_windows_know_their_record_and_never_cross_its_end() -> None:
    windows = cut_windows("two", [recording(id="a"), recording(7.5, beats="NNV", id="b")], CONFIG)
    assert [(signal.record, signal.start_s) for signal in windows.signals[:2]] == [("a", 0.0), ("a", 1.0)]
    ends = {"a": 10.0, "b": 7.5}
    assert all(signal.start_s + signal.duration_s <= ends[signal.record] for signal in windows.signals)
    assert [signal.record for signal in windows.signals] == ["a"] * 9 + ["b"] * 6
    assert {signal.length for signal in windows.signals} == {200}


@given(st.integers(1, 400), st.sampled_from([1.0, 2.0, 3.7]), st.sampled_from([0.0, 0.25, 0.5, 0.9]))
def test_spans_cover_all_but_less_than_a_window(samples: int, length_s: float, overlap: float) -> None:
    config = WindowConfig(rate_hz=10.0, length_s=length_s, overlap=overlap)
    length = round(10 * length_s)
    step = max(round(length * (1 - overlap)), 1)
    found = list(spans(samples, config))
    expected = []
    start = 0
    while start + length <= samples:
        expected.append((start, start + length))
        start += step
    assert found == expected


def test_targets_of_a_window() -> None:
    whole = recording()
    assert targets(whole, 0, 200) == {"subject": "subject of r", "beat": "N", "rhythm": "N", "rate": "30-40 bpm"}
    assert targets(whole, 400, 600)["beat"] == "V"
    assert targets(whole, 500, 700)["rhythm"] == UNKNOWN  # it changes inside
    assert targets(whole, 600, 800)["rhythm"] == "AFIB"
    assert targets(whole, 110, 290) == {"subject": "subject of r", "beat": UNKNOWN, "rhythm": "N", "rate": UNKNOWN}


def test_a_collection_leaves_out_what_is_unknown() -> None:
    windows = cut_windows("one", [recording()], CONFIG)
    found = windows.collection("rhythm")
    assert found.labels is not None
    assert UNKNOWN not in found.labels
    assert len(found) == len(windows) - (windows.targets["rhythm"] == UNKNOWN).sum()
    with pytest.raises(ConfigError, match="target must be one of subject, beat, rhythm, rate, got 'speaker'"):
        windows.collection("speaker")


def test_resampling_moves_the_marks_along() -> None:
    moved = recording().at_rate(25.0)
    assert moved.beat_samples.tolist() == [25, 75, 125, 175, 225]
    assert moved.rhythm_samples.tolist() == [0, 150]
    assert moved.signal.length == 250


def test_labels_do_not_hang_on_the_rate() -> None:
    fast, slow = (cut_windows("one", [recording()], WindowConfig(rate_hz=rate)) for rate in (100.0, 50.0))
    for target in fast.targets:
        assert fast.targets[target].tolist() == slow.targets[target].tolist()


def test_the_band_pass_takes_drift_and_leaves_the_wave() -> None:
    plain = recording(20.0)
    drift = np.linspace(0, 5, plain.signal.length)[:, None]
    noisy = Recording(Signal.from_array(plain.signal.values + drift, id="r", rate_hz=100.0), "s")
    passed = noisy.band_passed(0.5, 20.0).signal.values[300:-300, 0]
    np.testing.assert_allclose(passed, plain.signal.values[300:-300, 0], atol=0.05)
    with pytest.raises(ConfigError, match=r"band_hz must lie within 0 and 50 Hz, low before high, got 20 to 0\.5"):
        plain.band_passed(20.0, 0.5)


def test_the_band_pass_keeps_gaps() -> None:
    values = recording().signal.values.copy()
    values[100:150] = np.nan
    gapped = Recording(Signal.from_array(values, id="r", rate_hz=100.0), "s").band_passed(0.5, 20.0)
    assert np.isnan(gapped.signal.values[100:150]).all()
    assert np.isfinite(gapped.signal.values[150:]).all()


def test_windows_in_which_nothing_was_measured_are_left_out() -> None:
    values = recording().signal.values.copy()
    values[:450] = np.nan
    windows = cut_windows("gap", [Recording(Signal.from_array(values, id="r", rate_hz=100.0), "s")], CONFIG)
    assert windows.signals[0].start_s == 3.0


def test_recordings_too_short_for_a_window_are_one_clear_line() -> None:
    with pytest.raises(SignalError, match="no recording lasts the 2 s of one window"):
        cut_windows("short", [Recording(Signal.from_array(np.ones(150), rate_hz=100.0), "s")], CONFIG)


def test_a_mark_past_the_end_is_refused() -> None:
    with pytest.raises(SignalError, match="recording 'r' has 1000 samples but a mark at sample 1100"):
        recording(beats="NNNNNN")


@pytest.mark.parametrize(
    ("setting", "message"),
    [({"overlap": 1.0}, "1 - overlap"), ({"overlap": -0.1}, "overlap must"), ({"length_s": 0.0}, "length_s")],
)
def test_settings_out_of_range_are_refused(setting: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WindowConfig(**setting)  # type: ignore[arg-type]


def test_the_first_class_in_order_names_a_window() -> None:
    assert [aami_class(np.asarray(list(text))) for text in ("NVA", "NAF", "NFQ", "N/", "LR")] == list("VSFQN")


def test_a_window_set_has_a_length() -> None:
    assert len(WindowSet("none", (), {})) == 0


def test_saturated_stretches_become_gaps() -> None:
    values = np.sin(np.arange(200) / 5).astype(np.float32)
    values[50:60], values[100:103] = 2.0, 2.0
    recording = Recording(Signal.from_array(np.stack([values, np.ones(200)], axis=1), id="r", rate_hz=100.0), "s")
    clean = recording.without_saturation().signal
    assert np.flatnonzero(np.isnan(clean.values[:, 0])).tolist() == list(range(50, 60)), "runs of five and more"
    assert np.isfinite(clean.values[:, 1]).all(), "a constant channel is not saturated"
    assert np.isfinite(recording.signal.values).all(), "the recording itself stays as it was"


@pytest.mark.parametrize("source", ["annotated", "detected", "none"])
def test_windows_carry_the_anchors_of_their_source(source: str) -> None:
    recording = mitdb_minutes()[0]
    windows = cut_windows("ecg", [recording], WindowConfig(anchors=source)).signals
    if source == "none":
        assert all(window.anchors is None for window in windows)
        return
    beats = recording.beat_samples / recording.signal.clock_hz
    for window in windows[3:40]:
        assert window.anchors is not None
        assert len(window.anchors) >= 2
        times = window.start_s + window.anchors / window.clock_hz
        assert np.abs(times[:, None] - beats).min(1).max() < 0.1, "R peaks, to a tenth of a second"


def test_unknown_anchors_are_refused() -> None:
    with pytest.raises(ConfigError, match="anchors must be one of annotated, detected, auto, none"):
        WindowConfig(anchors="guessed")


def test_a_recording_without_a_rate_is_taken_to_have_that_of_its_windows() -> None:
    plain = recording()
    unknown = Recording(Signal.from_array(plain.signal.values, id="r"), "s", plain.beat_samples, plain.beat_symbols)
    windows = cut_windows("one", [unknown], CONFIG)
    assert {(signal.rate_hz, signal.length) for signal in windows.signals} == {(100.0, 200)}
    np.testing.assert_array_equal(windows.signals[1].values, plain.signal.values[100:300])


def test_real_one_hertz_recordings_keep_their_time() -> None:
    slow = Recording(Signal.from_array(np.sin(np.arange(100) / 9), id="r", rate_hz=1.0), "s")
    windows = cut_windows("one", [slow], WindowConfig(rate_hz=2.0, length_s=20.0, overlap=0.0))
    assert [(signal.start_s, signal.duration_s) for signal in windows.signals] == [(n * 20.0, 20.0) for n in range(5)]


def test_a_signal_keeps_its_own_anchors_where_no_beats_are_annotated() -> None:
    marks = np.asarray([100.0, 300.0, 500.0])
    marked = Recording(Signal.from_array(recording().signal.values, id="r", rate_hz=100.0, anchors=marks), "s")
    window = cut_windows("one", [marked], CONFIG).signals[2]
    assert window.anchors is not None
    assert (window.start_s + window.anchors / 100).tolist() == [1.0, 3.0, 5.0]


def test_a_recording_is_one_line_and_a_row_in_notebooks() -> None:
    assert repr(recording()) == (
        "Recording('r', 1000 samples at 100 Hz, 1 channel, subject subject of r, 5 beats, 2 rhythms)"
    )
    assert "<svg" in recording()._repr_html_()
