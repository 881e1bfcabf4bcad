"""Data: collections of signals, and how they are read from files."""

from __future__ import annotations

from geopatch.data.collection import Collection
from geopatch.data.read import load_split, read

__all__ = ["Collection", "load_split", "read"]
