"""What a worker of a Dask cluster does: read a file, cut it, encode a part of its windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from distributed import WorkerPlugin, get_worker

from geopatch.data.front_end import FrontEnd
from geopatch.data.reading import InputFile
from geopatch.data.recording import Recording
from geopatch.engines.about import About
from geopatch.engines.engine import Engine
from geopatch.engines.entry import Channels, Entries
from geopatch.errors import DataError, GeoPatchError
from geopatch.gallery.adding import Batches, RecordingWindows
from geopatch.gallery.store import BATCH
from geopatch.indexing.held import HeldFile
from geopatch.indexing.settings import IndexSettings
from geopatch.indexing.survey import Reader, labelled_rows
from geopatch.indexing.taking import RecordingSummary, windows_of
from geopatch.version import __version__

if TYPE_CHECKING:
    from geopatch.estimator import GeoPatch

PART = 32  # batches of windows in one task: what the driver holds at a time


@dataclass(frozen=True, eq=False)
class EncodedRecording:
    """A recording, what its file says of it, and its windows without their vectors; or why it has none."""

    id: str
    row: dict[str, Any]
    ids: Sequence[str] = ()
    labels: Sequence[dict[str, str]] = ()
    summary: RecordingSummary | None = None
    error: str = ""


@dataclass(eq=False)
class EncodedPart:
    """Some batches of a file's windows, by the place of their recording in it."""

    recordings: list[EncodedRecording] = field(default_factory=list)
    parts: int = 1
    batches: dict[int, list[Entries]] = field(default_factory=dict)
    facts: dict[int, dict[str, str | None]] = field(default_factory=dict)  # of records that begin in this part
    errors: dict[int, str] = field(default_factory=dict)  # what was wrong with the next batch of a recording
    error: str = ""  # what is wrong with the whole file

    @property
    def layouts(self) -> set[Channels]:
        """The orders that channels have in it."""
        return {channels for some in self.batches.values() for batch in some for channels in batch.channels}


@dataclass
class LayoutEngine:
    """As much of a gallery's engine as encoding needs: which encoder, and the orders of channels so far."""

    about: About
    orders: list[Channels]

    def layouts(self) -> list[Channels]:
        return self.orders


class FileEncoder(WorkerPlugin):
    """What every worker is sent once: the model, and how files become windows."""

    def __init__(self, model: bytes, about: About, width: int, front: FrontEnd, settings: IndexSettings) -> None:
        self.blob, self.about, self.width = model, about, width
        self.front, self.settings = front, settings

    @cached_property
    def model(self) -> GeoPatch:
        """Where this worker encodes: on its GPU if it has one."""
        from geopatch.estimator import GeoPatch
        from geopatch.model.checkpoint import PackedCheckpoint

        return GeoPatch.load(PackedCheckpoint(self.blob, "the model of the gallery"), device=self.settings.device)

    def encode(self, file: InputFile, part: int, layouts: Sequence[Channels]) -> EncodedPart:
        """A part of a file; the first one says what all of them are."""
        if not isinstance(file, HeldFile) and not file.path.exists():
            line = f"{file.path} is not there on a worker; workers read files where the driver does"
            return EncodedPart(error=line)
        try:
            reading = Reader(self.settings, self.front.audio).take(file)
        except GeoPatchError as error:
            return EncodedPart(error=str(error))
        encoded, engine = EncodedPart(), LayoutEngine(self.about, list(layouts))
        first, last, seen = part * PART, (part + 1) * PART, 0
        for n, (recording, row) in enumerate(zip(reading.recordings, labelled_rows(reading), strict=True)):
            described, cut = self._cut(recording, row)
            encoded.recordings.append(described)
            if cut is None:
                continue
            count = -(-len(cut.signals) // BATCH)
            low, high = max(first - seen, 0), min(last - seen, count)
            if low < high:
                self._encode(encoded, n, cut, slice(low * BATCH, high * BATCH), engine)
            seen += count
        encoded.parts = max(-(-seen // PART), 1)
        return encoded

    def _cut(self, recording: Recording, row: dict[str, Any]) -> tuple[EncodedRecording, RecordingWindows | None]:
        signal = recording.signal
        try:
            cut = windows_of(recording, self.about, self.width, self.front)
            summary = RecordingSummary.of(signal, self.about.rate_hz)
        except GeoPatchError as error:
            return EncodedRecording(signal.id, row, error=str(error)), None
        return EncodedRecording(signal.id, row, [window.id for window in cut.signals], cut.labels, summary), cut

    def _encode(self, encoded: EncodedPart, n: int, cut: RecordingWindows, rows: slice, engine: LayoutEngine) -> None:
        """Batches as one process makes them, so that sums have the same order."""
        batches = Batches(cast("Engine", engine), lambda: self.model, "replace", True, False)
        encoded.batches[n] = []
        try:
            for batch in batches.of(islice(cut.signals, rows.start, rows.stop), None):
                encoded.batches[n].append(batch)
                engine.orders += [channels for channels in dict.fromkeys(batch.channels) if channels]
        except GeoPatchError as error:
            encoded.errors[n] = str(error)
        if rows.start == 0:
            encoded.facts[n] = batches.new_facts


def encode_part(encoder: str, file: InputFile, part: int, layouts: Sequence[Channels]) -> EncodedPart:
    """The task: a part of a file, with what this worker was sent under that name."""
    plugin = cast("FileEncoder", get_worker().plugins[encoder])
    return plugin.encode(file, part, layouts)


def worker_version() -> str:
    """That of the package on a worker."""
    return __version__


def entries_of(part: EncodedPart, n: int) -> Iterator[Entries]:
    """The batches of a recording in a part, and then what was wrong with the next one."""
    yield from part.batches.get(n, [])
    if n in part.errors:
        raise DataError(part.errors[n])
