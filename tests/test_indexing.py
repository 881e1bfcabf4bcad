"""`geopatch.index`: from files to a gallery, and again to what is new, changed or gone; the same after any kill."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import polars
import pytest
from galleries import everything, same
from recordings import CHANNELS, Planted, write_folder

import geopatch
from geopatch.data.front_end import FrontEnd
from geopatch.data.reading import list_files
from geopatch.engines.rows import Rows
from geopatch.errors import ConfigError, DataError, GeoPatchError
from geopatch.gallery import Gallery
from geopatch.indexing.folder import index_files
from geopatch.indexing.length import propose_length
from geopatch.indexing.settings import IndexReport, IndexSettings, Listener
from geopatch.indexing.survey import Reader, survey_files
from geopatch.kernels import fitting
from geopatch.read_options import ReadOptions
from geopatch.signal import Signal

FILES, DURATION_S, COPIES = 6, 60.0, 18
WINDOWS = 29  # of a recording of 15 windows without overlap


@dataclass(frozen=True)
class Made:
    """A folder of recordings, and a gallery that was made of it."""

    folder: Path
    place: Path
    planted: Planted
    report: IndexReport
    said: tuple[str, ...]


@pytest.fixture(scope="module", autouse=True)
def _short_fits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"VIEWS": 2000, "SAMPLE_VIEWS": 512, "RANK": 128}.items():
            patch.setattr(fitting, name, value)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    base = tmp_path_factory.mktemp("indexed")
    planted, said = write_folder(base / "folder", FILES, DURATION_S, COPIES), list[str]()
    report = index_files(base / "folder", base / "gallery", IndexSettings(window_s=4.0), Listener(say=said.append))
    return Made(base / "folder", base / "gallery", planted, report, tuple(said))


@pytest.fixture
def copied(made: Made, tmp_path: Path) -> Made:
    """The same to change at will, as if it had been made there."""
    shutil.copytree(made.folder, tmp_path / "folder")
    shutil.copytree(made.place, tmp_path / "gallery")
    with Gallery.open(tmp_path / "gallery") as gallery:
        texts = gallery.engine.documents("file")
        moved = {name: text.replace(str(made.folder), str(tmp_path / "folder")) for name, text in texts.items()}
        gallery.engine.write_documents("file", moved)
    return Made(tmp_path / "folder", tmp_path / "gallery", made.planted, made.report, made.said)


def again(made: Made, **settings: object) -> tuple[IndexReport, list[str]]:
    said: list[str] = []
    chosen = IndexSettings(**settings)  # type: ignore[arg-type]
    return index_files(made.folder, made.place, chosen, Listener(said.append, said.append)), said


def contents(place: Path) -> dict[str, object]:
    """All that a gallery holds, but for when it was written."""
    with Gallery.open(place, read_only=True) as gallery:
        documents = {kind: gallery.engine.documents(kind) for kind in ("record", "file")}
        return {"entries": everything(gallery), "encoder": gallery.about, **documents}


def assert_same(first: dict[str, object], second: dict[str, object]) -> None:
    old, new = first.pop("entries"), second.pop("entries")
    assert isinstance(old, dict)
    assert isinstance(new, dict)
    assert list(old) == list(new)
    assert all(same(old[id], new[id]) for id in old)
    assert first == second


def test_all_that_was_understood_is_said(made: Made) -> None:
    assert made.said[0] == "6 files: 3 channels (x, y, z), 50 Hz"
    assert made.report.added == [f"rec{n:02d}" for n in range(FILES)]
    assert made.report.recordings == FILES
    assert made.report.duration_s == pytest.approx(FILES * DURATION_S, abs=0.1)
    assert (made.report.resampled, made.report.untimed) == ({"rec03": 100.0}, ["rec01"])
    assert list(made.report.gaps_s) == ["rec02"]
    assert made.report.refused == []
    assert made.report.windows == made.report.written == FILES * 29


def test_a_span_finds_the_copies_at_other_speeds(made: Made) -> None:
    with Gallery.open(made.place, read_only=True) as gallery:
        query = made.planted.query
        start = datetime(2026, 5, 1, 12, 0, int(query.start_s))
        span = gallery.span(query.record, start, "12:00:58")
        assert (span.start_s, span.stop_s) == (query.start_s, query.stop_s)
        hits = gallery.search(span, k=COPIES, min_gap_s=4.0, shortlist=100)
    right = [made.planted.hit(hit.record, hit.start_s, hit.stop_s) for hit in hits]
    assert all(number is not None for number in right[:10])
    assert len(set(right) - {None}) >= COPIES - 3
    timed = {hit.record: hit.start_time for hit in hits}
    assert str(timed["rec04"]).startswith("2026-05-01 12:00:")
    assert timed["rec00"] is None


def test_hits_draw_themselves_and_make_frames(made: Made) -> None:
    with Gallery.open(made.place, read_only=True) as gallery:
        hits = gallery.search(gallery.span("rec05", 54, 58), k=4)
    frame = hits.to_frame()
    assert frame.columns[:6] == ["rank", "id", "record", "start_s", "stop_s", "start_time"]
    assert frame["record"].to_list() == [hit.record for hit in hits]
    figure = hits.plot()
    assert len(figure.axes) == 3 * 5  # three channels of the query and of four hits
    assert [axes.get_ylabel() for axes in figure.axes[:3]] == [f"{name}, centred" for name in CHANNELS]
    assert "2026-05-01 12:00:54" in figure.axes[0].get_title(loc="left")
    assert len(hits[0].explain().plot().axes) == 2 * 3 + 1
    assert "<svg" in hits._repr_html_()
    assert "<table" in hits[0].explain()._repr_html_()


def test_only_what_is_new_or_changed_is_taken(copied: Made) -> None:
    report, _ = again(copied)
    assert (report.written, len(report.unchanged)) == (0, FILES)
    before = contents(copied.place)
    shutil.copy(copied.folder / "rec00.csv", copied.folder / "rec09.csv")
    frame = polars.read_csv(copied.folder / "rec04.csv")
    frame.head(len(frame) // 2).write_csv(copied.folder / "rec04.csv")
    report, _ = again(copied)
    assert (report.added, report.changed, len(report.unchanged)) == (["rec09"], ["rec04"], FILES - 1)
    assert (report.written, report.removed) == (29 + 14, 29 - 14)
    after = contents(copied.place)
    old, new = before["entries"], after["entries"]
    assert isinstance(old, dict)
    assert isinstance(new, dict)
    kept = [id for id in old if not id.startswith("rec04")]
    assert all(same(old[id], new[id]) for id in kept)
    assert {id for id in new if id.startswith("rec04")} == {f"rec04@{2 * n}s" for n in range(14)}


def test_what_is_gone_is_said_and_pruned(copied: Made) -> None:
    (copied.folder / "rec02.csv").unlink()
    report, said = again(copied)
    assert (report.gone, report.removed) == (["rec02"], 0)
    assert "1 file that the gallery was made of is gone (rec02); --prune" in said[-1]
    report, _ = again(copied, prune=True)
    assert (report.gone, report.removed, report.windows) == (["rec02"], 29, (FILES - 1) * 29)
    with Gallery.open(copied.place, read_only=True) as gallery:
        assert "rec02" not in {record.name for record in gallery.records()}
        assert "rec02" not in gallery.engine.documents("file")


def test_names_that_stand_twice_are_refused(copied: Made, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    frame = polars.read_csv(copied.folder / "rec00.csv")
    frame.with_columns(x=-polars.col("x")).write_csv(elsewhere / "rec00.csv")
    report, _ = again(replace(copied, folder=elsewhere))
    assert (report.written, len(report.refused)) == (0, 1)
    assert f"{elsewhere}/rec00.csv: the gallery has 'rec00' from {copied.folder}/rec00.csv" in report.refused[0]
    frame.with_columns(id=polars.lit("rec01")).write_csv(elsewhere / "long.csv")
    report = index_files(elsewhere / "long.csv", copied.place, IndexSettings(), Listener())
    assert "long.csv: the gallery has a recording 'rec01' from rec01" in report.refused[0]
    assert report.windows == FILES * 29


def test_a_record_that_was_removed_counts_as_new(copied: Made) -> None:
    with Gallery.open(copied.place) as gallery:
        gallery.remove(record="rec03")
    before = contents(copied.place)
    report, _ = again(copied)
    assert (report.added, report.written) == (["rec03"], 29)
    assert len(contents(copied.place)["entries"]) == len(before["entries"]) + 29  # type: ignore[arg-type]


@pytest.mark.parametrize("puts", [0, 1, 3])
def test_a_run_that_was_killed_ends_with_the_same_gallery(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, puts: int
) -> None:
    """Killed after so many writes of windows, and again after the next ones, until it is done."""
    place, whole = tmp_path / "gallery", Made(made.folder, tmp_path / "gallery", made.planted, made.report, ())
    with Gallery.open(made.place, read_only=True) as gallery:
        model = gallery.model
    assert model is not None
    Gallery.create(place, model).close()
    put, left = Rows.put, [0]

    def failing(rows: Rows, entries: object) -> None:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        put(rows, entries)  # type: ignore[arg-type]

    monkeypatch.setattr(Rows, "put", failing)
    kills = 0
    for _ in range(2 * FILES):
        left[0] = puts
        try:
            again(whole)
            break
        except KeyboardInterrupt:
            kills += 1
            if puts == 0:
                monkeypatch.setattr(Rows, "put", put)
    assert kills >= 1
    assert_same(contents(made.place), contents(place))


def test_a_changed_file_that_was_half_written_is_written_anew(copied: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = polars.read_csv(copied.folder / "rec00.csv")
    frame.with_columns(x=polars.col("x") * 2).write_csv(copied.folder / "rec00.csv")
    put = Rows.put
    half = [True]

    def failing(rows: Rows, entries: object) -> None:
        put(rows, entries.take(range(5)) if half[0] else entries)  # type: ignore[arg-type, attr-defined]
        if half[0]:
            half[0] = False
            raise KeyboardInterrupt

    monkeypatch.setattr(Rows, "put", failing)
    with pytest.raises(KeyboardInterrupt):
        again(copied)
    report, _ = again(copied)
    assert (report.changed, report.written) == (["rec00"], 29)
    with Gallery.open(copied.place, read_only=True) as gallery:
        windows = [window for batch in gallery.scan(where={"record": "rec00"}) for window in batch.windows]
    raw = polars.read_csv(copied.folder / "rec00.csv")["x"].to_numpy()
    for window in windows:
        assert window is not None
        first = round(window.start_s * 50)
        np.testing.assert_allclose(window.values[:, 0], raw[first : first + 200], atol=1e-5)


BROKEN = {
    "text.csv": ("one,two\nno,number\nat,all\n", "text.csv"),
    "uneven.csv": ("time,x,y,z\n0,1,1,1\n0.02,1,2,1\n7,1,1,3\n7.001,1,1,1\n9,1,2,1\n", "uneven.csv"),
    "other.csv": (
        "time,a,b\n" + "".join(f"{n / 50},{n % 7},{n % 5}\n" for n in range(900)),
        "the gallery is of x, y, z",
    ),
    "short.csv": ("time,x,y,z\n" + "".join(f"{n / 50},{n % 7},1,{n % 5}\n" for n in range(90)), "4 s of one window"),
    "strange.xyz": ("what", "cannot read .xyz"),
    "empty.csv": ("", "is empty"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_cannot_be_used_is_one_line_and_the_others_go_on(copied: Made, name: str) -> None:
    text, reason = BROKEN[name]
    (copied.folder / name).write_text(text)
    shutil.copy(copied.folder / "rec00.csv", copied.folder / "zz.csv")
    report, said = again(copied)
    assert len(report.refused) == 1
    assert reason in report.refused[0]
    assert name in report.refused[0]
    assert "\n" not in report.refused[0]
    assert report.refused[0] in said
    assert report.added == ["zz"]
    assert again(copied)[0].refused == report.refused  # said again as long as it lies there


def test_metadata_from_table_and_path_is_kept_and_can_change(copied: Made, tmp_path: Path) -> None:
    from geopatch.data.metadata import MetadataTable, PathPattern

    table = tmp_path / "table.csv"
    table.write_text("id,site\nrec00,Bonn\nrec01,Graz\n")
    report, _ = again(copied, table=MetadataTable.read(table), pattern=PathPattern("{group}/*"))
    assert sorted(report.relabelled) == sorted(report.unchanged)
    with Gallery.open(copied.place, read_only=True) as gallery:
        assert gallery.count("site == 'Bonn'") == 29
        assert gallery.count("group == 'folder'") == FILES * 29
    table.write_text("id,site\nrec00,Basel\n")
    again(copied, table=MetadataTable.read(table))
    frame = polars.read_csv(copied.folder / "rec00.csv")
    frame.with_columns(x=-polars.col("x")).write_csv(copied.folder / "rec00.csv")
    again(copied)  # without metadata: the old stays
    with Gallery.open(copied.place, read_only=True) as gallery:
        fields = {field.name: dict(field.values) for field in gallery.contents().fields}
    assert fields["site"] == {"Basel": 29}


def test_channels_are_matched_by_name_and_rates_resampled(copied: Made) -> None:
    frame = polars.read_csv(copied.folder / "rec00.csv")
    frame.select("z", "time", "x", "y", extra=polars.lit(1.0)).write_csv(copied.folder / "turned.csv")
    again(copied)
    with Gallery.open(copied.place, read_only=True) as gallery:
        first, second = (gallery.get(f"{name}@8s") for name in ("rec00", "turned"))
        np.testing.assert_array_equal(first.embedding, second.embedding)
        assert second.channels == (CHANNELS,)
        fast = gallery.get("rec03@8s").windows[0]
        assert fast is not None
        assert (fast.rate_hz, fast.length) == (50.0, 200)
        query = geopatch.read(copied.folder / "rec03.csv").signals[0]  # 100 Hz
        assert gallery.search(query.window(800, 1200), k=1, overlapping=True)[0].id == "rec03@8s"


def test_settings_that_the_gallery_was_not_made_with_are_refused(copied: Made) -> None:
    with pytest.raises(ConfigError, match=r"window_s is 4.0 in this gallery, got 5.0"):
        again(copied, window_s=5.0)
    with pytest.raises(ConfigError, match="has windows of 4 s"):
        again(copied, whole=True)
    with pytest.raises(ConfigError, match="window_s or whole"):
        IndexSettings(window_s=1.0, whole=True)
    assert again(copied, window_s=4.0)[0].written == 0


def test_the_model_carries_its_front_end(made: Made, tmp_path: Path) -> None:
    with Gallery.open(made.place, read_only=True) as gallery:
        model = gallery.model
        assert model is not None
        assert FrontEnd.of(model) == FrontEnd(4.0, 0.5)
        assert (model.rate_hz_, model.channels_) == (50.0, CHANNELS)
        model.save(tmp_path / "model")
    loaded = geopatch.GeoPatch.load(tmp_path / "model")
    assert FrontEnd.of(loaded) == FrontEnd(4.0, 0.5)
    with Gallery.create(tmp_path / "by hand", loaded) as gallery:
        signal = geopatch.read(made.folder / "rec03.csv").signals[0]
        assert gallery.add_recording(signal) == 29  # cut and resampled as the front end says


def test_python_mirrors_the_command(made: Made, tmp_path: Path) -> None:
    shutil.copytree(made.folder, tmp_path / "walks")
    for name in ("rec02", "rec03", "rec04", "rec05"):
        (tmp_path / "walks" / f"{name}.csv").unlink()
    with geopatch.index(tmp_path / "walks", window_s=4, channels=["x", "z"]) as gallery:
        assert gallery.info().place == str(tmp_path / "walks.gallery")
        assert gallery.about.channels == ("x", "z")
        assert len(gallery) == 2 * WINDOWS
    with pytest.raises(ConfigError, match="say where the gallery goes"):
        geopatch.index([tmp_path / "walks" / "rec00.csv"])
    with pytest.raises(DataError, match="no file that can be read"):
        (tmp_path / "none").mkdir()
        geopatch.index(tmp_path / "none", tmp_path / "g")


def waves(period: int, length: int, noise: float = 0.0) -> Signal:
    draw = np.random.default_rng(0)
    values = np.sin(2 * np.pi * np.arange(length) / period) + noise * draw.normal(size=length)
    return Signal.from_array(values, rate_hz=100.0)


def propose(signals: Sequence[Signal]) -> float | None:
    return propose_length(signals, [signal.length for signal in signals]).window_s


@pytest.mark.parametrize("period", [40, 80, 160])
def test_a_length_is_proposed_from_what_repeats(period: int) -> None:
    length = propose([waves(period, 6000, 0.3) for _ in range(3)])
    assert length is not None
    assert 2 <= length / (period / 100) <= 3.2


def test_a_length_is_proposed_from_how_long_a_recording_remembers_itself() -> None:
    draw = np.random.default_rng(0)
    lengths = []
    for memory in (5, 20):
        noise, values = draw.normal(size=9000), np.zeros(9000)
        for n in range(1, 9000):
            values[n] = values[n - 1] * np.exp(-1 / memory) + noise[n]
        lengths.append(propose([Signal.from_array(values, rate_hz=100.0)]))
    assert None not in lengths
    assert lengths[1] > 2 * lengths[0]  # type: ignore[operator]
    assert propose([waves(40, 300), waves(30, 900)]) is None  # short ones are windows by themselves
    flat = Signal.from_array(np.ones(5000), rate_hz=100.0)
    assert propose([flat]) is not None


def test_without_a_length_one_is_proposed_and_said(tmp_path: Path) -> None:
    folder = tmp_path / "waves"
    folder.mkdir()
    for n in range(2):
        values = waves(80, 3000, 0.1).values[:, 0]
        frame = polars.DataFrame({"time": np.arange(3000) / 100, "x": values * (n + 1)})
        frame.write_csv(folder / f"wave{n}.csv")
    said: list[str] = []
    report = index_files(folder, tmp_path / "g", IndexSettings(reading=ReadOptions()), Listener(say=said.append))
    assert any("windows of 2 s: what repeats does so every 0.8 s" in line for line in said)
    assert report.windows == 2 * WINDOWS


def test_nothing_is_left_where_no_file_can_be_used(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "text.csv").write_text("one,two\nno,number\n")
    with pytest.raises(GeoPatchError, match=r"text\.csv"):
        index_files(folder, tmp_path / "g", IndexSettings(), Listener())
    assert not (tmp_path / "g").exists()


def test_a_fit_sees_more_files_than_the_survey_where_each_is_one_window(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for n in range(40):
        np.savetxt(tmp_path / f"r{n:02}.csv", draw.normal(size=(64, 1)), header="x", comments="")
    files = list_files([tmp_path])
    survey = survey_files(files, Reader(IndexSettings()), Listener())
    assert len(survey.windows) == 40
