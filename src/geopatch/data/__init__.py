"""Data: collections of signals, and how they are read from files."""

from __future__ import annotations

from geopatch.data.archive import load_split
from geopatch.data.collection import Collection
from geopatch.data.read import read

__all__ = ["Collection", "load_split", "read"]
