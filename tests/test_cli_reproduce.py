"""geopatch reproduce, on the sample that comes with the package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from geopatch.cli import main
from geopatch.evaluate.rows import read_rows
from geopatch_lab.stability import StabilityRow
from geopatch_lab.study.jobs import QUICK, Job, jobs, read_jobs
from geopatch_lab.study.theory import read_stability

FEW = ("learned", "no-gate", "euclidean", "minirocket")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No data but the sample, and of the methods a few that are quick."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GEOPATCH_DATA", raising=False)
    monkeypatch.setattr(
        "geopatch_lab.cli.reproduce.jobs", lambda *args, **kw: [job for job in jobs(*args, **kw) if job.method in FEW]
    )
    return tmp_path


def test_a_file_in_the_place_of_the_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(SystemExit, match="2"):
        main(["reproduce", "--quick", f"--out={tmp_path / 'taken'}"])
    assert "there is no folder" in capsys.readouterr().err


def test_quick_runs_from_the_sample_and_goes_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["reproduce", "--quick", "--steps=1", "--workers=1", "--device=cpu", "--part=main", "--part=ablations"])
    told = capsys.readouterr()
    assert "0 failed runs" in told.out
    assert "sets are not under . and are left out" in told.err
    rows = read_rows(here / "study" / "study.jsonl.gz")
    assert {row.preset.partition(",")[0] for row in rows} == set(FEW)
    assert {row.data for row in rows} == {"BasicMotions"}
    text = (here / "study" / "RESULTS.md").read_text()
    assert "**This is a small version**" in text
    assert (here / "study" / "figures" / "ablations.png").is_file()
    main(["reproduce", "--quick", "--steps=1", "--workers=1", "--device=cpu", "--part=main", "--part=ablations"])
    assert "0 of 6 jobs to do" in capsys.readouterr().err
    assert "\n| cpu | 6 | 1 | 1 | 0." in (here / "study" / "RESULTS.md").read_text()  # jobs, at a time, stretches, min
    main(["reproduce", "--quick", "--steps=1", "--report", "--out=new", "--merge=study"])
    assert (here / "new" / "RESULTS.md").read_text() == (here / "study" / "RESULTS.md").read_text()


def test_prepare_writes_sets_and_jobs_only(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["reproduce", "--quick", "--prepare", "--out=elsewhere"])
    assert "jobs in elsewhere/jobs.jsonl, their sets in cache/study-quick" in capsys.readouterr().out
    assert (here / "cache" / "study-quick" / "BasicMotions.npz").is_file()
    assert {job.data for job in read_jobs(here / "elsewhere" / "jobs.jsonl")} == {"BasicMotions"}
    assert not (here / "elsewhere" / "rows").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--report"], "there are no rows of this study in study; run it without --report first"),
        (["--workers=0"], "--workers must be at least 1, got 0"),
        (["--part=appendix"], "'appendix' is not one of"),
    ],
)
def test_mistakes_are_one_line(here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", *arguments])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_without_aeon_its_methods_are_left_out(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geopatch_lab.cli.reproduce.find_spec", lambda name: None)
    monkeypatch.setattr("geopatch_lab.cli.reproduce.QUICK", replace(QUICK, main=("BasicMotions",)))
    main(["reproduce", "--quick", "--prepare"])
    assert "aeon is not installed" in capsys.readouterr().err
    assert all(job.needs == "torch" for job in read_jobs(here / "study" / "jobs.jsonl"))


def test_costs_alone_leave_the_jobs_and_rows_as_they_are(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main(["reproduce", "--quick", "--steps=1", "--workers=1", "--device=cpu", "--part=main"])
    before = (here / "study" / "jobs.jsonl").read_text()
    monkeypatch.setattr("geopatch_lab.cli.reproduce.growths", lambda repeats, scale: ())
    main(["reproduce", "--quick", "--steps=1", "--part=complexity", "--out=other", "--merge=study"])
    assert (here / "study" / "jobs.jsonl").read_text() == before
    assert read_rows(here / "other" / "study.jsonl.gz") == read_rows(here / "study" / "study.jsonl.gz")
    assert "MFLOP of encoding one window" in (here / "other" / "RESULTS.md").read_text()


def test_theorems_are_a_part_with_rows_of_their_own(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    packs = here / "cache" / "study-quick"
    packs.mkdir(parents=True)
    (packs / "nsrdb.npz").touch()  # there is a set, and what would read it is not asked
    made = StabilityRow("affine", {"alpha": 2.0, "beta": 1.0}, {"change_max": 1e-12, "too_slow": 0.0}, 5, "nsrdb")
    asked: list[Job] = []

    def find(job: Job, *_: object) -> list[StabilityRow]:
        asked.append(job)
        return [made]

    monkeypatch.setattr("geopatch_lab.study.run.findings", find)
    told = ["reproduce", "--quick", "--steps=3", "--part=stability", "--workers=1", "--device=cpu"]
    main(told)
    assert "1 rows, 0 failed runs, 0 figures" in capsys.readouterr().out
    assert [(job.data, job.aim, job.steps) for job in asked] == [("nsrdb", "stability-quick", 3)]
    assert read_stability(here / "study" / "stability.jsonl") == [made]
    assert "| Prop. affine equivariance: R(alpha tau + beta) = R(tau) |" in (here / "study" / "RESULTS.md").read_text()
    main(told)
    assert "0 of 1 jobs to do" in capsys.readouterr().err
    assert len(asked) == 1
