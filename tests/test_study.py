"""The study as jobs: which there are, how they run, what a kill or a failure leaves, and what a choice may see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any

import numpy as np
import pytest
from shapes import windows

from geopatch.config import PRESETS
from geopatch.data.collection import Collection, WindowSet, WindowSplit
from geopatch.errors import ConfigError, DataError, GeoPatchError
from geopatch.evaluate.rows import Row, config_digest
from geopatch.signal import Signal
from geopatch_lab.baselines import METHODS, Choice
from geopatch_lab.baselines.choice import folds
from geopatch_lab.baselines.registry import NETWORKS
from geopatch_lab.study import measure as measure_module
from geopatch_lab.study import pack as pack_module
from geopatch_lab.study import run as run_module
from geopatch_lab.study.ablations import ABLATIONS, ALL_ABLATIONS, ENCODERS, UNDONE, setting
from geopatch_lab.study.ablations import FULL as FULL_ENCODER
from geopatch_lab.study.jobs import (
    CHOOSE,
    CLASSIFY,
    MEASURE,
    PARTS,
    QUICK,
    WHOLE,
    Job,
    Scope,
    jobs,
    read_jobs,
    write_jobs,
)
from geopatch_lab.study.journal import Entry, Journal, Spent, failure, left, merged
from geopatch_lab.study.measure import measured
from geopatch_lab.study.pack import by_class, needs_packing, read_pack, read_train, write_pack, write_packs
from geopatch_lab.study.paper import PUBLISHED
from geopatch_lab.study.run import BROKEN, Workspace, run, take
from geopatch_lab.study.sets import FULL, POOL, Thinning

TINY = Scope(
    seeds=(0,), main=("waves",), late=(), robustness=(), ablations=(), pool=(), published=(), steps=1, batch=4
)  # one step of a training
EUCLIDEAN = Job("main", "waves", "class", "euclidean", steps=1, batch=4)
CHOICE = replace(EUCLIDEAN, aim=CHOOSE)


@pytest.fixture
def packs(tmp_path: Path) -> Path:
    folder = tmp_path / "packs"
    folder.mkdir()
    write_pack(folder / "waves.npz", WindowSplit(windows("waves", 10, 100), windows("waves", 12, 0)), "made here")
    recorded = WindowSplit(windows("recorded", 16, 100, records=True), windows("recorded", 12, 0, records=True))
    write_pack(folder / "recorded.npz", recorded, "made here")
    return folder


@pytest.fixture
def place(tmp_path: Path, packs: Path) -> Workspace:
    return Workspace(tmp_path / "study", packs)


def row(job: Job, recall: float = 0.5) -> Row:
    return replace(failure(job, "").rows[0], scores={"recall@1": recall}, failures=0, versions={})


def test_there_are_22_ablations_of_the_papers_design_and_two_of_ours() -> None:
    assert (len(ABLATIONS), len(UNDONE)) == (22, 2)
    settings = [setting(name) for name in (FULL_ENCODER, *ALL_ABLATIONS)]
    assert len({repr(one) for one in settings}) == 25


@pytest.mark.parametrize("name", ALL_ABLATIONS)
def test_an_ablation_changes_one_thing_and_keeps_the_budget(name: str) -> None:
    full, less = setting(FULL_ENCODER), setting(name)
    changed = [key for key in vars(full.model) if getattr(full.model, key) != getattr(less.model, key)]
    changed += [key for key in vars(full.train) if getattr(full.train, key) != getattr(less.train, key)]
    assert len(changed) == (2 if name == "operator-reconstruction" else 1)
    assert less.train.steps(500) == full.train.steps(500)


def test_an_unknown_encoder_is_refused() -> None:
    with pytest.raises(ConfigError, match="encoder must be one of default, instant, learned, paper"):
        setting("minus-everything")


@pytest.mark.parametrize("scope", [WHOLE, QUICK], ids=["whole", "quick"])
def test_jobs_are_distinct_and_the_same_every_time(scope: Scope) -> None:
    found = jobs(scope)
    assert found == jobs(scope)
    assert len({job.key for job in found}) == len(found)
    assert {job.method for job in found} == {*METHODS, *ENCODERS}
    assert {job.part for job in found} <= set(PARTS)


def test_every_method_has_three_seeds_or_no_chance_in_it() -> None:
    for job in jobs(WHOLE):
        seeds = {other.seed for other in jobs_like(job)}
        assert seeds == ({0} if job.method in ("euclidean", "dtw", "dtw-10", "catch22") else {0, 1, 2})


ALL_JOBS = jobs(WHOLE)
BY_CELL: dict[tuple[str, str, str], list[Job]] = {}
for one in ALL_JOBS:
    if one.aim != CHOOSE:
        BY_CELL.setdefault((one.data, one.target, one.method), []).append(one)


def jobs_like(job: Job) -> list[Job]:
    return BY_CELL[job.data, job.target, job.method]


def test_a_baseline_comes_after_its_choice_and_an_encoder_after_nothing() -> None:
    places = {job.key: place for place, job in enumerate(ALL_JOBS)}
    for job in ALL_JOBS:
        if job.is_baseline and job.aim == MEASURE:
            assert places[job.after or ""] < places[job.key]
        else:
            assert job.after is None


def test_parts_and_sets_can_be_left_out() -> None:
    found = jobs(WHOLE, ["BasicMotions", "nsrdb"], ["ablations"])
    assert {job.data for job in found} == {"nsrdb"}
    assert len(found) == 25 * 3
    with pytest.raises(ConfigError, match="part must be one of main"):
        jobs(WHOLE, parts=["appendix"])


def test_jobs_come_back_from_their_file(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", ALL_JOBS[:50])
    assert read_jobs(tmp_path / "jobs.jsonl") == ALL_JOBS[:50]
    (tmp_path / "jobs.jsonl").write_text('{"no": "job"}\n')
    with pytest.raises(DataError, match="is no list of jobs"):
        read_jobs(tmp_path / "jobs.jsonl")
    with pytest.raises(DataError, match="cannot read jobs"):
        read_jobs(tmp_path / "nothing")


def test_only_the_methods_that_need_aeon_say_so() -> None:
    assert {job.method for job in ALL_JOBS if job.needs == "aeon"} == {
        "catch22",
        "multirocket-hydra-ridge",
    }


def test_a_pack_gives_back_what_was_put_in(packs: Path) -> None:
    found = read_pack(packs, "recorded", "class")
    wanted = windows("recorded", 16, 100, records=True)
    assert found.train is not None
    assert (len(found.train), len(found.test)) == (12, 16)
    for signal, kept in zip(wanted.signals, found.test.signals, strict=True):
        assert (kept.id, kept.record, kept.start_s, kept.rate_hz) == (signal.id, signal.record, signal.start_s, 10.0)
        np.testing.assert_allclose(kept.values, signal.values, atol=2.5 / 65534)
    assert found.test.labels is not None
    assert found.test.labels.tolist() == wanted.targets["class"].tolist()


def test_a_pack_keeps_gaps_constants_and_unequal_lengths(tmp_path: Path) -> None:
    values = [np.array([[1.0, 5.0], [np.nan, 5.0], [3.0, 5.0]]), np.array([[-2.0, 5.0]])]
    signals = tuple(Signal.from_array(one, id=str(n)) for n, one in enumerate(values))
    side = WindowSet("gaps", signals, {"class": np.asarray(["a", "b"])})
    write_pack(tmp_path / "gaps.npz", WindowSplit(side, side), "")
    for kept, signal in zip(read_pack(tmp_path, "gaps", "class").test.signals, signals, strict=True):
        np.testing.assert_allclose(kept.values, signal.values, atol=1e-4)


def test_a_set_that_is_not_there_is_one_clear_line(packs: Path) -> None:
    with pytest.raises(DataError, match=r"other is not in .*; `geopatch reproduce --prepare` writes it there"):
        read_pack(packs, "other", "class")
    np.savez(packs / "other.npz", X=np.zeros(3))
    with pytest.raises(DataError, match="is no set of the study"):
        read_train(packs, "other", "class")


def test_packs_are_made_for_what_is_there_and_kept(tmp_path: Path) -> None:
    root, folder = tmp_path / "empty", tmp_path / "packs"
    root.mkdir()
    assert write_packs(["BasicMotions", "NATOPS"], root, folder, FULL) == ["BasicMotions"]
    before = (folder / "BasicMotions.npz").stat().st_mtime_ns
    assert not needs_packing("BasicMotions", root, folder, FULL)
    write_packs(["BasicMotions"], root, folder, FULL)
    assert (folder / "BasicMotions.npz").stat().st_mtime_ns == before
    assert len(read_pack(folder, "BasicMotions", "class").test) == 40


def test_a_pack_is_made_anew_when_source_or_thinning_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, folder = tmp_path / "root", tmp_path / "packs"
    root.mkdir()
    arrays = {f"X_{side}": np.random.default_rng(0).normal(size=(8, 20)) for side in ("train", "test")}
    arrays |= {f"y_{side}": np.asarray(["a", "b"] * 4) for side in ("train", "test")}
    np.savez(root / "Plane.npz", **arrays)  # type: ignore[arg-type]
    write_packs(["Plane"], root, folder, FULL)
    assert not needs_packing("Plane", root, folder, FULL)
    assert needs_packing("Plane", root, folder, Thinning(pool_test=4))
    np.savez(root / "Plane.npz", **{**arrays, "X_test": arrays["X_test"] + 1})  # type: ignore[arg-type]
    assert needs_packing("Plane", root, folder, FULL)
    assert len(pack_module.load("Plane", root, Thinning(pool_test=4)).test) == 4


def test_thinning_keeps_every_class() -> None:
    many = windows("many", 30, 0)
    rare = replace(many, targets={"class": np.asarray(["a"] * 28 + ["b"] * 2)})
    kept = by_class(rare, 10)
    assert len(by_class(rare, 0)) == 30
    assert sorted(kept.targets["class"].tolist()) == ["a"] * 9 + ["b"] * 2
    assert len({signal.id for signal in kept.signals}) == len(kept)


def test_a_study_runs_and_is_then_done(place: Workspace) -> None:
    todo = [job for job in jobs(TINY, ["waves"]) if job.method in ("euclidean", "minirocket", "learned")]
    assert run(todo, place) == 0
    rows, reasons = merged(todo, [place.journal])
    assert not reasons
    assert {one.preset.partition(",")[0] for one in rows} == {"euclidean", "minirocket", "learned"}
    assert {one.data for one in rows} == {"waves"}
    told: list[str] = []
    assert run(todo, place, log=told.append) == 0
    assert told[0].startswith("0 of 5 jobs to do")


def test_recordings_are_measured_under_every_protocol_that_makes_sense(place: Workspace) -> None:
    job = Job("main", "recorded", "class", "learned", steps=1, batch=4)
    rows = measured(job, place.packs, place.journal.choices, "cpu")
    assert len({one.protocol for one in rows}) == 5
    assert {one.stress for one in rows if one.protocol != "standard"} == {"clean"}
    assert {one.stress for one in rows if one.protocol == "standard"} == {"clean", "warped queries"}


@pytest.mark.parametrize("method", ["euclidean", "minirocket", "dtw"])
def test_a_baseline_classifies_what_it_was_not_trained_on(place: Workspace, method: str) -> None:
    rows = measured(Job("published", "waves", "class", method, aim=CLASSIFY), place.packs, Path(), "cpu")
    assert [one.scorer for one in rows] == (["nearest", "linear"] if method == "minirocket" else ["nearest"])
    assert all(one.scores["accuracy"] == 1 and one.queries == 10 for one in rows)  # two shapes anybody can tell apart


def test_published_figures_are_of_known_methods_and_sets() -> None:
    assert {one.method for one in PUBLISHED} <= set(METHODS)
    assert {*NETWORKS} <= {one.method for one in PUBLISHED}
    asked = {(job.data, job.method) for job in ALL_JOBS if job.aim == CLASSIFY}
    assert asked == {(one.data, one.method) for one in PUBLISHED}
    assert all(0.5 < one.accuracy <= 1 for one in PUBLISHED if one.accuracy is not None)


def test_what_was_cut_off_by_a_kill_is_done_again(place: Workspace) -> None:
    journal = place.journal
    journal.open()
    todo = [Job("main", "waves", "class", name, steps=1) for name in ("learned", "paper")]
    journal.write("worker-0", Entry(todo[0].key, (row(todo[0]),)))
    with (journal.rows / "worker-0.jsonl").open("a") as file:
        file.write(json.dumps({"job": todo[1].key, "reason": "", "rows": []})[:-7])
    assert left(todo, journal) == [todo[1]]
    journal.write("worker-0", Entry(todo[1].key, (row(todo[1], 0.7),)))  # after the line that was cut
    assert left(todo, journal) == []
    assert [one.scores["recall@1"] for one in merged(todo, [journal])[0]] == [0.5, 0.7]


def test_a_choice_whose_file_is_gone_is_made_again(place: Workspace) -> None:
    journal = place.journal
    journal.open()
    journal.write("worker-0", Entry(CHOICE.key, ()))
    assert left([CHOICE], journal) == [CHOICE]
    measure_module.write_choice(journal.choices, CHOICE, Choice("keep", {"keep": 1.0, "zscore": 0.5}))
    assert left([CHOICE], journal) == []


def test_a_job_is_taken_by_one_worker_and_claims_end_with_the_run(place: Workspace) -> None:
    journal = place.journal
    journal.open()
    todo = [Job("main", "waves", "class", name, steps=1) for name in ("learned", "paper")]
    assert [take(todo, journal, f"worker-{n}") for n in range(3)] == [*todo, None]
    assert journal.claimed_by("worker-1") == [todo[1].key]
    journal.open()
    assert take(todo, journal, "worker-9") == todo[0]


def test_a_job_waits_for_its_choice_while_others_go_on(place: Workspace) -> None:
    journal = place.journal
    journal.open()
    other = Job("main", "waves", "class", "learned", steps=1)
    assert journal.claim(CHOICE, "another")
    assert take([CHOICE, EUCLIDEAN, other], journal, "worker-0") == other
    measure_module.write_choice(journal.choices, CHOICE, Choice("zscore", {}))
    assert take([CHOICE, EUCLIDEAN, other], journal, "worker-0") == EUCLIDEAN


def test_a_failure_is_a_row_that_is_counted_and_told(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of memory\nin two lines")

    monkeypatch.setattr(run_module, "choose", break_down)
    todo = [CHOICE, EUCLIDEAN, Job("main", "waves", "class", "learned", steps=1, batch=4)]
    assert run(todo, place) == 0
    rows, reasons = merged(todo, [place.journal])
    assert reasons[CHOICE.key] == "RuntimeError: out of memory in two lines"
    assert "no choice of amplitude for euclidean on waves" in reasons[EUCLIDEAN.key]
    assert [one.failures for one in rows if one.preset == "euclidean"] == [1]
    assert sum(one.failures for one in rows) == 1
    assert "out of memory" in (place.folder / "failures.log").read_text()
    monkeypatch.undo()
    assert run(todo, place, retry=True) == 0
    rows, reasons = merged(todo, [place.journal])
    assert not reasons
    assert sum(one.failures for one in rows) == 0


def test_a_worker_on_a_gpu_ends_after_a_failure(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: Any) -> Any:
        raise RuntimeError("CUDA error")

    monkeypatch.setattr(run_module, "measured", break_down)
    job = Job("main", "waves", "class", "learned", steps=1)
    place.journal.open()
    with pytest.raises(SystemExit) as ended:
        run_module.work([job], replace(place, device="cuda"), "worker-0")
    assert ended.value.code == BROKEN
    assert place.journal.entries()[job.key].reason == "RuntimeError: CUDA error"


def test_what_a_dead_worker_had_taken_failed(place: Workspace) -> None:
    journal = place.journal
    journal.open()
    todo = [CHOICE, EUCLIDEAN]
    journal.claim(CHOICE, "worker-3")
    run_module._bury(todo, journal, "worker-3", -9)
    assert journal.entries()[CHOICE.key].reason == "its worker ended with code -9"
    assert take(todo, journal, "worker-0") == EUCLIDEAN  # not waited for any more


def test_workers_side_by_side_do_each_job_once(place: Workspace) -> None:
    todo = jobs_of_baselines(("euclidean", "minirocket"))
    assert run(todo, replace(place, workers=2)) == 0
    lines = [line for path in place.journal.rows.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert sorted(json.loads(line)["job"] for line in lines) == sorted(job.key for job in todo)


def jobs_of_baselines(names: Sequence[str]) -> list[Job]:
    return [job for job in jobs(TINY, ["waves"]) if job.method in names]


def test_no_job_is_begun_after_the_time_is_up(place: Workspace) -> None:
    todo = jobs_of_baselines(("euclidean",))
    assert run(todo, replace(place, stop_at=0.0)) == 2
    assert place.journal.entries() == {}


def test_rows_of_other_machines_are_added_and_a_success_stands(tmp_path: Path) -> None:
    one, other = Journal(tmp_path / "one"), Journal(tmp_path / "other")
    job, second = Job("main", "waves", "class", "learned"), Job("main", "waves", "class", "paper")
    for journal in (one, other):
        journal.open()
    one.write("a", failure(job, "no GPU"))
    other.write("b", Entry(job.key, (row(job, 0.9),)))
    other.write("b", Entry(second.key, (row(second, 0.8),)))
    rows, reasons = merged([second, job], [one, other])
    assert [found.scores["recall@1"] for found in rows] == [0.8, 0.9]
    assert not reasons


def test_a_choice_never_sees_a_test_window(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `read_train` is called for it, and what reaches the selection are training windows."""
    seen: list[Collection] = []

    def spy(name: str, train: Collection, **_: Any) -> Choice:
        seen.append(train)
        return Choice("keep", {})

    def refuse(*_: Any) -> Any:
        pytest.fail("the test side was read for a choice")

    monkeypatch.setattr(measure_module, "better_amplitude", spy)
    monkeypatch.setattr(measure_module, "read_pack", refuse)
    assert run([CHOICE], place) == 0
    train = {signal.id for signal in windows("waves", 12, 0).signals}
    test = {signal.id for signal in windows("waves", 10, 100).signals}
    asked = {signal.id for signal in seen[0].signals}
    assert asked == train
    assert not asked & test


