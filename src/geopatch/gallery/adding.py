"""What is added to a gallery, as batches of entries: ids are given or checked, channels arranged, signals encoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

from geopatch.data.collection import UNKNOWN
from geopatch.data.front_end import FrontEnd
from geopatch.data.recording import Recording, WindowConfig, cut_windows
from geopatch.engines.about import About, check_encoder
from geopatch.engines.engine import Engine
from geopatch.engines.entry import Channels, Entries, Metadata, entries_from, fitting_layout
from geopatch.errors import ExistsError, GalleryError, one_of
from geopatch.gallery.facts import RECORD, RecordFacts
from geopatch.gallery.store import BATCH, Report, shown
from geopatch.inputs import as_signals, has_ids
from geopatch.signal import LazySignals, Signal

if TYPE_CHECKING:
    from geopatch.estimator import GeoPatch

EXISTING = ("error", "replace", "skip")
ENCODING = 2  # batches that are encoded at a time: what one thread leaves of the cores, the other takes


@dataclass
class Batches:
    """Entries to write, of at most `BATCH` rows unless they came in larger ones."""

    engine: Engine
    load_model: Callable[[], GeoPatch | None]  # called where signals are to be encoded
    existing: str  # what happens to an id that is there already: error | replace | skip
    keep_windows: bool
    keep_metadata: bool  # of entries that are replaced
    layouts: list[Channels] = field(default_factory=list)
    new_facts: dict[str, str | None] = field(default_factory=dict)  # of records, not yet written
    _seen: set[str] = field(default_factory=set)

    def of(self, items: Any, metadata: Iterable[Metadata] | None) -> Iterator[Entries]:
        """Batches of entries or signals, which may be an iterator of either."""
        if isinstance(items, Entries):
            items = [items]
        elif not isinstance(items, Iterator):
            items = items if _are_entries(items) else self._signals(items, metadata)
        items = iter(items)
        first = next(items, None)
        if first is None:
            return
        items = chain([first], items)
        if not isinstance(first, Entries):
            yield from self._encoded(items, metadata)
        elif metadata is not None:
            raise GalleryError("entries bring their metadata with them; leave `metadata` out")
        else:
            wanted = ((self._checked(batch), self._wanted(batch.ids)) for batch in items)
            yield from (batch if len(rows) == len(batch) else batch.take(rows) for batch, rows in wanted if rows)

    def _checked(self, entries: Entries) -> Entries:
        check_encoder(self.engine.about, entries.encoder, "these entries")
        if entries.widths != self.engine.about.widths:
            raise GalleryError(f"expected entries of {self.engine.about.widths}, got {entries.widths}")
        return entries

    def _signals(self, items: Any, metadata: Iterable[Metadata] | None) -> Sequence[Signal]:
        """Signals under ids of their own, or under new ones; what can be refused at once is, before any work."""
        signals = self._numbered(items)
        if isinstance(metadata, Sized) and len(metadata) != len(signals):
            raise GalleryError(f"expected a row of metadata for each of {len(signals)} signals, got {len(metadata)}")
        if self.existing == "error" and not isinstance(signals, LazySignals):
            self._wanted([signal.id for signal in signals])
        return signals

    def _numbered(self, items: Any) -> Sequence[Signal]:
        """Signals; those that came without an id are numbered on from the last entry that was ever written."""
        if isinstance(items, (Signal, LazySignals)) or has_ids(items):
            return as_signals(items)
        if isinstance(items, Iterable) and not hasattr(items, "__array__") and not isinstance(items, (str, bytes)):
            items = list(items)
        own = [isinstance(item, Signal) for item in items] if isinstance(items, list) else []
        signals = as_signals(items)
        if own and all(own):
            return signals
        ids = self._new_ids(len(signals))
        return [
            signal if own and own[n] else replace(signal, id=id)
            for n, (signal, id) in enumerate(zip(signals, ids, strict=True))
        ]

    def _new_ids(self, count: int) -> list[str]:
        first = self.engine.next_number()
        while taken := self.engine.known(ids := [str(first + n) for n in range(count)]):
            first = 1 + max(map(int, taken))
        return ids

    def _wanted(self, ids: Sequence[str]) -> list[int]:
        """Positions of the ids to write."""
        known = set() if self.existing == "replace" else self.engine.known(ids)
        if known and self.existing == "error":
            raise ExistsError(
                f"the gallery has {shown([id for id in ids if id in known])} already; give other ids, or "
                "existing='replace' to write them anew, existing='skip' to leave them (--existing on the command line)"
            )
        return [n for n, id in enumerate(ids) if id not in known]

    def _encoded(self, signals: Iterator[Signal], metadata: Iterable[Metadata] | None) -> Iterator[Entries]:
        model = self.load_model()
        if model is None:
            raise GalleryError(
                "a gallery needs its model to take signals; open it with model=GeoPatch.load(folder), or --model"
            )
        about = self.engine.about

        def encoded(chosen: Sequence[Signal], rows: Sequence[Metadata]) -> Entries:
            return entries_from(model.encode(chosen), chosen, about, metadata=rows, keep_windows=self.keep_windows)

        with ThreadPoolExecutor(ENCODING, "geopatch-encoding") as threads:
            ahead = deque[Future[Entries]]()
            for chosen, rows in self._chosen(signals, metadata, model):
                ahead.append(threads.submit(encoded, chosen, rows))
                if len(ahead) > ENCODING:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()

    def _chosen(
        self, signals: Iterator[Signal], metadata: Iterable[Metadata] | None, model: GeoPatch
    ) -> Iterator[tuple[list[Signal], list[Metadata]]]:
        """Batches of signals to encode, as the model takes them, with their metadata."""
        order, front = tuple(getattr(model, "channels_", None) or ()), FrontEnd.of(model) or FrontEnd()
        self.layouts = list(self.engine.layouts())
        rate_hz, rows = self.engine.about.rate_hz, None if metadata is None else iter(metadata)
        while batch := list(islice(signals, BATCH)):
            texts: list[Metadata] = [{} for _ in batch] if rows is None else list(islice(rows, len(batch)))
            if len(texts) != len(batch):
                raise GalleryError("expected a row of metadata for each signal, got fewer rows than signals")
            wanted = self._wanted([signal.id for signal in batch])
            if wanted:
                chosen = [self._arranged(front.framed(batch[n]).at_rate(rate_hz), order) for n in wanted]
                self._note_records(chosen)
                yield chosen, self._with_old([batch[n].id for n in wanted], [texts[n] for n in wanted])
        if rows is not None and next(rows, None) is not None:
            raise GalleryError("expected a row of metadata for each signal, got more rows than signals")

    def _note_records(self, signals: Sequence[Signal]) -> None:
        """When each record began, and its units, where a window of it says so."""
        for signal in signals:
            name = signal.record or signal.id
            if name not in self._seen and (signal.start_time is not None or signal.units is not None):
                start = signal.start_time and signal.start_time - timedelta(seconds=signal.start_s)
                self.new_facts[name] = RecordFacts(start, signal.units or ()).as_text()
            self._seen.add(name)

    def _with_old(self, ids: Sequence[str], rows: list[Metadata]) -> list[Metadata]:
        """Metadata of entries that are replaced stays where none was given for them."""
        known = self.engine.known(ids) if self.keep_metadata and self.existing == "replace" else ()
        there = [id for id in ids if id in known]
        if not there:
            return rows
        old = dict(zip(there, self.engine.fetch(there, with_windows=False).metadata, strict=True))
        return [{**old.get(id, {}), **row} for id, row in zip(ids, rows, strict=True)]

    def _arranged(self, signal: Signal, order: Channels) -> Signal:
        """Channels in the order of the model's, or of windows with the same names that are there already."""
        channels = self.engine.about.channels or order
        if channels or not signal.channels:
            return signal.arranged(channels)
        layout = fitting_layout(signal.channels, self.layouts)
        if layout is None:
            self.layouts.append(signal.channels)
            return signal
        return signal.arranged(layout)


