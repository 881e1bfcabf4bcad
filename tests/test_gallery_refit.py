"""A gallery holds its model and is refitted on its own windows: whole or not at all, and while it is searched."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
from commands import Run, runner
from galleries import ABOUT, entries_of, everything
from refits import COUNT, RATE_HZ, SMALL, WIDE, check_itself, estimator, signals
from servers import PostgresServer, running_server
from serving import make_place, server_of

from geopatch.config import ModelConfig
from geopatch.engines import Entries, about_model, entries_from, place
from geopatch.errors import CheckpointError, ConfigError, GalleryError, SignalError
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.gallery import refit as refitting
from geopatch.gallery.refit import StoredWindows
from geopatch.search import SearchOptions, Span
from geopatch.search.run import with_one_encoder
from geopatch.server.searcher import SearchRequest
from geopatch.server.worker import Worker
from geopatch.signal import Signal

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def model() -> GeoPatch:
    return estimator().fit(signals(8))


def fill(where: str | Path, model: GeoPatch) -> str:
    with Gallery.create(where, model) as gallery:
        gallery.add(signals(), metadata=[{"n": n} for n in range(COUNT)])
    return str(where)


@pytest.fixture(params=["exact:", ""], ids=["exact", "embedded"])
def filled(request: pytest.FixtureRequest, tmp_path: Path, model: GeoPatch) -> str:
    return fill(f"{request.param}{tmp_path / 'gallery'}", model)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with running_server() as running:
        yield running


def check_encoded_by(gallery: Gallery, model: GeoPatch) -> None:
    """Every entry is what the model makes of its window."""
    about = about_model(model)
    assert gallery.refresh() == about
    for entries in gallery.scan(COUNT):
        windows = [window for window in entries.windows if window is not None]
        expected = entries_from(model.encode(windows), windows, about)
        assert entries.encoder == about.encoder
        for name in ("embedding", "tokens", "valid", "patch_s"):
            assert np.allclose(getattr(entries, name), getattr(expected, name), atol=1e-6), name


def test_a_gallery_holds_its_model(filled: str, model: GeoPatch, tmp_path: Path) -> None:
    with Gallery.open(filled, read_only=True, device="cpu") as gallery:
        check_itself(gallery)
        assert gallery.model is gallery.model
        assert gallery.model is not None
        assert gallery.model.device == "cpu"
        assert about_model(gallery.model) == gallery.about
        assert gallery.search("s1", 3, scorer="dtw") == gallery.search("s1", 3, scorer="dtw", model=model)
        assert gallery.search("s1", 3, tempos=True)
        gallery.copy(tmp_path / "copy")
    with Gallery.open(tmp_path / "copy") as copied:
        copied.add([dataclasses.replace(signals()[0], id="twin")])
        assert {hit.id for hit in copied.search(signals()[0], 2, scorer="cosine")} == {"s0", "twin"}


def test_a_model_that_is_given_is_checked(filled: str, model: GeoPatch) -> None:
    with Gallery.open(filled, model=model, read_only=True) as gallery:
        assert gallery.model is model
    with pytest.raises(GalleryError, match="the model came from"):
        Gallery.open(filled, model=estimator(seed=1).fit(signals(8)))


def test_a_gallery_of_a_description_holds_no_model(tmp_path: Path, model: GeoPatch) -> None:
    with Gallery.create(tmp_path / "gallery", about_model(model)) as gallery:
        assert gallery.model is None
        with pytest.raises(GalleryError, match="needs its model to take signals"):
            gallery.add(signals(2))
        with pytest.raises(GalleryError, match="searching by a signal needs the gallery's model"):
            gallery.search(signals(1)[0])
    with Gallery.open(tmp_path / "gallery", model=model) as gallery:
        gallery.add(signals())
        check_itself(gallery)
        gallery.refit()
        check_itself(gallery)
        assert gallery.engine.model() is not None


def test_a_gallery_of_an_earlier_version_holds_no_model(tmp_path: Path, model: GeoPatch) -> None:
    filled = fill(tmp_path / "gallery", model)
    with sqlite3.connect(tmp_path / "gallery" / "gallery.sqlite") as connection:
        connection.execute("DROP TABLE model")
    connection.close()
    with Gallery.open(filled, read_only=True) as gallery:
        assert gallery.model is None
        assert gallery.search("s1", 3)
        gallery.copy(tmp_path / "copy")
    with Gallery.open(filled) as gallery:
        fitted = gallery.refit(estimator())
        check_encoded_by(gallery, fitted)
    with Gallery.open(filled, read_only=True) as gallery:
        check_itself(gallery)


def test_a_damaged_model_is_one_line(tmp_path: Path, model: GeoPatch) -> None:
    filled = fill(tmp_path / "gallery", model)
    with sqlite3.connect(tmp_path / "gallery" / "gallery.sqlite") as connection:
        connection.execute("UPDATE model SET checkpoint = substr(checkpoint, 1, 1000)")
    connection.close()
    with Gallery.open(filled, read_only=True) as gallery:
        assert gallery.search("s1", 3)
        with pytest.raises(CheckpointError, match=r"the model that the gallery .* holds is damaged; restore it"):
            gallery.search(signals(1)[0])


LIGHT = """
import sys
from geopatch.gallery import Gallery
with Gallery.open(sys.argv[1], read_only=True) as gallery:
    print(len(gallery.search("s1", 3, where="n > 2")), len(gallery.search("s2", 3, scorer="cosine")))
    print(sorted({"torch", "sklearn"} & set(sys.modules)))
