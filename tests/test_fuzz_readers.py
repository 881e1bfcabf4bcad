"""Damaged files of every format: one of our errors in one line that names the file, or a reading; memory stays small.

GEOPATCH_FUZZ=10000 sets how many files are tried.
"""

from __future__ import annotations

import gc
import io
import os
import re
import subprocess
import sys
from datetime import date
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import edfio
import numpy as np
import polars as pl
import pytest
import soundfile
import wfdb
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from geopatch.data.formats import FORMATS, companions
from geopatch.data.reading import InputFile, read_file
from geopatch.errors import DataError
from geopatch.read_options import ReadOptions

FILES = int(os.environ.get("GEOPATCH_FUZZ", "250"))
FLAT_MB = 200.0
VALUES = np.random.default_rng(0).normal(size=(120, 2)).round(3)
FRAME = pl.DataFrame({"id": ["a"] * 60 + ["b"] * 60, "time": [n / 50 for n in range(60)] * 2, "x": VALUES[:, 0]})
ISO = [f"2026-05-01T12:00:{n // 10:02d}.{n % 10}00+02:00" for n in range(120)]


def table(separator: str, decimal: str = ".", times: list[str] | None = None) -> bytes:
    first = times or [f"{n / 50:.2f}" for n in range(120)]
    rows = [separator.join([a, f"{x:.3f}", f"{y:.3f}"]) for a, (x, y) in zip(first, VALUES, strict=True)]
    rows = [row.replace(".", decimal) for row in rows]
    return "\n".join([separator.join(["time", "Größe [g]", "y"]), *rows, ""]).encode()


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, X=VALUES[None], y=np.asarray(["a"]), rate_hz=np.asarray(50.0))
    return file.getvalue()


def polars_bytes(write: str) -> bytes:
    file = io.BytesIO()
    getattr(FRAME, write)(file)
    return file.getvalue()


def sound(form: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.sin(np.arange(4000) / 9) / 2, 8000, format=form)
    return file.getvalue()


def edf(kind: type[edfio.Edf] | type[edfio.Bdf], signal: type[edfio.EdfSignal] | type[edfio.BdfSignal]) -> bytes:
    channels = [signal(VALUES[:, n], 60, label=f"C{n}", physical_dimension="uV") for n in range(2)]
    file = io.BytesIO()
    kind(channels, recording=edfio.Recording(startdate=date(2026, 5, 1))).write(file)  # type: ignore[arg-type]
    return file.getvalue()


@cache
def originals() -> dict[str, tuple[bytes, ...]]:
    """Whole files of every suffix; a WFDB header comes with its data and annotations."""
    with TemporaryDirectory() as folder:
        wfdb.wrsamp("r", 60, ["mV"] * 2, ["I", "II"], VALUES, fmt=["212"] * 2, comments=["40 F"], write_dir=folder)
        wfdb.wrann("r", "atr", np.asarray([5, 50]), ["N", "V"], write_dir=folder)
        record = tuple(Path(folder, f"r.{suffix}").read_bytes() for suffix in ("hea", "dat", "atr"))
    ts = "@univariate false\n@dimensions 2\n@classLabel true a b\n@data\n1,2,3:4,5,6:a\n2,3,?:5,6,7:b\n"
    arff = "@relation r\n@attribute t0 numeric\n@attribute t1 numeric\n@attribute class {a,b}\n@data\n1,2,a\n3,4,b\n"
    return {
        "csv": (table(","),),
        "iso.csv": (table(",", times=ISO),),
        "long.csv": (FRAME.write_csv().encode(),),
        "tsv": (table("\t"),),
        "txt": (table(";", ","),),
        "parquet": (polars_bytes("write_parquet"),),
        "feather": (polars_bytes("write_ipc"),),
        "arrow": (polars_bytes("write_ipc"),),
        "jsonl": (polars_bytes("write_ndjson"),),
        "ndjson": (polars_bytes("write_ndjson"),),
        "json": (b'{"values": [[1, 2], [3, null]], "rate_hz": 50, "channels": ["x", "y"]}',),
        "npy": (npy(VALUES),),
        "npz": (npz(),),
        "hea": record,
        "edf": (edf(edfio.Edf, edfio.EdfSignal),),
        "bdf": (edf(edfio.Bdf, edfio.BdfSignal),),
        "wav": (sound("WAV"),),
        "flac": (sound("FLAC"),),
        "ogg": (sound("OGG"),),
        "mp3": (sound("MP3"),),
        "ts": (ts.encode(),),
        "arff": (arff.encode(),),
    }


def test_every_format_is_fuzzed() -> None:
    assert {f".{name.rpartition('.')[2]}" for name in originals()} == set(FORMATS)


CLAIMS = [b"0", b"-1", b"99999999", b"9" * 19, b"1e308", b"nan", b"2.5"]
share = st.floats(0, 1)
DAMAGE = st.one_of(
    st.tuples(st.just("cut"), share),
    st.tuples(st.just("flip"), share, st.integers(1, 255)),
    st.tuples(st.just("flip"), st.floats(0, 0.05), st.integers(1, 255)),  # where headers are
    st.tuples(st.just("insert"), share, st.binary(min_size=1, max_size=40)),
    st.tuples(st.just("claim"), share, st.sampled_from(CLAIMS)),
    st.tuples(st.just("repeat"), share, st.integers(2, 50)),
    st.tuples(st.just("separator"), share, st.sampled_from([b";", b"\t", b"|", b",", b" "])),
    st.tuples(st.just("ends"), st.sampled_from([b"\r\n", b"\r", b"\n\n", b"\0\n"])),
    st.tuples(st.just("mark"), st.sampled_from([b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"#", b"\x93NUMPY", b"PK"])),
    st.tuples(st.just("commas"), st.just(0)),
    st.tuples(st.just("latin-1"), st.just(0)),
)