def test_classes_of_pairs_are_not_torn_apart() -> None:
    """Two utterances of a prompt: in halves of every class no query would have a right candidate."""
    labels = np.repeat([f"p{n}" for n in range(12)], 2)
    whole = Collection("w", tuple(Signal.from_array(np.arange(5.0) + n, id=str(n)) for n in range(24)), labels)
    for kept, asked in folds(whole, most=16):
        assert kept.labels is not None
        assert asked.labels is not None
        assert not set(kept.labels) & set(asked.labels)
        assert all((asked.labels == label).sum() == 2 for label in asked.labels)
        assert (len(kept), len(asked)) == (8, 8)


def test_the_presets_are_among_the_encoders() -> None:
    assert set(PRESETS) <= set(ENCODERS)
    assert all(setting(name).model == PRESETS[name] for name in PRESETS)
    before = [setting(name) for name in ENCODERS if name not in ("default", "instant")]
    assert all(one.model.halves == ("learned",) and one.train.robust_to == () for one in before)
    assert len(set(POOL)) == 54


def test_a_worker_needs_only_numpy_torch_and_scikit_learn(packs: Path, tmp_path: Path) -> None:
    """A GPU machine has nothing else: what reads files, draws or talks to a terminal is not imported."""
    absent = ("click", "rich", "aeon", "wfdb", "librosa", "soundfile", "matplotlib", "polars", "pandas")
    write_jobs(tmp_path / "jobs.jsonl", jobs_of_baselines(("euclidean",)))
    told = [f"--folder={tmp_path / 'out'}", f"--packs={packs}", f"--jobs={tmp_path / 'jobs.jsonl'}", "--device=cpu"]
    block = f"import sys; sys.modules.update(dict.fromkeys({absent}))"
    code = f"{block}; from geopatch_lab.study.run import main; main({told})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "0 jobs left"


