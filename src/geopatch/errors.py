"""What can go wrong for a user, each as one line that says what was expected, what came and what to do.

GeoPatchError (a ValueError)
├── SignalError        a signal, label or batch that cannot be used
├── ConfigError        a setting outside its range, or two settings that contradict each other
├── DataError          a file or folder of data that cannot be read
├── CheckpointError    a model folder that is wrong, truncated or newer than this version
├── GalleryError       a gallery, an entry or a filter that cannot be used
│   ├── NotFoundError  there is no such gallery, entry, record or field
│   ├── ExistsError    an id or a gallery that is there already
│   ├── LockedError    another process is writing
│   └── StorageError   the disk or the server failed, is full, or cannot be reached
└── MissingExtraError  an optional library is not installed
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class GeoPatchError(ValueError):
    """Every error a user can cause or cure.

    Examples
    --------
    >>> from geopatch import GeoPatchError, Signal
    >>> try:
    ...     Signal.from_array([1.0, float("inf")], id="s")
    ... except GeoPatchError as error:
    ...     print(type(error).__name__)
    SignalError
    """


class SignalError(GeoPatchError):
    """A signal, label or batch that cannot be used."""


class ConfigError(GeoPatchError):
    """A setting outside its range, or two settings that contradict each other."""


class DataError(GeoPatchError):
    """A file or folder of data that cannot be read."""


class CheckpointError(GeoPatchError):
    """A model folder that is wrong, truncated or newer than this version."""


class GalleryError(GeoPatchError):
    """A gallery, an entry or a filter that cannot be used."""


class NotFoundError(GalleryError):
    """There is no such gallery, entry, record or field."""


class ExistsError(GalleryError):
    """An id or a gallery that is there already."""


class LockedError(GalleryError):
    """Another process is writing."""


class StorageError(GalleryError):
    """The disk or the server failed, is full, or cannot be reached."""


class MissingExtraError(GeoPatchError):
    """An optional library is not installed."""

    def __init__(self, library: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {library}, which is not installed; pip install 'geopatch-ts[{extra}]'")


@contextmanager
def one_line_errors() -> Iterator[None]:
    """For programs beside the command line: what a user can cure is one line on stderr and exit code 2, as there."""
    try:
        yield
    except GeoPatchError as error:
        print(f"geopatch: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


def at_least(name: str, value: float, low: float) -> None:
    if not value >= low:
        raise ConfigError(f"{name} must be at least {low}, got {value}")


def one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
