"""Laws of a signal and of every door to one: what comes in is kept, and what cannot be used is one clear line."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from geopatch.errors import MissingExtraError, SignalError
from geopatch.inputs import as_signals, frame_labels, from_frame
from geopatch.signal import Signal

Frame = Callable[[dict[str, list[Any]]], Any]


@pytest.fixture(params=[pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def frame(request: pytest.FixtureRequest) -> Frame:
    make: Frame = request.param
    return make


def same(signal: Signal, values: Any) -> bool:
    """Equal numbers in equal shape, NaN equal to NaN."""
    expected = np.asarray(values, dtype=np.float32)
    return signal.values.shape == expected.shape and bool(np.array_equal(signal.values, expected, equal_nan=True))


@pytest.mark.parametrize(("values", "shape"), [([1, 2, 3], (3, 1)), ([[1, 2]], (1, 2)), ([5.0], (1, 1))])
def test_values_have_time_and_channels(values: list[Any], shape: tuple[int, int]) -> None:
    signal = Signal.from_array(values)
    assert signal.values.shape == shape
    assert signal.values.dtype == np.float32
    assert (signal.length, signal.duration_s) == (shape[0], shape[0])


def test_nan_is_what_was_not_measured() -> None:
    signal = Signal.from_array([[1.0, np.nan], [np.nan, 4.0]])
    assert signal.observed.tolist() == [[True, False], [False, True]]


@pytest.mark.parametrize("values", [["1", "2.5"], np.asarray([1, 2.5], dtype=object), [True, False], [1, 2]])
def test_numbers_in_other_clothes_are_numbers(values: Any) -> None:
    assert same(Signal.from_array(values), np.asarray(values).astype(float)[:, None])


def test_a_signal_does_not_edit_its_input() -> None:
    values = np.asarray([1.0, np.nan, 3.0], dtype=np.float32)
    Signal.from_array(values).window(0, 2)
    assert np.array_equal(values, [1.0, np.nan, 3.0], equal_nan=True)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", "b"], "signal 'x': expected numbers, got could not convert string to float: .*; NaN marks"),
        ([1.0, None, {}], "signal 'x': expected numbers, got argument must be a string or a number"),
        ([1 + 2j], "signal 'x': expected real numbers, got complex"),
        (
            np.asarray(["2020-01-01"], dtype="M8[s]"),
            r"signal 'x': expected numbers, got datetime64\[s\]; a time column",
        ),
        ([0.0, np.inf], "signal 'x' contains inf at sample 1; .* use NaN"),
        ([0.0, 0.0, -np.inf], "signal 'x' contains inf at sample 2"),
        ([1.0, 1e300], "signal 'x' contains inf at sample 1"),
        ([np.nan, np.nan], "signal 'x' is all NaN; give at least one measured sample"),
        ([[1, 2], [3]], "signal 'x': expected .* got rows of unequal length"),
        ([], r"signal 'x': expected values \(T, C\) with T, C >= 1, got shape \(0, 1\)"),
        (np.zeros((3, 0)), r"got shape \(3, 0\)"),
        (np.zeros((2, 2, 2)), r"got shape \(2, 2, 2\)"),
        (5.0, r"expected values \(T, C\)"),
    ],
)
def test_values_that_cannot_be_used_are_refused(values: Any, message: str) -> None:
    with pytest.raises(SignalError, match=message):
        Signal.from_array(values, id="x")


@pytest.mark.parametrize("rate_hz", [0.0, -1.0, float("nan")])
def test_rate_must_be_positive(rate_hz: float) -> None:
    with pytest.raises(SignalError, match="signal 'x': expected rate_hz > 0, got"):
        Signal.from_array([1.0], id="x", rate_hz=rate_hz)


def test_channel_names_must_be_as_many_as_channels() -> None:
    assert Signal.from_array([[1, 2]], channels=["a", "b"]).channels == ("a", "b")
    with pytest.raises(SignalError, match="signal '0' has 2 channels but 1 channel names"):
        Signal.from_array([[1, 2]], channels=["a"])


def test_a_window_knows_its_record_and_start() -> None:
    signal = Signal.from_array(np.arange(10), id="r", rate_hz=4.0, channels=["lead"])
    window = signal.window(2, 6)
    assert same(window, [[2], [3], [4], [5]])
    assert (window.record, window.start_s, window.id) == ("r", 0.5, "r@0.5s")
    assert (window.rate_hz, window.channels, window.duration_s) == (4.0, ("lead",), 1.0)
    assert window.observed.shape == (4, 1)


def test_a_window_of_a_window_counts_from_the_record() -> None:
    inner = Signal.from_array(np.arange(10), id="r", rate_hz=2.0).window(2, 8).window(3, 4)
    assert (inner.record, inner.start_s, inner.values.item()) == ("r", 2.5, 5.0)


def test_windows_of_a_long_record_have_ids_of_their_own() -> None:
    signal = Signal.from_array(np.zeros(2_000_003), id="r", rate_hz=128.0)
    starts = range(2_000_000, 2_000_003)
    assert len({signal.window(start, start + 1).id for start in starts}) == len(starts)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (2, 2), (3, 2), (0, 11), (10, 11)])
def test_a_window_outside_the_signal_is_refused(start: int, stop: int) -> None:
    with pytest.raises(SignalError, match=f"signal 'r' has 10 samples, not the span {start}..{stop}"):
        Signal.from_array(np.arange(10), id="r").window(start, stop)


def test_a_window_without_measurements_is_refused() -> None:
    with pytest.raises(SignalError, match="signal 'r@0s' is all NaN"):
        Signal.from_array([np.nan, np.nan, 1.0], id="r").window(0, 2)


@pytest.mark.parametrize("rate_hz", [50.0, 200.0, 128.0, 100.0])
def test_resampling_keeps_the_shape_of_a_slow_wave(rate_hz: float) -> None:
    time = np.arange(400) / 100
    signal = Signal.from_array(np.sin(2 * np.pi * time), rate_hz=100.0).resampled(rate_hz)
    assert signal.rate_hz == rate_hz
    assert signal.duration_s == pytest.approx(4.0, abs=1 / rate_hz)
    inner = slice(signal.length // 8, -signal.length // 8)
    expected = np.sin(2 * np.pi * np.arange(signal.length) / rate_hz)
    np.testing.assert_allclose(signal.values[inner, 0], expected[inner], atol=0.01)


def test_resampling_leaves_gaps_where_they_were() -> None:
    values = np.ones((100, 2))
    values[40:60, 0] = np.nan
    signal = Signal.from_array(values, rate_hz=10.0).resampled(20.0)
    assert signal.observed[:, 1].all()
    assert np.flatnonzero(~signal.observed[:, 0]).tolist() == list(range(80, 120))
    np.testing.assert_allclose(signal.values[signal.observed], 1.0, atol=1e-3)


def test_resampling_keeps_an_unmeasured_channel_unmeasured() -> None:
    values = np.stack([np.ones(20), np.full(20, np.nan)], axis=1)
    signal = Signal.from_array(values, rate_hz=10.0).resampled(5.0)
    assert signal.observed.tolist() == [[True, False]] * 10


def test_resampling_to_no_rate_is_refused() -> None:
    with pytest.raises(SignalError, match=r"signal 'x': can resample 0\.001 Hz and more, not 1\.0 to 0"):
        Signal.from_array([1.0, 2.0], id="x", rate_hz=1.0).resampled(0)
    with pytest.raises(SignalError, match="signal 'x' has no rate to be resampled from; give it its rate_hz"):
        Signal.from_array([1.0, 2.0], id="x").resampled(10)


def test_resampling_does_not_drift_over_a_long_signal() -> None:
    assert Signal.from_array(np.zeros(441_000), rate_hz=44_100).resampled(128).length == 1280
    assert Signal.from_array(np.zeros(20_000), rate_hz=5_000).resampled(1).length == 4


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_a_missing_label_is_refused(frame: Callable[[Any], Any]) -> None:
    with pytest.raises(SignalError, match="row 2: column 'label' is empty; give every row its label"):
        frame_labels(frame({"x": [1.0, 2.0], "label": ["a", None]}))


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 2), (1, 1), (2, 1, 1)])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, np.ndarray.tolist], ids=["numpy", "torch", "lists"])
def test_arrays_of_windows(shape: tuple[int, ...], kind: Callable[[npt.NDArray[Any]], Any]) -> None:
    stack = np.random.default_rng(0).normal(size=shape)
    signals = as_signals(kind(stack))
    assert [signal.id for signal in signals] == [str(n) for n in range(shape[0])]
    assert all(same(signal, row.reshape(shape[1], -1)) for signal, row in zip(signals, stack, strict=True))


def test_lists_of_unequal_lengths() -> None:
    rows: list[Any] = [[1.0], [1.0, np.nan, 3.0], np.asarray([[4.0], [5.0]])]
    signals = as_signals(rows)
    assert [signal.length for signal in signals] == [1, 3, 2]
    assert all(same(signal, np.reshape(row, (-1, 1))) for signal, row in zip(signals, rows, strict=True))


def test_signals_pass_as_they_are() -> None:
    one, other = Signal.from_array([1.0], id="a"), Signal.from_array([2.0], id="b")
    assert as_signals(one) == [one]
    assert as_signals(iter((one, other))) == [one, other]
    mixed = as_signals([one, [3.0, 4.0]])
    assert mixed[0] is one
    assert (mixed[1].id, mixed[1].length) == ("1", 2)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (None, "expected an array, a list of arrays, a frame or signals, got NoneType"),
        ("text", "expected an array, .* got str"),
        (3, "expected an array, .* got int"),
        ([], "expected at least one signal, got none"),
        (iter(()), "expected at least one signal, got none"),
        ([1.0, 2.0], r"expected an array \(N, T\) or \(N, T, C\), got 1D with shape \(2,\)"),
        (np.zeros(3), r"got 1D with shape \(3,\)"),
        (np.zeros((1, 2, 3, 4)), r"got 4D with shape \(1, 2, 3, 4\)"),
        (np.zeros((0, 3)), r"expected at least one signal of one sample, .* \(shape=\(0, 3\)\)"),
        (np.zeros((3, 0)), r"\(shape=\(3, 0\)\)"),
        ([[1.0, 2.0], ["a", "b"]], "signal '1': expected numbers"),
        ([[1.0, 2.0], [np.nan]], "signal '1' is all NaN"),
        ([[1.0], [[1, 2], [3]]], "signal '1': expected .* got rows of unequal length"),
        ([[1.0], 2.0], r"signal '1': expected values \(T, C\)"),
        ({"a": [1.0]}, r"expected an array \(N, T\)"),
    ],
)
def test_what_holds_no_signals_is_refused(X: Any, message: str) -> None:
    with pytest.raises(SignalError, match=message):
        as_signals(X)


LONG: dict[str, list[Any]] = {
    "id": [10, 2, 10, 2, 2],
    "time": [1.0, 2.0, 0.0, 0.0, 1.0],
    "x": [11.0, 22.0, 10.0, 20.0, 21.0],
    "y": [1.0, None, 1.0, 3.0, 3.0],
    "label": ["b", "a", "b", "a", "a"],
}


def test_long_frames_group_by_id_and_order_by_time(frame: Frame) -> None:
    signals = from_frame(frame(LONG), rate_hz=5.0)
    assert [signal.id for signal in signals] == ["10", "2"], "in the order in which they first appear"
    assert same(signals[0], [[10, 1], [11, 1]])
    assert same(signals[1], [[20, 3], [21, 3], [22, np.nan]])
    assert all(signal.channels == ("x", "y") and signal.rate_hz == 5.0 for signal in signals)


def test_long_frames_without_time_keep_the_order_of_rows(frame: Frame) -> None:
    signals = from_frame(frame({name: LONG[name] for name in ("id", "x")}))
    assert [signal.values.ravel().tolist() for signal in signals] == [[11, 10], [22, 20, 21]]


def test_wide_frames_have_a_signal_in_each_row(frame: Frame) -> None:
    table = frame({"t0": [1.0, 2.0], "t1": [3.0, None], "label": ["b", "a"]})
    signals = as_signals(table)
    assert [signal.id for signal in signals] == ["0", "1"]
    assert same(signals[0], [[1], [3]])
    assert same(signals[1], [[2], [np.nan]])
    labels = frame_labels(table)
    assert labels is not None
    assert labels.tolist() == ["b", "a"]


def test_labels_stand_in_the_order_of_signals(frame: Frame) -> None:
    labels = frame_labels(frame(LONG))
    assert labels is not None
    assert labels.tolist() == ["b", "a"]


@pytest.mark.parametrize("ids", [["b", "a", "10", "9"], ["²", "2", "①", "1"], [2.5, 10.0, 1.0, 0.5]])
def test_signals_and_labels_agree_whatever_the_ids(frame: Frame, ids: list[Any]) -> None:
    table = frame({"id": ids, "x": [0.0, 1.0, 2.0, 3.0], "label": ["0", "1", "2", "3"]})
    labels = frame_labels(table)
    assert labels is not None
    assert [str(int(signal.values.item())) for signal in from_frame(table)] == labels.tolist() == ["0", "1", "2", "3"]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_ids_keep_their_order_of_appearance_and_rows_that_of_time(numbers: list[int], draw: random.Random) -> None:
    rows = [(id, numbers[:n].count(id)) for n, id in enumerate(numbers)]
    draw.shuffle(rows)
    ids, times = [f"s{id}" for id, _ in rows], [time for _, time in rows]
    for make in (pd.DataFrame, pl.DataFrame):
        signals = from_frame(make({"id": ids, "time": times, "x": [float(n) for n in range(len(rows))]}))
        assert [signal.id for signal in signals] == list(dict.fromkeys(ids))
        for signal in signals:
            places = [n for n in range(len(rows)) if ids[n] == signal.id]
            assert signal.values.ravel().tolist() == sorted(places, key=lambda n: times[n])


def test_rows_without_id_are_refused_and_those_without_time_left_out(frame: Frame) -> None:
    with pytest.raises(SignalError, match="row 2: column 'id' is empty; give every row its id"):
        from_frame(frame({"id": ["a", None], "x": [1.0, 2.0]}))
    signals = from_frame(frame({"time": [0.0, 0.5, None, 1.0], "x": [1.0, 2.0, 3.0, 4.0]}))
    assert [signal.values.ravel().tolist() for signal in signals] == [[1, 2, 4]]
    with pytest.raises(SignalError, match="recording '0': expected rows at two or more different times, got 2 rows of"):
        from_frame(frame({"time": [5.5, 5.5], "x": [1.0, 2.0]}))


@pytest.mark.parametrize("columns", [("id", "x"), ("t0", "t1")])
def test_frames_without_labels_have_none(frame: Frame, columns: tuple[str, ...]) -> None:
    assert frame_labels(frame({name: [1, 2] for name in columns})) is None


def test_two_labels_for_one_id_are_refused(frame: Frame) -> None:
    with pytest.raises(SignalError, match="signal '2' has two labels, 'a' and 'c'; give it one"):
        frame_labels(frame({**LONG, "label": ["b", "a", "b", "c", "a"]}))


@pytest.mark.parametrize("columns", [("id", "x"), ("t0", "t1")])
def test_frames_without_rows_are_refused(frame: Frame, columns: tuple[str, ...]) -> None:
    with pytest.raises(SignalError, match="expected at least one signal"):
        as_signals(frame({name: [] for name in columns}))


def test_text_in_a_frame_is_refused(frame: Frame) -> None:
    with pytest.raises(SignalError, match="expected numbers in every column of the frame, but column 'note'"):
        as_signals(frame({"id": [1, 1], "x": [1.0, 2.0], "note": ["calm", "loud"]}))


def test_a_frame_without_channels_is_refused(frame: Frame) -> None:
    with pytest.raises(SignalError, match="no column of numbers is left to be a channel: the table has id"):
        as_signals(frame({"id": [1, 2]}))


def test_frames_need_narwhals(frame: Frame, monkeypatch: pytest.MonkeyPatch) -> None:
    table = frame(LONG)
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with pytest.raises(MissingExtraError, match=r"frame needs narwhals, .*; pip install 'geopatch-ts\[frames\]'"):
        as_signals(table)


def test_a_pandas_frame_with_numbered_columns_is_wide() -> None:
    frame = pd.DataFrame(np.arange(6.0).reshape(2, 3))
    frame["label"] = ["a", "b"]
    np.testing.assert_array_equal([signal.values[:, 0] for signal in as_signals(frame)], [[0, 1, 2], [3, 4, 5]])
    assert frame_labels(frame).tolist() == ["a", "b"]  # type: ignore[union-attr]


def test_anchors_move_with_the_signal() -> None:
    signal = Signal.from_array(np.zeros(100), rate_hz=10.0, anchors=np.array([40.0, 5.0, 40.0, 80.0, 97.0]))
    assert signal.anchors is not None
    assert signal.anchors.tolist() == [5, 40, 80, 97]
    halved = signal.resampled(5.0)
    assert halved.anchors is not None
    assert halved.anchors.tolist() == [2.5, 20, 40, 48.5]
    window = signal.window(30, 60)
    assert window.anchors is not None
    assert window.anchors.tolist() == [-25, 10, 50, 67], "the one inside and those of its surroundings"
    narrow = signal.window(30, 60, surroundings=1)
    assert narrow.anchors is not None
    assert narrow.anchors.tolist() == [-25, 10, 50], "the one inside and one on either side"


def test_an_anchor_that_is_no_number_is_refused() -> None:
    with pytest.raises(SignalError, match="anchor that is no finite number"):
        Signal.from_array(np.zeros(9), anchors=np.array([1.0, np.nan]))


MARKED = Signal(
    np.arange(400.0).reshape(200, 2), "m", 10.0, ("a", "b"), start_s=3.0, anchors=np.asarray([5.0, 40.0, 90.0, 160.0])
)


def times_s(signal: Signal) -> list[float]:
    """When the marks of a window lie in its record."""
    assert signal.anchors is not None
    return [round(float(mark), 6) for mark in signal.start_s + signal.anchors / signal.clock_hz]


@given(st.integers(0, 198), st.data())
def test_marks_stay_where_they_are_in_time(start: int, data: st.DataObject) -> None:
    stop = data.draw(st.integers(start + 1, 200))
    window = MARKED.window(start, stop)
    inside = [mark for mark in times_s(MARKED) if window.start_s <= mark < window.start_s + window.duration_s]
    assert set(inside) <= set(times_s(window)) <= set(times_s(MARKED))
    for rate_hz in (5.0, 10.0, 25.0):
        assert times_s(window.at_rate(rate_hz)) == times_s(window)
    assert times_s(window.arranged(("b", "a"))) == times_s(window)
    shift = data.draw(st.integers(0, window.length - 1))
    within = window.window(shift, window.length)
    assert times_s(within) == times_s(MARKED.window(start + shift, stop)), "a window of a window is a window"


def test_a_signal_without_a_rate_takes_one_with_its_marks_and_start() -> None:
    plain = Signal.from_array(np.zeros(100), anchors=np.asarray([10.0, 60.0]))
    for rate_hz in (1.0, 50.0):
        early, late = plain.at_rate(rate_hz).window(20, 80), plain.window(20, 80).at_rate(rate_hz)
        assert (early.rate_hz, early.start_s, times_s(early)) == (late.rate_hz, late.start_s, times_s(late))


def test_real_one_hertz_is_a_rate_like_any_other() -> None:
    slow, unknown = Signal.from_array(np.zeros(10), rate_hz=1.0), Signal.from_array(np.zeros(10))
    assert slow.at_rate(2.0).length == 20, "ten seconds at 2 Hz"
    assert unknown.at_rate(2.0).length == 10, "samples that are taken to be at 2 Hz"
    assert (slow.at_rate(None).rate_hz, unknown.at_rate(None).rate_hz) == (1.0, None)
    assert slow.resampled(2.0).duration_s == slow.duration_s


def test_channels_are_arranged_by_name() -> None:
    signal = Signal.from_array([[1.0, 2.0, 3.0]], id="x", channels=("a", "b", "c"))
    assert signal.arranged(("c", "a")).values.tolist() == [[3, 1]]
    assert signal.arranged(("c", "a")).channels == ("c", "a")
    assert signal.arranged(()) is signal
    assert Signal.from_array([1.0]).arranged(("c",)).channels == ()
    with pytest.raises(SignalError, match="signal 'x' has the channels a, b, c; expected a, d: rename"):
        signal.arranged(("a", "d"))
    with pytest.raises(SignalError, match="signal 'y' has the channels a, a; expected a, b"):
        Signal.from_array([[1.0, 2.0]], id="y", channels=("a", "a")).arranged(("a", "b"))


def test_a_signal_is_one_line_and_a_row_of_a_notebook() -> None:
    signal = Signal.from_array(np.zeros((500, 40)), id="<a>", rate_hz=100, channels=[f"mel {n}" for n in range(40)])
    assert repr(signal) == "Signal('<a>', 500 samples at 100 Hz, 40 channels (mel 0, mel 1, mel 2, mel 3, ...))"
    assert repr(Signal.from_array([1.0])) == "Signal('0', 1 samples, 1 channel)"
    html = signal._repr_html_()
    assert "&lt;a&gt;" in html
    assert "<svg" in html
    assert len(html) < 5000
