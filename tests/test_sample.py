"""The built-in samples: small, complete, and what their sources say they are."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import geopatch.data
from geopatch.data import load_split
from geopatch.data.recording import aami_class
from geopatch.data.sample import basic_motions, ecg_windows, mitdb_minutes

SAMPLES = Path(geopatch.data.__file__).parent / "samples"
DATA = os.environ.get("GEOPATCH_DATA", "")


def test_samples_are_small_and_attributed() -> None:
    assert sum(file.stat().st_size for file in SAMPLES.iterdir()) < 3e6
    text = (SAMPLES / "README.md").read_text()
    for name in ("PhysioNet", "Moody", "ODC-By 1.0", "Bagnall", "BasicMotions"):
        assert name in text


def test_basic_motions_is_the_archives_split() -> None:
    for part, name in zip(basic_motions(), ("BasicMotions_TRAIN", "BasicMotions_TEST"), strict=True):
        assert part.name == name
        assert {signal.values.shape for signal in part.signals} == {(100, 6)}
        assert part.labels is not None
        assert Counter(part.labels) == dict.fromkeys(["Standing", "Running", "Walking", "Badminton"], 10)


def test_recordings_are_three_minutes_in_millivolt() -> None:
    recordings = mitdb_minutes()
    assert [recording.signal.id for recording in recordings] == ["100", "106", "119", "200", "208", "213"]
    for recording in recordings:
        signal = recording.signal
        assert (signal.rate_hz, signal.duration_s, signal.channels[0]) == (360, 180, "MLII")
        assert 0.5 < np.ptp(signal.values[:, 0]) < 10  # a QRS complex has about 1 mV
        assert abs(np.median(signal.values)) < 1


def test_beats_lie_on_the_peaks() -> None:
    normal = mitdb_minutes()[0]
    assert len(normal.beat_samples) == len(normal.beat_symbols)
    assert np.all(np.diff(normal.beat_samples) > 0)
    lead = normal.signal.values[:, 0]
    inner = normal.beat_samples[1:-1]
    peaks = np.asarray([lead[at - 10 : at + 11].max() for at in inner])
    assert np.median(peaks) > np.quantile(lead, 0.99)


def test_windows_know_record_start_and_class() -> None:
    windows = ecg_windows()
    assert len(windows) == 6 * 179 - 1  # one window lies between two beats and has no class
    assert windows.labels is not None
    assert set(windows.labels) == {"N", "V", "S", "F", "Q"}
    second = windows.signals[1]
    assert (second.record, second.start_s, second.rate_hz, second.length) == ("100", 1.0, 128, 256)
    assert ecg_windows(rate_hz=360).signals[1].length == 720


def test_resampled_windows_have_the_shape_of_the_recording() -> None:
    windows, recording = ecg_windows(), mitdb_minutes()[0].signal
    expected = np.interp(np.arange(256) / 128, np.arange(720) / 360, recording.values[:720, 0])
    assert np.corrcoef(windows.signals[0].values[:, 0], expected)[0, 1] > 0.98


def test_window_labels_are_those_of_their_beats() -> None:
    windows = ecg_windows()
    beats = {recording.signal.id: recording for recording in mitdb_minutes()}
    assert windows.labels is not None
    for window, label in zip(windows.signals, windows.labels, strict=True):
        times_s = beats[window.record].beat_samples / 360 - window.start_s
        if (np.minimum(abs(times_s), abs(times_s - 2)) < 1 / 128).any():
            continue  # a beat on the very edge may round to either side
        inside = (times_s >= 0) & (times_s < 2)
        assert (label == "V") == bool(set("VE") & set(beats[window.record].beat_symbols[inside]))


@pytest.mark.parametrize(
    ("symbols", "expected"),
    [
        ("NVAFQ", "V"),
        ("NE", "V"),
        ("FNA", "S"),
        ("a", "S"),
        ("J", "S"),
        ("S", "S"),
        ("NFQ", "F"),
        ("N/", "Q"),
        ("f", "Q"),
        ("Q", "Q"),
        ("NLRejBn", "N"),
        ("", "N"),
    ],
)
def test_the_gravest_beat_names_the_window(symbols: str, expected: str) -> None:
    assert aami_class(np.asarray(list(symbols), dtype=str)) == expected


@pytest.mark.skipif(not DATA, reason="GEOPATCH_DATA names no folder of data sets")
def test_basic_motions_equals_the_archives_files() -> None:
    for sample, original in zip(basic_motions(), load_split("BasicMotions", DATA), strict=True):
        assert sample.digest() == original.digest()
