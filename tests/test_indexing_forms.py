"""The same recordings in other forms give the same hits: Parquet, one long frame, polars, wide frames, the server.

And folders of other kinds: WFDB records, EDF files, sound, files with labels.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, time
from pathlib import Path

import edfio
import numpy as np
import pandas
import polars
import pytest
import soundfile
import wfdb
from commands import Run, runner
from recordings import BEGIN, CHANNELS, Planted, write_folder
from starlette.testclient import TestClient

import geopatch
from geopatch.config import TRAIN_PRESETS
from geopatch.data.front_end import FrontEnd
from geopatch.data.metadata import PathPattern
from geopatch.gallery import Gallery
from geopatch.indexing.folder import index_files
from geopatch.indexing.settings import IndexSettings, Listener
from geopatch.kernels import fitting
from geopatch.server import Settings
from geopatch.server.app import create_app
from geopatch.signal import Signal

FILES, DURATION_S, COPIES = 6, 60.0, 18


@pytest.fixture(scope="module", autouse=True)
def _short_fits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"VIEWS": 1000, "SAMPLE_VIEWS": 256, "RANK": 64, "TOKEN_VIEWS": 200}.items():
            patch.setattr(fitting, name, value)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("forms")
    write_folder(base / "csv", FILES, DURATION_S, COPIES)
    return base


@pytest.fixture(scope="module")
def recordings(folder: Path) -> list[Signal]:
    """What the tables hold, all with times, to be written in other forms."""
    read = geopatch.read(folder / "csv").signals
    return [replace(signal, start_time=BEGIN, rate_hz=signal.rate_hz or 50.0) for signal in read]


@pytest.fixture(scope="module")
def frames(recordings: list[Signal]) -> dict[str, pandas.DataFrame]:
    frames = {}
    for signal in recordings:
        assert signal.rate_hz is not None
        seconds = np.arange(signal.length) / signal.rate_hz
        times = pandas.Timestamp(BEGIN) + pandas.to_timedelta((seconds * 1e6).round().astype(np.int64), unit="us")
        values = {name: signal.values[:, n] for n, name in enumerate(CHANNELS)}
        frames[signal.id] = pandas.DataFrame({"time": times, **values})
    return frames


@pytest.fixture(scope="module")
def expected(recordings: list[Signal], folder: Path) -> list[tuple[str, float]]:
    with geopatch.index(recordings, folder / "signals.gallery", window_s=4) as gallery:
        return hits(gallery)


@contextmanager
def client_of(place: Path) -> Iterator[TestClient]:
    app = create_app(Gallery.open(place, read_only=True, device="cpu"), Settings())
    with TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 5000)) as client:
        yield client


def hits(gallery: Gallery) -> list[tuple[str, float]]:
    found = gallery.search(gallery.span("rec05", "12:00:54", "12:00:58"), k=30)
    return [(hit.id, round(hit.score, 5)) for hit in found]


def test_as_parquet(frames: dict[str, pandas.DataFrame], expected: object, tmp_path: Path) -> None:
    (tmp_path / "parquet").mkdir()
    for name, frame in frames.items():
        polars.from_pandas(frame).write_parquet(tmp_path / "parquet" / f"{name}.parquet")
    with geopatch.index(tmp_path / "parquet", window_s=4) as gallery:
        assert hits(gallery) == expected


def long_frame(frames: dict[str, pandas.DataFrame]) -> pandas.DataFrame:
    return pandas.concat([frame.assign(id=name) for name, frame in frames.items()], ignore_index=True)


def test_as_one_long_frame(frames: dict[str, pandas.DataFrame], expected: object, tmp_path: Path) -> None:
    with geopatch.index(long_frame(frames), tmp_path / "g", window_s=4) as gallery:
        assert hits(gallery) == expected


def test_as_polars_also_lazy(frames: dict[str, pandas.DataFrame], expected: object, tmp_path: Path) -> None:
    frame = long_frame(frames)
    lazy = polars.DataFrame({name: frame[name].to_numpy() for name in frame.columns if name != "id"}).lazy()
    lazy = lazy.with_columns(id=polars.Series(frame["id"].tolist()))
    with geopatch.index(lazy, tmp_path / "g", window_s=4) as gallery:
        assert hits(gallery) == expected


def test_as_wide_frames_with_times_as_their_index(
    frames: dict[str, pandas.DataFrame], expected: object, tmp_path: Path
) -> None:
    signals = [replace(geopatch.read(frame.set_index("time")).signals[0], id=name) for name, frame in frames.items()]
    with geopatch.index(signals, tmp_path / "g", window_s=4) as gallery:
        assert hits(gallery) == expected


def test_over_the_server(folder: Path, recordings: list[Signal], expected: list[tuple[str, float]]) -> None:
    place = folder / "signals.gallery"
    with client_of(place) as client:
        query = {"record": "rec05", "start_s": 54.0, "stop_s": 58.0}
        answer = client.post("/api/search", json={"query": query, "k": 30}).json()
        assert [(hit["id"], round(hit["score"], 5)) for hit in answer["hits"]] == expected
        assert answer["hits"][0]["start_time"].startswith("2026-05-01T12:00:")
        sent = {"file": ("new.csv", (folder / "csv" / "rec03.csv").read_bytes())}  # at 100 Hz
        times = {"start_s": "8", "stop_s": "12", "options": '{"k": 5}'}
        uploaded = client.post("/api/search/file", files=sent, data=times).json()
    with Gallery.open(place, read_only=True) as gallery:
        signal = replace(geopatch.read(folder / "csv" / "rec03.csv").signals[0], id="new")
        own = gallery.search(signal.window(800, 1200), k=5)
    assert [hit["id"] for hit in uploaded["hits"]] == [hit.id for hit in own]
    assert own[0].id == "rec03@8s"


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys)


def test_from_an_empty_folder_by_two_commands(run: Run, tmp_path: Path) -> None:
    planted: Planted = write_folder(tmp_path / "recordings", 4, 60.0, 10)
    (tmp_path / "recordings" / "notes.doc").write_text("nothing to read")
    made = run("index", "recordings", "--out", "gallery", "--window-s", "4")
    assert made.code == 0
    assert "4 files: 3 channels (x, y, z), 50 Hz" in made.err
    assert "skipped recordings/notes.doc: cannot read .doc" in made.err
    assert "files: 4 new, 1 skipped; wrote 116 windows; gallery has 116" in made.out
    assert "100 Hz resampled in rec02" in made.out
    search = run("search", "gallery", "--record", "rec03", "--start", "12:00:54", "--stop", "12:00:58", "-k", "5")
    assert search.code == 0
    assert "2026-05-01 12:00:" in search.out
    by_file = run(
        "search", "gallery", "recordings/rec03.csv", "--start", "2026-05-01T12:00:54", "--stop", "58", "-k", "1"
    )
    assert by_file.code == 0
    assert "speed" in by_file.out  # of a hit elsewhere: the part itself is none
    assert planted.query.record == "rec03"
    assert "files: 4 unchanged, 1 skipped; wrote 0 windows" in run("index", "recordings", "--out", "gallery").out
    info = run("gallery", "info", "gallery", "--records").out
    assert "records    4, 4 min in all" in info
    assert "rec03: 0 to 60 s, 29 windows, from 2026-05-01T12:00:00" in info
    wrong = run("search", "gallery", "--record", "rec3", "--start", "1", "--stop", "5")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert "no window of record 'rec3'; of its 4 records the nearest are 'rec03'" in wrong.err
    naive = run("search", "gallery", "--record", "rec00", "--start", "12:00:01", "--stop", "12:00:05")
    assert "record 'rec00' has no wall-clock time" in naive.err


def test_a_folder_of_wfdb_records(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for n, name in enumerate(("a1", "a2", "a3")):
        beats = np.sin(np.arange(3000) / (9 + n))[:, None] + 0.1 * draw.normal(size=(3000, 2))
        wfdb.wrsamp(
            name, 100, ["mV", "mV"], ["MLII", "V1"], p_signal=beats, fmt=["16", "16"], write_dir=str(tmp_path),
            comments=[f"age: {60 + n}"],
        )  # fmt: skip
    report = index_files(tmp_path, tmp_path / "g", IndexSettings(window_s=2.0), Listener())
    assert (report.refused, report.windows) == ([], 3 * 29)
    with Gallery.open(tmp_path / "g", read_only=True) as gallery:
        assert gallery.count("age == 61") == 29
        window = gallery.search(gallery.span("a2", 4, 6), k=1)[0].window
        assert window is not None
        assert window.units == ("mV", "mV")


def write_night(path: Path, draw: np.random.Generator, spindles_s: tuple[int, ...]) -> None:
    """A minute of two channels of EEG from half past eleven on, with the same wave at some of its seconds."""
    values = np.cumsum(draw.normal(size=(6000, 2)), axis=0) * 0.3
    values -= values.mean(0)
    wave = 40 * np.hanning(200) * np.sin(2 * np.pi * 13 * np.arange(200) / 100)
    for start in spindles_s:
        values[100 * start : 100 * start + 200] += wave[:, None]
    signals = [
        edfio.EdfSignal(values[:, n], 100, label=name, physical_dimension="uV", physical_range=(-200, 200))
        for n, name in enumerate(("C3", "C4"))
    ]
    recording = edfio.Recording(startdate=date(2026, 5, 1))
    edfio.Edf(signals, recording=recording, starttime=time(23, 30)).write(path)


def test_a_folder_of_edf_files_by_command_python_and_server(run: Run, tmp_path: Path) -> None:
    draw = np.random.default_rng(4)
    (tmp_path / "nights").mkdir()
    for name, starts in (("n1", (10, 31)), ("n2", (24, 47)), ("n3", (5, 40))):
        write_night(tmp_path / "nights" / f"{name}.edf", draw, starts)
    write_night(tmp_path / "new.edf", draw, (17,))
    made = run("index", "nights", "--out", "g", "--window-s", "2")
    assert made.code == 0, made.err
    by_span = run("search", "g", "--record", "n1", "--start", "23:30:10", "--stop", "23:30:12", "-k", "5", "--json")
    by_file = run("search", "g", "new.edf", "--start", "23:30:17", "--stop", "23:30:19", "-k", "6", "--json")
    spindles = {("n1", 10), ("n1", 31), ("n2", 24), ("n2", 47), ("n3", 5), ("n3", 40)}
    answers = [json.loads(one.out)["hits"] for one in (by_span, by_file)]
    told = [[(hit["record"], round(hit["start_s"])) for hit in answer] for answer in answers]
    assert set(told[0]) == spindles - {("n1", 10)}
    assert set(told[1]) == spindles
    with Gallery.open(tmp_path / "g", read_only=True) as gallery:
        found = gallery.search(gallery.span("n1", "23:30:10", "23:30:12"), k=5)
        assert [(hit.record, round(hit.start_s)) for hit in found] == told[0]
        assert str(found[0].start_time).startswith("2026-05-01 23:30:")
    with client_of(tmp_path / "g") as client:
        sent = {"file": ("new.edf", (tmp_path / "new.edf").read_bytes())}
        times = {"start_s": "17", "stop_s": "19", "options": '{"k": 6}'}
        answer = client.post("/api/search/file", files=sent, data=times).json()
    assert [(hit["record"], round(hit["start_s"])) for hit in answer["hits"]] == told[1]


def tone(seconds: float, low_hz: float, high_hz: float, seed: int) -> np.ndarray:
    """A rising tone; another seed is another voice."""
    draw = np.random.default_rng(seed)
    time = np.arange(int(seconds * 16000)) / 16000
    pitch = low_hz + (high_hz - low_hz) * time / seconds
    return 0.4 * np.sin(2 * np.pi * np.cumsum(pitch) / 16000) + 0.01 * draw.normal(size=len(time))


SENTENCES = {"up": (300.0, 3000.0), "down": (3000.0, 300.0), "high": (2500.0, 3500.0), "low": (200.0, 500.0)}


@pytest.fixture
def voices(tmp_path: Path) -> Path:
    for seed, voice in enumerate(("anna", "ben")):
        (tmp_path / "sound" / voice).mkdir(parents=True)
        for name, pitches in SENTENCES.items():
            path = tmp_path / "sound" / voice / f"{name}.wav"
            soundfile.write(path, tone(1.0 + 0.3 * seed, *pitches, seed=seed), 16000)
    return tmp_path / "sound"


def test_a_folder_of_sound_is_searched_by_its_frames(voices: Path, tmp_path: Path) -> None:
    said: list[str] = []
    settings = IndexSettings(pattern=PathPattern("{voice}/{sentence}"))
    report = index_files(voices, tmp_path / "g", settings, Listener(say=said.append))
    assert report.windows == 8
    assert any("sound as log-mel frames" in line for line in said)
    assert any("each recording is one window" in line for line in said)
    with Gallery.open(tmp_path / "g", read_only=True) as gallery:
        front = FrontEnd.of(gallery.model)
        assert front is not None
        assert front.audio is not None
        assert (gallery.about.rate_hz, len(gallery.about.channels)) == (100.0, 40)
        sound = geopatch.read(voices / "ben" / "up.wav").signals[0]
        best = gallery.search(sound, k=2, where="voice == 'anna'")
        assert best[0].metadata["sentence"] == "up"
        faster = Signal(sound.resampled(22050).values, "other rate", 22050.0)
        assert gallery.search(faster, k=1)[0].id == "ben/up@0s"
    with client_of(tmp_path / "g") as client:
        buffer = io.BytesIO()
        soundfile.write(buffer, tone(1.1, *SENTENCES["down"], seed=7), 16000, format="WAV")
        answer = client.post("/api/search/file", files={"file": ("new.wav", buffer.getvalue())}).json()
    assert answer["hits"][0]["metadata"]["sentence"] == "down"


def test_labels_train_a_half_beside_the_kernels(voices: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setitem(TRAIN_PRESETS, "default", {"max_steps": 3, "min_steps": 1, "epochs": 1})
    settings = IndexSettings(pattern=PathPattern("{voice}/{sentence}"), labels="sentence", whole=True)
    index_files(voices, tmp_path / "g", settings, Listener())
    with Gallery.open(tmp_path / "g", read_only=True) as gallery:
        assert gallery.model is not None
        assert gallery.model.encoder_.config.is_trained
        assert list(gallery.model.classes_) == sorted(SENTENCES)  # type: ignore[arg-type]
        assert gallery.about.widths.embedding == 256
