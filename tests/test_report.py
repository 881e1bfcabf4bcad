"""Tables say what the rows say."""

from __future__ import annotations

from dataclasses import replace

from geopatch.evaluate.rows import Row
from geopatch_lab.score_tables import class_table, method_table, results_page, scorer_table

ROW = Row(
    data="Leaf_TEST",
    data_digest="d",
    preset="default",
    config_digest="c",
    seed=0,
    protocol="standard",
    protocol_digest="p",
    scorer="cosine",
    stress="clean",
    scores={"recall@1": 0.5, "map": 0.25},
    queries=10,
    without_positive=2,
    fit_s=60.0,
    encode_s=1.0,
    peak_memory_mb=1.0,
    device="cpu",
)


def test_a_page_has_a_table_for_each_preset_with_means_over_seeds() -> None:
    better = replace(ROW, seed=1, scores={"recall@1": 0.7, "map": 0.35}, without_positive=0)
    warped = replace(ROW, stress="warped queries", scorer="fused", scores={"recall@1": 0.4, "map": 0.2})
    page = results_page([ROW, better, warped, replace(ROW, preset="paper", config_digest="e")])
    assert "| Leaf | 2 | 0.600 / 0.300 | - | - | 0.400 / 0.200 | 1.0 min |" in page
    assert "| `paper` preset, R@1 / mAP |" in page
    assert "left out of the means: 4." in page
    assert "config digests default c, paper e" in page


def test_an_imbalanced_target_shows_the_means_over_classes() -> None:
    classes = {"N": {"queries": 9.0}, "V": {"queries": 1.0}}
    scores = {**ROW.scores, "class_mean_recall@1": 0.3, "class_mean_map": 0.2}
    page = results_page([replace(ROW, scores=scores, per_class=classes)])
    assert "| Leaf | 1 | 0.500 / 0.250<br>by class 0.300 / 0.200 | - |" in page
    even = {label: {"queries": 5.0} for label in classes}
    assert "by class" not in results_page([replace(ROW, scores=scores, per_class=even)])


def test_protocols_have_tables_of_their_own() -> None:
    strict = replace(ROW, protocol="strict-cross-record", protocol_digest="q", scores={"recall@1": 0.1, "map": 0.1})
    page = results_page([ROW, strict])
    assert "| `default` preset, R@1 / mAP |" in page
    assert "| `default` preset, strict-cross-record, R@1 / mAP |" in page
    assert page.count("| Leaf | 1 |") == 2


def test_methods_stand_side_by_side() -> None:
    rival = replace(ROW, preset="dtw-10, keep", scorer="own", config_digest="")
    warped = replace(rival, stress="warped queries", scores={"recall@1": 0.1, "map": 0.05})
    lines = method_table([ROW, rival, warped]).splitlines()
    assert lines[0] == "| method: R@1 / mAP | seeds | clean | warped queries |"
    assert lines[2] == "| GeoPatch default, cosine | 1 | 0.500 / 0.250 | - |"
    assert lines[3] == "| dtw-10, keep | 1 | 0.500 / 0.250 | 0.100 / 0.050 |"


def test_scorers_stand_side_by_side() -> None:
    fused = replace(ROW, scorer="fused", scores={"recall@1": 0.75, "map": 0.5})
    lines = scorer_table([fused, ROW], "target", lambda line: line.target).splitlines()
    assert lines == [
        "| target | seeds | cosine | fused |",
        "|---|---|---|---|",
        "| class | 1 | 0.500 / 0.250 | 0.750 / 0.500 |",
    ]


def test_classes_stand_below_each_other() -> None:
    classes = {"N": {"recall@1": 0.9, "map": 0.8, "queries": 9.0}, "V": {"recall@1": 0.2, "map": 0.1, "queries": 1.0}}
    strict = replace(ROW, protocol="strict-cross-record", protocol_digest="q", per_class={"N": classes["N"]})
    lines = class_table([replace(ROW, per_class=classes), strict]).splitlines()
    assert lines[0] == "| class | queries | standard, cosine | strict-cross-record, cosine |"
    assert lines[2:] == ["| N | 9 | 0.900 / 0.800 | 0.900 / 0.800 |", "| V | 1 | 0.200 / 0.100 | - |"]
