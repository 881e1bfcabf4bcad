"""Engines: what keeps encoded windows and finds the nearest of them, in a folder or on a server."""

from __future__ import annotations

from geopatch.engines.about import About, Widths, about_model
from geopatch.engines.engine import Contents, Embeddings, Engine, Info, Record, Shortlist
from geopatch.engines.entry import Entries, Metadata, Value, entries_from
from geopatch.engines.filters import Filter, Where, as_filter

__all__ = [
    "About",
    "Contents",
    "Embeddings",
    "Engine",
    "Entries",
    "Filter",
    "Info",
    "Metadata",
    "Record",
    "Shortlist",
    "Value",
    "Where",
    "Widths",
    "about_model",
    "as_filter",
    "entries_from",
]
