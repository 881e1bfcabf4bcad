"""Rows as a table that can be asked: by set, target, method, protocol, scorer and stress."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import mean, median, variance

from geopatch.evaluate.rows import CLASS_MEAN, Row
from geopatch.evaluate.stress import Stress
from geopatch_lab.baselines.registry import METHODS
from geopatch_lab.rival import SCORER as OWN
from geopatch_lab.study.ablations import ALL_ABLATIONS, FULL
from geopatch_lab.study.jobs import ablation_target
from geopatch_lab.study.sets import UEA, target_of

R1, MAP = "recall@1", "map"
CLASS_R1, CLASS_MAP = f"{CLASS_MEAN}{R1}", f"{CLASS_MEAN}{MAP}"
WARPED = "warp-queries"


@dataclass(frozen=True)
class Ask:
    """One cell of a table."""

    data: str
    method: str
    target: str = ""  # the one of table (a), if none is named
    protocol: str = "standard"
    scorer: str = "cosine"  # of an encoder; a baseline has its own
    stress: str = "clean"

    @property
    def key(self) -> tuple[str, ...]:
        scorer = OWN if self.method in METHODS else self.scorer
        stress = Stress.parse(self.stress).text
        return (self.data, self.method, self.target or target_of(self.data), self.protocol, scorer, stress)


def method_of(row: Row) -> str:
    """'ts2vec, zscore' -> 'ts2vec'."""
    return row.preset.partition(",")[0]


def amplitude_of(row: Row) -> str:
    return row.preset.partition(", ")[2]


@dataclass(frozen=True)
class Scores:
    """All rows of a study, and those that were looked at, for a claim to name what it stands on."""

    rows: tuple[Row, ...]
    index: dict[tuple[str, ...], list[Row]]
    seen: list[Row] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Scores:
        found = tuple(rows)
        index: dict[tuple[str, ...], list[Row]] = {}
        for row in found:
            if row.scores:
                key = (row.data, method_of(row), row.target, row.protocol, row.scorer, row.stress)
                index.setdefault(key, []).append(row)
        return cls(found, index)

    def watched(self) -> Scores:
        """The same, with nothing looked at yet."""
        return Scores(self.rows, self.index)

    def at(self, ask: Ask) -> list[Row]:
        found = self.index.get(ask.key, [])
        self.seen.extend(found)
        return found

    def seeds(self, ask: Ask, metric: str = R1) -> dict[int, float]:
        return {row.seed: row.scores[metric] for row in self.at(ask) if metric in row.scores}

    def value(self, ask: Ask, metric: str = R1) -> float | None:
        """Mean over seeds."""
        found = self.seeds(ask, metric)
        return mean(found.values()) if found else None

    def over_sets(self, names: Sequence[str], method: str, metric: str = R1, **how: str) -> dict[str, float]:
        """The mean over seeds on each set that has one."""
        found = {name: self.value(Ask(name, method, **how), metric) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    def archive(self, method: str, metric: str = R1, *, middle: bool = False, **how: str) -> float | None:
        """Mean or median over the paper's archive sets that are there."""
        found = list(self.over_sets(UEA, method, metric, **how).values())
        return None if not found else (median(found) if middle else mean(found))

    def column(self, column: str, method: str, metric: str = R1, **how: str) -> float | None:
        """A column of table (a): a set, or what all archive sets come to."""
        if column in ("UEA mean", "UEA median"):
            return self.archive(method, metric, middle=column == "UEA median", **how)
        return self.value(Ask(column, method, **how), metric)

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(method_of(row) for row in self.rows))

    def has(self, name: str) -> bool:
        return any(row.data == name and row.scores for row in self.rows)

    def failures(self, method: str) -> int:
        return sum(row.failures for row in self.rows if method_of(row) == method)

    def ablation(self, data: str, method: str, metric: str = R1, **how: str) -> float | None:
        return self.value(Ask(data, method, ablation_target(data), **how), metric)

    def ablation_spread(self, data: str, protocol: str = "standard", stress: str = "clean") -> float | None:
        """By how much R@1 differs from seed to seed: the standard deviation, pooled over the encoder's ablations."""
        asks = (Ask(data, name, ablation_target(data), protocol, stress=stress) for name in (FULL, *ALL_ABLATIONS))
        seeds = [list(self.seeds(ask).values()) for ask in asks]
        variances = [variance(found) for found in seeds if len(found) > 1]
        return mean(variances) ** 0.5 if variances else None
