"""The guard: which requests may pass, how large and how slow they may be, and the headers of every answer."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
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

OPEN = ("/", "/api", "/health", "/ready")  # nothing of the gallery is shown there
OPEN_BELOW = "/page/"
SAFE = ("GET", "HEAD", "OPTIONS")
READING = (
    "/api/search",
    "/api/search/file",
    "/api/explain",
    "/api/read",
)  # these are sent with POST and change nothing
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
# Headers that proxies, load balancers and content networks add: none of them comes from a client on this machine.
PROXY_HEADER = re.compile(
    r"via|cdn-loop|remote-?addr|.*forward.*|.*prox(y|ied).*|(.*[-_])?(client|real|user|remote|peer|source|cluster)?[-_]?ip"
    r"|.*-(addr|address|country)|(cf|fly|fastly|akamai|incap|tailscale|ngrok|x-(original|originating|amzn?|aws|arr|azure"
    r"|appengine|cloud|cdn|edge|envoy|google|varnish|vercel|sucuri|cluster))-.*"
)
FREE_FAILURES = 10  # wrong tokens of one address before it has to wait
MAX_WAIT_S = 60.0
FORGET_S = 3600.0
MAX_ADDRESSES = 4_096
LOG_EVERY_S = 1.0

log = logging.getLogger(__name__)


class Guard:
    """An ASGI application that checks each request before it passes it on to another one."""

    def __init__(
        self, app: App, settings: Settings, metrics: Metrics, stop_following: Callable[[], None] = lambda: None
    ) -> None:
        self.app, self.settings, self.metrics, self.stop_following = app, settings, metrics, stop_following
        self.throttle = Throttle(metrics)
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
        if self._under_way > limits.requests:
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
            raise overloaded(f"no answer within {limits.answer_s:g} s; search for less, or again in a moment")

    def check(self, scope: Scope, headers: MutableMapping[str, str]) -> None:
        """Whether this request may go on: the right token, or from this machine where none is set."""
        if headers.get("sec-fetch-site") == "cross-site" and scope["method"] not in SAFE:
            raise RefusedError(403, "a page of another site may not use this server")
        if scope["method"] not in SAFE and scope["path"] not in READING:
            self._check_writer(scope, headers)
        elif not _is_open(scope["path"]) and self.settings.token is not None:
            accepted = [token for token in (self.settings.token, self.settings.write_token) if token is not None]
            self._check_token(scope, headers, accepted, "this server is read with a token")
        if self.settings.token is None:
            _check_from_here(scope, headers)

    def _check_writer(self, scope: Scope, headers: MutableMapping[str, str]) -> None:
        if self.settings.write_token is None:
            raise RefusedError(403, "this server writes nothing: it was started without --write-token-file")
        self._check_token(scope, headers, [self.settings.write_token], "writing needs the write token")

    def _check_token(self, scope: Scope, headers: MutableMapping[str, str], accepted: list[str], why: str) -> None:
        """Digests are compared, in a time that depends neither on where tokens differ nor on how long they are."""
        refusal = RefusedError(401, f"{why}; send it as: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        sent = headers.get("authorization")
        if sent is None:
            raise refusal
        address = _client(scope)
        self.throttle.check(address)
        kind, _, token = sent.partition(" ")
        digest = _digest(token.strip() if kind.lower() == "bearer" else "")
        known = [one for one in (self.settings.token, self.settings.write_token) if one is not None]
        matches = [one for one in known if hmac.compare_digest(digest, _digest(one))]
        if not matches:
            self.throttle.failed(address)
        if not set(matches) & set(accepted):  # wrong, or that of a reader who tries to write
            raise refusal
        self.throttle.passed(address)


@dataclass
class _Attempts:
    """Of one address."""

    failures: int = 0
    last_s: float = 0.0
    wait_until_s: float = 0.0
    passed: bool = False


class Throttle:
    """Wrong tokens by address: after ten of them each further one doubles the time until the next is looked at.

    An address that has sent the right token within the hour is never made to wait: behind a proxy everybody has one
    address, and one stranger must not shut out the others. The table has a fixed size; the oldest address is forgotten.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics, self._clock = metrics, clock
        self._attempts: OrderedDict[str, _Attempts] = OrderedDict()
        self._logged_s, self._since_logged = -LOG_EVERY_S, 0

    def __len__(self) -> int:
        return len(self._attempts)

    def check(self, address: str) -> None:
        """429 while the address has to wait; its token is not even looked at."""
        attempts, now = self._attempts.get(_network(address)), self._clock()
        if attempts is None or (attempts.passed and now - attempts.last_s < FORGET_S) or now >= attempts.wait_until_s:
            return
        seconds = int(attempts.wait_until_s - now) + 1
        line = f"{attempts.failures} wrong tokens came from {address}; try again in {seconds} s"
        raise RefusedError(429, line, {"Retry-After": str(seconds)})

    def failed(self, address: str) -> None:
        attempts, now = self._of(address), self._clock()
        attempts.failures, attempts.last_s = attempts.failures + 1, max(now, attempts.last_s)
        if attempts.failures >= FREE_FAILURES:
            attempts.wait_until_s = now + min(2.0 ** (attempts.failures - FREE_FAILURES), MAX_WAIT_S)
        self._metrics.wrong_token()
        self._since_logged += 1
        if now - self._logged_s >= LOG_EVERY_S:
            log.warning("%d wrong tokens since the last such line, the last one from %s", self._since_logged, address)
            self._logged_s, self._since_logged = now, 0

    def passed(self, address: str) -> None:
        attempts = self._of(address)
        attempts.passed, attempts.last_s, attempts.failures = True, self._clock(), 0

    def _of(self, address: str) -> _Attempts:
        name, now = _network(address), self._clock()
        attempts = self._attempts.pop(name, None)
        if attempts is None or now - attempts.last_s >= FORGET_S:
            attempts = _Attempts(last_s=now)
        self._attempts[name] = attempts
        if len(self._attempts) > MAX_ADDRESSES:
            self._attempts.popitem(last=False)
        return attempts


