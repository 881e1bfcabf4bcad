"""The theorems on encoders of the study: what a job measures, and rows that are small enough to keep.

Two encoders are trained as all others are, one with fixed and one with adaptive patches, and `measure_stability` is
asked about both. Rows keep the values that tables and figures are made from, with as many digits as those can show.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from geopatch.data.collection import Collection
from geopatch.errors import DataError
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Trained, train
from geopatch.storage import atomic_file
from geopatch_lab.stability import FULL, QUICK, StabilityRow, measure_stability
from geopatch_lab.stability.drift import RULES
from geopatch_lab.study.ablations import setting
from geopatch_lab.study.jobs import STABILITY, STABILITY_QUICK, Job
from geopatch_lab.study.pack import read_pack

SIZES = {STABILITY: FULL, STABILITY_QUICK: QUICK}
DIGITS = 4
KEPT = {  # of each topic; of others all
    "drift": (
        *("total_mean", "total_median", "boundary_mean", "feature_mean", "boundary_max", "boundary_share"),
        *("shift_samples", "violations", "apart"),
    ),
    "margin": ("certified", "certified_product", "kept_random", "kept_against", "certified_flips"),
    "preference": ("rate",),
    "dominance": ("short", "own_mean", "other_mean"),
    "protocol": ("recall@1", "map"),
}
WORST = ("max", "change_max", "boundary_max", "violations", "certified_flips")  # the largest of all seeds tells


def findings(job: Job, packs: Path, device: str) -> list[StabilityRow]:
    """The rows of a job about theorems."""
    task = read_pack(packs, job.data, job.target)
    assert task.train is not None
    fixed, adaptive = (_trained(job, task.train, rule, device) for rule in RULES)
    rows = measure_stability(fixed, task.test, twin=adaptive, size=SIZES[job.aim])
    return [replace(row, target=job.target) for row in rows]


def _trained(job: Job, learned: Collection, rule: str, device: str) -> Trained:
    chosen = setting(job.method, job.budget)
    model = replace(chosen.model, boundaries=rule)
    return train(learned, GeoPatch(model=model, train=chosen.train, random_state=job.seed, device=device), job.method)


def compact_stability(rows: Iterable[StabilityRow]) -> list[StabilityRow]:
    """Rows without values that no table or figure needs, without more digits than matter, without counts of nothing."""
    return [
        replace(row, values={name: _short(row.values[name]) for name in KEPT.get(row.topic, row.values)})
        for row in rows
        if row.count or row.topic != "preference"
    ]


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def write_stability(path: Path, rows: Sequence[StabilityRow]) -> None:
    """All rows, whole or not at all: a line for all that share topic and origin, which is said once, and a table."""
    tables: dict[str, dict[str, Any]] = {}
    for row in rows:
        origin = {name: value for name, value in row.as_dict().items() if name not in ("setting", "values", "count")}
        origin |= {"setting": list(row.setting), "values": list(row.values)}
        table = tables.setdefault(json.dumps(origin), {**origin, "rows": []})
        table["rows"].append([*row.setting.values(), *row.values.values(), row.count])
    with atomic_file(path) as partial:
        lines = (json.dumps(table, separators=(",", ":")) + "\n" for table in tables.values())
        partial.write_text("".join(lines), encoding="utf-8")


def read_stability(path: Path) -> list[StabilityRow]:
    """The rows that `write_stability` wrote."""
    try:
        tables = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [row for table in tables for row in _rows(table)]
    except OSError as error:
        raise DataError(f"cannot read rows about theorems from {path}: {error.strerror}; check the path") from error
    except (json.JSONDecodeError, TypeError, KeyError, AttributeError, ValueError) as error:
        raise DataError(f"{path} holds no rows about theorems ({error}); let `reproduce` write it again") from error


def _rows(table: dict[str, Any]) -> Iterator[StabilityRow]:
    setting, values, lines = (table.pop(name) for name in ("setting", "values", "rows"))
    for *cells, count in lines:
        by_name = dict(zip((*setting, *values), cells, strict=True))
        how, what = ({name: by_name[name] for name in names} for names in (setting, values))
        yield StabilityRow(setting=how, values=what, count=count, **table)


def over_seeds(rows: Iterable[StabilityRow]) -> list[StabilityRow]:
    """One row for those that differ by seed alone: the mean of each value, or the largest of those that must be small.

    What a device or a version changes is no setting: rows of several machines are one.
    """
    groups: dict[str, list[StabilityRow]] = {}
    for row in rows:
        groups.setdefault(json.dumps([row.data, row.target, row.topic, row.setting]), []).append(row)
    return [replace(group[0], values=_together(group)) for group in groups.values()]


def _together(group: Sequence[StabilityRow]) -> dict[str, float]:
    names = [name for name in group[0].values if all(name in row.values for row in group)]
    return {name: (max if name in WORST else mean)(row.values[name] for row in group) for name in names}
