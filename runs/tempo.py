"""Relative tempo: with it and without, by annotated and by detected anchors, across patients and under noise.

A machine that has the databases packs their windows with their anchors; one with torch, numpy, safetensors and
scikit-learn measures. A run that was stopped goes on where it was; `--part 2/8` does every eighth job from the second.

    python runs/tempo.py --prepare data --packs packs
    python runs/tempo.py --packs packs --rows results/tempo.jsonl.gz --patients results/tempo-patients.jsonl --seeds 3
    python runs/tempo.py --rows results/tempo.jsonl.gz --table
    python runs/tempo.py --patients results/tempo-patients.jsonl --intervals
    python runs/tempo.py --draw data

MITDB: trained on the DS1 patients, whose labels and records choose what counts; measured on those of DS2. `without` is
the same fit with clock_share=0; the learned half alone has relative tempo as a descriptor of its patches. NSTDB: noisy
windows of two patients look for their patient among clean windows of 24, none of whom trained. ARCTIC: onsets of
utterances. Archive sets with a period: peaks of the dominant period of each series.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.config import DESCRIPTORS, PRESETS, RHYTHM, ModelConfig
from geopatch.data.collection import Collection, WindowSet, WindowSplit
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Row, append_rows, evaluate, read_rows, train
from geopatch.evaluate.retrieval import Trained
from geopatch.evaluate.task import thinned
from geopatch.protocol import Protocol, places
from geopatch.rhythm import rhythm
from geopatch_lab.study.pack import BAND_HZ, UNDER_NOISE, load, picked, read_pack, write_pack
from geopatch_lab.study.sets import FULL

WITH, WITHOUT = "with relative tempo", "without relative tempo"
ACROSS, NEAR, ANY = "strict-cross-record", "strict-nonoverlap", "standard"
SETS = {  # what is searched: anchors, and targets with their protocols
    "mitdb": ("annotated", {"beat": (ACROSS, ANY), "rhythm": (ACROSS, ANY), "rate": (ACROSS, ANY), "subject": (NEAR,)}),
    "mitdb-detected": ("detected", {"beat": (ACROSS, ANY), "rhythm": (ACROSS, ANY), "rate": (ACROSS, ANY)}),
    "nstdb-detected": ("detected", {"subject": (NEAR,)}),
    "arctic": ("onsets", {"prompt": (ANY,), "speaker": (ANY,)}),
    "AbnormalHeartbeat": ("peaks", {"class": (ANY,)}),
    "AtrialFibrillation": ("peaks", {"class": (ANY,)}),
    "Epilepsy": ("peaks", {"class": (ANY,)}),
}
ECG = ("mitdb", "mitdb-detected")
FITS: dict[str, ModelConfig] = {
    "instant": PRESETS["instant"],
    "default": PRESETS["default"],
    "learned": replace(PRESETS["default"], halves=("learned",)),
}
TRAIN_PER_RECORD, TEST_PER_RECORD = 300, 200
NOISE_STARTS_S, NOISE_LASTS_S = 300, 120  # clean and noisy in turn
NOISES = {"e24": 24, "e18": 18, "e12": 12, "e06": 6, "e00": 0, "e_6": -6}  # record, dB
RECORD, BEATS, REACH_S = "202", {"normal": 525.0, "supraventricular": 1123.0, "ventricular": 227.0}, 6.0
CHUNK, DRAWS = 512, 2000


@dataclass(frozen=True)
class Job:
    """A fit and the searches that measure it."""

    data: str
    target: str
    fit: str
    tempo: str
    seed: int

    @property
    def label(self) -> str:
        return f"{self.fit}, {self.tempo}"

    @property
    def model(self) -> ModelConfig:
        model = FITS[self.fit]
        if self.data in (*ECG, "nstdb-detected"):
            model = replace(model, amplitude="zscore")
        if self.tempo == WITHOUT:
            return replace(model, clock_share=0.0)
        return model if model.has_kernels else replace(model, descriptors=(*DESCRIPTORS, "tempo"))


def prepare(root: Path, packs: Path, sets: list[str]) -> None:
    """Both sides of each set, thinned, with their anchors."""
    from geopatch.data import catalog
    from geopatch.data.anchors import detect_anchors
    from geopatch.data.recording import WindowConfig

    packs.mkdir(parents=True, exist_ok=True)
    for name in sets:
        anchors = SETS[name][0]
        if name in ECG:
            split = catalog.windows("mitdb", root, WindowConfig(anchors=anchors), download=None)
            assert split.train is not None
            split = WindowSplit(thinned(split.test, TEST_PER_RECORD), thinned(split.train, TRAIN_PER_RECORD))
        elif name == "nstdb-detected":
            split = noise_split(root)
        else:
            bare = load(name, root, FULL)
            assert bare.train is not None
            sides = [
                replace(
                    side, signals=tuple(replace(one, anchors=detect_anchors(one).trusted()) for one in side.signals)
                )
                for side in (bare.test, bare.train)
            ]
            split = WindowSplit(*sides)
        write_pack(packs / f"{name}.npz", split, anchors)
        print(f"{name}: {len(split.test)} windows", flush=True)


def noise_split(root: Path) -> WindowSplit:
    """Trains: DS1 without the two patients. Is searched: clean windows of 24 patients; asks: noisy ones of two."""
    from geopatch.data import catalog
    from geopatch.data.recording import WindowConfig

    config = WindowConfig(anchors="detected", band_hz=BAND_HZ)
    mitdb, nstdb = (catalog.windows(name, root, config, download=None) for name in ("mitdb", "nstdb"))
    assert mitdb.train is not None
    patients = thinned(mitdb.train, TRAIN_PER_RECORD)
    is_other = np.asarray([signal.record not in UNDER_NOISE for signal in patients.signals])
    clean = thinned(picked(patients, np.flatnonzero(~is_other)), TEST_PER_RECORD)
    parts = [thinned(mitdb.test, TEST_PER_RECORD), clean]
    for record in NOISES:
        is_asked = [is_noisy(signal.record, signal.start_s, record) for signal in nstdb.test.signals]
        parts.append(thinned(picked(nstdb.test, np.flatnonzero(is_asked)), TEST_PER_RECORD))
    signals = tuple(signal for part in parts for signal in part.signals)
    subjects = np.concatenate([part.targets["subject"] for part in parts])
    test = WindowSet("nstdb-detected", signals, {"subject": subjects})
    own = picked(patients, np.flatnonzero(is_other))
    return WindowSplit(test, replace(own, targets={"subject": own.targets["subject"]}))


def is_noisy(record: str, start_s: float, noise: str) -> bool:
    """Whether a window of this noise lies whole in a stretch that has it."""
    into = (start_s - NOISE_STARTS_S) % (2 * NOISE_LASTS_S)
    return record.endswith(noise) and start_s >= NOISE_STARTS_S and into + 2 <= NOISE_LASTS_S


def jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    """Without relative tempo, anchors make no difference: detected beats are measured with it alone."""
    for data in arguments.sets:
        for target in SETS[data][1]:
            for fit in arguments.fits:
                for tempo in (WITH, WITHOUT):
                    for seed in range(arguments.seeds):
                        if not (data == "mitdb-detected" and (tempo == WITHOUT or fit == "learned")):
                            yield Job(data, target, fit, tempo, seed)


def measure(job: Job, arguments: argparse.Namespace) -> None:
    task = read_pack(arguments.packs, job.data, job.target)
    assert task.train is not None
    fitted = train(task.train, GeoPatch(model=job.model, random_state=job.seed, device=arguments.device), job.label)
    config = fitted.estimator.encoder_.config
    turned = f", {config.rhythm_directions} directions" if config.rhythm_directions else ""
    print(f"{job}: share {config.clock_share}, {', '.join(config.rhythm)}{turned}", flush=True)
    rows = noise_rows(fitted, task.test) if job.data == "nstdb-detected" else search_rows(fitted, task.test, job)
    append_rows(arguments.rows, rows)
    for row in rows:
        print(f"  {row.data}, {row.protocol}, {row.stress}, {row.scorer}: {scores_text(row)}", flush=True)
    if job.data in ECG:
        protocol = SETS[job.data][1][job.target][0]
        line = {**row_key(rows[0]), "protocol": protocol, "records": by_record(fitted, task.test, Protocol(protocol))}
        with arguments.patients.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def row_key(row: Row) -> dict[str, Any]:
    names = ("data", "target", "preset", "seed", "config_digest", "data_digest", "versions")
    return {name: getattr(row, name) for name in names}


def search_rows(fitted: Trained, test: Collection, job: Job) -> list[Row]:
    first, *others = SETS[job.data][1][job.target]
    rows = evaluate(fitted, test, target=job.target, protocol=Protocol(first))
    for name in others if job.fit != "learned" else ():
        rows += evaluate(fitted, test, target=job.target, protocol=Protocol(name), stresses=("clean",))
    return [replace(row, data=job.data) for row in rows]


def noise_rows(fitted: Trained, test: Collection) -> list[Row]:
    """The curve over noise: queries on the timeline of the clean record, so that their own stretch can be left out."""
    noisy = np.asarray([next((noise for noise in NOISES if one.record.endswith(noise)), "") for one in test.signals])
    gallery = part(test, noisy == "", "clean windows of 24 patients", "")
    asked = np.isin([one.record for one in test.signals], UNDER_NOISE)
    queries = [part(test, asked, "nstdb, no noise", "clean ")]
    queries += [part(test, noisy == noise, f"nstdb, {snr} dB", "") for noise, snr in NOISES.items()]
    how: dict[str, Any] = {"gallery": gallery, "target": "subject", "protocol": Protocol(NEAR), "stresses": ("clean",)}
    return [row for one in queries for row in evaluate(fitted, one, **how)]


def part(test: Collection, chosen: npt.NDArray[np.bool_], name: str, prefix: str) -> Collection:
    assert test.labels is not None
    signals = [
        replace(test.signals[n], record=test.signals[n].record[:3], id=f"{prefix}{test.signals[n].id}")
        for n in np.flatnonzero(chosen)
    ]
    return Collection(name, tuple(signals), test.labels[chosen])


def by_record(fitted: Trained, test: Collection, protocol: Protocol) -> dict[str, dict[str, list[int]]]:
    """Of each record and class: first hits by cosine that are right, and queries that have a right candidate."""
    assert test.labels is not None
    vectors, where = fitted.estimator.transform(test.signals), places(test.signals)
    counts: dict[str, dict[str, list[int]]] = {}
    for start in range(0, len(vectors), CHUNK):
        rows = slice(start, start + CHUNK)
        near = where[rows]
        cosine = np.where(protocol.candidates(near, where), vectors[rows] @ vectors.T, -np.inf)
        right = protocol.relevant(near, where, test.labels[rows], test.labels)
        for n, (first, answerable) in enumerate(zip(cosine.argmax(1), right.any(1), strict=True)):
            if answerable:
                own = counts.setdefault(test.signals[start + n].record, {})
                cell = own.setdefault(str(test.labels[start + n]), [0, 0])
                cell[0] += bool(right[n, first])
                cell[1] += 1
    return counts


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
    return row.scores.get("class_mean_recall@1", row.scores["recall@1"])


def rows_of(path: Path) -> list[Row]:
    return read_rows(path) if path.is_file() else []


def intervals(path: Path) -> str:
    """What relative tempo adds to R@1 by cosine, with 95 % intervals: patients drawn again, seeds as they are."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    table = [
        "| anchors, target, protocol | fit | seeds | R@1 | over patients | mean over classes | over patients |",
        "|---|---|---|---|---|---|---|",
    ]
    for data, target, fit in dict.fromkeys(
        (line["data"], line["target"], line["preset"].partition(",")[0]) for line in lines
    ):
        sides = [
            [line for line in lines if line["target"] == target and line["data"] == of and line["preset"] == preset]
            for of, preset in ((data, f"{fit}, {WITH}"), ("mitdb", f"{fit}, {WITHOUT}"))
        ]
        cells = [f"{SETS[data][0]}, {target}, {sides[0][0]['protocol']}", fit, str(len(sides[0]))]
        for by_class in (False, True):
            low, high = bootstrap(sides, by_class=by_class)
            values = [np.mean([recall(line["records"], None, by_class=by_class) for line in side]) for side in sides]
            cells += [f"{values[1]:.3f} -> {values[0]:.3f}", f"{values[0] - values[1]:+.3f} [{low:+.3f}, {high:+.3f}]"]
        table.append(f"| {' | '.join(cells)} |")
    return "\n".join(table)


