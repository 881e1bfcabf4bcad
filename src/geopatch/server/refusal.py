"""Refusals: an error as the status, the one line and the headers of its answer."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from geopatch.errors import (
    ExistsError,
    GeoPatchError,
    LockedError,
    MissingExtraError,
    NotFoundError,
    StorageError,
)

RETRY_S = 1
FAILED = "the server failed; its log says why"
STORAGE_FAILED = "the disk or the database of the gallery does not work now; the log of the server says why"
# The first that fits decides; every other error of ours is a request that cannot be used.
STATUSES: tuple[tuple[type[GeoPatchError], int], ...] = (
    (NotFoundError, 404),
    (ExistsError, 409),
    (LockedError, 503),
    (StorageError, 503),
    (MissingExtraError, 501),
    (GeoPatchError, 422),
)

log = logging.getLogger(__name__)


class RefusedError(GeoPatchError):
    """An error that brings the status and the headers of its answer."""

    def __init__(self, status: int, line: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(line)
        self.status = status
        self.headers = dict(headers or {})


def overloaded(line: str = "the server has as much to do as it can take; try again in a moment") -> RefusedError:
    """503 with Retry-After."""
    return RefusedError(503, line, {"Retry-After": str(RETRY_S)})


def as_refusal(error: GeoPatchError, place: str = "") -> RefusedError:
    """The status by the class of the error; its line without where the gallery lies on this machine.

    What the storage said goes to the log only.
    """
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, StorageError):
        log.error("the storage of the gallery failed", exc_info=error)
        return overloaded(STORAGE_FAILED)
    status = next(status for kind, status in STATUSES if isinstance(error, kind))
    line = str(error).replace(f"gallery {place}", "the gallery").replace(place, "") if place else str(error)
    return overloaded(one_line(line)) if status == 503 else RefusedError(status, one_line(line))


def one_line(text: str) -> str:
    """The text with every run of white space as one blank."""
    return re.sub(r"\s+", " ", text).strip()