"""


def test_a_search_by_a_stored_id_loads_no_model(filled: str) -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT, filled], capture_output=True, text=True, timeout=120)
    assert done.stdout == "3 3\n[]\n", done.stderr


def test_a_refit_encodes_every_entry_anew(filled: str, model: GeoPatch) -> None:
    counts: list[int] = []
    with (
        Gallery.open(filled) as gallery,
        Gallery.open(filled, read_only=True) as reader,
        Gallery.open(filled, model=model, read_only=True) as with_model,
    ):
        before = everything(gallery)
        check_itself(reader)
        fitted = gallery.refit(report=counts.append)
        assert fitted is gallery.model
        assert fitted.model_config == model.model_config
        assert fitted.seed_ == model.seed_
        assert fitted.classes_ is None
        assert counts == [COUNT]
        check_encoded_by(gallery, fitted)
        for one in (gallery, reader, with_model):
            check_itself(one)
            check_encoded_by(one, fitted)
            assert one.model is not None
            assert about_model(one.model) == about_model(fitted)
        for id, entry in everything(gallery).items():
            for name in ("ids", "records", "metadata", "channels"):
                assert getattr(entry, name) == getattr(before[id], name)
            window, old = entry.windows[0], before[id].windows[0]
            assert window is not None
            assert old is not None
            assert np.array_equal(window.values, old.values)
        with pytest.raises(GalleryError, match="holds vectors of the encoder"):
            reader.search(signals(1)[0], model=model)
        gallery.add([dataclasses.replace(signals()[0], id="twin")])
        assert {hit.id for hit in reader.search(signals()[0], 2, scorer="cosine")} == {"s0", "twin"}


def test_a_refit_with_other_settings_may_change_the_widths(filled: str) -> None:
    settings = estimator(WIDE)
    with Gallery.open(filled) as gallery, Gallery.open(filled, read_only=True) as reader:
        check_itself(reader)
        fitted = gallery.refit(settings)
        assert not hasattr(settings, "encoder_")
        assert gallery.about.widths.embedding == WIDE.embedding
        check_itself(reader)
        check_encoded_by(reader, fitted)
        fitted.encode(signals(2))
        again = gallery.refit()  # as the present model now is
        assert again.model_config.embedding == WIDE.embedding
        check_itself(reader)


def test_a_refit_is_the_same_as_a_gallery_made_anew(filled: str) -> None:
    with Gallery.open(filled) as gallery:
        gallery.refit(estimator(WIDE, seed=3))
        check_encoded_by(gallery, estimator(WIDE, seed=3).fit(signals()))


def test_a_refit_in_another_engine(monkeypatch: pytest.MonkeyPatch, model: GeoPatch) -> None:
    monkeypatch.setitem(place.ENGINES, "memory", "memory_engine:Memory")
    with Gallery.create("memory://refit", model) as gallery:
        gallery.add(signals())
        check_encoded_by(gallery, gallery.refit(estimator(WIDE)))
    with Gallery.open("memory://refit") as gallery:
        check_itself(gallery)


def test_a_refit_on_a_server(server: PostgresServer, model: GeoPatch, tmp_path: Path) -> None:
    filled = fill(server.url("refit"), model)
    with Gallery.open(filled) as gallery, Gallery.open(filled, read_only=True) as reader:
        for _ in range(6):
            check_itself(reader)
        fitted = gallery.refit(estimator(WIDE))
        for _ in range(6):
            check_itself(reader)
        check_encoded_by(reader, fitted)
    with running_loop(filled, tmp_path) as searches, Gallery.open(filled) as gallery:
        for seed in range(3):
            gallery.refit(estimator(SMALL if seed % 2 else WIDE, seed))
            searches.wait_for(3)


def test_a_server_gallery_made_before_can_be_refitted(server: PostgresServer, model: GeoPatch) -> None:
    """Then, the column had a width, and there was no table for the model."""
    filled = fill(server.url("before"), model)
    server.ask("ALTER TABLE geopatch_before.entry ALTER COLUMN embedding TYPE vector(8)")
    server.ask("CREATE INDEX entry_embedding ON geopatch_before.entry USING hnsw (embedding vector_ip_ops)")
    server.ask("DROP TABLE geopatch_before.model")
    with Gallery.open(filled, model=model) as gallery, Gallery.open(filled, read_only=True) as reader:
        assert reader.model is None
        assert reader.search("s1", 3)
        check_itself(gallery)
        gallery.refit(estimator(WIDE))
        check_itself(reader)


def test_names_and_rates_that_differ_are_no_hindrance(tmp_path: Path, model: GeoPatch) -> None:
    """A model without names takes windows as they stand, and so does the next one."""
    some = signals(12)
    named = [dataclasses.replace(one, channels=("I", "II") if n % 2 else ("V", "II")) for n, one in enumerate(some[:8])]
    unknown = [dataclasses.replace(one, rate_hz=None) for one in some[8:]]
    with Gallery.create(tmp_path / "gallery", model) as gallery:
        gallery.add([*named, *unknown])
        fitted = gallery.refit()
        assert (fitted.channels_, fitted.rate_hz_) == ((), RATE_HZ)
        check_encoded_by(gallery, fitted)
        assert gallery.get("s0").channels == (("V", "II"),)


def test_names_of_the_model_stay(tmp_path: Path) -> None:
    named = signals(10, ("I", "II"))
    with Gallery.create(tmp_path / "gallery", estimator().fit(named)) as gallery:
        gallery.add([dataclasses.replace(named[0], channels=()), *named[1:]])
        assert gallery.refit().channels_ == ("I", "II")
        turned = dataclasses.replace(named[1], values=named[1].values[:, ::-1], channels=("II", "I"))
        assert gallery.search(turned, 1, scorer="cosine")[0].id == "s1"


def test_what_cannot_be_refitted_is_one_line(tmp_path: Path, model: GeoPatch) -> None:
    with Gallery.create(tmp_path / "gallery", model) as gallery:
        with pytest.raises(GalleryError, match="the gallery has no windows to fit a model on; add some first"):
            gallery.refit()
        gallery.add(signals(3))
        gallery.add([dataclasses.replace(one, id=f"bare {n}") for n, one in enumerate(signals(2))], keep_windows=False)
        before = everything(gallery)
        with pytest.raises(GalleryError, match="keeps none of 'bare 0', 'bare 1'; add windows with keep_windows=True"):
            gallery.refit()
        assert everything(gallery).keys() == before.keys()
        gallery.remove(where={"id": {"in": ["bare 0", "bare 1"]}})
        with pytest.raises(ConfigError, match="heads"):
            gallery.refit(GeoPatch(model=ModelConfig(width=16, heads=3)))
        check_encoded_by(gallery, model)
    with Gallery.create(tmp_path / "mixed", ABOUT) as gallery:
        gallery.add(entries_of(["a"]))
        with pytest.raises(GalleryError, match="keeps none of 'a'"):
            gallery.refit()
    with pytest.raises(GalleryError, match="cannot be written"):
        Gallery.open(tmp_path / "gallery", read_only=True).refit()


def test_windows_of_unequal_channels_are_refused(tmp_path: Path) -> None:
    with Gallery.create(tmp_path / "gallery", ABOUT) as gallery:
        entries = entries_of(["a", "b", "c"]).take([1, 2])
        one = Signal(np.zeros((32, 1), np.float32), "c", 16.0)
        gallery.add(dataclasses.replace(entries, windows=(entries.windows[0], one)))
        with pytest.raises(SignalError):
            gallery.refit(estimator())
        assert gallery.refresh() == ABOUT


def test_stored_windows_are_read_as_they_are_used(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refitting, "BATCH", 7)
    with Gallery.open(filled, read_only=True) as gallery:
        windows, expected = StoredWindows(gallery.engine), signals()
        assert windows.rate_hz == RATE_HZ
        assert windows.lengths.tolist() == [one.length for one in expected]
        for order in (range(COUNT), np.random.default_rng(0).permutation(COUNT).tolist(), [-1, 0]):
            for n in order:
                assert np.array_equal(windows[n].values, expected[n].values)
                assert windows[n].id == expected[n].id
        assert [one.id for one in windows[3:9]] == [one.id for one in expected[3:9]]
        reads: list[int] = []
        fetch = gallery.engine.fetch

        def counted(ids: list[str]) -> Entries:
            reads.append(len(ids))
            return fetch(ids)

        monkeypatch.setattr(gallery.engine, "fetch", counted)
        assert len(list(StoredWindows(gallery.engine))) == COUNT
        assert reads == [7, 7, 7, 7, 2]


SEARCHING = """
import sys
from refits import check_itself, signals
from geopatch.gallery import Gallery
with Gallery.open(sys.argv[1], read_only=True, device="cpu") as gallery:
    while True:
        check_itself(gallery)
        hits = gallery.search("s3", 4, scorer="fused")
        assert len(hits) == 4 and hits[0].explain() is not None
        window, scorer = signals()[3], "dtw"
        assert gallery.search(window, 1, scorer=scorer)[0].id == "s3"
        print(gallery.about.encoder, flush=True)
