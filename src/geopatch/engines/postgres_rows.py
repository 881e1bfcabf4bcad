"""Entries as rows of a PostgreSQL table, and rows of an earlier version."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.engines.about import About, check_encoder, upgraded_fields
from geopatch.engines.engine import Replica
from geopatch.engines.entry import Entries
from geopatch.engines.packing import Row, detail_row, dump_channels, entry_row, token_row, unpack_window
from geopatch.engines.postgres_sql import ADD_CHANNELS, INDEX, INDEX_CHANNELS, REWRITE

UPGRADE_BATCH = 1000


def upgrade_rows(connection: Any) -> bool:
    """Bring the rows of format 1 to format 2; false where they have that already."""
    fields = json.loads(connection.execute("SELECT told FROM about").fetchone()[0])
    if fields.get("format") != 1:
        return False
    indexed = connection.execute("SELECT to_regclass('entry_embedding') IS NOT NULL").fetchone()[0]
    connection.execute("DROP INDEX IF EXISTS entry_embedding")  # else every changed row would be indexed again
    connection.execute(ADD_CHANNELS)
    query, last = "SELECT n, kept_window FROM entry WHERE n > %s AND kept_window IS NOT NULL ORDER BY n LIMIT %s", 0
    while rows := connection.execute(query, (last, UPGRADE_BATCH)).fetchall():
        last = rows[-1][0]
        windows = ((n, unpack_window(blob)) for n, blob in rows)
        named = [(dump_channels(window.channels), n) for n, window in windows if window is not None and window.channels]
        connection.cursor().executemany("UPDATE entry SET channels = %s WHERE n = %s", named)
    connection.execute(INDEX_CHANNELS)
    if indexed:
        width = int(fields["widths"]["embedding"])
        connection.execute(INDEX.format(width=width))
    connection.execute("UPDATE about SET told = %s", (json.dumps(upgraded_fields(fields)),))
    return True


def rewrite_entries(connection: Any, entries: Entries, about: About) -> int:
    """Give entries that are there other vectors; how many are there."""
    check_encoder(about, entries.encoder, "these entries")
    rows = [(entries.embedding[n], *token_row(entries, n), id) for n, id in enumerate(entries.ids)]
    cursor = connection.cursor()
    cursor.executemany(REWRITE, rows)
    return int(cursor.rowcount)


def unpack_embedding(sent: bytes) -> bytes:
    """Little-endian numbers from what pgvector sends: the width in four bytes, and big-endian numbers."""
    return np.frombuffer(sent, dtype=">f4", offset=4).astype("<f4").tobytes()


def insert_row(entries: Entries, n: int) -> Row:
    """The values of INSERT for one entry."""
    *place, metadata, channels, _ = entry_row(entries, n)
    return (*place, metadata, channels, metadata, entries.embedding[n], *detail_row(entries, n))


def scores_of(rows: list[Row]) -> npt.NDArray[np.float32]:
    """The second column."""
    return np.asarray([row[1] for row in rows], dtype=np.float32)


def replicas_from(rows: list[Row]) -> tuple[Replica, ...]:
    """From the columns of REPLICAS."""
    return tuple(Replica(*row) for row in rows)
