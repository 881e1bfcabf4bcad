"""A gallery of version 0.1 (format 1) is upgraded in place, whole or not at all, and answers as it did."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import runner
from galleries import everything, same
from servers import PostgresServer, running_server

from geopatch.errors import GalleryError, LockedError
from geopatch.gallery import Gallery

DATA = Path(__file__).parent / "data"
EXPECTED: dict[str, Any] = json.loads((DATA / "gallery-0.1.json").read_text())
LAYOUTS = {("MLII", "V5"), ("V5", "MLII")}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "gallery-0.1", tmp_path / "gallery"))


def check_answers(gallery: Gallery) -> None:
    """What version 0.1 said of this gallery."""
    assert len(gallery) == EXPECTED["windows"]
    for search in EXPECTED["searches"]:
        hits = gallery.search(**search["options"])
        assert [hit.id for hit in hits] == [id for id, _ in search["hits"]]
        assert np.allclose([hit.score for hit in hits], [score for _, score in search["hits"]], atol=1e-5)
    for id, values in EXPECTED["second_channel"].items():
        window = gallery.get(id).windows[0]
        assert window is not None
        assert np.array_equal(window.values[:, 1], np.asarray(values, dtype=np.float32), equal_nan=True)
        assert window.anchors is None
    assert gallery.get("w5").metadata == ({"sex": "M", "age": 35, "paced": False, "note": "kept"},)


def check_upgraded(gallery: Gallery) -> None:
    check_answers(gallery)
    assert gallery.about.rate_hz is None  # 1 Hz meant that no rate was known
    assert gallery.about.channels == ()
    assert set(gallery.layouts()) == LAYOUTS
    windows = [window for batch in gallery.scan() for window in batch.windows if window is not None]
    assert {window.rate_hz for window in windows} == {None, 128.0}
    assert gallery.get("w0").channels == (("MLII", "V5"),)


def test_an_old_gallery_says_how_to_upgrade_it(old: Path) -> None:
    for read_only in (False, True):
        with pytest.raises(GalleryError, match=f"run: geopatch gallery upgrade {old}"):
            Gallery.open(old, read_only=read_only)


def test_an_old_gallery_is_upgraded_and_finds_the_same(old: Path) -> None:
    assert Gallery.upgrade(old)
    assert not Gallery.upgrade(old)
    with Gallery.open(old) as gallery:
        check_upgraded(gallery)
        gallery.optimize()
        check_answers(gallery)


def test_the_command_upgrades(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = runner(capsys, "gallery")
    assert run("upgrade", old).out == f"upgraded {old} to the present format\n"
    assert run("upgrade", old).out == f"{old} has the present format already\n"
    assert json.loads(run("info", old, "--json").out)["windows"] == EXPECTED["windows"]


KILLED = """
import sys, time
from geopatch.engines import folder
from geopatch.gallery import Gallery
unpack, folder.UPGRADE_BATCH = folder.unpack_window, 5
def slow(blob):
    print("at work", flush=True)
    time.sleep(0.2)
    return unpack(blob)
folder.unpack_window = slow
Gallery.upgrade(sys.argv[1])
"""


def test_a_killed_upgrade_can_be_done_again(old: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(old)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(8):
            assert process.stdout.readline() == "at work\n"
        with pytest.raises(LockedError, match=f"is being written by process {process.pid}"):
            Gallery.upgrade(old)
        os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(GalleryError, match="has format 1"):
        Gallery.open(old)
    assert Gallery.upgrade(old)
    with Gallery.open(old) as gallery:
        check_upgraded(gallery)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with running_server() as running:
        yield running


def test_a_gallery_on_a_server_is_upgraded(server: PostgresServer, old: Path) -> None:
    """Put back to format 1 in all that an old one has: tables, description and windows."""
    blobs = (
        sqlite3.connect(old / "gallery.sqlite").execute("SELECT id, window FROM entry JOIN detail USING (n)").fetchall()
    )
    assert Gallery.upgrade(old)
    place = server.url("old")
    with Gallery.open(old, read_only=True) as gallery:
        gallery.copy(place)
        entries = everything(gallery)
    tables = "geopatch_old"
    server.ask(f"ALTER TABLE {tables}.entry DROP COLUMN channels")
    told = json.loads(server.ask(f"SELECT told FROM {tables}.about")[0][0])
    del told["channels"]
    server.ask(f"UPDATE {tables}.about SET told = '{json.dumps({**told, 'format': 1, 'rate_hz': 1.0})}'")
    for id, blob in blobs:
        if blob is not None:
            server.ask(f"UPDATE {tables}.entry SET kept_window = '\\x{blob.hex()}' WHERE id = '{id}'")
    with pytest.raises(GalleryError, match="geopatch gallery upgrade postgresql://"):
        Gallery.open(place)
    assert Gallery.upgrade(place)
    assert not Gallery.upgrade(place)
    with Gallery.open(place) as gallery:
        check_upgraded(gallery)
        assert all(same(entry, entries[id]) for id, entry in everything(gallery).items())
