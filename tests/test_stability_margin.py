"""The margin theorem on embeddings: what is certified never leaves."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from geopatch.errors import ConfigError, SignalError
from geopatch.search.certificate import cosine_certificate
from geopatch_lab.stability.margin import kept_against, kept_by_chance, margin_findings, margins

Vectors = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def embeddings(count: int = 60, width: int = 8, classes: int = 4, seed: int = 0) -> tuple[Vectors, Mask, Mask]:
    """Unit vectors round the centres of their classes; all but the query itself are candidates."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    vectors = rng.normal(size=(classes, width))[labels] + 0.6 * rng.normal(size=(count, width))
    return (
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True),
        ~np.eye(count, dtype=bool),
        labels[:, None] == labels[None],
    )


def angled(*degrees: float) -> Vectors:
    turns = np.radians(degrees)
    return np.stack([np.cos(turns), np.sin(turns)], axis=1)


@pytest.mark.parametrize("R", [1, 3])
def test_margins_equal_their_twin(R: int) -> None:
    vectors, candidate, relevant = embeddings()
    found = margins(vectors, candidate, relevant, R)
    assert found.queries == len(vectors)
    expected = {}
    for query in range(len(vectors)):
        ranked = sorted((n for n in range(len(vectors)) if n != query), key=lambda n: -vectors[query] @ vectors[n])
        inside = [n for n in ranked[:R] if relevant[query, n]]
        if inside:
            expected[query] = (inside[0], ranked[R])
    assert {q: (a, b) for q, a, b in zip(found.query, found.right, found.rival, strict=True)} == expected
    for place, query in enumerate(found.query):
        near, far = (float(vectors[query] @ vectors[n]) for n in expected[query])
        assert found.margin[place] == pytest.approx(near - far)
        assert found.radius[place] == pytest.approx(cosine_certificate(near, far, R, "").radius or 0.0)


def test_by_hand() -> None:
    """A right candidate at 10 degrees, a wrong one at 50: sure up to sin(10 degrees), and not beyond."""
    vectors = angled(0, 10, -50)
    right = np.zeros((3, 3), dtype=bool)
    right[0, 1] = True
    candidate = ~np.eye(3, dtype=bool)
    found = margins(vectors, candidate, right, 1)
    assert (found.query.tolist(), found.right.tolist(), found.rival.tolist(), found.queries) == ([0], [1], [2], 1)
    assert found.radius[0] == pytest.approx(np.sin(np.radians(10)), abs=1e-4)
    assert kept_against(vectors, candidate, found, 0.99 * float(found.radius[0])).tolist() == [True]
    assert kept_against(vectors, candidate, found, 1.01 * float(found.radius[0])).tolist() == [False]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("R", [1, 3, 10])
def test_who_is_certified_never_leaves(R: int, seed: int) -> None:
    vectors, candidate, relevant = embeddings(seed=seed)
    found = margins(vectors, candidate, relevant, R)
    assert (found.product_radius <= found.radius).all()
    for length in (0.0, 0.01, 0.03, 0.1, 0.3):
        sure = found.radius > length
        assert kept_against(vectors, candidate, found, length)[sure].all()
        assert kept_by_chance(vectors, candidate, found, length)[sure].all()
    assert not kept_against(vectors, candidate, found, 0.9).all()


def test_findings_fall_with_drift_and_stand_in_order() -> None:
    vectors, candidate, relevant = embeddings()
    found = margin_findings(vectors, candidate, relevant, 3, (0.0, 0.01, 0.05, 0.2), "standard")
    for name in ("certified", "certified_product", "kept_against", "kept_random"):
        column = [one.values[name] for one in found]
        assert column == sorted(column, reverse=True) or name == "kept_random"
    for one in found:
        values = one.values
        assert values["certified_product"] <= values["certified"] <= values["kept_against"] <= values["kept_random"]
        assert values["certified_flips"] == 0
    assert found[0].values["kept_random"] == found[0].values["recall"]


def test_a_candidate_that_does_not_count_changes_nothing() -> None:
    vectors, candidate, relevant = embeddings(20)
    more = np.concatenate([vectors, vectors])  # a copy of each, which may not be found
    wide = np.zeros((40, 40), dtype=bool)
    wide[:20, :20] = candidate
    right = np.tile(relevant, (2, 2))
    plain, with_copies = margins(vectors, candidate, relevant, 2), margins(more, wide, right, 2)
    assert with_copies.query.tolist() == plain.query.tolist()
    np.testing.assert_allclose(with_copies.margin, plain.margin)


def test_what_has_no_margin_is_refused() -> None:
    vectors, candidate, relevant = embeddings(4)
    with pytest.raises(SignalError, match="more than 3 candidates"):
        margins(vectors, candidate, relevant, 3)
    with pytest.raises(ConfigError, match="R must be"):
        margins(vectors, candidate, relevant, 0)
    with pytest.raises(SignalError, match="no query has a right candidate"):
        margin_findings(vectors, candidate, np.zeros_like(relevant), 1)
    more = embeddings()
    with pytest.raises(ConfigError, match="drift must be"):
        kept_against(more[0], more[1], margins(*more, 1), 1.0)
