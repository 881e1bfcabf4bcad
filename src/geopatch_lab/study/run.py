"""Run the jobs of the study side by side, on one GPU or on the cores of a CPU. Torch and numpy are enough.

    python -m geopatch_lab.study.run --folder study --packs study/sets --jobs jobs.jsonl --device cuda --workers 14

Each worker is a process with one thread that takes the next job nobody has taken. What is done is skipped when the
same command is given again, after a kill as well; --minutes stops it in time by itself.

Why not joblib, dask or concurrent.futures: their unit is a call whose result comes back to a live parent. Here a job
is a line in a folder: it outlives kill -9 of parent and workers, a worker whose CUDA context broke is replaced without
losing what others have done, and folders of several machines are merged. A pool would still need the journal.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from geopatch.errors import one_line_errors
from geopatch_lab.study.jobs import CHOOSE, PARTS, Job, read_jobs, write_jobs
from geopatch_lab.study.journal import Entry, Journal, Spent, failure, left
from geopatch_lab.study.measure import choose, measured, write_choice
from geopatch_lab.study.pack import read_train
from geopatch_lab.study.theory import findings

BROKEN = 75  # a worker whose GPU may be unusable after an error ends with this and is started anew
POLL_S = 1.0
SHOW_EVERY_S = 15.0
OPEN = "open.jsonl"
MPS = "nvidia-cuda-mps-control"

Log = Callable[[str], None]


@dataclass(frozen=True)
class Workspace:
    """Where and on what a study runs."""

    folder: Path
    packs: Path
    device: str = "cpu"
    workers: int = 1
    stop_at: float | None = None  # seconds since the epoch; no job is begun after it

    @property
    def journal(self) -> Journal:
        return Journal(self.folder)

    @property
    def is_over(self) -> bool:
        return self.stop_at is not None and time.time() >= self.stop_at


def run(jobs: Sequence[Job], workspace: Workspace, *, retry: bool = False, log: Log = lambda line: None) -> int:
    """Do what is left of the jobs; gives how many are left when it ends."""
    journal = workspace.journal
    journal.open()
    todo = left(jobs, journal, retry=retry)
    log(f"{len(todo)} of {len(jobs)} jobs to do, {workspace.workers} at a time on {workspace.device}")
    before, started = journal.ended(), time.monotonic()
    try:
        if todo and workspace.workers == 1:
            work(todo, workspace, "worker-0", log)
        elif todo:
            write_jobs(workspace.folder / OPEN, todo)
            with ending_in_order(), shared_gpu(workspace.device):
                _watch(todo, workspace, log)
    finally:
        if ended := journal.ended() - before:
            journal.write_spent(
                Spent(named(workspace.device), workspace.workers, ended, round(time.monotonic() - started, 1))
            )
    return len(left(jobs, journal))


def work(
    todo: Sequence[Job],
    workspace: Workspace,
    worker: str,
    log: Log = lambda line: None,
    wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Take jobs until there are none left to take, or nobody wants them any more."""
    torch.set_num_threads(1)
    progress = StudyProgress(todo, log, workspace.journal.ended())
    while not workspace.is_over and wanted() and (job := take(todo, workspace.journal, worker)) is not None:
        entry = done(job, workspace)
        workspace.journal.write(worker, entry)
        progress.show(workspace.journal.ended())
        if entry.reason and workspace.device != "cpu":
            sys.exit(BROKEN)


def take(todo: Sequence[Job], journal: Journal, worker: str) -> Job | None:
    """The next job that nobody has and whose choice is made; waits where only such are left that wait for one."""
    while True:
        taken = {claim.name for claim in journal.claims.iterdir()}
        free = [job for job in todo if job.key not in taken]
        ready = [job for job in free if _is_ready(job, journal)]
        for job in ready:
            if journal.claim(job, worker):
                return job
        if not free:
            return None
        if not ready:
            time.sleep(POLL_S)


def _is_ready(job: Job, journal: Journal) -> bool:
    return job.after is None or journal.has_choice(job.after) or _failed_file(journal, job.after).is_file()


def _failed_file(journal: Journal, key: str) -> Path:
    return journal.choices / f"{key}.failed"


