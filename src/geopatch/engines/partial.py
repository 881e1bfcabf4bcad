"""Answers from a part of a gallery: allowed within a search, which says what was missing; refused everywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_NOTES: ContextVar[set[str] | None] = ContextVar("notes on what is missing", default=None)


@contextmanager
def partial_answers(*, allowed: bool = True) -> Iterator[set[str]]:
    """Within the block, engines may leave out what they cannot reach; they note each such part in the set."""
    notes = set[str]()
    token = _NOTES.set(notes if allowed else None)
    try:
        yield notes
    finally:
        _NOTES.reset(token)


def notes_on_missing() -> set[str] | None:
    """Where to note what is left out; None where nothing may be."""
    return _NOTES.get()
