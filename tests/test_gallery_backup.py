"""Backups of a folder gallery: taken while it is written and searched, put back in one change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from galleries import ABOUT, entries_of, everything, same

from geopatch.errors import ExistsError, GalleryError, LockedError, NotFoundError
from geopatch.gallery import Gallery

IDS = [f"w {n}" for n in range(40)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with Gallery.create(tmp_path / "gallery", ABOUT) as gallery:
        gallery.add(entries_of(IDS))
        gallery.engine.write_documents("file", {"a": "b"})
    return tmp_path / "gallery"


@pytest.mark.parametrize("scheme", ["", "exact:"])
def test_a_backup_restores_to_the_same_gallery(tmp_path: Path, scheme: str) -> None:
    reports: list[tuple[int, int]] = []
    with Gallery.create(f"{scheme}{tmp_path / 'gallery'}", ABOUT) as gallery:
        gallery.add(entries_of(IDS))
        gallery.remove(IDS[3])
        gallery.engine.write_documents("file", {"a": "b"})
        size = gallery.backup(tmp_path / "file.backup", report=lambda done, total: reports.append((done, total)))
        assert size == (tmp_path / "file.backup").stat().st_size
        assert reports[-1][0] == reports[-1][1] > 0
        before, engine = everything(gallery), gallery.info().engine
    Gallery.restore(tmp_path / "file.backup", tmp_path / "restored")
    with Gallery.open(tmp_path / "restored") as restored:
        after = everything(restored)
        assert list(after) == list(before)
        assert all(same(after[id], before[id]) for id in before)
        assert (restored.engine.documents("file"), restored.info().engine) == ({"a": "b"}, engine)
        restored.add(entries_of(["new"], seed=5))  # it can be written on
        assert len(restored) == len(IDS)


def test_a_backup_is_of_one_moment_while_others_write(place: Path, tmp_path: Path) -> None:
    with Gallery.open(place) as writer, Gallery.open(place, read_only=True) as reader:
        writes = iter(range(1000))

        def write(_done: int, _total: int) -> None:
            writer.add(entries_of([f"meanwhile {next(writes)}"], seed=7))

        reader.backup(tmp_path / "file.backup", report=write)
        assert len(writer) > len(IDS)
    Gallery.restore(tmp_path / "file.backup", tmp_path / "restored")
    with Gallery.open(tmp_path / "restored", read_only=True) as restored:
        assert set(everything(restored)) == set(IDS)


def test_a_gallery_in_use_gets_what_the_backup_holds(place: Path, tmp_path: Path) -> None:
    with Gallery.open(place, read_only=True) as reader:
        reader.backup(tmp_path / "file.backup")
        first = everything(reader)
    with Gallery.open(place) as writer:
        writer.remove(IDS[:30])
        writer.add(entries_of(["later"], seed=9))
    with Gallery.open(place, read_only=True) as reader:
        query = first[IDS[5]].embedding
        assert reader.shortlist(query, 1)[0].ids != (IDS[5],)
        Gallery.restore(tmp_path / "file.backup", place)
        assert reader.shortlist(query, 1)[0].ids == (IDS[5],)  # without being opened again
        after = everything(reader)
        assert list(after) == list(first)
        assert all(same(after[id], first[id]) for id in first)
        np.testing.assert_array_equal(reader.shortlist(query, 50)[0].scores.size, len(IDS))
        number = reader.engine.next_number()
    assert number > len(IDS)  # numbers of entries that were there are not used again


def test_what_cannot_be_backed_up_or_restored_is_one_line(place: Path, tmp_path: Path) -> None:
    with Gallery.open(place) as gallery:
        gallery.backup(tmp_path / "file.backup")
        with pytest.raises(ExistsError, match="exists already"):
            gallery.backup(tmp_path / "file.backup")
        with pytest.raises(LockedError, match="being written"):
            Gallery.restore(tmp_path / "file.backup", place)
    with pytest.raises(NotFoundError, match=r"no backup .*nowhere"):
        Gallery.restore(tmp_path / "nowhere", place)
    (tmp_path / "text").write_text("no database")
    with pytest.raises(GalleryError, match="is no backup of a gallery"):
        Gallery.restore(tmp_path / "text", place)
    whole = (tmp_path / "file.backup").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GalleryError, match=r"no backup of a gallery|damaged"):
        Gallery.restore(tmp_path / "cut", tmp_path / "other")
    with pytest.raises(GalleryError, match="pg_dump"):
        Gallery.restore(tmp_path / "file.backup", "postgresql://me@nowhere:1/db/g")
    with Gallery.open(place, read_only=True) as gallery:
        assert set(everything(gallery)) == set(IDS)
