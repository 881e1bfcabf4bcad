"""Retrieval on speech: the same prompt spoken by the other speaker, prompts of the test side unseen in training.

Reads prepared windows (`geopatch data prepare arctic`), so that a machine with torch alone can run it.

    python runs/speech.py --cache cache --rows results/speech.jsonl --workers 6 --device cuda
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from side_by_side import add_flags, side_by_side

from geopatch.data.cache import Cache
from geopatch.estimator import GeoPatch
from geopatch.evaluate import append_rows, evaluate, train
from geopatch_lab.baselines import make
from geopatch_lab.baselines.method import AMPLITUDES
from geopatch_lab.rival import evaluate_rival, train_rival

SCORERS = ("cosine", "maxsim", "fused", "bridge")


RIVALS = ("dtw-10", "dtw", "minirocket", "minirocket-ridge")  # the last has a ridge for each training prompt


def measure_rival(name: str, arguments: argparse.Namespace) -> None:
    """Each with amplitude kept and z-scored, on the same frames."""
    windows = Cache(arguments.cache / "arctic")
    train_side, test = windows.windows("train").collection("prompt"), windows.windows("test").collection("prompt")
    for amplitude in AMPLITUDES:
        method = make(name, amplitude=amplitude, device=arguments.device)
        rival = train_rival(method, train_side, seed=0, device=arguments.device)
        append_rows(arguments.rows, evaluate_rival(rival, test, target="prompt"))


def measure(target: str, seed: int, arguments: argparse.Namespace) -> None:
    windows = Cache(arguments.cache / "arctic")
    estimator = GeoPatch(random_state=seed, device=arguments.device)
    trained = train(windows.windows("train").collection(target), estimator, "default")
    test = windows.windows("test").collection(target)
    append_rows(arguments.rows, evaluate(trained, test, target=target, scorers=SCORERS))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rivals", nargs="*", choices=RIVALS, help="Measure these instead.")
    add_flags(parser)
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parse()
    if arguments.rivals is not None:
        for name in arguments.rivals or RIVALS:
            measure_rival(name, arguments)
        sys.exit()
    jobs = [(target, seed) for seed in range(arguments.seeds) for target in ("prompt", "speaker")]
    side_by_side(arguments, jobs, lambda job: measure(*job, arguments))