def done(job: Job, workspace: Workspace) -> Entry:
    """The rows of a job, or why it failed: one job that fails must not end a study of a thousand."""
    failed = _failed_file(workspace.journal, job.key)
    failed.unlink(missing_ok=True)
    try:
        if job.aim == CHOOSE:
            choice = choose(job, read_train(workspace.packs, job.data, job.target), workspace.device)
            write_choice(workspace.journal.choices, job, choice)
            return Entry(job.key, ())
        if job.is_theory:
            return Entry(job.key, (), stability=tuple(findings(job, workspace.packs, workspace.device)))
        return Entry(job.key, tuple(measured(job, workspace.packs, workspace.journal.choices, workspace.device)))
    except Exception as error:
        if job.aim == CHOOSE:
            failed.touch()
        with workspace.journal.writing(), (workspace.folder / "failures.log").open("a", encoding="utf-8") as log:
            log.write(f"{job.key}\n{traceback.format_exc()}\n")
        return failure(job, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")


class StudyProgress:
    """Reports now and then how much is done and how much time is left, by what jobs cost."""

    def __init__(self, todo: Sequence[Job], log: Log, before: int) -> None:
        self.costs, self.log, self.before = [job.cost for job in todo], log, before
        self.started = self.shown = time.monotonic()

    def show(self, ended: int, *, always: bool = False) -> None:
        now, ended = time.monotonic(), ended - self.before
        if not always and now - self.shown < SHOW_EVERY_S:
            return
        self.shown = now
        share = sum(self.costs[:ended]) / max(sum(self.costs), 1e-9)
        rest = f", about {(now - self.started) * (1 / share - 1) / 60:.1f} min left" if 0 < share < 1 else ""
        self.log(f"{ended} of {len(self.costs)} jobs done in {(now - self.started) / 60:.1f} min{rest}")


def _watch(todo: Sequence[Job], workspace: Workspace, log: Log) -> None:
    """Start the workers, start anew those that break, and report progress."""
    journal, progress = workspace.journal, StudyProgress(todo, log, workspace.journal.ended())
    workers = {f"worker-{n}": _start(workspace, f"worker-{n}") for n in range(min(workspace.workers, len(todo)))}
    try:
        while workers:
            time.sleep(POLL_S)
            for name, process in list(workers.items()):
                if process.poll() is None:
                    continue
                del workers[name]
                if process.returncode != 0:
                    _bury(todo, journal, name, process.returncode)
                    if not workspace.is_over:
                        workers[name] = _start(workspace, name)
            progress.show(journal.ended())
    finally:
        for process in workers.values():
            process.terminate()
    progress.show(journal.ended(), always=True)


def _start(workspace: Workspace, name: str) -> subprocess.Popen[bytes]:
    arguments = ["--folder", workspace.folder, "--packs", workspace.packs, "--jobs", workspace.folder / OPEN]
    arguments += ["--device", workspace.device, "--worker", name, "--parent", os.getpid()]
    arguments += [] if workspace.stop_at is None else ["--stop-at", workspace.stop_at]
    command = [sys.executable, "-m", "geopatch_lab.study.run", *(str(argument) for argument in arguments)]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})


def _bury(todo: Sequence[Job], journal: Journal, worker: str, code: int) -> None:
    """What a worker had taken when it died without a word failed."""
    ended = journal.entries()
    for job in todo:
        if job.key in set(journal.claimed_by(worker)) - set(ended):
            if job.aim == CHOOSE:
                _failed_file(journal, job.key).touch()
            journal.write("buried", failure(job, f"its worker ended with code {code}"))


@contextmanager
def ending_in_order() -> Iterator[None]:
    """SIGTERM ends the workers as well, as Ctrl-C does."""

    def end(number: int, frame: object) -> None:
        sys.exit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def shared_gpu(device: str) -> Iterator[None]:
    """NVIDIA's MPS where it is there, so that small trainings run on a GPU at the same time, not in turns."""
    if not device.startswith("cuda") or shutil.which(MPS) is None or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
        os.environ.update(places)
        try:
            started = subprocess.run([MPS, "-d"], capture_output=True).returncode == 0
            if not started:
                os.environ.pop("CUDA_MPS_PIPE_DIRECTORY")
            yield
        finally:
            subprocess.run([MPS], input=b"quit\n", capture_output=True)
            for name in places:
                os.environ.pop(name, None)


def named(device: str) -> str:
    """What a reader knows it by."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def usable_device(name: str) -> str:
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where rows are written")
    parser.add_argument("--packs", type=Path, required=True, help="where the sets of the study are")
    parser.add_argument("--jobs", type=Path, required=True, help="the list of jobs")
    parser.add_argument("--needs", choices=("torch", "aeon"), nargs="*", default=("torch", "aeon"))
    parser.add_argument("--part", choices=PARTS, nargs="*", default=PARTS, help="only jobs of these")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="begin no job after so many")
    parser.add_argument("--retry", action="store_true", help="do again what failed")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--stop-at", type=float, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    stop_at = options.stop_at if options.minutes is None else time.time() + 60 * options.minutes
    workspace = Workspace(options.folder, options.packs, usable_device(options.device), options.workers, stop_at)
    todo = [job for job in read_jobs(options.jobs) if job.needs in options.needs and job.part in options.part]
    if options.worker is not None:
        # another parent: the study was killed, maybe before this worker came so far, and the next one does this work
        work(todo, workspace, options.worker, wanted=lambda: os.getppid() == options.parent)
        return
    rest = run(todo, workspace, retry=options.retry, log=lambda line: print(line, file=sys.stderr, flush=True))
    print(f"{rest} jobs left" + ("; give the same command again to go on" if rest else ""), file=sys.stderr)


if __name__ == "__main__":
    with one_line_errors():
        main()
