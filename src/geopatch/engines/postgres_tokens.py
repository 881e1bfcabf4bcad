"""Shortlists from tokens for a server, which has no late interaction of its own.

Each process that searches by tokens reads all of them once, and later the new ones; they are compared here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from geopatch.engines.about import About
from geopatch.engines.engine import Shortlist
from geopatch.engines.filters import Filter
from geopatch.engines.index import Numbers, Vectors, top
from geopatch.engines.packing import token_arrays
from geopatch.engines.postgres_sql import condition
from geopatch.engines.tokens import SPARE, Mask, TokenRows, token_scores

LOAD_BATCH = 2_000
TOKENS = "SELECT n, tokens, valid FROM entry WHERE n > %s ORDER BY n LIMIT %s"
CHOSEN = "SELECT n, tokens, valid, id FROM entry WHERE n = ANY(%s) ORDER BY n"


class PostgresTokens:
    """What of a gallery's tokens is in memory; nothing before the first shortlist."""

    def __init__(self) -> None:
        self._about: About | None = None
        self._rows: TokenRows | None = None

    def shortlists(
        self, connection: Any, about: About, tokens: Vectors, valid: Mask, k: int, where: Filter | None, ordered: bool
    ) -> list[Shortlist]:
        """Those of queries with tokens (Q, K, d), within one transaction that sees one moment."""
        self._refresh(connection, about)
        allowed = None if where is None else _passing(connection, where)
        queries = [query[known] for query, known in zip(tokens, valid, strict=True)]
        return [self._shortlist(connection, query, k, allowed, ordered) for query in queries]

    def _refresh(self, connection: Any, about: About) -> None:
        """Take up what was written since the last look. A number is never used again, so that a count tells whether any
        entry that is known here was removed."""
        if self._rows is None or self._about != about:
            self._about, self._rows = about, TokenRows(about)
        while rows := connection.execute(TOKENS, (self._rows.last, LOAD_BATCH), binary=True).fetchall():
            self._rows.append(*token_arrays(rows, about))
        held = connection.execute("SELECT count(*) FROM entry").fetchone()[0]
        if held != self._rows.alive:
            self._rows.keep(_numbers(connection.execute("SELECT n FROM entry").fetchall()))
        if held > self._rows.alive:  # of two shards that were written together, the later may be seen first
            self._rows = None
            self._refresh(connection, about)

    def _shortlist(self, connection: Any, query: Vectors, k: int, allowed: Numbers | None, ordered: bool) -> Shortlist:
        """The k entries that are most like a query's tokens (I, d), scored anew from what is stored."""
        assert self._rows is not None
        assert self._about is not None
        numbers, _ = self._rows.best(query, SPARE * k, allowed, ordered)
        rows = connection.execute(CHOSEN, (numbers.tolist(),), binary=True).fetchall()
        _, tokens, valid = token_arrays(rows, self._about)
        scores = token_scores(query, tokens, valid, ordered)
        chosen = top(scores, min(k, len(scores)))
        return Shortlist(tuple(rows[n][3] for n in chosen), scores[chosen])


def _passing(connection: Any, where: Filter) -> Numbers:
    """The numbers of every entry that passes a filter."""
    sql, values = condition(where)
    return _numbers(connection.execute(f"SELECT n FROM entry WHERE {sql}", values).fetchall())


def _numbers(rows: list[tuple[int]]) -> Numbers:
    return np.asarray([n for (n,) in rows], dtype=np.int64)
