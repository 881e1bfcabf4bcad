"""A split: which windows of a data set train and which test, so that nothing of one side is on the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from geopatch.data.archive import load_split
from geopatch.data.arctic import load_arctic, prompt_split
from geopatch.data.audio import AudioConfig
from geopatch.data.collection import Collection
from geopatch.data.physionet import DS1, DS2, load_database, snr_of
from geopatch.data.recording import Recording, WindowConfig, WindowSet, cut_windows
from geopatch.data.source import Report
from geopatch.errors import DataError


@dataclass(frozen=True, eq=False)
class WindowSplit:
    """The windows that train and those that test; a data set made for tests alone has no train side."""

    test: WindowSet
    train: WindowSet | None = None

    def parts(self) -> dict[str, WindowSet]:
        return {"test": self.test} if self.train is None else {"train": self.train, "test": self.test}


def mitdb_split(root: Path, config: WindowConfig, report: Report | None = None) -> WindowSplit:
    """By patient: DS1 trains, DS2 tests; the four paced records are left out.

    Every paper on this data uses these lists, so they stay although records 201 (train) and 202 (test) are one patient.
    """
    recordings = {found.signal.id: found for found in load_database("mitdb", root, report=report)}
    missing = [record for record in (*DS1, *DS2) if record not in recordings]
    if missing:
        raise DataError(
            f"mitdb under {root} lacks {len(missing)} of the 44 records of its split ({', '.join(missing[:5])}"
            f"{', ...' if len(missing) > 5 else ''}); copy their .hea, .dat and .atr files"
        )
    train, test = ([recordings[record] for record in side] for side in (DS1, DS2))
    return WindowSplit(cut_windows("mitdb_TEST", test, config), cut_windows("mitdb_TRAIN", train, config))


def nstdb_split(root: Path, config: WindowConfig, report: Report | None = None) -> WindowSplit:
    """Everything tests: patients 118 and 119 under noise of known strength. Train on other patients of MITDB."""
    recordings = load_database("nstdb", root, report=report)
    clean = [found.signal.id for found in recordings if snr_of(found.signal.id) is None]
    if clean:
        raise DataError(f"nstdb under {root}: record {clean[0]} does not say its noise, like 118e24; move it elsewhere")
    return WindowSplit(cut_windows("nstdb_TEST", recordings, config))


def nsrdb_split(root: Path, config: WindowConfig, report: Report | None = None) -> WindowSplit:
    """By time within every subject: the first half of a record trains, the second tests, none lies across."""
    recordings = load_database("nsrdb", root, report=report)
    windows = cut_windows("nsrdb", recordings, config)
    first, second = _halves(windows, recordings)
    return WindowSplit(chosen(windows, second, "nsrdb_TEST"), chosen(windows, first, "nsrdb_TRAIN"))


def arctic_split(root: Path, config: AudioConfig, report: Report | None = None) -> WindowSplit:
    """By prompt: the last quarter of the prompt ids tests, for all speakers alike."""
    windows = load_arctic(root, config, report=report)
    is_test = prompt_split(windows.targets["prompt"])
    return WindowSplit(chosen(windows, is_test, "arctic_TEST"), chosen(windows, ~is_test, "arctic_TRAIN"))


def archive_split(name: str, root: Path) -> WindowSplit:
    """The archive's own split."""
    train, test = load_split(name, root)
    return WindowSplit(_with_classes(test), _with_classes(train))


def chosen(windows: WindowSet, mask: npt.NDArray[np.bool_], name: str) -> WindowSet:
    """The windows that a mask marks, with their targets."""
    if not mask.any():
        raise DataError(f"{name}: no window is left on this side of the split; give longer records or shorter windows")
    return replace(windows.subset(mask), name=name)


def _halves(windows: WindowSet, recordings: Sequence[Recording]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which windows end before the middle of their record, and which begin after it."""
    middles_s = {found.signal.id: found.signal.duration_s / 2 for found in recordings}
    middle_s = np.asarray([middles_s[signal.record] for signal in windows.signals])
    start_s = np.asarray([signal.start_s for signal in windows.signals])
    stop_s = start_s + np.asarray([signal.duration_s for signal in windows.signals])
    return stop_s <= middle_s, start_s >= middle_s


def _with_classes(collection: Collection) -> WindowSet:
    if collection.labels is None:
        raise DataError(f"{collection.name} has no class labels; `read` gives its signals without them")
    return WindowSet(collection.name, collection.signals, {"class": collection.labels})
