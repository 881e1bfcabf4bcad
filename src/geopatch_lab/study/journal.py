"""What is done: a line for each job in a file for each worker, so that a killed study goes on where it stood.

A line is written at once when a job ends. One that was cut off does not count, and its job is done again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from geopatch.errors import GeoPatchError
from geopatch.evaluate.rows import Row
from geopatch_lab.stability.finding import FAILED, StabilityRow
from geopatch_lab.study.jobs import CHOOSE, Job


@dataclass(frozen=True)
class Entry:
    """A job that ended: with its rows, or with the reason for which it failed."""

    job: str
    rows: tuple[Row, ...]
    reason: str = ""
    stability: tuple[StabilityRow, ...] = ()


@dataclass(frozen=True)
class Spent:
    """A stretch of the study on one machine: how many jobs ended, in how many seconds."""

    device: str
    workers: int
    jobs: int
    seconds: float


@dataclass(frozen=True)
class Journal:
    """The folder of a study."""

    folder: Path

    @property
    def rows(self) -> Path:
        return self.folder / "rows"

    @property
    def claims(self) -> Path:
        return self.folder / "claims"

    @property
    def choices(self) -> Path:
        return self.folder / "choices"

    def open(self) -> None:
        """Make the folders, and forget the claims of workers that are no more."""
        with self.writing():
            for place in (self.rows, self.claims, self.choices):
                place.mkdir(parents=True, exist_ok=True)
        for claim in self.claims.iterdir():
            claim.unlink()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """What the disk refuses is told in one line."""
        try:
            yield
        except FileExistsError:
            raise
        except OSError as error:
            message = (
                f"cannot write {self.folder}: {error.strerror}; what was done is kept: mend that or give another folder"
            )
            raise GeoPatchError(message) from error

    def claim(self, job: Job, worker: str) -> bool:
        """Take a job; only one worker can."""
        try:
            with self.writing(), (self.claims / job.key).open("x", encoding="utf-8") as file:
                file.write(worker)
        except FileExistsError:
            return False
        return True

    def claimed_by(self, worker: str) -> list[str]:
        return [claim.name for claim in sorted(self.claims.iterdir()) if claim.read_text(encoding="utf-8") == worker]

    def write(self, worker: str, entry: Entry) -> None:
        payload = {"job": entry.job, "reason": entry.reason, "rows": [row.as_dict() for row in entry.rows]}
        payload |= {"stability": [row.as_dict() for row in entry.stability]} if entry.stability else {}
        path = self.rows / f"{worker}.jsonl"
        cut = path.is_file() and path.read_bytes()[-1:] not in (b"", b"\n")
        with self.writing(), path.open("a", encoding="utf-8") as file:
            file.write(("\n" if cut else "") + json.dumps(payload) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def entries(self) -> dict[str, Entry]:
        """Every job that ended, by its key; of one that ended twice, the time it succeeded."""
        by_job: dict[str, Entry] = {}
        for path in sorted(self.rows.glob("*.jsonl")):
            for entry in _entries(path):
                if entry.job not in by_job or not entry.reason:
                    by_job[entry.job] = entry
        return by_job

    def write_spent(self, spent: Spent) -> None:
        with self.writing(), self._spent.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(spent)) + "\n")

    def spent(self) -> list[Spent]:
        """Every stretch of it; a line that a kill cut off is not there."""
        lines = self._spent.read_text(encoding="utf-8").splitlines() if self._spent.is_file() else []
        spent = []
        for line in lines:
            with suppress(json.JSONDecodeError, TypeError):
                spent.append(Spent(**json.loads(line)))
        return spent

    @property
    def _spent(self) -> Path:
        return self.folder / "spent.jsonl"

    def ended(self) -> int:
        """How many lines there are: quickly, for showing progress."""
        return sum(path.read_bytes().count(b"\n") for path in self.rows.glob("*.jsonl"))

    def has_choice(self, key: str) -> bool:
        return (self.choices / f"{key}.json").is_file()


def _entries(path: Path) -> Iterator[Entry]:
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            payload = json.loads(line)
            stability = tuple(StabilityRow(**row) for row in payload.get("stability", ()))
            yield Entry(payload["job"], tuple(Row(**row) for row in payload["rows"]), payload["reason"], stability)
        except (json.JSONDecodeError, KeyError, TypeError):
            continue  # cut off by a kill: not done


def left(jobs: Iterable[Job], journal: Journal, *, retry: bool = False) -> list[Job]:
    """The jobs still to do; those that failed are done again only with `retry`, or once what they lacked is there."""
    ended = journal.entries()
    return [job for job in jobs if not _is_done(job, ended.get(job.key), journal, retry)]


def _is_done(job: Job, entry: Entry | None, journal: Journal, retry: bool) -> bool:
    if entry is None or (entry.reason and retry):
        return False
    return bool(entry.reason) or job.aim != CHOOSE or journal.has_choice(job.key)


def failure(job: Job, reason: str) -> Entry:
    """A job that failed is a row without scores, so that tables can count it."""
    if job.aim == CHOOSE:
        return Entry(job.key, (), reason)
    if job.is_theory:
        failed = StabilityRow(
            FAILED, {"reason": reason}, {}, 0, job.data, preset=job.method, seed=job.seed, target=job.target
        )
        return Entry(job.key, (), reason, (failed,))
    row = Row(
        data=job.data,
        data_digest="",
        preset=job.method,
        config_digest="",
        seed=job.seed,
        protocol="standard",
        protocol_digest="",
        scorer="",
        stress="clean",
        scores={},
        queries=0,
        without_positive=0,
        fit_s=0.0,
        encode_s=0.0,
        peak_memory_mb=None,
        device="",
        failures=1,
        target=job.target,
    )
    return Entry(job.key, (row,), reason)


def entries_of(jobs: Sequence[Job], journals: Iterable[Journal]) -> list[Entry]:
    """What is known of the jobs, in their order; a success anywhere stands before a failure."""
    by_job: dict[str, Entry] = {}
    for journal in journals:
        for key, entry in journal.entries().items():
            if key not in by_job or not entry.reason:
                by_job[key] = entry
    return [by_job[job.key] for job in jobs if job.key in by_job]


def merged(jobs: Sequence[Job], journals: Iterable[Journal]) -> tuple[list[Row], dict[str, str]]:
    """The rows of all jobs in their order, and why jobs failed."""
    known = entries_of(jobs, journals)
    return [row for entry in known for row in entry.rows], {entry.job: entry.reason for entry in known if entry.reason}
