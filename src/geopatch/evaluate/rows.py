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
    """One measurement of one model on one collection.

    Parameters
    ----------
    data : str
        Name of the collection.
    data_digest : str
        Digest of its signals and labels.
    preset : str
        Preset or folder of the model.
    config_digest : str
        Digest of its settings.
    seed : int
        Seed of the training.
    protocol : str
        Name of the protocol.
    protocol_digest : str
        Digest of its meaning.
    scorer : str
        What ranked the candidates.
    stress : str
        What queries and gallery were put under.
    scores : dict of str to float
        The metrics by name.
    queries : int
        How many queries count.
    without_positive : int
        How many have no right candidate.
    fit_s : float
        Seconds of the training.
    encode_s : float
        Seconds of the encoding.
    peak_memory_mb : float or None
        Of the process; None where the system does not say.
    device : str
        Where it was computed.
    failures : int, default=0
        How many queries failed.
    versions : dict, optional
        Of everything a score can depend on.
    per_class : dict, optional
        Label of the query to its recall@1, map and number of queries.
    target : str, default="class"
        What makes a candidate right.
    stress_digest : str, default=""
        Digest of the meaning of the stress; older rows have none.
    """

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
        """The row as JSON holds it.

        Returns
        -------
        dict
            A value for each field.
        """
        return dataclasses.asdict(self)


NOT_CONFIG = (
    "seed",
    "channels",
    "length",
    "patch_count",
)  # the seed stands in the row itself, the others come from the data
BEFORE = {  # what was done before there was such a setting, so that digests stay
    "halves": ("learned",),
    "robust_to": (),
    "patch_budget": 64,
    "bands": False,
    "clock_share": None,
    "rhythm": (),
    "surroundings": 8,
}


def config_digest(*configs: Any) -> str:
    """One short name for frozen configs: the same on every collection and for every seed."""
    parts = [_telling(dataclasses.asdict(config)) for config in configs]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def _telling(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that make a difference; of a half that is not there, none does."""
    left_out = {*NOT_CONFIG, *(key for key, value in BEFORE.items() if settings.get(key) == value)}
    halves = settings.get("halves", ())
    if len(halves) == 1:
        left_out.add("kernel_share")
    if "kernels" not in halves:
        left_out.add("prior_windows")
    return {key: value for key, value in settings.items() if key not in left_out}


class JsonRow(Protocol):
    """Anything that can be written as a line of JSON: rows of retrieval, of stability."""

    def as_dict(self) -> dict[str, Any]: ...


def append_rows(path: str | Path, rows: Iterable[JsonRow]) -> None:
    """Add rows to a JSONL file.

    Parameters
    ----------
    path : path
        The file; folders that lack are made.
    rows : iterable of rows
        Anything with an `as_dict`.

    Raises
    ------
    GeoPatchError
        When the file cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row.as_dict()) + "\n" for row in rows)
    except OSError as error:
        raise GeoPatchError(f"cannot write rows to {path}: {error.strerror}; give another path") from error


def read_rows(path: str | Path) -> list[Row]:
    """Read the rows of a JSONL file.

    Parameters
    ----------
    path : path
        The file; one whose name ends in .gz is packed.

    Returns
    -------
    list of Row
        In the order of the file.

    Raises
    ------
    DataError
        When it cannot be read, or a line is no row.
    """
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
    """Rows that differ only by seed, as one line.

    Parameters
    ----------
    data, preset, scorer, stress : str
        What the rows share.
    seeds : int
        How many seeds there are.
    scores : dict of str to float
        Means over seeds.
    spread : dict of str to float
        Standard deviations over seeds.
    fit_s : float
        Mean seconds of a training.
    protocol : str, default="standard"
        Name of the protocol.
    per_class : dict, optional
        Means over seeds by the label of the query.
    target : str, default="class"
        What makes a candidate right.
    """

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
    """Mean and spread over seeds.

    Parameters
    ----------
    rows : sequence of Row
        Rows of any models and collections.

    Returns
    -------
    list of Summary
        One for rows that differ only by seed, in the order in which they first came.
    """
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
