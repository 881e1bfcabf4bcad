"""A score that means something: what `chance` promises, and what is said of doubtful queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from galleries import Ground
from naive_search import ABOUT, entries_of

from geopatch.config import ModelConfig, TrainConfig
from geopatch.encoding import Encoding
from geopatch.engines.engine import spread_numbers
from geopatch.errors import ConfigError, GalleryError
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.scoring import SCORERS
from geopatch.search import Hits, SearchOptions
from geopatch.search.chance import Chance, Chances, NullScores
from geopatch.search.notes import query_notes
from geopatch.search.references import reference_signals
from geopatch.signal import Signal

ENCODED = tuple(name for name, scorer in SCORERS.items() if not scorer.needs_windows)


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    vectors = rng.normal(size=shape)
    made: np.ndarray[Any, np.dtype[np.float32]] = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return made.astype(np.float32)


class Gaussian:
    """A model to which every window is a random one."""

    def __init__(self) -> None:
        ones = np.ones(1)
        self.encoder_ = SimpleNamespace(level=ones * 0, spread=ones)

    def encode(self, signals: Sequence[Signal]) -> Encoding:
        rng, count, widths = np.random.default_rng(3), len(signals), ABOUT.widths
        tokens, valid = unit(rng, count, widths.patches, widths.token), np.ones((count, widths.patches), bool)
        starts = np.zeros((count, widths.patches), np.int64)
        return Encoding(tuple(one.id for one in signals), unit(rng, count, widths.embedding), tokens, valid, starts)


def chances_of(count: int, seed: int = 0) -> Chances:
    """What a gallery of random entries, doubled when `count` is, knows."""
    entries = entries_of(count, seed)
    engine = SimpleNamespace(
        about=ABOUT,
        next_number=lambda: count,
        count=lambda where: count,
        sample=lambda most: entries.ids[:most],
        fetch=lambda ids, with_windows=True: entries.take([entries.places[id] for id in ids]),
    )
    return Chances(engine)


def measured(chances: Chances, **options: Any) -> Chance:
    chance = chances.measure(SearchOptions(**options), Gaussian())  # type: ignore[arg-type]
    assert chance is not None
    return chance


@pytest.mark.parametrize("scorer", ENCODED)
def test_chance_falls_as_the_score_grows(scorer: str) -> None:
    chance = measured(chances_of(300), scorer=scorer)
    scores = np.linspace(SCORERS[scorer].lowest, SCORERS[scorer].steepness, 500)
    values = chance.of(scores)
    assert (np.diff(values) <= 0).all()
    assert values[0] == 300
    assert values[-1] < 1e-3
    assert (np.diff(values[scores > np.quantile(scores, 0.95)]) < 0).all()


def test_chance_doubles_when_the_gallery_doubles() -> None:
    once, twice = measured(chances_of(400)), measured(chances_of(800))
    shares = twice.null.share([0.5, 1.0, 1.5])
    assert np.allclose(Chance(once.null, 800).of([0.5, 1.0]), 2 * once.of([0.5, 1.0]))
    assert np.allclose(twice.of([0.5, 1.0, 1.5]), 800 * shares)


def test_tempos_count_as_so_many_more_windows() -> None:
    chances = chances_of(100)
    assert measured(chances, tempos=True).windows == 3 * measured(chances).windows


@pytest.mark.parametrize("width", [8, 32])
def test_gaussian_vectors_turn_up_as_often_as_chance_says(width: int) -> None:
    rng = np.random.default_rng(0)
    stored, references, queries = unit(rng, 1000, width), unit(rng, 256, width), unit(rng, 20_000, width)
    chance = Chance(NullScores(references @ stored[:256].T, 1.0), len(stored))
    best = chance.of((queries @ stored.T).max(1))
    for limit in (0.01, 0.1):
        assert limit / 2 <= (best <= limit).mean() <= 2 * limit


def test_a_share_that_was_counted_is_the_count() -> None:
    scores = np.linspace(-1, 0.9, 20_001)
    null = NullScores(scores, 1.0)
    assert null.share(scores[10_000]) == pytest.approx(10_001 / 20_001)
    assert null.share(-np.inf) == 1
    assert null.share([0.95, 0.99, 1.0, 1.1])[-1] < 1e-12
    assert np.isnan(NullScores([], 1.0).share(0.5))


def test_scores_of_nothing_compared_do_not_count() -> None:
    scores = np.random.default_rng(0).normal(size=1000) / 5
    padded = np.concatenate([scores, np.full(500, -np.inf), np.full(20, np.nan)])
    assert np.array_equal(NullScores(padded, 1.0).share(scores), NullScores(scores, 1.0).share(scores))


def test_references_are_the_same_every_time_and_of_any_shape() -> None:
    once, again = (reference_signals(50, [1.0, -5.0, 0.0], [2.0, 0.1, 1.0], 16.0) for _ in range(2))
    assert all(np.array_equal(one.values, other.values) for one, other in zip(once, again, strict=True))
    values = np.stack([one.values for one in once])
    assert values.shape == (256, 50, 3)
    assert np.isfinite(values).all()
    assert np.allclose(values.mean((0, 1)), [1.0, -5.0, 0.0], atol=0.2)
    assert len({one.values.tobytes() for one in once}) == len(once)
    long = reference_signals(100_000, [0.0] * 8, [1.0] * 8, None)
    assert len(long) == 64
    assert sum(one.values.size for one in long) <= 1 << 24


def test_a_sample_is_spread_over_all_numbers() -> None:
    numbers = spread_numbers(11, 1010, 100)
    assert numbers == spread_numbers(11, 1010, 100)
    assert all(11 + 10 * part <= number < 21 + 10 * part for part, number in enumerate(numbers))


@pytest.fixture(scope="module")
def model() -> GeoPatch:
    config = ModelConfig(halves=("learned",), patch_length=8, max_patches=4, width=16, embedding=8, layers=1, heads=1)
    train = TrainConfig(epochs=1, min_steps=2, max_steps=2, batch_size=8)
    return GeoPatch(model=config, train=train, device="cpu").fit(waves(32))


def waves(count: int, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    rng, clock = np.random.default_rng(seed), np.linspace(0, 1, 64)
    return [np.sin(2 * np.pi * (n % 3 + 1) * clock + rng.uniform()) + rng.normal(size=64) / 9 for n in range(count)]


@pytest.fixture(params=["exact:", ""], ids=["exact", "embedded"])
def gallery(request: pytest.FixtureRequest, tmp_path: Path, model: GeoPatch) -> Iterator[Gallery]:
    with Gallery.create(f"{request.param}{tmp_path / 'gallery'}", model) as made:
        made.add(waves(40), metadata=[{"kind": n % 3} for n in range(40)])
        yield made


@pytest.mark.parametrize("scorer", SCORERS)
def test_every_hit_has_a_chance_that_filters(gallery: Gallery, scorer: str) -> None:
    query = waves(1, seed=9)[0]
    hits = gallery.search(query, k=40, scorer=scorer)
    chances = [hit.chance for hit in hits]
    assert None not in chances
    assert chances == sorted(chances, key=float)  # type: ignore[arg-type]
    assert chances == [hit.chance for hit in gallery.search(query, k=40, scorer=scorer)]
    limit = chances[7]
    kept = gallery.search(query, k=40, scorer=scorer, max_chance=limit)
    assert [hit.id for hit in kept] == [hit.id for hit in hits if hit.chance is not None and hit.chance <= limit]  # type: ignore[operator]
    assert hits[0].as_dict()["chance"] == hits[0].chance


def test_a_filter_leaves_fewer_windows_to_be_near_by_chance(gallery: Gallery) -> None:
    query = waves(1, seed=9)[0]
    every = {hit.id: hit.chance or 0.0 for hit in gallery.search(query, k=40)}
    some = gallery.search(query, k=40, where="kind == 1")
    share = gallery.count("kind == 1") / len(gallery)
    assert [hit.chance for hit in some] == pytest.approx([share * every[hit.id] for hit in some])


def test_a_copy_of_a_stored_window_is_there_by_no_chance(gallery: Gallery) -> None:
    best = gallery.search(waves(40)[5], k=1, scorer="cosine")[0]
    assert best.chance is not None
    assert best.chance < 1e-3


@pytest.mark.parametrize("count", [1, 3, 10])
def test_small_galleries_have_chances_too(tmp_path: Path, model: GeoPatch, count: int) -> None:
    with Gallery.create(tmp_path / "small", model) as made:
        assert made.search(waves(1)[0]) == []
        made.add(waves(count))
        for scorer in SCORERS:
            hits = made.search(waves(1, seed=4)[0], scorer=scorer)
            assert len(hits) == count
            assert all(hit.chance is not None and 0 <= hit.chance <= count for hit in hits)


def test_without_values_dtw_and_without_a_model_nothing_is_said(tmp_path: Path, model: GeoPatch) -> None:
    with Gallery.create(tmp_path / "gallery", model) as made:
        made.add(waves(20), keep_windows=False)
        assert made.chances.measure(SearchOptions(scorer="dtw"), model) is None
        id = next(made.scan()).ids[0]
    with Gallery.open(tmp_path / "gallery", read_only=True) as light:
        assert all(hit.chance is None for hit in light.search(id))
        assert all(hit.chance is not None for hit in light.search(id, max_chance=20.0))
        assert all(hit.chance is not None for hit in light.search(id))  # loaded by now
    with Gallery.create(tmp_path / "bare", ABOUT) as bare:
        bare.add(entries_of(20))
        assert all(hit.chance is None for hit in bare.search("w1"))
        with pytest.raises(GalleryError, match="max_chance needs a model"):
            bare.search("w1", max_chance=0.1)


def test_the_sample_is_drawn_anew_when_the_gallery_has_grown(tmp_path: Path, model: GeoPatch) -> None:
    with Gallery.create(tmp_path / "gallery", model) as made:
        made.add(waves(20))
        options = SearchOptions(scorer="cosine")
        first = made.chances.measure(options, model)
        made.add(waves(5, seed=1))
        second = made.chances.measure(options, model)
        made.add(waves(10, seed=2))
        third = made.chances.measure(options, model)
        assert first is not None
        assert second is not None
        assert third is not None
        assert [first.windows, second.windows, third.windows] == [20, 25, 35]
        assert first.null is second.null
        assert third.null is not second.null


@pytest.mark.parametrize("engine", ["exact", "embedded"])
def test_engines_sample_their_entries(engine: str, tmp_path: Path) -> None:
    from galleries import entries_of as stored

    with Ground(engine, tmp_path).gallery() as made:
        assert made.engine.sample(5) == ()
        made.add(stored([f"w{n}" for n in range(60)]))
        made.remove([f"w{n}" for n in range(0, 60, 3)])
        assert set(made.engine.sample(100)) == {f"w{n}" for n in range(60) if n % 3}
        some = made.engine.sample(10)
        assert some == made.engine.sample(10)
        assert len(set(some)) == len(some) >= 8
        assert made.engine.known(some) == set(some)


def test_a_largest_chance_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_chance"):
        SearchOptions(max_chance=-1.0)


def noted(values: Any) -> str:
    return " ".join(query_notes(Signal.from_array(values, id="query"), None))


def test_doubtful_queries_are_named() -> None:
    rng, clock = np.random.default_rng(0), np.linspace(0, 1, 200)
    wave = np.sin(20 * clock)
    assert noted(wave) == ""
    assert noted(wave + rng.normal(size=200) / 3) == ""
    assert "flat line" in noted(np.full(200, 7.5))
    assert "white noise" in noted(rng.normal(size=200))
    assert noted(rng.normal(size=200).cumsum()) == ""
    assert noted(np.where(clock < 0.4, np.nan, wave)) == ""
    assert "60% of the query is missing" in noted(np.where(clock < 0.6, np.nan, wave))
    assert "white noise" in noted(rng.normal(size=(200, 2)))
    assert noted(np.stack([rng.normal(size=200), wave], axis=1)) == ""
    assert noted(rng.normal(size=10)) == ""  # too short to tell
    assert query_notes(None, None) == ()


def test_hits_carry_the_notes_of_their_query(gallery: Gallery) -> None:
    flat, wave = gallery.search_batch([np.zeros(64), waves(1)[0]], k=2)
    assert isinstance(flat, Hits)
    assert len(flat) == 2
    assert "flat line" in flat.notes[0]
    assert wave.notes == ()
