"""Search a gallery by example: hits that say how near they are, why, and how surely.

The names below are loaded when first used: the flags of the command line are made from `SearchOptions` without numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "Anomaly",
    "Certificate",
    "Explanation",
    "Hit",
    "Hits",
    "Match",
    "Motif",
    "Occurrence",
    "SearchOptions",
    "Span",
]

_HOMES = {
    "Anomaly": "motifs",
    "Certificate": "certificate",
    "Explanation": "explain",
    "Hit": "hit",
    "Hits": "hit",
    "Match": "explain",
    "Motif": "motifs",
    "Occurrence": "motifs",
    "SearchOptions": "options",
    "Span": "query",
}

if TYPE_CHECKING:
    from geopatch.search.certificate import Certificate
    from geopatch.search.explain import Explanation, Match
    from geopatch.search.hit import Hit, Hits
    from geopatch.search.motifs import Anomaly, Motif, Occurrence
    from geopatch.search.options import SearchOptions
    from geopatch.search.query import Span
else:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"geopatch.search.{_HOMES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"import_module"})
