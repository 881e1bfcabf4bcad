"""geopatch reproduce"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import click

from geopatch import plot
from geopatch.cli import options
from geopatch.errors import ConfigError, DataError
from geopatch.progress import counting_bars
from geopatch_lab.study.cost import Cost, growths, mflop, read_cost, write_cost
from geopatch_lab.study.jobs import PARTS, QUICK, WHOLE, Job, Scope, jobs, write_jobs
from geopatch_lab.study.journal import Journal, entries_of, merged
from geopatch_lab.study.pack import write_packs
from geopatch_lab.study.report import SMALL, failures, write_report
from geopatch_lab.study.row_file import compact, write_rows
from geopatch_lab.study.run import Workspace, run, usable_device
from geopatch_lab.study.sets import FULL as ALL_WINDOWS
from geopatch_lab.study.sets import QUICK as QUICK_WINDOWS
from geopatch_lab.study.theory import compact_stability, write_stability

COMPLEXITY = "complexity"
JOBS, ROWS, COST, PAGE = "jobs.jsonl", "study.jsonl.gz", "study-cost.json", "RESULTS.md"
STABILITY = "stability.jsonl"


@click.command("reproduce", short_help="Run the whole study: every table, figure and claim.")
@click.option("--quick", is_flag=True, help="A small version that goes the same way: few sets, one seed, few steps.")
@click.option("--part", "parts", multiple=True, type=click.Choice((*PARTS, COMPLEXITY)), help="Only these; all.")
@click.option("--workers", default=2, show_default=True, help="Jobs at a time, each with one thread.")
@click.option("--steps", type=int, help="Of each training, instead of the default budget.")
@click.option("--minutes", type=float, help="Begin no job after so many; the same command goes on later.")
@click.option("--retry", is_flag=True, help="Do again what failed.")
@click.option("--prepare", is_flag=True, help="Only write the sets and the list of jobs, for another machine.")
@click.option("--report", "only_report", is_flag=True, help="Only make the page and its figures from rows there are.")
@click.option("--merge", multiple=True, type=click.Path(path_type=Path), help="Folders of other machines to add.")
@click.option(
    "--out", default="study", show_default=True, type=click.Path(path_type=Path), help="Folder for all of it."
)
@options.data_root
@options.cache
@options.device
def command(
    quick: bool,
    parts: Sequence[str],
    workers: int,
    steps: int | None,
    minutes: float | None,
    retry: bool,
    prepare: bool,
    only_report: bool,
    merge: Sequence[Path],
    out: Path,
    data_root: Path,
    cache: Path,
    device: str,
) -> None:
    """Run the whole study and write rows, tables and figures into a folder.

    What is done is skipped when the command is given again. Sets that are not under the data root are left out and
    named in the report. The sets are prepared in the cache, as study/ (with --quick, study-quick/).
    """
    if workers < 1:
        raise ConfigError(f"--workers must be at least 1, got {workers}")
    plot.check_installed()
    options.check_rows_place(out / ROWS)
    scope = _scope(quick, steps)
    packs = cache / ("study-quick" if quick else "study")
    study_parts = [part for part in parts if part != COMPLEXITY] if parts else list(PARTS)
    if study_parts and not only_report:
        todo = _prepared(scope, study_parts, data_root, packs, quick, out)
        if prepare:
            click.echo(f"{len(todo)} jobs in {out / JOBS}, their sets in {packs}")
            return
        stop_at = None if minutes is None else time.time() + 60 * minutes
        workspace = Workspace(out, packs, usable_device(device), workers, stop_at)
        rest = run(todo, workspace, retry=retry, log=lambda line: click.echo(line, err=True))
        if rest:
            click.echo(f"{rest} jobs are left; give the same command again to go on", err=True)
    if not only_report and (not parts or COMPLEXITY in parts):
        out.mkdir(parents=True, exist_ok=True)
        _measure_cost(out / COST, quick)
    _report(scope, out, merge)


def _scope(quick: bool, steps: int | None) -> Scope:
    scope = QUICK if quick else WHOLE
    return scope if steps is None else replace(scope, steps=steps, batch=scope.batch or 128)


def _prepared(scope: Scope, study_parts: Sequence[str], root: Path, packs: Path, quick: bool, out: Path) -> list[Job]:
    """The jobs whose sets are there, those sets prepared."""
    needed = dict.fromkeys(job.data for job in jobs(scope, parts=study_parts))
    with counting_bars() as report:
        there = write_packs(list(needed), root, packs, QUICK_WINDOWS if quick else ALL_WINDOWS, report)
    absent = [name for name in needed if name not in there]
    if absent:
        click.echo(f"{len(absent)} of {len(needed)} sets are not under {root} and are left out", err=True)
    todo = jobs(scope, there, study_parts)
    if find_spec("aeon") is None:
        click.echo("aeon is not installed: catch22 and MultiRocket-Hydra are left out", err=True)
        todo = [job for job in todo if job.needs != "aeon"]
    out.mkdir(parents=True, exist_ok=True)
    write_jobs(out / JOBS, todo)
    return todo


def _measure_cost(path: Path, quick: bool) -> None:
    if not path.is_file() or not read_cost(path).mflop:
        click.echo("measuring how time grows with size", err=True)
        write_cost(path, Cost(mflop(), growths(2, 4) if quick else growths()))


def _report(scope: Scope, out: Path, merge: Sequence[Path]) -> None:
    known, journals = jobs(scope), [Journal(out), *(Journal(folder) for folder in merge)]
    rows, reasons = merged(known, journals)
    stability = compact_stability(row for entry in entries_of(known, journals) for row in entry.stability)
    if not rows and not stability:
        raise DataError(f"there are no rows of this study in {out}; run it without --report first")
    rows = compact(rows)
    out.mkdir(parents=True, exist_ok=True)
    write_rows(out / ROWS, rows)
    write_stability(out / STABILITY, stability)
    cost = read_cost(out / COST) if (out / COST).is_file() else Cost({}, ())
    cost = replace(cost, spent=tuple(one for journal in journals for one in journal.spent()))
    write_cost(out / COST, cost)
    note = "" if scope == WHOLE else SMALL
    drawn = write_report(rows, cost, reasons, out / PAGE, out / "figures", note, stability)
    count, failed = len(rows) + len(stability), failures(rows, stability)
    click.echo(f"{count} rows, {failed} failed runs, {len(drawn)} figures: {out / PAGE}")
