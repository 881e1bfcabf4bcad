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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from side_by_side import add_flags, side_by_side

from geopatch.config import PRESETS, TrainConfig
from geopatch.data import load_split
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Row, append_rows, evaluate, read_rows, train
from geopatch_lab.baselines.choice import FOLDS, folds


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


def run(job: Job, root: Path, device: str) -> list[Row]:
    settings: dict[str, Any] = json.loads(job.settings)
    model = replace(PRESETS[settings.get("preset", "default")], **settings.get("model", {}))
    training = replace(TrainConfig(), **settings.get("train", {}))
    whole = load_split(job.data, root)[0]
    kept, asked = list(folds(whole, most=len(whole)))[job.fold]
    trained = train(kept, GeoPatch(model=model, train=training, random_state=job.seed, device=device), job.variant)
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
    add_flags(parser)
    return parser.parse_args()


if __name__ == "__main__":
    asked = parse()

    def measure(job: Job) -> None:
        append_rows(asked.rows, run(job, asked.data_root, asked.device))

    if side_by_side(asked, list(jobs(asked)), measure):
        print(table(read_rows(asked.rows)))
