"""The archive's formats: equal to aeon's readers where those read, one line with file and line number where not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from aeon.datasets import load_from_arff_file, load_from_ts_file, load_from_tsv_file

from geopatch.data import Collection, load_split
from geopatch.data.archive import read_arff, read_ts, read_tsv
from geopatch.errors import DataError

DATA = os.environ.get("GEOPATCH_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="GEOPATCH_DATA names no folder of data sets")

TS = """# a comment, 10\xb0
@problemName Tiny
@timeStamps false
@univariate false
@dimensions 2
@equalLength true
@classLabel true Walk Run

@data
1.5,2.5,-3e2:4,?,6:Walk
7,8,9:10,11,NaN:Run
"""
ARFF = """% a comment
@relation Tiny
@attribute bag relational
  @attribute t0 numeric
  @attribute t1 numeric
  @attribute t2 numeric
@end bag
@attribute activity {Walk,Run}
@data
'1.5,2.5,-3e2\\n4,?,6',Walk
'7,8,9\\n10,11,12',Run
"""
ARFF_ONE = """@relation One
@attribute t0 numeric
@attribute 't 1' real
@attribute target {1,2}
@data
1.5,?,1
3,4,2
"""


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def values(collection: Collection) -> list[list[Any]]:
    """Channel by channel, as the files are written."""
    return [signal.values.T.tolist() for signal in collection.signals]


def same_as_aeon(collection: Collection, X: Any, y: npt.NDArray[Any]) -> None:
    assert collection.labels is not None
    assert [label.lower() for label in collection.labels] == [str(label).lower() for label in y]
    for signal, channels in zip(collection.signals, X, strict=True):
        expected = np.asarray(channels, dtype=np.float32)
        np.testing.assert_array_equal(signal.values.T, expected[:, : signal.length])
        assert np.isnan(expected[:, signal.length :]).all()  # only padding is cut off


def test_ts_gives_signals_ids_labels_and_name(tmp_path: Path) -> None:
    collection = read_ts(write(tmp_path, "Tiny_TRAIN.ts", TS))
    assert collection.name == "Tiny_TRAIN"
    assert [signal.id for signal in collection.signals] == ["0", "1"]
    assert collection.labels is not None
    assert collection.labels.tolist() == ["Walk", "Run"]
    np.testing.assert_array_equal(
        values(collection), [[[1.5, 2.5, -300], [4, np.nan, 6]], [[7, 8, 9], [10, 11, np.nan]]]
    )


def test_ts_without_labels(tmp_path: Path) -> None:
    collection = read_ts(write(tmp_path, "a.ts", "@classLabel false\n@data\n1,2:3,4\n5:6\n"))
    assert collection.labels is None
    assert values(collection) == [[[1, 2], [3, 4]], [[5], [6]]]


def test_ts_with_targets_keeps_their_text(tmp_path: Path) -> None:
    collection = read_ts(write(tmp_path, "a.ts", "@univariate true\n@targetLabel true\n@data\n1,2:0.50\n"))
    assert collection.labels is not None
    assert collection.labels.tolist() == ["0.50"]


def test_ts_may_have_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path, "a.ts", b"\xef\xbb\xbf" + TS.replace("\n", "\r\n").encode())
    assert len(read_ts(path)) == 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_channels", [1, 3])
def test_ts_of_unequal_lengths_is_as_aeon_reads_it(tmp_path: Path, seed: int, n_channels: int) -> None:
    rng = np.random.default_rng(seed)
    rows = []
    for label in ("a", "b", "c", "b"):
        values = rng.normal(size=(n_channels, rng.integers(1, 9))) * 10.0 ** rng.integers(-9, 9)
        texts = [["?" if rng.random() < 0.1 and n else repr(float(v)) for n, v in enumerate(dim)] for dim in values]
        rows.append(":".join([*(",".join(text) for text in texts), label]))
    head = f"@univariate {str(n_channels == 1).lower()}\n@equalLength false\n@classLabel true a b c\n@data\n"
    path = write(tmp_path, "random.ts", head + "\n".join(rows) + "\n")
    same_as_aeon(read_ts(path), *load_from_ts_file(str(path)))


@pytest.mark.parametrize("text", [ARFF, ARFF_ONE])
def test_arff_is_as_aeon_reads_it(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, "a.arff", text.replace("% a comment\n", ""))
    same_as_aeon(read_arff(path), *load_from_arff_file(str(path)))


def test_arff_cuts_off_padding_and_keeps_gaps(tmp_path: Path) -> None:
    text = ARFF.replace("'7,8,9\\n10,11,12'", '"7,8,?\\n?,11,?"')
    collection = read_arff(write(tmp_path, "a.arff", text))
    np.testing.assert_array_equal(collection.signals[1].values.T, [[7, 8], [np.nan, 11]])


def test_arff_classes_may_be_quoted(tmp_path: Path) -> None:
    text = ARFF.replace("{Walk,Run}", "{ 'Walk', \"Run fast\" }").replace("',Run", "', 'Run fast'")
    collection = read_arff(write(tmp_path, "a.arff", text))
    assert collection.labels is not None
    assert collection.labels.tolist() == ["Walk", "Run fast"]


def test_tsv_is_as_aeon_reads_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lengths = [5, 9, 7]
    rows = [[*map(repr, rng.normal(size=n).tolist()), *["NaN"] * (9 - n)] for n in lengths]
    path = write(tmp_path, "a.tsv", "".join("\t".join([f"{n + 1}", *row]) + "\n" for n, row in enumerate(rows)))
    collection = read_tsv(path)
    assert [signal.length for signal in collection.signals] == lengths
    same_as_aeon(collection, *load_from_tsv_file(str(path)))


def test_tsv_cuts_off_padding_and_keeps_gaps(tmp_path: Path) -> None:
    collection = read_tsv(write(tmp_path, "a.tsv", "-1\t1\tNaN\t3\tNaN\n1\t4\t5\t6\t7\n"))
    np.testing.assert_array_equal(collection.signals[0].values[:, 0], [1, np.nan, 3])
    assert collection.labels is not None
    assert collection.labels.tolist() == ["-1", "1"]


def test_txt_between_spaces(tmp_path: Path) -> None:
    collection = read_tsv(write(tmp_path, "a.txt", "  1.0   0.5  0.25\n  2.0   1.5  -2e1\n"))
    assert values(collection) == [[[0.5, 0.25]], [[1.5, -20]]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (":10,11,NaN:Run", ":Run", r"a.ts line 11: expected 2 dimensions and then the label, got 1; ':' stands"),
        (":10,11,NaN:Run", ":10,11,NaN", r"a.ts line 11: expected 2 dimensions and then the label, got 1; ':' stands"),
        (":10,11,NaN", ":10,11", "a.ts line 11: expected 3 samples in every dimension, .* got 2 in dimension 2; write"),
        ("7,8,9:10,11,NaN", "7,8:9,10", "a.ts line 11: expected 3 samples, as in the first row, got 2; mend the row"),
        ("11,NaN", "x11,NaN", r"a.ts line 11: expected a number, got 'x11' in dimension 2, sample 1; write \? or NaN"),
        ("11,NaN", "1_1,NaN", "a.ts line 11: expected a number, got '1_1' in dimension 2, sample 1"),
        ("11,NaN", ",NaN", "a.ts line 11: expected a number, got '' in dimension 2, sample 1"),
        ("10,11,NaN", "", r"a.ts line 11: dimension 2 is empty; write \? or NaN"),
        ("11,NaN", "inf,NaN", "a.ts line 11: signal '1' contains inf at sample 1"),
        ("11,NaN", "1e300,NaN", "a.ts line 11: signal '1' contains inf at sample 1"),
        ("7,8,9:10,11,NaN", "?,?,?:?,?,?", "a.ts line 11: signal '1' is all NaN"),
        (":Run", ":Swim", "a.ts line 11: label 'Swim' is not declared; @classLabel has 'Walk Run'"),
        (":Run", ":", "a.ts line 11: label '' is not declared"),
        ("@data\n", "", "a.ts line 9: expected a header line with @, got '1.5,2.5.*rows follow after @data"),
        ("@classLabel true Walk Run\n", "", "a.ts line 8: expected @classLabel before @data; add '@classLabel false'"),
        ("true Walk Run", "true", "a.ts line 7: expected the labels after '@classLabel true', got none"),
        ("true Walk Run", "maybe", "a.ts line 7: expected @classlabel true or @classlabel false, got 'maybe'"),
        ("@equalLength true", "@equalLength", "a.ts line 6: expected @equallength true or @equallength false, got ''"),
        ("@dimensions 2", "@dimensions two", "a.ts line 5: expected @dimensions and a number from 1, got 'two'"),
        ("@timeStamps false", "@timeStamps true", "a.ts line 3: timestamps are not read; give the values alone"),
    ],
)
def test_ts_says_what_is_wrong_and_where(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = write(tmp_path, "a.ts", TS.replace(old, new))
    with pytest.raises(DataError, match=message):
        read_ts(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TS[: TS.index("@data")], "a.ts line 7: expected @data and rows after it, got the end of the file"),
        (TS[: TS.index("1.5")], "a.ts: expected at least one row of data, got none; the file may be cut off"),
        ("\n\n", "a.ts line 0: expected @data"),
        ("", r"a.ts is empty \(0 bytes\)"),
        (TS.encode().replace(b"Run\n", b"R\xfcn\n"), "line 7: expected UTF-8 text, got byte 0xfc at column 24; save"),
    ],
)
def test_ts_cut_off_or_in_another_encoding(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_ts(write(tmp_path, "a.ts", text))


def test_comments_may_be_in_any_encoding(tmp_path: Path) -> None:
    assert len(read_ts(write(tmp_path, "a.ts", TS.encode("latin-1")))) == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\\n10,11,12", "", "a.arff line 11: expected 2 dimensions, as in the first row, got 1; '.n' stands between"),
        ("10,11,12", "10,11", "a.arff line 11: expected 3 samples, as declared, got 2 in dimension 2; pad"),
        ("10,11,12", "10,x,12", r"a.arff line 11: expected a number, got 'x' in dimension 2, sample 1; write \?"),
        ("',Run", "',Swim", "a.arff line 11: label 'Swim' is not declared; the class attribute has 'Walk,Run'"),
        ("'7,8,9\\n10,11,12'", "7,8,9", "a.arff line 11: expected dimensions in quotes, a comma and the label, got '7"),
        ("12',Run", "12", "a.arff line 11: expected dimensions in quotes, a comma and the label"),
        ("@data\n", "", "a.arff line 9: expected @relation, @attribute or @end, got .* rows follow @data"),
        ("{Walk,Run}", "string", "a.arff line 9: expected numeric attributes and then the class; declare it last"),
        (
            "@attribute t0 numeric",
            "@attribute t0",
            "a.arff line 4: expected '@attribute name type', got '@attribute t0'",
        ),
        ("Run\n", "R\xfcn\n", "a.arff line 11: expected UTF-8 text, got byte 0xfc at column 20"),
    ],
)
def test_arff_says_what_is_wrong_and_where(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = write(tmp_path, "a.arff", ARFF.replace(old, new).encode("latin-1"))
    with pytest.raises(DataError, match=message):
        read_arff(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ARFF_ONE.replace("3,4,2", "3,2"), "a.arff line 7: expected 2 samples, as declared, got 1 in dimension 1"),
        (ARFF_ONE[: ARFF_ONE.index("@data")], "a.arff line 4: expected @data and rows after it, got the end"),
        (ARFF_ONE[: ARFF_ONE.index("1.5")], "a.arff: expected at least one row of data, got none"),
    ],
)
def test_arff_of_one_channel_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_arff(write(tmp_path, "a.arff", text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "1\t2\t3\n1\t2\n",
            "a.tsv line 2: expected 2 samples, as in the first row, got 1; pad shorter signals with NaN",
        ),
        ("1\t2\tx\n", "a.tsv line 1: expected a number, got 'x' in dimension 1, sample 1"),
        ("1\t2\t\n", "a.tsv line 1: expected a number, got '' in dimension 1, sample 1"),
        ("\t2\t3\n", r"a.tsv line 1: expected a label, a tab and numbers between tabs, got '\\t2\\t3'"),
        ("1,2,3\n", "a.tsv line 1: expected a label, a tab and numbers between tabs, got '1,2,3'"),
        ("1\tNaN\tNaN\n", "a.tsv line 1: signal '0' is all NaN"),
        (b"1\t2\n\xff\t3\n", "a.tsv line 2: expected UTF-8 text, got byte 0xff at column 1"),
    ],
)
def test_tsv_says_what_is_wrong_and_where(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_tsv(write(tmp_path, "a.tsv", text))


def make_root(root: Path) -> Path:
    """A data root with each of the layouts that load_split knows."""
    for part in ("TRAIN", "TEST"):
        write(root, f"uea/Tiny/Tiny_{part}.ts", TS)
        write(root, f"ucr/Wide/Wide_{part}.tsv", "1\t2\t3\n")
        write(root, f"ucr/Wide/Wide_extra_{part}.tsv", "1\t2\t3\n")
        write(root, f"Own/Own_{part}.arff", ARFF)
        write(root, f"Flat_{part}.txt", "1\t2\t3\n")
    write(root, "uea/Tiny/Tiny_TRAIN.arff", ARFF)  # alone, so the .ts files are read
    (root / "ucr_pool").mkdir()
    X = np.asarray([[1, 2, np.nan]], dtype=np.float32)
    np.savez(root / "ucr_pool" / "Pool.npz", X_train=X, y_train=["a"], X_test=X, y_test=["b"])
    return root


@pytest.mark.parametrize(("name", "n_channels"), [("Tiny", 2), ("Wide", 1), ("Own", 2), ("Flat", 1), ("Pool", 1)])
def test_split_by_name(tmp_path: Path, name: str, n_channels: int) -> None:
    train, test = load_split(name, make_root(tmp_path))
    assert (train.name, test.name) == (f"{name}_TRAIN", f"{name}_TEST")
    assert train.signals[0].values.shape[1] == n_channels


def test_split_of_an_npz_cuts_off_padding(tmp_path: Path) -> None:
    train, _ = load_split("Pool", make_root(tmp_path))
    assert train.signals[0].values.tolist() == [[1], [2]]


@pytest.mark.parametrize("folder", ["uea/Tiny", "ucr/Wide", "Own"])
def test_split_by_folder(tmp_path: Path, folder: str) -> None:
    train, _ = load_split(make_root(tmp_path) / folder)
    assert train.name == f"{Path(folder).name}_TRAIN"


def test_split_by_folder_of_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_root(tmp_path)
    (root / "Own").rename(root / "renamed")
    monkeypatch.chdir(root)
    assert load_split("renamed")[0].name == "Own_TRAIN"


def test_unknown_name_says_where_it_looked_and_what_is_near(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    with pytest.raises(DataError, match=r"no data set 'tony': looked for .*/tony/, .*of 5 data sets .* are Tiny, "):
        load_split("tony", root)


def test_unknown_name_in_an_empty_root(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no data set 'Tiny': .*; there are none there"):
        load_split("Tiny", tmp_path)


def test_split_that_cannot_be_is_refused(tmp_path: Path) -> None:
    root = make_root(tmp_path)
    with pytest.raises(DataError, match="is no folder; expected one with _TRAIN and _TEST files, or the name"):
        load_split(root / "nowhere" / "Tiny")
    with pytest.raises(DataError, match="is no folder; expected the folder that holds the data sets"):
        load_split("Tiny", root / "nowhere")
    with pytest.raises(
        DataError, match=r"expected <Name>_TRAIN and <Name>_TEST files of one data set .*, got none; name"
    ):
        load_split(root / "ucr_pool")
    (root / "ucr" / "Wide").rename(root / "ucr" / "Two")
    with pytest.raises(DataError, match=r"of one data set .*, got Wide, Wide_extra; name the folder as the set"):
        load_split(root / "ucr" / "Two")


def test_split_with_other_channels_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "A_TRAIN.ts", TS)
    write(tmp_path, "A_TEST.ts", "@classLabel false\n@data\n1,2\n")
    with pytest.raises(DataError, match="A_TRAIN has 2 channels but A_TEST has 1; they are not of one data set"):
        load_split("A", tmp_path)


def test_split_of_an_npz_without_its_arrays_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "A.npz", X_train=np.ones((1, 2)), y_train=["a"])
    with pytest.raises(DataError, match=r"A.npz: expected arrays X_train, .*, got no X_test, y_test"):
        load_split("A", tmp_path)


def data_sets() -> list[str]:
    folders = [place.name for kind in ("uea", "ucr") for place in Path(DATA, kind).glob("*")] if DATA else []
    return sorted([*folders, *(file.stem for file in Path(DATA, "ucr_pool").glob("*.npz"))]) if DATA else []


@needs_data
def test_every_real_set_is_read() -> None:
    assert data_sets()
    for name in data_sets():
        train, test = load_split(name, DATA)
        assert train.labels is not None
        assert test.labels is not None
        assert set(test.labels) <= set(train.labels), name


@needs_data
@pytest.mark.parametrize("name", ["BasicMotions", "CharacterTrajectories"])
def test_real_ts_is_as_aeon_reads_it(name: str) -> None:
    path = Path(DATA, "uea", name, f"{name}_TEST.ts")
    same_as_aeon(read_ts(path), *load_from_ts_file(str(path)))


@needs_data
def test_real_tsv_is_as_aeon_reads_it() -> None:
    path = Path(DATA, "ucr", "AllGestureWiimoteX", "AllGestureWiimoteX_TEST.tsv")
    same_as_aeon(read_tsv(path), *load_from_tsv_file(str(path)))
