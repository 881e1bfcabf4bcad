"""Samples that come with the package: gestures with the archive's split, and minutes of annotated ECG.

Where they come from, and under which licence: `samples/README.md`.
"""

from __future__ import annotations

from importlib.resources import as_file, files

import numpy as np

from geopatch.data.array_files import Arrays, read_arrays, read_npz_split
from geopatch.data.collection import Collection
from geopatch.data.physionet import unnamed_where_leads_differ
from geopatch.data.recording import Recording, WindowConfig, cut_windows
from geopatch.signal import Signal


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
    samples, symbols = arrays["beat_samples"][beats].astype(np.int64), arrays["beat_symbols"][beats]
    return Recording(signal, signal.id, samples, symbols)


def ecg_windows(rate_hz: float = 128.0) -> Collection:
    """The recordings in windows of 2 s, half overlapping, labelled with the AAMI class of their beats."""
    recordings = unnamed_where_leads_differ(mitdb_minutes())
    return cut_windows("ecg_windows", recordings, WindowConfig(rate_hz=rate_hz)).collection("beat")
