"""What a gallery needs of the engine that keeps its entries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Protocol

import numpy as np
import numpy.typing as npt

from geopatch.engines.about import About
from geopatch.engines.entry import Channels, Entries, Metadata, Value
from geopatch.engines.filters import Filter
from geopatch.errors import GalleryError, NotFoundError

MOST_VALUES = 50


@dataclass(frozen=True, eq=False)
class Shortlist:
    """The entries nearest to one query by cosine, or by MaxSim of the tokens, best first.

    Parameters
    ----------
    ids : tuple of str
        Ids of the entries.
    scores : array of shape (k,)
        Their cosines, or MaxSim.
    """

    ids: tuple[str, ...]
    scores: npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Embeddings:
    """The vectors of N windows and where each lies, without tokens, metadata and values.

    Parameters
    ----------
    encoder : str
        Digest of the encoder that made them.
    ids, records : tuple of str
        Id and record of each window.
    start_s, stop_s : array of shape (N,)
        Where in its record each window starts and stops, in seconds.
    vectors : array of shape (N, D)
        Unit vectors.
    """

    encoder: str
    ids: tuple[str, ...]
    records: tuple[str, ...]
    start_s: npt.NDArray[np.float64]  # (N,)
    stop_s: npt.NDArray[np.float64]  # (N,)
    vectors: npt.NDArray[np.float32]  # (N, D)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, index: Sequence[int]) -> Embeddings:
        """Take some of the windows.

        Parameters
        ----------
        index : sequence of int
            Positions, in the order wanted.

        Returns
        -------
        Embeddings
            The windows at these positions.
        """
        rows = np.asarray(index, dtype=np.intp)
        ids, records = (tuple(column[n] for n in rows) for column in (self.ids, self.records))
        return Embeddings(self.encoder, ids, records, self.start_s[rows], self.stop_s[rows], self.vectors[rows])


@dataclass(frozen=True)
class Replica:
    """A server that follows another.

    Parameters
    ----------
    address : str
        Where it connects from.
    state : str
        What it does: "streaming", or "catchup".
    lag_bytes : int or None
        How much of the log it has not applied yet.
    lag_s : float or None
        How long it took to apply the last change; None where nothing was changed lately.
    """

    address: str
    state: str
    lag_bytes: int | None
    lag_s: float | None


@dataclass(frozen=True)
class ShardInfo:
    """The state of one shard of a gallery.

    Parameters
    ----------
    name : str
        How the gallery calls it.
    place : str
        Its servers and database.
    share : float
        The part of all windows that belongs here.
    answers : bool
        Whether it can be reached; sizes are 0 where it cannot.
    windows : int, default=0
        How many entries are there.
    indexed : int, default=0
        How many of them the approximate index covers.
    bytes : int, default=0
        Size on disk.
    replicas : tuple of Replica, default=()
        The servers that follow it.
    """

    name: str
    place: str
    share: float
    answers: bool
    windows: int = 0
    indexed: int = 0
    bytes: int = 0
    replicas: tuple[Replica, ...] = ()


@dataclass(frozen=True)
class Info:
    """The state of a gallery.

    Parameters
    ----------
    engine : str
        Name of the engine.
    place : str
        Folder or address, without passwords.
    about : About
        The encoder of its vectors.
    windows : int
        How many entries there are.
    indexed : int
        Entries that the approximate index covers; all others are compared one by one.
    bytes : int
        Size on disk.
    created, changed : str, default=""
        When it was made, and when something in it was last changed, as ISO 8601 has it; empty where that is not known.
    replicas : tuple of Replica, default=()
        The servers that follow this one.
    shards : tuple of ShardInfo, default=()
        The servers that the entries are spread over; none where they are in one place.
    """

    engine: str
    place: str
    about: About
    windows: int
    indexed: int
    bytes: int
    created: str = ""
    changed: str = ""
    replicas: tuple[Replica, ...] = ()
    shards: tuple[ShardInfo, ...] = ()


@dataclass(frozen=True)
class Record:
    """A record with windows in the gallery, from the start of the first to the stop of the last.

    Parameters
    ----------
    name : str
        Its name.
    windows : int
        How many windows it has.
    start_s, stop_s : float
        From where to where its windows reach, in seconds.
    """

    name: str
    windows: int
    start_s: float
    stop_s: float


@dataclass(frozen=True)
class Field:
    """One name of the metadata."""

    name: str
    values: tuple[tuple[Value, int], ...]  # the most frequent and how often, most frequent first
    distinct: int
    low: float | None  # of those that are numbers
    high: float | None


@dataclass(frozen=True)
class Contents:
    """What is in a gallery, for those who choose from it.

    Parameters
    ----------
    records : tuple of Record
        The records by name, with their number of windows, start and stop.
    fields : tuple of Field
        The names of the metadata with their most frequent values.
    """

    records: tuple[Record, ...]
    fields: tuple[Field, ...]


class Engine(Protocol):
    """Keeps entries. One writer, any number of readers; what a write call has returned from is on disk.

    An engine is a class in a module of its own with a line in `geopatch.engines.place.ENGINES`. Besides these methods
    it has ``__init__(place, *, read_only)``, and the static methods ``create(place, about, model)`` and
    ``upgrade(place)``. All calls see one encoder and its vectors, before a `rewrite` or after it, never some of each.
    """

    @property
    def about(self) -> About:
        """The encoder of its vectors, as of the last call that read something."""

    def refresh(self) -> About:
        """Read the description of the encoder anew: another process may have rewritten the gallery.

        Returns
        -------
        About
            The encoder of its vectors now.
        """

    def model(self) -> bytes | None:
        """Read the model that the gallery holds.

        Returns
        -------
        bytes or None
            The packed checkpoint; None where there is none.
        """

    def rewrite(self, about: About, model: bytes | None, batches: Iterable[Entries]) -> None:
        """Replace the encoder, its model and the vectors of all entries in one change, whole or not at all.

        Readers see the old ones until it returns. Ids, order, places, metadata and windows stay as they are.

        Parameters
        ----------
        about : About
            The new encoder.
        model : bytes or None
            Its packed checkpoint.
        batches : iterable of Entries
            Every entry of the gallery once, with its new vectors; `scan` may be read on the way.
        """

    def put(self, entries: Entries) -> None:
        """Add entries, all or none; an id that is there already is replaced.

        Parameters
        ----------
        entries : Entries
            Encoded windows with their ids.
        """

    def remove(self, ids: Sequence[str]) -> int:
        """Take entries out, all in one change.

        Parameters
        ----------
        ids : sequence of str
            Ids of entries.

        Returns
        -------
        int
            How many were there.
        """

    def update(self, rows: Mapping[str, Metadata]) -> None:
        """Give entries other metadata, all in one change.

        Parameters
        ----------
        rows : mapping
            By the id of each entry, the names and values that replace the old ones.
        """

    def documents(self, kind: str, names: Sequence[str] | None = None) -> dict[str, str]:
        """Read texts that are kept beside the entries, such as what is known of a record or of a file.

        Parameters
        ----------
        kind : str
            What they are about.
        names : sequence of str, optional
            Those of these names; by default all.

        Returns
        -------
        dict
            Texts by name; a name without a text is not there.
        """

    def write_documents(self, kind: str, texts: Mapping[str, str | None]) -> None:
        """Keep texts beside the entries, all in one change.

        Parameters
        ----------
        kind : str
            What they are about.
        texts : mapping
            New texts by name; None takes a text away.
        """

    def fetch(self, ids: Sequence[str], *, with_windows: bool = True) -> Entries:
        """Read entries, in the order of the ids.

        Parameters
        ----------
        ids : sequence of str
            Ids of entries.
        with_windows : bool, default=True
            Whether to read the raw windows; quicker without.

        Returns
        -------
        Entries
            The entries.
        """

    def spans(self, ids: Sequence[str]) -> dict[str, tuple[str, float, float]]:
        """Look up where entries lie, without their vectors.

        Parameters
        ----------
        ids : sequence of str
            Ids of entries.

        Returns
        -------
        dict
            By id, its record, start and stop in seconds; an id that is not there is left out.
        """

    def known(self, ids: Sequence[str]) -> set[str]:
        """Look up which of these ids are there.

        Parameters
        ----------
        ids : sequence of str
            Ids of entries.

        Returns
        -------
        set of str
            Those that are there.
        """

    def known_fields(self, names: Sequence[str]) -> set[str]:
        """Look up which of these names of metadata some entry has.

        Parameters
        ----------
        names : sequence of str
            Names of metadata.

        Returns
        -------
        set of str
            Those that some entry has.
        """

    def layouts(self) -> tuple[Channels, ...]:
        """List the distinct orders of channel names among the entries.

        Returns
        -------
        tuple of tuple of str
            The orders; entries without names have none.
        """

    def next_number(self) -> int:
        """Give a number that grows with every entry written and never shrinks.

        Returns
        -------
        int
            The number; 0 in a new gallery.
        """

    def shortlist(self, embedding: npt.NDArray[np.float32], k: int, where: Filter | None = None) -> list[Shortlist]:
        """Find for each query the entries of largest cosine.

        Parameters
        ----------
        embedding : array of shape (Q, D)
            Unit vectors of the queries.
        k : int
            How many entries for each.
        where : Filter, optional
            Which entries count; by default all.

        Returns
        -------
        list of Shortlist
            One for each query, best first.
        """

    def token_shortlist(
        self,
        tokens: npt.NDArray[np.float32],
        valid: npt.NDArray[np.bool_],
        k: int,
        where: Filter | None = None,
        ordered: bool = False,
    ) -> list[Shortlist]:
        """Find for each query the entries whose tokens are most like its own.

        Parameters
        ----------
        tokens : array of shape (Q, K, d)
            Tokens of the queries, unit vectors.
        valid : array of shape (Q, K)
            Which of them are no padding.
        k : int
            How many entries for each.
        where : Filter, optional
            Which entries count; by default all.
        ordered : bool, default=False
            Whether tokens are compared in their order, by the score of `aligned`; by default by MaxSim, the mean over a
            query's tokens of the best token of an entry.

        Returns
        -------
        list of Shortlist
            One for each query, best first, with these scores.
        """

    def count(self, where: Filter | None = None) -> int:
        """Count the entries that pass the filter.

        Parameters
        ----------
        where : Filter, optional
            Which entries count; by default all.

        Returns
        -------
        int
            How many there are.
        """

    def scan(self, batch_size: int, where: Filter | None = None) -> Iterator[Entries]:
        """Read all entries that pass the filter, a batch at a time.

        Parameters
        ----------
        batch_size : int
            Entries in a batch, at most.
        where : Filter, optional
            Which entries count; by default all.

        Returns
        -------
        iterator of Entries
            The batches, in the order in which entries were written.
        """

    def embeddings(self, where: Filter | None = None) -> Embeddings:
        """Read the vectors and places of all entries that pass the filter, as they are at one moment.

        Parameters
        ----------
        where : Filter, optional
            Which entries count; by default all.

        Returns
        -------
        Embeddings
            In the order in which entries were written: 4 bytes for each number of a vector, all in memory.
        """

    def sample(self, count: int) -> tuple[str, ...]:
        """Draw entries from all over the gallery, the same ones while nothing is written.

        Parameters
        ----------
        count : int
            How many, at most.

        Returns
        -------
        tuple of str
            Ids of distinct entries; all where there are no more.
        """

    def records(self) -> tuple[Record, ...]:
        """List the records.

        Returns
        -------
        tuple of Record
            In the order of their names.
        """

    def contents(self) -> Contents:
        """Count records and values of metadata.

        Returns
        -------
        Contents
            Records and metadata with their counts.
        """

    def optimize(self) -> None:
        """Build the index anew and give space back; may take minutes."""

    def info(self) -> Info:
        """Read the state of the gallery.

        Returns
        -------
        Info
            Engine, place, sizes.
        """

    def close(self) -> None:
        """Let go of files, connections and the writer's lock."""


