"""The reading layer: the same recordings from every format and form of frame, one file at a time."""

from __future__ import annotations

import json
from datetime import date, datetime, time, timezone
from pathlib import Path
from typing import Any

import edfio
import numpy as np
import pandas as pd
import polars as pl
import pytest
import soundfile
import wfdb
from commands import Run, runner

import geopatch
from geopatch.data.metadata import MetadataTable, PathPattern, with_metadata
from geopatch.data.reading import InputFile, list_files, read_file, read_recordings
from geopatch.errors import ConfigError, DataError
from geopatch.inputs import as_signals
from geopatch.read_options import ReadOptions
from geopatch.signal import Signal

RATE_HZ, ROWS = 50.0, 300
START = datetime(2026, 11, 16, 12, tzinfo=timezone.utc)
VALUES = np.random.default_rng(0).normal(size=(2, ROWS, 3)).round(3)
NAMES = ("x", "y", "z")
TIMES = pd.date_range(START, periods=ROWS, freq="20ms").as_unit("us")


def frame_of(n: int) -> pd.DataFrame:
    return pd.DataFrame(VALUES[n], columns=list(NAMES), index=TIMES)


def long_frame() -> pd.DataFrame:
    return pd.concat({f"r{n}": frame_of(n) for n in range(2)}, names=["id", "time"])


def polars_frame() -> pl.DataFrame:
    return pl.DataFrame({name: column.to_list() for name, column in long_frame().reset_index().items()})


def tidy_frame() -> pd.DataFrame:
    return long_frame().reset_index().melt(id_vars=["id", "time"], var_name="channel", value_name="value")


FORMS: dict[str, Any] = {
    "MultiIndex": long_frame,
    "long": lambda: long_frame().reset_index(),
    "polars": polars_frame,
    "lazy": lambda: polars_frame().lazy(),
    "records over channels": lambda: pd.concat({f"r{n}": frame_of(n) for n in range(2)}, axis=1),
    "a row for each value": tidy_frame,
}
FILES: dict[str, Any] = {
    "a.csv": lambda path: long_frame().reset_index().to_csv(path, index=False),
    "a.parquet": lambda path: polars_frame().write_parquet(path),
    "a.feather": lambda path: polars_frame().write_ipc(path),
    "a.jsonl": lambda path: polars_frame().with_columns(pl.col("time").dt.to_string("iso")).write_ndjson(path),
    "a.tsv": lambda path: long_frame().reset_index().to_csv(path, index=False, sep="\t"),
}


def check(signals: Any) -> None:
    assert [signal.id for signal in signals] == ["r0", "r1"]
    for n, signal in enumerate(signals):
        np.testing.assert_array_equal(signal.values, VALUES[n].astype(np.float32))
        assert (signal.rate_hz, signal.channels, signal.start_time) == (RATE_HZ, NAMES, START)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_frame_gives_the_same_recordings(form: str) -> None:
    check(geopatch.read(FORMS[form]()).signals)
    check(as_signals(FORMS[form]()))


@pytest.mark.parametrize("name", FILES)
def test_every_format_of_tables_gives_the_same_recordings(name: str, tmp_path: Path) -> None:
    FILES[name](tmp_path / name)
    check(geopatch.read(tmp_path / name).signals)


def test_a_frame_with_an_index_of_times_is_one_recording() -> None:
    (signal,) = geopatch.read(frame_of(0)).signals
    np.testing.assert_array_equal(signal.values, VALUES[0].astype(np.float32))
    assert (signal.rate_hz, signal.start_time) == (RATE_HZ, START)
    seconds = frame_of(0).set_axis(np.arange(ROWS) / RATE_HZ)
    assert [signal.rate_hz for signal in as_signals(seconds)] == [RATE_HZ]
    passed = frame_of(0).set_axis(pd.to_timedelta(np.arange(ROWS) * 20, unit="ms"))
    assert [signal.rate_hz for signal in as_signals(passed)] == [RATE_HZ]


