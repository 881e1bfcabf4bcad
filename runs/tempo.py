"""Relative tempo: MITDB across patients with it and without, by annotated and by detected beats.

A machine that has the database packs its windows with their anchors; one with torch, numpy, safetensors and
scikit-learn measures. A run that was stopped goes on where it was.

    python runs/tempo.py --prepare data --packs packs
    python runs/tempo.py --packs packs --rows results/tempo.jsonl.gz --seeds 3 --presets instant --device cpu
    python runs/tempo.py --packs packs --rows results/tempo.jsonl.gz --seeds 3 --presets default --device cuda
    python runs/tempo.py --rows results/tempo.jsonl.gz --table
    python runs/tempo.py --draw data

Trained on the DS1 patients, whose labels and records choose what counts; measured on those of DS2. `without` is the
same fit with clock_share=0.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from geopatch.config import PRESETS, RHYTHM
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Row, append_rows, evaluate, read_rows, train
from geopatch.evaluate.task import thinned
from geopatch.protocol import Protocol
from geopatch.rhythm import rhythm
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
RECORD, BEATS, REACH_S = "202", {"normal": 525.0, "supraventricular": 1123.0, "ventricular": 227.0}, 6.0
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


def draw(root: Path, path: Path) -> None:
    """Three windows of one patient, with what their clock says above each."""
    from geopatch.data.physionet import read_wfdb
    from geopatch.plot.canvas import pyplot, save, tidy

    signal = read_wfdb(root / "mitdb" / RECORD).anchored("annotated").signal.at_rate(128.0)
    figure, axes = pyplot().subplots(6, 1, figsize=(9, 8), sharex=True, height_ratios=[1, 2] * 3)
    for row, (beat, start_s) in enumerate(BEATS.items()):
        above, below = axes[2 * row], axes[2 * row + 1]
        window = signal.window(round(start_s * 128), round((start_s + 2) * 128))
        assert window.anchors is not None
        start, stop = window.anchors[:-1] / 128, window.anchors[1:] / 128
        columns = rhythm([window.anchors], [window.length], 8)[0]
        relative = np.log2(np.diff(window.anchors)) - columns[RHYTHM.index("surroundings")] / np.log(2)
        own = (stop >= 0) & (stop < 2)
        for colour, chosen in (("0.75", ~own), ("C3", own)):
            above.bar(
                start[chosen], relative[chosen], (stop - start)[chosen], align="edge", color=colour, edgecolor="w"
            )
        above.axhline(0, color="0.4", linewidth=0.8)
        numbers = ", ".join(f"{name} {columns[RHYTHM.index(name)]:+.2f}" for name in ("shortest", "fall", "rise"))
        above.set(ylim=(-1.3, 0.9), yticks=[-1, 0], yticklabels=["half", "median"])
        above.set_title(f"{beat}: {numbers}", fontsize=9, loc="left")
        first, last = round((start_s - REACH_S) * 128), round((start_s + 2 + REACH_S) * 128)
        time_s = np.arange(first, last) / 128 - start_s
        below.axvspan(0, 2, color="0.93")
        below.plot(time_s, signal.values[first:last, 0], color="0.6", linewidth=0.7)
        inside = (time_s >= 0) & (time_s < 2)
        below.plot(time_s[inside], signal.values[first:last, 0][inside], color="C0", linewidth=1.0)
        below.plot(window.anchors / 128, np.full(len(window.anchors), signal.values[first:last, 0].min()), "k|", ms=5)
        below.set(ylabel="mV", xlim=(-REACH_S, 2 + REACH_S))
        tidy(above)
        tidy(below)
    axes[-1].set_xlabel("seconds from the start of the window (grey: the window; below: anchors)", fontsize=9)
    figure.tight_layout()
    save(figure, path)


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
    parser.add_argument("--rows", type=Path, default=Path("results/tempo.jsonl.gz"))
    parser.add_argument("--sets", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--presets", nargs="+", default=["instant"], choices=list(PRESETS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--draw", type=Path)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if arguments.prepare:
        prepare(arguments.prepare, arguments.packs)
    elif arguments.draw:
        draw(arguments.draw, Path("docs/tempo.png"))
    elif arguments.table:
        print(table(rows_of(arguments.rows)))
    else:
        for seed in range(arguments.seeds):
            measure(arguments, seed)
