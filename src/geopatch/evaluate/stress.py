"""What queries are put under: another clock, noisy geometry, a missing span, another order. Each is a checked value.

A stress of strength 0 changes nothing. All chance comes from SEED, and where windows are treated differently from the
place of the window among the queries, so that a measurement can be repeated to the last bit.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from geopatch.errors import ConfigError, one_of
from geopatch.evaluate.distortions import (
    LEAST_GAIN,
    SEED,
    Added,
    dropped,
    gained,
    raised,
    shifted,
    slow_sine,
    speeds,
    spread_of,
    squeezed,
    white,
    zoomed,
)
from geopatch.signal import Signal
from geopatch.warp import WARP, check_warp, warped

MASK, CHUNKS = 0.2, 8
NOISE = 0.2  # neither negligible nor drowning: a fifth of what a descriptor varies by itself


def masked(signal: Signal, strength: float = MASK, place: int = 0) -> Signal:
    """The signal without round(strength T) samples in a row, in all channels; `place` seeds where they lie.

    A span that would leave nothing measured is not drawn; where every span would, the signal stays as it is.
    """
    _check_mask(strength)
    size = round(strength * signal.length)
    measured = np.concatenate([[0], np.cumsum(signal.observed.any(1))])
    inside = measured[size:] - measured[: len(measured) - size]  # measured samples in the span from each start
    starts = np.flatnonzero(inside < measured[-1])
    if len(starts) == 0:
        return signal
    start = int(np.random.default_rng((SEED, place)).choice(starts))
    values = signal.values.copy()
    values[start : start + size] = np.nan
    return replace(signal, values=values)


def shuffled(signal: Signal, chunks: float = CHUNKS) -> Signal:
    """The signal cut into chunks as equal as can be, in another order: the same one for all windows.

    A window of fewer samples than chunks is cut into its samples.
    """
    _check_chunks(chunks)
    parts = np.array_split(np.arange(signal.length), max(min(int(chunks), signal.length), 1))
    order = np.concatenate([parts[n] for n in chunk_order(len(parts))])
    return replace(signal, values=signal.values[order], anchors=_shuffled_anchors(signal, order))


def _shuffled_anchors(signal: Signal, order: npt.NDArray[np.int64]) -> npt.NDArray[np.float64] | None:
    """Each mark goes where its sample goes; those beyond the window stay."""
    if signal.anchors is None:
        return None
    nearest = np.clip(signal.anchors.round().astype(int), 0, signal.length - 1)
    outside = (signal.anchors < 0) | (signal.anchors > signal.length - 0.5)
    return np.where(outside, signal.anchors, np.argsort(order)[nearest])


def chunk_order(count: int) -> npt.NDArray[np.int64]:
    """A seeded order of chunks that is not the one they have; two chunks change places."""
    rng, kept = np.random.default_rng(SEED), np.arange(count)
    order = rng.permutation(count)
    while count > 1 and (order == kept).all():
        order = rng.permutation(count)
    return order


def _check_clean(strength: float) -> None:
    if strength != 0:
        raise ConfigError(f"clean has no strength, got {strength}; name a stress")


def _check_noise(strength: float) -> None:
    if not 0 <= strength < math.inf:
        raise ConfigError(f"noise strength must be 0 or more times the spread of a descriptor, got {strength}")


def _check_mask(strength: float) -> None:
    if not 0 <= strength < 1:
        raise ConfigError(f"mask strength is a share of the window, at least 0 and below 1, got {strength}")


def _check_chunks(strength: float) -> None:
    if not (0 <= strength < math.inf and strength == int(strength)):
        raise ConfigError(f"shuffle strength is a whole number of chunks, 0 or more, got {strength}")


def _check_share(strength: float) -> None:
    if not 0 <= strength < 1:
        raise ConfigError(f"strength is a share of the window, at least 0 and below 1, got {strength}")


def _check_speed(strength: float) -> None:
    if not 0 <= strength <= FASTEST:
        raise ConfigError(f"speed strength is the spread of log speeds, within 0 and {FASTEST:g}, got {strength}")


def _check_height(strength: float) -> None:
    if not 0 <= strength < math.inf:
        raise ConfigError(f"strength must be 0 or more times the spread of a channel, got {strength}")


def _check_gain(strength: float) -> None:
    if not 0 <= strength < 1 / (1 - LEAST_GAIN):
        raise ConfigError(f"gain strength must lie within 0 and 2.5, so that no gain is negative, got {strength}")


FASTEST = 3.0  # beyond it nearly all of a window lies in one of its pieces
Change = Callable[[Signal, float, int], Signal]


def _unchanged(signal: Signal, _strength: float, _place: int) -> Signal:
    return signal


def _warp(signal: Signal, strength: float, _place: int) -> Signal:
    return warped(signal, strength)


def _warp_back(signal: Signal, strength: float, _place: int) -> Signal:
    return warped(signal, -strength)


def _shuffle(signal: Signal, strength: float, _place: int) -> Signal:
    return shuffled(signal, strength)


@dataclass(frozen=True)
class StressKind:
    """What a stress means, its default strength, the strengths of its curve, and what it does to windows."""

    meaning: str
    default: float
    curve: tuple[float, ...]
    check: Callable[[float], None]
    query: Change = _unchanged
    gallery: Change = _unchanged
    added: Added | None = None  # to queries, strength times this, in units of the spread of each channel


CLEAN, GEOMETRY_NOISE, SPAN_MASK, SHUFFLE = "clean", "geometry-noise", "span-mask", "shuffle"
WARP_QUERIES, WARP_ALIKE, WARP_DIFFERENTLY = "warp-queries", "warp-both-alike", "warp-both-differently"
WARPS = (0.0, 0.025, 0.05, 0.075, WARP, 0.125, 0.15)
SPREAD = "the spread of each channel over the measured samples of all queries"
CLOCK = "read at t + strength T sin(2 pi t / T)"
KINDS: dict[str, StressKind] = {
    CLEAN: StressKind("queries and gallery as they were recorded", 0.0, (0.0,), _check_clean),
    WARP_QUERIES: StressKind(f"queries {CLOCK}, the gallery clean", WARP, WARPS, check_warp, _warp),
    WARP_ALIKE: StressKind(f"queries and gallery {CLOCK}", WARP, WARPS, check_warp, _warp, _warp),
    WARP_DIFFERENTLY: StressKind(
        f"queries {CLOCK}, the gallery with the opposite sign", WARP, WARPS, check_warp, _warp, _warp_back
    ),
    GEOMETRY_NOISE: StressKind(  # comes after patching: see `noise`
        "Gaussian noise on the geometry descriptors of queries, strength times the spread of each descriptor over the "
        "valid patches of the gallery; values and gate evidence untouched, the gallery clean",
        NOISE,
        (0.0, 0.1, NOISE, 0.4, 0.8, 1.6),
        _check_noise,
    ),
    SPAN_MASK: StressKind(
        "round(strength T) samples of queries in a row not measured, in all channels, the gallery clean",
        MASK,
        (0.0, 0.1, MASK, 0.3, 0.4, 0.6),
        _check_mask,
        masked,
    ),
    SHUFFLE: StressKind(
        "queries cut into strength chunks in another order, the gallery clean",
        CHUNKS,
        (0.0, 2.0, 4.0, CHUNKS, 16.0),
        _check_chunks,
        _shuffle,
    ),
    "speed": StressKind(
        "queries in six pieces of equal length, each a part of the window whose length is log-normal with spread "
        "strength, the gallery clean",
        0.4,
        (0.0, 0.2, 0.4, 0.6, 0.8),
        _check_speed,
        speeds,
    ),
    "zoom": StressKind(
        "a random 1 - strength of each query stretched to its length, the gallery clean",
        0.2,
        (0.0, 0.1, 0.2, 0.3, 0.4, 0.6),
        _check_share,
        zoomed,
    ),
    "squeeze": StressKind(
        "queries in the middle 1 - strength of their time, their ends held, the gallery clean",
        0.2,
        (0.0, 0.1, 0.2, 0.3, 0.4, 0.6),
        _check_share,
        squeezed,
    ),
    "shift": StressKind(
        "queries strength T earlier or later, their ends held, the gallery clean",
        0.1,
        (0.0, 0.05, 0.1, 0.15, 0.2, 0.3),
        _check_share,
        shifted,
    ),
    "noise": StressKind(
        f"white noise on queries, strength times {SPREAD}, the gallery clean",
        0.2,
        (0.0, 0.1, 0.2, 0.3, 0.4, 0.8),
        _check_height,
        added=white,
    ),
    "wander": StressKind(
        "a slow sine on queries, half a turn to two turns, each channel with its own turns and phase, strength times "
        f"{SPREAD}, the gallery clean",
        0.5,
        (0.0, 0.25, 0.5, 0.75, 1.0),
        _check_height,
        added=slow_sine,
    ),
    "gain": StressKind(
        "queries times one number each, drawn evenly from 1 - 0.4 strength to 1 + 0.6 strength, the gallery clean",
        1.0,
        (0.0, 0.5, 1.0, 1.5, 2.0),
        _check_gain,
        gained,
    ),
    "drop": StressKind(
        "int(strength T) samples of queries in a row bridged by a line, in all channels, the gallery clean",
        0.15,
        (0.0, 0.05, 0.1, 0.15, 0.2, 0.3),
        _check_share,
        dropped,
    ),
}
STRESSES = (CLEAN, WARP_QUERIES, WARP_ALIKE, WARP_DIFFERENTLY, GEOMETRY_NOISE, SPAN_MASK, SHUFFLE)  # of the study
QUERY_DISTORTIONS = (WARP_QUERIES, *(name for name in KINDS if name not in STRESSES))
ROW_NAMES = {"warped queries": "warp-queries@0.1"}  # what rows called it when there was no other


@dataclass(frozen=True)
class Stress:
    """A named stress of a strength.

    Its digest changes when its meaning does, and is written into every result row.

    Parameters
    ----------
    name : str
        A key of `KINDS`, which says what it does.
    strength : float
        How strong; what it counts depends on the stress. 0 changes nothing.

    Raises
    ------
    ConfigError
        When there is no such stress, or the strength lies outside its range.
    """

    name: str
    strength: float

    def __post_init__(self) -> None:
        one_of("stress", self.name, tuple(KINDS))
        object.__setattr__(self, "strength", float(self.strength) + 0.0)  # -0 is 0
        KINDS[self.name].check(self.strength)

    @classmethod
    def parse(cls, text: str) -> Stress:
        """Read a stress from text.

        Parameters
        ----------
        text : str
            ``"span-mask"`` has its default strength, ``"span-mask@0.4"`` another; what a row says can be read as well.

        Returns
        -------
        Stress
            The checked value.

        Raises
        ------
        ConfigError
            When there is no such stress, or its strength cannot be read.
        """
        name, at, strength = ROW_NAMES.get(text, text).partition("@")
        one_of("stress", name, tuple(KINDS))
        try:
            value = float(strength) if at else KINDS[name].default
        except ValueError as error:
            raise ConfigError(f"a stress looks like {name} or {name}@{KINDS[name].default:g}, got {text!r}") from error
        return cls(name, value)

    @property
    def text(self) -> str:
        """What a row says. Of strength 0 every stress is clean."""
        written = f"{self.name}@{self.strength:.15g}" if self.strength else CLEAN
        return next((row for row, text in ROW_NAMES.items() if text == written), written)

    @property
    def digest(self) -> str:
        """Twelve digits that change with the meaning of the stress."""
        name = self.name if self.strength else CLEAN
        text = f"{name}: {KINDS[name].meaning}; strength {self.strength!r}, seed {SEED}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def queries(self, signals: Sequence[Signal]) -> list[Signal]:
        """The queries under this stress.

        Parameters
        ----------
        signals : sequence of Signal
            The queries as they were recorded.

        Returns
        -------
        list of Signal
            The same objects where nothing changes.
        """
        added = KINDS[self.name].added
        if added is None or self.strength == 0:
            return self._changed(KINDS[self.name].query, signals)
        height = self.strength * spread_of(signals)  # (C,)
        shapes = [(signal.length, signal.values.shape[1]) for signal in signals]
        return [raised(signal, height * added(*shapes[place], place)) for place, signal in enumerate(signals)]

    def gallery(self, signals: Sequence[Signal]) -> list[Signal]:
        """The gallery under this stress.

        Parameters
        ----------
        signals : sequence of Signal
            The windows as they were recorded.

        Returns
        -------
        list of Signal
            The same objects where nothing changes.
        """
        return self._changed(KINDS[self.name].gallery, signals)

    def _changed(self, change: Change, signals: Sequence[Signal]) -> list[Signal]:
        if self.strength == 0:
            return list(signals)
        return [change(signal, self.strength, place) for place, signal in enumerate(signals)]


def default_stresses() -> tuple[Stress, ...]:
    """Clean, and every stress of the study at its default.

    Returns
    -------
    tuple of Stress
        Clean first.
    """
    return tuple(Stress(name, KINDS[name].default) for name in STRESSES)


def distortions() -> tuple[Stress, ...]:
    """Clean, and the nine distortions of queries at their defaults.

    They are a warp, six random speeds, zoom, squeeze, shift, noise, wander, gain and a dropped span; the gallery stays
    clean.

    Returns
    -------
    tuple of Stress
        Clean first.
    """
    return tuple(Stress(name, KINDS[name].default) for name in (CLEAN, *QUERY_DISTORTIONS))


def curve(name: str, strengths: Sequence[float] = ()) -> tuple[Stress, ...]:
    """A stress over a range of strengths.

    Parameters
    ----------
    name : str
        The stress.
    strengths : sequence of float, optional
        The strengths; by default its own, among them 0 and the default.

    Returns
    -------
    tuple of Stress
        One for each strength.
    """
    one_of("stress", name, tuple(KINDS))
    return tuple(Stress(name, strength) for strength in strengths or KINDS[name].curve)
