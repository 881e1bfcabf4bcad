"""ECG databases of PhysioNet as recordings: MITDB, NSTDB and NSRDB, read from WFDB files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from geopatch.data.collection import WindowSplit
from geopatch.data.recording import AAMI, Recording, WindowConfig, cut_windows
from geopatch.data.source import Report, reported
from geopatch.errors import DataError, MissingExtraError, SignalError, one_of
from geopatch.signal import Signal
from geopatch.times import NO_DATE

# The lists of de Chazal, O'Dwyer and Reilly (2004), paced records left out. Records 201 (DS1) and 202 (DS2) are of one
# patient; no other patient is on both sides.
DS1 = tuple("101 106 108 109 112 114 115 116 118 119 122 124 201 203 205 207 208 209 215 220 223 230".split())  # noqa: SIM905
DS2 = tuple("100 103 105 111 113 117 121 123 200 202 210 212 213 214 219 221 222 228 231 232 233 234".split())  # noqa: SIM905
SPLITS = {"DS1": DS1, "DS2": DS2}

DATABASES = ("mitdb", "nstdb", "nsrdb")
BEATS = frozenset("".join(AAMI.values()))
NOISY = re.compile(r"\d+e(_?\d+)")
FIRST_LEAD = "MLII"  # of 46 of MITDB's 48 records; in 114 it is the second channel
BYTES_A_SAMPLE = {"8": 1.0, "16": 2.0, "24": 3.0, "32": 4.0, "61": 2.0, "80": 1.0, "160": 2.0, "212": 1.5}
BYTES_A_SAMPLE |= {"310": 4 / 3, "311": 4 / 3}
FIELD = re.compile(r"<?([A-Za-z][\w ]{0,30})>?:\s*([^<:]*?)(?=\s*(?:<|$|[A-Za-z][\w]*:))")
PATIENT = re.compile(r"(\d{1,3}) ([MF])\b")


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
    """One record: its signals in physical units, lead MLII first, its beats and rhythms where it is annotated."""
    wfdb = _wfdb()
    header = _call(_beside(path, ".hea"), wfdb.rdheader, str(path))
    _check_length(path, header)
    record = _call(_beside(path, ".hea"), wfdb.rdrecord, str(path))
    try:
        order = lead_order(record.sig_name)
        leads, units = ([names[place] for place in order] for names in (record.sig_name, record.units))
        signal = Signal.from_array(
            record.p_signal[:, order],
            path.name,
            float(record.fs),
            leads,
            start_time=_start_time(record),
            units=[str(unit or "") for unit in units],
        )
        return (
            _marked(path, signal, wfdb) if _beside(path, ".atr").is_file() else Recording(signal, subject_of(path.name))
        )
    except SignalError as error:
        raise DataError(f"{path.parent / path.name}: {error}") from error


def wfdb_parts(header: Path) -> tuple[Path, ...]:
    """The files of a record: its header, the data files and segments that it names, and its annotations."""
    names = {header.name, header.with_suffix(".atr").name}
    for line in header.read_text(encoding="utf-8", errors="replace").splitlines()[1:]:
        if line.strip() and not line.startswith("#"):
            name = line.split()[0]
            names |= {name, f"{name}.hea", f"{name}.dat"}
    paths = (header.parent / name for name in sorted(names) if _is_plain(name))
    return tuple(path for path in paths if path.is_file())


def wfdb_metadata(header: Path) -> dict[str, str | int]:
    """What the comments of a header say of a record: `age: 69`, or `69 M 1085 1629 x1` as MITDB writes it."""
    metadata: dict[str, str | int] = {}
    comments = [
        line.lstrip("# ").strip()
        for line in header.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.startswith("#")
    ]
    for comment in comments:
        fields = dict(FIELD.findall(comment))
        metadata |= {name.strip().lower().replace(" ", "_"): _number_or_text(value) for name, value in fields.items()}
        patient = PATIENT.match(comment)
        if patient and not fields:
            metadata |= {"age": int(patient[1]), "sex": patient[2]}
    other = [comment for comment in comments if comment and not FIELD.search(comment) and not PATIENT.match(comment)]
    return metadata | ({"comment": "; ".join(other)} if other else {})


def _number_or_text(text: str) -> str | int:
    return int(text) if text.strip().isdecimal() else text.strip()


def _beside(path: Path, suffix: str) -> Path:
    """A file of a record; the name of a record may hold a dot."""
    return path.with_name(f"{path.name}{suffix}")


def _start_time(record: Any) -> datetime | None:
    """The time of the first sample; a header without a date has the date of times without one."""
    if record.base_time is None:
        return None
    return datetime.combine(record.base_date or NO_DATE.date(), record.base_time)


def subject_of(record: str) -> str:
    """Records 201 and 202 of MITDB are one patient; 118e06 of NSTDB is patient 118 under noise."""
    patient = record.split("e")[0]
    return "201" if patient == "202" else patient


def snr_of(record: str) -> int | None:
    """Decibels of signal over noise of an NSTDB record: 24 of 118e24, -6 of 118e_6; None for a record without noise."""
    match = NOISY.fullmatch(record)
    return int(match[1].replace("_", "-")) if match else None


def lead_order(leads: Sequence[str]) -> list[int]:
    """The positions of a record's leads, MLII first where it has that, else as they stand."""
    return sorted(range(len(leads)), key=lambda place: leads[place] != FIRST_LEAD)


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


