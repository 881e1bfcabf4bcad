"""Random workloads: whatever is put, removed, updated, copied and optimized, every engine agrees with the exact one."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from galleries import (
    ABOUT,
    WIDTHS,
    Ground,
    agrees,
    entries_of,
    everything,
    naive_shortlist,
    naive_token_shortlist,
    same,
)
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from servers import PostgresServer, running_server

from geopatch.engines import Entries, as_filter, embedded, embedded_tokens
from geopatch.engines.entry import PLACE_FIELDS
from geopatch.engines.filters import field_names
from geopatch.errors import NotFoundError
from geopatch.gallery import Gallery

IDS = [f"id {n}" for n in range(12)] + ["é\n'\"%s", "日本"]
NAMES = ("sex", "age", "noise", "paced", "the lead", "new-name")
ids = st.sampled_from(IDS)
values = st.one_of(
    st.sampled_from(["F", "M", "V1", "", 'it\'s "%s"', True, False, 0, 1, -1, 30, 2**53, 0.1, 1.0, 11 / 7]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**53), 2**53),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5),
)
numbers = values.filter(lambda value: isinstance(value, (int, float)) and not isinstance(value, bool))
names = st.sampled_from([*NAMES, "record", "start_s", "stop_s", "id"])
comparisons = st.one_of(
    st.dictionaries(names, values, min_size=1, max_size=2),
    st.builds(lambda name, sign, value: {name: {sign: value}}, names, st.sampled_from(["==", "!="]), values),
    st.builds(lambda name, sign, value: {name: {sign: value}}, names, st.sampled_from(["<", "<=", ">", ">="]), numbers),
    st.builds(lambda name, some: {name: {"in": some}}, names, st.lists(values, max_size=3)),
)
filters = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds(lambda some: {"and": some}, st.lists(inner, max_size=3)),
        st.builds(lambda some: {"or": some}, st.lists(inner, max_size=3)),
        st.builds(lambda part: {"not": part}, inner),
    ),
    max_leaves=4,
)


class Workload(RuleBasedStateMachine):
    """The gallery under test, an exact one beside it, and a plain dictionary of what both should hold."""

    ground: Ground
    exact: Ground

    def __init__(self) -> None:
        super().__init__()
        self.tested = self.ground.gallery()
        self.truth = self.exact.gallery()
        self.held: dict[str, Entries] = {}

    def teardown(self) -> None:
        self.tested.close()
        self.truth.close()

    @initialize(seed=st.integers(0, 1000))
    def fill(self, seed: int) -> None:
        self.put(IDS, seed)

    @rule(some=st.lists(ids, min_size=1, max_size=6, unique=True), seed=st.integers(0, 1000))
    def put(self, some: list[str], seed: int) -> None:
        entries = entries_of(some, seed)
        for gallery in (self.tested, self.truth):
            assert gallery.add(entries, existing="replace") == len(some)
        self.held |= {id: entries.take([n]) for n, id in enumerate(some)}

    @rule(some=st.lists(ids, max_size=4, unique=True))
    def remove(self, some: list[str]) -> None:
        expected = len([id for id in some if self.held.pop(id, None) is not None])
        galleries = (self.tested, self.truth)
        assert [gallery.remove(some, missing="ignore") for gallery in galleries] == [expected] * 2

    @rule(id=ids, changes=st.dictionaries(st.sampled_from(NAMES), st.none() | values, max_size=3))
    def update(self, id: str, changes: dict[str, Any]) -> None:
        if id in self.held:
            for gallery in (self.tested, self.truth):
                gallery.update(id, changes)
            self.held[id] = self.truth.get(id)

    @rule(where=filters, k=st.integers(1, 20), seed=st.integers(0, 1000))
    def search(self, where: dict[str, Any], k: int, seed: int) -> None:
        query = np.random.default_rng(seed).normal(size=(1, WIDTHS.embedding)).astype(np.float32)
        if self.refused(where):
            return
        expected = self.truth.shortlist(query, k, where)[0]
        assert agrees(self.tested.shortlist(query, k, where)[0], [*zip(expected.ids, expected.scores, strict=True)])
        naive = as_filter(where)
        everyone = entries_joined(list(self.held.values()))
        assert agrees(expected, naive_shortlist(everyone, query[0], k, naive))
        assert self.tested.count(where) == self.truth.count(where)
        asked = entries_of(["query"], seed)
        by_tokens = self.truth.token_shortlist(asked.tokens, asked.valid, k, where)[0]
        near = self.tested.token_shortlist(asked.tokens, asked.valid, k, where)[0]
        assert agrees(near, [*zip(by_tokens.ids, by_tokens.scores, strict=True)])
        assert agrees(by_tokens, naive_token_shortlist(everyone, asked.tokens[0], asked.valid[0], k, naive))

    def refused(self, where: dict[str, Any]) -> bool:
        """Whether both galleries refuse a filter, as they should where it names a field that no entry has."""
        fields = {name for entry in self.held.values() for name in entry.metadata[0]} | set(PLACE_FIELDS)
        unknown = bool(self.held) and not field_names(as_filter(where)) <= fields
        for gallery in (self.tested, self.truth) if unknown else ():
            with pytest.raises(NotFoundError, match="no entry has a field"):
                gallery.count(where)
        return unknown

    @rule()
    def optimize(self) -> None:
        self.tested.optimize()

    @rule(where=filters)
    def copy(self, where: dict[str, Any]) -> None:
        """A copy through the other engine and back holds what passed the filter."""
        if self.refused(where):
            return
        there, back = self.exact.place(), self.ground.place()
        assert self.tested.copy(there, where=where) == self.truth.count(where)
        with Gallery.open(there) as middle:
            middle.copy(back)
        with Gallery.open(back) as copied:
            found = everything(copied)
        naive = as_filter(where)
        assert set(found) == {id for id, entry in self.held.items() if naive and naive.matches(entry.fields(0))}
        assert all(same(entry, self.held[id]) for id, entry in found.items())

    @invariant()
    def both_hold_what_they_should(self) -> None:
        for gallery in (self.tested, self.truth):
            found = everything(gallery)
            assert found.keys() == self.held.keys()
            assert all(same(entry, self.held[id]) for id, entry in found.items())


def entries_joined(parts: list[Entries]) -> Entries:
    if not parts:
        return entries_of([])
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS}
    rest: dict[str, Any] = {
        name: tuple(itertools.chain.from_iterable(getattr(part, name) for part in parts)) for name in TUPLES
    }
    return Entries(encoder=ABOUT.encoder, **columns, **rest)


ARRAYS = ("embedding", "tokens", "valid", "patch_s", "start_s", "stop_s")
TUPLES = ("ids", "records", "metadata", "windows", "channels")


def run(ground: Ground, examples: int, steps: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = type("Workload", (Workload,), {"ground": ground, "exact": Ground("exact", Path(folder))})
        health = [HealthCheck.too_slow, HealthCheck.data_too_large]
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=health
            ),
        )


def test_the_embedded_engine_agrees_with_the_exact_one(tmp_path: Path) -> None:
    run(Ground("embedded", tmp_path), examples=10, steps=12)


def test_an_indexed_gallery_agrees_with_the_exact_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index in use from the first entry on, and its filters by search instead of by comparing."""
    monkeypatch.setattr(embedded, "INDEX_FROM", 1)
    monkeypatch.setattr(embedded_tokens, "INDEX_FROM", 1)
    monkeypatch.setattr(embedded, "LARGEST_LIMIT", 8)
    monkeypatch.setattr(embedded, "ROOM_AT_LEAST", 0)
    run(Ground("embedded", tmp_path), examples=6, steps=12)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server() as running:
        yield running


def test_a_server_agrees_with_the_exact_engine(server: PostgresServer, tmp_path: Path) -> None:
    run(Ground("postgresql", tmp_path, server.url("stateful")), examples=6, steps=12)
