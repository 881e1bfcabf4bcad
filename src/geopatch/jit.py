"""Loops compiled by numba at their first call, and kept on disk where a place can be written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled: one thread, without the interpreter's lock. Needs numba, which is imported here."""
    import numba

    options = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    try:
        compiled: Callable[..., Any] = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba has no place for its cache
        compiled = numba.njit(**options)(function)
    return compiled
