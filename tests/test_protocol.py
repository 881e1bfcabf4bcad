"""A protocol says which candidates count and which are right, and its digest says when that changes."""

from __future__ import annotations

import numpy as np
import pytest

from geopatch.errors import ConfigError
from geopatch.evaluate import protocol
from geopatch.evaluate.protocol import Protocol

IDS = ["a", "b", "ab"]


def test_candidates_are_all_but_the_query_itself() -> None:
    np.testing.assert_array_equal(Protocol().candidates(IDS, IDS), ~np.eye(3, dtype=bool))


def test_a_query_from_elsewhere_has_every_candidate() -> None:
    assert Protocol().candidates(["c"], IDS).all()


def test_candidates_of_a_part_of_the_queries() -> None:
    np.testing.assert_array_equal(Protocol().candidates(IDS[1:2], IDS), [[True, False, True]])


def test_right_is_who_has_the_label_of_the_query() -> None:
    found = Protocol().relevant(np.asarray(["x", "y"]), np.asarray(["x", "y", "x", "xy"]))
    np.testing.assert_array_equal(found, [[True, False, True, False], [False, True, False, False]])


def test_the_digest_is_the_same_for_the_same_protocol() -> None:
    assert Protocol().digest == Protocol("standard").digest


def test_the_digest_changes_with_the_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Protocol().digest
    monkeypatch.setitem(protocol.MEANING, "standard", "every candidate")
    assert Protocol().digest != before


def test_two_protocols_of_one_meaning_have_two_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(protocol.MEANING, "other", protocol.MEANING["standard"])
    assert Protocol("other").digest != Protocol().digest


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="protocol must be one of standard, got 'strict'"):
        Protocol("strict")
