"""Compare settings by cross-validation inside train splits. No test split is read.

Each train split is cut into two stratified halves; an encoder is trained on one and every window of the other is a
query against that other half, clean and warped. Many small trainings run side by side, on CPU cores or on one GPU
(start `nvidia-cuda-mps-control -d` first, so that they share it).

    python runs/choose.py --data-root archive --rows choose.jsonl --workers 14 --device cuda \
        --variant base '{}' --variant shorter '{"train": {"min_steps": 400}}' Handwriting NATOPS
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

from geopatch.data import Collection, load_split
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Row, append_rows, evaluate, read_rows, train
from geopatch.model import PRESETS
from geopatch.train import TrainConfig

FOLDS = 2


@dataclass(frozen=True)
class Job:
    """One training: a variant of the settings on one fold of one train split."""

    variant: str
    settings: str  # JSON: {"preset": ..., "model": {...}, "train": {...}}
    data: str
    fold: int
    seed: int


def jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    for variant, settings in arguments.variant:
        for data in arguments.sets:
            for fold in range(FOLDS):
                for seed in range(arguments.seeds):
                    yield Job(variant, settings, data, fold, seed)


def halves(whole: Collection, fold: int) -> tuple[Collection, Collection]:
    """The same share of every class on both sides; fold 1 is fold 0 with its sides exchanged."""
    assert whole.labels is not None
    draw = np.random.default_rng(0)
    side = np.zeros(len(whole), dtype=int)
    for label in np.unique(whole.labels):
        members = draw.permutation(np.flatnonzero(whole.labels == label))
        side[members] = np.arange(len(members)) % FOLDS
    return whole.subset(side != fold), whole.subset(side == fold)


def run(job: Job, root: Path, device: str) -> list[Row]:
    settings: dict[str, Any] = json.loads(job.settings)
    model = replace(PRESETS[settings.get("preset", "default")], **settings.get("model", {}))
    training = replace(TrainConfig(), **settings.get("train", {}))
    kept, asked = halves(load_split(job.data, root)[0], job.fold)
    trained = train(kept, GeoPatch(model=model, train=training, seed=job.seed, device=device), job.variant)
    return [replace(row, data=f"{job.data} fold {job.fold}") for row in evaluate(trained, asked)]


def table(rows: list[Row]) -> str:
    """Means over sets, folds and seeds of R@1 / mAP."""
    lines = []
    for variant in dict.fromkeys(row.preset for row in rows):
        cells = []
        for stress in ("clean", "warped queries"):
            for scorer in ("cosine", "fused"):
                mine = [row.scores for row in rows if (row.preset, row.stress, row.scorer) == (variant, stress, scorer)]
                recall, precision = mean(scores["recall@1"] for scores in mine), mean(scores["map"] for scores in mine)
                cells.append(f"{stress.split()[0]} {scorer} {recall:.4f} / {precision:.4f}")
        lines.append(f"{variant:20s} " + "   ".join(cells))
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--variant", nargs=2, action="append", required=True, metavar=("NAME", "SETTINGS"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parse()
    if arguments.worker is None:
        again = [[sys.executable, *sys.argv, "--worker", str(n)] for n in range(arguments.workers)]
        for process in [subprocess.Popen(command) for command in again]:
            process.wait()
        print(table(read_rows(arguments.rows)))
    else:
        torch.set_num_threads(1)
        for job in list(jobs(arguments))[arguments.worker :: arguments.workers]:
            append_rows(arguments.rows, run(job, arguments.data_root, arguments.device))
