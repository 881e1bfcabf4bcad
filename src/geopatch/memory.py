"""Memory that is free inside this process goes back to the machine."""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """Give back what long work has used and freed; does nothing where the C library cannot."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
