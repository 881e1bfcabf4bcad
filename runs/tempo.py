"""Relative tempo: MITDB across patients with it and without, by annotated and by detected beats.

A machine that has the database packs its windows with their anchors; one with torch, numpy, safetensors and
scikit-learn measures. A run that was stopped goes on where it was.

    python runs/tempo.py --prepare data --packs packs
    python runs/tempo.py --packs packs --rows results/tempo.jsonl --seeds 3 --presets instant --device cpu
    python runs/tempo.py --packs packs --rows results/tempo.jsonl --seeds 3 --presets default --device cuda
    python runs/tempo.py --rows results/tempo.jsonl --table

Trained on the DS1 patients, whose labels and records choose what counts; measured on those of DS2. `without` is the
same fit with clock_share=0.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from geopatch.config import PRESETS
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Row, append_rows, evaluate, read_rows, train
from geopatch.evaluate.task import thinned
from geopatch.protocol import Protocol
from geopatch_lab.study.pack import read_pack, write_pack

SOURCES = {"mitdb": "annotated", "mitdb-detected": "detected"}
TARGETS = ("beat", "rhythm", "rate", "subject")
PROTOCOLS = {
    "beat": ("strict-cross-record", "standard"),
    "rhythm": ("strict-cross-record", "standard"),
    "rate": ("strict-cross-record", "standard"),
    "subject": ("strict-nonoverlap", "standard"),
}
TRAIN_PER_RECORD, TEST_PER_RECORD = 300, 200
SHARES = {"with": None, "without": 0.0}


def prepare(root: Path, packs: Path) -> None:
    """Both sides of MITDB, thinned, with annotated and with detected beats as anchors."""
    from geopatch.data import catalog
    from geopatch.data.collection import WindowSplit
    from geopatch.data.recording import WindowConfig

    packs.mkdir(parents=True, exist_ok=True)
    for name, anchors in SOURCES.items():
        split = catalog.windows("mitdb", root, WindowConfig(anchors=anchors), download=None)
        assert split.train is not None
        sides = thinned(split.test, TEST_PER_RECORD), thinned(split.train, TRAIN_PER_RECORD)
        write_pack(packs / f"{name}.npz", WindowSplit(*sides), anchors)
        print(f"{name}: {len(sides[1])} windows train, {len(sides[0])} test", flush=True)


def measure(arguments: argparse.Namespace, seed: int) -> None:
    done = {(row.data, row.target, row.preset, row.seed) for row in rows_of(arguments.rows)}
    for data in arguments.sets:
        for target in arguments.targets:
            for preset in arguments.presets:
                for name, share in SHARES.items():
                    label = f"{preset}, {name} relative tempo"
                    if (data, target, label, seed) not in done:
                        fit_and_search(arguments, data, target, preset, label, share, seed)


def fit_and_search(
    arguments: argparse.Namespace, data: str, target: str, preset: str, label: str, share: float | None, seed: int
) -> None:
    task = read_pack(arguments.packs, data, target)
    assert task.train is not None
    model = replace(PRESETS[preset], clock_share=share, amplitude="zscore")
    fitted = train(task.train, GeoPatch(model=model, random_state=seed, device=arguments.device), label)
    config = fitted.estimator.encoder_.config
    print(f"{data} {target}, seed {seed}: {label}: share {config.clock_share}, {config.rhythm}", flush=True)
    for protocol in PROTOCOLS[target]:
        rows = evaluate(fitted, task.test, target=target, protocol=Protocol(protocol))
        rows = [replace(row, data=data) for row in rows]
        append_rows(arguments.rows, rows)
        for row in rows:
            print(f"  {protocol}, {row.stress}, {row.scorer}: {scores_text(row)}", flush=True)


def scores_text(row: Row) -> str:
    classes = ", ".join(f"{name} {one['recall@1']:.3f}" for name, one in row.per_class.items())
    return f"R@1 {row.scores['recall@1']:.3f}, class mean {class_mean(row):.3f} ({classes})"


def class_mean(row: Row) -> float:
    return float(np.mean([one["recall@1"] for one in row.per_class.values()]))


def rows_of(path: Path) -> list[Row]:
    return read_rows(path) if path.is_file() else []


def table(rows: list[Row]) -> str:
    """Means and spreads over seeds: R@1, and the mean over classes."""
    lines = [
        "| anchors, target, protocol | fit | scorer, queries | R@1 | class mean | S |",
        "|---|---|---|---|---|---|",
    ]
    keys = dict.fromkeys((row.data, row.target, row.protocol, row.preset, row.scorer, row.stress) for row in rows)
    for key in keys:
        data, target, protocol, preset, scorer, stress = key
        own = [row for row in rows if (row.data, row.target, row.protocol, row.preset, row.scorer, row.stress) == key]
        cells = [
            spread([row.scores["recall@1"] for row in own]),
            spread([class_mean(row) for row in own]),
            spread([row.per_class["S"]["recall@1"] for row in own]) if target == "beat" else "",
        ]
        name = f"{SOURCES[data]}, {target}, {protocol}"
        lines.append(f"| {name} | {preset} | {scorer}, {stress} | {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    return f"{mean(values):.3f}" + (f" +- {stdev(values):.3f}" if len(values) > 1 else "")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", type=Path)
    parser.add_argument("--packs", type=Path, default=Path("packs"))
    parser.add_argument("--rows", type=Path, default=Path("results/tempo.jsonl"))
    parser.add_argument("--sets", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--presets", nargs="+", default=["instant"], choices=list(PRESETS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if arguments.prepare:
        prepare(arguments.prepare, arguments.packs)
    elif arguments.table:
        print(table(rows_of(arguments.rows)))
    else:
        for seed in range(arguments.seeds):
            measure(arguments, seed)
