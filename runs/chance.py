"""Is `chance` calibrated? Queries from sets that have nothing to do with the gallery, searched as anybody would.

python runs/chance.py measure --data DATA/ucr_pool --out results/chance.jsonl [--half report] [--part 0/1]
python runs/chance.py draw --rows results/chance.jsonl --out docs/figures/chance

Galleries hold one set, three or eight sets; queries are windows of sets of other families, all resampled to 128 samples
and brought to mean 0 and spread 1, so that neither length nor amplitude gives them away. Choices were made on the half
`development` of the sets; the half `report`, of other families, is what the figure shows.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch import Gallery, GeoPatch
from geopatch.plot import save_all
from geopatch.scoring import SCORERS
from geopatch.search.options import SearchOptions
from geopatch.search.query import encode_queries
from geopatch.search.run import search_batch
from geopatch_lab.plot.chance import THRESHOLDS, calibration

Values = npt.NDArray[np.float32]
SAMPLES, WINDOWS, QUERIES, OWN, DTW_QUERIES = 128, 1000, 600, 60, 100
SIZES = (1,) * 8 + (3,) * 3 + (8,) * 3  # sets in a gallery
LEAST = 150  # windows of a set that is a gallery of its own
HALVES = ("development", "report")
# Sets with one of these in their name, or of one line, show the same kind of thing.
PARTS = ("Phalan", "GunPoint", "Freezer", "DodgerLoop", "EOG", "InsectEPG", "Pig", "Sony", "Toe", "Worms")
ALIKE = (
    "Chinatown MelbournePedestrian",
    "Computers ElectricDevices LargeKitchenAppliances SmallKitchenAppliances RefrigerationDevices ScreenType "
    "HouseTwenty ACSF1",
    "Beef Coffee Ham Meat OliveOil Strawberry Wine EthanolLevel",
    "BME UMD",
    "ItalyPowerDemand PowerCons",
    "ArrowHead BeetleFly BirdChicken Car DiatomSizeReduction Fish Herring Plane MedicalImages",
)

# The sets that choices have seen; no other set is of one of their families.
DEVELOPMENT = [
    "BME",
    "Beef",
    "Chinatown",
    "Coffee",
    "DodgerLoopDay",
    "DodgerLoopGame",
    "DodgerLoopWeekend",
    "EthanolLevel",
    "FreezerRegularTrain",
    "FreezerSmallTrain",
    "GunPointAgeSpan",
    "GunPointMaleVersusFemale",
    "GunPointOldVersusYoung",
    "Ham",
    "ItalyPowerDemand",
    "Meat",
    "MelbournePedestrian",
    "MoteStrain",
    "OliveOil",
    "PowerCons",
    "Rock",
    "ShapeletSim",
    "SmoothSubspace",
    "SonyAIBORobotSurface1",
    "SonyAIBORobotSurface2",
    "Strawberry",
    "SyntheticControl",
    "ToeSegmentation1",
    "ToeSegmentation2",
    "UMD",
    "Wine",
]


@dataclass(frozen=True, eq=False)
class Pool:
    """The sets of one half: windows (N, T) and their classes."""

    windows: dict[str, Values]
    classes: dict[str, npt.NDArray[Any]]


def family(name: str) -> str:
    group = next((part for part in PARTS if part in name), name)
    return next((line for line in ALIKE if name in line.split()), group)


def read_pool(folder: Path, half: str) -> Pool:
    names = sorted(path.stem for path in folder.glob("*.npz"))
    kept = [name for name in names if (name in DEVELOPMENT) == (half == "development")]
    both = {name: _read(folder / f"{name}.npz") for name in kept}
    return Pool({name: one[0] for name, one in both.items()}, {name: one[1] for name, one in both.items()})


def _read(path: Path, most: int = 400) -> tuple[Values, npt.NDArray[Any]]:
    with np.load(path) as file:
        windows = np.concatenate([file["X_train"], file["X_test"]])
        classes = np.concatenate([file["y_train"], file["y_test"]])
    chosen = np.random.default_rng(0).permutation(len(windows))[:most]
    return np.stack([_standard(window) for window in windows[chosen]]), classes[chosen]


def _standard(window: npt.NDArray[Any]) -> Values:
    known = np.flatnonzero(~np.isnan(window))
    values = np.interp(np.linspace(known[0], known[-1], SAMPLES), known, window[known])
    spread = values.std()
    standard: Values = ((values - values.mean()) / (spread if spread > 1e-9 else 1.0)).astype(np.float32)
    return standard


def galleries(pool: Pool) -> list[list[str]]:
    draw = np.random.default_rng(11)
    large = [name for name, windows in pool.windows.items() if len(windows) >= LEAST]
    single = iter(draw.permutation(large).tolist())
    return [[next(single)] if size == 1 else draw.permutation([*pool.windows])[:size].tolist() for size in SIZES]


def measure(pool: Pool, names: Sequence[str], number: int, preset: str, steps: int | None) -> Iterator[dict[str, Any]]:
    """A row for each scorer."""
    draw = np.random.default_rng(number)
    stored = np.concatenate([pool.windows[name] for name in names])
    classes = [f"{name}/{one}" for name in names for one in pool.classes[name]]
    order = draw.permutation(len(stored))[: WINDOWS + OWN]
    inside, own = order[OWN:], order[:OWN]
    families = {family(name) for name in names}
    others = [windows[:40] for name, windows in pool.windows.items() if family(name) not in families]
    unrelated = draw.permutation(np.concatenate(others))[:QUERIES]
    model = GeoPatch(preset=preset, max_steps=steps).fit(list(stored[inside]))
    with tempfile.TemporaryDirectory() as folder, Gallery.create(f"{folder}/gallery", model) as gallery:
        gallery.add(list(stored[inside]), metadata=[{"class": classes[n]} for n in inside])
        strangers, members = (encode_queries(gallery, list(some), model) for some in (unrelated, stored[own]))
        for scorer in SCORERS:
            some = slice(None, DTW_QUERIES if scorer == "dtw" else None)
            options, start = SearchOptions(k=50, scorer=scorer, windows=False), time.perf_counter()
            gallery.chances.measure(options, model)
            first_s, start = time.perf_counter() - start, time.perf_counter()
            hits = search_batch(gallery, strangers[some], options)
            search_ms = (time.perf_counter() - start) / len(hits) * 1000
            right = [
                listed[0].chance
                for listed, n in zip(search_batch(gallery, members, options), own, strict=True)
                if listed[0].metadata["class"] == classes[n]
            ]
            chances = np.asarray([[hit.chance for hit in listed] for listed in hits])  # (Q, 50), rising
            yield {
                "gallery": list(names),
                "windows": len(inside),
                "preset": preset,
                "scorer": scorer,
                "queries": len(hits),
                "thresholds": list(THRESHOLDS),
                "first": [int((chances[:, 0] <= limit).sum()) for limit in THRESHOLDS],
                "hits": [int((chances <= limit).sum()) for limit in THRESHOLDS],
                "right_queries": len(right),
                "right": [int((np.asarray(right) <= limit).sum()) for limit in THRESHOLDS],
                "null_s": round(first_s, 3),
                "search_ms": round(search_ms, 3),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    measuring, drawing = verbs.add_parser("measure"), verbs.add_parser("draw")
    measuring.add_argument("--data", type=Path, required=True)
    measuring.add_argument("--half", choices=HALVES, default="report")
    measuring.add_argument("--preset", default="instant")
    measuring.add_argument("--steps", type=int, help="training steps, for presets that are trained")
    measuring.add_argument("--part", default="0/1", help="every M-th gallery from the N-th on: N/M")
    drawing.add_argument("--rows", type=Path, required=True)
    for verb in (measuring, drawing):
        verb.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.verb == "draw":
        rows = [json.loads(line) for line in arguments.rows.read_text().splitlines()]
        save_all(calibration([row for row in rows if row["half"] == "report"]), arguments.out)
        return
    pool, (first, step) = read_pool(arguments.data, arguments.half), map(int, arguments.part.split("/"))
    for number, names in list(enumerate(galleries(pool)))[first::step]:
        with arguments.out.open("a") as file:
            for row in measure(pool, names, number, arguments.preset, arguments.steps):
                file.write(json.dumps({"half": arguments.half, **row}) + "\n")


if __name__ == "__main__":
    main()
