"""What scorers prefer: by hand on a few numbers, and against obvious slow twins."""

from __future__ import annotations

import math

import naive
import numpy as np
import pytest

from geopatch.encoding import Encoding
from geopatch.errors import ConfigError, SignalError
from geopatch.evaluate.retrieval import EncodedSide
from geopatch.protocol import Places
from geopatch.scoring import SHARPNESS
from geopatch_lab.stability.finding import Finding
from geopatch_lab.stability.preference import (
    PREFERRING,
    best_scorers,
    dominance,
    preference,
    preference_findings,
    protocol_findings,
    queried,
    sides,
    token_scores,
)


def encoded(count: int = 9, seed: int = 0) -> EncodedSide:
    """Windows of three records, two seconds each with one second between starts, and two labels; some lack a token."""
    rng = np.random.default_rng(seed)

    def unit(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        drawn = rng.normal(size=shape)
        return np.asarray(drawn / np.linalg.norm(drawn, axis=-1, keepdims=True), dtype=np.float32)

    valid = np.ones((count, 4), dtype=bool)
    valid[::2, -1] = False
    tokens = unit(count, 4, 5) * valid[..., None]
    ids = tuple(f"w{n}" for n in range(count))
    encoding = Encoding(ids, unit(count, 6), tokens, valid, np.zeros((count, 4), dtype=np.int64))
    start_s = np.asarray(np.arange(count) // 3, dtype=np.float64)
    where = Places(
        np.asarray(ids),
        np.asarray([f"r{n % 3}" for n in range(count)]),
        start_s,
        np.asarray(start_s + 2, dtype=np.float64),
    )
    return EncodedSide(encoding, where, np.asarray([["N", "V"][n % 2] for n in range(count)]))


def test_preference_by_hand() -> None:
    scores = np.asarray([[9.0, 0.5, 0.4], [9.0, 0.2, 0.3], [9.0, 0.7, 0.7], [9.0, 0.1, 0.2]])
    own = np.asarray([[0, 1, 0]] * 4, dtype=bool)
    other = np.asarray([[0, 0, 1]] * 3 + [[0, 0, 0]], dtype=bool)
    found = preference(scores, own, other)
    assert found.rate == pytest.approx(1 / 3), "the first prefers its own, the second not, the third ties"
    assert found.tied == pytest.approx(1 / 3)
    assert (found.queries, found.left_out) == (3, 1)
    assert found.gap == pytest.approx((0.1 - 0.1 + 0.0) / 3)


def test_nothing_to_prefer_is_no_rate() -> None:
    none = np.zeros((2, 3), dtype=bool)
    found = preference(np.zeros((2, 3)), none, none)
    assert math.isnan(found.rate)
    assert (found.queries, found.left_out) == (0, 2)


@pytest.mark.parametrize("own", ["any", "apart"])
def test_sides_equal_their_twin(own: str) -> None:
    found = encoded()
    near, far = sides(found.where, found.where, found.labels, found.labels, own)
    where = found.where
    for q in range(9):
        for c in range(9):
            same = where.records[q] == where.records[c]
            overlap = where.start_s[c] < where.stop_s[q] and where.stop_s[c] > where.start_s[q]
            assert near[q, c] == (same and q != c and (own == "any" or not overlap))
            assert far[q, c] == (not same and found.labels[q] == found.labels[c])


def test_scores_of_all_pairs_equal_those_of_each_pair() -> None:
    found = encoded()
    scores = token_scores(found.encoding, found.encoding)
    assert set(scores) == set(PREFERRING)
    encoding = found.encoding
    for q in range(9):
        for c in range(9):
            kept = (encoding.tokens[q][encoding.valid[q]], encoding.tokens[c][encoding.valid[c]])
            everything = [np.ones(len(side), dtype=bool) for side in kept]
            similarity = kept[0] @ kept[1].T
            cosine, maxsim = float(encoding.embedding[q] @ encoding.embedding[c]), similarity.max(1).mean()
            expected = {
                "cosine": cosine,
                "maxsim": maxsim,
                "fused": cosine + (maxsim + similarity.max(0).mean()) / 2,
                "bridge": (np.log(np.exp(SHARPNESS * similarity).mean(1)) / SHARPNESS).mean(),
                "aligned": naive.aligned(kept[0], everything[0], kept[1], everything[1]),
                "strongest": similarity.max(),
            }
            expected["fused-aligned"] = cosine + expected["aligned"]
            assert {name: float(values[q, c]) for name, values in scores.items()} == pytest.approx(expected, abs=1e-5)


def test_dominance_by_hand() -> None:
    low, high = np.asarray([0.0, 0.2, 0.4]), np.asarray([0.6, 0.8, 1.0])
    assert dominance(high, low) == (0.0, 1.0)
    assert dominance(low, high) == (1.0, 0.0)
    assert dominance(low, low) == (0.0, 0.0)
    wide = np.asarray([0.0, 1.0])
    short, ahead = dominance(np.asarray([0.4, 0.6]), wide)
    assert (short, ahead) == (0.5, 0.5), "neither dominates the other"


def test_dominance_makes_the_mean_larger() -> None:
    """First-order dominance of M, and a score that rises with it, give the proposition's inequality of means."""
    rng = np.random.default_rng(0)
    own = np.sort(rng.uniform(size=200))
    other = own - rng.uniform(0, 0.3, size=200)
    assert dominance(own, other)[0] == 0
    for rising in (np.exp, np.tanh, lambda m: np.maximum(m, 0.5)):
        assert rising(own).mean() >= rising(other).mean()


def test_findings_of_every_scorer_and_protocol() -> None:
    found = encoded()
    preferred = preference_findings(found, found)
    assert sum(one.topic == "preference" for one in preferred) == 2 * len(PREFERRING)
    measured = protocol_findings(found, found)
    assert len(measured) == 5 * 6
    assert all(0 <= one.values["recall@1"] <= 1 for one in measured)
    assert set(best_scorers(measured)) == {str(one.setting["protocol"]) for one in measured}


def test_the_best_scorers_are_named_together_where_they_tie() -> None:
    def told(protocol: str, scorer: str, recall: float) -> Finding:
        return Finding("protocol", {"protocol": protocol, "scorer": scorer}, {"recall@1": recall}, 1)

    found = [told("standard", "cosine", 0.5), told("standard", "maxsim", 0.7), told("standard", "fused", 0.7)]
    found += [told("strict", "cosine", 0.6), told("strict", "maxsim", 0.1)]
    assert best_scorers(found) == {"standard": ("maxsim", "fused"), "strict": ("cosine",)}


def test_some_windows_as_queries() -> None:
    found, places = encoded(), np.asarray([7, 2])
    few = queried(found, places)
    assert few.encoding.ids == ("w7", "w2")
    every, some = (token_scores(one.encoding, found.encoding)["maxsim"] for one in (found, few))
    np.testing.assert_allclose(some, every[places], atol=1e-6)


def test_bad_input_is_refused() -> None:
    found = encoded()
    with pytest.raises(ConfigError, match="own must be one of"):
        sides(found.where, found.where, found.labels, found.labels, "far")
    with pytest.raises(SignalError, match="expected masks of shape"):
        preference(np.zeros((2, 3)), np.zeros((2, 2), dtype=bool), np.zeros((2, 3), dtype=bool))
    with pytest.raises(SignalError, match="both sides"):
        dominance(np.zeros(0), np.zeros(3))
