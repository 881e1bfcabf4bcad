"""Webhooks: events are posted in order, again and again until they are taken; a restart goes on where it stopped."""

from __future__ import annotations

import http.client
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from geopatch.errors import ConfigError
from geopatch.server.settings import is_loopback
from geopatch.server.watch_store import WatchStore

TIMEOUT_S = 10.0
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 60.0
TOGETHER = 100
IDLE_S = 5.0

log = logging.getLogger(__name__)


def check_webhook(url: str, hosts: tuple[str, ...]) -> str:
    """The address, if events may be posted there: to this machine, or to a host that the server was started with."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise ConfigError(f"expected a webhook as http://host/path or https://host/path, got {url[:100]!r}")
    if not is_loopback(parts.hostname) and parts.hostname not in hosts:
        raise ConfigError(
            f"webhooks go to this machine only, and {parts.hostname!r} is another; start the server with "
            f"--webhook-host {parts.hostname}"
        )
    try:
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"the webhook {url[:100]!r} has no port that there can be") from error
    return url


class Webhooks:
    """A thread that posts what is new. `addresses` gives the webhook of each watch that has one."""

    def __init__(self, store: WatchStore, addresses: Callable[[], Mapping[str, str]]) -> None:
        self._store, self._addresses = store, addresses
        self._wake, self._closed = threading.Event(), False
        self._waits: dict[str, tuple[float, float]] = {}  # by watch: until when, and how long the next time
        self._thread = threading.Thread(target=self._work, name="geopatch-webhooks", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        self._thread.join(TIMEOUT_S)

    def _work(self) -> None:
        while not self._closed:
            self._wake.clear()
            try:
                for watch, url in self._addresses().items():
                    self._deliver(watch, url)
            except Exception:  # the thread must outlive whatever happens
                log.exception("events could not be posted")
            until = min((until for until, _ in self._waits.values()), default=time.monotonic() + IDLE_S)
            self._wake.wait(max(min(until - time.monotonic(), IDLE_S), 0.05))

    def _deliver(self, watch: str, url: str) -> None:
        until, wait_s = self._waits.get(watch, (0.0, FIRST_WAIT_S))
        if time.monotonic() < until:
            return
        for n, body in self._store.events(watch, self._store.delivered(watch), TOGETHER):
            if self._closed:
                return
            if not posted(url, n, {"id": n, **body}):
                self._waits[watch] = (time.monotonic() + wait_s, min(2 * wait_s, LONGEST_WAIT_S))
                return
            self._store.set_delivered(watch, n)
            self._waits.pop(watch, None)


def posted(url: str, n: int, body: Mapping[str, Any]) -> bool:
    """Whether an event was taken: any answer of 2xx. Redirections are not followed."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Content-Type": "application/json", "X-GeoPatch-Event": str(n)}
    try:
        connection.request("POST", path, json.dumps(body), headers)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        log.warning("event %d could not be posted to %s: %s", n, parts.hostname, error)
        return False
    finally:
        connection.close()
    if not 200 <= status < 300:
        log.warning("event %d was answered with %d by %s", n, status, parts.hostname)
    return 200 <= status < 300
