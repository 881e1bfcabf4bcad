"""Rows as a table that can be asked: by set, target, method, protocol, scorer and stress."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median, variance

from geopatch.evaluate.rows import CLASS_MEAN, Row
from geopatch.evaluate.stress import Stress
from geopatch_lab.baselines.registry import METHODS
from geopatch_lab.rival import SCORER as OWN
from geopatch_lab.study.ablations import ALL_ABLATIONS, FULL
from geopatch_lab.study.jobs import AT, ablation_target
from geopatch_lab.study.sets import UEA, target_of

R1, MAP = "recall@1", "map"
CLASS_R1, CLASS_MAP = f"{CLASS_MEAN}{R1}", f"{CLASS_MEAN}{MAP}"
WARPED = "warp-queries"


@dataclass(frozen=True)
class Condition:
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
class StudyScores:
    """All rows of a study, and those that were looked at, for a claim to name what it stands on."""

    rows: tuple[Row, ...]
    index: dict[tuple[str, ...], list[Row]]
    seen: list[Row] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> StudyScores:
        all_rows = tuple(rows)
        index: dict[tuple[str, ...], list[Row]] = {}
        for row in all_rows:
            if row.scores:
                key = (row.data, method_of(row), row.target, row.protocol, row.scorer, row.stress)
                index.setdefault(key, []).append(row)
        return cls(all_rows, index)

    def watched(self) -> StudyScores:
        """The same, with nothing looked at yet."""
        return StudyScores(self.rows, self.index)

    def longer(self) -> StudyScores:
        """Encoders after ten times the steps, as far as they were measured so, and baselines as they are."""
        renamed = (replace(row, preset=row.preset.partition(AT)[0]) for row in self.rows if AT in row.preset)
        return StudyScores.of([*renamed, *(row for row in self.rows if method_of(row) in METHODS)])

    def at(self, condition: Condition) -> list[Row]:
        matching = self.index.get(condition.key, [])
        self.seen.extend(matching)
        return matching

    def seeds(self, condition: Condition, metric: str = R1) -> dict[int, float]:
        return {row.seed: row.scores[metric] for row in self.at(condition) if metric in row.scores}

    def value(self, condition: Condition, metric: str = R1) -> float | None:
        """Mean over seeds."""
        by_seed = self.seeds(condition, metric)
        return mean(by_seed.values()) if by_seed else None

    def over_sets(self, names: Sequence[str], method: str, metric: str = R1, **how: str) -> dict[str, float]:
        """The mean over seeds on each set that has one."""
        by_set = {name: self.value(Condition(name, method, **how), metric) for name in names}
        return {name: value for name, value in by_set.items() if value is not None}

    def archive(self, method: str, metric: str = R1, *, middle: bool = False, **how: str) -> float | None:
        """Mean or median over the paper's archive sets that are there."""
        values = list(self.over_sets(UEA, method, metric, **how).values())
        return None if not values else (median(values) if middle else mean(values))

    def column(self, column: str, method: str, metric: str = R1, **how: str) -> float | None:
        """A column of table (a): a set, or what all archive sets come to."""
        if column in ("UEA mean", "UEA median"):
            return self.archive(method, metric, middle=column == "UEA median", **how)
        return self.value(Condition(column, method, **how), metric)

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(method_of(row) for row in self.rows))

    def has(self, name: str) -> bool:
        return any(row.data == name and row.scores for row in self.rows)

    def failures(self, method: str) -> int:
        return sum(row.failures for row in self.rows if method_of(row) == method)

    def ablation(self, data: str, method: str, metric: str = R1, **how: str) -> float | None:
        return self.value(Condition(data, method, ablation_target(data), **how), metric)

    def ablation_spread(self, data: str, protocol: str = "standard", stress: str = "clean") -> float | None:
        """By how much R@1 differs from seed to seed: the standard deviation, pooled over the encoder's ablations."""
        conditions = (
            Condition(data, name, ablation_target(data), protocol, stress=stress) for name in (FULL, *ALL_ABLATIONS)
        )
        seeds = [list(self.seeds(condition).values()) for condition in conditions]
        variances = [variance(values) for values in seeds if len(values) > 1]
        return mean(variances) ** 0.5 if variances else None
