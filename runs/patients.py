"""What is kept of level and scale: chosen on patients that were left out, against chosen on windows.

Reads packs (`runs/distortions.py --prepare`, or those of the study), fits fixed kernels alone.

    python runs/patients.py --packs packs --rows results/patients.jsonl

Trained on MITDB's DS1 patients (NSTDB: on those of them that are not in NSTDB). Each row of the choice is made inside
these: with patients as groups, and with every window a group of its own. Then both treatments are measured on patients
that did not train.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from geopatch.config import PRESETS, TrainConfig
from geopatch.estimator import GeoPatch
from geopatch.evaluate import append_rows, evaluate, train
from geopatch.parameters import device_of
from geopatch.protocol import Protocol
from geopatch.train.amplitude import TREATMENTS, choose_amplitude
from geopatch.training_set import TrainingSet
from geopatch_lab.study.pack import read_pack

SEARCHES = (
    ("mitdb", "beat", "strict-cross-record"),
    ("mitdb", "beat", "standard"),
    ("mitdb", "subject", "strict-nonoverlap"),
    ("nstdb", "subject", "strict-nonoverlap"),
)


def choices(data: str, target: str, packs: Path, seed: int, device: torch.device) -> dict[str, str]:
    """What each way of validation chooses; by way."""
    side = read_pack(packs, data, target).train
    assert side is not None
    patients = np.asarray([signal.record for signal in side.signals])
    ways = {"patients": patients, "windows": np.arange(len(side))}
    made = {}
    for way, groups in ways.items():
        known = TrainingSet.of(side.signals, side.labels, groups, clock=False, lazy=True)
        assert known.labels is not None
        assert known.groups is not None
        numbers = torch.from_numpy(known.labels), torch.from_numpy(known.groups)
        model = known.adapted(PRESETS["instant"])
        choice = choose_amplitude(known.windows, *numbers, model, TrainConfig(), seed=seed, device=device)
        assert choice is not None
        scores = ", ".join(f"{name} {value:.3f}" for name, value in choice.recall.items())
        counted = f"{scores}; {choice.queries} queries"
        print(f"{data} {target}, seed {seed}, by {way}: {choice.chosen} ({counted})", flush=True)
        made[way] = choice.chosen
    return made


def measure(arguments: argparse.Namespace, seed: int) -> None:
    for data, target in dict.fromkeys((data, target) for data, target, _ in SEARCHES):
        made = choices(data, target, arguments.packs, seed, device_of(arguments.device))
        task = read_pack(arguments.packs, data, target)
        assert task.train is not None
        for amplitude in TREATMENTS:
            by = " and ".join(way for way, chosen in made.items() if chosen == amplitude) or "nobody"
            estimator = GeoPatch("instant", amplitude=amplitude, random_state=seed, device=arguments.device)
            fitted = train(task.train, estimator, f"instant, {amplitude}, chosen by {by}")
            for protocol in (name for one, kind, name in SEARCHES if (one, kind) == (data, target)):
                rows = evaluate(fitted, task.test, target=target, protocol=Protocol(protocol), scorers=("cosine",))
                append_rows(arguments.rows, rows)
                for row in rows:
                    mean = np.mean([one["recall@1"] for one in row.per_class.values()])
                    scores = f"R@1 {row.scores['recall@1']:.3f}, class mean {mean:.3f}"
                    print(f"{data} {target} {protocol} {row.stress}: {row.preset}: {scores}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packs", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    for seed in range(arguments.seeds):
        measure(arguments, seed)
