"""EDF, EDF+ and BDF files, as of EEG and sleep, through the edfio library."""

from __future__ import annotations

import warnings
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from geopatch.columns import listed
from geopatch.data.file_reading import FileReading, from_signal, one_line
from geopatch.data.source import LIBRARY_ERRORS
from geopatch.errors import DataError, GeoPatchError, MissingExtraError
from geopatch.read_options import ReadOptions
from geopatch.signal import Signal
from geopatch.times import NO_DATE

UNKNOWN = ("", "X")


def read_edf(path: Path, id: str, options: ReadOptions) -> FileReading:
    """The signals of the rate that most of them have, or of those channels that were named; patient and recording."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of cut files, which are refused below
            file = _open(path)
            if not file.is_continuous:
                raise DataError(f"{path.name} is discontinuous (EDF+D), which is not read; write it as EDF+C")
            return _reading(path, id, file, options)
    except LIBRARY_ERRORS as error:
        if isinstance(error, GeoPatchError):
            raise
        raise DataError(f"{path.name} cannot be read as EDF or BDF: {one_line(error)}; copy it again") from error


def _open(path: Path) -> Any:
    """The file, if it holds as much as its header promises."""
    edfio = _edfio()
    with path.open("rb") as file:
        head = file.read(256)
    kind = "bdf" if head[:1] == b"\xff" else "edf"
    if len(head) < 256 or (kind == "edf" and head[:8].strip() != b"0"):
        raise DataError(f"{path.name} is no EDF file: it does not start with the version 0; copy it again")
    promised = int(head[236:244])
    opened = (edfio.read_bdf if kind == "bdf" else edfio.read_edf)(path, header_encoding="latin-1")
    if opened.num_data_records < promised:
        came = f"expected {promised} data records by its header, got {opened.num_data_records}"
        raise DataError(f"{path.name} is cut off: {came}; copy it again")
    return opened


def _reading(path: Path, id: str, file: Any, options: ReadOptions) -> FileReading:
    channels = [signal for signal in file.signals if options.channels is None or signal.label in options.channels]
    if not channels:
        raise DataError(f"{path.name} has none of the channels to read; it has {listed(file.labels) or 'none'}")
    rate_hz = Counter(signal.sampling_frequency for signal in channels).most_common(1)[0][0]
    kept = [signal for signal in channels if signal.sampling_frequency == rate_hz]
    slower = [f"{signal.label} ({signal.sampling_frequency:g} Hz)" for signal in channels if signal not in kept]
    values = np.empty((len(kept[0].digital), len(kept)), dtype=np.float32)
    with np.errstate(all="ignore"):
        for n, signal in enumerate(kept):
            values[:, n] = signal.data
    signal = Signal.from_array(
        values,
        id,
        float(rate_hz),
        _distinct([signal.label for signal in kept]),
        start_time=_start_time(file),
        units=[signal.physical_dimension for signal in kept],
    )
    notes = [f"EDF recording, {len(kept)} channel{'s' * (len(kept) > 1)}"]
    if slower:
        notes.append(f"channels of another rate are left out: {listed(slower)}; name them to read them alone")
    if file.annotations:
        notes.append(f"{len(file.annotations)} annotations are not read")
    return from_signal(signal, options, notes, _metadata(file))


def _distinct(labels: list[str]) -> list[str]:
    """A label that stands twice gets its place behind it."""
    return [label if labels.count(label) == 1 else f"{label} {n + 1}" for n, label in enumerate(labels)]


def _start_time(file: Any) -> datetime | None:
    """The start; with the date of times without one where it is hidden."""
    try:
        return datetime.combine(file.startdate, file.starttime)
    except ValueError:
        pass
    try:
        start = datetime.combine(NO_DATE.date(), file.starttime)
    except ValueError:
        return None
    return None if start == NO_DATE else start  # both are hidden


def _metadata(file: Any) -> dict[str, str]:
    """The fields of patient and recording; those of a file that is no EDF+ as they stand."""
    fields: dict[str, str] = {}
    for prefix, part, names in (
        ("patient", file.patient, ("code", "sex", "birthdate", "name")),
        (
            "recording",
            file.recording,
            ("hospital_administration_code", "investigator_technician_code", "equipment_code"),
        ),
    ):
        for name in names:
            try:
                text = str(getattr(part, name))
            except (ValueError, IndexError):
                continue  # hidden, or not there
            if text not in UNKNOWN:
                fields[name if name == "sex" else f"{prefix}_{name}"] = text
    return fields


def _edfio() -> Any:
    try:
        import edfio
    except ImportError as error:
        raise MissingExtraError("edfio", "eeg", "reading EDF and BDF files") from error
    return edfio
