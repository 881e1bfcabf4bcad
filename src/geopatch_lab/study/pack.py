"""A set in one small file: both sides of its split, thinned, with every target, for a machine that has numpy alone.

A sample is kept in 16 bits between the least and the greatest value of its channel: finer than the converters that
recorded these sets, and half the size of float32. Everything that the study measures reads these files, so that all
methods see the same values wherever they run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.data import catalog
from geopatch.data.array_files import read_arrays
from geopatch.data.audio import AudioConfig
from geopatch.data.collection import Collection, WindowSet, WindowSplit
from geopatch.data.recording import WindowConfig
from geopatch.data.sample import basic_motions
from geopatch.errors import DataError
from geopatch.evaluate.task import Task, task, thinned
from geopatch.signal import Signal
from geopatch.storage import atomic_file
from geopatch_lab.study.sets import POOL, SPEECH, Thinning

FORMAT = 2  # 1 had no anchors
LEVELS = 65534  # of an int16, one kept for what was not measured
MISSING = -32768
BAND_HZ = (0.5, 40.0)  # NSTDB has another zero than MITDB, on which it is trained; the band takes the level away
UNDER_NOISE = ("118", "119")
SAMPLES = ("BasicMotions",)  # come with the package

Arrays = dict[str, npt.NDArray[Any]]


def write_packs(
    names: Sequence[str],
    root: Path,
    folder: Path,
    thinning: Thinning,
    report: Callable[[str, int, int], None] | None = None,
) -> list[str]:
    """Write those of the sets that are there into a folder; what is current is kept. Gives the names of these."""
    folder.mkdir(parents=True, exist_ok=True)
    present = [name for name in names if is_there(name, root, folder)]
    for count, name in enumerate(present, start=1):
        if needs_packing(name, root, folder, thinning):
            write_pack(folder / f"{name}.npz", load(name, root, thinning), made_from(name, root, thinning))
        if report is not None:
            report("sets of the study", count, len(present))
    return present


def is_there(name: str, root: Path, folder: Path) -> bool:
    sources = ("mitdb", "nstdb") if name == "nstdb" else (name,)
    in_root = root.is_dir() and all(catalog.data_set(source).is_there(root) for source in sources)
    return in_root or name in SAMPLES or (folder / f"{name}.npz").is_file()


def needs_packing(name: str, root: Path, folder: Path, thinning: Thinning) -> bool:
    path = folder / f"{name}.npz"
    if not path.is_file():
        return True
    if not (root.is_dir() and catalog.data_set(name).is_there(root)):
        return False
    return str(read_arrays(path).get("made_from", "")) != made_from(name, root, thinning)


def made_from(name: str, root: Path, thinning: Thinning) -> str:
    """The source and the settings, so that a pack is made anew when either changes."""
    there = root.is_dir() and catalog.data_set(name).is_there(root)
    source = catalog.source_digest(name, root) if there else "the package"
    return json.dumps({"format": FORMAT, "source": source, **asdict(thinning)}, sort_keys=True)


def load(name: str, root: Path, thinning: Thinning) -> WindowSplit:
    """Both sides of a set, thinned."""
    if name in SAMPLES and not (root.is_dir() and catalog.data_set(name).is_there(root)):
        return _sample()
    if name == "nstdb":
        return _noise_split(root, thinning)
    if name == SPEECH:
        return _speech_split(root, thinning)
    split = catalog.windows(name, root, download=None)
    assert split.train is not None
    if name in catalog.CATALOG:
        return WindowSplit(
            thinned(split.test, thinning.test_per_record), thinned(split.train, thinning.train_per_record)
        )
    train, test = (thinning.pool_train, thinning.pool_test) if name in POOL else (thinning.archive, thinning.archive)
    return WindowSplit(
        shortened(by_class(split.test, test), thinning.longest),
        shortened(by_class(split.train, train), thinning.longest),
    )


def shortened(windows: WindowSet, longest: int) -> WindowSet:
    """The same spans at a lower rate where they have more samples than `longest`."""
    factor = -(-max(signal.length for signal in windows.signals) // longest)
    if factor == 1:
        return windows
    from scipy.signal import resample_poly

    signals = (
        replace(signal, values=resample_poly(signal.values, 1, factor, axis=0), rate_hz=signal.clock_hz / factor)
        for signal in windows.signals
    )
    return replace(windows, signals=tuple(signals))


def by_class(windows: WindowSet, most: int) -> WindowSet:
    """At most so many windows, every class by its share and with two at least; 0 keeps all."""
    labels = windows.targets["class"]
    if not 0 < most < len(windows):
        return windows
    kept = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = min(max(round(len(members) * most / len(windows)), 2), len(members))
        kept.append(members[np.linspace(0, len(members) - 1, count).round().astype(int)])
    return picked(windows, np.sort(np.concatenate(kept)))


def picked(windows: WindowSet, places: npt.NDArray[np.int64]) -> WindowSet:
    targets = {target: labels[places] for target, labels in windows.targets.items()}
    return replace(windows, signals=tuple(windows.signals[n] for n in places), targets=targets)


def _noise_split(root: Path, thinning: Thinning) -> WindowSplit:
    """Trained on the patients of MITDB's DS1 that are not in NSTDB, filtered like it."""
    config = WindowConfig(band_hz=BAND_HZ)
    train = catalog.windows("mitdb", root, config, download=None).train
    assert train is not None
    others = np.flatnonzero([signal.record not in UNDER_NOISE for signal in train.signals])
    test = catalog.windows("nstdb", root, config, download=None).test
    train = thinned(picked(train, others), thinning.noise_train_per_record)
    return WindowSplit(thinned(test, thinning.test_per_record), train)


