"""Taking files into a gallery, one at a time: each is there whole in the end, or says why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from geopatch.data.front_end import FrontEnd
from geopatch.data.reading import InputFile
from geopatch.data.recording import Recording
from geopatch.engines.about import About
from geopatch.engines.entry import checked_metadata
from geopatch.errors import DataError, GeoPatchError, StorageError
from geopatch.gallery import Gallery
from geopatch.gallery.adding import RecordingWindows, cut_recording, write_signals
from geopatch.gallery.facts import FILE, FileFacts
from geopatch.indexing.settings import IndexReport, Listener
from geopatch.indexing.survey import Reader, arranged, check_fits, labelled_rows
from geopatch.signal import Signal

Rows = dict[str, dict[str, Any]]  # what table and path say of each record


@dataclass(frozen=True)
class RecordingSummary:
    """What the report counts of a recording."""

    duration_s: float
    gap_s: float  # for how long nothing was measured
    rate_hz: float | None  # its own

    @classmethod
    def of(cls, signal: Signal, rate_hz: float | None) -> RecordingSummary:
        """Of a recording in a gallery of this rate."""
        timed = signal.at_rate(rate_hz) if signal.rate_hz is None else signal
        missing = ~signal.observed.any(1)
        return cls(timed.duration_s, float(missing.sum() / signal.clock_hz), signal.rate_hz)


@dataclass(frozen=True, eq=False)
class SourceWindows:
    """All windows of a recording, which `write` encodes and writes as `write_signals` does, with their metadata."""

    ids: Sequence[str]
    labels: Sequence[dict[str, str]]
    summary: RecordingSummary
    write: Callable[..., int]


@dataclass(frozen=True, eq=False)
class SourceRecording:
    """A recording of a file, what the file says of it, and its windows, or the error that says why it has none."""

    id: str
    row: dict[str, Any]
    windows: Callable[[], SourceWindows]


def windows_of(recording: Recording, about: About, width: int, front: FrontEnd) -> RecordingWindows:
    """Cut a recording as the windows of a gallery are."""
    check_fits(recording.signal, about.channels, width)
    signal = recording.signal.at_rate(about.rate_hz) if front.window_s is None else recording.signal
    config = front.window(about.rate_hz or signal.rate_hz, signal.duration_s)
    return cut_recording(arranged(recording, about.channels), config, about, front.levels_s)


@dataclass
class Taker:
    """Writes what is new or changed."""

    gallery: Gallery
    reader: Reader
    front: FrontEnd
    listener: Listener
    report: IndexReport
    owners: dict[str, str] = field(default_factory=dict)  # the file that each record came from

    def take(self, files: Sequence[InputFile], known: Mapping[str, FileFacts]) -> None:
        """All files; one that cannot be taken is refused, and the others are."""
        self.owners = {record: name for name, facts in known.items() for record in facts.records}
        due = [file for file in files if self._is_due(file, known.get(file.id))]
        sizes = [max(sum(part.stat().st_size for part in file.parts), 1) for file in due]
        foreign = {record.name for record in self.gallery.records()} - set(self.owners)
        done = 0
        self._start(due)
        for file, size in zip(due, sizes, strict=True):
            share, width = done / sum(sizes), size / sum(sizes)
            try:
                self._take(file, known.get(file.id), foreign, share, width)
            except StorageError:
                raise  # so would every other file
            except GeoPatchError as error:
                self._refuse(file, error)
            done += size
            self.listener.progress(done / sum(sizes), self.report.written)

    def _start(self, due: Sequence[InputFile]) -> None:
        """Called before the first of the files to take, which are opened in this order."""

    def _open(self, file: InputFile) -> list[SourceRecording]:
        """The recordings of a file."""
        reading = self.reader.take(file)
        return [
            SourceRecording(recording.signal.id, row, partial(self._windows, recording))
            for recording, row in zip(reading.recordings, labelled_rows(reading), strict=True)
        ]

    def _windows(self, recording: Recording) -> SourceWindows:
        about = self.gallery.about
        cut = windows_of(recording, about, self.gallery.width, self.front)
        summary = RecordingSummary.of(recording.signal, about.rate_hz)
        write = partial(write_signals, self.gallery, cut.signals)
        return SourceWindows([window.id for window in cut.signals], cut.labels, summary, write)

    def _is_due(self, file: InputFile, old: FileFacts | None) -> bool:
        """Whether a file is new or changed; what is said of it besides may be new all the same."""
        try:
            digest = file.digest
        except OSError as error:
            self._refuse(file, DataError(f"{file.path} cannot be read: {error.strerror}; check its permissions"))
            return False
        if old is not None and old.digest != digest and _is_another(file, old):
            self._refuse(
                file, DataError(f"{file.path}: the gallery has {file.id!r} from {old.path}; rename one of them")
            )
            return False
        if old is None or old.digest != digest or not old.whole:
            return True
        self.report.unchanged.append(file.id)
        self._relabel(file, old)
        return False

    def _relabel(self, file: InputFile, old: FileFacts) -> None:
        settings = self.reader.settings
        if not settings.has_metadata:
            return
        rows = self._rows(file, old.records)
        if rows == old.rows:
            return
        for record, row in rows.items():
            dropped = dict.fromkeys(set(old.rows.get(record, {})) - set(row))
            self.gallery.relabel({**dropped, **row}, record=record)
        self.gallery.engine.write_documents(FILE, {file.id: replace(old, rows=rows).as_text()})
        self.report.relabelled.append(file.id)

    def _rows(self, file: InputFile, records: Sequence[str]) -> Rows:
        """What table and path say of the records of a file."""
        settings = self.reader.settings
        from_path = {} if settings.pattern is None else settings.pattern.of(file.path) or {}
        tables = {record: {} if settings.table is None else settings.table.of(record, file) for record in records}
        return {record: dict(checked_metadata({**from_path, **row})) for record, row in tables.items()}

    def _take(self, file: InputFile, old: FileFacts | None, foreign: set[str], share: float, width: float) -> None:
        recordings = self._open(file)
        records = [recording.id for recording in recordings]
        for record in records:
            if self.owners.get(record, file.id) != file.id:
                other = self.owners[record]
                raise DataError(f"{file.path}: the gallery has a recording {record!r} from {other}; rename one of them")
        self.owners |= dict.fromkeys(records, file.id)
        again = old is not None and old.fresh and not old.whole and old.digest == file.digest
        fresh = again or (old is None and not foreign & set(records))
        rows = self._rows(file, records) if self.reader.settings.has_metadata or old is None else old.rows
        facts = FileFacts(file.digest, str(file.path.absolute()), tuple(records), rows=rows, fresh=fresh)
        before = () if old is None else old.records
        both = tuple(dict.fromkeys((*before, *records)))
        self._note(file, replace(facts, records=both))
        refusals, ids = self._write(file, recordings, facts, share, width)
        if not fresh:
            self._remove_stale(both, ids)
        if not ids:
            self.gallery.engine.write_documents(FILE, {file.id: None})
            return
        self._note(file, replace(facts, windows=len(ids), whole=not refusals))
        (self.report.added if fresh else self.report.changed).append(file.id)

    def _note(self, file: InputFile, facts: FileFacts) -> None:
        self.gallery.engine.write_documents(FILE, {file.id: facts.as_text()})

    def _write(
        self, file: InputFile, recordings: Sequence[SourceRecording], facts: FileFacts, share: float, width: float
    ) -> tuple[int, set[str]]:
        """How many of its recordings were refused, and the ids of all windows of the others."""
        refusals, ids, count = 0, set[str](), len(recordings)
        for n, recording in enumerate(recordings):
            named = {} if file.path.stem == recording.id else {"file": file.path.name}
            own = {**recording.row, **facts.rows.get(recording.id, {}), **named}
            place = share + width * n / count, width / count
            try:
                windows = recording.windows()
                self._write_windows(recording.id, windows, own, facts, *place)
            except StorageError:
                raise
            except GeoPatchError as error:
                refusals += 1
                name = "" if count == 1 else f"recording {recording.id!r}: "
                self._refuse(file, DataError(f"{file.path}: {name}{error}"))
            else:
                ids.update(windows.ids)
                self._count(file, windows.summary)
        return refusals, ids

    def _write_windows(
        self, record: str, windows: SourceWindows, row: Mapping[str, Any], facts: FileFacts, share: float, width: float
    ) -> None:
        rows = [checked_metadata({**_beyond_id(labels, record), **row}) for labels in windows.labels]
        before, total = self.report.written, len(windows.ids)

        def progress(written: int) -> None:
            self.listener.progress(share + width * written / total, before + written)

        existing = "skip" if facts.fresh else "replace"
        keep = not self.reader.settings.has_metadata
        self.report.written += windows.write(rows, existing=existing, keep_metadata=keep, report=progress)

    def _count(self, file: InputFile, summary: RecordingSummary) -> None:
        """What the summary says of a recording."""
        rate_hz = self.gallery.about.rate_hz
        self.report.recordings += 1
        self.report.duration_s += summary.duration_s
        if summary.gap_s:
            self.report.gaps_s[file.id] = summary.gap_s
        if rate_hz is not None and summary.rate_hz is None:
            self.report.untimed.append(file.id)
        elif rate_hz is not None and summary.rate_hz != rate_hz:
            self.report.resampled[file.id] = float(summary.rate_hz or 1.0)

    def _remove_stale(self, records: Sequence[str], ids: set[str]) -> None:
        """Windows of the file as it was before that it has no more."""
        where = {"record": {"in": list(records)}}
        stale = [id for batch in self.gallery.scan(where=where) for id in batch.ids if id not in ids]
        if stale:
            self.report.removed += self.gallery.remove(stale)

    def _refuse(self, file: InputFile, error: GeoPatchError) -> None:
        text = " ".join(str(error).split())
        self.listener.refuse(text if file.path.name in text else f"{file.path}: {text}")


def _is_another(file: InputFile, old: FileFacts) -> bool:
    """Whether a file of the same name lies elsewhere still."""
    return old.path != str(file.path.absolute()) and Path(old.path).exists()


def _beyond_id(labels: Mapping[str, str], record: str) -> dict[str, str]:
    """Labels of a window without a subject that only repeats the name of its record."""
    return {name: value for name, value in labels.items() if (name, value) != ("subject", record)}
