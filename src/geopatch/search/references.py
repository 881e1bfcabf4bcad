"""Reference windows: signals of many kinds that have nothing to do with any gallery, drawn by formula.

What a gallery's scores with these are is what "by chance" means. They are made anew from a fixed seed wherever they are
needed, for any length and any number of channels, so that nothing is stored and every engine has the same.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from geopatch.signal import Signal

REFERENCES, FEWEST = 256, 64
MOST_VALUES = 1 << 24  # of all together: of long windows there are fewer, and shorter ones where that is not enough
SEED = 7
GAIN = 0.5  # windows are up to exp(GAIN) louder or quieter than the training data
ANCHORS = 4  # of a reference window, for models with clock geometry

Values = npt.NDArray[np.float64]
Draw = np.random.Generator


def reference_signals(length: int, level: npt.ArrayLike, spread: npt.ArrayLike, rate_hz: float | None) -> list[Signal]:
    """Windows of `length` samples, with about the level (C,) and the spread (C,) of the data that a model knows."""
    draw, level, spread = np.random.default_rng(SEED), np.asarray(level, float), np.asarray(spread, float)
    length = min(length, MOST_VALUES // (FEWEST * len(level)))
    count = min(max(MOST_VALUES // (length * len(level)), FEWEST), REFERENCES)
    anchors = np.linspace(0, length - 1, ANCHORS)
    signals = []
    for n in range(count):
        values = _window(draw, length, len(level)) * np.exp(draw.uniform(-GAIN, GAIN))
        signals.append(Signal(level + spread * values, f"reference {n}", rate_hz, anchors=anchors))
    return signals


def _window(draw: Draw, length: int, channels: int) -> Values:
    """One window (T, C); its channels are mixtures of as many signals, or of two, as those of one sensor are."""
    sources = np.stack([_signal(draw, length) for _ in range(channels)], axis=1)
    if channels > 2 and draw.uniform() < 0.5:
        sources = sources[:, :2] @ draw.normal(size=(2, channels))
    return _standard(sources)


def _signal(draw: Draw, length: int) -> Values:
    """A signal of one kind, or of two; half of them with some noise."""
    values = _standard(_kind(draw, length))
    if draw.uniform() < 0.5:
        values = _standard(values + draw.uniform() * _standard(_kind(draw, length)))
    return values + (draw.uniform() < 0.5) * draw.uniform(0, 0.3) * draw.normal(size=length)


def _kind(draw: Draw, length: int) -> Values:
    return KINDS[draw.integers(len(KINDS))](draw, np.linspace(0, 1, length))


def _standard(values: Values) -> Values:
    spread = values.std(0)
    standard: Values = (values - values.mean(0)) / np.where(spread > 1e-9, spread, 1.0)
    return standard


def _noise(draw: Draw, time: Values) -> Values:
    """Noise whose power falls with the frequency, from white to smoother than a random walk."""
    frequency = np.fft.rfftfreq(len(time))
    frequency[0] = 1.0
    waves = draw.normal(size=(2, len(frequency))) * frequency ** (-draw.uniform(0, 3) / 2)
    waves[:, 0] = 0.0
    return np.fft.irfft(waves[0] + 1j * waves[1], len(time))


def _sines(draw: Draw, time: Values) -> Values:
    count = draw.integers(1, 5)
    gain, turns, phase = draw.normal(size=count), 2 ** draw.uniform(-1, 4, count), draw.uniform(size=count)
    sines: Values = np.sin(2 * np.pi * (time[:, None] * turns + phase)) @ gain
    return sines


def _bumps(draw: Draw, time: Values) -> Values:
    count = draw.integers(1, 7)
    gain, centre, width = draw.normal(size=count), draw.uniform(size=count), 2 ** draw.uniform(-6, -2, count)
    bumps: Values = np.exp(-0.5 * ((time[:, None] - centre) / width) ** 2) @ gain
    return bumps


def _steps(draw: Draw, time: Values) -> Values:
    places = np.sort(draw.uniform(size=draw.integers(1, 9)))
    steps: Values = draw.normal(size=len(places) + 1)[np.searchsorted(places, time)]
    return steps


def _lines(draw: Draw, time: Values) -> Values:
    places = np.sort(draw.uniform(size=draw.integers(1, 9)))
    return np.interp(time, [0.0, *places, 1.0], draw.normal(size=len(places) + 2))


def _pulses(draw: Draw, time: Values) -> Values:
    period = 2 ** draw.uniform(-4, -1)
    width, centres = period * draw.uniform(0.03, 0.3), np.arange(draw.uniform(-period, period), 1 + period, period)
    gain = (1 + 0.2 * draw.normal(size=len(centres))) * draw.choice([-1, 1])
    pulses: Values = np.exp(-0.5 * ((time[:, None] - centres) / width) ** 2) @ gain
    return pulses


def _ringing(draw: Draw, time: Values) -> Values:
    """An oscillation that begins somewhere, dies away and changes its frequency."""
    since = np.maximum(time - draw.uniform(0, 0.5), 0.0)
    turns = 2 ** draw.uniform(1, 5) * since + draw.uniform(-4, 4) * since**2
    ringing: Values = np.exp(-draw.uniform(0, 6) * since) * np.sin(2 * np.pi * turns)
    return ringing


KINDS: tuple[Callable[[Draw, Values], Values], ...] = (_noise, _sines, _bumps, _steps, _lines, _pulses, _ringing)
