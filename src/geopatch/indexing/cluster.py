"""Files taken with the workers of a Dask cluster: they read, cut and encode, and this process writes.

Files are written in the order of one process, and each as one process writes it, so that the gallery is the same. What
is encoded ahead waits in the workers; a part of a file is here at a time. A worker that is lost has its files done
again by the scheduler.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from geopatch.data.reading import InputFile
from geopatch.engines.entry import Channels, Entries, Metadata, fitting_layout
from geopatch.errors import ConfigError, DataError, MissingExtraError, StorageError
from geopatch.gallery.adding import write_signals
from geopatch.gallery.facts import RECORD
from geopatch.gallery.store import Report
from geopatch.indexing.held import HeldFile
from geopatch.indexing.taking import SourceRecording, SourceWindows, Taker
from geopatch.version import __version__

if TYPE_CHECKING:
    from distributed import Client, Future

    from geopatch.indexing.cluster_worker import EncodedPart

CONNECT_S, WORKERS_S = 10, 30  # to wait for the scheduler, and for the first worker
PATIENCE_S = 30  # without a result, before this process says that there is no worker
AHEAD = 2  # files for each thread of the workers that are encoded before their turn to be written


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """A client of the scheduler at an address, which has workers with this version of the package."""
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingExtraError("dask", "cluster", "encoding on a cluster") from error
    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"no Dask scheduler answers at {address!r}; start one with `dask scheduler`, and give its address as "
            "tcp://HOST:8786"
        ) from error
    with client:
        _check_workers(client, address)
        yield client


def _check_workers(client: Client, address: str) -> None:
    from distributed import TimeoutError

    from geopatch.indexing.cluster_worker import worker_version

    try:
        client.wait_for_workers(1, timeout=WORKERS_S)
        versions = set(client.run(worker_version).values())
    except TimeoutError as error:
        raise ConfigError(f"{address} has no workers; start some with `dask worker {address}`") from error
    except ImportError as error:
        raise ConfigError(
            f"a worker of {address} cannot load geopatch ({error}); install 'geopatch-ts[cluster]' there"
        ) from error
    if versions != {__version__}:
        others = ", ".join(sorted(versions - {__version__}))
        raise ConfigError(f"workers of {address} have geopatch {others}, this is {__version__}; install the same")


@dataclass
class ClusterTaker(Taker):
    """Writes what workers encode."""

    client: Client | None = None
    _encoder: str = ""  # the name under which workers have the model
    _waiting: deque[InputFile] = field(default_factory=deque)
    _running: dict[tuple[str, int], Future[EncodedPart]] = field(default_factory=dict)  # by file and part
    _current: tuple[tuple[str, int], EncodedPart] | None = None

    @property
    def _cluster(self) -> Client:
        assert self.client is not None
        return self.client

    def take(self, files: Sequence[InputFile], known: Any) -> None:
        try:
            super().take(files, known)
        finally:
            self._running.clear()
            if self._encoder and self._cluster.status == "running":
                self._cluster.unregister_worker_plugin(self._encoder)

    def _start(self, due: Sequence[InputFile]) -> None:
        from geopatch.indexing.cluster_worker import FileEncoder

        if not due:
            return
        model, about = self.gallery.engine.model(), self.gallery.about
        assert model is not None, "the gallery has a model card"
        settings = replace(self.reader.settings, cluster=None)
        self._encoder, self._waiting = f"geopatch-{uuid.uuid4().hex}", deque(due)
        encoder = FileEncoder(model, about, self.gallery.width, self.front, settings)
        self._cluster.register_plugin(encoder, name=self._encoder)
        self._fill()

    def _fill(self) -> None:
        """Have as many files encoded ahead as keeps all workers busy, and no more."""
        most = 1 + AHEAD * sum(self._cluster.nthreads().values())
        while self._waiting and len(self._running) < most:
            self._submit(self._waiting.popleft(), 0)

    def _submit(self, file: InputFile, part: int) -> None:
        from geopatch.indexing.cluster_worker import encode_part

        layouts = list(self.gallery.engine.layouts())
        placed = file if isinstance(file, HeldFile) else _absolute(file)
        self._running[file.id, part] = self._cluster.submit(
            encode_part, self._encoder, placed, part, layouts, pure=False, priority=int(part > 0)
        )

    def _part(self, file: InputFile, part: int) -> EncodedPart:
        """A part of a file, when its turn has come; done again if its channels are in another order than by then."""
        key = file.id, part
        if self._current is not None and self._current[0] == key:
            return self._current[1]
        self._current = None
        encoded = self._result(file, part)
        if _is_outdated(encoded, list(self.gallery.engine.layouts())):
            self._submit(file, part)
            encoded = self._result(file, part)
        self._fill()
        self._current = key, encoded
        return encoded

    def _result(self, file: InputFile, part: int) -> EncodedPart:
        from distributed import KilledWorker, TimeoutError
        from distributed.comm.core import CommClosedError

        future = self._running.pop((file.id, part))
        while True:
            try:
                return future.result(timeout=PATIENCE_S)
            except TimeoutError:
                if not self._cluster.nthreads():
                    self.listener.say("the cluster has no worker; waiting for one")
            except KilledWorker as error:
                raise DataError(
                    f"{file.path}: every worker that took it ended; give workers more memory, or index it without them"
                ) from error
            except (CancelledError, CommClosedError) as error:
                raise StorageError("the scheduler was lost; give the same command again, and it goes on") from error

    def _open(self, file: InputFile) -> list[SourceRecording]:
        self._running = {key: future for key, future in self._running.items() if key[1] == 0}  # of a file that failed
        encoded = self._part(file, 0)
        if encoded.error:
            raise DataError(encoded.error)
        for part in range(1, encoded.parts):
            self._submit(file, part)
        return [
            SourceRecording(recording.id, recording.row, partial(self._encoded_windows, file, n, encoded.parts))
            for n, recording in enumerate(encoded.recordings)
        ]

    def _encoded_windows(self, file: InputFile, n: int, parts: int) -> SourceWindows:
        part = 0 if self._current is None or self._current[0][0] != file.id else self._current[0][1]
        recording = self._part(file, part).recordings[n]
        if recording.error or recording.summary is None:
            raise DataError(recording.error)
        write = partial(self._write_entries, file, n, range(part, parts))
        return SourceWindows(recording.ids, recording.labels, recording.summary, write)

    def _write_entries(
        self,
        file: InputFile,
        n: int,
        parts: range,
        rows: Sequence[Metadata],
        *,
        existing: str,
        keep_metadata: bool,
        report: Report,
    ) -> int:
        replaced = keep_metadata and existing == "replace"
        entries = self._with_rows(self._entries(file, n, parts, len(rows)), rows, replaced)
        return write_signals(self.gallery, entries, None, existing=existing, report=report)

    def _entries(self, file: InputFile, n: int, parts: range, count: int) -> Iterator[Entries]:
        """The batches of a recording from this part on."""
        from geopatch.indexing.cluster_worker import entries_of

        for part in parts:
            encoded = self._part(file, part)
            if encoded.facts.get(n):
                self.gallery.engine.write_documents(RECORD, encoded.facts[n])
            for batch in entries_of(encoded, n):
                yield batch
                count -= len(batch)
            if not count:
                return

    def _with_rows(self, batches: Iterator[Entries], rows: Sequence[Metadata], replaced: bool) -> Iterator[Entries]:
        """Entries with their metadata; what is replaced keeps its own where the new one says nothing."""
        first = 0
        for batch in batches:
            own = list(rows[first : first + len(batch)])
            known = self.gallery.engine.known(batch.ids) if replaced else ()
            there = [id for id in batch.ids if id in known]
            if there:
                stored = self.gallery.engine.fetch(there, with_windows=False).metadata
                old = dict(zip(there, stored, strict=True))
                own = [{**old.get(id, {}), **row} for id, row in zip(batch.ids, own, strict=True)]
            yield replace(batch, metadata=tuple(own))
            first += len(batch)


def _absolute(file: InputFile) -> InputFile:
    """The same for a process that runs elsewhere."""
    return replace(file, path=file.path.absolute(), parts=tuple(part.absolute() for part in file.parts))


def _is_outdated(encoded: EncodedPart, layouts: Sequence[Channels]) -> bool:
    """Whether the gallery has these channels in another order by now, from files that came before."""
    return any(fitting_layout(own, layouts) not in (None, own) for own in encoded.layouts if own)
