"""What was acknowledged stays: processes and servers killed in mid-add, full and read-only disks, a lost server."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from adding import BATCH, ids_of
from galleries import ABOUT, entries_of, same
from servers import PostgresServer, running_server

from geopatch.errors import GalleryError
from geopatch.gallery import Gallery

KILLS = int(os.environ.get("GEOPATCH_KILLS", "2"))
LONGEST_S = 0.6  # from the first acknowledged batch to the kill
HERE = Path(__file__).parent


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with running_server() as running:
        yield running


def add_until_killed(place: str, first: int, moment_s: float, kill: signal.Signals = signal.SIGKILL) -> list[int]:
    """The batches that a process had acknowledged when it was killed."""
    command = [sys.executable, str(HERE / "adding.py"), place, str(first)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("\n")
        process.stdin.flush()
        acknowledged = [int(process.stdout.readline())]
        timer = threading.Timer(moment_s, os.kill, (process.pid, kill))
        timer.start()
        acknowledged += [int(line) for line in process.stdout if line.endswith("\n")]
        timer.join()
    return acknowledged


def check_whole(gallery: Gallery, acknowledged: list[int], ever: int) -> None:
    """Every acknowledged batch is there, none twice, and of all others all or nothing."""
    for batch in acknowledged:
        assert same(gallery.fetch(ids_of(batch)), entries_of(ids_of(batch), seed=batch))
    ids = [id for part in gallery.scan(512) for id in part.ids]
    assert len(ids) == len(set(ids)) == len(gallery)
    assert len(ids) % BATCH == 0
    assert len(ids) <= (len(acknowledged) + ever) * BATCH  # at most the one batch that each kill hit


@pytest.mark.parametrize("prefix", ["exact:", ""], ids=["exact", "embedded"])
def test_a_killed_writer_loses_nothing(prefix: str, tmp_path: Path) -> None:
    place = f"{prefix}{tmp_path / 'gallery'}"
    Gallery.create(place, ABOUT).close()
    draw, acknowledged = random.Random(0), list[int]()
    for kill in range(KILLS):
        acknowledged += add_until_killed(
            place, 1 + max(acknowledged, default=-1) + 10 * kill, draw.uniform(0, LONGEST_S)
        )
        with Gallery.open(place) as gallery:
            check_whole(gallery, acknowledged, kill + 1)


def test_a_killed_writer_of_a_server_loses_nothing(server: PostgresServer) -> None:
    place = server.url("crash")
    Gallery.create(place, ABOUT).close()
    acknowledged = add_until_killed(place, 0, 0.2)
    with Gallery.open(place) as gallery:
        check_whole(gallery, acknowledged, 1)


def test_a_killed_server_loses_nothing(server: PostgresServer) -> None:
    place = server.url("crash")
    Gallery.create(place, ABOUT).close()
    draw, acknowledged = random.Random(1), list[int]()
    for kill in range(KILLS):
        first = 1 + max(acknowledged, default=-1) + 10 * kill
        writer = threading.Thread(target=add_until_refused, args=(place, first, acknowledged))
        writer.start()
        while len(acknowledged) == 0 or acknowledged[-1] < first:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, LONGEST_S))
        server.kill()
        writer.join()
        server.start()
        with Gallery.open(place) as gallery:
            check_whole(gallery, acknowledged, kill + 1)


def add_until_refused(place: str, first: int, acknowledged: list[int]) -> None:
    with Gallery.open(place) as gallery:
        for batch in range(first, first + 100_000):
            try:
                gallery.add(entries_of(ids_of(batch), seed=batch))
            except GalleryError:
                return
            acknowledged.append(batch)


def test_a_connection_is_made_anew(server: PostgresServer) -> None:
    entries = entries_of(["a", "b"])
    with Gallery.create(server.url("again"), ABOUT) as gallery:
        gallery.add(entries)
        server.kill()
        with pytest.raises(GalleryError, match="cannot be reached or went away"):
            for _ in range(500):  # what serves a connection may outlive the server for a moment
                gallery.get("a")
                time.sleep(0.02)
        server.start()
        assert same(gallery.fetch(["a", "b"]), entries)


def test_a_promoted_replica_goes_on() -> None:
    """With a synchronous replica, what was acknowledged survives the loss of the first server."""
    first = PostgresServer()
    second = None
    try:
        second = _replica_of(first.create())
        hosts = f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
        place = f"postgresql://geopatch@{hosts}/postgres/failover"
        with Gallery.create(place, ABOUT) as gallery:
            gallery.add(entries_of(ids_of(0), seed=0))
        with Gallery.open(second.url("failover"), read_only=True) as reader:
            assert len(reader) == BATCH
        with pytest.raises(GalleryError):
            Gallery.open(second.url("failover"))
        first.kill()
        second.ask("SELECT pg_promote()")
        with Gallery.open(place) as gallery:
            check_whole(gallery, [0], 0)
            gallery.add(entries_of(ids_of(1), seed=1))
            check_whole(gallery, [0, 1], 0)
    finally:
        for running in (first, second):
            if running is not None:
                running.stop()


def _replica_of(first: PostgresServer) -> PostgresServer:
    second = first.replica()
    first.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
    first.ask("SELECT pg_reload_conf()")
    while not first.ask("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"):
        time.sleep(0.05)
    return second


SMALL_DISK = """
import resource, sys
from galleries import entries_of
from geopatch.errors import GalleryError
from geopatch.gallery import Gallery
with Gallery.open(sys.argv[1]) as gallery:
    gallery.add(entries_of(["a", "b", "c"]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    for batch in range(10_000):
        try:
            gallery.add(entries_of([f"{batch} {n}" for n in range(64)], seed=batch))
        except GalleryError as error:
            print(error)
            break
    assert len(gallery) == 3 + 64 * batch and batch > 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    gallery.add(entries_of(["after"]))
    print(batch)
"""


@pytest.mark.skipif(os.name != "posix", reason="sets a limit of POSIX systems")
@pytest.mark.parametrize("prefix", ["exact:", ""], ids=["exact", "embedded"])
def test_a_full_disk_is_one_line_and_the_gallery_goes_on(prefix: str, tmp_path: Path) -> None:
    place = f"{prefix}{tmp_path / 'gallery'}"
    Gallery.create(place, ABOUT).close()
    command = [sys.executable, "-c", SMALL_DISK, place, "1500000"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, timeout=120)
    assert done.returncode == 0, done.stderr
    told, batches = done.stdout.splitlines()
    assert "the disk" in told
    assert "what was added before is safe" in told
    with Gallery.open(place) as gallery:
        assert len(gallery) == 4 + 64 * int(batches)
        assert "after" in gallery


READ_ONLY = """
import os, sys
from galleries import ABOUT, entries_of
from geopatch.errors import GeoPatchError
import geopatch.engines.embedded, filelock
from geopatch.gallery import Gallery
query = entries_of(["q"]).embedding
os.setuid(65534)  # after the imports: another user may not be allowed to read these
for call in (lambda: Gallery.open(sys.argv[1]), lambda: Gallery.create(sys.argv[1] + "/inside", ABOUT)):
    try:
        call()
        print("no error")
    except GeoPatchError as error:
        print(error)
with Gallery.open(sys.argv[1], read_only=True) as gallery:
    print(len(gallery), len(gallery.shortlist(query, 5)[0].ids))
"""


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="takes another user's part, which only root can")
@pytest.mark.parametrize("prefix", ["exact:", ""], ids=["exact", "embedded"])
def test_a_read_only_folder_is_one_line_and_can_be_read(prefix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:  # not pytest's own, which is closed to other users
        os.chmod(folder, 0o755)
        with Gallery.create(f"{prefix}{folder}/gallery", ABOUT) as gallery:
            gallery.add(entries_of([str(n) for n in range(20)]))
        command = [sys.executable, "-c", READ_ONLY, f"{folder}/gallery"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, timeout=120)
    assert done.returncode == 0, done.stderr
    opened, created, read = done.stdout.splitlines()
    assert "cannot be written" in opened
    assert "read-only" in opened
    assert "no permission to write there" in created
    assert read == "20 5"
