"""Clocks: the rate that times were made with is found, jitter and holes are mended, uneven times are refused."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geopatch.errors import SignalError
from geopatch.timeline import even_clock, sessions
from geopatch.times import NO_DATE, Times, TimeTextError, datetime_times, numeric_times, text_times

NOON = datetime(2026, 11, 16, 12)
UTC_NOON = NOON.replace(tzinfo=timezone.utc)


def clock_of(seconds: np.ndarray) -> tuple[float, int]:
    clock = even_clock(Times(np.asarray(seconds, dtype=np.float64)), "recording 'a'")
    return clock.rate_hz, clock.samples


@given(
    st.sampled_from([0.1, 1, 4, 25, 31.25, 50, 64, 100, 128, 250, 256, 360, 500, 512, 1000, 2000]),
    st.integers(3, 5000),
    st.sampled_from([None, 6, 4]),
    st.floats(-1e5, 1e5),
)
def test_the_rate_of_even_times_is_found(rate_hz: float, samples: int, digits: int | None, start_s: float) -> None:
    seconds = start_s + np.arange(samples) / rate_hz
    seconds = seconds if digits is None else seconds.round(digits)
    rate, length = clock_of(seconds)
    assert length == samples
    assert rate == pytest.approx(rate_hz, rel=2e-4 if digits == 4 and samples < 100 else 1e-5, abs=0)


def test_times_with_few_digits_give_the_rate_and_are_not_regridded() -> None:
    for rate_hz, digits in ((360, 3), (700, 3), (50, 0), (128, 2)):
        seconds = (np.arange(6000) / rate_hz).round(digits)
        clock = even_clock(Times(seconds), "a")
        assert (clock.rate_hz, clock.samples, clock.seconds is None) == (rate_hz, 6000, True)


@given(st.integers(20, 400), st.data())
def test_holes_become_nan_and_the_rest_stays(samples: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(1, samples - 3))
    stop = data.draw(st.integers(start + 1, min(samples - 1, start + samples // 3)))
    kept = np.r_[0:start, stop:samples]
    values = np.arange(samples, dtype=np.float32)[:, None]
    clock = even_clock(Times(kept / 50), "a")
    regridded = clock.regrid(values[kept])
    expected = values.copy()
    expected[start:stop] = np.nan
    np.testing.assert_array_equal(regridded, expected)
    assert f"1 hole of {(stop - start) / 50:.4g} s, filled with NaN" in clock.notes


def test_small_jitter_is_regridded_by_straight_lines() -> None:
    draw = np.random.default_rng(0)
    seconds = np.arange(2000) / 50 + draw.uniform(-0.004, 0.004, 2000)
    clock = even_clock(Times(seconds), "a")
    slope = clock.regrid((seconds[:, None] * 7).astype(np.float32))  # a straight line stays one
    assert clock.rate_hz == 50
    np.testing.assert_allclose(np.diff(slope[1:-1, 0]), 7 / 50, atol=2e-4)
    assert any("regridded to 50 Hz by linear interpolation" in note for note in clock.notes)


def test_a_crystal_that_runs_fast_is_brought_to_its_round_rate() -> None:
    seconds = np.arange(30_000) / 50.004
    clock = even_clock(Times(seconds), "a")
    assert clock.rate_hz == 50
    assert clock.samples == int(seconds[-1] * 50) + 1
    line = clock.regrid((seconds[:, None]).astype(np.float32))
    np.testing.assert_allclose(line[:, 0], np.arange(clock.samples) / 50, atol=2e-3)


def test_rows_in_any_order_are_brought_into_that_of_time() -> None:
    places = np.random.default_rng(1).permutation(500)
    clock = even_clock(Times(places / 50), "a")
    np.testing.assert_array_equal(clock.regrid(places[:, None].astype(np.float32))[:, 0], np.arange(500))
    assert "rows are brought into the order of time" in clock.notes


@pytest.mark.parametrize(
    ("seconds", "figures"),
    [
        (np.cumsum(np.random.default_rng(0).exponential(size=500)), "% of them shorter than half of that"),
        (np.cumsum(2.0 ** np.arange(30)), "steps of 2 to 5.369e.08 s, in the median"),
        (np.r_[np.arange(50) / 50, 1e9], "100% of the samples would be holes"),
        (np.r_[0, 1e300, 2e300, 5e300], "steps of 1e.300"),
        (np.zeros(9), "expected rows at two or more different times, got 9 rows of one time"),
        (np.full(9, np.nan), "expected rows at two or more different times, got none"),
    ],
)
def test_an_uneven_clock_is_refused_with_its_figures(seconds: np.ndarray, figures: str) -> None:
    with pytest.raises(SignalError, match=figures):
        clock_of(seconds)


def test_a_hole_longer_than_all_that_was_measured_parts_two_sessions() -> None:
    seconds = np.r_[np.arange(600) / 50, 86400 + np.arange(300) / 50]
    assert [len(part) for part in sessions(Times(seconds))] == [600, 300]
    assert len(sessions(Times(np.r_[np.arange(600) / 50, 20 + np.arange(300) / 50]))) == 1
    assert len(sessions(Times(np.r_[np.arange(600) / 50, 1e6]))) == 1, "one row is no session"


@pytest.mark.parametrize(
    ("texts", "start", "source"),
    [
        (["2026-11-16T12:00:00", "2026-11-16T12:00:00.5"], NOON, "ISO times"),
        (["2026-11-16 12:00:00,0", "2026-11-16 12:00:00,5"], NOON, "ISO times"),
        (
            ["2026-11-16T12:00:00Z", "2026-11-16T12:00:00.5Z"],
            NOON.replace(tzinfo=timezone.utc),
            "ISO times with a zone",
        ),
        (
            ["2026-11-16T12:00:00+01:00", "2026-11-16T11:00:00.5+0000"],
            NOON.replace(tzinfo=timezone(timedelta(hours=1))),
            "ISO times with a zone",
        ),
        (["16.11.2026 12:00:00.0", "16.11.2026 12:00:00.5"], NOON, "ISO times"),
        (["11/16/2026 12:00:00.0", "11/16/2026 12:00:00.5"], NOON, "ISO times"),
        (["2026/11/16 12:00:00", "2026/11/16 12:00:00.5"], NOON, "ISO times"),
        (["12:00:00.0", "12:00:00.5"], NO_DATE.replace(hour=12), "times of day without a date"),
        (["00:00:00.0", "00:00:00.5"], None, "hours:minutes:seconds"),
    ],
)
def test_times_as_text(texts: list[str], start: datetime | None, source: str) -> None:
    times = text_times(texts)
    assert (times.seconds - times.seconds[0]).tolist() == [0, 0.5]
    assert (times.start_time, times.source) == (start, source)
    assert times.start_time is None or times.start_time.utcoffset() == (start or NOON).utcoffset()


def test_times_past_midnight_go_on() -> None:
    assert text_times(["23:59:59.5", "00:00:00.0", "00:00:00.5"]).seconds.tolist() == [0, 0.5, 1]


def test_what_is_no_time_is_named_with_its_row() -> None:
    for texts in (
        ["2026-11-16T12:00:00", "noon"],
        ["12:00:00", "x"],
        ["16.11.2026 12:00", "16.11.26"],
        ["2026-99-16T1"],
    ):
        with pytest.raises(TimeTextError) as caught:
            text_times(texts)
        assert caught.value.text == texts[caught.value.row]
    with pytest.raises(SignalError, match="may start with the day or the month"):
        text_times(["1/2/2026 12:00:00"])


@pytest.mark.parametrize(("unit", "scale"), [("s", 1), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)])
def test_epochs_by_their_size(unit: str, scale: float) -> None:
    first = NOON.replace(tzinfo=timezone.utc).timestamp()
    times = numeric_times(np.asarray([first, first + 0.5, np.nan, first + 1.0]) * scale, None)
    assert (times.start_time, times.source) == (NOON.replace(tzinfo=timezone.utc), f"epoch {unit}")
    np.testing.assert_allclose(times.seconds, [0, 0.5, np.nan, 1.0], atol=1e-6)


def test_dates_that_no_datetime_holds_have_no_start() -> None:
    times = datetime_times(np.asarray(["20000-01-01T00:00:00", "20000-01-01T00:00:01"], dtype="datetime64[us]"))
    assert times.start_time is None
    assert times.seconds.tolist() == [0, 1]