def test_a_wide_frame_with_ids_has_a_signal_in_each_row() -> None:
    wide = pd.DataFrame(VALUES[:, :100, 0], columns=range(100))
    named = wide.assign(id=["a", "b"])
    by_index = wide.set_axis(["a", "b"])
    for frame in (named, by_index, pl.DataFrame({str(name): column.to_list() for name, column in named.items()})):
        signals = geopatch.read(frame).signals
        assert [(signal.id, signal.values.shape) for signal in signals] == [("a", (100, 1)), ("b", (100, 1))]


def test_a_frame_is_one_recording_where_it_is_read_and_rows_of_features_where_it_is_fitted() -> None:
    plain = frame_of(0).reset_index(drop=True)
    assert [signal.values.shape for signal in geopatch.read(plain).signals] == [(ROWS, 3)]
    assert len(as_signals(plain)) == ROWS


class FakeArray:
    """What of xarray's DataArray is used: dims, coords, and itself as a frame."""

    name = None

    def __init__(self, values: np.ndarray, coords: dict[str, Any]) -> None:
        self.values, self.coords, self.dims = values, coords, tuple(coords)

    def rename(self, name: str) -> FakeArray:
        return self

    def to_dataframe(self) -> pd.DataFrame:
        index = pd.MultiIndex.from_product(list(self.coords.values()), names=self.dims)
        return pd.DataFrame({"value": self.values.ravel()}, index=index)


def test_arrays_of_xarray() -> None:
    check(geopatch.read(FakeArray(VALUES, {"record": ["r0", "r1"], "time": TIMES, "channel": list(NAMES)})).signals)
    (signal,) = geopatch.read(FakeArray(VALUES[0], {"time": TIMES, "channel": list(NAMES)})).signals
    assert (signal.rate_hz, signal.channels) == (RATE_HZ, NAMES)
    xarray = pytest.importorskip("xarray")
    coords = {"record": ["r0", "r1"], "time": TIMES.tz_localize(None), "channel": list(NAMES)}
    array = xarray.DataArray(VALUES, dims=("record", "time", "channel"), coords=coords)
    for data in (array, array.to_dataset("channel")):
        signals = geopatch.read(data).signals
        assert [signal.id for signal in signals] == ["r0", "r1"]
        np.testing.assert_array_equal(signals[1].values, VALUES[1].astype(np.float32))


def write_edf(path: Path) -> None:
    slow = edfio.EdfSignal(np.arange(6, dtype=np.float64), 1, label="SpO2", physical_dimension="%")
    signals = [
        edfio.EdfSignal(VALUES[0, :, n], RATE_HZ, label=name, physical_dimension="uV", physical_range=(-10, 10))
        for n, name in enumerate(NAMES)
    ]
    edfio.Edf(
        [*signals, slow],
        patient=edfio.Patient(code="P1", sex="F", birthdate=date(1960, 1, 2)),
        recording=edfio.Recording(startdate=START.date(), equipment_code="box"),
        starttime=time(12, 0, 0),
    ).write(path)


def test_edf(tmp_path: Path) -> None:
    write_edf(tmp_path / "night.edf")
    collection = geopatch.read(tmp_path / "night.edf")
    (signal,) = collection.signals
    np.testing.assert_allclose(signal.values, VALUES[0], atol=20 / 65535)
    assert (signal.id, signal.rate_hz, signal.channels, signal.units) == ("night", RATE_HZ, NAMES, ("uV",) * 3)
    assert signal.start_time == START.replace(tzinfo=None)
    assert collection.metadata[0]["patient_code"] == "P1"
    assert collection.metadata[0]["sex"] == "F"
    assert collection.metadata[0]["recording_equipment_code"] == "box"
    assert any("another rate are left out: SpO2 (1 Hz)" in note for note in collection.notes)
    (slow,) = geopatch.read(tmp_path / "night.edf", channels=["SpO2"]).signals
    assert (slow.rate_hz, slow.length) == (1.0, 6)


