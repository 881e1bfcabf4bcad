"""ECG databases of PhysioNet as recordings: MITDB, NSTDB and NSRDB, read from WFDB files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from geopatch.data.collection import WindowSplit
from geopatch.data.recording import Recording, WindowConfig, cut_windows
from geopatch.data.source import Report, reported
from geopatch.data.wfdb_records import read_record
from geopatch.errors import DataError, one_of

# The lists of de Chazal, O'Dwyer and Reilly (2004), paced records left out. Records 201 (DS1) and 202 (DS2) are of one
# patient; no other patient is on both sides.
DS1 = tuple("101 106 108 109 112 114 115 116 118 119 122 124 201 203 205 207 208 209 215 220 223 230".split())  # noqa: SIM905
DS2 = tuple("100 103 105 111 113 117 121 123 200 202 210 212 213 214 219 221 222 228 231 232 233 234".split())  # noqa: SIM905
SPLITS = {"DS1": DS1, "DS2": DS2}

DATABASES = ("mitdb", "nstdb", "nsrdb")
NOISY = re.compile(r"\d+e(_?\d+)")


def load_database(name: str, root: Path, *, report: Report | None = None) -> tuple[Recording, ...]:
    """Every annotated record of a database found under `root/name`, or under `root`."""
    folder = find_database(name, root)
    if folder is None:
        raise DataError(
            f"no WFDB records of {name} in {root / name} or {root}; give the folder that holds its .hea files"
        )
    paths = [path.with_suffix("") for path in sorted(folder.glob("*.atr"))]
    return tuple(read_wfdb(path) for path in reported(paths, name, report))


def find_database(name: str, root: Path) -> Path | None:
    """The folder of its annotated records: `root/name`, or `root` unless that is named as another database."""
    one_of("database", name, DATABASES)
    places = [root / name] if root.resolve().name in set(DATABASES) - {name} else [root / name, root]
    return next((place for place in places if any(place.glob("*.atr"))), None)


def read_wfdb(path: Path) -> Recording:
    """One record of these databases, which name patients by their records."""
    return replace(read_record(path), subject=subject_of(path.name))


def subject_of(record: str) -> str:
    """Records 201 and 202 of MITDB are one patient; 118e06 of NSTDB is patient 118 under noise."""
    patient = record.split("e")[0]
    return "201" if patient == "202" else patient


def snr_of(record: str) -> int | None:
    """Decibels of signal over noise of an NSTDB record: 24 of 118e24, -6 of 118e_6; None for a record without noise."""
    match = NOISY.fullmatch(record)
    return int(match[1].replace("_", "-")) if match else None


def unnamed_where_leads_differ(recordings: Sequence[Recording]) -> list[Recording]:
    """The recordings without names of leads, unless all have the same: leads then count by position."""
    if len({frozenset(recording.signal.channels) for recording in recordings}) == 1:
        return list(recordings)
    return [replace(recording, signal=replace(recording.signal, channels=())) for recording in recordings]


def mitdb_split(root: Path, config: WindowConfig, report: Report | None = None) -> WindowSplit:
    """By patient: DS1 trains, DS2 tests; the four paced records are left out.

    Every paper on this data uses these lists, so they stay although records 201 (train) and 202 (test) are one patient.
    The second leads differ between records, so the windows carry no names of leads.
    """
    loaded = unnamed_where_leads_differ(load_database("mitdb", root, report=report))
    recordings = {recording.signal.id: recording for recording in loaded}
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
    clean = [recording.signal.id for recording in recordings if snr_of(recording.signal.id) is None]
    if clean:
        raise DataError(f"nstdb under {root}: record {clean[0]} does not say its noise, like 118e24; move it elsewhere")
    return WindowSplit(cut_windows("nstdb_TEST", recordings, config))


def nsrdb_split(root: Path, config: WindowConfig, report: Report | None = None) -> WindowSplit:
    """By time within every subject: the first half of a record trains, the second tests, none lies across."""
    recordings = load_database("nsrdb", root, report=report)
    windows = cut_windows("nsrdb", recordings, config)
    middles_s = {recording.signal.id: recording.signal.duration_s / 2 for recording in recordings}
    middle_s = np.asarray([middles_s[signal.record] for signal in windows.signals])
    start_s = np.asarray([signal.start_s for signal in windows.signals])
    stop_s = start_s + np.asarray([signal.duration_s for signal in windows.signals])
    return WindowSplit(windows.side(start_s >= middle_s, "nsrdb_TEST"), windows.side(stop_s <= middle_s, "nsrdb_TRAIN"))
