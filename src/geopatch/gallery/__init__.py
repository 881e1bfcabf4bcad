"""The gallery: a searchable collection of encoded windows on disk or on a server."""

from __future__ import annotations

from geopatch.gallery.about import About, Widths, about_model
from geopatch.gallery.engine import Engine, Info, Shortlist
from geopatch.gallery.entry import Entries, Metadata, Value, entries_from
from geopatch.gallery.filters import Filter, Where, as_filter, parse_where
from geopatch.gallery.gallery import Gallery

__all__ = [
    "About",
    "Engine",
    "Entries",
    "Filter",
    "Gallery",
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