def test_bdf_and_edf_that_is_cut_off(tmp_path: Path) -> None:
    signal = edfio.BdfSignal(VALUES[0, :, 0], RATE_HZ, label="Cz", physical_dimension="uV", physical_range=(-10, 10))
    edfio.Bdf([signal]).write(tmp_path / "a.bdf")
    (read,) = geopatch.read(tmp_path / "a.bdf").signals
    np.testing.assert_allclose(read.values[:, 0], VALUES[0, :, 0], atol=1e-5)
    assert read.start_time is None
    write_edf(tmp_path / "b.edf")
    (tmp_path / "b.edf").write_bytes((tmp_path / "b.edf").read_bytes()[:-700])
    with pytest.raises(DataError, match=r"b.edf is cut off: expected 6 data records by its header, got 3"):
        geopatch.read(tmp_path / "b.edf")
    (tmp_path / "c.edf").write_text("no EDF" * 100)
    with pytest.raises(DataError, match=r"c.edf is no EDF file"):
        geopatch.read(tmp_path / "c.edf")


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "mp3"])
def test_sound_is_what_the_library_reads(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"hello.{suffix}"
    soundfile.write(path, np.sin(np.arange(8000) / 20) * 0.5, 16000)
    expected, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
    (signal,) = geopatch.read(path).signals
    np.testing.assert_array_equal(signal.values, expected)
    assert (signal.id, signal.rate_hz) == ("hello", rate_hz)


def test_tags_of_sound_are_metadata(tmp_path: Path) -> None:
    with soundfile.SoundFile(tmp_path / "a.wav", "w", 16000, 1) as sound:
        sound.title, sound.artist = "arctic_a0001", "bdl"
        sound.write(np.zeros(100))
    assert geopatch.read(tmp_path / "a.wav").metadata == ({"title": "arctic_a0001", "artist": "bdl"},)


def write_wfdb(folder: Path, name: str, n: int = 0, **more: Any) -> None:
    comments = more.pop("comments", ["69 M 1085 1629 x1", "Aldomet"])
    wfdb.wrsamp(
        name,
        fs=RATE_HZ,
        units=["mV"] * 3,
        sig_name=list(NAMES),
        p_signal=VALUES[n],
        fmt=["16"] * 3,
        comments=comments,
        write_dir=str(folder),
        **more,
    )


def test_wfdb_records_by_header_name_and_folder(tmp_path: Path) -> None:
    write_wfdb(tmp_path, "r0", base_time=time(12), base_date=date(2026, 11, 16))
    write_wfdb(tmp_path, "r1", 1, comments=["<age>: 40  <sex>: F"])
    wfdb.wrann("r1", "atr", np.asarray([10, 60]), ["N", "V"], write_dir=str(tmp_path))
    for path in (tmp_path / "r0", tmp_path / "r0.hea", tmp_path / "r0.dat"):
        collection = geopatch.read(path)
        (signal,) = collection.signals
        np.testing.assert_allclose(signal.values, VALUES[0], atol=1e-3)
        assert (signal.id, signal.units, signal.start_time) == ("r0", ("mV",) * 3, START.replace(tzinfo=None))
        assert collection.metadata == ({"age": 69, "sex": "M", "comment": "Aldomet"},)
    plain, marked = read_recordings(tmp_path)
    assert marked.recordings[0].beat_symbols.tolist() == ["N", "V"]
    assert len(plain.recordings[0].beat_symbols) == 0
    assert dict(marked.metadata[0]) == {"age": 40, "sex": "F"}
    assert [part.name for part in marked.file.parts] == ["r1.atr", "r1.dat", "r1.hea"]


def test_wfdb_records_of_several_segments_are_one(tmp_path: Path) -> None:
    write_wfdb(tmp_path, "s1", comments=[])
    write_wfdb(tmp_path, "s2", 1, comments=[])
    (tmp_path / "whole.hea").write_text(f"whole/2 3 {RATE_HZ:g} {2 * ROWS}\ns1 {ROWS}\ns2 {ROWS}\n")
    (read,) = read_recordings(tmp_path)
    np.testing.assert_allclose(read.signals[0].values, np.concatenate(VALUES), atol=1e-3)
    assert read.signals[0].id == "whole"


def test_a_wfdb_header_names_no_file_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "secret.dat").write_bytes(b"\1\2" * 100)
    folder = tmp_path / "records"
    folder.mkdir()
    for name in ("../secret.dat", str(tmp_path / "secret.dat"), "file:///etc/passwd"):
        (folder / "r.hea").write_text(f"r 1 100 10\n{name} 16 200 12 0 0 0 0 x\n")
        with pytest.raises(DataError, match=r"r\.hea (names|cannot be read as WFDB)"):
            geopatch.read(folder / "r.hea")
    (folder / "r.hea").write_text("r/2 1 100 20\n../secret 10\n../secret 10\n")
    with pytest.raises(DataError, match=r"r\.hea (names segment|cannot be read as WFDB)"):
        geopatch.read(folder / "r.hea")


