"""Laws of storage: the target is the old whole or the new whole, and nothing is left beside it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from geopatch.errors import GeoPatchError
from geopatch.storage import atomic_file, atomic_folder

Writer = Callable[[Path], AbstractContextManager[Path]]


@pytest.fixture(params=[atomic_file, atomic_folder], ids=["file", "folder"])
def writer(request: pytest.FixtureRequest) -> Writer:
    chosen: Writer = request.param
    return chosen


def put(partial: Path, text: str) -> None:
    """Some content, be the partial a folder or a file to be."""
    (partial / "inside.txt" if partial.is_dir() else partial).write_text(text)


def old_model(folder: Path) -> Path:
    target = folder / "model"
    target.mkdir()
    (target / "old.txt").write_text("old")
    return target


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_file_is_there_only_after_the_block(tmp_path: Path) -> None:
    target = tmp_path / "rows.jsonl"
    with atomic_file(target) as partial:
        partial.write_text("new")
        assert not target.exists()
        assert partial.parent == tmp_path
    assert target.read_text() == "new"
    assert files(tmp_path) == ["rows.jsonl"]


def test_file_replaces_the_old_one_whole(tmp_path: Path) -> None:
    target = tmp_path / "rows.jsonl"
    target.write_text("old")
    with atomic_file(str(target)) as partial:
        partial.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"


def test_file_keeps_its_suffix_for_libraries_that_add_one(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "windows.npy") as partial:
        np.save(partial, np.arange(3))
    assert files(tmp_path) == ["windows.npy"]


def test_folder_is_there_only_after_the_block(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with atomic_folder(target) as partial:
        assert partial == tmp_path / f".model.partial-{os.getpid()}"
        (partial / "deep").mkdir()
        (partial / "deep" / "weights").write_text("new")
        assert not target.exists()
    assert files(tmp_path) == ["model/deep/weights"]


def test_folder_overwrites_only_when_told(tmp_path: Path) -> None:
    target = old_model(tmp_path)
    with (
        pytest.raises(GeoPatchError, match="exists already; give another path or allow overwriting"),
        atomic_folder(target),
    ):
        pytest.fail("the work must not start")
    assert files(tmp_path) == ["model/old.txt"]
    with atomic_folder(target, overwrite=True) as partial:
        put(partial, "new")
        assert files(target) == ["old.txt"]
    assert files(tmp_path) == ["model/inside.txt"]


def test_folder_made_meanwhile_by_another_is_kept(tmp_path: Path) -> None:
    with pytest.raises(GeoPatchError, match="exists already"), atomic_folder(tmp_path / "model"):
        old_model(tmp_path)
    assert files(tmp_path) == ["model/old.txt"]


def test_partial_folder_of_a_killed_process_is_cleared(tmp_path: Path) -> None:
    stale = tmp_path / f".model.partial-{os.getpid()}"
    stale.mkdir()
    (stale / "half.txt").write_text("half")
    with atomic_folder(tmp_path / "model") as partial:
        put(partial, "new")
    assert files(tmp_path) == ["model/inside.txt"]


@pytest.mark.parametrize("stop", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_failure_in_mid_write_leaves_nothing(tmp_path: Path, writer: Writer, stop: type[BaseException]) -> None:
    with pytest.raises(stop), writer(tmp_path / "target") as partial:
        put(partial, "half")
        raise stop
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stop", [RuntimeError, KeyboardInterrupt])
def test_failure_in_mid_write_keeps_the_old(tmp_path: Path, stop: type[BaseException]) -> None:
    target = old_model(tmp_path)
    with pytest.raises(stop), atomic_folder(target, overwrite=True) as partial:
        put(partial, "half")
        raise stop
    assert files(tmp_path) == ["model/old.txt"]


def test_interrupted_swap_puts_the_old_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = old_model(tmp_path)
    rename = os.rename

    def interrupted(source: Path, to: Path) -> None:
        if ".partial-" in source.name:
            raise KeyboardInterrupt
        rename(source, to)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_folder(target, overwrite=True) as partial:
        put(partial, "new")
    assert files(tmp_path) == ["model/old.txt"]


def test_writing_goes_through_a_link(tmp_path: Path) -> None:
    target = old_model(tmp_path)
    link = tmp_path / "latest"
    link.symlink_to(target)
    with atomic_folder(link, overwrite=True) as partial:
        put(partial, "new")
    assert link.is_symlink()
    assert files(target) == ["inside.txt"]


def test_missing_parent(tmp_path: Path, writer: Writer) -> None:
    with (
        pytest.raises(GeoPatchError, match=r"there is no folder .*nowhere; create it first"),
        writer(tmp_path / "nowhere" / "target"),
    ):
        pytest.fail("the work must not start")


def test_folder_where_a_file_should_go(tmp_path: Path) -> None:
    with pytest.raises(GeoPatchError, match="expected a file, but a folder is there"), atomic_file(tmp_path):
        pytest.fail("the work must not start")


def test_file_where_a_folder_should_go(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("a file")
    with (
        pytest.raises(GeoPatchError, match="expected a folder, but a file is there"),
        atomic_folder(tmp_path / "model", overwrite=True),
    ):
        pytest.fail("the work must not start")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full; free some space"),
        (errno.EDQUOT, "quota is used up"),
        (errno.EROFS, "the disk is read-only"),
        (errno.EACCES, "no permission to write there; give a path in a folder"),
        (errno.EMFILE, "Too many open files; mend that"),
    ],
)
def test_system_errors_become_one_line(tmp_path: Path, writer: Writer, number: int, words: str) -> None:
    with (
        pytest.raises(GeoPatchError, match=rf"cannot write .*target: .*{words}") as caught,
        writer(tmp_path / "target") as partial,
    ):
        put(partial, "half")
        raise OSError(number, os.strerror(number))
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_full_disk_when_the_data_is_flushed(tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GeoPatchError, match="the disk is full"), writer(tmp_path / "target") as partial:
        put(partial, "all of it")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "told",
    [
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),  # safetensors
        OSError("100000 requested and 8176 written"),  # numpy
    ],
)
def test_full_disk_told_in_words_only(tmp_path: Path, writer: Writer, told: Exception) -> None:
    with pytest.raises(GeoPatchError, match="the disk is full"), writer(tmp_path / "target"):
        raise told


def test_other_errors_pass_unchanged(tmp_path: Path, writer: Writer) -> None:
    with pytest.raises(RuntimeError, match="not about storage"), writer(tmp_path / "target"):
        raise RuntimeError("not about storage")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_parent(tmp_path: Path, writer: Writer) -> None:
    parent = tmp_path / "closed"
    parent.mkdir(mode=0o555)
    with pytest.raises(GeoPatchError, match="no permission to write there"), writer(parent / "target") as partial:
        put(partial, "half")


def test_errors_about_other_files_pass(tmp_path: Path, writer: Writer) -> None:
    with pytest.raises(FileNotFoundError), writer(tmp_path / "target"):
        (tmp_path / "input.csv").read_text()
    assert list(tmp_path.iterdir()) == []
