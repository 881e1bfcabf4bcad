"""Anchors of recordings that come without: beats of an ECG, onsets of sound, peaks of the dominant period of the rest.

Each comes with a confidence; those below `LEAST` are left out, so that an interval is not measured where nobody knows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geopatch.errors import MissingExtraError
from geopatch.signal import Signal, are_bands

Samples = npt.NDArray[np.int64]
Track = npt.NDArray[np.float64]

LEAST = 0.3
LEADS = re.compile(r"(ecg|ekg|ml?(i{1,3}|v\d)|i{1,3}|v\d|av[rlf]|v\d-?v\d|d\d)\b", re.IGNORECASE)
BEAT_S = 0.08  # on either side of a beat that its height is taken from
LONGEST = 1 / 4  # of the recording: the longest period that is looked for
LEAST_PERIOD = 4  # samples


@dataclass(frozen=True, eq=False)
class DetectedAnchors:
    """Samples of anchors, and how far each can be trusted, from 0 to 1."""

    samples: Samples
    confidence: Track

    def trusted(self) -> Track:
        """Those that can be relied on, as the anchors of a signal."""
        return self.samples[self.confidence >= LEAST].astype(np.float64)


def detect_anchors(signal: Signal, *, ecg: bool | None = None) -> DetectedAnchors:
    """The anchors of a whole recording; by default the names of its channels say whether it is an ECG or sound."""
    if are_bands(signal.channels):
        return detect_onsets(signal)
    is_ecg = any(LEADS.match(name) for name in signal.channels) if ecg is None else ecg
    if is_ecg and signal.rate_hz is not None:
        beats = detect_beats(signal)
        return DetectedAnchors(beats, beat_confidence(signal, beats))
    return detect_peaks(signal)


def detect_beats(signal: Signal) -> Samples:
    """R peaks in the first channel, by the XQRS detector of the wfdb library."""
    try:
        from wfdb.processing import XQRS
    except ImportError as error:
        raise MissingExtraError("wfdb", "ecg", "detecting beats") from error
    detector = XQRS(signal.bridged()[:, 0].astype(np.float64), signal.clock_hz)
    detector.detect(verbose=False)
    return np.asarray(detector.qrs_inds, dtype=np.int64)


def beat_confidence(signal: Signal, beats: Samples) -> Track:
    """The height of a beat over the median height; 0 where nothing was measured, and never above 1."""
    values = signal.values[:, 0].astype(np.float64)
    reach = max(round(BEAT_S * signal.clock_hz), 1)
    padded = np.pad(values, reach, constant_values=np.nan)
    near = padded[beats[:, None] + np.arange(2 * reach + 1)]  # (A, 2 reach + 1)
    known = ~np.isnan(near)
    height = np.where(known, near, -np.inf).max(1, initial=-np.inf) - np.where(known, near, np.inf).min(
        1, initial=np.inf
    )
    height = np.where(known.any(1), height, 0.0)
    typical = float(np.median(height)) if len(height) else 0.0
    return np.clip(2 * height / typical, 0, 1) if typical > 0 else np.zeros(len(beats))


def detect_onsets(signal: Signal) -> DetectedAnchors:
    """Where sound sets in, by the detector of the librosa library on the bands as they are."""
    try:
        from librosa.onset import onset_detect, onset_strength
    except ImportError as error:
        raise MissingExtraError("librosa", "speech", "detecting onsets") from error
    rate_hz = signal.clock_hz
    rise = onset_strength(S=signal.bridged().T, sr=rate_hz, hop_length=1)
    onsets = np.asarray(onset_detect(onset_envelope=rise, sr=rate_hz, hop_length=1), dtype=np.int64)
    return DetectedAnchors(onsets, _relative(rise[onsets].astype(np.float64)))


def detect_peaks(signal: Signal) -> DetectedAnchors:
    """Peaks of the dominant period, in the channel that has it most clearly; its clearness is the confidence."""
    from scipy.ndimage import gaussian_filter1d
    from scipy.signal import find_peaks

    periods = [_period(column) for column in signal.bridged().T.astype(np.float64)]
    channel = int(np.argmax([clearness for _, clearness in periods]))
    period, clearness = periods[channel]
    if not period:
        return DetectedAnchors(np.zeros(0, dtype=np.int64), np.zeros(0))
    smooth = gaussian_filter1d(signal.bridged()[:, channel].astype(np.float64), period / 8)
    peaks, shape = find_peaks(smooth, distance=max(round(0.6 * period), 1), prominence=smooth.std() / 2)
    return DetectedAnchors(peaks.astype(np.int64), clearness * _relative(shape["prominences"]))


def _period(column: Track) -> tuple[int, float]:
    """Samples after which a channel is most like itself again, and its correlation then; 0 where there is none."""
    centred = column - column.mean()
    power = np.abs(np.fft.rfft(centred, 2 * len(column))) ** 2
    alike = np.fft.irfft(power)[: max(int(len(column) * LONGEST), 2)]
    if not alike[0] > 0:
        return 0, 0.0
    alike = alike / alike[0] * len(column) / (len(column) - np.arange(len(alike)))
    below = np.flatnonzero(alike < 0)  # beyond the peak at lag 0
    first = max(int(below[0]), LEAST_PERIOD) if len(below) else len(alike)
    if first >= len(alike):
        return 0, 0.0
    best = first + int(np.argmax(alike[first:]))
    return best, float(np.clip(alike[best], 0, 1))


def _relative(heights: Track) -> Track:
    """Heights over their median, at most 1."""
    typical = float(np.median(heights)) if len(heights) else 0.0
    return np.clip(heights / typical, 0, 1) if typical > 0 else np.zeros(len(heights))