RECORDS = "SELECT record, count(*), min(start_s), max(stop_s) FROM entry GROUP BY record"
# Steps from one value of an indexed column to the next, instead of reading a row for each entry.
DISTINCT_CHANNELS = """
WITH RECURSIVE layout(channels) AS (
    SELECT min(channels) FROM entry
    UNION ALL
    SELECT (SELECT min(entry.channels) FROM entry WHERE entry.channels > layout.channels) FROM layout
    WHERE layout.channels IS NOT NULL)
SELECT channels FROM layout WHERE channels IS NOT NULL
"""


CREATED, CHANGED = "created", "changed"  # documents about the gallery itself
OF_GALLERY = "gallery"


def now() -> str:
    """This moment as galleries note it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def spread_numbers(first: int, last: int, count: int) -> list[int]:
    """Whole numbers from `first` to `last`: one drawn from each of `count` equal parts, always the same."""
    edges = np.linspace(first, last + 1, count + 1)
    return [int(number) for number in np.random.default_rng(0).uniform(edges[:-1], edges[1:])]


def embeddings_from(rows: Sequence[tuple[str, str, float, float, bytes]], about: About) -> Embeddings:
    """From a row for each entry: id, record, start, stop and its vector as little-endian numbers."""
    ids, records, start_s, stop_s, blobs = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    vectors = np.frombuffer(b"".join(blobs), dtype="<f4").reshape(len(rows), about.widths.embedding)
    return Embeddings(about.encoder, ids, records, np.asarray(start_s, float), np.asarray(stop_s, float), vectors)


def check_queries(embedding: npt.NDArray[np.float32], about: About) -> None:
    """Refuse queries of another width than the vectors of the gallery."""
    if embedding.ndim != 2 or embedding.shape[1] != about.widths.embedding:
        raise GalleryError(f"expected queries (Q, {about.widths.embedding}), got shape {embedding.shape}")


def check_rewritten(rewritten: int, entries: int, place: object) -> None:
    """Refuse a change that would leave vectors of two encoders."""
    if rewritten != entries:
        raise GalleryError(
            f"gallery {place} has {entries} entries, got new vectors for {rewritten}; nothing was changed"
        )


def unknown_id(place: object, id: str) -> NotFoundError:
    """The error for an id that is not there."""
    return NotFoundError(f"gallery {place} has no entry {id!r}")


def contents_from(
    records: Iterable[tuple[str, int, float, float]], values: Iterable[tuple[str, Value, int]]
) -> Contents:
    """From a row for each record, and a row for each name and value of the metadata, with counts."""
    by_name: dict[str, list[tuple[Value, int]]] = defaultdict(list)
    for name, value, count in values:
        by_name[name].append((value, int(count)))
    return Contents(records_from(records), tuple(_field(name, by_name[name]) for name in sorted(by_name)))


def records_from(records: Iterable[tuple[str, int, float, float]]) -> tuple[Record, ...]:
    """From a row for each record: name, windows, start and stop."""
    return tuple(Record(name, int(count), float(start), float(stop)) for name, count, start, stop in sorted(records))


def _field(name: str, values: list[tuple[Value, int]]) -> Field:
    ranked = sorted(values, key=lambda pair: (-pair[1], str(pair[0])))
    numbers = [float(value) for value, _ in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    low, high = (min(numbers), max(numbers)) if numbers else (None, None)
    return Field(name, tuple(ranked[:MOST_VALUES]), len(values), low, high)
