"""Indexing: from files of recordings to a gallery, and again to what is new or changed among them."""

from __future__ import annotations

from geopatch.indexing.folder import index

__all__ = ["index"]
