"""R@1 over the size of a gallery: fitted on its windows alone, the prior alone, and both blended. No labels are fitted.

Each gallery is drawn from the test windows of a set, up to 200 of the others search in it, clean and warped; only those
count whose class it holds. None of these sets made the prior.

    python runs/small_galleries.py --packs packs --rows results/small-galleries.jsonl --device cuda --workers 8
    python runs/small_galleries.py --rows results/small-galleries.jsonl --figure docs/figures/small-galleries
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import numpy as np
import numpy.typing as npt
from filelock import FileLock
from side_by_side import add_flags, side_by_side

from geopatch.config import PRESETS
from geopatch.data.collection import Collection
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Row, append_rows, evaluate, read_rows
from geopatch.evaluate.retrieval import Trained
from geopatch_lab.study.pack import read_pack

SETS = ("AllGestureWiimoteY", "BasicMotions", "CharacterTrajectories", "ECG5000", "GunPoint", "Trace")
SIZES = (3, 10, 30, 100)
QUERIES, LEAST_QUERIES = 200, 40
VARIANTS = {"own windows alone": 0.0, "prior alone": None, "both": PRESETS["instant"].prior_windows}


@dataclass(frozen=True)
class Job:
    """One gallery."""

    data: str
    size: int
    seed: int


def jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    for seed in range(arguments.seeds):
        for size in SIZES:
            for data in arguments.only or SETS:
                yield Job(data, size, seed)


def run(job: Job, packs: Path, device: str) -> Iterator[Row]:
    test = read_pack(packs, job.data, "class").test
    assert test.labels is not None
    order = np.random.default_rng((job.seed, job.size)).permutation(len(test))
    stored, others = order[: job.size], order[job.size :]
    if len(others) < LEAST_QUERIES:
        return
    known = np.unique(test.labels[stored])
    asking = others[np.isin(test.labels[others], known)][:QUERIES]
    gallery, queries = (part(test, places, f"{job.data}, {job.size} windows") for places in (stored, asking))
    for name, weight in VARIANTS.items():
        model = fitted(gallery, weight, job.seed, device)
        trained = Trained(model, name, job.seed, 0.0)
        yield from evaluate(trained, queries, gallery=gallery)


def part(windows: Collection, places: npt.NDArray[np.int64], name: str) -> Collection:
    assert windows.labels is not None
    return Collection(name, tuple(windows.signals[int(n)] for n in places), windows.labels[places])


def fitted(gallery: Collection, weight: float | None, seed: int, device: str) -> GeoPatch:
    """On the gallery's windows; without a weight, on nothing."""
    if weight is None:
        return GeoPatch.pretrained(channels=gallery.signals[0].values.shape[1], device=device)
    model = replace(PRESETS["instant"], prior_windows=weight)
    return GeoPatch(model=model, random_state=seed, device=device).fit(gallery.signals)


def curves(rows: Sequence[Row], scorer: str, stress: str) -> dict[str, list[float]]:
    """Mean R@1 over sets and seeds by size, for sets that have every size."""
    sizes = [f"{size} windows" for size in SIZES]
    chosen = [row for row in rows if (row.scorer, row.stress) == (scorer, stress)]
    by_set = {row.data.split(",")[0]: set[str]() for row in chosen}
    for row in chosen:
        by_set[row.data.split(",")[0]].add(row.data.split(", ")[1])
    whole = {name for name, seen in by_set.items() if seen == set(sizes)}
    return {
        name: [
            mean(
                row.scores["recall@1"]
                for row in chosen
                if row.preset == name and row.data.endswith(f", {size}") and row.data.split(",")[0] in whole
            )
            for size in sizes
        ]
        for name in VARIANTS
    }


def draw(rows: Sequence[Row], path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
    for axis, stress in zip(axes, ("clean", "warped queries"), strict=True):
        for name, values in curves(rows, "fused", stress).items():
            axis.plot(SIZES, values, marker="o", label=name, linewidth=2.5 if name == "both" else 1.2)
        axis.set(xscale="log", xticks=SIZES, xticklabels=SIZES, xlabel="windows in the gallery", title=stress)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("first hit right (R@1)")
    axes[1].legend(frameon=False)
    for ending in ("png", "svg"):
        figure.savefig(path.with_suffix(f".{ending}"), dpi=130)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packs", type=Path)
    parser.add_argument("--only", nargs="*", help="these sets alone")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--figure", type=Path, help="draw what the rows say")
    add_flags(parser)
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    if arguments.figure is not None:
        draw(read_rows(arguments.rows), arguments.figure)
        return

    def measure(job: Job) -> None:
        rows = list(run(job, arguments.packs, arguments.device))
        with FileLock(f"{arguments.rows}.lock"):
            append_rows(arguments.rows, rows)

    if side_by_side(arguments, list(jobs(arguments)), measure):
        rows = read_rows(arguments.rows)
        for scorer in ("fused", "cosine"):
            for stress in ("clean", "warped queries"):
                for name, values in curves(rows, scorer, stress).items():
                    print(f"{scorer:7s} {stress:15s} {name:18s}", " ".join(f"{value:.3f}" for value in values))


if __name__ == "__main__":
    main()
