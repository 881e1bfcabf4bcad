"""Methods against each other over many sets: paired bootstrap, wins and losses, average ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geopatch.errors import DataError

Table = Mapping[str, Mapping[str, float]]  # method -> set -> score
SEED = 1337
DRAWS = 10_000
TIE = 1e-9


@dataclass(frozen=True)
class Difference:
    """One method minus another over the sets both have: the mean with its 95 % interval, wins, ties and losses."""

    mean: float
    low: float
    high: float
    wins: int
    ties: int
    losses: int
    by_set: dict[str, float]

    @property
    def sets(self) -> int:
        return len(self.by_set)


def difference(table: Table, one: str, other: str) -> Difference | None:
    """None where they share no set."""
    shared = [name for name in table.get(one, {}) if name in table.get(other, {})]
    if not shared:
        return None
    gaps = np.asarray([table[one][name] - table[other][name] for name in shared])
    low, high = bootstrap(gaps)
    wins, losses = int((gaps > TIE).sum()), int((gaps < -TIE).sum())
    by_set = dict(zip(shared, gaps.tolist(), strict=True))
    return Difference(float(gaps.mean()), low, high, wins, len(gaps) - wins - losses, losses, by_set)


def bootstrap(gaps: npt.NDArray[np.float64], draws: int = DRAWS) -> tuple[float, float]:
    """The middle 95 % of the mean over sets drawn with replacement."""
    rng = np.random.default_rng(SEED)
    means = gaps[rng.integers(len(gaps), size=(draws, len(gaps)))].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def average_ranks(table: Table) -> tuple[dict[str, float], int]:
    """The mean rank (1 is best) of each method over the sets that all have, and how many those are."""
    from scipy.stats import rankdata

    if not table:
        return {}, 0
    shared = set.intersection(*(set(by_set) for by_set in table.values()))
    if not shared:
        return {}, 0
    order = sorted(shared)
    values = np.asarray([[table[method][name] for name in order] for method in table])
    ranks = rankdata(-values, axis=0).mean(1)  # equal scores share their ranks
    return dict(zip(table, ranks.tolist(), strict=True)), len(order)


def critical_difference(methods: int, sets: int, level: float = 0.05) -> float:
    """Nemenyi: mean ranks nearer than this do not differ, as far as so many sets can tell."""
    from scipy.stats import studentized_range

    if methods < 2 or sets < 1:
        raise DataError(f"ranks need two methods and one set at least, got {methods} and {sets}")
    quantile = float(studentized_range.ppf(1 - level, methods, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(methods * (methods + 1) / (6 * sets))


def beyond_chance(spread: float, seeds: int) -> float:
    """Two standard errors of the difference of two means over so many seeds, which differ by `spread`."""
    return 2 * spread * math.sqrt(2 / seeds)
