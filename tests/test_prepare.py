"""Prepared data sets: made once, made anew when the source has changed, kept where the source is gone."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from geopatch.data.cache import HEADER, Cache, window_pairs, write_cache
from geopatch.data.collection import WindowSet
from geopatch.data.prepare import prepare
from geopatch.data.recording import WindowConfig, cut_windows
from geopatch.data.sample import basic_motions, mitdb_minutes
from geopatch.errors import ConfigError, DataError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An archive set of six series, as two files."""
    for side in ("TRAIN", "TEST"):
        lines = [f"{n % 2}\t" + "\t".join(str(n * t % 7) for t in range(20)) for n in range(6)]
        (tmp_path / "root").mkdir(exist_ok=True)
        (tmp_path / "root" / f"Toy_{side}.tsv").write_text("\n".join(lines) + "\n")
    return tmp_path / "root"


def test_made_once_and_anew_when_the_source_changes(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "cache"
    first = prepare("Toy", root, folder)
    assert first.built
    assert len(first.cache.signals("train")) == 6
    assert first.cache.targets("test")["class"].tolist() == ["0", "1"] * 3
    before = {path.name: path.read_bytes() for path in (folder / "Toy").iterdir()}
    assert not prepare("Toy", root, folder).built
    text = (root / "Toy_TEST.tsv").read_text()
    (root / "Toy_TEST.tsv").write_text(text.replace("6", "5", 1))
    assert prepare("Toy", root, folder).built
    after = {path.name: path.read_bytes() for path in (folder / "Toy").iterdir()}
    assert after["train_windows.npy"] == before["train_windows.npy"]
    assert after["val_windows.npy"] != before["val_windows.npy"]


def test_a_damaged_cache_is_made_anew(root: Path, tmp_path: Path) -> None:
    prepare("Toy", root, tmp_path)
    stack = tmp_path / "Toy" / "train_windows.npy"
    os.truncate(stack, stack.stat().st_size - 4)
    assert prepare("Toy", root, tmp_path).built
    Cache(tmp_path / "Toy").verify()


def test_a_cache_of_an_earlier_format_is_made_anew(root: Path, tmp_path: Path) -> None:
    header = prepare("Toy", root, tmp_path).cache.folder / HEADER
    assert not prepare("Toy", root, tmp_path).built
    header.write_text(json.dumps({**json.loads(header.read_text()), "format": 1, "rate_hz": 1.0}))
    assert Cache(tmp_path / "Toy").header.rate_hz is None, "it can still be read"
    assert prepare("Toy", root, tmp_path).built


def test_a_cache_alone_is_taken_as_it_is(root: Path, tmp_path: Path) -> None:
    prepare("Toy", root, tmp_path / "cache")
    (root / "Toy_TRAIN.tsv").unlink()
    assert not prepare("Toy", root, tmp_path / "cache").built


def test_a_cache_alone_of_other_settings_is_refused(tmp_path: Path) -> None:
    windows = cut_windows("nsrdb", mitdb_minutes()[:1])
    (tmp_path / "cache").mkdir()
    write_cache(tmp_path / "cache" / "nsrdb", "nsrdb", {"train": window_pairs(windows)}, length=256)
    with pytest.raises(DataError, match="its source is not there to make it anew"):
        prepare("nsrdb", tmp_path, tmp_path / "cache", config=replace(WindowConfig(), length_s=1.0))


def test_settings_of_another_kind_are_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Toy takes no config, got a WindowConfig"):
        prepare("Toy", root, tmp_path, config=WindowConfig())


def test_the_sample_comes_back_from_a_cache(tmp_path: Path) -> None:
    train, _ = basic_motions()
    assert train.labels is not None
    windows = WindowSet("motions", train.signals, {"class": train.labels})
    cache = write_cache(tmp_path / "cache", "motions", {"train": window_pairs(windows)}, length=100)
    assert cache.windows("train").collection("class").digest() == train.digest()
