"""Laws of the cache: what was written is read, twice the same bytes, nothing half-valid, bounded memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from geopatch.data.cache import HEADER, MANIFEST, Cache, Window, window_pairs, write_cache
from geopatch.data.collection import WindowSet
from geopatch.data.recording import cut_windows
from geopatch.data.sample import mitdb_minutes
from geopatch.errors import DataError, GeoPatchError, SignalError
from geopatch.signal import Signal


@pytest.fixture(scope="module")
def ecg() -> WindowSet:
    return cut_windows("ecg", mitdb_minutes()[1:3])


def filled(folder: Path, windows: WindowSet, **settings: object) -> Cache:
    splits = {"train": window_pairs(windows), "test": window_pairs(windows)}
    return write_cache(folder, "ecg", splits, length=256, settings=settings)


def unequal() -> Iterator[Window]:
    for n, length in enumerate((5, 9, 7)):
        values = np.arange(length * 2, dtype=np.float32).reshape(length, 2)
        values[1, 0] = np.nan
        yield Signal.from_array(values, id=f"w{n}", rate_hz=4.0), {"class": f"c{n % 2}"}


def test_what_was_written_is_read(ecg: WindowSet, tmp_path: Path) -> None:
    filled(tmp_path / "cache", ecg)
    found = Cache(tmp_path / "cache").windows("test")
    assert [signal.id for signal in found.signals] == [signal.id for signal in ecg.signals]
    for was, read in zip(ecg.signals, found.signals, strict=True):
        np.testing.assert_array_equal(read.values, was.values)
        assert was.anchors is not None
        assert read.anchors is not None
        np.testing.assert_array_equal(read.anchors, was.anchors)
        assert (read.record, read.start_s, read.rate_hz) == (was.record, was.start_s, was.rate_hz)
    for target, labels in ecg.targets.items():
        assert found.targets[target].tolist() == labels.tolist()


def test_unequal_lengths_and_gaps_come_back(tmp_path: Path) -> None:
    cache = write_cache(tmp_path / "cache", "odd", {"train": unequal()}, length=9)
    signals = cache.signals("train")
    assert signals.lengths.tolist() == [5, 9, 7]
    for was, read in zip(unequal(), signals, strict=True):
        np.testing.assert_array_equal(read.values, was[0].values)
    assert cache.splits == ("train",)
    assert np.load(tmp_path / "cache" / "train_windows.npy", allow_pickle=False).shape == (3, 9, 2)


def test_twice_gives_the_same_bytes(ecg: WindowSet, tmp_path: Path) -> None:
    filled(tmp_path / "one", ecg)
    filled(tmp_path / "two", ecg)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == [HEADER, MANIFEST, "train_windows.npy", "val_windows.npy"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_an_interrupted_build_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[Window]:
        yield next(unequal())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_cache(tmp_path / "cache", "odd", {"train": broken()}, length=9)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_rebuild_leaves_the_old_cache(tmp_path: Path) -> None:
    write_cache(tmp_path / "cache", "odd", {"train": unequal()}, length=9)
    with pytest.raises(SignalError, match=r"'w1' has 9 samples, more than the 8"):
        write_cache(tmp_path / "cache", "odd", {"train": unequal()}, length=8, overwrite=True)
    Cache(tmp_path / "cache").verify()


def twice() -> Iterator[Window]:
    yield next(unequal())
    yield next(unequal())


def other_rate() -> Iterator[Window]:
    first, second, _ = unequal()
    yield first
    yield replace(second[0], rate_hz=8.0), second[1]


def other_channels() -> Iterator[Window]:
    yield next(unequal())
    yield Signal.from_array(np.ones((4, 3)), id="wide", rate_hz=4.0), {"class": "c0"}


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        (twice, "two windows have the id 'w0'"),
        (other_rate, "'w1' has 8 Hz, the first 4 Hz; bring all to one rate"),
        (other_channels, r"'wide' has 3 channels, the first 2"),
        (lambda: iter(()), "at least one window"),
    ],
)
def test_bad_windows_are_named(windows: object, message: str, tmp_path: Path) -> None:
    assert callable(windows)
    with pytest.raises(SignalError, match=message):
        write_cache(tmp_path / "cache", "odd", {"train": windows()}, length=9)
    assert not (tmp_path / "cache").exists()


def test_damage_is_one_clear_line(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    write_cache(folder, "odd", {"train": unequal()}, length=9)
    stack = folder / "train_windows.npy"
    whole = stack.read_bytes()
    stack.write_bytes(whole[:-4])
    with pytest.raises(DataError, match=r"train_windows\.npy: expected \d+ bytes, got \d+; prepare it again"):
        Cache(folder)
    stack.write_bytes(whole[:-4] + b"\0\0\0\0")
    with pytest.raises(DataError, match="changed since it was made; prepare odd again"):
        Cache(folder).verify()
    stack.write_bytes(b"x" * len(whole))
    with pytest.raises(DataError, match="prepare odd again"):
        Cache(folder).signals("train")
    (folder / HEADER).write_text(json.dumps({"name": "odd"}))
    with pytest.raises(DataError, match="no head of a cache"):
        Cache(folder)
    with pytest.raises(DataError, match="no cache"):
        Cache(tmp_path)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    write_cache(tmp_path / "cache", "odd", {"train": unequal()}, length=9)
    header = json.loads((tmp_path / "cache" / HEADER).read_text())
    (tmp_path / "cache" / HEADER).write_text(json.dumps({**header, "format": 99}))
    with pytest.raises(DataError, match="has format 99, this version reads 2"):
        Cache(tmp_path / "cache")


def test_a_split_it_lacks_is_refused(tmp_path: Path) -> None:
    cache = write_cache(tmp_path / "cache", "odd", {"train": unequal()}, length=9)
    with pytest.raises(GeoPatchError, match="split must be"):
        cache.signals("test")


BOUNDED = """
import resource, sys
import numpy as np
from geopatch import training_set
from geopatch.config import ModelConfig, TrainConfig
from geopatch.data.cache import Cache
from geopatch.estimator import GeoPatch

