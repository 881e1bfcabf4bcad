"""A gallery: the searchable collection of encoded windows, in a folder or on a server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from zipfile import BadZipFile

from geopatch.data.front_end import CARD_FIELD, FrontEnd
from geopatch.data.recording import Recording, WindowConfig
from geopatch.engines.about import About, about_model, check_encoder
from geopatch.engines.engine import Engine
from geopatch.engines.entry import Metadata
from geopatch.engines.filters import Where, as_filter
from geopatch.engines.place import Place, create_engine, open_engine, upgrade_engine
from geopatch.errors import GalleryError
from geopatch.gallery.adding import cut_recording, write_signals
from geopatch.gallery.refit import StoredWindows, encoded_anew
from geopatch.gallery.store import EntryStore, Report
from geopatch.search.chance import Chances
from geopatch.search.hit import Hits
from geopatch.search.moments import Moment, seconds_between
from geopatch.search.motifs import Anomaly, Motif, find_anomalies, find_motifs
from geopatch.search.options import SearchOptions
from geopatch.search.query import Query, Span, unknown_record
from geopatch.search.run import search_batch
from geopatch.signal import Signal

if TYPE_CHECKING:
    from geopatch.estimator import GeoPatch

LOADS = 3  # a refit beside us may change the encoder between the reading of its description and of its model
G = TypeVar("G", bound="Gallery")


class Gallery(EntryStore):
    """Encoded windows under ids, with metadata to filter by.

    When a call that changes something returns, the change is on disk. One process at a time may write; any number
    may read beside it. A gallery that was made with a model holds it, and takes signals; without one, it takes entries
    that were encoded before.

    Parameters
    ----------
    engine : Engine
        What keeps the entries; `create` and `open` make it.
    model : GeoPatch, optional
        The model whose vectors the gallery holds, where that is loaded already or the gallery does not hold it.
    device : str, default="auto"
        Where the model that the gallery holds encodes: "cpu", "cuda", "cuda:N", or "auto".

    Examples
    --------
    >>> import tempfile
    >>> from geopatch.engines import About, Widths
    >>> about = About("c0ffee", Widths(embedding=8, patches=4, token=8), patch_length=8, rate_hz=None, length=32)
    >>> with tempfile.TemporaryDirectory() as folder, Gallery.create(f"{folder}/gallery", about) as gallery:
    ...     len(gallery)
    0
    """

    def __init__(self, engine: Engine, model: GeoPatch | None = None, *, device: str = "auto") -> None:
        super().__init__(engine)
        self._device = device
        self._model: tuple[str, GeoPatch | None] | None = None  # of which encoder
        self._front: tuple[str, FrontEnd | None] | None = None  # of which encoder
        self.chances = Chances(engine)
        if model is not None:
            check_encoder(self.about, about_model(model).encoder, "the model")
            self._model = (self.about.encoder, model)

    @property
    def model(self) -> GeoPatch | None:
        """The model of its vectors: that it was opened with, or that it holds; None where there is neither.

        The one that it holds is loaded when it is first needed, and again when the gallery was refitted.
        """
        loaded = self._model
        if loaded is None or loaded[0] != self.about.encoder:
            loaded = self._model = self._load()
        return loaded[1]

    @property
    def loaded_model(self) -> GeoPatch | None:
        """The model, where it is in memory already."""
        loaded = self._model
        return loaded[1] if loaded is not None and loaded[0] == self.about.encoder else None

    @property
    def front_end(self) -> FrontEnd | None:
        """How recordings became its windows; None where windows were added as they came."""
        encoder, front = self._front or ("", None)
        if self._front is None or encoder != self.about.encoder:
            try:
                fields = None if self.loaded_model is not None else (self.model_card() or {}).get(CARD_FIELD)
            except (BadZipFile, KeyError, ValueError):  # a damaged model is told of where it is needed
                fields = None
            front = FrontEnd.of(self.loaded_model) if fields is None else FrontEnd.from_dict(fields)
            self._front = self.about.encoder, front
        return front

    @property
    def width(self) -> int:
        """How many channels its model takes, or its windows have; 0 where that is not known."""
        model = self.model
        if model is not None:
            return model.encoder_.config.channels
        first = next(self.engine.scan(1), None)
        return 0 if first is None or first.windows[0] is None else int(first.windows[0].values.shape[1])

    def span(self, record: str, start: Moment, stop: Moment) -> Span:
        """A part of a record, from wall-clock times, date-times or seconds.

        Parameters
        ----------
        record : str
            The record.
        start, stop : float, str, time or datetime
            Seconds from the start of the record; a time of day such as "12:03:10", the first one in the record; or a
            date-time such as "2026-05-01T12:03:10".

        Returns
        -------
        Span
            What `search` takes.

        Raises
        ------
        NotFoundError
            When there is no such record.
        ConfigError
            When a time cannot be read, or the record has no wall-clock time.
        """
        facts = self.record_facts([record]).get(record)
        begin = None if facts is None else facts.start_time
        if begin is None and not self.engine.count(as_filter({"record": record})):
            raise unknown_record(record, [one.name for one in self.records()])
        return Span(record, *seconds_between(start, stop, begin, f"record {record!r}"))

    def _load(self) -> tuple[str, GeoPatch | None]:
        """The model that the gallery holds, and the encoder that the gallery has."""
        for _ in range(LOADS):
            encoder, blob = self.refresh().encoder, self.engine.model()
            if blob is None:
                return encoder, None
            model = self._unpacked(blob)
            own = about_model(model).encoder
            if own == self.refresh().encoder:
                break
        check_encoder(self.about, own, "the model that it holds")
        return own, model

    def _unpacked(self, blob: bytes) -> GeoPatch:
        from geopatch.estimator import GeoPatch
        from geopatch.model.checkpoint import PackedCheckpoint

        packed = PackedCheckpoint(blob, f"the model that the gallery {self.info().place} holds")
        return GeoPatch.load(packed, device=self._device)

    @classmethod
    def create(cls: type[G], place: Place, encoder: GeoPatch | About) -> G:
        """Make a new, empty gallery for the vectors of one encoder, and open it for writing.

        Parameters
        ----------
        place : path or str
            A folder that is not there yet, ``exact:FOLDER``, or ``postgresql://user@host:5432/database/gallery``.
        encoder : GeoPatch or About
            The fitted model, which the gallery keeps; its description is enough where only entries will be added.

        Returns
        -------
        Gallery
            The gallery.

        Raises
        ------
        ExistsError
            When there is something at this place.
        """
        if isinstance(encoder, About):
            return cls(create_engine(place, encoder))
        return cls(create_engine(place, about_model(encoder), _packed(encoder)), encoder)

    @classmethod
    def open(
        cls: type[G],
        place: Place,
        *,
        model: GeoPatch | None = None,
        read_only: bool = False,
        device: str = "auto",
    ) -> G:
        """Open a gallery that `create` made.

        Parameters
        ----------
        place : path or str
            Its folder or address.
        model : GeoPatch, optional
            The model it was made with, to add and to search by signals. Only needed where the gallery does not hold
            it: it was made from an `About`, or by an earlier version.
        read_only : bool, default=False
            Whether to leave writing to others; any number of readers may be open beside one writer.
        device : str, default="auto"
            Where the model that the gallery holds encodes: "cpu", "cuda", "cuda:N", or "auto".

        Returns
        -------
        Gallery
            The gallery.

        Raises
        ------
        NotFoundError
            When there is no gallery at this place.
        LockedError
            When another process is writing.
        GalleryError
            When it holds vectors of another model, or has the format of another version.
        """
        engine = open_engine(place, read_only=read_only)
        try:
            return cls(engine, model, device=device)
        except GalleryError:
            engine.close()
            raise

    @staticmethod
    def upgrade(place: Place) -> bool:
        """Bring a gallery of an earlier version to the present format, in place and whole or not at all.

        Parameters
        ----------
        place : path or str
            Its folder or address.

        Returns
        -------
        bool
            False where it had the present format already.
        """
        return upgrade_engine(place)

    def search(
        self,
        query: Query,
        k: int | None = None,
        *,
        options: SearchOptions | None = None,
        model: GeoPatch | None = None,
        **overrides: Any,
    ) -> Hits:
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
        Hits
            A list of `Hit`, best first; its `notes` say what is doubtful about the query.

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
    ) -> list[Hits]:
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
        list of Hits
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

    def motifs(self, k: int = 5, *, where: Where = None, windows: bool = True) -> list[Motif]:
        """Find what happens most often: the most repeated windows, each with all its likes.

        Together belong windows as near to each other as half of all windows are to their nearest neighbour, and nearer
        than chance explains where the gallery has a model. Windows that overlap in time are never likes. It takes about
        N log N in the number of windows, and their vectors in memory.

        Parameters
        ----------
        k : int, default=5
            How many motifs; fewer where nothing else is repeated.
        where : str, mapping or Filter, optional
            Only windows that pass.
        windows : bool, default=True
            Whether the first members of each bring their values.

        Returns
        -------
        list of Motif
            The most frequent first; no window is in two of them.

        Raises
        ------
        ConfigError
            When `k` is less than 1.
        NotFoundError
            When no entry has a field of the filter.

        Examples
        --------
        >>> [motif.count for motif in gallery.motifs(k=3)]  # doctest: +SKIP
        """
        return find_motifs(self, k, where, windows=windows)

    def anomalies(self, k: int = 10, *, where: Where = None, windows: bool = True) -> list[Anomaly]:
        """Find what happens nowhere else: the windows whose nearest neighbour is farthest.

        Windows that overlap in time are no neighbours. The answer is exact; it takes about N log N in the number of
        windows where most of them have a near neighbour, and their vectors in memory.

        Parameters
        ----------
        k : int, default=10
            How many; fewer in a gallery with fewer windows that do not overlap.
        where : str, mapping or Filter, optional
            Only windows that pass.
        windows : bool, default=True
            Whether they and their nearest neighbours bring their values.

        Returns
        -------
        list of Anomaly
            The loneliest first; no two of them overlap.

        Raises
        ------
        ConfigError
            When `k` is less than 1.
        NotFoundError
            When no entry has a field of the filter.

        Examples
        --------
        >>> [(one.place.record, one.place.start_s, one.distance) for one in gallery.anomalies(k=3)]  # doctest: +SKIP
        """
        return find_anomalies(self, k, where, windows=windows)

    def add(
        self,
        items: Any,
        *,
        metadata: Iterable[Metadata] | None = None,
        existing: str = "error",
        keep_windows: bool = True,
        report: Report | None = None,
    ) -> int:
        """Add signals or entries, a batch at a time.

        Parameters
        ----------
        items : array, list of arrays, frame, signals, Entries, or an iterator of signals or Entries
            What to add; of an iterator only one batch is in memory. Arrays and frames without an `id` column get
            numbers as ids that no other entry has or had. Channels with names are brought into the model's order, or
            into that of stored windows with the same names.
        metadata : iterable of mapping, optional
            A row for each signal. Without, signals that are replaced keep the metadata that they had.
        existing : {"error", "replace", "skip"}, default="error"
            What to do with an id that is there already. "skip" takes up an interrupted call where it stopped.
        keep_windows : bool, default=True
            Whether to keep the raw windows, which drawing, warping and dtw need.
        report : callable, optional
            Called with the number of entries written so far.

        Returns
        -------
        int
            How many entries were written.

        Raises
        ------
        ExistsError
            When an id is there already. Of an iterator, the batches before it were written.
        SignalError
            When a signal does not fit the model.
        """
        settings: dict[str, Any] = {"existing": existing, "keep_windows": keep_windows, "report": report}
        return write_signals(self, items, metadata, keep_metadata=metadata is None, **settings)

    def add_recording(
        self,
        recording: Recording | Signal,
        window: WindowConfig | None = None,
        *,
        metadata: Metadata | None = None,
        existing: str = "error",
        keep_windows: bool = True,
        report: Report | None = None,
    ) -> int:
        """Add the windows of a long recording, each with its record, start and stop, and the labels it has.

        Parameters
        ----------
        recording : Recording or Signal
            The recording; where its rate is not known, it is taken to have the model's.
        window : WindowConfig, optional
            How to cut it; by default as the model's front end says, else into windows as long, in samples, and at the
            rate that the model was trained on, half overlapping.
        metadata : mapping, optional
            Names and values that all windows get. Without, windows that are replaced keep the metadata that they had.
        existing : {"error", "replace", "skip"}, default="error"
            What to do with windows that are there already.
        keep_windows : bool, default=True
            Whether to keep the raw windows.
        report : callable, optional
            Called with the number of windows written so far.

        Returns
        -------
        int
            How many windows were written.
        """
        recording = recording if isinstance(recording, Recording) else Recording(recording, recording.id)
        front, levels_s = FrontEnd.of(self.model), tuple[float, ...]()
        if front is not None:
            recording = front.recording(recording)
            signal = recording.signal.at_rate(self.about.rate_hz)
            levels_s = front.levels_s if window is None else ()
            window = window or front.window(signal.rate_hz, signal.duration_s)
        windows = cut_recording(recording, window, self.about, levels_s)
        rows = [{**labels, **(metadata or {})} for labels in windows.labels]
        settings: dict[str, Any] = {"existing": existing, "keep_windows": keep_windows, "report": report}
        return write_signals(self, windows.signals, rows, keep_metadata=metadata is None, **settings)

    def refit(self, estimator: GeoPatch | None = None, *, report: Report | None = None) -> GeoPatch:
        """Fit a new model on the gallery's own windows, without labels, and encode all entries with it.

        The new model, its description and the new vectors take the place of the old ones in one change, whole or not
        at all. Readers go on with the old ones until then, and with the new ones from then on, without being opened
        again. Ids, places, metadata and windows stay.

        Parameters
        ----------
        estimator : GeoPatch, optional
            Settings of the new model, which need not be fitted; by default those of the present model, and those of
            ``GeoPatch()`` where the gallery has none.
        report : callable, optional
            Called with the number of entries encoded so far.

        Returns
        -------
        GeoPatch
            The new model, which the gallery now holds.

        Raises
        ------
        GalleryError
            When the gallery is empty, or does not keep the values of all its windows.
        SignalError
            When a model cannot be fitted on its windows, as they differ in their number of channels.

        Examples
        --------
        >>> import numpy as np, tempfile
        >>> from geopatch import GeoPatch
        >>> model = GeoPatch(width=16, embedding=8).fit(np.sin(np.arange(640.0)).reshape(10, 64))
        >>> with tempfile.TemporaryDirectory() as folder, Gallery.create(f"{folder}/gallery", model) as gallery:
        ...     _ = gallery.add(np.cos(np.arange(1280.0)).reshape(20, 64))
        ...     refitted = gallery.refit()
        ...     gallery.search("3", k=1)[0].id in gallery, refitted is gallery.model
        (True, True)
        """
        from sklearn.base import clone

        from geopatch.estimator import GeoPatch

        windows = StoredWindows(self.engine)
        settings = estimator if estimator is not None else self.model or GeoPatch(device=self._device)
        model: GeoPatch = clone(settings).fit(windows)
        front = FrontEnd.of(self.model)
        if front is not None:  # its windows were made by it
            model.card_ = replace(model.card_, data={**model.card_.data, CARD_FIELD: front.as_dict()})
        about, indexed = about_model(model), self.info().indexed
        self.engine.rewrite(about, _packed(model), encoded_anew(self.engine, model, about, report))
        self._model = (about.encoder, model)
        if indexed:
            self.optimize()
        return model


def _packed(model: GeoPatch) -> bytes:
    from geopatch.model.checkpoint import pack_checkpoint

    return pack_checkpoint(model.encoder_, model.card_)
