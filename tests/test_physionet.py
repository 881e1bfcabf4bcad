"""WFDB records, good and damaged. Records are written by the wfdb library itself."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from geopatch.data.physionet import (
    DS1,
    DS2,
    load_database,
    read_wfdb,
    subject_of,
    unnamed_where_leads_differ,
)
from geopatch.data.recording import AAMI, cut_windows
from geopatch.data.wfdb_records import BEATS
from geopatch.errors import ConfigError, DataError, MissingExtraError

wfdb = pytest.importorskip("wfdb")

DATA = Path(os.environ.get("GEOPATCH_DATA", "nowhere"))
SAMPLES = [0, 36, 90, 180, 270, 350]
SYMBOLS = ["+", "N", "V", "~", "A", "N"]
NOTES = ["(AFIB", "", "", "", "", ""]


def write(
    folder: Path, name: str = "100", samples: int = 400, last_mark: int = 350, names: tuple[str, str] = ("MLII", "V5")
) -> Path:
    folder.mkdir(exist_ok=True)
    time = np.arange(samples) / 360
    leads = np.stack([np.sin(2 * np.pi * time), np.cos(2 * np.pi * time)], axis=1)
    wfdb.wrsamp(
        name, 360, ["mV", "mV"], list(names), leads, fmt=["212", "212"], adc_gain=[200, 200], baseline=[0, 0],
        write_dir=str(folder),
    )  # fmt: skip
    marks = np.asarray([*SAMPLES[:-1], last_mark])
    wfdb.wrann(name, "atr", marks, symbol=SYMBOLS, aux_note=NOTES, write_dir=str(folder))
    return folder / name


def test_a_record_has_its_leads_beats_and_rhythm(tmp_path: Path) -> None:
    found = read_wfdb(write(tmp_path))
    assert (found.signal.id, found.signal.rate_hz, found.signal.channels) == ("100", 360.0, ("MLII", "V5"))
    time = np.arange(400) / 360
    np.testing.assert_allclose(found.signal.values[:, 0], np.sin(2 * np.pi * time), atol=0.003)
    assert list(zip(found.beat_samples.tolist(), found.beat_symbols.tolist(), strict=True)) == [
        (36, "N"), (90, "V"), (270, "A"), (350, "N")
    ]  # fmt: skip
    assert (found.rhythm_samples.tolist(), found.rhythm_names.tolist()) == ([0], ["AFIB"])


def test_lead_mlii_stands_first_where_a_record_has_it(tmp_path: Path) -> None:
    first, turned = read_wfdb(write(tmp_path, "100")), read_wfdb(write(tmp_path, "114", names=("V5", "MLII")))
    assert turned.signal.channels == first.signal.channels == ("MLII", "V5")
    np.testing.assert_array_equal(turned.signal.values, first.signal.values[:, ::-1])
    assert read_wfdb(write(tmp_path, "102", names=("V5", "V2"))).signal.channels == ("V5", "V2")


def test_leads_that_differ_between_records_have_no_names(tmp_path: Path) -> None:
    same = [read_wfdb(write(tmp_path, "100")), read_wfdb(write(tmp_path, "114", names=("V5", "MLII")))]
    assert unnamed_where_leads_differ(same) == same
    other = unnamed_where_leads_differ([*same, read_wfdb(write(tmp_path, "101", names=("MLII", "V1")))])
    assert [recording.signal.channels for recording in other] == [(), (), ()]


def test_a_database_is_found_under_its_name_or_in_the_folder_itself(tmp_path: Path) -> None:
    write(tmp_path / "mitdb", "100")
    write(tmp_path / "mitdb", "202")
    for root in (tmp_path, tmp_path / "mitdb"):
        assert [found.subject for found in load_database("mitdb", root)] == ["100", "201"]
    with pytest.raises(DataError, match=r"no WFDB records of nsrdb in .*nsrdb or "):
        load_database("nsrdb", tmp_path)
    with pytest.raises(ConfigError, match="database must be one of mitdb, nstdb, nsrdb, got 'ptbdb'"):
        load_database("ptbdb", tmp_path)


def test_subjects() -> None:
    assert [subject_of(record) for record in ("100", "201", "202", "118e06", "119e_6", "16265")] == [
        "100", "201", "201", "118", "119", "16265"
    ]  # fmt: skip


def test_no_record_and_but_one_patient_is_on_both_sides_of_the_split() -> None:
    assert len(DS1) == len(DS2) == 22
    assert not set(DS1) & set(DS2)
    assert {subject_of(record) for record in DS1} & {subject_of(record) for record in DS2} == {"201"}
    assert not {"102", "104", "107", "217"} & {*DS1, *DS2}  # paced


def test_a_truncated_dat_names_file_and_bytes(tmp_path: Path) -> None:
    path = write(tmp_path)
    data = path.with_suffix(".dat")
    data.write_bytes(data.read_bytes()[:700])
    with pytest.raises(
        DataError, match=r"100\.dat: expected 1200 bytes for the 400 samples .*, got 700; copy the file"
    ):
        read_wfdb(path)


def test_a_header_that_lies_about_its_length_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path)
    header = path.with_suffix(".hea")
    header.write_text(header.read_text().replace("100 2 360 400", "100 2 360 4000"))
    with pytest.raises(
        DataError, match=r"expected 12000 bytes for the 4000 samples that its header promises, got 1200"
    ):
        read_wfdb(path)


def test_an_annotation_past_the_end_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="recording '100' has 400 samples but a mark at sample 900"):
        read_wfdb(write(tmp_path, last_mark=900))


def test_a_missing_header_is_named(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.with_suffix(".hea").unlink()
    with pytest.raises(DataError, match=r"100\.hea is missing"):
        read_wfdb(path)


def test_a_record_without_annotations_has_no_beats(tmp_path: Path) -> None:
    path = write(tmp_path)
    annotated = read_wfdb(path)
    path.with_suffix(".atr").unlink()
    plain = read_wfdb(path)
    assert len(annotated.beat_samples) > 0
    assert len(plain.beat_samples) == len(plain.rhythm_samples) == 0
    np.testing.assert_array_equal(plain.signal.values, annotated.signal.values)
    assert plain.signal.units == ("mV", "mV")


def test_a_missing_dat_is_named(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.with_suffix(".dat").unlink()
    with pytest.raises(DataError, match=r"100\.hea names 100\.dat, which is not beside it"):
        read_wfdb(path)


def test_garbage_in_a_header_is_one_line(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.with_suffix(".hea").write_text("not a header\n")
    with pytest.raises(DataError, match=r"100\.hea cannot be read as WFDB"):
        read_wfdb(path)


def test_without_wfdb_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path)
    monkeypatch.setitem(sys.modules, "wfdb", None)
    with pytest.raises(MissingExtraError, match=r"geopatch-ts\[ecg\]"):
        read_wfdb(path)


def independent_beats(path: Path) -> Counter[str]:
    """Beats by symbol, decoded from the annotation file by hand (MIT format: 6 bits of code, 10 bits of time)."""
    codes = {1: "N", 2: "L", 3: "R", 4: "a", 5: "V", 6: "F", 7: "J", 8: "A", 9: "S", 10: "E", 11: "j", 12: "/", 13: "Q",
             34: "e", 38: "f"}  # fmt: skip
    words = np.frombuffer(path.read_bytes(), dtype="<u2")
    found: Counter[str] = Counter()
    place = 0
    while place < len(words) and words[place]:
        code, low = int(words[place]) >> 10, int(words[place]) & 0x3FF
        place += 1
        if code == 59:
            place += 2  # a long interval follows
        elif code == 63:
            place += (low + 1) // 2  # a text follows
        elif code in codes:
            found[codes[code]] += 1
    return found


@pytest.mark.skipif(not (DATA / "mitdb").is_dir(), reason="GEOPATCH_DATA names no folder of data sets")
def test_beats_of_every_mitdb_record_equal_an_independent_count() -> None:
    recordings = load_database("mitdb", DATA)
    assert len(recordings) == 48
    assert len({found.subject for found in recordings}) == 47
    for found in recordings:
        expected = independent_beats(DATA / "mitdb" / f"{found.signal.id}.atr")
        counted = Counter(found.beat_symbols.tolist())
        for name, symbols in AAMI.items():
            assert sum(counted[s] for s in symbols) == sum(expected[s] for s in symbols), (found.signal.id, name)


@pytest.mark.skipif(not (DATA / "nstdb").is_dir(), reason="GEOPATCH_DATA names no folder of data sets")
def test_noise_and_sinus_records_are_all_there() -> None:
    noisy = load_database("nstdb", DATA)
    assert (len(noisy), {found.subject for found in noisy}) == (12, {"118", "119"})
    sinus = load_database("nsrdb", DATA)
    assert len({found.subject for found in sinus}) == 18
    windows = cut_windows("nsrdb", sinus)
    assert {signal.length for signal in windows.signals} == {256}


def test_beats_are_the_symbols_of_the_aami_groups() -> None:
    assert "".join(sorted(BEATS)) == "".join(sorted("NLRejAaJSVEF/fQ"))