def fill(folder: Path) -> None:
    (folder / "north" / "anna").mkdir(parents=True)
    (folder / "south" / "ben").mkdir(parents=True)
    frame_of(0).to_csv(folder / "north" / "anna" / "rec1.csv", index_label="time")
    frame_of(1).to_csv(folder / "south" / "ben" / "rec1.csv", index_label="time")
    long_frame().reset_index().to_csv(folder / "both.csv", index=False)
    soundfile.write(folder / "same.wav", np.zeros(100) + 0.1, 8000)
    frame_of(0).to_csv(folder / "same.csv", index_label="time")
    (folder / "set_TRAIN.tsv").write_text("1\t2\t3\n2\t4\t5\n")
    (folder / "notes.docx").write_text("nothing")
    (folder / "broken.csv").write_text("time,x\n0,1\n1,2\n3,x\n")
    (folder / ".hidden.csv").write_text("x\n1\n")


def test_a_folder_is_read_file_by_file_and_what_cannot_be_is_said(tmp_path: Path) -> None:
    fill(tmp_path)
    skipped: list[str] = []
    readings = list(read_recordings(tmp_path, skip=lambda file, error: skipped.append(str(error))))
    ids = [signal.id for reading in readings for signal in reading.signals]
    assert ids == [
        "both/r0", "both/r1", "north/anna/rec1", "same.csv", "same.wav", "set_TRAIN/0", "set_TRAIN/1", "south/ben/rec1"
    ]  # fmt: skip
    assert len(skipped) == 2
    assert any("broken.csv" in line and "line 4" in line and "\n" not in line for line in skipped)
    assert any("notes.docx: cannot read .docx" in line for line in skipped)
    with pytest.raises(DataError, match=r"broken.csv"):
        list(read_recordings(tmp_path))


def test_digests_change_with_any_part_of_a_file(tmp_path: Path) -> None:
    write_wfdb(tmp_path, "r0")
    (file,) = list_files(tmp_path)
    before = file.digest
    assert list_files(tmp_path)[0].digest == before
    data = (tmp_path / "r0.dat").read_bytes()
    (tmp_path / "r0.dat").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert list_files(tmp_path)[0].digest != before


def test_two_files_of_one_id_are_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    paths = [tmp_path / "north" / "anna" / "rec1.csv", tmp_path / "south" / "ben" / "rec1.csv"]
    with pytest.raises(DataError, match="would both be recording 'rec1'; rename one, or give the folder"):
        list_files(paths)
    with pytest.raises(DataError, match="has no file that can be read"):
        (tmp_path / "empty").mkdir()
        list_files(tmp_path / "empty")


