"""A hit explains itself: its matches add up to its token score, and the figure draws them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive_search import ABOUT, entries_of

from geopatch import plot
from geopatch.engines import Entries
from geopatch.errors import GalleryError
from geopatch.gallery import Gallery
from geopatch.plot.alignment import PATH_BANDS
from geopatch.plot.canvas import pyplot
from geopatch.scoring import SHARPNESS
from geopatch.search import Hit
from geopatch.search.explain import Explanation, Tokens, explain_tokens
from geopatch.search.hit import Evidence
from geopatch.signal import Signal

FAST = ("cosine", "maxsim", "fused", "bridge", "aligned", "fused-aligned")


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gallery]:
    with Gallery.create(f"exact:{tmp_path_factory.mktemp('explain') / 'gallery'}", ABOUT) as made:
        made.add(entries_of(20))
        yield made


def tokens_of(entries: Entries, n: int) -> Tokens:
    return Tokens(entries.tokens[n], entries.valid[n], entries.patch_s[n])


def twin(scorer: str, entries: Entries, query: int, n: int) -> float:
    parts = tuple(part[at] for at in (query, n) for part in (entries.tokens.astype(np.float64), entries.valid))
    if scorer == "bridge":
        return naive.bridge(parts[0], parts[1], parts[2], parts[3], SHARPNESS)
    if scorer in ("aligned", "fused-aligned"):
        return naive.aligned(parts[0], parts[1], parts[2], parts[3])
    score = naive.symmetric_maxsim if scorer == "fused" else naive.maxsim
    return score(parts[0], parts[1], parts[2], parts[3])


@given(seed=st.integers(0, 500), scorer=st.sampled_from(FAST))
def test_matches_add_up_to_the_token_score(seed: int, scorer: str) -> None:
    entries = entries_of(2, seed)
    token_score, matches = explain_tokens(scorer, tokens_of(entries, 0), tokens_of(entries, 1))
    assert token_score == pytest.approx(twin(scorer, entries, 0, 1), abs=1e-5)
    assert sum(abs(match.weight) for match in matches) == pytest.approx(1)
    assert len({(match.query_patch, match.hit_patch) for match in matches}) == len(matches)
    assert {match.query_patch for match in matches} == set(np.flatnonzero(entries.valid[0]).tolist())
    for match in matches:
        assert entries.valid[1][match.hit_patch]
        own = float(entries.tokens[0][match.query_patch] @ entries.tokens[1][match.hit_patch])
        assert match.similarity == pytest.approx(own, abs=1e-6)
        assert match.query_s == tuple(entries.patch_s[0][match.query_patch].tolist())
        assert match.hit_s == tuple(entries.patch_s[1][match.hit_patch].tolist())


def test_every_query_patch_meets_its_best() -> None:
    entries = entries_of(2, 3)
    similarity = np.where(entries.valid[1], entries.tokens[0] @ entries.tokens[1].T, -np.inf)
    for match in explain_tokens("maxsim", tokens_of(entries, 0), tokens_of(entries, 1))[1]:
        assert match.hit_patch == similarity[match.query_patch].argmax()


def test_fused_explains_both_directions() -> None:
    entries = entries_of(2, 3)
    matches = explain_tokens("fused", tokens_of(entries, 0), tokens_of(entries, 1))[1]
    assert {match.hit_patch for match in matches} == set(np.flatnonzero(entries.valid[1]).tolist())


def test_a_window_without_patches_has_no_matches() -> None:
    entries = entries_of(2)
    nothing = replace(tokens_of(entries, 0), valid=np.zeros(4, dtype=bool))
    for pair in ((nothing, tokens_of(entries, 1)), (tokens_of(entries, 1), nothing)):
        assert explain_tokens("fused", *pair) == (-np.inf, ())


@pytest.mark.parametrize("scorer", FAST)
def test_a_hit_explains_its_score(gallery: Gallery, scorer: str) -> None:
    for hit in gallery.search("w2", 5, scorer=scorer):
        told = hit.explain()
        both = told.cosine + told.token_score
        parts = {"cosine": told.cosine, "fused": both, "fused-aligned": both}.get(scorer, told.token_score)
        assert hit.score == pytest.approx(parts, abs=1e-5)
        assert (told.scorer, told.score, told.path_s) == (scorer, hit.score, None)
        assert str(told).count("\n") == len(told.matches)


def test_the_cosine_says_that_matches_are_beside_it(gallery: Gallery) -> None:
    assert "evidence beside it" in gallery.search("w2", 1, scorer="cosine")[0].explain().note


def test_an_explanation_is_plain_values(gallery: Gallery) -> None:
    hit = gallery.search("w2", 1, certify=True)[0]
    told = json.loads(json.dumps({**hit.as_dict(), "explanation": hit.explain().as_dict()}))
    assert told["id"] == hit.id
    assert told["certificate"]["R"] >= 1
    assert told["explanation"]["matches"][0]["query_s"] == [0.0, 0.5]


def query_of(hit: Hit) -> Signal:
    assert hit.query_window is not None
    return hit.query_window


def test_alignment_draws_a_ribbon_for_each_match(gallery: Gallery) -> None:
    hit = gallery.search("w2", 1)[0]
    figure = plot.alignment(query_of(hit), hit)
    top, between, bottom = figure.axes
    assert len(between.collections) == len(hit.explain().matches)
    assert len(top.lines) == len(bottom.lines) == 1
    assert len(top.patches) == len({match.query_patch for match in hit.explain().matches})
    assert bottom.get_title(loc="left").startswith(f"hit 1: {hit.record}, {hit.start_s:g} s · fused")
    pyplot().close(figure)


@pytest.mark.parametrize("scorer", ["aligned", "fused-aligned"])
def test_the_path_of_aligned_is_its_explanation(gallery: Gallery, scorer: str) -> None:
    """From both first patches to both last ones, never back, and every step is a match."""
    for hit in gallery.search("w2", 8, scorer=scorer):
        explained = hit.explain()
        assert explained.ordered
        assert explained.as_dict()["ordered"] is True
        assert hit.evidence is not None
        pairs = [(match.query_patch, match.hit_patch) for match in explained.matches]
        ends = [np.flatnonzero(side.valid)[[0, -1]] for side in (hit.evidence.query, hit.evidence.hit)]
        assert [pairs[0], pairs[-1]] == list(zip(*(end.tolist() for end in ends), strict=True))
        steps = np.diff(pairs, axis=0)
        assert ((steps >= 0) & (steps <= 1)).all()
        assert (steps.sum(1) >= 1).all()
    assert not gallery.search("w2", 1, scorer="fused")[0].explain().ordered


def test_alignment_draws_the_path_of_aligned_without_a_gap(gallery: Gallery) -> None:
    hit = max(gallery.search("w3", 10, scorer="aligned"), key=lambda hit: len(hit.explain().matches))
    figure = plot.alignment(query_of(hit), hit)
    matches, ribbons = hit.explain().matches, figure.axes[1].collections
    assert len(ribbons) == len(matches) > 1
    for height, side in ((1.0, "query_s"), (0.0, "hit_s")):  # the query is above
        spans = []
        for ribbon in ribbons:
            corners = np.concatenate([path.vertices for path in ribbon.get_paths()])
            level = corners[np.isclose(corners[:, 1], height), 0]
            spans.append((level.min(), level.max()))
        spans.sort()
        assert spans[0][0] == pytest.approx(getattr(matches[0], side)[0])
        assert spans[-1][1] == pytest.approx(getattr(matches[-1], side)[1])
        assert [a[1] for a in spans[:-1]] == pytest.approx([b[0] for b in spans[1:]])
    pyplot().close(figure)


def test_alignment_draws_a_path(gallery: Gallery) -> None:
    hit = gallery.search("w2", 1)[0]
    assert hit.evidence is not None
    steps = np.linspace(0, 31 / 16, 60)
    bent = replace(hit, scorer="dtw", evidence=replace(hit.evidence, path_s=np.stack([steps, steps**2 / 2], axis=1)))
    figure = plot.alignment(query_of(hit), bent)
    ribbons = figure.axes[1].collections
    assert len(ribbons) == PATH_BANDS
    pyplot().close(figure)


def test_found_draws_every_hit(gallery: Gallery, tmp_path: Path) -> None:
    hits = gallery.search("w2", 4)
    figure = plot.search_hits(query_of(hits[0]), hits, "nearest")
    assert len(figure.axes) == 5
    assert figure.axes[1].get_title(loc="left").startswith(f"1. {hits[0].record}, {hits[0].start_s:g} s")
    plot.save(figure, tmp_path / "hits.png")
    assert (tmp_path / "hits.png").stat().st_size > 1000


def test_what_was_not_kept_cannot_be_drawn() -> None:
    entries = entries_of(2)
    evidence = Evidence(tokens_of(entries, 0), tokens_of(entries, 1))
    bare = Hit("w1", "r1", 0.0, 2.0, 1.5, 1, "fused", 0.9, {}, evidence=evidence)
    assert isinstance(bare.explain(), Explanation)
    query = entries.windows[0]
    assert query is not None
    with pytest.raises(GalleryError, match="keeps no values of 'w1' to draw"):
        plot.alignment(query, bare)
