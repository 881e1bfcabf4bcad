"""CMU ARCTIC: the same sentences read by several speakers, as whole utterances of variable length."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from geopatch.data.audio import SUFFIXES, AudioConfig, read_frames
from geopatch.data.collection import WindowSet, WindowSplit
from geopatch.data.source import Report, reported
from geopatch.errors import ConfigError, DataError

TARGETS = ("prompt", "speaker")
SPEAKER_FOLDER = re.compile(r"cmu_us_(\w+)_arctic")
TEST_SHARE = 0.25


@dataclass(frozen=True)
class Utterance:
    """One prompt read by one speaker, and the file that holds it."""

    speaker: str
    prompt: str
    path: Path

    @property
    def id(self) -> str:
        return f"{self.speaker}/{self.prompt}"


def load_arctic(root: Path, config: AudioConfig | None = None, *, report: Report | None = None) -> WindowSet:
    """Every utterance under `root/arctic` or `root`, as frames."""
    config, files = config or AudioConfig(), utterances(root)
    if not files:
        raise DataError(
            f"no utterances in {root / 'arctic'} or {root}; give the folder that holds cmu_us_<speaker>_arctic/wav"
        )
    signals = tuple(read_frames(one.path, config, one.id) for one in reported(files, "arctic", report))
    targets = {
        "prompt": np.asarray([one.prompt for one in files]),
        "speaker": np.asarray([one.speaker for one in files]),
    }
    return WindowSet("arctic", signals, targets)


def arctic_split(root: Path, config: AudioConfig, report: Report | None = None) -> WindowSplit:
    """By prompt: the last quarter of the prompt ids tests, for all speakers alike."""
    windows = load_arctic(root, config, report=report)
    is_test = prompt_split(windows.targets["prompt"])
    return WindowSplit(windows.side(is_test, "arctic_TEST"), windows.side(~is_test, "arctic_TRAIN"))


def utterances(root: Path) -> tuple[Utterance, ...]:
    """The audio files of `cmu_us_<speaker>_arctic/wav`, by speaker and prompt; no utterance may be there twice."""
    files = [
        Utterance(named[1], path.stem, path)
        for folder in _speaker_folders(root)
        if (named := SPEAKER_FOLDER.fullmatch(folder.name))
        for path in sorted((folder / "wav").iterdir())
        if path.suffix.lower() in SUFFIXES
    ]
    seen: dict[str, Path] = {}
    for one in files:
        if one.id in seen:
            raise DataError(f"utterance {one.id!r} is there twice, as {seen[one.id]} and {one.path}; remove one")
        seen[one.id] = one.path
    return tuple(files)


def prompt_split(
    prompts: Sequence[str] | npt.NDArray[np.str_], test_share: float = TEST_SHARE
) -> npt.NDArray[np.bool_]:
    """True where an utterance belongs to the test side: the last quarter of the prompt ids, all speakers alike."""
    if not 0 < test_share < 1:
        raise ConfigError(f"test_share must lie between 0 and 1, got {test_share}")
    ids = sorted(set(np.asarray(prompts).tolist()))
    if len(ids) < 2:
        raise DataError(f"expected at least two prompts, one to train and one to test, got {len(ids)}")
    n_test = min(max(round(len(ids) * test_share), 1), len(ids) - 1)
    return np.isin(np.asarray(prompts), ids[-n_test:])


def _speaker_folders(root: Path) -> list[Path]:
    for place in (root / "arctic", root):
        folders = sorted(wav.parent for wav in place.glob("cmu_us_*_arctic/wav") if wav.is_dir())
        if folders:
            return folders
    return []