class Target(Protocol):
    """A gallery, as far as writing to it is concerned."""

    engine: Engine

    @property
    def model(self) -> GeoPatch | None: ...


def write_signals(
    gallery: Target,
    items: Any,
    metadata: Iterable[Metadata] | None,
    *,
    existing: str = "error",
    keep_windows: bool = True,
    keep_metadata: bool = False,
    report: Report | None = None,
) -> int:
    """Encode signals and write them, or entries, a batch at a time; `Gallery.add` says more.

    With `keep_metadata`, what is replaced keeps the metadata that it had where the new one says nothing.
    """
    one_of("existing", existing, EXISTING)
    batches = Batches(gallery.engine, lambda: gallery.model, existing, keep_windows, keep_metadata)
    written = 0
    for size in _written(gallery.engine, batches, items, metadata):
        written += size
        if report is not None:
            report(written)
    return written


def _written(engine: Engine, batches: Batches, items: Any, metadata: Iterable[Metadata] | None) -> Iterator[int]:
    """The size of each batch when it is on disk; the next one is encoded while it is written."""

    def write(batch: Entries, facts: dict[str, str | None]) -> int:
        if facts:
            engine.write_documents(RECORD, facts)
        engine.put(batch)
        return len(batch)

    with ThreadPoolExecutor(1, "geopatch-adding") as thread:
        pending: Future[int] | None = None
        for batch in batches.of(items, metadata):
            facts, batches.new_facts = batches.new_facts, {}
            if pending is not None:
                yield pending.result()
            pending = thread.submit(write, batch, facts)
        if pending is not None:
            yield pending.result()


@dataclass(frozen=True)
class RecordingWindows:
    """Windows of a recording, and what is known of each by name."""

    signals: Sequence[Signal]
    labels: Sequence[dict[str, str]]


def cut_recording(
    recording: Recording | Signal, window: WindowConfig | None, about: About, levels_s: Sequence[float] = ()
) -> RecordingWindows:
    """Windows as `window` says, or as long in samples and at the rate of the training windows, half overlapping.

    With `levels_s` they have each of these lengths.
    """
    if isinstance(recording, Signal):
        recording = Recording(recording, recording.id)
    signal, rate_hz = recording.signal, about.rate_hz or recording.signal.rate_hz
    config = window or WindowConfig(rate_hz=rate_hz or 1.0, length_s=about.length / (rate_hz or 1.0))
    timed = signal if signal.rate_hz else replace(signal, rate_hz=rate_hz or config.rate_hz)
    cut = cut_windows(signal.id, [replace(recording, signal=timed)], config, levels_s)
    untimed = rate_hz is None and config.rate_hz == 1  # nobody knows the rate: a sample counted as a second
    signals = [replace(part, rate_hz=None) for part in cut.signals] if untimed else cut.signals
    columns = [(name, column.tolist()) for name, column in cut.targets.items()]
    labels = [{name: values[n] for name, values in columns if values[n] != UNKNOWN} for n in range(len(cut))]
    return RecordingWindows(signals, labels)


def _are_entries(items: Any) -> bool:
    return isinstance(items, (list, tuple)) and bool(items) and all(isinstance(item, Entries) for item in items)