"""


class Loop:
    """A process that searches and writes a line for each round."""

    def __init__(self, where: str, log: Path) -> None:
        self.log = log
        with log.open("wb") as out:
            command = [sys.executable, "-c", SEARCHING, where]
            self.process = subprocess.Popen(command, stdout=out, stderr=out, cwd=HERE)

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().split()

    def wait_for(self, more: int) -> None:
        until, count = time.monotonic() + 120, len(self.lines) + more
        while len(self.lines) < count and time.monotonic() < until:
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)
        assert len(self.lines) >= count


@contextmanager
def running_loop(where: str, folder: Path) -> Iterator[Loop]:
    """Searches in a process of its own; each finds what it must, whatever is done to the gallery beside it."""
    loop = Loop(where, folder / "searches.log")
    try:
        loop.wait_for(1)
        yield loop
    finally:
        loop.process.kill()
        loop.process.wait()


def test_another_process_searches_on_while_refits_are_committed(filled: str, tmp_path: Path) -> None:
    encoders: list[str] = []
    with running_loop(filled, tmp_path) as searches, Gallery.open(filled) as gallery:
        encoders.append(gallery.about.encoder)
        for seed in range(4):
            gallery.refit(estimator(SMALL if seed % 2 else WIDE, seed))
            encoders.append(gallery.about.encoder)
            searches.wait_for(2 + seed % 2)
        searches.wait_for(2)
    assert len(set(encoders)) == 5
    assert set(searches.lines) == set(encoders)
    assert [encoders.index(line) for line in searches.lines] == sorted(encoders.index(line) for line in searches.lines)


def test_threads_search_on_while_refits_are_committed(filled: str) -> None:
    stop, problems, counts = threading.Event(), list[BaseException](), [0, 0]

    def search(worker: int) -> None:
        try:
            with Gallery.open(filled, read_only=True, device="cpu") as gallery:
                while not stop.is_set():
                    check_itself(gallery, 2)
                    counts[worker] += 1
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=search, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    with Gallery.open(filled) as gallery:
        for seed in range(6):
            gallery.refit(estimator(SMALL if seed % 2 else WIDE, seed))
    stop.set()
    for thread in threads:
        thread.join()
    assert not problems
    assert min(counts) > 0


def test_a_search_is_done_again_where_the_encoder_changed(tmp_path: Path, model: GeoPatch) -> None:
    filled, calls = fill(tmp_path / "gallery", model), list[str]()
    with Gallery.open(filled) as gallery, Gallery.open(filled, read_only=True) as reader:

        def refit_meanwhile() -> str:
            calls.append(reader.about.encoder)
            if len(calls) == 1:
                gallery.refit(estimator(seed=len(calls)))
                raise GalleryError("vectors of two encoders met")
            return calls[-1]

        assert with_one_encoder(reader, refit_meanwhile) == gallery.about.encoder
        assert len(set(calls)) == 2

        def refit_always() -> None:
            calls.append("")
            gallery.refit(estimator(seed=len(calls)))

        with pytest.raises(GalleryError, match="refitted again and again"):
            with_one_encoder(reader, refit_always)


KILLED = """
import sys, time
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery, refit
from refits import WIDE, estimator
refit.BATCH, encode, calls = 5, GeoPatch.encode, []
def slow(self, *args, **options):
    calls.append(len(args))
    print("at work", flush=True)
    time.sleep(0.1 if len(calls) < 4 else 600)
    return encode(self, *args, **options)
