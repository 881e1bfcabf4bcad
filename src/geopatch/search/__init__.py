"""Search a gallery by example: hits that say how near they are, why, and how surely."""

from geopatch.search.certificate import Certificate
from geopatch.search.explain import Explanation, Match
from geopatch.search.hit import Hit
from geopatch.search.query import Span
from geopatch.search.run import search, search_batch

__all__ = ["Certificate", "Explanation", "Hit", "Match", "Span", "search", "search_batch"]
