"""The theorems in the study: their jobs, the rows that are kept, the rules that judge them, their part of the page."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shapes import windows

import geopatch
from geopatch.data.collection import WindowSplit
from geopatch.errors import DataError
from geopatch.evaluate.stress import STRESSES
from geopatch.plot.canvas import pyplot
from geopatch_lab.stability import FULL, QUICK, Size, StabilityRow
from geopatch_lab.stability.finding import FAILED
from geopatch_lab.study import run as run_module
from geopatch_lab.study import theory
from geopatch_lab.study.claims import HOLDS, IN_PART, NOT, UNKNOWN, verdict_on
from geopatch_lab.study.figures import stress_figure, theory_figures
from geopatch_lab.study.jobs import QUICK as SMALL_SCOPE
from geopatch_lab.study.jobs import STABILITY, WHOLE, Job, jobs, write_jobs
from geopatch_lab.study.journal import Journal, entries_of, left, merged
from geopatch_lab.study.pack import write_pack
from geopatch_lab.study.report import main, page, write_report
from geopatch_lab.study.row_file import write_rows
from geopatch_lab.study.rules import spread
from geopatch_lab.study.run import Workspace, run
from geopatch_lab.study.statements import STATEMENTS, Statement, statement_parts, statements_table
from geopatch_lab.study.theory import compact_stability, over_seeds, read_stability, write_stability

TINY = Size(drift_windows=4, every=9, bound_windows=2, patches=8, etas=(0.1, 0.4), R=(1, 5), queries=6)
JOB = Job("stability", "recorded", "class", "learned", aim=STABILITY, steps=1, batch=4)
FIGURES = [f"{name}-recorded" for name in ("drift", "bound", "margin", "preference")]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """One job done."""
    folder = tmp_path_factory.mktemp("theory")
    split = WindowSplit(windows("recorded", 16, 100, records=True), windows("recorded", 12, 0, records=True))
    write_pack(folder / "recorded.npz", split, "made here")
    place = Workspace(folder / "study", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theory, "SIZES", {STABILITY: TINY})
        for name in ("click", "rich", "matplotlib", "pandas", "polars", "aeon", "wfdb"):  # a GPU machine has none
            patch.setitem(sys.modules, name, None)
        assert run([JOB], place) == 0
    return place


@pytest.fixture(scope="module")
def rows(study: Workspace) -> list[StabilityRow]:
    (entry,) = entries_of([JOB], [study.journal])
    assert not entry.reason
    return compact_stability(entry.stability)


def seeds(rows: Sequence[StabilityRow], data: Sequence[str] = ("nsrdb", "mitdb"), count: int = 3) -> list[StabilityRow]:
    return [replace(row, data=name, seed=seed) for name in data for seed in range(count) for row in rows]


def test_every_set_and_seed_is_a_job_with_the_budget_of_all_others() -> None:
    found = jobs(WHOLE, parts=["stability"])
    assert {(job.data, job.target) for job in found} == {("nsrdb", "subject"), ("mitdb", "beat")}
    assert sorted(job.seed for job in found if job.data == "mitdb") == [0, 1, 2]
    assert {(job.steps, job.batch) for job in found} == {(WHOLE.steps, WHOLE.batch)}
    assert all(job.is_theory and job.needs == "torch" and job.after is None for job in found)
    assert {job.data for job in jobs(WHOLE, ["nsrdb"], ["stability"])} == {"nsrdb"}
    assert not {job.key for job in found} & {job.key for job in jobs(WHOLE, parts=["main", "ablations"])}


def test_the_small_version_is_one_job_of_the_small_size() -> None:
    (job,) = jobs(SMALL_SCOPE, parts=["stability"])
    assert (job.data, job.seed, theory.SIZES[job.aim]) == ("nsrdb", 0, QUICK)
    assert theory.SIZES[STABILITY] == FULL
    assert job.key != replace(job, aim=STABILITY).key, "the other size is another job"


def test_a_job_is_done_once_and_says_where_its_rows_come_from(study: Workspace, rows: list[StabilityRow]) -> None:
    told: list[str] = []
    assert run([JOB], study, log=told.append) == 0
    assert told[0].startswith("0 of 1 jobs to do")
    assert merged([JOB], [study.journal]) == ([], {})
    assert {(row.data, row.target, row.preset, row.seed) for row in rows} == {("recorded", "class", "learned", 0)}
    digests = {(row.setting["rule"], row.setting["weights"]): row.config_digest for row in rows if row.topic == "drift"}
    assert digests["fixed", "own"] == digests["adaptive", "shared"] != digests["adaptive", "own"], "two were trained"


def test_a_job_that_was_cut_off_is_done_again(study: Workspace, tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.open()
    (line,) = (study.journal.rows / "worker-0.jsonl").read_text().splitlines()
    (journal.rows / "worker-0.jsonl").write_text(line[: len(line) // 2])
    assert left([JOB], journal) == [JOB]
    (journal.rows / "worker-1.jsonl").write_text(line + "\n")
    assert left([JOB], journal) == []


def test_a_failure_is_a_row_that_is_counted_and_told(
    study: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(run_module, "findings", break_down)
    place = replace(study, folder=tmp_path)
    assert run([JOB], place) == 0
    (entry,) = entries_of([JOB], [place.journal])
    assert [row.topic for row in entry.stability] == [FAILED]
    write_stability(tmp_path / "rows.jsonl", compact_stability(entry.stability))
    text = page([], None, {}, [], "figures", stability=read_stability(tmp_path / "rows.jsonl"))
    assert "1 runs failed.\n- `stability recorded 0`: RuntimeError: out of memory" in text
    assert list(theory_figures(entry.stability)) == []
    (better,) = entries_of([JOB], [place.journal, study.journal])
    assert not better.reason, "a success anywhere stands"


def test_the_theorems_can_be_run_alone(study: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(run_module, "findings", lambda job, *_: seen.append(job.key) or [])  # type: ignore[func-returns-value]
    write_jobs(tmp_path / "jobs.jsonl", [Job("main", "recorded", "class", "learned"), JOB])
    places = {"folder": tmp_path / "out", "packs": study.packs, "jobs": tmp_path / "jobs.jsonl", "device": "cpu"}
    run_module.main([*(f"--{name}={value}" for name, value in places.items()), "--part", "stability"])
    assert seen == [JOB.key] == list(Journal(tmp_path / "out").entries())


def test_kept_rows_come_back_and_are_small(rows: list[StabilityRow], tmp_path: Path) -> None:
    path, many = tmp_path / "stability.jsonl", seeds(rows)
    write_stability(path, many)
    again = read_stability(path)
    assert sorted(map(repr, again)) == sorted(map(repr, many))
    assert path.stat().st_size < 150 * len(many)
    assert [verdict_of(one, again) for one in STATEMENTS] == [verdict_of(one, many) for one in STATEMENTS]


def test_kept_rows_have_four_digits_and_only_what_is_asked_for(study: Workspace, rows: list[StabilityRow]) -> None:
    (entry,) = entries_of([JOB], [study.journal])
    drift = next(row for row in rows if row.topic == "drift")
    assert tuple(drift.values) == theory.KEPT["drift"]
    assert len(entry.stability[0].values) > len(drift.values)
    nothing = replace(drift, topic="preference", values={"rate": float("nan")}, count=0)
    assert compact_stability([nothing]) == []
    (short,) = compact_stability([replace(drift, topic="constants", values={"least": 0.123456})])
    assert short.values == {"least": 0.1235}


@pytest.mark.parametrize("text", ["{}\n", "no json\n", '{"setting": [], "values": [], "rows": [[1, 2]]}\n', "[]\n"])
def test_what_holds_no_rows_is_one_clear_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "rows.jsonl").write_text(text)
    with pytest.raises(DataError, match="holds no rows about theorems"):
        read_stability(tmp_path / "rows.jsonl")
    with pytest.raises(DataError, match="cannot read rows about theorems"):
        read_stability(tmp_path / "nothing")


def test_over_seeds_means_stand_but_the_worst_is_kept() -> None:
    made = [
        StabilityRow("bound", {"eta": 0.1}, {"median": value, "violations": value}, 5, "d", seed=n, versions={})
        for n, value in enumerate((0.0, 0.5, 0.1))
    ]
    (found,) = over_seeds(made)
    assert found.values == pytest.approx({"median": 0.2, "violations": 0.5})
    assert len(over_seeds([*made, replace(made[0], data="other"), replace(made[0], setting={"eta": 0.2})])) == 3


def verdict_of(statement: Statement, rows: Sequence[StabilityRow]) -> str:
    return verdict_on(statement_parts(statement, rows))


def stated(text: str) -> Statement:
    (found,) = [one for one in STATEMENTS if text in one.says]
    return found


def changed(rows: Sequence[StabilityRow], topic: str, values: dict[str, float], **setting: Any) -> list[StabilityRow]:
    """The rows with other values where they are of a topic and set so."""
    return [
        replace(row, values={**row.values, **values})
        if row.topic == topic and all(row.setting.get(key) == value for key, value in setting.items())
        else row
        for row in rows
    ]


FLIPS: list[tuple[str, str, dict[str, Any], dict[str, float], dict[str, float], str]] = [
    ("drift_decomp", "drift", {}, {"violations": 0.0}, {"violations": 0.01}, NOT),
    ("Prop. boundary", "drift", {"rule": "fixed"}, {"boundary_max": 0.0}, {"boundary_max": 1e-4}, IN_PART),
    ("affine", "affine", {}, {"change_max": 1e-9}, {"change_max": 1e-3}, NOT),
    ("Thm. modulation", "bound", {"constants": "maximum"}, {"violations": 0.0}, {"violations": 1.0}, NOT),
    ("Thm. modulation", "bound", {"level": "patch"}, {"violations": 0.0}, {"violations": 1.0}, IN_PART),
    ("characterises", "bound", {}, {"median": 0.5}, {"median": 0.001}, NOT),
    ("characterises", "bound", {"constants": "typical"}, {"median": 0.5}, {"median": 99.0}, IN_PART),
    ("rare saturation", "bound", {}, {"max": 1.5}, {"max": 0.5}, NOT),
    ("top-R", "margin", {}, {"certified_flips": 0.0}, {"certified_flips": 1.0}, NOT),
]


@pytest.mark.parametrize(("text", "topic", "setting", "good", "bad", "expected"), FLIPS)
def test_a_verdict_flips_with_its_rows(
    rows: list[StabilityRow],
    text: str,
    topic: str,
    setting: dict[str, Any],
    good: dict[str, float],
    bad: dict[str, float],
    expected: str,
) -> None:
    whole = changed(seeds(rows), topic, good)
    assert verdict_of(stated(text), whole) == HOLDS
    assert verdict_of(stated(text), changed(whole, topic, bad, **setting)) == expected


def test_one_broken_run_is_enough_against_a_theorem(rows: list[StabilityRow]) -> None:
    whole = changed(seeds(rows), "margin", {"certified_flips": 0.0})
    one = [replace(row, values={**row.values, "certified_flips": 2.0}) for row in whole[-60:] if row.topic == "margin"]
    assert verdict_of(stated("top-R"), [*whole, *one]) == NOT


def test_drifting_less_is_judged_by_kind_and_in_distances(rows: list[StabilityRow]) -> None:
    whole = changed(seeds(rows), "drift", {"total_mean": 0.2, "apart": 1.0})
    whole = changed(whole, "drift", {"total_mean": 0.1}, rule="fixed")
    assert verdict_of(stated("drifts less"), whole) == HOLDS
    assert verdict_of(stated("drifts less"), changed(whole, "drift", {"apart": 0.1}, rule="fixed")) == NOT
    part = changed(whole, "drift", {"total_mean": 0.3}, rule="fixed", kind="noise")
    assert verdict_of(stated("drifts less"), part) == IN_PART
    told = [part.text for part in statement_parts(stated("drifts less"), whole)]
    assert "noise 0.4: fixed 0.100, adaptive 0.200, less in 6 of 6 runs" in told


def test_a_bound_that_does_not_grow_with_eta_is_seen(rows: list[StabilityRow]) -> None:
    whole = changed(seeds(rows), "bound", {"median": 0.01, "bound_median": 0.2}, eta=0.1)
    whole = changed(whole, "bound", {"median": 0.011, "bound_median": 0.8}, eta=0.4)
    assert verdict_of(stated("grows linearly"), whole) == HOLDS
    assert verdict_of(stated("grows linearly"), changed(whole, "bound", {"bound_median": 0.2})) == IN_PART


def test_preference_is_premise_conclusion_and_more_than_cosine(rows: list[StabilityRow]) -> None:
    whole = changed(seeds(rows), "dominance", {"short": 0.0, "own_mean": 0.9, "other_mean": 0.8})
    whole = changed(whole, "preference", {"rate": 0.6})
    whole = changed(whole, "preference", {"rate": 0.9}, scorer="maxsim")
    assert verdict_of(stated("surface-similarity"), whole) == HOLDS
    assert verdict_of(stated("surface-similarity"), changed(whole, "dominance", {"short": 0.2})) == IN_PART
    assert verdict_of(stated("surface-similarity"), changed(whole, "dominance", {"own_mean": 0.7})) == IN_PART


def test_a_scorer_that_is_best_everywhere_is_universal(rows: list[StabilityRow]) -> None:
    whole = changed(seeds(rows), "protocol", {"recall@1": 0.5})
    assert verdict_of(stated("no universal"), whole) == NOT
    whole = changed(whole, "protocol", {"recall@1": 0.9}, scorer="maxsim", protocol="standard")
    assert verdict_of(stated("no universal"), whole) == NOT, "maxsim is as good as any elsewhere"
    whole = changed(whole, "protocol", {"recall@1": 0.7}, scorer="cosine", protocol="strict-cross-record")
    parts = statement_parts(stated("no universal"), whole)
    assert verdict_on(parts) == HOLDS
    assert parts[0].text == "NSRDB: maxsim, which loses least, is 0.200 R@1 behind the best under strict-cross-record"


def test_without_rows_nothing_is_measured() -> None:
    assert {verdict_of(one, []) for one in STATEMENTS} == {UNKNOWN}


def test_spreads() -> None:
    assert spread([0.1, 0.2, 0.3]) == "0.2 (0.1 to 0.3)"
    assert spread([0.0, 0.0]) == "0"
    assert spread([0.5], ".0%") == "50%"


def names_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda one: one.says[:30])
def test_code_and_tests_of_a_statement_exist(statement: Statement) -> None:
    places = [(Path(geopatch.__file__).parents[1], one) for one in statement.code]
    places += [(Path(__file__).parent, one) for one in statement.tests]
    assert statement.code
    assert statement.tests
    for root, told in places:
        file, _, name = told.partition("::")
        assert name in names_in(root / file), told


def test_the_page_has_a_line_for_each_statement_and_the_figures(
    rows: list[StabilityRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[Path] = []

    def note(figure: Any, stem: Path) -> None:
        saved.append(stem)
        pyplot().close(figure)

    monkeypatch.setattr("geopatch_lab.study.figures.save_all", note)
    both = [*rows, *(replace(row, seed=1) for row in rows)]
    drawn = write_report([], None, {}, tmp_path / "RESULTS.md", tmp_path / "figures", "", both)
    assert drawn == FIGURES == [path.name for path in saved]
    text = (tmp_path / "RESULTS.md").read_text()
    assert "2 runs on recorded (target `class`)" in " ".join(text.split())
    for one in STATEMENTS:
        line = next(line for line in text.splitlines() if line.startswith(f"| {one.says} |"))
        assert line.split(" | ")[-1].strip("*| ") in (HOLDS, IN_PART, NOT, UNKNOWN)
        assert line.count("figures/") == (1 if one.figure else 0)
    assert all(f"![{name}](figures/{name}.png)" in text for name in FIGURES)


def test_the_page_is_made_from_committed_rows_about_theorems(rows: list[StabilityRow], tmp_path: Path) -> None:
    few = [row for row in rows if row.topic in ("affine", "protocol")]
    write_rows(tmp_path / "study.jsonl.gz", [])
    write_stability(tmp_path / "stability.jsonl", few)
    asked = {"--rows": "study.jsonl.gz", "--stability": "stability.jsonl", "--page": "RESULTS.md"}
    main([part for name, file in asked.items() for part in (name, str(tmp_path / file))])
    text = (tmp_path / "RESULTS.md").read_text()
    assert "## Theorems and propositions" in text
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        "preference-recorded.png",
        "preference-recorded.svg",
    }
    assert statements_table(few, ["preference-recorded"], "figures") in text
    assert "## Theorems" not in page([], None, {}, [], "figures")


def test_stress_examples_are_the_same_real_window_each_time() -> None:
    one, other = stress_figure(), stress_figure()
    assert len(one.axes) == len(STRESSES) - 1
    lines = [[np.asarray(line.get_ydata()) for axes in figure.axes for line in axes.lines] for figure in (one, other)]
    for left_line, right_line in zip(*lines, strict=True):
        np.testing.assert_array_equal(left_line, right_line)
