"""The API: every kind of query gives what the gallery itself finds, and what a user can cure is one line."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from serving import WRITER, client_of, make_place
from starlette.testclient import TestClient

from geopatch.data.sample import mitdb_minutes
from geopatch.errors import GeoPatchError
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.search import SearchOptions, Span
from geopatch.server import Settings
from geopatch.server.searcher import Searcher, SearchRequest
from geopatch.server.service import SearchService
from geopatch.signal import Signal


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[TestClient]:
    with client_of(place) as found:
        yield found


@pytest.fixture(scope="module")
def gallery(place: Path) -> Iterator[Gallery]:
    with Gallery.open(place / "gallery", model=GeoPatch.load(place / "model", device="cpu"), read_only=True) as found:
        yield found


def window_of(gallery: Gallery, id: str = "119@3s") -> Signal:
    window = gallery.get(id).windows[0]
    assert window is not None
    return window


def searched(client: TestClient, **asked: Any) -> dict[str, Any]:
    answer = client.post("/api/search", json=asked)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def plain(hits: list[dict[str, Any]]) -> list[tuple[str, float]]:
    return [(hit["id"], round(hit["score"], 4)) for hit in hits]


def test_states_and_info(client: TestClient, gallery: Gallery) -> None:
    assert client.get("/health").json() == {"status": "up"}
    searched(client, query={"id": "119@3s"})  # what answers has loaded the gallery
    assert client.get("/ready").status_code == 200
    told = client.get("/api/info").json()
    assert told["windows"] == len(gallery)
    assert told["window_s"] == 2.0
    assert told["channels"] == 2
    assert [field["name"] for field in told["fields"]] == ["beat", "second"]
    assert "place" not in told


@pytest.mark.parametrize("preset", ["instant", "default"])
def test_every_preset_is_served(preset: str, tmp_path: Path) -> None:
    made = make_place(tmp_path, preset)
    with client_of(made) as client, Gallery.open(made / "gallery", read_only=True) as gallery:
        answer = searched(client, query={"id": "119@3s"}, k=5, protocol="strict-cross-record", certify=True)
        expected = gallery.search("119@3s", 5, protocol="strict-cross-record", certify=True)
        assert plain(answer["hits"]) == [(hit.id, round(hit.score, 4)) for hit in expected]
        values = window_of(gallery).values.tolist()
        assert searched(client, query={"signal": {"values": values}}, k=1)["hits"][0]["id"] == "119@3s"


@pytest.mark.parametrize("scorer", ["cosine", "maxsim", "fused", "bridge", "dtw", "aligned", "fused-aligned"])
def test_a_stored_window_finds_what_the_gallery_finds(client: TestClient, gallery: Gallery, scorer: str) -> None:
    told = searched(client, query={"id": "119@3s"}, k=5, scorer=scorer, protocol="strict-cross-record", certify=True)
    expected = gallery.search("119@3s", 5, scorer=scorer, protocol="strict-cross-record", certify=True)
    assert plain(told["hits"]) == [(hit.id, round(hit.score, 4)) for hit in expected]
    for hit, one in zip(told["hits"], expected, strict=True):
        assert one.certificate is not None
        assert hit["certificate"]["covers"] == one.certificate.covers


@pytest.mark.parametrize("shortlist", ["tokens", "tokens:12", 12])
def test_the_shortlist_is_an_option(client: TestClient, gallery: Gallery, shortlist: str | int) -> None:
    answer = searched(client, query={"id": "119@3s"}, k=5, scorer="aligned", shortlist=shortlist, explain=True)
    expected = gallery.search("119@3s", 5, scorer="aligned", shortlist=shortlist)
    assert plain(answer["hits"]) == [(hit.id, round(hit.score, 4)) for hit in expected]
    assert all(hit["explanation"]["ordered"] for hit in answer["hits"])


def test_the_page_starts_with_the_default_scorer(client: TestClient) -> None:
    info = client.get("/api/info").json()
    assert info["default_scorer"] == SearchOptions().completed(sound=False).scorer
    assert info["default_scorer"] in info["scorers"]


def test_a_part_of_a_record_and_a_filter(client: TestClient, gallery: Gallery) -> None:
    query = {"record": "208", "start_s": 2.5, "stop_s": 4.25}
    told = searched(client, query=query, where="beat == 'V' and second < 9", k=4, min_gap_s=1.5, windows=True)
    expected = gallery.search(Span("208", 2.5, 4.25), 4, where={"beat": "V", "second": {"<": 9}}, min_gap_s=1.5)
    assert plain(told["hits"]) == [(hit.id, round(hit.score, 4)) for hit in expected]
    assert len(told["query"]["window"]["values"]) == round(1.75 * 128)
    found = np.asarray(told["hits"][0]["window"]["values"], dtype=np.float32)
    window = expected[0].window
    assert window is not None
    np.testing.assert_allclose(found, window.values, rtol=1e-6)


def test_a_signal_of_ones_own(client: TestClient, gallery: Gallery) -> None:
    window = window_of(gallery)
    told = searched(client, query={"signal": {"values": window.values.tolist()}}, k=3)
    assert plain(told["hits"]) == [(hit.id, round(hit.score, 4)) for hit in gallery.search(window.values, 3)]
    assert told["hits"][0]["id"] == "119@3s"


def test_other_tempos(client: TestClient, gallery: Gallery) -> None:
    told = searched(client, query={"record": "208", "start_s": 2.5, "stop_s": 4.25}, k=6, tempos=True)
    expected = gallery.search(Span("208", 2.5, 4.25), 6, tempos=True)
    assert plain(told["hits"]) == [(hit.id, round(hit.score, 4)) for hit in expected]
    assert [hit["tempo"] for hit in told["hits"]] == [hit.tempo for hit in expected]
    assert any(hit.tempo for hit in expected)


def test_gaps_are_null_and_stay_gaps(client: TestClient, gallery: Gallery) -> None:
    values = window_of(gallery).values.copy()
    values[10:30] = np.nan
    sent = [[None if np.isnan(value) else value for value in row] for row in values.tolist()]
    told = searched(client, query={"signal": {"values": sent}}, k=3, windows=True)
    assert plain(told["hits"]) == [(hit.id, round(hit.score, 4)) for hit in gallery.search(values, 3)]
    assert told["query"]["window"]["values"][15] == [None, None]


def files_of(window: Signal) -> dict[str, tuple[list[tuple[str, bytes]], dict[str, str]]]:
    """The same two leads in every format, with the fields that each needs."""
    rows = "\n".join(f"{n / 128},{a:.6f},{b:.6f}" for n, (a, b) in enumerate(window.values.tolist()))
    npy, wav = io.BytesIO(), io.BytesIO()
    np.save(npy, window.values)
    soundfile.write(wav, np.clip(window.values / 8, -1, 1), 128, format="WAV", subtype="FLOAT")
    raw = np.round(window.values * 1000).astype("<i2").tobytes()
    header = "r 2 128 256\n" + "".join(f"r.dat 16 1000(0)/mV 16 0 0 0 0 {lead}\n" for lead in ("MLII", "V1"))
    told = json.dumps({"values": window.values.tolist(), "rate_hz": 128})
    return {
        "csv": ([("x.csv", f"time,MLII,V1\n{rows}\n".encode())], {}),
        "json": ([("x.json", told.encode())], {}),
        "npy": ([("x.npy", npy.getvalue())], {"rate_hz": "128"}),
        "wav": ([("x.wav", wav.getvalue())], {}),
        "wfdb": ([("r.hea", header.encode()), ("r.dat", raw)], {}),
    }


@pytest.mark.parametrize("kind", ["csv", "json", "npy", "wav", "wfdb"])
def test_files_of_every_format_find_themselves(client: TestClient, gallery: Gallery, kind: str) -> None:
    window = window_of(gallery)
    parts, fields = files_of(window)[kind]
    files = [("file", part) for part in parts]
    read = client.post("/api/read", files=files, data=fields).json()
    assert (read["samples"], read["width"], read["rate_hz"]) == (256, 2, 128.0)
    told = client.post(
        "/api/search/file", files=files, data={**fields, "options": '{"k": 1, "scorer": "cosine"}'}
    ).json()
    if kind != "wav":  # clipped and scaled, it may look like another
        assert told["hits"][0]["id"] == "119@3s"
    assert told["hits"][0]["cosine"] > 0.9


def test_a_part_of_a_file_at_its_own_rate(client: TestClient, gallery: Gallery) -> None:
    signal = next(one.signal for one in mitdb_minutes() if one.signal.id == "119")
    npy = io.BytesIO()
    np.save(npy, signal.values[: 360 * 12])
    fields = {"rate_hz": "360", "start_s": "3", "stop_s": "5", "options": '{"k": 1, "scorer": "cosine"}'}
    told = client.post("/api/search/file", files={"file": ("119.npy", npy.getvalue())}, data=fields).json()
    assert told["hits"][0]["id"] == "119@3s"
    assert told["hits"][0]["cosine"] > 0.99


def test_explanation_and_certificate_of_a_hit(client: TestClient, gallery: Gallery) -> None:
    asked = {"query": {"id": "119@3s"}, "k": 3, "scorer": "fused"}
    hit = searched(client, **asked)["hits"][1]
    told = client.post("/api/explain", json={**asked, "hit": hit["id"]}).json()
    expected = gallery.search("119@3s", 3)[1].explain().as_dict()
    assert told["hit"]["explanation"]["matches"] == json.loads(json.dumps(expected["matches"]))
    assert told["hit"]["certificate"]["R"] in (3, 50)
    gone = client.post("/api/explain", json={**asked, "hit": "nowhere"})
    assert (gone.status_code, "'nowhere' is not among the hits" in gone.json()["detail"]) == (404, True)


def test_records_to_pick_from(client: TestClient, gallery: Gallery) -> None:
    told = client.get("/api/records", params={"contains": "20", "limit": 1}).json()
    assert told["total"] == 2
    assert [one["name"] for one in told["records"]] == ["200"]
    record = client.get("/api/record", params={"name": "119", "start_s": 2, "stop_s": 5}).json()
    values = np.frombuffer(__import__("base64").b64decode(record["data"]), "<f4").reshape(record["samples"], 2)
    np.testing.assert_array_equal(values[round((3 - record["start_s"]) * 128) :][:256], window_of(gallery).values)
    assert client.get("/api/window", params={"id": "119@3s"}).json()["metadata"]["second"] == 3.0


@pytest.mark.parametrize(
    ("body", "status", "line"),
    [
        ({"query": {"id": "nowhere"}}, 404, "the gallery has no entry 'nowhere'"),
        ({"query": {"record": "x", "start_s": 0, "stop_s": 1}}, 404, "no window of record 'x'"),
        ({"query": {}}, 422, "give one of `id`"),
        ({"query": {"id": "a", "record": "b"}}, 422, "give one of `id`"),
        ({"query": {"record": "119", "start_s": 5}}, 422, "needs `start_s` and `stop_s`"),
        ({"query": {"record": "119", "start_s": 5, "stop_s": 4}}, 422, "must end after it starts"),
        ({"query": {"id": "119@3s"}, "scorer": "best"}, 422, "scorer must be one of"),
        ({"query": {"id": "119@3s"}, "protocol": "loose"}, 422, "protocol must be one of"),
        ({"query": {"id": "119@3s"}, "k": 0}, 422, "k: Input should be greater"),
        ({"query": {"id": "119@3s"}, "shortlist": 0}, 422, "shortlist"),
        ({"query": {"id": "119@3s"}, "shortlist": 1001}, 422, "shortlist"),
        ({"query": {"id": "119@3s"}, "shortlist": "tokens:1001"}, 422, "shortlist"),
        ({"query": {"id": "119@3s"}, "shortlist": "vectors"}, 422, "shortlist"),
        ({"query": {"id": "119@3s"}, "scorrer": "dtw"}, 422, "scorrer: Extra inputs"),
        ({"query": {"id": "119@3s"}, "where": "beat = 'V'"}, 422, "cannot read the filter"),
        ({"query": {"id": "119@3s"}, "where": {"beat": {"~": 1}}}, 422, "expected one of =="),
        ({"query": {"id": "119@3s"}, "where": "not " * 30 + "beat == 'V'"}, 422, "nested 20 times"),
        ({"query": {"id": "119@3s"}, "where": {"or": [{"beat": str(n)} for n in range(200)]}}, 422, "100 parts"),
        ({"query": {"signal": {"values": [1, 2, 3]}}}, 422, "model takes 2 channels, got 1"),
        ({"query": {"signal": {"values": [[None, None]]}}}, 422, "all NaN"),
        ({"query": {"signal": {"values": [[1, 2], [3]]}}}, 422, "rows of as many numbers"),
        ({"query": {"signal": {"values": [[0, 0]] * 70_000}}}, 422, "a query may have 65536 samples"),
        ({"query": {"signal": {"values": [[0, 0]] * 5_000}}, "scorer": "dtw"}, 422, "a query may have 4096 samples"),
        ({"query": {"signal": {"values": [[0, 1]], "rate_hz": 1e9}}}, 422, "expected a rate of"),
    ],
)
def test_what_a_user_can_cure_is_one_line(client: TestClient, body: Any, status: int, line: str) -> None:
    answer = client.post("/api/search", json=body)
    assert answer.status_code == status
    assert line in answer.json()["detail"]
    assert "\n" not in answer.json()["detail"]
    assert "/" not in answer.json()["detail"] or "place" not in answer.json()["detail"]


def test_a_failure_tells_no_details(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Searcher, requests: list[SearchRequest]) -> list[Any]:
        raise RuntimeError("secret path /etc")

    monkeypatch.setattr(Searcher, "answer", broken)
    answer = client.post("/api/search", json={"query": {"id": "119@3s"}})
    assert answer.status_code == 500
    assert answer.json() == {"detail": "the server failed; its log says why"}


def test_queries_that_come_together_are_encoded_together(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    gallery.search(window_of(gallery), 1)  # encodes what chance is measured with
    sizes: list[int] = []
    encode = GeoPatch.encode

    def counted(self: GeoPatch, X: Any, **told: Any) -> Any:
        sizes.append(len(X))
        return encode(self, X, **told)

    monkeypatch.setattr(GeoPatch, "encode", counted)
    windows = [window_of(gallery, f"119@{n}s") for n in range(6)]
    scorers = ("fused", "cosine", "dtw")
    requests = [SearchRequest(window, SearchOptions(k=3, scorer=scorers[n % 3])) for n, window in enumerate(windows)]
    answers = Searcher(gallery).answer(requests)
    assert sizes == [6]
    for request, found in zip(requests, answers, strict=True):
        assert not isinstance(found, GeoPatchError)
        told, alone = json.loads(found), gallery.search(request.query, 3, scorer=request.options.scorer)
        assert [hit["id"] for hit in told["hits"]] == [hit.id for hit in alone]
        assert told["together"] == 6


def test_one_bad_query_spoils_no_other(gallery: Gallery) -> None:
    good, bad = window_of(gallery), Signal.from_array(np.zeros((256, 3)), "three channels")
    options, other = SearchOptions(k=2), SearchOptions(k=2, protocol="strict-cross-record")
    requests = [SearchRequest(query, options) for query in (good, bad, "nowhere")]
    answers = Searcher(gallery).answer([*requests, SearchRequest(good, other)])
    assert [isinstance(found, GeoPatchError) for found in answers] == [False, True, True, False]


def test_true_and_one_are_different_filters(place: Path, tmp_path: Path) -> None:
    with client_of(make_place(tmp_path)) as client:
        values = np.random.default_rng(0).normal(size=(256, 2)).tolist()
        windows = [{"id": f"n{n}", "values": values, "metadata": {"flag": flag}} for n, flag in enumerate((True, 1))]
        assert client.post("/api/windows", json={"windows": windows}, headers=WRITER).status_code == 200
        bodies = [{"query": {"signal": {"values": values}}, "k": 5, "where": {"flag": flag}} for flag in (True, 1)] * 8
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda body: client.post("/api/search", json=body).json()["hits"], bodies))
        assert [[hit["id"] for hit in hits] for hits in found] == [["n0"], ["n1"]] * 8


def test_metrics_count(client: TestClient) -> None:
    searched(client, query={"id": "119@3s"})
    text = client.get("/metrics").text
    assert 'geopatch_requests_total{method="POST",route="/api/search",status="200"}' in text
    assert "geopatch_searched_together_bucket" in text
    assert "geopatch_windows 71.0" in text


def test_the_page_and_its_files(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    for name in ("app.js", "style.css", "uplot.js", "uplot-licence.txt"):
        file = client.get(f"/page/{name}")
        assert file.status_code == 200
        again = client.get(f"/page/{name}", headers={"If-None-Match": file.headers["etag"]})
        assert again.status_code == 304
    for name in ("../app.py", "..%2fapp.py", "%2e%2e/settings.py", "/etc/passwd"):
        assert client.get(f"/page/{name}").status_code == 404


def test_a_service_answers_what_waits_before_it_closes(place: Path) -> None:
    model = GeoPatch.load(place / "model", device="cpu")

    async def ask() -> list[int]:
        service = SearchService(Gallery.open(place / "gallery", model=model, read_only=True), Settings())
        searches = [asyncio.create_task(service.search("119@3s", SearchOptions(k=2))) for _ in range(40)]
        await asyncio.sleep(0)
        await asyncio.to_thread(service.close)
        return [len(json.loads(await one)["hits"]) for one in searches]

    assert asyncio.run(ask()) == [2] * 40
