"""Jobs of a run, side by side: worker n of N takes every N-th of them in a process with one thread."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from geopatch.evaluate.rows import read_rows

Job = TypeVar("Job")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)


def side_by_side(arguments: argparse.Namespace, jobs: Sequence[Job], do: Callable[[Job], None]) -> bool:
    """Start the workers, or be one of them; true for the one that started them, when all are done."""
    if arguments.worker is not None:
        torch.set_num_threads(1)
        for job in jobs[arguments.worker :: arguments.workers]:
            do(job)
        return False
    again = [[sys.executable, *sys.argv, "--worker", str(n)] for n in range(arguments.workers)]
    codes = [process.wait() for process in [subprocess.Popen(command) for command in again]]
    if any(codes):
        sys.exit("a worker failed; the reason stands above")
    print(f"{len(read_rows(arguments.rows))} rows in {arguments.rows}")
    return True
