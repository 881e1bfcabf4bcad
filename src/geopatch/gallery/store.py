"""Entries under their ids, in a folder or on a server: what a gallery does without a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from geopatch.engines.about import About
from geopatch.engines.engine import Contents, Engine, Info, Shortlist
from geopatch.engines.entry import PLACE_FIELDS, Channels, Entries, Value, checked_metadata
from geopatch.engines.filters import Filter, Where, as_filter, field_names
from geopatch.engines.place import Place, create_engine
from geopatch.errors import ConfigError, NotFoundError, at_least, one_of
from geopatch.gallery.export import export_entries
from geopatch.notebook import table

BATCH = 256
MISSING = ("error", "ignore")
SHOWN = 3  # ids that an error names
S = TypeVar("S", bound="EntryStore")
Report = Callable[[int], None]  # entries written so far


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

    def remove(self, ids: str | Sequence[str] | None = None, *, where: Where = None, missing: str = "error") -> int:
        """Take entries out, by their ids or by a filter: all of them in one change.

        Parameters
        ----------
        ids : str or sequence of str, optional
            The entries to remove.
        where : str, mapping or Filter, optional
            Remove the entries that pass this filter; give either `ids` or `where`.
        missing : {"error", "ignore"}, default="error"
            With an id that is not there, remove nothing and raise, or remove the others.

        Returns
        -------
        int
            How many entries were removed.

        Raises
        ------
        NotFoundError
            When an id is not there, or no entry has a field of the filter.
        """
        one_of("missing", missing, MISSING)
        if (ids is None) == (where is None):
            raise ConfigError("say what to remove: either ids or where")
        if where is not None:
            return self.engine.remove([id for batch in self.scan(where=where) for id in batch.ids])
        chosen = [ids] if isinstance(ids, str) else list(ids or ())
        if missing == "error":
            known = self.engine.known(chosen)
            absent = [id for id in dict.fromkeys(chosen) if id not in known]
            if absent:
                raise NotFoundError(f"the gallery has no entry {shown(absent)}; nothing was removed")
        return self.engine.remove(chosen)

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
        merged = {**self.get(id).metadata[0], **changes}
        self.engine.update(id, checked_metadata({name: value for name, value in merged.items() if value is not None}))

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
    ) -> list[Shortlist]:
        """Find the entries of largest MaxSim with each of several queries: by their tokens, not by one vector.

        MaxSim is the mean over the query's tokens of the best token of an entry. The first call reads the tokens of the
        gallery; after `optimize`, a large one has an index for them.

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

        Returns
        -------
        list of Shortlist
            One for each query; its scores are MaxSim.
        """
        at_least("k", k, 1)
        queries = np.ascontiguousarray(tokens, dtype=np.float32)
        known = np.ones(queries.shape[:2], dtype=np.bool_) if valid is None else np.asarray(valid, dtype=np.bool_)
        return self.engine.token_shortlist(queries, known, k, self._filter(where))

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
        return copied

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


def shown(ids: Sequence[str]) -> str:
    """Some ids for a message, and how many more there are."""
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return ", ".join(map(repr, ids[:SHOWN])) + more
