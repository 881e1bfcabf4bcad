"""Laws of a collection: ids differ, channels agree, labels fit, and the digest knows content from chance."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from geopatch.data import Collection
from geopatch.data.collection import ROWS_SHOWN, WindowSet
from geopatch.errors import SignalError
from geopatch.signal import Signal

GAP = [[1.0, 2.0], [np.nan, 4.0]]


def make(labels: list[str] | None = None) -> Collection:
    signals = (Signal.from_array(GAP, id="a"), Signal.from_array([[0.0, 1.0]], id="b"), Signal.from_array(GAP, id="c"))
    return Collection("three", signals, None if labels is None else np.asarray(labels))


def test_counts_its_signals() -> None:
    assert len(make()) == 3
    assert make().labels is None


def test_labels_become_text() -> None:
    collection = Collection("numbers", make().signals, np.asarray([1, 2, 3]))
    assert collection.labels is not None
    assert collection.labels.tolist() == ["1", "2", "3"]


@pytest.mark.parametrize("labels", [["x"], ["x"] * 4])
def test_labels_of_another_number_are_refused(labels: list[str]) -> None:
    with pytest.raises(SignalError, match=rf"'three' has 3 signals but labels of shape \({len(labels)},\); give one"):
        make(labels)


def test_same_id_twice_is_refused() -> None:
    with pytest.raises(SignalError, match="'twice' has id 'b' twice; give each signal its own"):
        Collection("twice", (make().signals[0], make().signals[1], make().signals[1]))


def test_other_channels_are_refused() -> None:
    odd = Signal.from_array([1.0, 2.0], id="odd")
    with pytest.raises(SignalError, match="signal 'odd' has 1 channel, signal 'a' has 2 channels; give all"):
        Collection("mixed", (*make().signals, odd))


def test_channels_are_arranged_by_name() -> None:
    first = Signal.from_array(GAP, id="a", channels=("x", "y"), anchors=np.asarray([1.0]))
    turned = Signal.from_array(GAP, id="b", channels=("y", "x"), anchors=np.asarray([1.0]))
    plain = Signal.from_array(GAP, id="c")
    collection = Collection("named", (plain, first, turned))
    assert [signal.channels for signal in collection.signals] == [(), ("x", "y"), ("x", "y")]
    assert collection.signals[0] is plain
    assert collection.signals[1] is first
    np.testing.assert_array_equal(collection.signals[2].values, np.asarray(GAP)[:, ::-1])
    assert collection.signals[2].anchors is not None
    assert collection.subset([2, 1]).signals[0].channels == ("x", "y")


def test_channels_of_other_names_are_refused_with_both_lists() -> None:
    signals = [Signal.from_array(GAP, id=id, channels=names) for id, names in (("a", ("x", "y")), ("b", ("x", "z")))]
    with pytest.raises(SignalError, match="signal 'b' has the channels x, z; expected x, y: rename"):
        Collection("named", tuple(signals))
    wide = Signal.from_array([[1.0, 2.0, 3.0]], id="w", channels=("x", "y", "z"))
    with pytest.raises(SignalError, match=r"'w' has 3 channels \(x, y, z\), signal 'a' has 2 channels \(x, y\)"):
        Collection("named", (signals[0], wide))


def test_a_collection_is_one_line_and_a_table_in_notebooks() -> None:
    signals = tuple(Signal.from_array(np.zeros(100 + n % 2), id=f"<{n}>", rate_hz=10.0) for n in range(500))
    collection = Collection("many", signals, np.asarray(["a", "b"] * 250))
    assert repr(collection) == "Collection('many', 500 signals of 100 to 101 samples at 10 Hz, 1 channel, 2 classes)"
    html = collection._repr_html_()
    assert html.count("<svg") == ROWS_SHOWN
    assert "&lt;0&gt;" in html
    windows = WindowSet("many", signals, {"beat": np.asarray(["N"] * 500)})
    assert repr(windows) == "WindowSet('many', 500 signals of 100 to 101 samples at 10 Hz, 1 channel, targets: beat)"
    assert "<th>beat</th>" in windows._repr_html_()
    assert repr(WindowSet("none", (), {})) == "WindowSet('none', empty, targets: none)"


def test_the_digest_of_an_unknown_rate_is_that_of_earlier_versions() -> None:
    assert make().digest() == "e099068e7a07ed1cee4a51eb12f185c99e7de98e3441db7fa01fe8ceb19e58d3"


def test_no_signals_are_refused() -> None:
    with pytest.raises(SignalError, match="collection 'none': expected at least one signal, got none"):
        Collection("none", ())


@pytest.mark.parametrize("indices", [[2, 0], np.asarray([2, 0]), [-1, 0]])
def test_subset_keeps_the_given_order(indices: list[int]) -> None:
    part = make(["x", "y", "z"]).subset(indices)
    assert [signal.id for signal in part.signals] == ["c", "a"]
    assert part.labels is not None
    assert part.labels.tolist() == ["z", "x"]
    assert part.name == "three"


def test_subset_by_mask() -> None:
    part = make().subset(np.asarray([False, True, True]))
    assert [signal.id for signal in part.signals] == ["b", "c"]
    assert part.labels is None


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([3], "has 3 signals: index 3 is out of bounds"),
        ([True], "has 3 signals: boolean index did not match"),
        ([], "expected at least one signal, got none"),
        ([0, 0], "has id 'a' twice"),
    ],
)
def test_subset_that_cannot_be_is_refused(indices: list[int], message: str) -> None:
    with pytest.raises(SignalError, match=message):
        make().subset(indices)


def test_digest_is_the_same_for_the_same_content() -> None:
    odd_nan = np.asarray([0x7FC00001], dtype=np.uint32).view(np.float32)[0]  # NaN with other bits
    other = Signal.from_array(np.asarray([[1, 2], [odd_nan, 4]], dtype=np.float32), id="a")
    assert make().digest() == Collection("other name", (other, *make().signals[1:])).digest()


def test_digest_is_the_same_in_another_process() -> None:
    code = (
        "import numpy as np; from geopatch.data import Collection; from geopatch.signal import Signal;"
        "print(Collection('x', (Signal.from_array([1.0, np.nan]),), np.asarray(['y'])).digest())"
    )
    expected = Collection("x", (Signal.from_array([1.0, np.nan]),), np.asarray(["y"])).digest()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_digest_sees_every_change() -> None:
    first, *rest = make().signals
    changed = [
        make(),
        make(["x", "y", "z"]),
        make(["x", "y", "w"]),
        Collection("three", (replace(first, id="d"), *rest)),
        Collection("three", (replace(first, rate_hz=2.0), *rest)),
        Collection("three", (replace(first, values=first.values + 1), *rest)),
        Collection("three", (replace(first, values=first.values[:1]), *rest)),
        make().subset([1, 0, 2]),
    ]
    assert len({collection.digest() for collection in changed}) == len(changed)