def damaged(data: bytes, how: tuple[object, ...]) -> bytes:
    kind, *more = how
    place = int(more[0] * len(data)) if isinstance(more[0], float) else 0
    match kind, more:
        case "cut", _:
            return data[:place]
        case "flip", [_, int(bits)]:
            return data[:place] + bytes(byte ^ bits for byte in data[place : place + 1]) + data[place + 1 :]
        case "insert", [_, bytes(text)]:
            return data[:place] + text + data[place:]
        case "claim", [_, bytes(number)]:
            match = re.search(rb"\d+(\.\d+)?", data[place:])
            return data if match is None else data[: place + match.start()] + number + data[place + match.end() :]
        case "repeat", [_, int(times)]:
            return data[:place] + data[place : place + 50] * times + data[place:]
        case "separator", [_, bytes(mark)]:
            return data[:place] + re.sub(rb"[,;\t|]", mark, data[place:])
        case "ends", [bytes(end)]:
            return data.replace(b"\n", end)
        case "mark", [bytes(text)]:
            return text + data
        case "commas", _:
            return re.sub(rb"(?<=\d)\.(?=\d)", b",", data)
        case _:
            return data.decode("utf-8", "replace").encode("latin-1", "replace")


def attempt(name: str, parts: tuple[bytes, ...], options: ReadOptions) -> str:
    """Read a file that may be damaged; what came of it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"r.{name.rpartition('.')[2]}"
        for suffix, data in zip((path.suffix, ".dat", ".atr"), parts, strict=False):
            path.with_suffix(suffix).write_bytes(data)
        size = sum(map(len, parts))
        try:
            read = read_file(InputFile(path, "r", companions(path)), options)
        except DataError as error:
            line = str(error)
            return f"refused: {line}" if "\n" not in line and "r." in line else f"wrong: {line}"
        for signal in read.signals:
            assert signal.rate_hz is None or signal.rate_hz > 0
        assert len(read.signals) == len(read.metadata) > 0
        compressed = name in ("parquet", "feather", "arrow", "ogg", "mp3", "flac", "npz")
        assert sum(signal.values.nbytes for signal in read.signals) <= (1 << 22 if compressed else 10 * size + 4096)
        return "read"


COUNTS = {"read": 0, "refused": 0}


@settings(max_examples=FILES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=FILES == 250)
@given(
    st.sampled_from(sorted(originals())),
    st.lists(DAMAGE, min_size=0, max_size=3),
    st.integers(0, 2),
    st.sampled_from([ReadOptions(), ReadOptions(rate_hz=25.0), ReadOptions(time="none", units=("mV",))]),
)
@example("csv", [], 0, ReadOptions())
@example("hea", [], 0, ReadOptions())
@example("hea", [("claim", 0.0077, b"99999999")], 0, ReadOptions())  # signals, for which the library makes room
@example("mp3", [("cut", 0.748177227547936), ("flip", 0.015804476490959368, 200)], 0, ReadOptions())  # 28 GB of sound
@example("iso.csv", [("claim", 0.4551996770811815, b"9" * 19)], 0, ReadOptions())
@example("tsv", [("claim", 0.0795, b"1e308")], 0, ReadOptions())
def test_damaged_files_are_read_or_refused(
    name: str, damages: list[tuple[object, ...]], part: int, options: ReadOptions
) -> None:
    parts = list(originals()[name])
    for damage in damages:
        parts[part % len(parts)] = damaged(parts[part % len(parts)], damage)
    outcome = attempt(name, tuple(parts), options)
    assert outcome.startswith("refused" if damages and outcome != "read" else "read"), outcome
    COUNTS[outcome.partition(":")[0]] += 1


def memory_mb() -> float:
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return float(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_the_most_memory_that_damaged_files_took_is_small() -> None:
    for name, parts in originals().items():  # what libraries load once is loaded
        attempt(name, parts, ReadOptions())
    before = memory_mb()
    test_damaged_files_are_read_or_refused()
    assert memory_mb() - before < FLAT_MB
    print(f"{COUNTS}, memory {before:.0f} -> {memory_mb():.0f} MB")


MEASURE = """
import sys
from pathlib import Path
import geopatch
status = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
small, large = sys.argv[1:]
geopatch.read(small)
before = status()
read = geopatch.read(large)
print((status() - before) / Path(large).stat().st_size, read.signals[0].values.shape)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize(
    ("header", "row", "rows"),
    [
        ("x,y,z", "1,2,3", 1_500_000),
        ("time,x", "{n:.2f},{n:.3f}", 500_000),
        ("time;x", "2026-05-01T12:{m:02d}:{s:06.3f};1,5", 200_000),
    ],
)
def test_large_tables_take_at_most_ten_times_their_size(tmp_path: Path, header: str, row: str, rows: int) -> None:
    def text(count: int) -> str:
        numbers = ((n / 100, n // 6000 % 60, n % 6000 / 100) for n in range(count))
        return "\n".join([header, *(row.format(n=n, m=m, s=s) for n, m, s in numbers)])

    (tmp_path / "small.csv").write_text(text(1000))
    (tmp_path / "large.csv").write_text(text(rows))
    paths = [str(tmp_path / "small.csv"), str(tmp_path / "large.csv")]
    done = subprocess.run([sys.executable, "-c", MEASURE, *paths], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[0]) <= 10, done.stdout
