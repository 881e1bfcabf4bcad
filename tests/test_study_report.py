"""Tables, claims and figures of the study, from rows made by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from geopatch.errors import DataError
from geopatch.evaluate.rows import Row, read_rows
from geopatch.evaluate.stress import STRESSES, Stress
from geopatch.plot.canvas import pyplot
from geopatch.protocol import Protocol
from geopatch_lab import plot
from geopatch_lab.plot.pareto import frontier
from geopatch_lab.study import paper, tables
from geopatch_lab.study.ablations import ALL_ABLATIONS
from geopatch_lab.study.budgets import long_table
from geopatch_lab.study.claims import CLAIMS, HOLDS, IN_PART, NOT, PAPERS_EIGHT, UNKNOWN, claims_table, tally, verdicts
from geopatch_lab.study.compare import average_ranks, bootstrap, critical_difference, difference
from geopatch_lab.study.cost import Cost, Growth, growths, mflop, read_cost, write_cost
from geopatch_lab.study.figures import draw_all
from geopatch_lab.study.jobs import POOL_METHODS
from geopatch_lab.study.leads import lead_table
from geopatch_lab.study.report import main, page, write_report
from geopatch_lab.study.row_file import compact, write_rows
from geopatch_lab.study.scores import Condition, StudyScores, amplitude_of, method_of
from geopatch_lab.study.sets import POOL, ROBUSTNESS, UEA, target_of
from geopatch_lab.study.theory import read_stability

ROOT = Path(__file__).parents[1]


def row(
    data: str,
    preset: str,
    recall: float,
    *,
    scorer: str = "cosine",
    protocol: str = "standard",
    stress: str = "clean",
    seed: int = 0,
    target: str = "",
) -> Row:
    names = ("recall@1", "recall@5", "map", "mrr", "class_mean_recall@1")
    return Row(
        data=data,
        data_digest="d",
        preset=preset,
        config_digest="c",
        seed=seed,
        protocol=protocol,
        protocol_digest=Protocol(protocol).digest,
        scorer=scorer,
        stress=Stress.parse(stress).text,
        scores=dict.fromkeys(names, recall),
        queries=10,
        without_positive=0,
        fit_s=1.0,
        encode_s=0.1,
        peak_memory_mb=50.0,
        device="cpu",
        versions={"geopatch": "0"},
        target=target or target_of(data),
    )


def rival(data: str, method: str, recall: float, stress: str = "clean") -> Row:
    return row(data, f"{method}, zscore", recall, scorer="own", stress=stress)


def classified(data: str, method: str, accuracy: float, scorer: str, seed: int = 0) -> Row:
    found = row(data, f"{method}, keep", 0.0, scorer=scorer, seed=seed)
    return replace(found, protocol="classification", scores={"accuracy": accuracy})


def test_choices_are_counted_where_one_was_made() -> None:
    rows = [rival("nsrdb", "dtw", 0.5), rival("mitdb", "dtw", 0.5), classified("GunPoint", "dtw", 0.9, "nearest")]
    assert tables.choice_table(StudyScores.of(rows)).splitlines()[2:] == ["| dtw | 0 | 2 |"]


def test_a_baseline_stands_beside_what_its_paper_reports() -> None:
    assert tables.published_table([row("nsrdb", "learned", 0.5)]) == ""
    rows = [classified("OSULeaf", "dtw", 0.5, "nearest", seed) for seed in (0, 1)]
    rows += [classified("NATOPS", "ts2vec", 0.8, "nearest"), classified("NATOPS", "ts2vec", 0.91, "linear")]
    table = tables.published_table(rows)
    assert "| dtw | OSULeaf | 2 | 0.500 | - | 0.591 (**-9 points**) |" in table
    assert "| ts2vec | NATOPS | 1 | 0.800 | 0.910 | 0.928 (close; from memory) |" in table
    assert table in page(rows, None, {}, [], "figures")


FAILED = replace(row("nsrdb", "ts2vec", 0.0, seed=1), scores={}, failures=1)


def verdict_of(text: str, rows: Sequence[Row]) -> str:
    claims = [claim for claim in CLAIMS if text in claim.says]
    assert len(claims) == 1, text
    return verdicts(StudyScores.of(rows), claims)[0].verdict


def test_cells_are_means_over_seeds_and_know_their_amplitude() -> None:
    rows = [row("nsrdb", "learned", 0.4), row("nsrdb", "learned", 0.6, seed=1), rival("nsrdb", "ts2vec", 0.7), FAILED]
    scores = StudyScores.of(rows)
    assert scores.value(Condition("nsrdb", "learned")) == pytest.approx(0.5)
    assert scores.value(Condition("nsrdb", "ts2vec")) == 0.7
    assert scores.value(Condition("nsrdb", "learned", scorer="maxsim")) is None
    assert (method_of(rows[2]), amplitude_of(rows[2])) == ("ts2vec", "zscore")
    assert scores.failures("ts2vec") == 1


def test_the_archive_columns_are_mean_and_median_over_sets() -> None:
    scores = StudyScores.of([row(name, "learned", value) for name, value in zip(UEA, (0.1, 0.2, 0.9), strict=False)])
    assert scores.column("UEA mean", "learned") == pytest.approx(0.4)
    assert scores.column("UEA median", "learned") == pytest.approx(0.2)
    assert scores.column("UEA mean", "paper") is None


def test_the_main_table_has_the_papers_numbers_and_counts_failures() -> None:
    table = tables.main_table(StudyScores.of([row("nsrdb", "learned", 0.5), rival("nsrdb", "ts2vec", 0.75), FAILED]))
    ours, theirs = (
        next(line for line in table.splitlines() if name in line)
        for name in ("GeoPatch, learned half alone**, cos", "ts2vec")
    )
    assert "| 0.500 / 0.500<br>*0.880 / 0.459* |" in ours
    assert "| 0.750 / 0.750 z<br>*0.644 / 0.493* |" in theirs
    assert theirs.endswith("| 1 | 1 |")
    assert "*" not in tables.main_table(StudyScores.of([rival("nsrdb", "ts2vec", 0.5)]), "warp-queries").splitlines()[2]


def test_rebuilt_and_missing_sets_are_named() -> None:
    text = page([row("AbnormalHeartbeat", "learned", 0.5)], None, {}, [], "figures")
    assert "AbnormalHeartbeat (rebuilt)" in text
    for name in ("Cricket", "DuckDuckGeese", "EigenWorms", "EthanolConcentration", "FaceDetection"):
        assert name in text
    assert "Of the paper's 17 UEA sets 1 are here" in text


def test_the_late_table_has_a_line_for_each_protocol() -> None:
    rows = [
        row("nsrdb", "learned", value, scorer=scorer, protocol=protocol)
        for protocol, value in (("standard", 0.9), ("penalised-nonoverlap", 0.1))
        for scorer in ("cosine", "maxsim", "fused", "bridge")
    ]
    lines = tables.late_table(StudyScores.of(rows)).splitlines()[2:]
    assert len(lines) == 2
    assert lines[0].endswith("| 0.880 / 0.459, 0.973 / 0.459 |")
    assert lines[1].endswith("| R@1 0.323, 0.056 |")


def test_drops_are_in_percent_of_clean() -> None:
    rows = [row(name, "learned", 0.8) for name in ROBUSTNESS]
    rows += [row(name, "learned", 0.6, stress="span-mask") for name in ROBUSTNESS]
    scores = StudyScores.of(rows)
    assert tables.drops(scores, "learned", "span-mask", "recall@1") == pytest.approx(dict.fromkeys(ROBUSTNESS, 25.0))
    line = next(line for line in tables.drop_table(scores).splitlines() if "span-mask" in line)
    assert "25.0, 25.0, 25.0, 25.0" in line
    assert "21.3, 10.6, 22.9, 15.4" in line
    table = tables.robustness_table(scores, "learned")
    assert "| Handwriting | clean | 0.800<br>*0.420* |" in table
    assert "| Handwriting | span-mask | 0.600<br>*0.126* |" in table


def test_the_ablation_table_leaves_out_what_was_not_measured() -> None:
    rows = [row("nsrdb", "learned", 0.9), row("nsrdb", "no-gate", 0.8)]
    rows += [row("nsrdb", name, 0.7, protocol="strict-nonoverlap") for name in ("learned", "no-gate")]
    lines = tables.ablation_table(StudyScores.of(rows)).splitlines()
    assert "NSRDB subject, standard, clean" in lines[0]
    assert "strict-nonoverlap" in lines[0]
    assert len(lines) == 4


def test_bootstrap_holds_the_mean_and_is_the_same_every_time() -> None:
    found = np.random.default_rng(0).normal(0.05, 0.1, 40)
    low, high = bootstrap(found)
    assert low < found.mean() < high
    assert (low, high) == bootstrap(found)
    assert bootstrap(np.full(5, 0.25)) == (0.25, 0.25)


def test_differences_count_wins_ties_and_losses_on_shared_sets() -> None:
    found = difference(
        {"a": {"x": 0.9, "y": 0.5, "z": 0.4, "only": 1.0}, "b": {"x": 0.8, "y": 0.5, "z": 0.6}}, "a", "b"
    )
    assert found is not None
    assert (found.wins, found.ties, found.losses, found.sets) == (1, 1, 1, 3)
    assert found.mean == pytest.approx(-0.1 / 3)
    assert difference({"a": {"x": 1.0}, "b": {}}, "a", "b") is None


def test_ranks_are_means_over_shared_sets_and_ties_share() -> None:
    ranks, count = average_ranks(
        {"a": {"x": 0.9, "y": 0.5}, "b": {"x": 0.8, "y": 0.5}, "c": {"x": 0.1, "y": 0.1, "z": 1}}
    )
    assert count == 2
    assert ranks == {"a": 1.25, "b": 1.75, "c": 3.0}
    assert sum(ranks.values()) == 6
    assert average_ranks({}) == ({}, 0)


def test_the_critical_difference_is_nemenyis() -> None:
    assert critical_difference(5, 30) == pytest.approx(2.728 * math.sqrt(5 * 6 / (6 * 30)), abs=1e-3)  # Demsar 2006
    with pytest.raises(DataError, match="two methods and one set"):
        critical_difference(1, 3)


@pytest.mark.parametrize(("own", "expected"), [(0.9, HOLDS), (0.71, NOT)])
def test_the_claim_on_nsrdb_flips_with_its_rows(own: float, expected: str) -> None:
    rows = [rival("nsrdb", name, 0.7) for name in PAPERS_EIGHT]
    rows += [row("nsrdb", preset, own) for preset in ("learned", "paper")]
    assert verdict_of("leads all eight baselines on NSRDB", rows) == expected


def test_a_claim_that_holds_for_one_preset_holds_in_part() -> None:
    rows = [rival("nsrdb", "ts2vec", 0.7), row("nsrdb", "learned", 0.9), row("nsrdb", "paper", 0.6)]
    assert verdict_of("leads all eight baselines on NSRDB", rows) == IN_PART
    assert verdict_of("ties at the maximum on NSTDB", rows) == UNKNOWN


@pytest.mark.parametrize(("warped", "expected"), [(0.79, HOLDS), (0.5, NOT)])
def test_the_claim_on_warps_flips_with_its_rows(warped: float, expected: str) -> None:
    rows = [row(name, preset, 0.8) for name in ROBUSTNESS for preset in ("learned", "paper")]
    rows += [replace(one, stress="warp-both-alike@0.1", scores=dict.fromkeys(one.scores, warped)) for one in rows]
    assert verdict_of("A smooth warp costs little", rows) == expected


@pytest.mark.parametrize(("late", "expected"), [(0.1, HOLDS), (0.38, NOT)])
def test_the_claim_on_strict_flips_with_its_rows(late: float, expected: str) -> None:
    rows = [
        row("nsrdb", preset, value, scorer=scorer, protocol="penalised-nonoverlap")
        for preset in ("learned", "paper")
        for scorer, value in (("cosine", 0.4), ("maxsim", late))
    ]
    assert verdict_of("MaxSim falls sharply", rows) == expected


@pytest.mark.parametrize(("less", "expected"), [(0.8, HOLDS), (0.95, NOT)])
def test_the_claim_on_geometry_flips_with_its_rows(less: float, expected: str) -> None:
    values = {"learned": 0.9, "no-geometry": less}
    rows = [row("nsrdb", preset, value, seed=seed) for preset, value in values.items() for seed in (0, 1)]
    assert verdict_of("must be paired with geometry conditioning", rows) == expected
    assert verdict_of("must be paired with geometry conditioning", rows[::2]) == UNKNOWN  # one seed says nothing


def test_an_ablation_counts_only_beyond_what_seeds_differ_by() -> None:
    """Seeds at +-.02: a standard deviation of .02, so two errors of a difference of two means are .0327."""
    around = {0: -0.02, 1: 0.0, 2: 0.02}
    for less, expected, beyond in ((0.868, NOT, 0), (0.866, HOLDS, 1)):
        rows = [
            row("nsrdb", preset, recall + step, seed=seed)
            for preset, recall in (("learned", 0.9), ("no-geometry", less))
            for seed, step in around.items()
        ]
        assert verdict_of("must be paired with geometry conditioning", rows) == expected
        told = tables.ablation_noise(StudyScores.of(rows))
        assert "NSRDB standard 2.0." in told
        assert f"Of 1 differences from the full encoder {beyond} exceed" in told
    assert tables.ablation_noise(StudyScores.of([row("nsrdb", "learned", 0.9)])) == ""


def long(one: Row) -> Row:
    return replace(one, preset=f"{one.preset}@5000x128")


@pytest.mark.parametrize(("ordinary", "later", "expected"), [(0.3, 0.9, HOLDS), (0.9, 0.3, HOLDS), (0.3, 0.3, NOT)])
def test_the_better_verdict_of_two_budgets_stands(ordinary: float, later: float, expected: str) -> None:
    """After ten times the steps, an encoder is compared with the baselines as they are, and in no other table."""
    presets = ("learned", "paper")
    rows = [rival("arctic", method, 0.5) for method in PAPERS_EIGHT]
    rows += [row("arctic", preset, ordinary) for preset in presets]
    rows += [long(row("arctic", preset, later)) for preset in presets]
    assert verdict_of("best on CMU ARCTIC", rows) == expected
    scores = StudyScores.of(rows)
    assert scores.value(Condition("arctic", "paper")) == ordinary
    assert scores.longer().value(Condition("arctic", "paper")) == later
    assert f"| paper | - -> - | - -> - | - -> - | - -> - | {ordinary:.3f} (1) -> {later:.3f} (1) |" in long_table(
        scores
    )
    assert long_table(StudyScores.of(rows[:-2])) == ""


@pytest.mark.parametrize(("own", "expected"), [(0.9, HOLDS), (0.6, NOT)])
def test_the_claim_on_warped_queries_over_the_pool_flips_with_its_rows(own: float, expected: str) -> None:
    rows = [row(name, "learned", own, stress="warp-queries") for name in POOL[:6]]
    rows += [rival(name, method, 0.7, "warp-queries") for name in POOL[:6] for method in POOL_METHODS]
    assert verdict_of("resists timing deformation", rows) == expected


def test_a_verdict_names_the_rows_behind_it_and_no_others() -> None:
    behind, besides = [row("nstdb", preset, 1.0) for preset in ("learned", "paper")], row("nsrdb", "learned", 0.5)
    found = next(one for one in verdicts(StudyScores.of([*behind, besides])) if "NSTDB" in one.claim.says)
    assert list(found.rows) == behind
    assert "2 rows: data nstdb" in claims_table(StudyScores.of(behind))


def test_verdicts_are_counted() -> None:
    assert tally(StudyScores.of([])) == f"Of {len(CLAIMS)} claims: not measured {len(CLAIMS)}."
    rows = [row("nstdb", "learned", 1.0), row("nstdb", "paper", 0.5)]
    assert tally(StudyScores.of(rows)) == f"Of {len(CLAIMS)} claims: holds in part 1, not measured {len(CLAIMS) - 1}."


def test_without_rows_every_claim_is_not_measured() -> None:
    assert {one.verdict for one in verdicts(StudyScores.of([]))} == {UNKNOWN}


def study_rows() -> list[Row]:
    """A little of everything."""
    draw = np.random.default_rng(0)
    rows = []
    for preset in ("learned", "paper"):
        for name in ROBUSTNESS:
            rows += [row(name, preset, draw.uniform(0.4, 1), stress=stress) for stress in STRESSES]
    for preset in ("learned", *ALL_ABLATIONS):
        for scorer in ("cosine", "maxsim"):
            for protocol in ("standard", "strict-nonoverlap"):
                rows.append(row("nsrdb", preset, draw.uniform(0.4, 1), scorer=scorer, protocol=protocol))
    for name in POOL[:5]:
        for stress in ("clean", "warp-queries"):
            rows += [
                row(name, "learned", draw.uniform(0.5, 1), scorer=one, stress=stress) for one in ("cosine", "fused")
            ]
            rows += [rival(name, method, draw.uniform(0.3, 0.9), stress) for method in POOL_METHODS]
    for name in UEA[:3]:
        rows += [rival(name, "ts2vec", draw.uniform(0.3, 0.9), stress) for stress in ("clean", "warp-queries")]
        if name not in ROBUSTNESS:
            rows += [
                row(name, "learned", draw.uniform(0.3, 0.9), stress=stress) for stress in ("clean", "warp-queries")
            ]
    return rows


COST = Cost({"learned": 27.5, "ts2vec": 182.0}, (Growth("encode", "N windows", (1, 2, 4), (1.0, 2.0, 4.0), 1.0),))


def test_the_report_has_every_table_and_figure_that_its_rows_allow(tmp_path: Path) -> None:
    drawn = write_report(study_rows(), COST, {"a job": "a reason"}, tmp_path / "RESULTS.md", tmp_path / "figures")
    expected = ["ablations", "stress-examples", "robustness", "pareto-nsrdb", "pareto-cost", "ranks", "wins-and-losses"]
    assert drawn == expected
    text = (tmp_path / "RESULTS.md").read_text()
    for name in drawn:
        assert f"(figures/{name}.png)" in text
        assert {(tmp_path / "figures" / f"{name}.{suffix}").is_file() for suffix in ("png", "svg")} == {True}
    for told in (
        "- `a job`: a reason",
        "| encode | N windows | 1 to 4 | 1.00 | 1 |",
        "not measured",
        "won / equal / lost",
    ):
        assert told in text


def test_the_page_is_made_from_committed_rows_by_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the figures are tested above."""
    monkeypatch.setattr("geopatch_lab.study.figures.save_all", lambda figure, stem: pyplot().close(figure))
    write_rows(tmp_path / "study.jsonl.gz", compact(study_rows()))
    write_cost(tmp_path / "cost.json", COST)
    rows, cost, page_path = (str(tmp_path / name) for name in ("study.jsonl.gz", "cost.json", "RESULTS.md"))
    main(["--rows", rows, "--cost", cost, "--page", page_path])
    assert "## The claims of the paper" in Path(page_path).read_text()