@pytest.mark.skipif("GEOPATCH_DATA" not in os.environ, reason="needs the data sets")
def test_the_pool_is_every_set_with_30_training_windows_of_at_most_1500_samples() -> None:
    found = set()
    for path in (Path(os.environ["GEOPATCH_DATA"]) / "ucr_pool").glob("*.npz"):
        with np.load(path, allow_pickle=False) as arrays:
            count, length = arrays["X_train"].shape
        if count >= 30 and length <= 1500:
            found.add(path.stem)
    assert found == set(POOL)


def test_a_stretch_that_was_cut_off_is_left_out(place: Workspace) -> None:
    place.journal.open()
    assert place.journal.spent() == []
    whole = Spent("cpu", 2, 7, 1.5)
    place.journal.write_spent(whole)
    with (place.folder / "spent.jsonl").open("a") as file:
        file.write('{"device": "cp')
    assert place.journal.spent() == [whole]


def test_a_full_disk_is_one_line(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    place.journal.open()
    monkeypatch.setattr("geopatch_lab.study.journal.os.fsync", full)
    with pytest.raises(GeoPatchError, match=r"cannot write .*: No space left on device; what was done is kept"):
        place.journal.write("worker-0", Entry(CHOICE.key, ()))


def test_a_worker_whose_study_is_gone_takes_no_more(place: Workspace) -> None:
    place.journal.open()
    answers = iter([True, False])
    run_module.work([CHOICE, EUCLIDEAN], place, "worker-0", wanted=lambda: next(answers))
    assert set(place.journal.entries()) == {CHOICE.key}


@pytest.mark.parametrize("number", [SIGTERM, SIGKILL])
def test_a_killed_study_leaves_no_worker_behind(place: Workspace, tmp_path: Path, number: int) -> None:
    todo = [job for job in jobs(TINY, ["waves"]) if job.needs == "torch"]
    write_jobs(tmp_path / "jobs.jsonl", todo)
    arguments = ["--folder", place.folder, "--packs", place.packs, "--jobs", tmp_path / "jobs.jsonl", "--workers", "2"]
    command = [sys.executable, "-m", "geopatch_lab.study.run", *(str(one) for one in arguments), "--device", "cpu"]
    started = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    until(lambda: place.journal.rows.is_dir() and place.journal.ended() > 0)
    started.send_signal(number)
    assert started.wait() != 0
    until(lambda: not _is_there(started.pid))
    assert len(left(todo, place.journal)) > 0


def _is_there(group: int) -> bool:
    """Whether any process of the study still runs."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def until(holds: Callable[[], bool]) -> None:
    for _ in range(1200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it never held")


@pytest.mark.parametrize("program", ["run", "report"])
def test_a_bad_file_is_one_line(tmp_path: Path, program: str) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text("junk")
    arguments = {
        "run": ["--folder", tmp_path / "study", "--packs", tmp_path, "--jobs", bad],
        "report": ["--rows", bad, "--page", tmp_path / "page.md"],
    }
    command = [sys.executable, "-m", f"geopatch_lab.study.{program}", *(str(one) for one in arguments[program])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("geopatch: ")
    assert done.stderr.count("\n") == 1


def test_the_learned_half_is_what_version_0_1_was() -> None:
    job = Job("main", "nsrdb", "subject", "learned")
    chosen = setting("learned", job.budget)
    assert config_digest(chosen.model, chosen.train) == "edce2cd1cac9"


def test_the_encoder_without_labels_is_given_none(packs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def no_training(collection: Collection, *rest: object) -> None:
        seen.append(collection.labels)
        raise InterruptedError

    monkeypatch.setattr(measure_module, "train", no_training)
    for method in ("instant", "default"):
        with pytest.raises(InterruptedError):
            measured(Job("main", "waves", "class", method), packs, packs, "cpu")
    assert seen[0] is None
    assert seen[1] is not None
