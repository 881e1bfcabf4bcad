"""A gallery: the searchable collection of encoded windows, in a folder or on a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from geopatch.data.recording import Recording, WindowConfig, cut_windows
from geopatch.engines.about import About, about_model
from geopatch.engines.contents import Contents
from geopatch.engines.engine import Engine, Info, Shortlist
from geopatch.engines.entry import Entries, Metadata, Value, checked_metadata, entries_from
from geopatch.engines.filters import Where, as_filter
from geopatch.engines.place import Place, create_engine, open_engine
from geopatch.errors import GalleryError, at_least, one_of
from geopatch.gallery.export import export_entries
from geopatch.search.hit import Hit
from geopatch.search.options import SearchOptions
from geopatch.search.query import Query
from geopatch.search.run import search_batch
from geopatch.signal import Signal, as_signals

if TYPE_CHECKING:
    from geopatch.estimator import GeoPatch

BATCH = 256
EXISTING = ("replace", "skip")
G = TypeVar("G", bound="Gallery")
Report = Callable[[int], None]  # entries written so far


class Gallery:
    """Encoded windows under the user's own ids, with metadata to filter by.

    When a call that changes something returns, the change is on disk. One process at a time may write; any number
    may read beside it. With a model, a gallery takes signals; without one, entries that were encoded before.
    """

    def __init__(self, engine: Engine, model: GeoPatch | None = None) -> None:
        self.engine = engine
        self.model = model
        if model is not None:
            self._check_encoder(about_model(model).encoder, "the model")

    @classmethod
    def create(cls: type[G], place: Place, encoder: GeoPatch | About) -> G:
        """A new, empty gallery for the vectors of one encoder."""
        about = encoder if isinstance(encoder, About) else about_model(encoder)
        return cls(create_engine(place, about), None if isinstance(encoder, About) else encoder)

    @classmethod
    def open(cls: type[G], place: Place, *, model: GeoPatch | None = None, read_only: bool = False) -> G:
        """A gallery that `create` made."""
        engine = open_engine(place, read_only=read_only)
        try:
            return cls(engine, model)
        except GalleryError:
            engine.close()
            raise

    @property
    def about(self) -> About:
        return self.engine.about

    def search(
        self,
        query: Query,
        k: int | None = None,
        *,
        options: SearchOptions | None = None,
        model: GeoPatch | None = None,
        **overrides: Any,
    ) -> list[Hit]:
        """Find the k windows nearest to a query.

        Parameters
        ----------
        query : array of shape (T,) or (T, C), Signal, Span or str
            A signal, which the gallery's model encodes, a part of a stored record, or the id of a stored window.
        k : int, optional
            How many hits to return; fewer when filters leave fewer. By default that of `options`, which is 10.
        options : SearchOptions, optional
            How to rank, what to leave out, and what hits carry; the defaults of `SearchOptions` otherwise.
        model : GeoPatch, optional
            The model that the gallery was made with, where it was opened without one.
        **overrides
            Single options by name, such as ``scorer="dtw"`` or ``where="age > 60"``; see `SearchOptions`.

        Returns
        -------
        list of Hit
            Best first.

        Raises
        ------
        ConfigError
            When an option is unknown or outside its range.
        NotFoundError
            When the gallery has no window of that id or span.
        GalleryError
            When a model or the values of windows are needed and not there.
        SignalError
            When the query does not fit the model.

        Examples
        --------
        >>> import numpy as np, tempfile
        >>> from geopatch.engines import About, Entries, Widths
        >>> about = About("digest", Widths(embedding=2, patches=1, token=2), patch_length=8, rate_hz=None, length=8)
        >>> vectors = np.asarray([[1, 0], [0.8, 0.6], [0, 1]], dtype=np.float32)
        >>> place, one = np.arange(3.0), np.ones((3, 1), dtype=bool)
        >>> entries = Entries("digest", ("a", "b", "c"), vectors, vectors[:, None], one,
        ...     np.zeros((3, 1, 2), dtype=np.float32), ("r", "r", "s"), place, place + 1, ({},) * 3, (None,) * 3)
        >>> with tempfile.TemporaryDirectory() as folder, Gallery.create(f"{folder}/gallery", about) as gallery:
        ...     _ = gallery.add(entries)
        ...     gallery.search("a", k=2, scorer="cosine")
        [Hit(1, 'b', cosine 0.8000, 1-2 s), Hit(2, 'c', cosine 0.0000, 2-3 s)]
        """
        return self.search_batch([query], k, options=options, model=model, **overrides)[0]

    def search_batch(
        self,
        queries: Sequence[Query],
        k: int | None = None,
        *,
        options: SearchOptions | None = None,
        model: GeoPatch | None = None,
        **overrides: Any,
    ) -> list[list[Hit]]:
        """Find the k windows nearest to each of several queries, which are encoded and scored together.

        Parameters
        ----------
        queries : sequence of arrays, Signals, Spans or str
            Each as `search` takes it.
        k : int, optional
            How many hits to return for each query; by default that of `options`, which is 10.
        options : SearchOptions, optional
            How to rank, what to leave out, and what hits carry.
        model : GeoPatch, optional
            The model that the gallery was made with, where it was opened without one.
        **overrides
            Single options by name; see `SearchOptions`.

        Returns
        -------
        list of list of Hit
            The hits of each query, best first.

        Raises
        ------
        GeoPatchError
            As `search` raises; one query that cannot be used fails the batch.

        Examples
        --------
        >>> gallery.search_batch(["rec1@0s", "rec1@4s"], k=3)  # doctest: +SKIP
        """
        chosen = {} if k is None else {"k": k}
        return search_batch(self, queries, (options or SearchOptions()).changed(**chosen, **overrides), model=model)

    def add(
        self,
        items: Any,
        *,
        metadata: Iterable[Metadata] | None = None,
        existing: str = "replace",
        keep_windows: bool = True,
        report: Report | None = None,
    ) -> int:
        """Add entries or signals, a batch at a time, and say how many were written.

        `items` are Entries, an iterator of Entries, or signals in any form that `GeoPatch.encode` takes or as an
        iterator; only one batch is in memory. `metadata` has a row for each signal. An entry with an id that is there
        already is replaced, or left as it is with existing="skip", which takes up an interrupted work where it stood.
        """
        one_of("existing", existing, EXISTING)
        written = 0
        for batch in self._batches(items, metadata, existing, keep_windows):
            self._put(batch)
            written += len(batch)
            if report is not None:
                report(written)
        return written

    def add_recording(
        self,
        recording: Recording | Signal,
        window: WindowConfig | None = None,
        *,
        metadata: Metadata | None = None,
        existing: str = "replace",
        keep_windows: bool = True,
        report: Report | None = None,
    ) -> int:
        """Add the windows of a long recording; each keeps its record, start and stop, and what is known of it.

        Without `window`, windows are cut as long and at the rate the model was trained on, half overlapping.
        """
        if isinstance(recording, Signal):
            recording = Recording(recording, recording.id)
        recording = replace(
            recording,
            signal=recording.signal
            if recording.signal.rate_hz
            else replace(recording.signal, rate_hz=self.about.clock_hz),
        )
        found = cut_windows(recording.signal.id, [recording], window or self._window())
        rows = [
            {
                **{target: str(labels[n]) for target, labels in found.targets.items() if labels[n] != "unknown"},
                **(metadata or {}),
            }
            for n in range(len(found))
        ]
        return self.add(found.signals, metadata=rows, existing=existing, keep_windows=keep_windows, report=report)

    def remove(self, ids: str | Sequence[str]) -> int:
        """Take entries out, and say how many were there."""
        return self.engine.remove([ids] if isinstance(ids, str) else list(ids))

    def update(self, id: str, changes: Mapping[str, Value | None]) -> None:
        """Change metadata of an entry: names that are given get the new value, None takes a name away."""
        merged = {**self.get(id).metadata[0], **changes}
        self.engine.update(id, checked_metadata({name: value for name, value in merged.items() if value is not None}))

    def get(self, id: str) -> Entries:
        """One entry."""
        return self.engine.fetch([id])

    def fetch(self, ids: Sequence[str], *, with_windows: bool = True) -> Entries:
        """Entries in the order asked for; quicker where the raw windows are left behind."""
        return self.engine.fetch(ids, with_windows=with_windows)

    def scan(self, batch_size: int = BATCH, where: Where = None) -> Iterator[Entries]:
        """All entries that pass a filter, a batch at a time."""
        at_least("batch_size", batch_size, 1)
        return self.engine.scan(batch_size, as_filter(where))

    def shortlist(self, embedding: npt.NDArray[np.float32], k: int = 50, where: Where = None) -> list[Shortlist]:
        """For each query (Q, D) the k entries of largest cosine among those that pass a filter."""
        at_least("k", k, 1)
        queries = np.ascontiguousarray(embedding, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.about.widths.embedding:
            raise GalleryError(f"expected queries (Q, {self.about.widths.embedding}), got shape {queries.shape}")
        return self.engine.shortlist(queries, k, as_filter(where))

    def count(self, where: Where = None) -> int:
        return self.engine.count(as_filter(where))

    def contents(self) -> Contents:
        """Its records, and the names and values of its metadata with how often each occurs."""
        return self.engine.contents()

    def copy(self, to: Place, *, where: Where = None, report: Report | None = None) -> int:
        """A new gallery with the same entries, also of another engine; says how many."""
        with Gallery.create(to, self.about) as target:
            return target.add(self.scan(where=where), report=report)

    def export(self, path: str | os.PathLike[str], *, where: Where = None) -> int:
        """Write a .parquet or .arrow file of all entries that pass a filter, without raw windows; says how many."""
        return export_entries(self.engine, Path(path), as_filter(where))

    def optimize(self) -> None:
        """Build the index anew and give the space of removed entries back. May take minutes; reads go on."""
        self.engine.optimize()

    def info(self) -> Info:
        return self.engine.info()

    def close(self) -> None:
        self.engine.close()

    def __len__(self) -> int:
        return self.engine.count()

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and bool(self.engine.known([id]))

    def __enter__(self: G) -> G:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _put(self, entries: Entries) -> None:
        self._check_encoder(entries.encoder, "these entries")
        if entries.widths != self.about.widths:
            raise GalleryError(f"expected entries of {self.about.widths}, got {entries.widths}")
        self.engine.put(entries)

    def _check_encoder(self, encoder: str, what: str) -> None:
        if encoder != self.about.encoder:
            raise GalleryError(
                f"this gallery holds vectors of the encoder {self.about.encoder}, {what} came from {encoder}; "
                "use the model it was made with, or create another gallery"
            )

    def _batches(
        self, items: Any, metadata: Iterable[Metadata] | None, existing: str, keep_windows: bool
    ) -> Iterator[Entries]:
        """Entries to write, of at most BATCH rows unless they came in larger ones."""
        if isinstance(items, Entries):
            items = [items]
        elif not isinstance(items, Iterator):
            items = items if isinstance(items, (list, tuple)) and _are(items, Entries) else as_signals(items)
        items = iter(items)
        first = next(items, None)
        if first is None:
            return
        items = chain([first], items)
        if isinstance(first, Entries):
            if metadata is not None:
                raise GalleryError("entries bring their metadata with them; leave `metadata` out")
            yield from (kept for batch in items if len(kept := self._wanted_entries(batch, existing)))
        else:
            yield from self._encoded(items, metadata, existing, keep_windows)

    def _wanted_entries(self, entries: Entries, existing: str) -> Entries:
        known = self.engine.known(entries.ids) if existing == "skip" else set()
        return entries.take([n for n, id in enumerate(entries.ids) if id not in known]) if known else entries

    def _encoded(
        self, signals: Iterator[Signal], metadata: Iterable[Metadata] | None, existing: str, keep_windows: bool
    ) -> Iterator[Entries]:
        if self.model is None:
            raise GalleryError("a gallery needs its model to take signals; open it with model=GeoPatch.load(folder)")
        rows = None if metadata is None else iter(metadata)
        while batch := list(islice(signals, BATCH)):
            told: list[Metadata] = [{} for _ in batch] if rows is None else list(islice(rows, len(batch)))
            if len(told) != len(batch):
                raise GalleryError("expected a row of metadata for each signal, got fewer rows than signals")
            known = self.engine.known([signal.id for signal in batch]) if existing == "skip" else set()
            wanted = [n for n, signal in enumerate(batch) if signal.id not in known]
            if wanted:
                chosen = [batch[n].at_rate(self.about.rate_hz) for n in wanted]
                encoding = self.model.encode(chosen)
                told = [told[n] for n in wanted]
                yield entries_from(encoding, chosen, self.about, metadata=told, keep_windows=keep_windows)

    def _window(self) -> WindowConfig:
        return WindowConfig(rate_hz=self.about.clock_hz, length_s=self.about.length / self.about.clock_hz)


def _are(items: Sequence[object], kind: type) -> bool:
    return bool(items) and all(isinstance(item, kind) for item in items)
