"""The list of study jobs for encoders that have no rows yet, seed by seed, so that a run that is stopped has all sets.

python runs/new_rows.py jobs.jsonl default instant
"""

from __future__ import annotations

import sys
from pathlib import Path

from geopatch_lab.study.jobs import PARTS, WHOLE, jobs, write_jobs
from geopatch_lab.study.sets import LOOKED_AT


def main(path: str, *methods: str) -> None:
    """What tables ask of the methods; sets of the pool that were looked at are left out."""
    todo = [job for job in jobs(WHOLE, parts=("main", "late", "pool")) if job.method in methods]
    todo = [job for job in todo if job.data not in LOOKED_AT]
    todo.sort(key=lambda job: (job.part == "pool", job.seed, PARTS.index(job.part), -job.cost, job.key))
    write_jobs(Path(path), todo)
    print(f"{len(todo)} jobs in {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
