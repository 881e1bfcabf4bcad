"""Uploads: what is read equals what a library reads, and ten thousand malformed ones give 4xx and leave memory flat."""

from __future__ import annotations

import gc
import io
import json
import os
import pickle
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
import wfdb
from hypothesis import given
from hypothesis import strategies as st
from serving import client_of, make_place
from starlette.testclient import TestClient

from geopatch.data.physionet import read_wfdb
from geopatch.errors import DataError, GeoPatchError
from geopatch.server import Limits
from geopatch.server.refusal import RefusedError
from geopatch.server.uploads import read_upload
from geopatch.signal import Signal

MALFORMED = int(os.environ.get("GEOPATCH_MALFORMED", "300"))
FLAT_MB = 48.0
KINDS = ("f2", "f4", "f8", "i1", "i2", "i4", "u1", ">f4", ">i2")
Upload = list[tuple[str, bytes]]


def read(name: str, data: bytes, rate_hz: float | None = None) -> Signal:
    return read_upload({name: data}, Limits(), rate_hz)


def npy(array: np.ndarray, allow_pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


def zipped(**files: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name.replace("_", "."), data)
    return file.getvalue()


@pytest.mark.parametrize("format", ["16", "80", "24", "32", "212", "61"])
@pytest.mark.parametrize(("width", "length"), [(1, 101), (2, 64), (3, 7)])
def test_wfdb_is_what_the_library_reads(format: str, width: int, length: int, tmp_path: Path) -> None:
    size = {"16": 2, "61": 2, "80": 1, "24": 3, "32": 4}.get(format, 0)
    count = width * length * size if size else -(-width * length // 2) * 3
    data = np.random.default_rng(0).integers(0, 256, count, dtype=np.uint8).tobytes()
    lines = "".join(f"r.dat {format} 200.5({n})/mV 12 0 0 0 0 lead {n}\n" for n in range(width))
    header = f"# a comment\nr {width} 360 {length}\n{lines}"
    (tmp_path / "r.dat").write_bytes(data)
    (tmp_path / "r.hea").write_text(header)
    expected = wfdb.rdrecord(str(tmp_path / "r"))
    files = {"r.hea": header.encode(), "r.dat": data}
    for found in (read_upload(files, Limits()), read("r.zip", zipped(r_hea=files["r.hea"], r_dat=data))):
        np.testing.assert_allclose(found.values, expected.p_signal, rtol=1e-4, atol=1e-3)
        assert (found.rate_hz, list(found.channels), found.id) == (360.0, expected.sig_name, "r")


def test_leads_stand_in_the_order_in_which_records_are_read_from_disk(tmp_path: Path) -> None:
    """Record 114 of MITDB has V5 before MLII, all others MLII first."""
    header = "r 2 360 8\nr.dat 16 200 12 0 0 0 0 V5\nr.dat 16 200 12 0 0 0 0 MLII\n"
    data = np.arange(16, dtype="<i2").tobytes()
    (tmp_path / "r.dat").write_bytes(data)
    (tmp_path / "r.hea").write_text(header)
    wfdb.wrann("r", "atr", np.asarray([4]), ["N"], write_dir=str(tmp_path))
    stored = read_wfdb(tmp_path / "r").signal
    uploaded = read_upload({"r.hea": header.encode(), "r.dat": data}, Limits())
    assert uploaded.channels == stored.channels == ("MLII", "V5")
    np.testing.assert_allclose(uploaded.values, stored.values, atol=1e-6)


def test_a_header_that_names_other_files_opens_none(tmp_path: Path) -> None:
    secret = tmp_path / "secret.dat"
    secret.write_bytes(b"\1\2" * 100)
    for name in (str(secret), f"../{tmp_path.name}/secret.dat", "/etc/passwd", "file:///etc/passwd"):
        header = f"r 1 100 10\n{name} 16 200 12 0 0 0 0 x\n".encode()
        with pytest.raises(DataError, match=r"r\.hea (names .*, which is not beside it|cannot be read as WFDB)"):
            read_upload({"r.hea": header, "r.dat": b"\0" * 100}, Limits())


@pytest.mark.parametrize(
    ("text", "values", "rate_hz", "channels"),
    [
        ("1\n2\n3\n", [[1], [2], [3]], None, ()),
        ("1,2\n3,4\n", [[1, 2], [3, 4]], None, ()),
        ("1 2\n3 4", [[1, 2], [3, 4]], None, ()),
        ("a\tb\n1\t2\n\t4\n", [[1, 2], [np.nan, 4]], None, ("a", "b")),
        ("t;x\n0;1,5\n0,5;2,5\n", [[1.5], [2.5]], 2.0, ("x",)),
        ("time,MLII,V5\n0,1,2\n0.01,NaN,4\n0.02,5,?\n", [[1, 2], [np.nan, 4], [5, np.nan]], 100.0, ("MLII", "V5")),
        ("time_ms,x\n0,1\n8,2\n", [[1], [2]], 125.0, ("x",)),
        ("'sample #','MLII'\n0,995\n1,996\n", [[995], [996]], None, ("MLII",)),
        ("id,x,label\na,1,N\na,2,N\n", [[1], [2]], None, ("x",)),
        ("x,label\n1,N\n2,V\n", [[1], [2]], None, ("x",)),
        ("time,x\n2026-05-01T12:00:00Z,1\n2026-05-01T12:00:00.5Z,2\n", [[1], [2]], 2.0, ("x",)),
        ("\ufeffx\r\n# a comment\r\n\r\n1\r\n", [[1]], None, ("x",)),
    ],
)
def test_tables(text: str, values: list[list[float]], rate_hz: float | None, channels: tuple[str, ...]) -> None:
    found = read("x.csv", text.encode())
    np.testing.assert_array_equal(found.values, np.asarray(values, dtype=np.float32))
    assert (found.rate_hz, found.channels) == (rate_hz, channels)


def test_times_with_few_digits_give_the_rate() -> None:
    rows = "\n".join(f"{n / 360:.3f},{n}" for n in range(500))
    assert read("x.csv", f"time,x\n{rows}".encode()).rate_hz == pytest.approx(360, rel=1e-3)


@given(st.integers(1, 40), st.integers(1, 3), st.sampled_from(KINDS), st.booleans())
def test_npy_is_what_numpy_reads(length: int, width: int, kind: str, fortran: bool) -> None:
    array = np.random.default_rng(length).normal(size=(length, width), scale=20).astype(kind)
    found = read("x.npy", npy(np.asfortranarray(array) if fortran else array), rate_hz=50.0)
    np.testing.assert_array_equal(found.values, array.astype(np.float32))
    assert found.rate_hz == 50.0


def test_sound_is_what_the_library_reads() -> None:
    file, values = io.BytesIO(), np.random.default_rng(0).uniform(-1, 1, (400, 2)).astype(np.float32)
    soundfile.write(file, values, 8000, format="WAV", subtype="FLOAT")
    found = read("x.wav", file.getvalue())
    np.testing.assert_array_equal(found.values, values)
    assert found.rate_hz == 8000


class Bomb:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch /tmp/geopatch-was-run",)


def with_header(shape: str, kind: str = "<f4", data: bytes = b"") -> bytes:
    header = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize(
    ("name", "data", "line"),
    [
        ("x.npy", npy(np.asarray([Bomb()], dtype=object), allow_pickle=True), "never loaded"),
        ("x.npy", pickle.dumps([1, 2]), "no .npy array"),
        ("x.npy", with_header("(268435456,)"), "promises 1073741824 bytes, 0 came"),
        ("x.npy", with_header("(99999999999999, 99999999)"), "promises"),
        ("x.npy", with_header("(-1,)"), "promises|no .npy"),
        ("x.npy", with_header("(2,)", "<c8", b"\0" * 16), "array of numbers"),
        ("x.npy", with_header("(2,)", "<U4", b"\0" * 32), "array of numbers"),
        ("x.npy", with_header("(2, 1, 1)", data=b"\0" * 8), "the file holds 2 recordings"),
        ("x.csv", b"id,x\na,1\na,2\nb,3\nb,4\n", r"the file holds 2 recordings \(a, b\); send a file of one of them"),
        ("x.npy", with_header("(2,)" + "(" * 5000), "no .npy array"),
        ("x.npy", npy(np.full((4, 2), np.nan)), "all NaN"),
        ("x.npy", npy(np.asarray([1.0, np.inf])), "contains inf"),
        ("x.json", b"[" * 100_000, "nested too deeply"),
        ("x.json", b'{"values": "1"}', "list of numbers"),
        ("x.json", b'{"values": [[1], [1, 2]]}', "as many numbers"),
        ("x.json", b'{"values": [1], "rate_hz": NaN}', "rate_hz as one number"),
        ("x.json", b'{"values": [1], "rate_hz": 1e300}', "expected a rate"),
        ("x.json", b'{"values": [1' + b"0" * 400 + b"]}", "contains inf|as numbers"),
        ("x.csv", b"", "got none or an empty one"),
        ("x.csv", b"\xff\xfe1\x002", "UTF-16"),
        ("x.csv", b"a,b\n1,2\n3\n4,5\n", "expected 2 fields"),
        ("x.csv", b"a\n1\n2x3\n", "expected a number in column 'a', got '2x3'"),
        ("x.csv", b"time,x\n0,1\n5,2\n1,3\n", "the times are uneven: steps of 1 to 4 s"),
        ("x.csv", b"time\n0\n1\n", "no column of numbers is left to be a channel"),
        ("x.wav", b"RIFF\xff\xff\xff\x7fWAVEfmt ", "x.wav cannot be read as audio"),
        ("x.zip", zipped(big_dat=b"\0" * 40_000_000, r_hea=b"r 1 1 1\n"), "more than an upload may"),
        ("x.zip", b"PK\x03\x04" + b"\0" * 50, "no zip"),
        ("x.zip", zipped(x_txt=b"1"), "expected a WFDB header"),
        ("r.hea", b"r 1 360 1000000000\nr.dat 16 200 12 0 0 0 0 x\n", "names r.dat, which is not beside it"),
        ("r.hea", b"r/3 1 360 10\na 10\n", "promises 3 signals and describes 1"),
        ("r.hea", b"\xff\xfe\0", "r.hea cannot be read as WFDB"),
    ],
)
def test_malformed_uploads_are_one_line_errors(name: str, data: bytes, line: str) -> None:
    with pytest.raises(GeoPatchError, match=line):
        read(name, data)
    assert not Path("/tmp/geopatch-was-run").exists()


def test_a_header_that_promises_a_gigabyte() -> None:
    header = b"r 1 360 500000000\nr.dat 16 200 12 0 0 0 0 x\n"
    with pytest.raises(DataError, match=r"r\.dat: expected 1000000000 bytes for the 500000000 samples .*, got 100"):
        read_upload({"r.hea": header, "r.dat": b"\0" * 100}, Limits())


def test_unknown_formats_are_named() -> None:
    with pytest.raises(RefusedError, match=r"cannot read '\.exe'") as found:
        read("x.exe", b"MZ")
    assert found.value.status == 415


def malformed(draw: random.Random) -> Upload:
    """One of many ways to be wrong, seeds of real files damaged among them."""
    noise = draw.randbytes(draw.randrange(1, 2000))
    good = npy(np.arange(600, dtype=np.float32).reshape(-1, 2))
    header = (
        f"r {draw.choice([0, 1, 2, 999, -1])} {draw.choice([360, 0, -1, 'x'])} {draw.choice([10**9, 10**18, -5, 9])}\n"
    )
    lines = "".join(
        f"r.dat {draw.choice([16, 212, 8, 'x'])} {draw.choice(['0/0', 'nan', '1e999', '200'])}\n" for _ in range(2)
    )
    wide = json.dumps(
        {"values": [[1.0] * draw.randrange(1, 9)] * draw.randrange(1, 9), "rate_hz": draw.choice([0, -1, 1e99])}
    )
    choices: list[Callable[[], Upload]] = [
        lambda: [(f"x.{draw.choice(['csv', 'json', 'npy', 'wav', 'flac', 'zip', 'hea', 'txt', 'exe', ''])}", noise)],
        lambda: [("x.npy", flipped(good, draw, 8))],
        lambda: [
            (
                "x.npy",
                with_header(
                    f"({draw.choice([2**28, 2**40, 2**62, -3, 10**30])},)",
                    draw.choice(["<f4", "|O", "<U9", "<c16", "V8"]),
                    noise,
                ),
            )
        ],
        lambda: [("x.npy", pickle.dumps({"a": [1] * draw.randrange(50)}))],
        lambda: [("x.npy", npy(np.full((draw.randrange(1, 3000), 2), draw.choice([np.nan, np.inf, -np.inf]))))],
        lambda: [("x.json", b"[" * draw.randrange(500, 200_000))],
        lambda: [("x.json", b'{"a":' * draw.randrange(500, 20_000))],
        lambda: [("x.json", wide.encode())],
        lambda: [("x.json", json.dumps({"values": [draw.choice(["a", {}, [], None])] * 9}).encode())],
        lambda: [("x.csv", b"nan,nan\n" * draw.randrange(1, 20_000))],
        lambda: [("x.csv", b",".join([b"1"] * draw.randrange(600, 5_000)) + b"\n1\n")],
        lambda: [("x.wav", wav_claim(draw) + noise)],
        lambda: [("x.zip", zipped(r_hea=header.encode(), r_dat=b"\0" * draw.randrange(10, 3_000_000)))],
        lambda: [("x.zip", flipped(zipped(r_hea=b"r 1 360 10\nr.dat 16 200\n", r_dat=b"\0\1" * 10), draw, 12))],
        lambda: [("r.hea", (header + lines).encode()), ("r.dat", noise)],
    ]
    return draw.choice(choices)()


def flipped(data: bytes, draw: random.Random, count: int) -> bytes:
    """Damage in the first bytes, where headers are, and a cut."""
    changed = bytearray(data)
    for _ in range(count):
        changed[draw.randrange(min(len(changed), 120))] = draw.randrange(256)
    return bytes(changed[: draw.randrange(10, len(changed))])


def wav_claim(draw: random.Random) -> bytes:
    size = draw.choice([2**30, 2**31 - 1, 2**32 - 1, 0])
    form = struct.pack(
        "<HHIIHH", draw.choice([1, 3, 99]), draw.choice([0, 1, 2, 60_000]), 8000, 16000, 2, draw.choice([8, 16, 64])
    )
    return (
        b"RIFF"
        + struct.pack("<I", size)
        + b"WAVEfmt "
        + struct.pack("<I", 16)
        + form
        + b"data"
        + struct.pack("<I", size)
    )


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with client_of(make_place(tmp_path_factory.mktemp("place"))) as found:
        yield found


def memory_mb() -> float:
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return float(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_malformed_uploads_give_4xx_and_leave_memory_flat(client: TestClient) -> None:
    draw, taken, statuses, before = random.Random(1), 0, set[int](), 0.0
    for n in range(MALFORMED):
        if n == min(MALFORMED // 3, 500):  # what libraries load once is loaded
            before = memory_mb()
        upload = malformed(draw)
        path, fields = draw.choice([("/api/read", {}), ("/api/search/file", {"options": '{"k": 1}'})])
        answer = client.post(path, files=[("file", part) for part in upload], data=fields)
        statuses.add(answer.status_code)
        taken += answer.status_code == 200  # noise can be a table, and damage can miss
        assert answer.status_code < 500, (upload[0][0], upload[0][1][:80], answer.text)
        assert answer.status_code == 200 or "\n" not in answer.json()["detail"]
    assert {415, 422} <= statuses
    assert taken < MALFORMED / 4
    assert memory_mb() - before < FLAT_MB
    print(
        f"{MALFORMED} malformed uploads: {sorted(statuses)}, {taken} taken, memory {before:.0f} -> {memory_mb():.0f} MB"
    )