def bootstrap(sides: list[list[dict[str, Any]]], *, by_class: bool) -> tuple[float, float]:
    random, records = np.random.default_rng(0), sorted(sides[0][0]["records"])
    gains = []
    for _ in range(DRAWS):
        drawn = random.choice(records, len(records))
        both = [mean(recall(line["records"], drawn, by_class=by_class) for line in side) for side in sides]
        gains.append(both[0] - both[1])
    low, high = np.quantile(gains, (0.025, 0.975))
    return float(low), float(high)


def recall(counts: dict[str, dict[str, list[int]]], records: Any, *, by_class: bool) -> float:
    """R@1 over these records, each as often as it is named."""
    cells = [
        (label, *cell) for record in (counts if records is None else records) for label, cell in counts[record].items()
    ]
    if not by_class:
        return sum(hits for _, hits, _ in cells) / sum(queries for _, _, queries in cells)
    labels = {label for label, _, _ in cells}
    return mean(
        sum(hits for own, hits, _ in cells if own == label) / sum(queries for own, _, queries in cells if own == label)
        for label in labels
    )


def table(rows: list[Row]) -> str:
    """Means and spreads over seeds: R@1, and the mean over classes."""
    lines = [
        "| set, target, protocol | fit | scorer, queries | seeds | R@1 | class mean | S |",
        "|---|---|---|---|---|---|---|",
    ]
    keys = dict.fromkeys((row.data, row.target, row.protocol, row.preset, row.scorer, row.stress) for row in rows)
    for key in sorted(keys):
        data, target, protocol, preset, scorer, stress = key
        own = [row for row in rows if (row.data, row.target, row.protocol, row.preset, row.scorer, row.stress) == key]
        cells = [
            str(len(own)),
            spread([row.scores["recall@1"] for row in own]),
            spread([class_mean(row) for row in own]),
            spread([row.per_class["S"]["recall@1"] for row in own]) if target == "beat" else "",
        ]
        lines.append(f"| {data}, {target}, {protocol} | {preset} | {scorer}, {stress} | {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    return f"{mean(values):.3f}" + (f" +- {stdev(values):.3f}" if len(values) > 1 else "")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", type=Path)
    parser.add_argument("--packs", type=Path, default=Path("packs"))
    parser.add_argument("--rows", type=Path, default=Path("results/tempo.jsonl.gz"))
    parser.add_argument("--patients", type=Path, default=Path("results/tempo-patients.jsonl"))
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--fits", nargs="+", default=list(FITS), choices=list(FITS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--draw", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--intervals", action="store_true")
    arguments = parser.parse_args()
    if arguments.prepare:
        prepare(arguments.prepare, arguments.packs, arguments.sets)
    elif arguments.draw:
        draw(arguments.draw, Path("docs/tempo.png"))
    elif arguments.table:
        print(table(rows_of(arguments.rows)))
    elif arguments.intervals:
        print(intervals(arguments.patients))
    else:
        done = {(row.data.partition(",")[0], row.target, row.preset, row.seed) for row in rows_of(arguments.rows)}
        first, every = map(int, arguments.part.split("/"))
        for number, job in enumerate(jobs(arguments)):
            name = job.data.removesuffix("-detected") if job.data.startswith("nstdb") else job.data
            if number % every == first - 1 and (name, job.target, job.label, job.seed) not in done:
                measure(job, arguments)
