"""Galleries with a model: signals, recordings and iterators of them; entries and what is refused; export."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from galleries import ABOUT, entries_of, everything, same

from geopatch.config import ModelConfig
from geopatch.data.recording import Recording, WindowConfig
from geopatch.encoding import Encoding
from geopatch.engines import Entries, about_model, entries_from
from geopatch.engines.packing import pack_window, unpack_window
from geopatch.errors import ExistsError, GalleryError, SignalError
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery, adding
from geopatch.signal import Signal

RATE_HZ = 32.0


def signals(count: int, first: int = 0) -> list[Signal]:
    draw = np.random.default_rng(first)
    walks = np.cumsum(draw.normal(size=(count, 64, 2)), axis=1)
    return [Signal.from_array(walk, id=f"s{first + n}", rate_hz=RATE_HZ) for n, walk in enumerate(walks)]


def untrained(random_state: int = 0) -> GeoPatch:
    """A learned encoder of one step: quick to fit."""
    return GeoPatch(model=ModelConfig(halves=("learned",)), max_steps=1, random_state=random_state)


@pytest.fixture(scope="module")
def model() -> GeoPatch:
    return untrained().fit(signals(8))


@pytest.fixture
def gallery(model: GeoPatch, tmp_path: Path) -> Iterator[Gallery]:
    with Gallery.create(tmp_path / "gallery", model) as made:
        yield made


def test_signals_become_entries(gallery: Gallery, model: GeoPatch) -> None:
    some = signals(5)
    assert gallery.add(some, metadata=[{"n": n} for n in range(5)]) == 5
    encoding = model.encode(some)
    found = gallery.fetch([signal.id for signal in some])
    assert np.array_equal(found.embedding, encoding.embedding)
    assert np.array_equal(found.tokens, encoding.tokens)
    assert found.metadata == tuple({"n": n} for n in range(5))
    assert found.records == found.ids
    assert all(np.array_equal(a.values, b.values) for a, b in zip(found.windows, some, strict=True) if a)
    starts, stops = found.patch_s[0].T
    assert np.allclose(starts[found.valid[0]] * RATE_HZ, encoding.starts[0][found.valid[0]])
    assert np.allclose((stops - starts)[found.valid[0]], gallery.about.patch_length / RATE_HZ)


def test_short_signals_have_patches_that_end_with_them(gallery: Gallery) -> None:
    gallery.add([Signal.from_array(np.arange(10.0).reshape(5, 2), id="short", rate_hz=RATE_HZ)])
    found = gallery.get("short")
    assert found.valid[0].sum() == 1
    assert found.patch_s[0, 0].tolist() == [0, np.float32(5 / RATE_HZ)]
    assert not found.patch_s[0, 1:].any()


def test_an_iterator_is_taken_a_batch_at_a_time(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "BATCH", 4)
    taken, reported = 0, list[tuple[int, int]]()

    def stream() -> Iterator[Signal]:
        nonlocal taken
        for signal in signals(42):
            taken += 1
            yield signal

    assert gallery.add(stream(), report=lambda count: reported.append((count, taken))) == 42
    assert [count for count, _ in reported] == [*range(4, 41, 4), 42]
    ahead = 4 * (adding.ENCODING + 2)  # encoded while the last one is written, and one read
    assert all(read <= count + ahead for count, read in reported)


def test_arrays_and_an_iterator_of_entries_are_taken(gallery: Gallery, model: GeoPatch) -> None:
    values = np.stack([signal.values for signal in signals(3)])
    assert gallery.add(values) == 3
    some = signals(4, first=10)
    made = entries_from(model.encode(some), some, about_model(model), keep_windows=False)
    assert gallery.add(iter([made.take([0, 1]), made.take([2, 3])])) == 4
    assert gallery.get("s11").windows == (None,)
    assert gallery.add(iter([])) == 0
    assert len(gallery) == 7


def test_arrays_get_ids_that_nobody_has(gallery: Gallery) -> None:
    draw = np.random.default_rng(4)
    first, second = draw.normal(size=(2, 20, 64, 2))
    assert gallery.add(first) == gallery.add(list(second)) == 20
    assert len(gallery) == 40
    assert set(everything(gallery)) == {str(n) for n in range(40)}
    window = gallery.get("25").windows[0]
    assert window is not None
    assert np.allclose(window.values, second[5])
    gallery.remove("39")
    gallery.add([*signals(1), second[0]])
    assert set(everything(gallery)) - {str(n) for n in range(39)} == {"s0", "41"}  # the id of a removed entry is spent
    gallery.add([dataclasses.replace(signals(1)[0], id="43")])
    gallery.add(first[:2])
    assert {"44", "45"} <= set(everything(gallery))  # 43 is taken


def test_frames_keep_their_ids_and_get_new_ones_without(tmp_path: Path) -> None:
    model = untrained().fit(np.random.default_rng(0).normal(size=(8, 32)))
    wide = polars.DataFrame(np.random.default_rng(1).normal(size=(3, 32)))
    long = polars.DataFrame({"id": ["0"] * 32 + ["x"] * 32, "a": np.random.default_rng(2).normal(size=64)})
    with Gallery.create(tmp_path / "gallery", model) as gallery:
        assert gallery.add(wide) == gallery.add(wide) == 3
        with pytest.raises(ExistsError, match="the gallery has '0' already"):
            gallery.add(long)
        gallery.add(long, existing="skip")
        assert set(everything(gallery)) == {*"012345", "x"}


def test_channels_are_brought_into_the_order_that_is_stored(gallery: Gallery) -> None:
    one = dataclasses.replace(signals(1)[0], channels=("MLII", "V5"))
    turned = dataclasses.replace(one, id="turned", values=one.values[:, ::-1], channels=("V5", "MLII"))
    other = dataclasses.replace(one, id="other", channels=("I", "II"))
    gallery.add([one])
    gallery.add([turned, other, dataclasses.replace(turned, id="late", channels=("II", "I"))], keep_windows=False)
    entries = gallery.fetch(["s0", "turned", "other", "late"])
    assert entries.channels == (("MLII", "V5"), ("MLII", "V5"), ("I", "II"), ("I", "II"))
    assert np.allclose(entries.embedding[1:], entries.embedding[0], atol=1e-6)
    assert set(gallery.layouts()) == {("MLII", "V5"), ("I", "II")}


def test_a_model_with_channel_names_arranges_or_refuses(model: GeoPatch, tmp_path: Path) -> None:
    about = dataclasses.replace(about_model(model), channels=("MLII", "V5"))
    one = dataclasses.replace(signals(1)[0], channels=("V5", "MLII"))
    with Gallery.create(tmp_path / "gallery", about) as made:
        assert made.about.channels == ("MLII", "V5")
        gallery = Gallery(made.engine, model)
        gallery.add([one])
        assert gallery.get("s0").channels == (("MLII", "V5"),)
        with pytest.raises(SignalError, match="has the channels I, II; expected MLII, V5"):
            gallery.add([dataclasses.replace(one, id="b", channels=("I", "II"))])


def test_anchors_are_stored(gallery: Gallery) -> None:
    gallery.add([dataclasses.replace(signals(1)[0], anchors=np.asarray([-3.0, 10.5, 70.0]))])
    window = gallery.get("s0").windows[0]
    assert window is not None
    assert window.anchors is not None
    assert window.anchors.tolist() == [-3.0, 10.5, 70.0]


@pytest.mark.parametrize("rate_hz", [None, 250.0])
def test_a_recording_is_not_resampled_for_a_model_without_a_rate(tmp_path: Path, rate_hz: float | None) -> None:
    draw = np.random.default_rng(0)
    model = untrained().fit(draw.normal(size=(8, 64)))
    values = np.cumsum(draw.normal(size=(256, 1)), axis=0).astype(np.float32)
    with Gallery.create(tmp_path / "gallery", model) as gallery:
        assert gallery.add_recording(Signal(values, "long", rate_hz)) == 7
        windows = [window for batch in gallery.scan() for window in batch.windows if window is not None]
    assert [window.length for window in windows] == [64] * 7
    assert {window.rate_hz for window in windows} == {rate_hz}
    assert np.array_equal(windows[1].values, values[32:96])
    assert windows[1].start_s == 32 / (rate_hz or 1)


def test_a_gallery_shows_itself_in_one_line(tmp_path: Path) -> None:
    with Gallery.create(tmp_path / "g", ABOUT) as gallery:
        gallery.add(entries_of(["a", "b"]))
        assert (
            repr(gallery) == f"Gallery(place='{tmp_path}/g', engine='embedded', windows=2, encoder='0123456789abcdef')"
        )
        assert "<td>embedded</td>" in gallery._repr_html_()
    assert repr(gallery) == "Gallery(encoder='0123456789abcdef', closed=True)"


def test_skipped_signals_are_not_encoded(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    gallery.add(signals(4))
    before = everything(gallery)
    encoded, encode = list[int](), GeoPatch.encode

    def counted(model: GeoPatch, X: list[Signal]) -> Encoding:
        encoded.append(len(X))
        return encode(model, X)

    monkeypatch.setattr(GeoPatch, "encode", counted)
    assert gallery.add(signals(6), existing="skip") == 2
    assert encoded == [2]
    assert all(same(gallery.get(id), entry) for id, entry in before.items())


def test_recordings_are_windowed_and_keep_their_place(gallery: Gallery) -> None:
    values = np.cumsum(np.random.default_rng(0).normal(size=(320, 2)), axis=0)
    recording = Recording(Signal.from_array(values, id="long", rate_hz=RATE_HZ), "patient 7")
    assert gallery.add_recording(recording, metadata={"site": "A"}) == 9  # 10 s in windows of 2 s, half overlapping
    found = gallery.get("long@3s")
    assert (found.records, found.start_s[0], found.stop_s[0]) == (("long",), 3.0, 5.0)
    assert found.metadata == ({"subject": "patient 7", "site": "A"},)
    assert found.windows[0] is not None
    assert np.allclose(found.windows[0].values, values[96:160].astype(np.float32), atol=1e-5)
    window = WindowConfig(RATE_HZ, 4.0, 0.0)
    assert gallery.add_recording(recording.signal, window, existing="replace", keep_windows=False) == 2


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ([{}], "a row of metadata for each of 2 signals, got 1"),
        ([{}, {}, {}], "a row of metadata for each of 2 signals, got 3"),
        ([{"id": 1}, {}], "'id': that name has a meaning already"),
        ([{"not": 1}, {}], "'not': that name has a meaning already"),
        ([{"a.b": 1}, {}], "expected a metadata name"),
        ([{"a": None}, {}], "'a' must be text, a number, true or false, got NoneType"),
        ([{"a": [1]}, {}], "got list"),
        ([{"a": float("inf")}, {}], "must be a finite number"),
        ([{"a": 2**60}, {}], "write it as text"),
        ([{"a": "x\x00"}, {}], "without zero bytes"),
        ([{"a": "\ud800"}, {}], "lone surrogates"),
    ],
    ids=str,
)
def test_metadata_that_cannot_be_held_is_refused(
    gallery: Gallery, metadata: list[dict[str, object]], told: str
) -> None:
    with pytest.raises(GalleryError, match=told):
        gallery.add(signals(2), metadata=metadata)  # type: ignore[arg-type]
    assert len(gallery) == 0


def test_numpy_values_become_plain_ones(gallery: Gallery) -> None:
    row: Any = {"a": np.int64(3), "b": np.float32(0.5), "c": np.bool_(True), "d": np.str_("x")}
    gallery.add(signals(1), metadata=[row])
    assert gallery.get("s0").metadata == ({"a": 3, "b": 0.5, "c": True, "d": "x"},)


def test_ids_that_stand_twice_are_refused(gallery: Gallery) -> None:
    with pytest.raises(GalleryError, match="id 's0' stands twice"):
        gallery.add([*signals(2), *signals(1)])
    with pytest.raises(GalleryError, match="id of at least one character"):
        gallery.add([dataclasses.replace(signals(1)[0], id="")])


def test_another_model_is_refused(gallery: Gallery, tmp_path: Path) -> None:
    gallery.close()
    other = untrained(random_state=3).fit(signals(8))
    with pytest.raises(GalleryError, match="use the model it was made with"):
        Gallery.open(tmp_path / "gallery", model=other)
    Gallery.open(tmp_path / "gallery").close()  # the refusal let go of the lock


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"embedding": np.zeros((2, 12), np.float32)}, r"expected embedding of shape \(3,\)"),
        ({"valid": np.zeros((3, 1), np.bool_)}, r"expected valid of shape \(3, 4\) for 3 ids, got \(3, 1\)"),
        ({"records": ("a",)}, "expected records of shape"),
        ({"embedding": np.full((3, 12), np.nan, np.float32)}, "contain NaN or inf"),
        ({"tokens": np.zeros((3, 4), np.float32)}, "expected embedding"),
    ],
    ids=str,
)
def test_entries_of_wrong_shape_are_refused(change: dict[str, object], told: str) -> None:
    with pytest.raises(GalleryError, match=told):
        dataclasses.replace(entries_of(["a", "b", "c"]), **change)  # type: ignore[arg-type]


def test_entries_fit_their_signals(model: GeoPatch) -> None:
    some, about = signals(3), about_model(model)
    encoding = model.encode(some)
    with pytest.raises(GalleryError, match="expected the 3 signals that were encoded"):
        entries_from(encoding, some[::-1], about)
    with pytest.raises(GalleryError, match="a row of metadata for each of 3 signals, got 1"):
        entries_from(encoding, some, about, metadata=[{}])


def test_windows_survive_packing() -> None:
    values = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    values[2:4, 1] = np.nan
    window = Signal(values, "é", 12.5, ("a", "b", "c"), "rec", 1.5, np.asarray([-1.5, 0.1, 9.0]))
    found = unpack_window(pack_window(window))
    assert found is not None
    assert np.array_equal(found.values, values, equal_nan=True)
    assert (found.id, found.rate_hz, found.channels, found.record, found.start_s) == (
        "é",
        12.5,
        ("a", "b", "c"),
        "rec",
        1.5,
    )
    assert found.anchors is not None
    assert found.anchors.tolist() == [-1.5, 0.1, 9.0]
    untimed = unpack_window(pack_window(Signal(values, "x")))
    assert untimed is not None
    assert (untimed.rate_hz, untimed.channels, untimed.anchors) == (None, (), None)
    assert unpack_window(pack_window(None)) is None


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_export(tmp_path: Path, suffix: str) -> None:
    entries, path = entries_of([str(n) for n in range(1500)]), tmp_path / f"out{suffix}"
    with Gallery.create(tmp_path / "gallery", ABOUT) as gallery:
        gallery.add(entries)
        gallery.update("3", {"mixed": "text"})
        gallery.update("4", {"mixed": True})
        assert gallery.export(path) == 1500
        assert gallery.export(tmp_path / f"none{suffix}", where="sex == 'nobody'") == 0
    read = polars.read_parquet if suffix == ".parquet" else polars.read_ipc
    table = read(path).sort(polars.col("id").cast(int))
    for name in ("embedding", "tokens", "valid", "patch_s", "start_s"):
        assert np.array_equal(table[name].to_numpy(), getattr(entries, name))
    rows = [{name: row.get(name) for name in ("age", "noise", "paced", "sex")} for row in entries.metadata]
    assert table["metadata"].struct.unnest().select("age", "noise", "paced", "sex").to_dicts() == rows
    assert table["metadata"].struct.field("mixed").to_list()[2:6] == [None, "text", "true", None]
    assert len(read(tmp_path / f"none{suffix}")) == 0


def test_export_knows_two_kinds_of_file(tmp_path: Path) -> None:
    with (
        Gallery.create(tmp_path / "gallery", ABOUT) as gallery,
        pytest.raises(GalleryError, match=r"ends in .parquet or"),
    ):
        gallery.export(tmp_path / "out.csv")


def test_places_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(GalleryError, match=r"expected a folder, exact:FOLDER or postgresql"):
        Gallery.open("milvus://here")
    with pytest.raises(GalleryError, match=r"expected postgresql://user@host:5432/database/gallery"):
        Gallery.open("postgresql://me:secret@host/database")
    (tmp_path / "gallery.sqlite").write_bytes(b"not a database, and longer than a header" * 50)
    with pytest.raises(GalleryError, match="damaged or none of a gallery"):
        Gallery.open(tmp_path)


def test_passwords_are_not_told() -> None:
    with pytest.raises(GalleryError, match="cannot be reached") as found:
        Gallery.open("postgresql://me:secret@127.0.0.1:1/database/gallery")
    assert "secret" not in str(found.value)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    import sqlite3

    Gallery.create(tmp_path / "gallery", ABOUT).close()
    connection = sqlite3.connect(tmp_path / "gallery" / "gallery.sqlite")
    connection.execute("""UPDATE about SET told = replace(told, '"format": 2', '"format": 99')""")
    connection.commit()
    connection.close()
    with pytest.raises(GalleryError, match="has format 99, this version"):
        Gallery.open(tmp_path / "gallery")


def test_a_closed_gallery_says_so(tmp_path: Path) -> None:
    gallery = Gallery.create(tmp_path / "gallery", ABOUT)
    gallery.close()
    gallery.close()
    with pytest.raises(GalleryError, match="it is closed; open it again"):
        len(gallery)


def test_copies_keep_every_bit(tmp_path: Path) -> None:
    entries: Entries = entries_of(["a", "b"])
    with Gallery.create(tmp_path / "one", ABOUT) as gallery:
        gallery.add(entries)
        gallery.copy(tmp_path / "two")
    with Gallery.open(tmp_path / "two", read_only=True) as copied:
        assert same(copied.fetch(["a", "b"]), entries)


@pytest.mark.parametrize("preset", ["instant", "default"])
def test_every_preset_fills_and_searches_a_gallery(preset: str, tmp_path: Path) -> None:
    steps = None if preset == "instant" else 1
    model = GeoPatch(preset, width=16, embedding=8, max_steps=steps, device="cpu").fit(signals(12), ["a", "b"] * 6)
    with Gallery.create(tmp_path / "gallery", model) as made:
        made.add(signals(12))
        for scorer in ("cosine", "fused", "dtw"):
            hits = made.search(signals(12)[3], 4, scorer=scorer, certify=True)
            assert hits[0].id == "s3"
            assert hits[0].certificate is not None
        assert len(hits[1].explain().matches) > 0
    with Gallery.open(tmp_path / "gallery") as opened:  # with the model that it holds
        assert len(opened.search("s3", 4, scorer="dtw")) == 4
        opened.add(signals(4, first=12))
        opened.refit()
        assert opened.search(signals(16)[3], 1)[0].id == "s3"