GeoPatch.encode = slow
with Gallery.open(sys.argv[1], device="cpu") as gallery:
    gallery.refit(estimator(WIDE))
"""


def kill_half_way(filled: str) -> None:
    command = [sys.executable, "-c", KILLED, filled]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HERE) as process:
        assert process.stdout is not None
        for _ in range(4):
            assert process.stdout.readline() == "at work\n"
        with Gallery.open(filled, read_only=True) as reader:
            check_itself(reader)
        os.kill(process.pid, signal.SIGKILL)


def check_stands(filled: str, model: GeoPatch, before: dict[str, Entries]) -> None:
    with Gallery.open(filled, read_only=True) as reader:
        check_encoded_by(reader, model)
        check_itself(reader)
    with Gallery.open(filled) as gallery:
        assert everything(gallery).keys() == before.keys()
        check_encoded_by(gallery, model)


def test_a_killed_refit_leaves_the_old_gallery_and_no_rubbish(filled: str, model: GeoPatch) -> None:
    folder = Path(filled.removeprefix("exact:"))
    with Gallery.open(filled) as gallery:
        before = everything(gallery)
    files, size = {file.name for file in folder.iterdir()}, sum(file.stat().st_size for file in folder.iterdir())
    kill_half_way(filled)
    check_stands(filled, model, before)
    assert {file.name for file in folder.iterdir()} == files
    assert sum(file.stat().st_size for file in folder.iterdir()) == size
    with Gallery.open(filled) as gallery:
        check_encoded_by(gallery, gallery.refit(estimator(WIDE)))


def test_a_killed_refit_on_a_server_leaves_the_old_gallery(server: PostgresServer, model: GeoPatch) -> None:
    filled = fill(server.url("killed"), model)
    with Gallery.open(filled) as gallery:
        before = everything(gallery)
    kill_half_way(filled)
    check_stands(filled, model, before)
    with Gallery.open(filled) as gallery:
        check_encoded_by(gallery, gallery.refit(estimator(WIDE)))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("served"))


def test_a_worker_goes_on_with_the_new_model(served: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(served, tmp_path / "served"))
    with Gallery.open(copied / "gallery", read_only=True) as gallery:
        window = gallery.get("119@3s").windows[0]
    assert window is not None
    options = SearchOptions(k=1, scorer="cosine", windows=False)
    requests = [
        SearchRequest(window, options),
        SearchRequest("119@3s", options),
        SearchRequest(Span("208", 2.5, 4.25), options),
    ]
    started_with = GeoPatch.load(copied / "model", device="cpu")
    workers = [Worker(copied / "gallery", None, device="cpu"), Worker(copied / "gallery", started_with)]
    for embedding in (8, 24):
        if embedding != 8:
            with Gallery.open(copied / "gallery", device="cpu") as gallery:
                gallery.refit(estimator(dataclasses.replace(SMALL, embedding=embedding)))
        for worker in workers:
            answers = [one for one in worker.answer(requests) if isinstance(one, bytes)]
            assert len(answers) == len(requests)
            best = json.loads(answers[0])["hits"][0]
            assert (best["id"], round(best["cosine"], 5)) == ("119@3s", 1)
    assert workers[1]._process is not None
    workers[1]._process.kill()
    workers[1]._process.wait()
    assert isinstance(workers[1].answer(requests)[0], bytes)  # started anew, though its model is an old one
    for worker in workers:
        worker.close()


def test_a_server_answers_every_request_while_it_is_refitted(served: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(served, tmp_path / "served"))
    with Gallery.open(copied / "gallery", read_only=True) as gallery:
        window, old = gallery.get("119@3s").windows[0], gallery.about.encoder
    assert window is not None
    body = {"query": {"signal": {"values": window.values.tolist()}}, "k": 1, "scorer": "cosine"}
    answers: list[httpx.Response] = []
    stop = threading.Event()
    with server_of(copied) as running, httpx.Client(base_url=running.url, timeout=60) as client:

        def search() -> None:
            while not stop.is_set():
                answers.append(client.post("/api/search", json=body))

        thread = threading.Thread(target=search)
        thread.start()
        command = [sys.executable, "-m", "geopatch", "gallery", "refit", str(copied / "gallery"), "--device", "cpu"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        count = len(answers)
        after = httpx.get(f"{running.url}/api/info", timeout=60).json()
        while len(answers) < count + 5 and thread.is_alive():
            stop.wait(0.05)
        stop.set()
        thread.join()
    assert done.returncode == 0, done.stderr
    assert after["encoder"] != old
    assert after["searchable_by_signal"]
    assert {answer.status_code for answer in answers} == {200}
    best = [answer.json()["hits"][0] for answer in answers]
    assert {(hit["id"], round(hit["cosine"], 4)) for hit in best} == {("119@3s", 1.0)}


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys)


def test_the_command_refits(run: Run, tmp_path: Path, model: GeoPatch) -> None:
    model.save(tmp_path / "model")
    np.savez(tmp_path / "more.npz", X=np.stack([one.values[:40] for one in signals(6)]))
    fill(tmp_path / "g", model)
    assert (
        run("gallery", "add", "g", "more.npz", "--device", "cpu").out
        == f"added 6 windows to g, which has {COUNT + 6}\n"
    )
    printed = run("gallery", "refit", "g", "--device", "cpu", "--out", "next").out
    assert printed == f"refitted g on its {COUNT + 6} windows; its model is saved to next\n"
    fields = json.loads(run("gallery", "refit", "g", "--device", "cpu", "--json").out)
    saved = GeoPatch.load("next", device="cpu")
    assert fields == {"place": "g", "windows": COUNT + 6, "encoder": about_model(saved).encoder, "model": None}
    hits = json.loads(run("search", "g", "more.npz", "--row", "2", "-k", "1", "--scorer", "cosine", "--json").out)
    assert hits["hits"][0]["id"] == "more/2"
    assert "holds vectors of the encoder" in run("search", "g", "more.npz", "--model", "model").err
    assert "next is there already" in run("gallery", "refit", "g", "--out", "next").err
    assert "there is no folder" in run("gallery", "refit", "g", "--out", "gone/next").err
    assert "is no gallery" in run("gallery", "refit", "gone").err
