"""Data by name: a file, a set of the archive, or a set of the catalog with its windows prepared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from geopatch.errors import ConfigError, one_of

if TYPE_CHECKING:
    from geopatch.data import Collection
    from geopatch.data.cache import Cache

ARCHIVE_TARGET = "class"


def training_data(source: str, root: Path, cache: Path, target: str | None, *, quiet: bool) -> Collection:
    """A file to read, or the train side of a data set."""
    from geopatch.data import load_split, read
    from geopatch.data.catalog import CATALOG
    from geopatch.data.formats import FORMATS

    if source in CATALOG:
        label = catalog_target(source, target)
        return train_side(prepared(source, root, cache, quiet=quiet)).windows("train").collection(label)
    archive_target(target)
    is_file = Path(source).is_file() or Path(source).suffix.lower() in FORMATS
    return read(source) if is_file else load_split(source, root)[0]


def training_groups(source: str, cache: Path, target: str | None, collection: Collection, name: str) -> list[str]:
    """The speaker, patient or device of each training window: a target of a data set, or a field of the metadata."""
    from geopatch.data.cache import Cache
    from geopatch.data.catalog import CATALOG
    from geopatch.data.collection import UNKNOWN

    if source in CATALOG:
        one_of(f"groups of {source}", name, CATALOG[source].targets)
        windows = Cache(cache / source).windows("train")
        known = windows.targets[catalog_target(source, target)] != UNKNOWN
        return [str(group) for group in windows.targets[name][known]]
    fields = sorted({field for one in collection.metadata for field in one})
    one_of(f"groups of {source}", name, tuple(fields))
    missing = [number for number, one in enumerate(collection.metadata) if name not in one]
    if missing:
        first = collection.signals[missing[0]].id
        raise ConfigError(f"{source}: {len(missing)} signals have no {name!r}, {first!r} first; give every one a group")
    return [str(one[name]) for one in collection.metadata]


def catalog_target(name: str, target: str | None) -> str:
    """The target by its name; None: the first that a data set has."""
    from geopatch.data.catalog import CATALOG

    known = CATALOG[name].targets
    one_of(f"target of {name}", target or known[0], known)
    return target or known[0]


def archive_target(target: str | None) -> str:
    """Files and the sets of the archive have one label a window."""
    one_of("target", target or ARCHIVE_TARGET, (ARCHIVE_TARGET,))
    return ARCHIVE_TARGET


def train_side(cache: Cache) -> Cache:
    """The same cache, if it has windows to train on."""
    from geopatch.data.catalog import CATALOG

    name = cache.header.name
    if "train" not in cache.splits:
        raise ConfigError(
            f"{name} has no train side ({CATALOG[name].split}); train a model on another set and give it as --model"
        )
    return cache


def prepared(name: str, root: Path, cache: Path, *, quiet: bool) -> Cache:
    """The windows of a data set of the catalog; made now where they are not there."""
    from geopatch.data.prepare import prepare
    from geopatch.progress import counting_bars

    with counting_bars(quiet=quiet) as report:
        return prepare(name, root, cache, report=report).cache
