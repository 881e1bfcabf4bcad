"""Data by name: a file, a set of the archive, or a set of the catalog with its windows prepared."""

from __future__ import annotations

from pathlib import Path

from geopatch.data import Collection, load_split, read
from geopatch.data.cache import Cache
from geopatch.data.catalog import CATALOG
from geopatch.data.prepare import prepare
from geopatch.data.read import READERS
from geopatch.errors import ConfigError, one_of
from geopatch.progress import counting_bars

ARCHIVE_TARGET = "class"


def training_data(source: str, root: Path, cache: Path, target: str | None, *, quiet: bool) -> Collection:
    """A file to read, or the train side of a data set."""
    if source in CATALOG:
        wanted, found = catalog_target(source, target), prepared(source, root, cache, quiet=quiet)
        return train_side(found).windows("train").collection(wanted)
    archive_target(target)
    is_file = Path(source).is_file() or Path(source).suffix.lower() in READERS
    return read(source) if is_file else load_split(source, root)[0]


def catalog_target(name: str, target: str | None) -> str:
    """The target that was asked for, or the first that a data set has."""
    known = CATALOG[name].targets
    one_of(f"target of {name}", target or known[0], known)
    return target or known[0]


def archive_target(target: str | None) -> str:
    """Files and the sets of the archive have one label a window."""
    one_of("target", target or ARCHIVE_TARGET, (ARCHIVE_TARGET,))
    return ARCHIVE_TARGET


def train_side(cache: Cache) -> Cache:
    """The same cache, if it has windows to train on."""
    name = cache.header.name
    if "train" not in cache.splits:
        raise ConfigError(
            f"{name} has no train side ({CATALOG[name].split}); train a model on another set and give it as --model"
        )
    return cache


def prepared(name: str, root: Path, cache: Path, *, quiet: bool) -> Cache:
    """The windows of a data set of the catalog; made now where they are not there."""
    with counting_bars(quiet=quiet) as report:
        return prepare(name, root, cache, report=report).cache
