"""Engines: what holds encoded windows, and how they are asked for: in a folder, exactly, or on a server."""

from __future__ import annotations

from geopatch.engines.about import About, Widths, about_model
from geopatch.engines.engine import Engine, Info, Shortlist
from geopatch.engines.entry import Entries, Metadata, Value, entries_from
from geopatch.engines.filters import Filter, Where, as_filter, parse_where

__all__ = [
    "About",
    "Engine",
    "Entries",
    "Filter",
    "Info",
    "Metadata",
    "Shortlist",
    "Value",
    "Where",
    "Widths",
    "about_model",
    "as_filter",
    "entries_from",
    "parse_where",
]
