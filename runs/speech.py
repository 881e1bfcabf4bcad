"""Retrieval on speech: the same prompt spoken by the other speaker, prompts of the test side unseen in training.

Reads prepared windows (`geopatch data prepare arctic`), so that a machine with torch alone can run it.

    python runs/speech.py --cache cache --rows results/speech.jsonl --workers 6 --device cuda
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import torch

from geopatch.baselines import make
from geopatch.baselines.method import AMPLITUDES
from geopatch.data.cache import Cache
from geopatch.estimator import GeoPatch
from geopatch.evaluate import append_rows, evaluate, read_rows, train
from geopatch.evaluate.rival import evaluate_rival, train_rival

SCORERS = ("cosine", "maxsim", "fused", "bridge")


RIVALS = ("dtw-10", "dtw", "minirocket", "minirocket-ridge")  # the last has a ridge for each training prompt


def measure_rival(name: str, arguments: argparse.Namespace) -> None:
    """Each with amplitude kept and z-scored, on the same frames."""
    windows = Cache(arguments.cache / "arctic")
    train_side, test = windows.windows("train").collection("prompt"), windows.windows("test").collection("prompt")
    for amplitude in AMPLITUDES:
        rival = train_rival(make(name, amplitude=amplitude), train_side, seed=0)
        append_rows(arguments.rows, evaluate_rival(rival, test, target="prompt"))


def measure(target: str, seed: int, arguments: argparse.Namespace) -> None:
    windows = Cache(arguments.cache / "arctic")
    estimator = GeoPatch(seed=seed, device=arguments.device)
    trained = train(windows.windows("train").collection(target), estimator, "default")
    test = windows.windows("test").collection(target)
    append_rows(arguments.rows, evaluate(trained, test, target=target, scorers=SCORERS))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rivals", nargs="*", choices=RIVALS, help="Measure these instead (they need aeon).")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parse()
    if arguments.rivals is not None:
        for name in arguments.rivals or RIVALS:
            measure_rival(name, arguments)
        sys.exit()
    if arguments.worker is None:
        again = [[sys.executable, *sys.argv, "--worker", str(n)] for n in range(arguments.workers)]
        codes = [process.wait() for process in [subprocess.Popen(command) for command in again]]
        print(f"{len(read_rows(arguments.rows))} rows in {arguments.rows}")
        sys.exit(max(codes))
    torch.set_num_threads(1)
    jobs = [(target, seed) for seed in range(arguments.seeds) for target in ("prompt", "speaker")]
    for target, seed in jobs[arguments.worker :: arguments.workers]:
        measure(target, seed, arguments)
