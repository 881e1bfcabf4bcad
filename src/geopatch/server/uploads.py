"""Uploads: one signal from the bytes of a file, by the same readers as files on disk.

What came is written into a folder of its own, under plain names: nothing is unpickled, and no name that a client sends,
or that stands in a header, is opened outside of it.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from geopatch.columns import listed
from geopatch.data.audio import sound_size
from geopatch.data.formats import AUDIO, FORMATS
from geopatch.data.reading import InputFile, RecordingFile, read_file
from geopatch.errors import DataError, GeoPatchError, MissingExtraError
from geopatch.read_options import ReadOptions
from geopatch.server.refusal import RefusedError
from geopatch.server.settings import Limits
from geopatch.signal import Signal

Files = Mapping[str, bytes]  # by their names
PLAIN_NAME = re.compile(r"\w[\w .+=@,~-]{0,119}")
MAX_ID = 200
MIN_HZ, MAX_HZ = 0.001, 1e7


def read_upload(files: Files, limits: Limits, rate_hz: float | None = None) -> Signal:
    """The signal of one file, or of a WFDB header with its data; `rate_hz` says what a file itself does not."""
    if not files or not all(files.values()):
        raise DataError("expected a file with something in it, got none or an empty one; send it as the part `file`")
    name, ending = _kind(files)
    if ending == ".zip":
        files = _unzipped(files[name], limits.upload_bytes)
        name, ending = _kind(files) if files else ("", "")
        if ending != ".hea":
            raise DataError("expected a WFDB header in the zip, a file that ends in .hea, with its .dat beside it")
    if ending not in FORMATS:
        known = ", ".join(FORMATS)
        raise RefusedError(415, f"cannot read {ending or 'a file without an ending'!r}; send one of {known}, or .zip")
    return checked(_signal(_read(files, name, ending, limits)), limits, rate_hz)


def checked(signal: Signal, limits: Limits, rate_hz: float | None = None) -> Signal:
    """The signal, if it is not too large and its rate makes sense."""
    if signal.values.size > limits.values or signal.values.shape[1] > limits.channels:
        raise DataError(
            f"a signal may have {limits.values} values in {limits.channels} channels, "
            f"got {signal.length} samples of {signal.values.shape[1]}; send a part of it"
        )
    rate = rate_hz if signal.rate_hz is None else signal.rate_hz
    if rate is not None and not MIN_HZ <= rate <= MAX_HZ:
        raise DataError(f"expected a rate of {MIN_HZ:g} to {MAX_HZ:g} Hz, got {rate:g}")
    if rate == signal.rate_hz and max(len(signal.id), len(signal.record)) <= MAX_ID:
        return signal
    return replace(signal, id=signal.id[:MAX_ID], rate_hz=rate, record=signal.record[:MAX_ID])


def _read(files: Files, name: str, ending: str, limits: Limits) -> RecordingFile:
    with TemporaryDirectory(prefix="geopatch-upload-") as folder:
        for other, content in files.items():
            (Path(folder) / _plain_name(other)).write_bytes(content)
        path = Path(folder) / _plain_name(name)
        try:
            if ending in AUDIO and sound_size(path) > limits.values:
                raise DataError(f"the sound has more than {limits.values} values; cut it, or send one channel")
            return read_file(InputFile(path, PurePosixPath(name).stem[:MAX_ID] or "upload", (path,)), ReadOptions())
        except MissingExtraError:
            raise
        except GeoPatchError as error:  # where the file lay for a moment helps nobody
            raise DataError(str(error).replace(f"{folder}/", "")) from error


def _signal(reading: RecordingFile) -> Signal:
    if len(reading.signals) > 1:
        ids = listed([signal.id for signal in reading.signals])
        raise DataError(f"the file holds {len(reading.signals)} recordings ({ids}); send a file of one of them")
    return reading.signals[0]


def _kind(files: Files) -> tuple[str, str]:
    """The file whose ending names the format, and that ending."""
    names = sorted(files, key=lambda name: not name.lower().endswith(".hea"))
    return names[0], PurePosixPath(names[0]).suffix.lower()


def _plain_name(name: str) -> str:
    """The last part of a name, if it is a plain one; else one of ours with the same ending."""
    last = PurePosixPath(name.replace("\\", "/")).name
    ending = PurePosixPath(last).suffix.lower()
    return last if PLAIN_NAME.fullmatch(last) else f"upload{ending if ending in FORMATS else ''}"


def _unzipped(data: bytes, most: int) -> dict[str, bytes]:
    """Header and data of a WFDB record in a zip. Sizes are counted while reading; those in the archive may be wrong."""
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()][:1000]
            for info in (one for one in members if one.filename.lower().endswith((".hea", ".dat", ".atr"))):
                with archive.open(info) as member:
                    part = member.read(most + 1)
                most -= len(part)
                if most < 0:
                    raise DataError("the zip holds more than an upload may; send one record")
                files[PurePosixPath(info.filename).name] = part
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, RuntimeError, NotImplementedError, EOFError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError("the file is no zip, or is damaged; write it again") from error
    return files