def test_compact_rows_give_the_same_tables() -> None:
    rows = [replace(one, per_class={"a": {"map": 1.0}}) for one in study_rows()]
    small = compact(rows)
    assert all(not one.per_class for one in small)
    assert tables.ablation_table(StudyScores.of(small)) == tables.ablation_table(StudyScores.of(rows))


def test_compact_rows_come_back(tmp_path: Path) -> None:
    rows = compact([*study_rows()[:5], FAILED])
    write_rows(tmp_path / "rows.jsonl.gz", rows)
    assert read_rows(tmp_path / "rows.jsonl.gz") == rows


def test_the_papers_drops_follow_from_its_own_table() -> None:
    """Its last lines are averages of its own rows: our copy of them is not mistyped."""
    for stress, told in paper.DROPS_PERCENT.items():
        found = [100 * (1 - one[stress][0] / one["clean"][0]) for one in paper.ROBUSTNESS.values()]
        assert np.mean(found) == pytest.approx(told[0], abs=0.35), stress


def test_exponents_are_slopes_in_logarithms(tmp_path: Path) -> None:
    assert Growth("x", "N", (10, 20, 40), (1.0, 4.0, 16.0), 2.0).exponent == pytest.approx(2.0)
    write_cost(tmp_path / "cost.json", COST)
    assert read_cost(tmp_path / "cost.json") == COST
    (tmp_path / "cost.json").write_text("{}")
    with pytest.raises(DataError, match="holds no costs"):
        read_cost(tmp_path / "cost.json")


