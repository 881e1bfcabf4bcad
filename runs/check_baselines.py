"""Check baselines against figures their papers report: train on the archive's train split, classify its test split.

Accuracy of the nearest training window by the method's own score, and of a ridge classifier on its embeddings. The
budget is GeoPatch's, not the paper's (often ten times as many steps), and TS2Vec's paper has a kernel SVM where this
has a ridge; so a difference of a few points is expected, and one of twenty is a fault.

    python runs/check_baselines.py --data-root archive --device cuda --rows baselines.jsonl
    python runs/check_baselines.py --data-root archive euclidean dtw minirocket-ridge
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from geopatch.baselines import make
from geopatch.baselines.method import Embedder, Floats
from geopatch.baselines.ridge import Ridge
from geopatch.data import Collection, load_split
from geopatch.train import TrainConfig


@dataclass(frozen=True)
class Check:
    """What a paper reports for a method on one set; None where it reports no figure of ours to compare with."""

    method: str
    data: str
    amplitude: str
    published: float | None
    source: str


BAKE_OFF = "Dau et al. 2018, the UCR archive's table of default rates"
UEA_TABLE = "Yue et al. 2022 (TS2Vec), table of UEA results"
RESNET = "Ismail Fawaz et al. 2019, first of ten runs, 1500 epochs"
INCEPTION = "Ismail Fawaz et al. 2020, first single network, 1500 epochs"
CHECKS = (
    Check("euclidean", "GunPoint", "keep", 0.913, BAKE_OFF),
    Check("euclidean", "OSULeaf", "keep", 0.521, BAKE_OFF),
    Check("dtw", "GunPoint", "keep", 0.907, BAKE_OFF),
    Check("dtw", "OSULeaf", "keep", 0.591, BAKE_OFF),
    Check("minirocket-ridge", "OSULeaf", "keep", 0.958, "Dempster et al. 2021, mean of 30 resamples"),
    Check("ts-resnet", "GunPoint", "keep", 0.993, RESNET),
    Check("ts-resnet", "OSULeaf", "keep", 0.979, RESNET),
    Check("inceptiontime", "GunPoint", "keep", 1.000, INCEPTION),
    Check("inceptiontime", "OSULeaf", "keep", 0.926, INCEPTION),
    Check("ts2vec", "NATOPS", "keep", 0.928, UEA_TABLE),
    Check("ts-tcc", "NATOPS", "keep", 0.822, UEA_TABLE),
    Check("transformer", "UWaveGestureLibrary", "keep", 0.856, "Wu et al. 2023 (TimesNet), table of classification"),
    Check("patchtst", "UWaveGestureLibrary", "keep", 0.858, "Luo and Wang 2024 (ModernTCN), table of classification"),
    Check("invconvnet", "UWaveGestureLibrary", "keep", None, "Germain et al. 2025: no figure for one set at hand"),
)


def train_and_classify(check: Check, root: Path, device: str, seed: int, train: TrainConfig) -> dict[str, Any]:
    kept, asked = load_split(check.data, root)
    method = make(check.method, amplitude=check.amplitude, train=train, device=device)
    started = time.perf_counter()
    method.fit(kept.signals, kept.labels, seed)
    fit_s = time.perf_counter() - started
    nearest = neighbour_accuracy(method.scores(asked.signals, kept.signals), kept, asked)
    linear = linear_accuracy(method, kept, asked) if isinstance(method, Embedder) else None
    return {**asdict(check), "seed": seed, "nearest": nearest, "linear": linear, "fit_s": round(fit_s, 1)}


def neighbour_accuracy(scores: Floats, kept: Collection, asked: Collection) -> float:
    assert kept.labels is not None
    assert asked.labels is not None
    return float((kept.labels[scores.argmax(1)] == asked.labels).mean())


def linear_accuracy(method: Embedder, kept: Collection, asked: Collection) -> float:
    assert kept.labels is not None
    assert asked.labels is not None
    classes, numbers = np.unique(kept.labels, return_inverse=True)
    known, new = standardised(method.embed(kept.signals), method.embed(asked.signals))
    scores = Ridge.fit(known, torch.from_numpy(numbers)).scores(new)
    return float((classes[scores.argmax(1).numpy()] == asked.labels).mean())


def standardised(known: npt.NDArray[np.float32], new: npt.NDArray[np.float32]) -> tuple[torch.Tensor, torch.Tensor]:
    level, spread = known.mean(0), known.std(0) + 1e-8
    return torch.from_numpy((known - level) / spread), torch.from_numpy((new - level) / spread)


def line(row: dict[str, Any]) -> str:
    cells = [f"{row[key]:.3f}" if row[key] is not None else "-" for key in ("nearest", "linear", "published")]
    return f"| {row['method']} | {row['data']} | {row['seed']} | {' | '.join(cells)} | {row['source']} |"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", help="all, if none is named")
    parser.add_argument("--sets", nargs="*", help="all, if none is named")
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, help="of each training, instead of the default budget")
    parser.add_argument("--rows", type=Path, help="append each result to this JSONL file")
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parse()
    torch.set_num_threads(1)
    steps = arguments.steps
    budget = TrainConfig() if steps is None else TrainConfig(min_steps=steps, max_steps=steps)
    print("| method | set | seed | nearest | linear | published | source |\n|---|---|---|---|---|---|---|")
    asked = [one for one in CHECKS if not arguments.methods or one.method in arguments.methods]
    for check in [one for one in asked if not arguments.sets or one.data in arguments.sets]:
        for seed in range(arguments.seeds):
            row = train_and_classify(check, arguments.data_root, arguments.device, seed, budget)
            print(line(row), flush=True)
            if arguments.rows is not None:
                with arguments.rows.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
