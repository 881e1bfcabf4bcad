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
from geopatch.signal import Signal
from geopatch.warp import WARP, check_warp, warped

SEED = 1337
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


CLEAN, GEOMETRY_NOISE, SPAN_MASK, SHUFFLE = "clean", "geometry-noise", "span-mask", "shuffle"
WARP_QUERIES, WARP_ALIKE, WARP_DIFFERENTLY = "warp-queries", "warp-both-alike", "warp-both-differently"
WARPS = (0.0, 0.025, 0.05, 0.075, WARP, 0.125, 0.15)
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
}
ROW_NAMES = {"warped queries": "warp-queries@0.1"}  # what rows called it when there was no other


@dataclass(frozen=True)
class Stress:
    """A named stress of a strength. Its digest changes when its meaning does, and is written into every result row."""

    name: str
    strength: float

    def __post_init__(self) -> None:
        one_of("stress", self.name, tuple(KINDS))
        object.__setattr__(self, "strength", float(self.strength) + 0.0)  # -0 is 0
        KINDS[self.name].check(self.strength)

    @classmethod
    def parse(cls, text: str) -> Stress:
        """'span-mask' has its default strength, 'span-mask@0.4' another; what a row says can be read as well."""
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
        name = self.name if self.strength else CLEAN
        text = f"{name}: {KINDS[name].meaning}; strength {self.strength!r}, seed {SEED}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def queries(self, signals: Sequence[Signal]) -> list[Signal]:
        """The windows as they are searched by."""
        return self._changed(KINDS[self.name].query, signals)

    def gallery(self, signals: Sequence[Signal]) -> list[Signal]:
        """The windows as they are searched."""
        return self._changed(KINDS[self.name].gallery, signals)

    def _changed(self, change: Change, signals: Sequence[Signal]) -> list[Signal]:
        if self.strength == 0:
            return list(signals)
        return [change(signal, self.strength, place) for place, signal in enumerate(signals)]


STRESSES = tuple(KINDS)


def default_stresses() -> tuple[Stress, ...]:
    """Clean, and every stress at its default."""
    return tuple(Stress(name, kind.default) for name, kind in KINDS.items())


def curve(name: str, strengths: Sequence[float] = ()) -> tuple[Stress, ...]:
    """A stress over its strengths: those given, or its own, among them 0 and the default."""
    one_of("stress", name, STRESSES)
    return tuple(Stress(name, strength) for strength in strengths or KINDS[name].curve)
