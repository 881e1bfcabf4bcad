"""The settings of a server: where it listens, who may use it, and how much of anything it takes."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from geopatch.errors import ConfigError, at_least

MIN_TOKEN = 16


@dataclass(frozen=True)
class Limits:
    """How much of anything the server takes; beyond it a request is refused in one line.

    Parameters
    ----------
    json_bytes, upload_bytes : int
        Largest body of a JSON request and of an upload.
    values, channels : int
        Samples times channels, and channels, of one signal.
    query_samples, dtw_samples : int
        Longest query, and longest query of the scorer `dtw`.
    filter_parts : int
        Comparisons in one metadata filter.
    record_windows : int
        Windows that are cut from one uploaded recording.
    streams : int
        Sensors that stream at the same time.
    watches : int
        Patterns that streams are watched for.
    search_queue, write_queue : int
        Searches and changes that wait for their turn; one more is answered with 503.
    batch_size : int
        Searches in one batch; larger batches make the searches after them wait longer.
    requests, connections : int
        Requests under way and open connections; never more connections than three quarters of the file limit.
    head_bytes : int
        Largest request line with headers; beyond it the answer is 431.
    head_s, body_s, answer_s, drain_s : float
        Seconds for the headers and the body to arrive, for an answer, and for open requests after SIGTERM.
    """

    json_bytes: int = 4_000_000
    upload_bytes: int = 32_000_000
    values: int = 8_000_000
    channels: int = 512
    query_samples: int = 65_536
    dtw_samples: int = 4_096
    filter_parts: int = 100
    record_windows: int = 10_000
    streams: int = 256
    watches: int = 64
    search_queue: int = 256
    write_queue: int = 32
    batch_size: int = 16
    requests: int = 1_024
    connections: int = 1_024
    head_bytes: int = 65_536
    head_s: float = 20.0
    body_s: float = 30.0
    answer_s: float = 60.0
    drain_s: int = 60


def default_workers() -> int:
    """Two where there are two cores: searches wait less for each other; each worker holds the model in memory."""
    return min(2, os.cpu_count() or 1)


@dataclass(frozen=True)
class Settings:
    """Where a server listens and who may use it.

    Without a token only this machine is answered; without a write token nothing can be written.

    Parameters
    ----------
    host : str, default="127.0.0.1"
        Address to listen on; any other than loopback needs a token.
    port : int, default=8000
        Port to listen on; 0 takes a free one.
    token, write_token : str, optional
        What requests that read, and requests that write, send as ``Authorization: Bearer TOKEN``.
    limits : Limits
        Sizes, times and counts beyond which requests are refused.
    workers : int
        Processes that search; two by default, one on a machine with one core.
    watch_file : Path, optional
        Where watches and their events are kept; by default in the folder of the gallery.
    webhook_hosts : tuple of str, default=()
        Other machines that events may be posted to; without, only this one.

    Raises
    ------
    ConfigError
        When a token is too short, or is missing for an address that other machines can reach.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    write_token: str | None = None
    limits: Limits = field(default_factory=Limits)
    workers: int = field(default_factory=default_workers)
    watch_file: Path | None = None
    webhook_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        at_least("workers", self.workers, 1)
        for name, token in (("token", self.token), ("write token", self.write_token)):
            if token is not None and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable()):
                raise ConfigError(
                    f"the {name} must have at least {MIN_TOKEN} printable ASCII characters; "
                    "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
                )
        if self.token is None and not is_loopback(self.host):
            raise ConfigError(
                f"listening on {self.host} lets other machines in, which needs a token; "
                "give --token-file, or listen on 127.0.0.1"
            )

    @property
    def url(self) -> str:
        """The address of the page."""
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
    """The token in a file of one line; None without a file."""
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the token file {path}: {error}; write one line of text into it") from error
