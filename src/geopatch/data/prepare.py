"""The windows of a named data set, made once and kept: a cache that is built anew when its source has changed."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geopatch.data import audio, catalog
from geopatch.data.audio import AudioConfig
from geopatch.data.cache import FORMAT, Cache, window_pairs, write_cache
from geopatch.data.catalog import Config
from geopatch.data.source import Report
from geopatch.errors import DataError, GeoPatchError


@dataclass(frozen=True, eq=False)
class Prepared:
    """A cache, and whether it was made just now."""

    cache: Cache
    built: bool


def prepare(
    name: str, root: str | Path, folder: str | Path, *, config: Config | None = None, report: Report | None = None
) -> Prepared:
    """The cache `folder/name` of a data set under `root`, made anew where its source or the format has changed.

    Without a config, a cache keeps the settings it was made with. Where only the cache is there, it is taken as it is.
    """
    place = Path(folder) / name
    settings = None if config is None else _settings(config)
    if place.is_dir() and not catalog.data_set(name).is_there(Path(root)):
        return Prepared(_same_settings(Cache(place), settings), built=False)
    catalog.locate(name, root)
    source = catalog.source_digest(name, root)
    if _is_current(place, source, settings):
        return Prepared(Cache(place), built=False)
    config = config or _kept_config(place, catalog.data_set(name).config)
    parts = catalog.windows(name, root, config, report=report).parts()
    place.parent.mkdir(parents=True, exist_ok=True)
    cache = write_cache(
        place,
        name,
        {part: window_pairs(windows) for part, windows in parts.items()},
        length=max(signal.length for windows in parts.values() for signal in windows.signals),
        source=source,
        settings=_settings(config),
        overwrite=True,
    )
    return Prepared(cache, built=True)


def _kept_config(place: Path, default: Config | None) -> Config | None:
    """The settings of the cache that is there, or the data set's own."""
    try:
        settings = Cache(place).header.settings
    except GeoPatchError:
        return default
    plain: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
    }
    before = audio.BEFORE if isinstance(default, AudioConfig) else {}
    return None if default is None else type(default)(**{**before, **plain})


def _settings(config: Config | None) -> dict[str, Any]:
    """As JSON gives them back, so that they compare."""
    settings: dict[str, Any] = json.loads(json.dumps({} if config is None else dataclasses.asdict(config)))
    return settings


def _is_current(place: Path, source: str, settings: dict[str, Any] | None) -> bool:
    try:
        header = Cache(place).header
    except GeoPatchError:  # absent or damaged: it is built anew
        return False
    return header.format == FORMAT and header.source == source and settings in (None, header.settings)


def _same_settings(cache: Cache, settings: dict[str, Any] | None) -> Cache:
    if settings not in (None, cache.header.settings):
        raise DataError(
            f"{cache.folder} was made with {cache.header.settings}, not with {settings}; its source is not there "
            "to make it anew: give --data-root or GEOPATCH_DATA the folder that holds it"
        )
    return cache
