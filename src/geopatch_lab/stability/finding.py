"""What was measured of a theorem, as rows: what was set, what came out, of how many, by which model and version."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.data.collection import Collection
from geopatch.errors import DataError, one_of
from geopatch.evaluate.retrieval import Trained
from geopatch.evaluate.rows import append_rows, versions

FAILED = "failed"  # in the place of findings that a failure kept from being made
TOPICS = ("drift", "affine", "constants", "bound", "margin", "preference", "dominance", "protocol", FAILED)

Setting = dict[str, str | float]
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Finding:
    """One measurement of a topic: how it was set, the values, and how many windows, patches or queries they are of."""

    topic: str
    setting: Setting
    values: dict[str, float]
    count: int

    def __post_init__(self) -> None:
        one_of("topic", self.topic, TOPICS)


@dataclass(frozen=True)
class StabilityRow(Finding):
    """A finding with where it comes from."""

    data: str = ""
    data_digest: str = ""
    preset: str = ""
    config_digest: str = ""
    seed: int = 0
    device: str = "cpu"
    versions: dict[str, str] = field(default_factory=versions)
    target: str = ""  # what makes a candidate right, where it was told

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def stability_rows(findings: Iterable[Finding], trained: Trained, test: Collection) -> list[StabilityRow]:
    """Findings of one model on one collection, with where they come from."""
    origin: dict[str, Any] = {key: value for key, value in trained.as_row().items() if key != "fit_s"}
    origin |= {"data": test.name, "data_digest": test.digest()[:12]}
    return [StabilityRow(one.topic, one.setting, one.values, one.count, **origin) for one in findings]


def append_stability(path: str | Path, rows: Iterable[StabilityRow]) -> None:
    """Add rows to a JSONL file."""
    append_rows(path, rows)


def read_stability(path: str | Path) -> list[StabilityRow]:
    """The rows of a JSONL file that `append_stability` wrote."""
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read stability rows from {path}: {error}; check the path") from error
    return [_row(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def _row(path: str | Path, number: int, line: str) -> StabilityRow:
    try:
        return StabilityRow(**json.loads(line))
    except (json.JSONDecodeError, TypeError) as error:
        raise DataError(f"{path} line {number} is no stability row ({error}); delete or mend that line") from error


def of_topic(rows: Sequence[StabilityRow], topic: str, **setting: str | float) -> list[StabilityRow]:
    """The rows of a topic that are set so; none is an error, for a figure of nothing would be drawn."""
    one_of("topic", topic, TOPICS)
    matching = [
        row
        for row in rows
        if row.topic == topic and all(row.setting.get(name) == value for name, value in setting.items())
    ]
    if not matching:
        wanted = ", ".join([topic, *(f"{name} {value}" for name, value in setting.items())])
        raise DataError(f"expected rows of {wanted}, got none; `geopatch stability` writes them")
    return matching


def spread_of(values: Numbers, prefix: str = "") -> dict[str, float]:
    """Median, mean and 90th percentile; NaN where there is nothing to take them of."""
    if not len(values):
        return {f"{prefix}{name}": float("nan") for name in ("median", "mean", "p90")}
    return {
        f"{prefix}median": float(np.median(values)),
        f"{prefix}mean": float(np.mean(values)),
        f"{prefix}p90": float(np.quantile(values, 0.9)),
    }
