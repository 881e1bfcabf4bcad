"""The catalog: named data sets, what they are, where they lie and how they become windows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from geopatch.data import arctic, recording
from geopatch.data.audio import AudioConfig
from geopatch.data.collection import WindowSplit
from geopatch.data.download import PHYSIONET, Fetch, download_into, fetch_archive, fetch_physionet
from geopatch.data.physionet import find_database, mitdb_split, nsrdb_split, nstdb_split
from geopatch.data.read import archive_split, known_sets, split_files, unknown_set
from geopatch.data.recording import WindowConfig
from geopatch.data.source import Report
from geopatch.errors import ConfigError, DataError, GeoPatchError

Config = WindowConfig | AudioConfig
Files = Mapping[str, Path]  # what a loader reads, by its name within the data set

PHYSIONET_LICENCE = "Open Data Commons Attribution License 1.0; cite PhysioNet (Goldberger et al. 2000)"
WFDB = (".hea", ".dat", ".atr")
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class DataSet:
    """One entry of the catalog."""

    name: str
    what: str
    home: str
    licence: str
    windows: str  # what one window is
    split: str  # what trains and what tests
    targets: tuple[str, ...]
    config: Config | None  # how its windows are made unless a config says otherwise; None where there is no choice
    files: Callable[[Path], Files]  # empty where it is not there
    load: Callable[..., WindowSplit]  # root, config, report
    fetch: Fetch | None  # None where no library downloads it

    def is_there(self, root: Path) -> bool:
        return bool(self.files(root))


def data_set(name: str) -> DataSet:
    """The entry of a name; a name that the catalog does not know is taken for one of the UEA/UCR archive."""
    return CATALOG.get(name) or _archive(name)


def names(root: Path) -> list[str]:
    """Every name of the catalog, and the archive's sets under a root."""
    archive = sorted(known_sets(root) - set(CATALOG), key=str.lower) if root.is_dir() else []
    return [*CATALOG, *archive]


def public_download(entry: DataSet, root: Path) -> None:
    """Fill `root/<name>` from the public home of a data set."""
    if entry.fetch is None:
        raise DataError(f"no library downloads it; fetch it from {entry.home} and unpack it into {root / entry.name}")
    download_into(root / entry.name, entry.name, entry.fetch)


Download = Callable[[DataSet, Path], None]


def windows(
    name: str,
    root: str | Path,
    config: Config | None = None,
    *,
    download: Download | None = public_download,
    report: Report | None = None,
) -> WindowSplit:
    """The windows of a data set under `root`, downloaded into it where they are absent."""
    entry = data_set(name)
    if config is not None and type(config) is not type(entry.config):
        wanted = "takes no config" if entry.config is None else f"takes a {type(entry.config).__name__}"
        raise ConfigError(f"{name} {wanted}, got a {type(config).__name__}")
    locate(name, root, download=download)
    return entry.load(Path(root), config or entry.config, report)


def locate(name: str, root: str | Path, *, download: Download | None = public_download) -> Files:
    """The files of a data set under `root`; where there are none, what `download` brings."""
    entry, root = data_set(name), Path(root)
    files = entry.files(root)
    if files:
        return files
    if download is None:
        raise DataError(f"{_absent(entry, root)}; give --data-root or GEOPATCH_DATA the folder that holds it")
    try:
        download(entry, root)
    except GeoPatchError as error:
        raise DataError(
            f"{_absent(entry, root)}; the download failed: {error}; "
            "give --data-root or GEOPATCH_DATA the folder that holds it"
        ) from error
    files = entry.files(root)
    if not files:
        raise DataError(f"{_absent(entry, root)}, even after the download from {entry.home}; look into that folder")
    return files


def source_digest(name: str, root: str | Path) -> str:
    """SHA-256 over names, sizes and contents of the files that a loader reads: a changed source has another."""
    sha = hashlib.sha256()
    for relative, path in sorted(locate(name, root, download=None).items()):
        sha.update(f"{relative}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                sha.update(chunk)
    return sha.hexdigest()


def _absent(entry: DataSet, root: Path) -> str:
    if entry.name in CATALOG or not root.is_dir():
        return f"{entry.name} is not there: looked in {root / entry.name} and {root}"
    return str(unknown_set(entry.name, root))


def _wfdb_files(name: str, root: Path) -> Files:
    folder = find_database(name, root)
    paths = [] if folder is None else [mark.with_suffix(suffix) for mark in folder.glob("*.atr") for suffix in WFDB]
    return {path.name: path for path in sorted(paths) if path.is_file()}


def _arctic_files(root: Path) -> Files:
    return {"/".join(one.path.parts[-3:]): one.path for one in arctic.utterances(root)}


def _archive_files(name: str, root: Path) -> Files:
    return {path.name: path for path in split_files(name, root)} if root.is_dir() else {}


def _ecg(name: str, what: str, split: str, load: Callable[..., WindowSplit]) -> DataSet:
    return DataSet(
        name,
        what,
        f"{PHYSIONET}{name}/",
        PHYSIONET_LICENCE,
        "2 s at 128 Hz, half of it shared with the next",
        split,
        recording.TARGETS,
        WindowConfig(),
        partial(_wfdb_files, name),
        load,
        fetch_physionet,
    )


def _archive(name: str) -> DataSet:
    return DataSet(
        name,
        "a set of the UEA/UCR time series archive",
        "https://www.timeseriesclassification.com/",
        "free for research; cite the archive (Dau et al. 2019, Bagnall et al. 2018) and the set's donor",
        "a whole series",
        "the archive's own",
        ("class",),
        None,
        partial(_archive_files, name),
        lambda root, _config, _report: archive_split(name, root),
        fetch_archive,
    )


CATALOG: dict[str, DataSet] = {
    entry.name: entry
    for entry in (
        _ecg(
            "mitdb",
            "MIT-BIH Arrhythmia Database: 48 half hours of ECG, 2 leads, every beat annotated",
            "by patient (but 201 and 202 are one): DS1 trains, DS2 tests; the four paced records are left out",
            mitdb_split,
        ),
        _ecg(
            "nstdb",
            "MIT-BIH Noise Stress Test Database: records 118 and 119 of mitdb at 24 to -6 dB signal over noise",
            "everything tests; train on other patients of mitdb",
            nstdb_split,
        ),
        _ecg(
            "nsrdb",
            "MIT-BIH Normal Sinus Rhythm Database: ECG of 18 subjects without arrhythmias",
            "by time: the first half of each subject's record trains, the second tests",
            nsrdb_split,
        ),
        DataSet(
            "arctic",
            "CMU ARCTIC: the same sentences read by several speakers, 16 kHz",
            "http://www.festvox.org/cmu_arctic/",
            "free to use with attribution; cite Kominek and Black 2004",
            "a whole utterance as 40 log-mel bands, 100 frames a second",
            "by prompt: the last quarter of the prompt ids tests, for all speakers alike",
            arctic.TARGETS,
            AudioConfig(),
            _arctic_files,
            arctic.arctic_split,
            None,
        ),
    )
}
