"""Samples that come with the package: gestures with the archive's split, and minutes of annotated ECG.

Where they come from, and under which licence, is told in `samples/README.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import as_file, files

import numpy as np
import numpy.typing as npt

from geopatch.data.collection import Collection
from geopatch.data.npz import Arrays, read_arrays, read_npz_split
from geopatch.signal import Signal

WINDOW_S, STEP_S = 2.0, 1.0

# The first class with a beat in the window names it; all other beats are N.
AAMI_CLASSES = {"V": ("V", "E"), "S": ("A", "a", "J", "S"), "F": ("F",), "Q": ("/", "f", "Q")}


@dataclass(frozen=True, eq=False)
class Recording:
    """A long signal and its beats: at which sample each lies, and the annotator's symbol for it."""

    signal: Signal
    beat_samples: npt.NDArray[np.int64]
    beat_symbols: npt.NDArray[np.str_]


def basic_motions() -> tuple[Collection, Collection]:
    """BasicMotions, train and test: 40 signals each of 100 samples and 6 channels, in 4 classes."""
    with as_file(files("geopatch.data") / "samples" / "BasicMotions.npz") as path:
        return read_npz_split(path)


def mitdb_minutes() -> tuple[Recording, ...]:
    """Three minutes each of six records of the MIT-BIH Arrhythmia Database: two leads in mV at 360 Hz, with beats."""
    with as_file(files("geopatch.data") / "samples" / "mitdb.npz") as path:
        arrays = read_arrays(path)
    return tuple(_recording(arrays, n) for n in range(len(arrays["records"])))


def _recording(arrays: Arrays, n: int) -> Recording:
    beats = arrays["beat_record"] == n
    signal = Signal.from_array(
        (arrays["adu"][n].astype(np.float32) - arrays["baseline"][n]) / arrays["gain"][n],
        id=str(arrays["records"][n]),
        rate_hz=float(arrays["rate_hz"]),
        channels=[str(lead) for lead in arrays["leads"][n]],
    )
    return Recording(signal, arrays["beat_samples"][beats].astype(np.int64), arrays["beat_symbols"][beats])


def ecg_windows(rate_hz: float = 128.0) -> Collection:
    """The recordings in windows of 2 s, half overlapping, labelled with the AAMI class of their beats."""
    recordings = [_resampled(recording, rate_hz) for recording in mitdb_minutes()]
    windows, labels = zip(*(pair for recording in recordings for pair in _windows(recording)), strict=True)
    return Collection("ecg_windows", windows, np.asarray(labels))


def _resampled(recording: Recording, rate_hz: float) -> Recording:
    samples = np.round(recording.beat_samples * rate_hz / recording.signal.rate_hz).astype(np.int64)
    return Recording(recording.signal.resampled(rate_hz), samples, recording.beat_symbols)


def _windows(recording: Recording) -> Iterator[tuple[Signal, str]]:
    signal = recording.signal
    length, step = round(WINDOW_S * signal.rate_hz), round(STEP_S * signal.rate_hz)
    for start in range(0, signal.length - length + 1, step):
        first, last = np.searchsorted(recording.beat_samples, [start, start + length])
        yield signal.window(start, start + length), aami_class(recording.beat_symbols[first:last])


def aami_class(symbols: npt.NDArray[np.str_]) -> str:
    """V, S, F, Q or N: the class of a window with these beats."""
    return next((name for name, beats in AAMI_CLASSES.items() if np.isin(symbols, beats).any()), "N")
