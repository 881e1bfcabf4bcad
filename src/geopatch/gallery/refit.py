"""A gallery's own windows as a training set, and its entries with the vectors of the model that was fitted on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, overload

import numpy as np

from geopatch.engines.about import About
from geopatch.engines.engine import Engine
from geopatch.engines.entry import Entries, with_vectors
from geopatch.errors import GalleryError
from geopatch.gallery.store import BATCH, Report, shown
from geopatch.signal import LazySignals, Signal

if TYPE_CHECKING:
    from geopatch.estimator import GeoPatch


class StoredWindows(LazySignals):
    """The windows of a gallery in the order in which they were written, at its rate and with its channels.

    Where neighbours are read one after the other, they are read a batch at a time.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._about = engine, engine.refresh()
        self.rate_hz = self._about.rate_hz
        ids, lengths = list[str](), list[int]()
        for entries in engine.scan(BATCH):
            windows = kept_windows(entries)
            ids += entries.ids
            lengths += [window.length for window in windows]
        if not ids:
            raise GalleryError("the gallery has no windows to fit a model on; add some first")
        self._ids, self.lengths = ids, np.asarray(lengths, dtype=np.int64)
        self._first, self._batch, self._next = 0, list[Signal](), 0

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> Signal: ...

    @overload
    def __getitem__(self, index: slice) -> list[Signal]: ...

    def __getitem__(self, index: int | slice) -> Signal | list[Signal]:
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(len(self)))]
        n = range(len(self))[index]
        if not self._first <= n < self._first + len(self._batch):
            self._first, self._batch = n, self._read(n, BATCH if n == self._next else 1)
        self._next = n + 1
        return self._batch[n - self._first]

    def _read(self, first: int, count: int) -> list[Signal]:
        entries = self._engine.fetch(self._ids[first : first + count])
        return [_ready(window, self._about) for window in kept_windows(entries)]


def _ready(window: Signal, about: About) -> Signal:
    """A window as the present model takes it: where a rate or names are not known, those of the model are meant."""
    return replace(window.arranged(about.channels), rate_hz=about.rate_hz, channels=about.channels)


def kept_windows(entries: Entries) -> list[Signal]:
    """The windows of entries under their ids; an error where one was not kept."""
    missing = [id for id, window in zip(entries.ids, entries.windows, strict=True) if window is None]
    if missing:
        raise GalleryError(
            f"a refit needs the values of every window, and the gallery keeps none of {shown(missing)}; "
            "add windows with keep_windows=True, or remove those without"
        )
    return [replace(window, id=id) for id, window in zip(entries.ids, entries.windows, strict=True) if window]


def encoded_anew(engine: Engine, model: GeoPatch, about: About, report: Report | None) -> Iterator[Entries]:
    """All entries with the vectors of another model, a batch at a time."""
    done = 0
    for entries in engine.scan(BATCH):
        windows: Sequence[Signal] = kept_windows(entries)
        yield with_vectors(entries, model.encode(windows), windows, about)
        done += len(entries)
        if report is not None:
            report(done)