def _speech_split(root: Path, thinning: Thinning) -> WindowSplit:
    """Whole prompts are left out, for both speakers alike."""
    split = catalog.windows(SPEECH, root, AudioConfig(hop_s=thinning.speech_hop_s), download=None)
    assert split.train is not None
    return WindowSplit(
        _fewer_prompts(split.test, thinning.train_prompts), _fewer_prompts(split.train, thinning.train_prompts)
    )


def _fewer_prompts(windows: WindowSet, most: int) -> WindowSet:
    prompts = np.unique(windows.targets["prompt"])
    kept = prompts[np.linspace(0, len(prompts) - 1, min(most, len(prompts))).round().astype(int)]
    return picked(windows, np.flatnonzero(np.isin(windows.targets["prompt"], kept)))


def _sample() -> WindowSplit:
    """BasicMotions as it comes with the package."""
    train, test = (WindowSet(side.name, side.signals, {"class": _labels(side.labels)}) for side in basic_motions())
    return WindowSplit(test, train)


def _labels(labels: npt.NDArray[np.str_] | None) -> npt.NDArray[np.str_]:
    assert labels is not None
    return labels


def write_pack(path: Path, split: WindowSplit, made: str) -> None:
    """One compressed file, whole or not at all."""
    parts = split.parts()
    stacks = {side: np.concatenate([signal.values for signal in windows.signals]) for side, windows in parts.items()}
    everything = np.concatenate(list(stacks.values()))
    low, high = np.nanmin(everything, axis=0), np.nanmax(everything, axis=0)
    step = np.where(high > low, (high.astype(np.float64) - low) / LEVELS, 1.0)
    arrays: Arrays = {"low": low, "step": step, "made_from": np.asarray(made)}
    arrays["rate_hz"] = np.asarray(split.test.signals[0].clock_hz)
    for side, windows in parts.items():
        arrays[f"{side}_values"] = _as_int16(stacks[side], low, step)
        arrays.update({f"{side}_{name}": column for name, column in _columns(windows).items()})
    with atomic_file(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def _as_int16(values: npt.NDArray[np.float32], low: Any, step: Any) -> npt.NDArray[np.int16]:
    levels = np.round((values.astype(np.float64) - low) / step) - LEVELS // 2
    return np.where(np.isnan(values), MISSING, levels).astype(np.int16)


def _columns(windows: WindowSet) -> Arrays:
    signals = windows.signals
    return {
        "lengths": np.asarray([signal.length for signal in signals]),
        "ids": np.asarray([signal.id for signal in signals]),
        "records": np.asarray([signal.record for signal in signals]),
        "start_s": np.asarray([signal.start_s for signal in signals]),
        **_anchors(signals),
        **{f"target_{name}": labels for name, labels in windows.targets.items()},
    }


def _anchors(signals: Sequence[Signal]) -> Arrays:
    """Those of all windows one after the other, and how many each has; nothing where a window has none."""
    own = [signal.anchors for signal in signals if signal.anchors is not None]
    if len(own) < len(signals):
        return {}
    return {"anchors": np.concatenate(own).astype(np.float32), "anchor_counts": np.asarray([len(one) for one in own])}


def read_pack(folder: Path, name: str, target: str) -> Task:
    """What trains and what tests of a set, labelled with one target."""
    arrays = _arrays(folder, name)
    return task(_side(arrays, name, "train"), _side(arrays, name, "test"), target)


def read_train(folder: Path, name: str, target: str) -> Collection:
    """What trains alone, for choices: they must not see what tests."""
    return _side(_arrays(folder, name), name, "train").collection(target)


def _arrays(folder: Path, name: str) -> Arrays:
    path = folder / f"{name}.npz"
    if not path.is_file():
        raise DataError(f"{name} is not in {folder}; `geopatch reproduce --prepare` writes it there")
    arrays = read_arrays(path)
    if "made_from" not in arrays:
        raise DataError(f"{path} is no set of the study; delete it and prepare it again")
    return arrays


def _side(arrays: Mapping[str, npt.NDArray[Any]], name: str, side: str) -> WindowSet:
    levels = arrays[f"{side}_values"]
    values = ((levels.astype(np.float64) + LEVELS // 2) * arrays["step"] + arrays["low"]).astype(np.float32)
    values[levels == MISSING] = np.nan
    stops = np.cumsum(arrays[f"{side}_lengths"])
    columns = [arrays[f"{side}_{column}"].tolist() for column in ("ids", "records", "start_s")]
    rate_hz, marks = float(arrays["rate_hz"]), _marks(arrays, side, len(stops))
    signals = [
        Signal(values[stop - length : stop], id=id, rate_hz=rate_hz, record=record, start_s=start_s, anchors=own)
        for stop, length, id, record, start_s, own in zip(
            stops, arrays[f"{side}_lengths"], *columns, marks, strict=True
        )
    ]
    prefix = f"{side}_target_"
    targets = {key.removeprefix(prefix): labels for key, labels in arrays.items() if key.startswith(prefix)}
    return WindowSet(name, tuple(signals), targets)


def _marks(arrays: Mapping[str, npt.NDArray[Any]], side: str, count: int) -> list[npt.NDArray[np.float64] | None]:
    """The anchors of each window, where the pack has them."""
    if f"{side}_anchors" not in arrays:
        return [None] * count
    stops = np.cumsum(arrays[f"{side}_anchor_counts"])[:-1]
    return list(np.split(arrays[f"{side}_anchors"].astype(np.float64), stops))
