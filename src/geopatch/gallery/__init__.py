"""The gallery: a searchable collection of encoded windows on disk or on a server."""

from __future__ import annotations

from geopatch.gallery.gallery import Gallery

__all__ = ["Gallery"]