def _marked(path: Path, signal: Signal, wfdb: Any) -> Recording:
    notes = _call(_beside(path, ".atr"), wfdb.rdann, str(path), "atr")
    samples, symbols = np.asarray(notes.sample, dtype=np.int64), np.asarray(notes.symbol, dtype=str)
    beats = np.isin(symbols, list(BEATS))
    texts = np.asarray([text.rstrip("\x00") for text in notes.aux_note], dtype=str)
    rhythms = (symbols == "+") & np.char.startswith(texts, "(")
    return Recording(
        signal,
        subject_of(path.name),
        samples[beats],
        symbols[beats],
        samples[rhythms],
        np.char.lstrip(texts[rhythms], "("),
    )


def _check_length(path: Path, header: Any) -> None:
    """A header that promises more samples than its file holds, before anything reads past the end."""
    for file in dict.fromkeys(header.file_name or []):
        columns = [place for place, name in enumerate(header.file_name) if name == file]
        sizes = {BYTES_A_SAMPLE.get(header.fmt[place]) for place in columns}
        size = sizes.pop() if len(sizes) == 1 else None
        data = path.parent / file
        if not _is_plain(file) or not data.is_file():
            raise DataError(f"{_beside(path, '.hea')} names {file[:60]}, which is not beside it; copy both")
        if size is None:
            continue  # another format: the library checks it
        needed = int(header.sig_len * len(columns) * size)
        if data.stat().st_size < needed:
            raise DataError(
                f"{data}: expected {needed} bytes for the {header.sig_len} samples that its header promises, "
                f"got {data.stat().st_size}; copy the file again"
            )


def _is_plain(name: str) -> bool:
    """Whether a header names a file in its own folder: one that it must not choose is never opened."""
    return name == Path(name).name and name not in ("", ".", "..") and "\0" not in name


def _call(file: Path, read: Any, *arguments: str) -> Any:
    """What a reader of the wfdb library gives; whatever it makes of a damaged file becomes one line."""
    if not file.is_file():
        raise DataError(f"{file} is missing; a record needs its .hea and .dat files")
    try:
        return read(*arguments)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OSError, EOFError) as error:
        raise DataError(f"{file} cannot be read as WFDB: {' '.join(str(error).split())}; copy it again") from error


def _wfdb() -> Any:
    try:
        import wfdb
    except ImportError as error:
        raise MissingExtraError("wfdb", "ecg", "reading WFDB records") from error
    return wfdb
