"""Questions and their answers as bytes between two processes: a head of JSON, then the plain bytes it tells of."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from geopatch.errors import GeoPatchError
from geopatch.search.query import Span
from geopatch.server.refusal import RefusedError
from geopatch.server.searcher import Outcome, Question, Wish
from geopatch.signal import Signal

SIZES = struct.Struct("<QQ")  # of the head, of what follows it
PARCEL = 1 << 20  # answers of about so many bytes travel together
Json = dict[str, Any]


def send(pipe: BinaryIO, head: Json, parts: Sequence[bytes] = ()) -> None:
    told = json.dumps(head).encode()
    pipe.write(b"".join([SIZES.pack(len(told), sum(map(len, parts))), told, *parts]))
    pipe.flush()


def receive(pipe: BinaryIO) -> tuple[Json, memoryview]:
    """EOFError where the other side is gone."""
    head_size, size = SIZES.unpack(_exactly(pipe, SIZES.size))
    head: Json = json.loads(_exactly(pipe, head_size))
    return head, memoryview(_exactly(pipe, size))


def _exactly(pipe: BinaryIO, size: int) -> bytes:
    found = pipe.read(size)
    if len(found) < size:
        raise EOFError("the other side is gone")
    return found


def send_questions(pipe: BinaryIO, questions: Sequence[Question]) -> None:
    values = [q.query.values.tobytes() for q in questions if isinstance(q.query, Signal)]
    send(pipe, {"questions": [{"wish": vars(q.wish), **_query_out(q.query)} for q in questions]}, values)


def receive_questions(pipe: BinaryIO) -> list[Question]:
    head, values = receive(pipe)
    found = []
    for told in head["questions"]:
        size = 4 * told.get("rows", 0) * told.get("columns", 0)
        found.append(Question(_query_in(told, values[:size]), Wish(**told["wish"])))
        values = values[size:]
    return found


def _query_out(query: str | Span | Signal) -> Json:
    if isinstance(query, str):
        return {"id": query}
    if isinstance(query, Span):
        return {"span": [query.record, query.start_s, query.stop_s]}
    told = [query.id, query.rate_hz, query.channels, query.record, query.start_s]
    return {"signal": told, "rows": query.values.shape[0], "columns": query.values.shape[1]}


def _query_in(told: Json, values: memoryview) -> str | Span | Signal:
    if "id" in told:
        return str(told["id"])
    if "span" in told:
        return Span(*told["span"])
    id, rate_hz, channels, record, start_s = told["signal"]
    array = np.frombuffer(values, dtype=np.float32).reshape(told["rows"], told["columns"])
    return Signal(array, id, rate_hz, tuple(channels), record, start_s)


def send_answers(pipe: BinaryIO, outcomes: Iterable[bytes | RefusedError]) -> None:
    """Large ones in several parcels: they need not be in memory together."""
    heads: list[Json] = []
    parts: list[bytes] = []
    for outcome in outcomes:
        told = outcome if isinstance(outcome, bytes) else str(outcome).encode()
        refusal = {} if isinstance(outcome, bytes) else {"status": outcome.status, "headers": outcome.headers}
        heads.append({"size": len(told), **refusal})
        parts.append(told)
        if sum(map(len, parts)) > PARCEL:
            send(pipe, {"answers": heads}, parts)
            heads, parts = [], []
    if heads:
        send(pipe, {"answers": heads}, parts)


def receive_answers(pipe: BinaryIO, count: int) -> Iterator[Outcome]:
    while count > 0:
        head, told = receive(pipe)
        for one in head["answers"]:
            yield _outcome(one, bytes(told[: one["size"]]))
            told = told[one["size"] :]
        count -= len(head["answers"])


def _outcome(head: Json, told: bytes) -> bytes | GeoPatchError:
    return RefusedError(head["status"], told.decode(), head["headers"]) if "status" in head else told
