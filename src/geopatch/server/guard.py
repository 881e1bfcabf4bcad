"""The guard at the door: who may ask, how large and how slow a request may be, and what every answer carries."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import anyio

from geopatch.server.metrics import Metrics
from geopatch.server.refusal import RefusedError, overloaded
from geopatch.server.settings import Settings, is_loopback

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/", "/api", "/health", "/ready")  # nothing of the gallery is told there
OPEN_BELOW = "/page/"
SAFE = ("GET", "HEAD", "OPTIONS")
READING = (
    "/api/search",
    "/api/search/file",
    "/api/explain",
    "/api/read",
)  # these are asked with POST and change nothing
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")

log = logging.getLogger(__name__)


class Guard:
    """An ASGI application round another one."""

    def __init__(self, app: App, settings: Settings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, answer = time.perf_counter(), _Answer(send, private=not _is_open(scope["path"]))
        self._under_way += 1
        try:
            await self._within_limits(scope, receive, answer)
        except RefusedError as refusal:
            await answer.refuse(refusal)
        finally:
            self._under_way -= 1
            self.metrics.request(scope, answer.status, time.perf_counter() - start)

    async def _within_limits(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        limits = self.settings.limits
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if self._under_way > limits.at_once:
            raise overloaded()
        self.check(scope, headers)
        answer.body = body = _Body(
            receive, headers, limits.upload_bytes if _is_upload(headers) else limits.json_bytes, limits.body_s
        )
        with anyio.move_on_after(limits.answer_s) as clock:
            await self.app(scope, body, answer)
        if body.refusal is not None and not answer.started:
            raise body.refusal
        if clock.cancelled_caught and not answer.started:
            raise overloaded(f"no answer within {limits.answer_s:g} s; ask for less, or again in a moment")

    def check(self, scope: Scope, headers: MutableMapping[str, str]) -> None:
        """Whether this request may go on: the right token, or from this machine where none is set."""
        if headers.get("sec-fetch-site") == "cross-site" and scope["method"] not in SAFE:
            raise RefusedError(403, "a page of another site may not ask this server")
        if scope["method"] not in SAFE and scope["path"] not in READING:
            self._check_writer(headers)
        elif not _is_open(scope["path"]) and self.settings.token is not None:
            wanted = [token for token in (self.settings.token, self.settings.write_token) if token is not None]
            _check_token(headers, wanted, "this server is read with a token")
        if self.settings.token is None:
            _check_from_here(scope, headers)

    def _check_writer(self, headers: MutableMapping[str, str]) -> None:
        if self.settings.write_token is None:
            raise RefusedError(403, "this server writes nothing: it was started without --write-token-file")
        _check_token(headers, [self.settings.write_token], "writing needs the write token")


def _check_token(headers: MutableMapping[str, str], wanted: list[str], why: str) -> None:
    """Digests are compared, in a time that depends neither on where tokens differ nor on how long they are."""
    kind, _, given = headers.get("authorization", "").partition(" ")
    came = _digest(given.strip() if kind.lower() == "bearer" else "")
    matches = [hmac.compare_digest(came, _digest(token)) for token in wanted]
    if not any(matches):
        told = f"{why}; send it as: Authorization: Bearer TOKEN"
        raise RefusedError(401, told, {"WWW-Authenticate": "Bearer"})


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("latin-1", "replace")).digest()


def _check_from_here(scope: Scope, headers: MutableMapping[str, str]) -> None:
    """Without a token only this machine is answered: not through a proxy, nor under a name that others can give it."""
    client = (scope.get("client") or ("", 0))[0]
    host = headers.get("host", "").rsplit("@")[-1]
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if not is_loopback(client) or not is_loopback(name) or any(header in headers for header in FORWARDED):
        raise RefusedError(403, "only this machine may ask; start the server with --token-file to let others in")


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith(OPEN_BELOW)


def _is_upload(headers: MutableMapping[str, str]) -> bool:
    return headers.get("content-type", "").lower().startswith("multipart/")


class _Body:
    """The body of a request, up to a size and until a time."""

    def __init__(self, receive: Receive, headers: MutableMapping[str, str], most: int, seconds: float) -> None:
        self._receive, self._most, self._until = receive, most, time.monotonic() + seconds
        self._seconds, self._came, self._whole = seconds, 0, False
        self.refusal: RefusedError | None = None
        promised = headers.get("content-length", "0")
        if not promised.isdecimal():
            raise RefusedError(400, f"expected a Content-Length in bytes, got {promised[:40]!r}")
        if int(promised[:20]) > most:
            raise self._too_large()

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()
        with anyio.move_on_after(self._until - time.monotonic()) as clock:
            message = await self._receive()
        if clock.cancelled_caught:
            self.refusal = RefusedError(
                408, f"the body did not arrive within {self._seconds:g} s; send it faster or less"
            )
            raise self.refusal
        self._came += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._came > self._most:
            self.refusal = self._too_large()
            raise self.refusal
        return message

    def _too_large(self) -> RefusedError:
        return RefusedError(413, f"this body may have {self._most / 1e6:g} MB; send less of the signal")


class _Answer:
    """What is sent back, with the headers that every answer carries."""

    def __init__(self, send: Send, *, private: bool) -> None:
        self._send, self._private = send, private
        self.status, self.started = 500, False
        self.body: _Body | None = None

    async def __call__(self, message: Message) -> None:
        if self.body is not None and self.body.refusal is not None and not self.started:
            return  # whatever the application makes of half a body: the refusal is the answer
        if message["type"] == "http.response.start":
            self.status, self.started = message["status"], True
            told = {**HEADERS, **({"Cache-Control": "no-store"} if self._private else {})}
            extra = [(name.lower().encode(), value.encode()) for name, value in told.items()]
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await self._send(message)

    async def refuse(self, refusal: RefusedError) -> None:
        if self.started:
            return
        self.body = None
        body = json.dumps({"detail": str(refusal)}).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **refusal.headers}
        if refusal.status in (408, 413):  # the rest of the body will not be read
            headers["Connection"] = "close"
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self({"type": "http.response.start", "status": refusal.status, "headers": raw})
        await self({"type": "http.response.body", "body": body})
