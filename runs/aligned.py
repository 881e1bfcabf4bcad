"""Aligned against MaxSim, each alone and fused with the cosine: a table and a figure from the rows of distortions.py.

    python runs/distortions.py instant default --packs packs --rows rows.jsonl --seeds 3 \
        --scorers fused fused-aligned maxsim aligned cosine --device cuda --workers 8
    python runs/aligned.py results/distortions.jsonl.gz --figure docs/figures/aligned

    python runs/aligned.py --path docs/path

Every set counts the same, however many seeds it has; intervals are over sets (bootstrap).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

import numpy as np
from distortions import STRESSES

from geopatch import Gallery, GeoPatch
from geopatch.data.sample import basic_motions
from geopatch.evaluate import Row, read_rows
from geopatch.plot.alignment import alignment
from geopatch.plot.canvas import RECORDED, RIGHT, pyplot, save, save_all

PAIRS = (("aligned", "maxsim"), ("fused-aligned", "fused"))
SCORERS = tuple(scorer for pair in PAIRS for scorer in pair)
NINE = "mean of nine"
DRAWS = 10_000
Cell = dict[str, float]  # a number for each set


def cell(rows: Sequence[Row], preset: str, scorer: str, stress: str, metric: str) -> Cell:
    """The mean over seeds for each set; of the nine distortions together, the mean of all."""
    wanted = [one for one in STRESSES if one != "clean"] if stress == NINE else [stress]
    by_set: dict[str, list[float]] = {}
    for row in rows:
        if (row.preset, row.scorer) == (preset, scorer) and row.stress in wanted:
            by_set.setdefault(row.data, []).append(row.scores[metric])
    return {data: mean(values) for data, values in by_set.items()}


def differences(rows: Sequence[Row], preset: str, pair: tuple[str, str], stress: str, metric: str) -> list[float]:
    """First less second in points, for each set that has both."""
    first, second = (cell(rows, preset, scorer, stress, metric) for scorer in pair)
    return [100 * (first[data] - second[data]) for data in sorted(first.keys() & second.keys())]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Of the mean over sets, 95 %."""
    drawn = np.random.default_rng(0).choice(np.asarray(values), size=(DRAWS, len(values))).mean(1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(low), float(high)


def table(rows: Sequence[Row], metric: str) -> str:
    """A line for each fit and pair: both means, their difference with its interval, won, level and lost sets."""
    lines = [
        f"| {metric} | sets | " + " | ".join(f"{stress}: first, second, points" for stress in ("clean", NINE)) + " |",
        "|---|---|---|---|",
    ]
    for preset in dict.fromkeys(row.preset for row in rows):
        for pair in PAIRS:
            cells = [_compared(rows, preset, pair, stress, metric) for stress in ("clean", NINE)]
            sets = len(differences(rows, preset, pair, "clean", metric))
            lines.append(f"| {preset}: {pair[0]} less {pair[1]} | {sets} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _compared(rows: Sequence[Row], preset: str, pair: tuple[str, str], stress: str, metric: str) -> str:
    values = differences(rows, preset, pair, stress, metric)
    if not values:
        return "-"
    means = ", ".join(f"{mean(cell(rows, preset, scorer, stress, metric).values()):.3f}" for scorer in pair)
    low, high = interval(values)
    counts = [sum(sign(value) for value in values) for sign in (_won, _level, _lost)]
    return f"{means}, {mean(values):+.2f} [{low:+.2f}, {high:+.2f}], {counts[0]} won {counts[1]} level {counts[2]} lost"


def _won(points: float) -> bool:
    return points > 0.05


def _lost(points: float) -> bool:
    return points < -0.05


def _level(points: float) -> bool:
    return not _won(points) and not _lost(points)


def draw(rows: Sequence[Row], path: Path) -> None:
    """A dot for each set and fit, a bar for their mean, under each distortion."""
    figure, panels = pyplot().subplots(len(PAIRS), 1, figsize=(9, 5.6), sharex=True, sharey=True, layout="constrained")
    presets = list(dict.fromkeys(row.preset for row in rows))
    for axes, pair in zip(panels, PAIRS, strict=True):
        for place, stress in enumerate(STRESSES):
            values = [value for preset in presets for value in differences(rows, preset, pair, stress, "recall@1")]
            if not values:
                continue
            spread = place + np.random.default_rng(0).uniform(-0.18, 0.18, len(values))
            axes.plot(spread, values, "o", color=RECORDED, markersize=4, alpha=0.6, linewidth=0)
            axes.hlines(mean(values), place - 0.3, place + 0.3, color=RIGHT, linewidth=2.5)
        axes.axhline(0, color="black", linewidth=0.6)
        axes.set_ylabel("R@1, points")
        axes.set_title(f"{pair[0]} less {pair[1]}", loc="left", fontsize=11)
        axes.grid(axis="y", alpha=0.3)
    panels[-1].set_xticks(range(len(STRESSES)), STRESSES, rotation=30, ha="right")
    save_all(figure, path)


def draw_path(path: Path) -> None:
    """A stroke of the built-in sample, found without labels, with the path that explains its score."""
    train, test = basic_motions()
    assert train.labels is not None
    query = [signal for signal, label in zip(train.signals, train.labels, strict=True) if label == "Badminton"][2]
    with TemporaryDirectory() as folder, Gallery.create(f"{folder}/gallery", GeoPatch().fit(test.signals)) as gallery:
        gallery.add(test.signals)
        hit = gallery.search(query, 1, scorer="fused-aligned", shortlist="tokens")[0]
        save(alignment(query, hit), path.with_suffix(".png"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", type=Path)
    parser.add_argument("--figure", type=Path, help="where to draw, without an ending")
    parser.add_argument("--path", type=Path, help="draw a hit of the built-in sample with its path, without an ending")
    arguments = parser.parse_args()
    if arguments.path is not None:
        draw_path(arguments.path)
        return
    rows = [row for path in arguments.rows for row in read_rows(path) if row.scorer in SCORERS]
    for metric in ("recall@1", "map"):
        print(table(rows, metric), end="\n\n")
    if arguments.figure is not None:
        draw(rows, arguments.figure)


if __name__ == "__main__":
    main()