def test_growths_cover_what_the_paper_claims() -> None:
    found = growths(1, 64)
    asked = {(one.what, one.variable, one.claimed) for one in found}
    assert ("search all against all", "N windows", 2.0) in asked
    assert ("MaxSim of the shortlists", "K patches", 2.0) in asked
    assert all(len(one.sizes) == len(one.seconds) for one in found)


def test_mflop_counts_attention_and_grows_with_the_encoder() -> None:
    found = mflop()
    assert 25 < found["learned"] < 30
    assert found["patch-only-stem"] < found["paper"] < found["learned"] < found["K-32"]
    assert found["transformer"] > 100  # nothing, if attention were left out


def test_the_frontier_is_what_nothing_beats() -> None:
    points = [plot.ParetoPoint(name, x, y) for name, x, y in (("a", 1, 3), ("b", 2, 2), ("c", 1.5, 1), ("d", 3, 1))]
    assert [point.name for point in frontier(points, plot.Axis("score"))] == ["a", "b", "d"]
    cheap = [point.name for point in frontier(points, plot.Axis("cost", less_is_better=True))]
    assert cheap == ["a"]


def test_figures_without_anything_to_show_are_refused() -> None:
    with pytest.raises(DataError, match="expected points to draw"):
        plot.pareto({}, plot.Axis("x"), plot.Axis("y"), "title")
    with pytest.raises(DataError, match="expected ranks"):
        plot.rank_plot([], "title")
    with pytest.raises(DataError, match="expected a difference"):
        plot.wins_and_losses([], "title", 1)
    with pytest.raises(DataError, match="expected values for 2 rows"):
        plot.Grid(np.zeros((1, 1)), ["a", "b"], ["c"])


