"""What a search needs of a gallery."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from geopatch.engines.about import About, about_model
from geopatch.engines.engine import Info, Shortlist
from geopatch.engines.entry import Entries
from geopatch.engines.filters import Where
from geopatch.errors import GalleryError
from geopatch.estimator import GeoPatch
from geopatch.search.late import Floats


class Searchable(Protocol):
    """A gallery, as far as a search is concerned."""

    model: GeoPatch | None

    @property
    def about(self) -> About: ...

    def get(self, id: str) -> Entries: ...

    def fetch(self, ids: Sequence[str], *, with_windows: bool = ...) -> Entries: ...

    def scan(self, batch_size: int = ..., where: Where = ...) -> Iterator[Entries]: ...

    def shortlist(self, embedding: Floats, k: int = ..., where: Where = ...) -> list[Shortlist]: ...

    def info(self) -> Info: ...


def model_of(gallery: Searchable, model: GeoPatch | None) -> GeoPatch | None:
    """The model to search with: the one given, if it is the gallery's, or the one that the gallery was opened with."""
    if model is None or model is gallery.model:
        return gallery.model
    if (came := about_model(model).encoder) != gallery.about.encoder:
        raise GalleryError(
            f"this gallery holds vectors of the encoder {gallery.about.encoder}, the model is {came}; "
            "search with the model it was made with"
        )
    return model
