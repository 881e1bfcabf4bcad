"""A length of windows from the data: some periods of what repeats, or a multiple of how long it remembers itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geopatch.signal import Signal

SEGMENT = 16_384  # samples of a recording that are looked at
SHORT = 1024  # samples up to which a recording is a window by itself
PERIODS = 2.5  # in a window: one whole, wherever it is cut
MEMORY = 16  # correlation times in a window, where nothing repeats
PEAK = 0.2  # autocorrelation from which on something repeats
LEAST, PARTS = 32, 4  # samples of a window, at least; windows in the shortest half of the recordings, at least


@dataclass(frozen=True)
class LengthProposal:
    """Seconds of a window (None: each recording is one), and why."""

    window_s: float | None
    reason: str


def propose_length(signals: Sequence[Signal], lengths: Sequence[int]) -> LengthProposal:
    """A length for windows of recordings of so many samples, from a part of each; all have one rate."""
    if max(lengths) <= SHORT:
        return LengthProposal(None, f"recordings have at most {max(lengths)} samples: each is one window")
    correlations = [correlation for signal in signals if (correlation := _correlation(signal)) is not None]
    periods = [period for one in correlations if (period := _period(one)) is not None]
    clock_hz = signals[0].clock_hz
    if len(periods) > len(correlations) / 2:
        period_s = float(np.median(periods)) / clock_hz
        samples, reason = PERIODS * period_s * clock_hz, f"what repeats does so every {period_s:.3g} s in the median"
    else:
        memory = float(np.median([_memory(one) for one in correlations])) if correlations else LEAST / MEMORY
        samples = MEMORY * memory
        reason = f"nothing repeats; what is correlated is so for {memory / clock_hz:.3g} s in the median"
    most = max(float(np.median(lengths)) / PARTS, 1.0)
    samples = min(max(samples, min(LEAST, most)), most)
    return LengthProposal(_round(samples / clock_hz), reason)


def _correlation(signal: Signal) -> npt.NDArray[np.float64] | None:
    """Autocorrelation (lags,) over the channels, each as strong as its variance is not: all count alike."""
    values = signal.bridged().astype(np.float64)
    values = values - values.mean(0)
    power = (values**2).sum(0)
    values = values[:, power > 0] / np.sqrt(power[power > 0])
    if not values.shape[1]:
        return None
    spectrum = np.abs(np.fft.rfft(values, 2 * len(values), axis=0)) ** 2
    lagged: npt.NDArray[np.float64] = np.fft.irfft(spectrum, axis=0)[: len(values) // 2].mean(1)
    return lagged * len(values) / (len(values) - np.arange(len(lagged)))  # fewer pairs at long lags


def _period(correlation: npt.NDArray[np.float64]) -> int | None:
    """The lag of the highest peak after the first fall below zero, the earliest of those nearly as high."""
    below = np.flatnonzero(correlation < 0)
    if not len(below):
        return None
    rest = correlation[below[0] :]
    inner = (rest[1:-1] >= rest[:-2]) & (rest[1:-1] > rest[2:])
    peaks = np.flatnonzero(inner) + 1
    if not len(peaks) or rest[peaks].max() < PEAK:
        return None
    first = peaks[np.flatnonzero(rest[peaks] >= 0.8 * rest[peaks].max())[0]]
    return int(below[0] + first)


def _memory(correlation: npt.NDArray[np.float64]) -> int:
    """The lag at which the autocorrelation has fallen to 1 / e."""
    below = np.flatnonzero(correlation < 1 / math.e)
    return int(below[0]) if len(below) else len(correlation)


def _round(seconds: float) -> float:
    """To 1, 1.5, 2, 3, 4, 5, 6 or 8 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(seconds))
    steps = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
    return float(f"{power * min(steps, key=lambda step: abs(math.log(step * power / seconds))):.3g}")