def _client(scope: Scope) -> str:
    return str((scope.get("client") or ("", 0))[0])


def _network(address: str) -> str:
    """The address, or the first half of one of IPv6: a whole network of 2**64 belongs to one client."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    is_network = isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None
    return parsed.exploded[:19] if is_network else address


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("latin-1", "replace")).digest()


def _check_from_here(scope: Scope, headers: MutableMapping[str, str]) -> None:
    """Without a token only this machine is answered: not through a proxy, nor under a name that others can give it."""
    host = headers.get("host", "").rsplit("@")[-1]
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if not is_loopback(_client(scope)) or not is_loopback(name) or any(map(PROXY_HEADER.fullmatch, headers)):
        raise RefusedError(403, "only this machine is answered; start the server with --token-file to let others in")


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith(OPEN_BELOW)


def _is_upload(headers: MutableMapping[str, str]) -> bool:
    return headers.get("content-type", "").lower().startswith("multipart/")


class _Body:
    """The body of a request, up to a size and until a time."""

    def __init__(self, receive: Receive, headers: MutableMapping[str, str], most: int, seconds: float) -> None:
        self._receive, self._most, self._until = receive, most, time.monotonic() + seconds
        self._seconds, self._received, self._whole = seconds, 0, False
        self.refusal: RefusedError | None = None
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            raise RefusedError(400, f"expected a Content-Length in bytes, got {length[:40]!r}")
        if int(length[:20]) > most:
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
        self._received += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._received > self._most:
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
            added = {**HEADERS, **({"Cache-Control": "no-store"} if self._private else {})}
            extra = [(name.lower().encode(), value.encode()) for name, value in added.items()]
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
