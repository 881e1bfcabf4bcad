"""A toy engine, to show what one needs: a dictionary in this process. Every call is the obvious one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.engines import About, Contents, Embeddings, Entries, Filter, Info, Metadata, Record, Shortlist
from geopatch.engines.engine import check_rewritten, contents_from, records_from, unknown_id
from geopatch.engines.tokens import token_scores
from geopatch.errors import ExistsError

PLACES: dict[str, tuple[About, bytes | None, dict[str, Entries]]] = {}
DOCUMENTS: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)


class Memory:
    def __init__(self, place: str, *, read_only: bool) -> None:
        self.place = place

    @property
    def about(self) -> About:
        return PLACES[self.place][0]

    @property
    def held(self) -> dict[str, Entries]:
        return PLACES[self.place][2]

    @staticmethod
    def create(place: str, about: About, model: bytes | None) -> None:
        if place in PLACES:
            raise ExistsError(f"{place} exists already")
        PLACES[place] = (about, model, {})

    def refresh(self) -> About:
        return self.about

    def model(self) -> bytes | None:
        return PLACES[self.place][1]

    def rewrite(self, about: About, model: bytes | None, batches: Iterable[Entries]) -> None:
        entries = {id: batch.take([n]) for batch in batches for n, id in enumerate(batch.ids)}
        check_rewritten(len(entries), len(self.held), self.place)
        PLACES[self.place] = (about, model, entries)

    def put(self, entries: Entries) -> None:
        self.held.update((id, entries.take([n])) for n, id in enumerate(entries.ids))

    def remove(self, ids: Sequence[str]) -> int:
        return sum(self.held.pop(id, None) is not None for id in ids)

    def update(self, rows: Mapping[str, Metadata]) -> None:
        changed = {id: replace(self.fetch([id]), metadata=(metadata,)) for id, metadata in rows.items()}
        self.held.update(changed)

    def documents(self, kind: str, names: Sequence[str] | None = None) -> dict[str, str]:
        return {name: text for name, text in DOCUMENTS[self.place, kind].items() if names is None or name in names}

    def write_documents(self, kind: str, texts: Mapping[str, str | None]) -> None:
        kept = {**DOCUMENTS[self.place, kind], **texts}
        DOCUMENTS[self.place, kind] = {name: text for name, text in kept.items() if text is not None}

    def fetch(self, ids: Sequence[str], *, with_windows: bool = True) -> Entries:
        for id in ids:
            if id not in self.held:
                raise unknown_id(self.place, id)
        return joined([self.held[id] for id in ids])

    def spans(self, ids: Sequence[str]) -> dict[str, tuple[str, float, float]]:
        entries = {id: self.held[id] for id in ids if id in self.held}
        return {id: (one.records[0], float(one.start_s[0]), float(one.stop_s[0])) for id, one in entries.items()}

    def known(self, ids: Sequence[str]) -> set[str]:
        return set(ids) & set(self.held)

    def known_fields(self, names: Sequence[str]) -> set[str]:
        return {name for name in names for entry in self.held.values() if name in entry.metadata[0]}

    def layouts(self) -> tuple[tuple[str, ...], ...]:
        return tuple({entry.channels[0] for entry in self.held.values()} - {()})

    def next_number(self) -> int:
        return len(self.held)

    def shortlist(self, embedding: npt.NDArray[np.float32], k: int, where: Filter | None = None) -> list[Shortlist]:
        entries = joined([entry for part in self.scan(1, where) for entry in [part]])
        orders = [(np.argsort(-(entries.embedding @ query))[:k], entries.embedding @ query) for query in embedding]
        return [Shortlist(tuple(entries.ids[n] for n in order), scores[order]) for order, scores in orders]

    def token_shortlist(
        self,
        tokens: npt.NDArray[np.float32],
        valid: npt.NDArray[np.bool_],
        k: int,
        where: Filter | None = None,
        ordered: bool = False,
    ) -> list[Shortlist]:
        entries = joined([entry for part in self.scan(1, where) for entry in [part]])
        known = [query[one] for query, one in zip(tokens, valid, strict=True)]
        scored = [token_scores(query, entries.tokens, entries.valid, ordered) for query in known]
        orders = [(np.argsort(-scores)[:k], scores) for scores in scored]
        return [Shortlist(tuple(entries.ids[n] for n in order), scores[order]) for order, scores in orders]

    def count(self, where: Filter | None = None) -> int:
        return len(list(self.scan(1, where)))

    def scan(self, batch_size: int, where: Filter | None = None) -> Iterator[Entries]:
        return (entry for entry in self.held.values() if where is None or where.matches(entry.fields(0)))

    def embeddings(self, where: Filter | None = None) -> Embeddings:
        entries = list(self.scan(1, where))
        ids, records = (tuple(getattr(entry, name)[0] for entry in entries) for name in ("ids", "records"))
        start_s, stop_s = (np.asarray([getattr(entry, name)[0] for entry in entries]) for name in ("start_s", "stop_s"))
        vectors = [entry.embedding for entry in entries] or [np.zeros((0, self.about.widths.embedding), np.float32)]
        return Embeddings(self.about.encoder, ids, records, start_s, stop_s, np.concatenate(vectors))

    def sample(self, count: int) -> tuple[str, ...]:
        return tuple(self.held)[:: -(-len(self.held) // count) or 1]

    def records(self) -> tuple[Record, ...]:
        places = [(entry.records[0], entry.start_s[0], entry.stop_s[0]) for entry in self.held.values()]
        named = {record: [place for place in places if place[0] == record] for record, _, _ in places}
        return records_from(
            (record, len(parts), min(part[1] for part in parts), max(part[2] for part in parts))
            for record, parts in named.items()
        )

    def contents(self) -> Contents:
        return contents_from([], [(name, v, 1) for e in self.held.values() for name, v in e.metadata[0].items()])

    def optimize(self) -> None:
        pass

    def info(self) -> Info:
        return Info("memory", self.place, self.about, len(self.held), 0, 0)

    def close(self) -> None:
        pass


def joined(parts: Sequence[Entries]) -> Entries:
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("embedding", "tokens", "valid", "patch_s", "start_s", "stop_s")
    }
    tuples: dict[str, Any] = {
        name: tuple(getattr(part, name)[0] for part in parts)
        for name in ("ids", "records", "metadata", "windows", "channels")
    }
    return replace(parts[0], **arrays, **tuples)
