"""What one connection may take before any request is checked: the size and time of its headers, and a place at all.

uvicorn's httptools protocol has no limit of its own for either: its `h11_max_incomplete_event_size` is for h11, and its
`limit_concurrency` refuses requests, not connections.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from geopatch.server.metrics import Metrics
from geopatch.server.refusal import RETRY_S
from geopatch.server.settings import Limits

NEAR = 0.875  # of the cap: from here on the oldest idle connections make room for new ones
IDLE_S = 1.0  # a connection without a request for so long may be closed to make room
LINGER_S = 1.0  # for a client to read why it is refused, while what it still sends is thrown away
MAX_PIPELINED = 16  # requests that one connection may send before the first is answered
LOG_EVERY_S = 10.0

log = logging.getLogger(__name__)


def max_connections(limits: Limits) -> int:
    """The cap on open connections: what the limits say, and a quarter less than the files this process may open."""
    if sys.platform == "win32":
        return limits.connections
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits.connections if files == resource.RLIM_INFINITY else min(limits.connections, files * 3 // 4)


class Connections:
    """All open connections of a server; those without a request are kept in the order in which they fell idle."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics = limits, metrics
        self.cap = max_connections(limits)
        self.idle: dict[LimitedProtocol, float] = {}  # since when
        self._open = 0
        self._logged_s = -LOG_EVERY_S
        metrics.watch("geopatch_connections", "Open connections.", lambda: self._open)

    def admit(self) -> bool:
        """Count a new connection; False where there is no place for it. Near the cap the oldest idle one is closed."""
        self._open += 1
        if self._open > NEAR * self.cap:
            self._close_oldest()
        if self._open <= self.cap:
            return True
        self.metrics.connection_refused()
        if time.monotonic() - self._logged_s >= LOG_EVERY_S:
            self._logged_s = time.monotonic()
            log.warning("%d connections are open; new ones are refused", self.cap)
        return False

    def leave(self) -> None:
        self._open -= 1

    def _close_oldest(self) -> None:
        oldest = next(iter(self.idle), None)
        if oldest is not None and time.monotonic() - self.idle[oldest] >= IDLE_S:
            del self.idle[oldest]
            oldest.transport.close()


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits; `limited_protocol` binds it to the connections of one server."""

    shared: Connections
    _late: asyncio.TimerHandle | None = None
    _head_bytes: int | None = 0  # of the headers that are being read; None while a body is
    _refused = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if not self.shared.admit():
            self._answer(503, "the server has as many connections as it can take; try again in a moment")
            transport.close()
            return
        self._fall_idle()
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.shared.leave()
        self.shared.idle.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser no more than the headers may still have, and stop where they have not ended by then."""
        most = self.shared.limits.head_bytes
        while data and not self._refused and not self.transport.is_closing():
            room = most if self._head_bytes is None else most - self._head_bytes
            part, data = data[:room], data[room:]
            if self._head_bytes is not None:
                self._start_timer()
                self._head_bytes += len(part)
            super().data_received(part)
            if self._head_bytes is not None and self._head_bytes >= most:
                self._refuse_head(most)

    def on_message_begin(self) -> None:
        self._start_timer()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._head_bytes = None
        self.shared.idle.pop(self, None)
        if self._refused or self.transport.is_closing():
            return
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINED:
            self.transport.close()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._head_bytes = 0

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.pipeline and not self.transport.is_closing():
            self._fall_idle()

    def _fall_idle(self) -> None:
        self.shared.idle.pop(self, None)
        self.shared.idle[self] = time.monotonic()

    def _unsupported_upgrade_warning(self) -> None:
        """A request to upgrade is answered like any other; it is worth no line in the log."""

    def _refuse_head(self, most: int) -> None:
        """The connection stays for a moment, so that a client that is still sending can read the answer."""
        self._stop_timer()
        self._answer(431, f"the headers of a request may have {most} bytes; send fewer or shorter ones")
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)

    def _answer(self, status: int, line: str) -> None:
        """Answer in place of the application, and read nothing more."""
        self._refused = True
        body = json.dumps({"detail": line}).encode()
        head = [b"content-type: application/json", b"content-length: %d" % len(body), b"connection: close"]
        if status == 503:
            head.append(b"retry-after: %d" % RETRY_S)
        self.transport.write(STATUS_LINE[status] + b"\r\n".join(head) + b"\r\n\r\n" + body)

    def _start_timer(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.shared.limits.head_s, self.transport.close)

    def _stop_timer(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def limited_protocol(limits: Limits, metrics: Metrics) -> type[LimitedProtocol]:
    """A protocol for uvicorn whose connections count together."""
    return type("LimitedProtocol", (LimitedProtocol,), {"shared": Connections(limits, metrics)})