def test_a_heatmap_writes_each_value() -> None:
    grid = plot.Grid(np.array([[1.0, -2.04], [np.nan, 0.0]]), ["a", "b"], ["x", "y"], ["one", "two"])
    figure = plot.heatmap(grid, "title", "points")
    told = [text.get_text() for text in figure.axes[0].texts]
    assert told[:4] == ["+1.0", "-2.0", "", "+0.0"]
    assert told[4:] == ["one", "two"]


def test_nothing_is_drawn_without_rows(tmp_path: Path) -> None:
    assert draw_all(StudyScores.of([]), None, tmp_path) == []


def test_the_page_in_the_docs_is_made_from_the_committed_rows() -> None:
    rows, results, docs = "study.jsonl.gz", ROOT / "results", ROOT / "docs"
    drawn = [file.stem for file in (docs / "figures").glob("*.png")]
    cost, stability = read_cost(results / "study-cost.json"), read_stability(results / "stability.jsonl")
    made = page(read_rows(results / rows), cost, {}, drawn, "figures", stability=stability)
    assert made == (docs / "RESULTS.md").read_text(encoding="utf-8")


def test_the_lead_is_over_the_best_baseline_and_bold_where_it_is_none() -> None:
    rivals = [rival("nsrdb", "ts2vec", 0.75), rival("nsrdb", "euclidean", 0.25)]
    ours = replace(row("nsrdb", "default", 0.5), scorer="fused")
    table = lead_table(StudyScores.of([ours, *rivals])).splitlines()
    assert table[2].startswith("| R@1, clean | **-25.0 (ts2vec)** | - |")
    better = lead_table(StudyScores.of([replace(ours, scores={**ours.scores, "recall@1": 0.875}), *rivals]))
    assert better.splitlines()[2].startswith("| R@1, clean | +12.5 (ts2vec) | - |")
