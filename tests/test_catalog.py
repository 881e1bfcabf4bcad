"""The catalog: what each name gives, what trains and what tests, downloads and their refusal, digests."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from geopatch.data import catalog, download
from geopatch.data.audio import AudioConfig
from geopatch.data.catalog import CATALOG, DataSet, data_set, locate, source_digest, windows
from geopatch.data.collection import WindowSet, take_inventory
from geopatch.data.download import download_into, fetch_archive, fetch_physionet
from geopatch.data.physionet import DS1, DS2, find_database, snr_of, subject_of
from geopatch.data.recording import WindowConfig
from geopatch.errors import ConfigError, DataError
from geopatch.signal import Signal

wfdb = pytest.importorskip("wfdb")

DATA = Path(os.environ.get("GEOPATCH_DATA", "nowhere"))


def write_record(folder: Path, name: str, seconds: int = 4) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    time = np.arange(seconds * 128) / 128
    wfdb.wrsamp(
        name, 128, ["mV"], ["ECG1"], np.sin(2 * np.pi * time)[:, None], fmt=["16"], adc_gain=[200], baseline=[0],
        write_dir=str(folder),
    )  # fmt: skip
    marks = np.arange(64, len(time), 128)
    wfdb.wrann(name, "atr", marks, symbol=["N"] * len(marks), write_dir=str(folder))


def write_archive(folder: Path, name: str = "Waves") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in (("TRAIN", "1,2,3:a\n3,2,1:b\n"), ("TEST", "1,2,4:a\n4,2,1:b\n2,2,2:b\n")):
        (folder / f"{name}_{part}.ts").write_text(f"@classLabel true a b\n@data\n{rows}")


@pytest.fixture(scope="module")
def ecg(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small mitdb with every record of the split and a paced one, a small nstdb and a small nsrdb."""
    root = tmp_path_factory.mktemp("ecg")
    for record in (*DS1, *DS2, "102"):
        write_record(root / "mitdb", record)
    for record in ("118e24", "119e_6"):
        write_record(root / "nstdb", record)
    for record in ("16265", "16272"):
        write_record(root / "nsrdb", record, seconds=11)
    return root


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, wherever the tests run."""

    def refused(*_arguments: Any, **_settings: Any) -> None:
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(urllib.request, "urlopen", refused)


def test_mitdb_is_split_by_its_lists_without_paced_records(ecg: Path) -> None:
    split = windows("mitdb", ecg)
    assert split.train is not None
    assert {signal.record for signal in split.train.signals} == set(DS1)
    assert {signal.record for signal in split.test.signals} == set(DS2)
    assert (split.train.name, split.test.name) == ("mitdb_TRAIN", "mitdb_TEST")
    assert len(split.test) == 22 * 3  # 4 s are three windows of 2 s


def test_mitdb_that_lacks_records_is_refused_with_their_names(tmp_path: Path) -> None:
    for record in (*DS1, "100"):
        write_record(tmp_path / "mitdb", record)
    with pytest.raises(DataError, match=r"lacks 21 of the 44 records of its split \(103, 105, 111, 113, 117, \.\.\.\)"):
        windows("mitdb", tmp_path)


def test_nstdb_only_tests_and_its_records_say_their_noise(ecg: Path) -> None:
    split = windows("nstdb", ecg)
    assert split.train is None
    assert list(split.parts()) == ["test"]
    assert {(signal.record, snr_of(signal.record)) for signal in split.test.signals} == {("118e24", 24), ("119e_6", -6)}
    assert set(split.test.targets["subject"].tolist()) == {"118", "119"}


def test_nstdb_with_a_record_without_noise_is_refused(tmp_path: Path) -> None:
    write_record(tmp_path, "118")
    with pytest.raises(DataError, match="record 118 does not say its noise, like 118e24"):
        windows("nstdb", tmp_path)


def test_noise_of_records() -> None:
    found = [snr_of(record) for record in ("118e24", "118e06", "119e00", "119e_6", "118", "16265", "bw", "118e")]
    assert found == [24, 6, 0, -6, None, None, None, None]


def test_nsrdb_trains_on_the_first_half_of_every_record(ecg: Path) -> None:
    split = windows("nsrdb", ecg)
    assert split.train is not None
    assert {signal.start_s for signal in split.train.signals} == {0.0, 1.0, 2.0, 3.0}  # the middle is at 5.5 s
    assert {signal.start_s for signal in split.test.signals} == {6.0, 7.0, 8.0, 9.0}
    for part in split.parts().values():
        assert set(part.targets["subject"].tolist()) == {"16265", "16272"}
        assert all(len(labels) == len(part) == 8 for labels in part.targets.values())


def test_an_archive_set_keeps_its_split(tmp_path: Path) -> None:
    write_archive(tmp_path / "uea" / "Waves")
    split = windows("Waves", tmp_path)
    assert split.train is not None
    assert split.train.targets["class"].tolist() == ["a", "b"]
    assert split.test.targets["class"].tolist() == ["a", "b", "b"]
    np.testing.assert_array_equal(split.test.signals[0].values[:, 0], [1, 2, 4])


def test_arctic_is_split_by_prompt(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    pytest.importorskip("librosa")
    for speaker in ("bdl", "slt"):
        folder = tmp_path / f"cmu_us_{speaker}_arctic" / "wav"
        folder.mkdir(parents=True)
        for n in range(1, 9):
            soundfile.write(str(folder / f"arctic_a{n:04d}.wav"), np.sin(np.arange(1600) / n), 16000)
    split = windows("arctic", tmp_path)
    assert split.train is not None
    assert set(split.test.targets["prompt"].tolist()) == {"arctic_a0007", "arctic_a0008"}
    assert [signal.id for signal in split.test.signals] == [
        f"{speaker}/arctic_a000{n}" for speaker in ("bdl", "slt") for n in (7, 8)
    ]
    assert len(split.train) == 12
    assert next(iter(locate("arctic", tmp_path))) == "cmu_us_bdl_arctic/wav/arctic_a0001.wav"


def test_windows_are_cut_as_asked(ecg: Path) -> None:
    split = windows("nstdb", ecg, WindowConfig(rate_hz=64.0, length_s=1.0, overlap=0.0))
    assert {(signal.rate_hz, signal.length) for signal in split.test.signals} == {(64.0, 64)}
    assert len(split.test) == 2 * 4
    with pytest.raises(ConfigError, match="nstdb takes a WindowConfig, got a AudioConfig"):
        windows("nstdb", ecg, AudioConfig())
    with pytest.raises(ConfigError, match="Waves takes no config, got a WindowConfig"):
        windows("Waves", ecg, WindowConfig())


def test_reading_is_reported(ecg: Path) -> None:
    told: list[tuple[str, int, int]] = []
    windows("nsrdb", ecg, report=lambda *words: told.append(words))
    assert told == [("nsrdb", 1, 2), ("nsrdb", 2, 2)]


def test_a_side_without_windows_is_refused() -> None:
    one = WindowSet("one", (Signal.from_array([1.0, 2.0]),), {"class": np.asarray(["a"])})
    with pytest.raises(DataError, match="one_TEST: no window is left on this side"):
        one.side(np.asarray([False]), "one_TEST")


def test_a_folder_named_as_another_database_is_not_taken_for_this_one(ecg: Path) -> None:
    assert find_database("mitdb", ecg / "mitdb") == ecg / "mitdb"
    assert find_database("nsrdb", ecg / "mitdb") is None


def test_local_files_come_first(ecg: Path) -> None:
    def never(found: DataSet, root: Path) -> None:
        raise AssertionError("asked for a download")

    assert list(locate("nsrdb", ecg, download=never)) == [
        f"{record}{suffix}" for record in ("16265", "16272") for suffix in (".atr", ".dat", ".hea")
    ]


def test_what_is_absent_is_downloaded_into_the_root(tmp_path: Path) -> None:
    def bring(found: DataSet, root: Path) -> None:
        write_record(root / found.name, "118e12")

    split = windows("nstdb", tmp_path / "new", download=bring)
    assert {signal.record for signal in split.test.signals} == {"118e12"}


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ["mitdb", "nstdb", "nsrdb"])
def test_without_data_and_network_one_line_says_what_to_do(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError) as refused:
        windows(name, tmp_path)
    line = str(refused.value)
    assert str(tmp_path) in line
    assert "the download failed: Name or service not known" in line
    assert line.endswith("give --data-root or GEOPATCH_DATA the folder that holds it")
    assert "\n" not in line
    assert not list(tmp_path.iterdir())  # nothing half-made is left


@pytest.mark.usefixtures("offline")
def test_a_root_that_is_absent_is_refused_alike(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"mitdb is not there: looked in .*root/mitdb and .*root; the download failed"):
        windows("mitdb", tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_a_name_that_the_archive_does_not_have_is_refused_without_asking_the_network(tmp_path: Path) -> None:
    pytest.importorskip("aeon")
    write_archive(tmp_path / "Waves")
    with pytest.raises(
        DataError, match=r"no data set 'Wave': .* the nearest are Waves; the download failed: .*Wave is not in the list"
    ):
        windows("Wave", tmp_path)


def test_speech_says_where_it_is_found(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"no library downloads it; fetch it from http://www\.festvox\.org/cmu_arctic/ and unpack it"
    ):
        windows("arctic", tmp_path)


def test_a_download_that_is_not_wanted_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"mitdb is not there: looked in .*; give --data-root or GEOPATCH_DATA"):
        windows("mitdb", tmp_path, download=None)
    write_archive(tmp_path / "Waves")
    with pytest.raises(DataError, match=r"no data set 'Wave': .* the nearest are Waves; give --data-root"):
        windows("Wave", tmp_path, download=None)


def test_a_download_that_brings_nothing_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"mitdb is not there: .*, even after the download from https://physionet\.org"):
        windows("mitdb", tmp_path, download=lambda found, root: None)


def test_a_library_that_fails_is_one_short_line_and_leaves_nothing(tmp_path: Path) -> None:
    def broken(name: str, folder: Path) -> None:
        (folder / "half").touch()
        raise ValueError("no\nsuch " + "record " * 100)

    with pytest.raises(DataError, match=r"^no such record .*\.\.\.$") as refused:
        download_into(tmp_path / "root" / "mitdb", "mitdb", broken)
    assert len(str(refused.value)) == 200
    assert not (tmp_path / "root").exists()


def test_what_libraries_print_is_no_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    download_into(tmp_path / "set", "set", lambda name, folder: print("Downloading files"))
    assert capsys.readouterr() == ("", "Downloading files\n")
    assert (tmp_path / "set").is_dir()


def test_a_home_that_answers_with_an_error_is_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(*_arguments: Any, **settings: Any) -> None:
        assert settings["timeout"] <= 30
        raise urllib.error.HTTPError("https://nowhere.invalid/", 405, "no HEAD here", None, None)  # type: ignore[arg-type]

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    download.check_reachable("https://nowhere.invalid/")


def test_libraries_fill_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(download, "check_reachable", lambda home: None)
    monkeypatch.setattr(wfdb, "dl_database", lambda *words: asked.append(words))
    fetch_physionet("mitdb", tmp_path / "mitdb")
    assert asked == [("mitdb", str(tmp_path / "mitdb"))]

    def load_classification(name: str, extract_path: str) -> None:
        write_archive(Path(extract_path) / name, name)

    datasets = ModuleType("aeon.datasets")
    monkeypatch.setattr(datasets, "load_classification", load_classification, raising=False)
    monkeypatch.setitem(sys.modules, "aeon", ModuleType("aeon"))
    monkeypatch.setitem(sys.modules, "aeon.datasets", datasets)
    (tmp_path / "Waves").mkdir()
    fetch_archive("Waves", tmp_path / "Waves")
    assert len(windows("Waves", tmp_path, download=None).test) == 3


@pytest.mark.parametrize(
    ("name", "library", "extra"), [("mitdb", "wfdb", "ecg"), ("Waves", "aeon.datasets", "archive")]
)
def test_without_its_library_a_download_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, library: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DataError, match=rf"pip install 'geopatch-ts\[{extra}\]'; give --data-root"):
        windows(name, tmp_path)


def test_a_changed_source_has_another_digest(tmp_path: Path) -> None:
    write_record(tmp_path / "one" / "nsrdb", "16265")
    write_record(tmp_path / "two", "16265")
    digest = source_digest("nsrdb", tmp_path / "one")
    assert digest == source_digest("nsrdb", tmp_path / "two")  # the place does not count
    (tmp_path / "two" / "README").write_text("nobody reads this")
    assert digest == source_digest("nsrdb", tmp_path / "two")
    data = tmp_path / "two" / "16265.dat"
    data.write_bytes(bytes([data.read_bytes()[0] ^ 1]) + data.read_bytes()[1:])
    assert digest != source_digest("nsrdb", tmp_path / "two")
    write_record(tmp_path / "one" / "nsrdb", "16272")
    assert digest != source_digest("nsrdb", tmp_path / "one")


def test_a_renamed_file_has_another_digest(tmp_path: Path) -> None:
    write_archive(tmp_path / "Waves")
    write_archive(tmp_path / "Waves2", "Waves2")
    assert source_digest("Waves", tmp_path) != source_digest("Waves2", tmp_path)
    with pytest.raises(DataError, match="no data set 'Waves3'"):
        source_digest("Waves3", tmp_path)


def test_entries_are_complete() -> None:
    for name, found in CATALOG.items():
        assert name == found.name == data_set(name).name
        assert all((found.what, found.home, found.licence, found.windows, found.split, found.targets))
        assert found.config == (
            AudioConfig() if name == "arctic" else WindowConfig()
        )  # so the words on windows are true
    assert data_set("Anything").targets == ("class",)


def test_names_are_those_of_the_catalog_and_of_the_splits_under_the_root(tmp_path: Path) -> None:
    write_archive(tmp_path / "uea" / "Waves")
    np.savez(tmp_path / "embeddings.npz", X=np.zeros((2, 3)))
    np.savez(tmp_path / "Pool.npz", X_train=[[1.0]], y_train=["a"], X_test=[[1.0]], y_test=["a"])
    (tmp_path / "broken.npz").write_text("no archive")
    assert catalog.names(tmp_path) == [*CATALOG, "Pool", "Waves"]
    assert catalog.names(tmp_path / "nowhere") == list(CATALOG)


def test_an_inventory_counts_windows_records_and_classes(ecg: Path) -> None:
    found = take_inventory(windows("nsrdb", ecg).test)
    assert (found.windows, found.records, found.recorded_s) == (8, ("16265", "16272"), 10.0)  # seconds 6 to 11, twice
    assert (found.rate_hz, found.channels, found.shortest, found.longest) == (128.0, 1, 256, 256)
    assert found.targets["subject"] == {"16265": 4, "16272": 4}
    assert found.targets["beat"] == {"N": 8}


@pytest.mark.skipif(not (DATA / "mitdb").is_dir(), reason="GEOPATCH_DATA names no folder of data sets")
def test_real_sets_have_their_windows_and_splits() -> None:
    counts = {}
    for name in ("mitdb", "nstdb", "nsrdb"):
        split = windows(name, DATA, download=None)
        counts[name] = {part: len(found) for part, found in split.parts().items()}
        for found in split.parts().values():
            assert {signal.length for signal in found.signals} == {256}
            assert all(len(labels) == len(found) for labels in found.targets.values())
        names = {signal.channels for found in split.parts().values() for signal in found.signals}
        assert names == {"mitdb": {()}, "nstdb": {("MLII", "V1")}, "nsrdb": {("ECG1", "ECG2")}}[name]
    seconds = 650000 / 360  # of one record
    each = int((seconds - 2) // 1) + 1
    assert counts["mitdb"] == {"train": 22 * each, "test": 22 * each}
    assert counts["nstdb"] == {"test": 12 * each}
    assert counts["nsrdb"] == {"train": 18 * 29, "test": 18 * 29}


@pytest.mark.skipif(not (DATA / "nstdb").is_dir(), reason="GEOPATCH_DATA names no folder of data sets")
def test_real_noise_records_have_six_strengths_each() -> None:
    records = {name.removesuffix(".hea") for name in locate("nstdb", DATA, download=None) if name.endswith(".hea")}
    found = {
        subject: {snr_of(record) for record in records if subject_of(record) == subject} for subject in ("118", "119")
    }
    assert found == {"118": {24, 18, 12, 6, 0, -6}, "119": {24, 18, 12, 6, 0, -6}}
