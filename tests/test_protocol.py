"""A protocol says which candidates count and which are right, and its digest says when that changes."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geopatch.errors import ConfigError
from geopatch.protocol import MEANING, Places, Protocol, places
from geopatch.signal import Signal

RECORDING = Signal.from_array(np.arange(100.0), id="r", rate_hz=10.0)
OTHER = Signal.from_array(np.arange(100.0), id="s", rate_hz=10.0)
WINDOWS = [RECORDING.window(0, 20), RECORDING.window(10, 30), RECORDING.window(20, 40), OTHER.window(0, 20)]
WHERE = places(WINDOWS)
LABELS = np.asarray(["x", "x", "x", "x"])


def candidates_of_the_first(name: str, guard_s: float = 0.0) -> list[bool]:
    found: list[bool] = Protocol(name, guard_s).candidates(WHERE, WHERE)[0].tolist()
    return found


def right_for_the_first(name: str) -> list[bool]:
    found: list[bool] = Protocol(name).relevant(WHERE, WHERE, LABELS, LABELS)[0].tolist()
    return found


def test_standard_leaves_out_the_query_itself_alone() -> None:
    np.testing.assert_array_equal(Protocol().candidates(WHERE, WHERE), ~np.eye(4, dtype=bool))
    assert Protocol().relevant(WHERE, WHERE, LABELS, LABELS).all()


def test_strict_removes_what_overlaps_or_shares_the_record() -> None:
    assert candidates_of_the_first("strict-nonoverlap") == [False, False, True, True]  # touching is not overlapping
    assert candidates_of_the_first("strict-nonoverlap", guard_s=0.5) == [False, False, False, True]
    assert candidates_of_the_first("strict-cross-record") == [False, False, False, True]
    assert right_for_the_first("strict-cross-record") == [True] * 4


def test_penalised_keeps_them_in_the_ranking_as_wrong() -> None:
    assert candidates_of_the_first("penalised-nonoverlap") == [False, True, True, True]
    assert right_for_the_first("penalised-nonoverlap") == [False, False, True, True]
    assert candidates_of_the_first("penalised-cross-record") == [False, True, True, True]
    assert right_for_the_first("penalised-cross-record") == [False, False, False, True]


def test_a_window_without_a_record_is_a_record_of_its_own() -> None:
    where = places([Signal.from_array([1.0], id="a"), Signal.from_array([2.0], id="b")])
    assert Protocol("strict-cross-record").candidates(where, where)[0].tolist() == [False, True]


def test_labels_decide_what_is_right() -> None:
    labels = np.asarray(["x", "y", "x", "xy"])
    assert Protocol().relevant(WHERE, WHERE, labels, labels)[0].tolist() == [True, False, True, False]


@given(
    st.lists(st.tuples(st.sampled_from("rs"), st.integers(0, 8), st.integers(1, 4)), min_size=1, max_size=8),
    st.sampled_from(tuple(MEANING)),
    st.sampled_from([0.0, 1.0, 2.5]),
)
def test_masks_equal_their_naive_twin(spans: list[tuple[str, int, int]], name: str, guard_s: float) -> None:
    ids = [str(n) for n in range(len(spans))]
    records, starts, lengths = zip(*spans, strict=True)
    stops = [start + length for start, length in zip(starts, lengths, strict=True)]
    where = Places(np.asarray(ids), np.asarray(records), np.asarray(starts, float), np.asarray(stops, float))
    labels = np.asarray([str(start % 2) for start in starts])
    rule = Protocol(name, guard_s)
    for query in range(len(ids)):
        for entry in range(len(ids)):
            expected = naive.protocol(name, guard_s, where, labels, query, entry)
            found = (rule.candidates(where, where), rule.relevant(where, where, labels, labels))
            assert (bool(found[0][query, entry]), bool(found[1][query, entry])) == expected


def test_digests_differ_between_protocols_and_guard_gaps() -> None:
    digests = {Protocol(name, guard_s).digest for name in MEANING for guard_s in (0.0, 1.0)}
    assert len(digests) == 2 * len(MEANING)
    assert Protocol().digest == Protocol("standard", 0).digest


def test_the_digest_changes_with_the_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Protocol().digest
    monkeypatch.setitem(MEANING, "standard", "every candidate")
    assert Protocol().digest != before


def test_what_is_no_protocol_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"protocol must be one of standard, strict-nonoverlap.*got 'strict'"):
        Protocol("strict")
    with pytest.raises(ConfigError, match="guard_s must be at least 0, got -1"):
        Protocol(guard_s=-1)
