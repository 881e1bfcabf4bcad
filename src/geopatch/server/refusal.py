"""A refusal: what a client did wrong or has to wait for, in one line and with its status."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping

from geopatch.errors import GeoPatchError

RETRY_S = 1


class RefusedError(GeoPatchError):
    """An error with the status of its answer."""

    def __init__(self, status: int, line: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(line)
        self.status = status
        self.headers = dict(headers or {})


def overloaded(line: str = "the server has as much to do as it can take; ask again in a moment") -> RefusedError:
    return RefusedError(503, line, {"Retry-After": str(RETRY_S)})


def as_refusal(error: GeoPatchError, place: str = "") -> RefusedError:
    """What a client is told: the line of the error, without where the gallery lies on this machine."""
    if isinstance(error, RefusedError):
        return error
    line = one_line(str(error).replace(f"gallery {place}", "the gallery").replace(place, "") if place else str(error))
    if is_storage_failure(error):
        return overloaded(line)
    return RefusedError(404 if "has no entry" in line or "has no window of" in line else 422, line)


def is_storage_failure(error: BaseException) -> bool:
    """A disk or a database server that does not work now: no fault of the client."""
    cause = error.__cause__
    return isinstance(cause, sqlite3.Error) or (cause is not None and type(cause).__module__.startswith("psycopg"))


def one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