signals = Cache(sys.argv[1]).signals("train")
train = TrainConfig(min_steps=2, max_steps=2, epochs=1, batch_size=4, validation=0.0, precision="float32")
model = ModelConfig(halves=("learned",), stem="patch", global_branch=False, max_patches=2, layers=1)
GeoPatch(model=model, train=train).fit(signals[:32])  # whatever torch sets up once
used = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + {room}, resource.RLIM_INFINITY))
training_set.IN_MEMORY_BYTES = {in_memory}
fitted = GeoPatch(model=model, train=train).fit(signals)
print(sum(len(part.ids) for part in fitted.encode_batches(signals, batch_size=8)))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a limit on the data of a process")
def test_a_cache_larger_than_memory_trains_and_encodes(tmp_path: Path) -> None:
    """130 MB of windows under 70 MB of room: read piece by piece they do, all at once they do not."""

    def many() -> Iterator[Window]:
        draw = np.random.default_rng(0)
        values = draw.normal(size=(512, 16)).astype(np.float32)
        for n in range(4_000):
            yield Signal.from_array(values + np.float32(n % 7), id=str(n), rate_hz=1.0), {}

    write_cache(tmp_path / "cache", "large", {"train": many()}, length=512)
    megabyte = 2**20
    for in_memory, fits in ((megabyte, True), (2**40, False)):
        code = BOUNDED.replace("{room}", str(70 * megabyte)).replace("{in_memory}", str(in_memory))
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "cache")],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        if fits:
            assert done.returncode == 0, done.stderr
            assert done.stdout.split() == ["4000"]
        else:
            assert "emory" in done.stderr


def named(*orders: tuple[str, ...]) -> Iterator[Window]:
    for n, names in enumerate(orders):
        yield Signal.from_array([[0.0, 1.0]] * 4, id=f"w{n}", rate_hz=4.0, channels=names), {"class": "c"}


def test_channels_are_arranged_by_name(tmp_path: Path) -> None:
    cache = write_cache(tmp_path / "cache", "odd", {"train": named(("a", "b"), ("b", "a"))}, length=4)
    assert cache.header.channels == ("a", "b")
    assert [signal.values[0].tolist() for signal in cache.signals("train")] == [[0, 1], [1, 0]]
    some = write_cache(tmp_path / "some", "odd", {"train": named(("a", "b"), (), ("b", "a"))}, length=4)
    assert some.header.channels == (), "names are kept where all windows have them"
    assert [signal.values[0].tolist() for signal in some.signals("train")] == [[0, 1], [0, 1], [1, 0]]
    with pytest.raises(SignalError, match="signal 'w1' has the channels a, c; expected a, b"):
        write_cache(tmp_path / "other", "odd", {"train": named(("a", "b"), ("a", "c"))}, length=4)


@pytest.mark.parametrize("rate_hz", [None, 1.0, 4.0])
def test_a_rate_comes_back_known_or_not(rate_hz: float | None, tmp_path: Path) -> None:
    windows = ((replace(signal, rate_hz=rate_hz), targets) for signal, targets in unequal())
    cache = write_cache(tmp_path / "cache", "odd", {"train": windows}, length=9)
    assert cache.header.rate_hz == rate_hz
    assert [signal.rate_hz for signal in cache.signals("train")] == [rate_hz] * 3


@pytest.mark.parametrize(("settings", "rate_hz"), [({}, None), ({"rate_hz": 1.0}, 1.0)])
def test_one_hertz_in_old_caches(settings: dict[str, float], rate_hz: float | None, tmp_path: Path) -> None:
    """Format 1 wrote 1.0 for a rate that is not known; windows that were cut at 1 Hz say so in their settings."""
    windows = ((replace(signal, rate_hz=1.0), targets) for signal, targets in unequal())
    write_cache(tmp_path / "cache", "odd", {"train": windows}, length=9, settings=settings)
    header = json.loads((tmp_path / "cache" / HEADER).read_text())
    (tmp_path / "cache" / HEADER).write_text(json.dumps({**header, "format": 1}))
    assert Cache(tmp_path / "cache").signals("train")[0].rate_hz == rate_hz
