"""How a server is set up: where it listens, who may ask, and how much of anything it takes."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from geopatch.errors import ConfigError, at_least

LEAST_TOKEN = 16


@dataclass(frozen=True)
class Limits:
    """Beyond these a request is refused in one line."""

    json_bytes: int = 4_000_000
    upload_bytes: int = 32_000_000
    values: int = 8_000_000  # samples times channels of one upload
    channels: int = 512
    query_samples: int = 65_536
    dtw_samples: int = 4_096
    k: int = 1_000
    filter_parts: int = 100
    record_windows: int = 10_000  # of a record that is put together for drawing
    written: int = 4_096  # windows or ids in one request that writes
    streams: int = 256
    waiting: int = 256  # searches; one more is told to come back
    writes_waiting: int = 32
    together: int = 16  # searches in one batch: larger ones make those wait that come after them
    at_once: int = 1_024  # requests under way
    head_s: float = 20.0  # for a request to say what it wants
    body_s: float = 30.0  # for a body to arrive
    answer_s: float = 60.0
    drain_s: int = 60  # for what is under way when the server is told to stop


def usual_workers() -> int:
    """With a second one searches wait less for each other; each holds the model and the newest embeddings."""
    return min(2, os.cpu_count() or 1)


@dataclass(frozen=True)
class Settings:
    """Only this machine is answered unless there is a token; nothing can be written unless there is one for that."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    write_token: str | None = None
    limits: Limits = field(default_factory=Limits)
    workers: int = field(default_factory=usual_workers)  # processes that search

    def __post_init__(self) -> None:
        at_least("workers", self.workers, 1)
        for name, token in (("token", self.token), ("write token", self.write_token)):
            if token is not None and (len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable()):
                raise ConfigError(
                    f"the {name} must have at least {LEAST_TOKEN} printable ASCII characters; "
                    "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
                )
        if self.token is None and not is_loopback(self.host):
            raise ConfigError(
                f"listening on {self.host} lets other machines in, which needs a token; "
                "give --token-file, or listen on 127.0.0.1"
            )

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@lru_cache(64)
def is_loopback(host: str) -> bool:
    """Whether an address means this machine and no other."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def read_token(path: Path | None) -> str | None:
    """The token that stands in a file, on a line of its own."""
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the token file {path}: {error}; write one line of text into it") from error
