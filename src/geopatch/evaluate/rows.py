"""Results as rows: each says what was measured, how, on what and by which version. Tables are made from rows."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Protocol

from geopatch.errors import DataError, GeoPatchError
from geopatch.version import __version__

CLASS_MEAN = "class_mean_"  # starts the name of a score that is a mean over classes


def versions() -> dict[str, str]:
    """Of everything a score can depend on."""
    import numpy
    import torch

    return {
        "geopatch": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


@dataclass(frozen=True)
class Row:
    """One measurement of one model on one collection."""

    data: str
    data_digest: str
    preset: str
    config_digest: str
    seed: int
    protocol: str
    protocol_digest: str
    scorer: str
    stress: str
    scores: dict[str, float]
    queries: int
    without_positive: int
    fit_s: float
    encode_s: float
    peak_memory_mb: float | None  # of the process; None where the system does not tell
    device: str
    failures: int = 0
    versions: dict[str, str] = field(default_factory=versions)
    per_class: dict[str, dict[str, float]] = field(default_factory=dict)  # label of the query -> recall@1, map, queries
    target: str = "class"  # what makes a candidate right
    stress_digest: str = ""  # of the meaning of the stress; rows from before it was written have none

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


NOT_CONFIG = ("seed", "channels")  # the seed stands in the row itself, channels are filled in from the data


def config_digest(*configs: Any) -> str:
    """One short name for frozen configs: the same on every collection and for every seed."""
    fields = [dataclasses.asdict(config).items() for config in configs]
    parts = [{key: value for key, value in items if key not in NOT_CONFIG} for items in fields]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


class JsonRow(Protocol):
    """Anything that can be written as a line of JSON: rows of retrieval, of stability."""

    def as_dict(self) -> dict[str, Any]: ...


def append_rows(path: str | Path, rows: Iterable[JsonRow]) -> None:
    """Add rows to a JSONL file."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row.as_dict()) + "\n" for row in rows)
    except OSError as error:
        raise GeoPatchError(f"cannot write rows to {path}: {error.strerror}; give another path") from error


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a JSONL file; one whose name ends in .gz is packed."""
    try:
        with gzip.open(path) if Path(path).suffix == ".gz" else Path(path).open("rb") as file:
            lines = file.read().decode("utf-8").split("\n")
    except (gzip.BadGzipFile, EOFError) as error:
        raise DataError(f"cannot read rows from {path}: {error}; fetch or make it again") from error
    except OSError as error:
        raise DataError(f"cannot read rows from {path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no file of result rows: {error}") from error
    return [_row(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def _row(path: str | Path, number: int, line: str) -> Row:
    try:
        return Row(**json.loads(line))
    except (json.JSONDecodeError, TypeError) as error:
        raise DataError(f"{path} line {number} is no result row ({error}); delete or mend that line") from error


@dataclass(frozen=True)
class Summary:
    """Rows that differ only by seed, as one line."""

    data: str
    preset: str
    scorer: str
    stress: str
    seeds: int
    scores: dict[str, float]
    spread: dict[str, float]
    fit_s: float
    protocol: str = "standard"
    per_class: dict[str, dict[str, float]] = field(default_factory=dict)
    target: str = "class"

    @property
    def imbalanced(self) -> bool:
        """Whether the largest class is so large that the mean over queries says little about the others."""
        *others, largest = sorted(values["queries"] for values in self.per_class.values()) or [0.0]
        return bool(others) and largest > IMBALANCED * mean(others)


IMBALANCED = 2.0  # the largest class has more than this many times the queries that the others have on average


def summarise(rows: Sequence[Row]) -> list[Summary]:
    """Mean and spread over seeds, in the order in which the rows first came."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        how = (row.preset, row.scorer, row.stress, row.protocol_digest, row.config_digest)
        key = (row.data, row.data_digest, row.target, *how)
        groups.setdefault(key, []).append(row)
    return [_summary(group) for group in groups.values()]


def _summary(group: Sequence[Row]) -> Summary:
    first = group[0]
    columns = _columns([row.scores for row in group])
    classes = [label for label in first.per_class if all(label in row.per_class for row in group)]
    return Summary(
        first.data,
        first.preset,
        first.scorer,
        first.stress,
        len({row.seed for row in group}),
        {name: mean(values) for name, values in columns.items()},
        {name: stdev(values) if len(values) > 1 else 0.0 for name, values in columns.items()},
        mean(row.fit_s for row in group),
        first.protocol,
        {label: _means([row.per_class[label] for row in group]) for label in classes},
        first.target,
    )


def _columns(rows: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """The values of every name that all have; older rows have fewer names."""
    shared = [name for name in rows[0] if all(name in values for values in rows)]
    return {name: [values[name] for values in rows] for name in shared}


def _means(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: mean(values) for name, values in _columns(rows).items()}
