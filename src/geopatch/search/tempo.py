"""A query at other tempos: the same window read faster and slower, for neighbours whose rhythm differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from geopatch.errors import GalleryError
from geopatch.estimator import GeoPatch
from geopatch.search.query import Asked, encode
from geopatch.search.searchable import Searchable
from geopatch.signal import Signal
from geopatch.warp import warped

# Half of the warp that queries are stressed with, to either side, so that what is left of it is no more than what the
# encoder bears well; each further tempo costs an encoding and a scoring. The first wins where two score the same.
TEMPOS = (0.0, -0.05, 0.05)

Variants = tuple[Asked, ...]  # one query, at one tempo or at several


def as_it_is(asked: Sequence[Asked]) -> list[Variants]:
    """Each query at its own tempo only."""
    return [(query,) for query in asked]


def at_tempos(gallery: Searchable, asked: Sequence[Asked], model: GeoPatch | None) -> list[Variants]:
    """Each query as it is and at the other tempos, all encoded together. They share id, record and place."""
    if model is None:
        raise GalleryError("other tempos are encoded by the gallery's model; give model=GeoPatch.load(folder)")
    others = [(n, tempo) for n in range(len(asked)) for tempo in TEMPOS if tempo]
    found = encode(gallery, [warped(_window(asked[n]), tempo) for n, tempo in others], model)
    variants = [[query] for query in asked]
    for (n, tempo), other in zip(others, found, strict=True):
        variants[n].append(replace(other, place=asked[n].place, stored=asked[n].stored, tempo=tempo))
    return [tuple(one) for one in variants]


def _window(query: Asked) -> Signal:
    if query.window is None:
        raise GalleryError(
            f"other tempos need the values of the query, and the gallery keeps none of {query.id!r}; "
            "give a signal, or add windows with keep_windows=True"
        )
    return query.window
