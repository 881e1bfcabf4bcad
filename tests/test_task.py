"""Which target and protocol make sense together, and how windows of records are thinned."""

from __future__ import annotations

import numpy as np
import pytest

from geopatch.data.collection import WindowSet
from geopatch.errors import ConfigError
from geopatch.evaluate.task import check_sense, task, thinned
from geopatch.protocol import MEANING, Protocol
from geopatch.signal import Signal


def windows(records: str = "aaabbb", labels: str = "xyxxyy", step_s: float = 1.0) -> WindowSet:
    """One window of 2 s for each letter, of the record that the letter names."""
    signals, seen = [], dict.fromkeys(records, 0)
    for n, record in enumerate(records):
        start_s = seen[record] * step_s
        seen[record] += 1
        signals.append(Signal(np.full((8, 1), float(n)), id=str(n), rate_hz=4.0, record=record, start_s=start_s))
    return WindowSet("toy", tuple(signals), {"subject": np.asarray(list(records)), "beat": np.asarray(list(labels))})


@pytest.mark.parametrize("protocol", MEANING)
def test_beats_of_several_records_make_sense(protocol: str) -> None:
    check_sense(windows("aaaabbbb", "xyxyxyxy").collection("beat"), "beat", Protocol(protocol))


@pytest.mark.parametrize("protocol", ["strict-cross-record", "penalised-cross-record"])
def test_a_subject_of_one_record_has_no_positive_in_others(protocol: str) -> None:
    with pytest.raises(ConfigError, match=f"'subject' under {protocol} makes no sense on toy: every right"):
        check_sense(windows().collection("subject"), "subject", Protocol(protocol))


def test_a_subject_of_two_records_has() -> None:
    both = WindowSet("toy", windows().signals, {"subject": np.asarray(["one patient"] * 6)})
    check_sense(both.collection("subject"), "subject", Protocol("strict-cross-record"))


def test_windows_that_all_overlap_have_no_positive() -> None:
    with pytest.raises(ConfigError, match=r"overlaps the query and is removed"):
        check_sense(windows("aabb").collection("subject"), "subject", Protocol("strict-nonoverlap"))
    check_sense(windows("aabb", step_s=2.0).collection("subject"), "subject", Protocol("strict-nonoverlap"))


@pytest.mark.parametrize("protocol", [name for name in MEANING if name != "standard"])
def test_windows_that_are_records_of_their_own_need_no_strict_protocol(protocol: str) -> None:
    alone = windows("abcdef").collection("beat")
    check_sense(alone, "beat", Protocol())
    with pytest.raises(ConfigError, match="each of its windows is a record of its own"):
        check_sense(alone, "beat", Protocol(protocol))


def test_thinned_keeps_as_many_of_each_record_evenly_spread() -> None:
    found = thinned(windows("a" * 9 + "bb", "xyxyxyxyxyx"), 3)
    assert [signal.id for signal in found.signals] == ["0", "4", "8", "9", "10"]
    assert found.targets["beat"].tolist() == list("xxxyx")
    everything = windows()
    assert thinned(everything, 0) is everything


def test_a_task_of_a_set_without_a_train_side() -> None:
    found = task(None, windows(), "beat")
    assert found.train is None
    assert found.test.labels is not None
    assert found.test.labels.tolist() == list("xyxxyy")
    with pytest.raises(ConfigError, match="target must be one of subject, beat"):
        task(windows(), windows(), "rhythm")
