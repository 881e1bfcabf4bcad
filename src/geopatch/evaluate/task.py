"""A task: windows to train on, windows to search among, and whether target and protocol make sense together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geopatch.data.collection import Collection, WindowSet
from geopatch.errors import ConfigError
from geopatch.protocol import Protocol, places

CHUNK = 512


@dataclass(frozen=True, eq=False)
class Task:
    """What is learned from `train` and measured on `test`, both labelled with one target."""

    train: Collection | None
    test: Collection
    target: str


def task(train: WindowSet | None, test: WindowSet, target: str) -> Task:
    """The task of one target."""
    return Task(None if train is None else train.collection(target), test.collection(target), target)


def check_sense(test: Collection, target: str, protocol: Protocol) -> None:
    """Refuse a target and a protocol under which nothing can be found, or nothing but what standard finds."""
    if protocol.name == "standard":
        return
    where = places(test.signals)
    if len(np.unique(where.records)) == len(where.records):
        raise ConfigError(
            f"{protocol.name} makes no sense on {test.name}: each of its windows is a record of its own, "
            "so the protocol is the same as standard; use standard"
        )
    if not _any_positive(test, protocol):
        raise ConfigError(
            f"target {target!r} under {protocol.name} makes no sense on {test.name}: every right candidate "
            f"{_lost(protocol)}, so no query has a positive; use standard, or another target"
        )


def _lost(protocol: Protocol) -> str:
    near = "is of the query's own record" if protocol.cross_record else "overlaps the query"
    return f"{near} and {'is removed' if protocol.strict else 'counts as wrong'}"


def _any_positive(test: Collection, protocol: Protocol) -> bool:
    assert test.labels is not None
    where = places(test.signals)
    for start in range(0, len(test), CHUNK):
        part = slice(start, start + CHUNK)
        right = protocol.relevant(where[part], where, test.labels[part], test.labels)
        if (right & protocol.candidates(where[part], where)).any():
            return True
    return False


def thinned(windows: WindowSet, per_record: int) -> WindowSet:
    """At most so many windows of each record, evenly spread over it; 0 keeps all."""
    if not per_record:
        return windows
    records = np.asarray([signal.record or signal.id for signal in windows.signals])
    kept = []
    for record in dict.fromkeys(records.tolist()):
        members = np.flatnonzero(records == record)
        count = min(per_record, len(members))
        kept.append(members[np.linspace(0, len(members) - 1, count).round().astype(int)])
    return windows.subset(np.concatenate(kept))