def test_metadata_from_a_table_and_from_the_path(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path.parent / "people.csv").write_text("file,age,site\nrec1.csv,40,west\nboth/r1,50,\nnobody,1,\n")
    table = MetadataTable.read(tmp_path.parent / "people.csv")
    pattern = PathPattern("{site}/{subject}/*")
    readings = read_recordings(tmp_path, skip=lambda *_: None)
    completed = [with_metadata(reading, table, pattern) for reading in readings]
    rows = {s.id: dict(row) for reading in completed for s, row in zip(reading.signals, reading.metadata, strict=True)}
    assert rows["north/anna/rec1"] == {"site": "west", "subject": "anna", "age": 40}
    assert rows["both/r1"]["age"] == 50
    assert table.unused() == ["nobody"]
    subjects = {r.signal.id: r.subject for reading in completed for r in reading.recordings}
    assert subjects["south/ben/rec1"] == "ben"
    notes = [note for reading in completed for note in reading.notes]
    assert "people.csv has no row for 'both/r0'" in notes


def test_patterns_of_paths() -> None:
    assert PathPattern("{site}/{subject}_{session}").of(Path("/data/north/anna_2.csv")) == {
        "site": "north",
        "subject": "anna",
        "session": "2",
    }
    assert PathPattern("{site}/x*.csv").of(Path("/data/north/y1.csv")) is None
    for pattern in ("*/*", "{a}/{a}"):
        with pytest.raises(ConfigError, match="a pattern of paths has fields"):
            PathPattern(pattern)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def test_inspect_prints_what_would_be_read(tmp_path: Path, run: Run) -> None:
    fill(tmp_path)
    done = run("inspect", str(tmp_path), "--metadata-from-path", "{site}/{subject}/*")
    assert done.code == 0
    assert "north/anna/rec1: 6 s at 50 Hz, 3 channels (x, y, z), from 2026-11-16 12:00:00+00:00, site=north" in done.out
    assert "50 Hz from column 'time' (ISO times with a zone)" in done.out
    assert "skipped" in done.out
    assert "2 skipped" in done.out.splitlines()[-1]
    rows = json.loads(
        run("inspect", str(tmp_path / "same.csv"), "--units", "x=g,y=g", "--channels", "y,x", "--json").out
    )
    (recording,) = rows["files"][0]["recordings"]
    assert (recording["channels"], recording["units"], recording["rate_hz"]) == (["y", "x"], ["g", "g"], 50.0)
    assert rows["files"][0]["digest"] == list_files(tmp_path / "same.csv")[0].digest


def test_inspect_refuses_in_one_line(tmp_path: Path, run: Run) -> None:
    done = run("inspect", str(tmp_path / "none.csv"))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "none.csv: no such file" in done.err


def test_signals_keep_start_and_units() -> None:
    signal = Signal(VALUES[0], "a", RATE_HZ, NAMES, start_time=START, units=("mV", "", "g"))
    cut = signal.window(100, 200)
    assert (cut.start_time, cut.units) == (START.replace(second=2), signal.units)
    assert cut.resampled(25.0).start_time == cut.start_time
    assert signal.arranged(("z", "x")).units == ("g", "mV")
    assert signal.at_rate(25.0).window(50, 60).start_time == START.replace(second=2)
    with pytest.raises(ValueError, match="has 3 channels but 1 units"):
        Signal(VALUES[0], "a", units=("mV",))


def test_a_collection_keeps_metadata_and_notes(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,x,who\na,1,anna\na,2,anna\nb,3,ben\nb,4,ben\n")
    collection = geopatch.read(tmp_path / "a.csv")
    assert collection.subset([1]).metadata == ({"who": "ben"},)
    assert collection.subset([1]).notes == collection.notes
    file = InputFile(tmp_path / "a.csv", "a", (tmp_path / "a.csv",))
    assert read_file(file, ReadOptions(rate_hz=10.0)).signals[0].rate_hz == 10.0
