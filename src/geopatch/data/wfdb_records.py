"""WFDB records: a header with files of data beside it, in physical units, with beats and rhythms where annotated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from geopatch.data.recording import AAMI, Recording
from geopatch.data.source import LIBRARY_ERRORS
from geopatch.errors import DataError, MissingExtraError, SignalError
from geopatch.signal import Signal
from geopatch.times import NO_DATE

BEATS = frozenset("".join(AAMI.values()))
GAP = "~"  # instead of a segment's or a file's name
FIRST_LEAD = "MLII"  # of 46 of MITDB's 48 records; in 114 it is the second channel
BYTES_A_SAMPLE = {"8": 1.0, "16": 2.0, "24": 3.0, "32": 4.0, "61": 2.0, "80": 1.0, "160": 2.0, "212": 1.5}
FIELD = re.compile(r"<?([A-Za-z][\w ]{0,30})>?:\s*([^<:]*?)(?=\s*(?:<|$|[A-Za-z][\w]*:))")
PATIENT = re.compile(r"(\d{1,3}) ([MF])\b")
BYTES_A_SAMPLE |= {"310": 4 / 3, "311": 4 / 3}


def read_record(path: Path) -> Recording:
    """One record: its signals in physical units, lead MLII first, its beats and rhythms where it is annotated."""
    wfdb = _wfdb()
    header = _header(path)
    _check_header(path, header)
    record = _call(_beside(path, ".hea"), wfdb.rdrecord, str(path))
    if record.p_signal is None or not record.sig_name:
        raise DataError(f"{_beside(path, '.hea')} describes no signal; a record needs its .hea and .dat files")
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
        return _marked(path, signal, wfdb) if _beside(path, ".atr").is_file() else Recording(signal, path.name)
    except SignalError as error:
        raise DataError(f"{path.parent / path.name}: {error}") from error


def _header(path: Path) -> Any:
    """The header, if it has a line for each signal or segment that it promises: the library makes room for all."""
    file = _beside(path, ".hea")
    if file.is_file():
        lines = [line.split() for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
        first, *rest = [words for words in lines if words and not words[0].startswith("#")] or [[""]]
        segments = first[0].partition("/")[2]
        count = segments or "".join(first[1:2])  # of several segments, each has its own header
        if count.isdecimal() and (len(count) > 9 or int(count) > len(rest)):
            raise DataError(f"{file} promises {count[:20]} signals and describes {len(rest)}; copy it again")
        if segments and len(first) > 1 and len(first[1]) > 4:
            raise DataError(f"{file} promises {first[1][:20]} signals; copy it again")
    return _call(file, _wfdb().rdheader, str(path))


def wfdb_parts(header: Path) -> tuple[Path, ...]:
    """The files of a record: its header, the data files and segments that it names, and its annotations."""
    names = {header.name, header.with_suffix(".atr").name}
    for line in header.read_text(encoding="utf-8", errors="replace").splitlines()[1:]:
        if line.strip() and not line.startswith("#"):
            name = line.split()[0]
            names |= {name, f"{name}.hea", f"{name}.dat"}
    paths = (header.parent / name for name in sorted(names) if _is_plain(name))
    return tuple(path for path in paths if path.is_file())


def wfdb_segments(paths: Sequence[Path]) -> set[Path]:
    """The headers among paths that are segments of another record, whose first line is `name/segments ...`."""
    segments: set[Path] = set()
    for header in (path for path in paths if path.suffix.lower() == ".hea"):
        with header.open(encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in islice(file, 100_000) if line.strip() and not line.startswith("#")]
        if lines and "/" in lines[0][0]:
            segments |= {header.with_name(f"{line[0]}.hea") for line in lines[1:] if _is_plain(line[0])}
    return segments


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


def lead_order(leads: Sequence[str]) -> list[int]:
    """The positions of a record's leads, MLII first where it has that, else as they stand."""
    return sorted(range(len(leads)), key=lambda place: leads[place] != FIRST_LEAD)


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


def _marked(path: Path, signal: Signal, wfdb: Any) -> Recording:
    notes = _call(_beside(path, ".atr"), wfdb.rdann, str(path), "atr")
    samples, symbols = np.asarray(notes.sample, dtype=np.int64), np.asarray(notes.symbol, dtype=str)
    beats = np.isin(symbols, list(BEATS))
    texts = np.asarray([text.rstrip("\x00") for text in notes.aux_note], dtype=str)
    rhythms = (symbols == "+") & np.char.startswith(texts, "(")
    return Recording(
        replace(signal, anchors=samples[beats].astype(np.float64)),
        path.name,
        samples[beats],
        symbols[beats],
        samples[rhythms],
        np.char.lstrip(texts[rhythms], "("),
    )


def _check_header(path: Path, header: Any, depth: int = 0) -> None:
    """A header that names files elsewhere, or promises more samples than they hold, before anything is opened."""
    if hasattr(header, "seg_name"):
        for segment in (name for name in header.seg_name if name != GAP):
            if depth or not _is_plain(segment) or not _beside(path.with_name(segment), ".hea").is_file():
                raise DataError(
                    f"{_beside(path, '.hea')} names segment {segment[:60]}, which is not beside it; copy both"
                )
            own = path.with_name(segment)
            _check_header(own, _header(own), depth + 1)
        return
    if not header.file_name and not depth:
        raise DataError(f"{_beside(path, '.hea')} names no file of data; a record needs its .hea and .dat files")
    for file in dict.fromkeys(header.file_name or []):
        columns = [place for place, name in enumerate(header.file_name) if name == file]
        _check_length(path, header, str(file), columns)


def _check_length(path: Path, header: Any, file: str, columns: Sequence[int]) -> None:
    if file == GAP:
        return  # the layout of a record of several segments
    data = path.parent / file
    if not _is_plain(file) or not data.is_file():
        raise DataError(f"{_beside(path, '.hea')} names {file[:60]}, which is not beside it; copy both")
    size = sum(
        BYTES_A_SAMPLE.get(str(header.fmt[place]), 0.0) * (header.samps_per_frame[place] or 1) for place in columns
    )
    length = header.sig_len or 0
    if not 0 <= length < 2**48 or not header.fs or not header.fs > 0:
        raise DataError(f"{_beside(path, '.hea')} promises {length} samples at {header.fs} Hz; copy it again")
    if data.stat().st_size < int(length * size):
        raise DataError(
            f"{data}: expected {int(length * size)} bytes for the {length} samples that its header promises, "
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
    except LIBRARY_ERRORS as error:
        raise DataError(f"{file} cannot be read as WFDB: {' '.join(str(error).split())}; copy it again") from error


def _wfdb() -> Any:
    try:
        import wfdb
    except ImportError as error:
        raise MissingExtraError("wfdb", "ecg", "reading WFDB records") from error
    return wfdb
