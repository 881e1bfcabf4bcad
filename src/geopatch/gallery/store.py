"""Entries under their ids, in a folder or on a server: what a gallery does without a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from geopatch.engines.about import About
from geopatch.engines.engine import Contents, Embeddings, Engine, Info, Record, Shortlist
from geopatch.engines.entry import PLACE_FIELDS, Channels, Entries, Metadata, Value, checked_metadata
from geopatch.engines.filters import All, Filter, Where, as_filter, field_names
from geopatch.engines.place import Place, backup_engine, create_engine, restore_engine
from geopatch.errors import ConfigError, NotFoundError, at_least, one_of
from geopatch.gallery.export import export_entries
from geopatch.gallery.facts import FILE, RECORD, FileFacts, RecordFacts, card_of
from geopatch.notebook import table

BATCH = 256
MISSING = ("error", "ignore")
SHOWN = 3  # ids that an error names
S = TypeVar("S", bound="EntryStore")
Report = Callable[[int], None]  # entries written so far
ByteReport = Callable[[int, int], None]  # bytes so far, of how many


class EntryStore:
    """Entries with metadata, kept by an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._is_open = True

    @property
    def about(self) -> About:
        """The encoder whose vectors are kept, as of the last call that read something."""
        return self.engine.about

    def refresh(self) -> About:
        """Read anew which encoder the gallery has: another process may have refitted it.

        Searches do this by themselves.

        Returns
        -------
        About
            The encoder whose vectors are kept now.
        """
        return self.engine.refresh()

    def remove(
        self,
        ids: str | Sequence[str] | None = None,
        *,
        record: str | Sequence[str] | None = None,
        where: Where = None,
        missing: str = "error",
    ) -> int:
        """Take entries out, by their ids, by their records or by a filter: all of them in one change.

        Parameters
        ----------
        ids : str or sequence of str, optional
            The entries to remove.
        record : str or sequence of str, optional
            Remove all entries of these records, and what is known of the records. `geopatch index` takes a file whose
            record was removed as a new one.
        where : str, mapping or Filter, optional
            Remove the entries that pass this filter; give one of `ids`, `record` and `where`.
        missing : {"error", "ignore"}, default="error"
            With an id or record that is not there, remove nothing and raise, or remove the others.

        Returns
        -------
        int
            How many entries were removed.

        Raises
        ------
        NotFoundError
            When an id or record is not there, or no entry has a field of the filter.
        """
        one_of("missing", missing, MISSING)
        if sum(choice is not None for choice in (ids, record, where)) != 1:
            raise ConfigError("say what to remove: either ids, record or where")
        if record is not None:
            return self._remove_records([record] if isinstance(record, str) else list(record), missing)
        if where is not None:
            return self.engine.remove([id for batch in self.scan(where=where) for id in batch.ids])
        chosen = [ids] if isinstance(ids, str) else list(ids or ())
        if missing == "error":
            known = self.engine.known(chosen)
            absent = [id for id in dict.fromkeys(chosen) if id not in known]
            if absent:
                raise NotFoundError(f"the gallery has no entry {shown(absent)}; nothing was removed")
        return self.engine.remove(chosen)

    def _remove_records(self, records: Sequence[str], missing: str) -> int:
        ids: dict[str, list[str]] = {record: [] for record in records}
        for batch in self.engine.scan(BATCH, as_filter({"record": {"in": list(ids)}})) if ids else ():
            for id, record in zip(batch.ids, batch.records, strict=True):
                ids[record].append(id)
        absent = [record for record, windows in ids.items() if not windows]
        if absent and missing == "error":
            raise NotFoundError(f"the gallery has no record {shown(absent)}; nothing was removed")
        files = {name: FileFacts.from_text(text) for name, text in self.engine.documents(FILE).items()}
        self.engine.write_documents(FILE, {name: None for name, file in files.items() if set(file.records) & set(ids)})
        self.engine.write_documents(RECORD, dict.fromkeys(ids))
        return self.engine.remove([id for windows in ids.values() for id in windows])

    def relabel(
        self,
        changes: Mapping[str, Value | None],
        *,
        record: str | Sequence[str] | None = None,
        where: Where = None,
    ) -> int:
        """Change metadata of many entries, all in one change.

        Parameters
        ----------
        changes : mapping
            New values by name; None takes a name away, other names stay.
        record : str or sequence of str, optional
            Only entries of these records.
        where : str, mapping or Filter, optional
            Only entries that pass; with neither, all entries.

        Returns
        -------
        int
            How many entries have other metadata now.

        Raises
        ------
        NotFoundError
            When no entry has a field of the filter, or a record is not there.
        """
        records = [record] if isinstance(record, str) else list(record or ())
        parts = [
            part for part in (as_filter({"record": {"in": records}}) if records else None, self._filter(where)) if part
        ]
        unknown = [name for name in records if not self.engine.count(as_filter({"record": name}))]
        if unknown:
            raise NotFoundError(f"the gallery has no record {shown(unknown)}; nothing was changed")
        rows: dict[str, Metadata] = {}
        for batch in self.engine.scan(BATCH, All(tuple(parts)) if parts else None):
            for id, metadata in zip(batch.ids, batch.metadata, strict=True):
                if (row := _changed(metadata, changes)) != metadata:
                    rows[id] = row
        if rows:
            self.engine.update(rows)
        return len(rows)

    def update(self, id: str, changes: Mapping[str, Value | None]) -> None:
        """Change metadata of an entry.

        Parameters
        ----------
        id : str
            The entry.
        changes : mapping
            New values by name; None takes a name away, other names stay.

        Raises
        ------
        NotFoundError
            When the entry is not there.
        """
        self.engine.update({id: _changed(self.get(id).metadata[0], changes)})

    def get(self, id: str) -> Entries:
        """Read one entry.

        Parameters
        ----------
        id : str
            The entry.

        Returns
        -------
        Entries
            Columns of length one.

        Raises
        ------
        NotFoundError
            When it is not there.
        """
        return self.engine.fetch([id])

    def fetch(self, ids: Sequence[str], *, with_windows: bool = True) -> Entries:
        """Read several entries.

        Parameters
        ----------
        ids : sequence of str
            The entries, in the order wanted.
        with_windows : bool, default=True
            Whether to read the raw windows too; it is quicker without.

        Returns
        -------
        Entries
            In the order of `ids`.

        Raises
        ------
        NotFoundError
            When one of them is not there.
        """
        return self.engine.fetch(ids, with_windows=with_windows)

    def spans(self, ids: Sequence[str]) -> dict[str, tuple[str, float, float]]:
        """Look up where entries lie.

        Parameters
        ----------
        ids : sequence of str
            The entries.

        Returns
        -------
        dict
            By id, its record, start and stop in seconds; an id that is not there is left out.
        """
        return self.engine.spans(ids)

    def scan(self, batch_size: int = BATCH, where: Where = None) -> Iterator[Entries]:
        """Read all entries that pass a filter, a batch at a time.

        Parameters
        ----------
        batch_size : int, default=256
            The most entries of a batch.
        where : str, mapping or Filter, optional
            The filter; all entries without.

        Returns
        -------
        iterator of Entries
            In the order in which they were written.
        """
        at_least("batch_size", batch_size, 1)
        return self.engine.scan(batch_size, self._filter(where))

    def embeddings(self, where: Where = None) -> Embeddings:
        """Read the vectors of all entries that pass a filter, with ids and places and nothing else.

        Parameters
        ----------
        where : str, mapping or Filter, optional
            The filter; all entries without.

        Returns
        -------
        Embeddings
            In the order in which they were written, as they are at one moment; all in memory.
        """
        return self.engine.embeddings(self._filter(where))

    def shortlist(self, embedding: npt.NDArray[np.float32], k: int = 50, where: Where = None) -> list[Shortlist]:
        """Find the entries of largest cosine with each of several queries.

        Parameters
        ----------
        embedding : array of shape (Q, D)
            Unit vectors.
        k : int, default=50
            How many entries for each query; fewer when the filter leaves fewer.
        where : str, mapping or Filter, optional
            Only entries that pass.

        Returns
        -------
        list of Shortlist
            One for each query.
        """
        at_least("k", k, 1)
        queries = np.ascontiguousarray(embedding, dtype=np.float32)
        return self.engine.shortlist(queries, k, self._filter(where))

    def token_shortlist(
        self,
        tokens: npt.NDArray[np.float32],
        valid: npt.NDArray[np.bool_] | None = None,
        k: int = 50,
        where: Where = None,
        ordered: bool = False,
    ) -> list[Shortlist]:
        """Find the entries that are most like each of several queries by their tokens, not by one vector.

        The first call reads the tokens of the gallery; after `optimize`, a large one has an index for them.

        Parameters
        ----------
        tokens : array of shape (Q, K, d)
            Unit vectors.
        valid : array of shape (Q, K), optional
            Which of them are no padding; by default all.
        k : int, default=50
            How many entries for each query; fewer when the filter leaves fewer.
        where : str, mapping or Filter, optional
            Only entries that pass.
        ordered : bool, default=False
            Whether tokens are compared in their order, by the score of `aligned`; by default by MaxSim, the mean over a
            query's tokens of the best token of an entry.

        Returns
        -------
        list of Shortlist
            One for each query, with these scores.
        """
        at_least("k", k, 1)
        queries = np.ascontiguousarray(tokens, dtype=np.float32)
        known = np.ones(queries.shape[:2], dtype=np.bool_) if valid is None else np.asarray(valid, dtype=np.bool_)
        return self.engine.token_shortlist(queries, known, k, self._filter(where), ordered)

    def count(self, where: Where = None) -> int:
        """Count entries.

        Parameters
        ----------
        where : str, mapping or Filter, optional
            Only those that pass; all without.

        Returns
        -------
        int
            How many there are.
        """
        return self.engine.count(self._filter(where))

    def records(self) -> tuple[Record, ...]:
        """List the records with their number of windows, start and stop.

        Returns
        -------
        tuple of Record
            In the order of their names; quicker than `contents`, which counts values of metadata too.
        """
        return self.engine.records()

    def contents(self) -> Contents:
        """List the records, and the fields of the metadata with how often each value occurs.

        Returns
        -------
        Contents
            Records and fields, each in order of their names.
        """
        return self.engine.contents()

    def layouts(self) -> tuple[Channels, ...]:
        """List the orders of channel names that its windows have.

        Returns
        -------
        tuple of tuple of str
            The distinct orders; windows without names have none.
        """
        return self.engine.layouts()

    def copy(self, to: Place, *, where: Where = None, report: Report | None = None) -> int:
        """Make a new gallery with the same model and entries, also of another engine.

        Parameters
        ----------
        to : path or str
            A place for the new gallery, as in `create`.
        where : str, mapping or Filter, optional
            Copy only entries that pass.
        report : callable, optional
            Called with the number of entries copied so far.

        Returns
        -------
        int
            How many entries were copied.

        Raises
        ------
        GalleryError
            When the gallery is refitted meanwhile.
        """
        copied, batches, model = 0, self.scan(where=where), self.engine.model()
        with closing(create_engine(to, self.refresh(), model)) as target:
            for entries in batches:
                target.put(entries)
                copied += len(entries)
                if report is not None:
                    report(copied)
            for kind in (RECORD, FILE) if where is None else (RECORD,):
                target.write_documents(kind, self.engine.documents(kind))
        return copied

    def backup(self, path: str | os.PathLike[str], *, report: ByteReport | None = None) -> int:
        """Write a gallery of a folder to one file, as it is at this moment; others may write and search meanwhile.

        Parameters
        ----------
        path : path
            A file that is not there yet.
        report : callable, optional
            Called with the bytes written so far and those there are in all.

        Returns
        -------
        int
            Bytes of the file. The index is not in it: it is made from the rows.

        Raises
        ------
        GalleryError
            When the gallery is on a server, which has tools of its own for this.
        """
        return backup_engine(self.info().place, Path(path), report)

    @staticmethod
    def restore(path: str | os.PathLike[str], place: Place) -> None:
        """Make a new gallery of a backup, or bring one that is there to what the backup holds, in one change.

        Readers of a gallery that is there go on with its old entries until then.

        Parameters
        ----------
        path : path
            A file that `backup` wrote.
        place : path or str
            A folder.

        Raises
        ------
        NotFoundError
            When there is no such file.
        LockedError
            When another process is writing the gallery.
        """
        restore_engine(Path(path), place)

    def model_card(self) -> dict[str, Any] | None:
        """Read what the model that the gallery holds says of itself, without loading it.

        Returns
        -------
        dict or None
            Its halves, the version that made it, and what it was fitted on; None where the gallery holds no model.
        """
        blob = self.engine.model()
        return None if blob is None else card_of(blob)

    def record_facts(self, records: Sequence[str] | None = None) -> dict[str, RecordFacts]:
        """Read what is known of records as a whole.

        Parameters
        ----------
        records : sequence of str, optional
            Their names; by default all.

        Returns
        -------
        dict
            When each began and the units of its channels; a record of which nothing is known is not there.
        """
        texts = self.engine.documents(RECORD, records)
        return {name: RecordFacts.from_text(text) for name, text in texts.items()}

    def export(self, path: str | os.PathLike[str], *, where: Where = None) -> int:
        """Write embeddings, tokens and metadata to a table for other tools, without the raw windows.

        Parameters
        ----------
        path : path
            A file whose name ends in .parquet or .arrow.
        where : str, mapping or Filter, optional
            Only entries that pass.

        Returns
        -------
        int
            How many entries were written.
        """
        return export_entries(self.engine, Path(path), self._filter(where))

    def optimize(self) -> None:
        """Build the index anew and give the space of removed entries back. May take minutes; reads go on."""
        self.engine.optimize()

    def info(self) -> Info:
        """Describe the state of the gallery.

        Returns
        -------
        Info
            Its engine, place, encoder and sizes.
        """
        return self.engine.info()

    def close(self) -> None:
        """Let go of files, connections and the writer's lock."""
        self._is_open = False
        self.engine.close()

    def __len__(self) -> int:
        return self.engine.count()

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and bool(self.engine.known([id]))

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        text = ", ".join(f"{name}={value!r}" for name, value in self._summary().items())
        return f"{type(self).__name__}({text})"

    def _repr_html_(self) -> str:
        return table([self._summary()])

    def _summary(self) -> dict[str, object]:
        if not self._is_open:
            return {"encoder": self.about.encoder, "closed": True}
        info = self.info()
        return {"place": info.place, "engine": info.engine, "windows": info.windows, "encoder": info.about.encoder}

    def _filter(self, where: Where) -> Filter | None:
        """A filter whose fields some entry has, if there are entries."""
        checked = as_filter(where)
        names = sorted(field_names(checked) - set(PLACE_FIELDS))
        unknown = sorted(set(names) - self.engine.known_fields(names)) if names else []
        if unknown and len(self):
            fields = [*PLACE_FIELDS, *(field.name for field in self.contents().fields)]
            raise NotFoundError(f"no entry has a field {unknown[0]!r}; fields are: {', '.join(fields)}")
        return checked


def _changed(metadata: Metadata, changes: Mapping[str, Value | None]) -> Metadata:
    merged = {**metadata, **changes}
    return checked_metadata({name: value for name, value in merged.items() if value is not None})


def shown(ids: Sequence[str]) -> str:
    """Some ids for a message, and how many more there are."""
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return ", ".join(map(repr, ids[:SHOWN])) + more
