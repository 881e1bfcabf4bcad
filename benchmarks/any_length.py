"""Planted motifs of any length and speed: what is found, where, and how soon, beside a matrix-profile search and DTW.

Motifs of real signals (a beat pattern of MITDB, speech of ARCTIC, a gesture of UWave) are planted at random places of
hours of other signal: at speeds from 0.6 to 1.6, even or changing within a copy, with white noise, and at lengths from
a quarter of the window to eight windows. Recall is among as many hits as there are copies; errors of start and stop are
in lengths of the copy. Peers: stumpy's MASS at one and at eleven speeds, and subsequence DTW.

python benchmarks/any_length.py --data ../data --source gesture --hours 1 --out results/any-length.jsonl
python benchmarks/any_length.py --draw docs/figures/any-length --out results/any-length.jsonl
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

import geopatch
from geopatch.data import front_end
from geopatch.gallery import Gallery
from geopatch.signal import Signal

Values = npt.NDArray[np.float64]
LENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of motifs, in windows
SPEEDS = (0.6, 1.6)
UNEVEN = 0.4  # spread of the logarithm of the six speeds within a copy
RECORD_S = 600.0
SAME = 0.5  # of the shorter of hit and copy, that they share


@dataclass(frozen=True)
class Source:
    """A kind of signal: its rate, its window, and what motifs and the rest are made of."""

    name: str
    rate_hz: float
    window_s: float
    channels: tuple[str, ...]
    motifs: dict[float, Values]  # (T, C) by length in windows; no two of the same material
    others: Callable[[np.random.Generator], Iterator[Values]]
    longest: float = 2.0  # windows in the longest level; the shortest is as long as the shortest motif


@dataclass(frozen=True)
class Copy:
    record: int
    start_s: float
    stop_s: float


@dataclass(frozen=True, eq=False)
class Archive:
    """Recordings with planted motifs, by length."""

    signals: list[Signal]
    queries: dict[float, Signal]
    copies: dict[float, list[Copy]]


def gesture(data: Path) -> Source:
    from geopatch.data.archive import read_ts

    folder = data / "uea" / "UWaveGestureLibrary"
    sets = [read_ts(folder / f"UWaveGestureLibrary_{part}.ts") for part in ("TRAIN", "TEST")]
    series = [
        (signal.values.astype(float), str(label))
        for one in sets
        if one.labels is not None
        for signal, label in zip(one.signals, one.labels, strict=True)
    ]
    first = sorted({label for _, label in series})[:2]
    own = [values for values, label in series if label in first]
    rest = [values for values, label in series if label not in first]
    size = own[0].shape[0]  # one gesture lasts a window
    motifs = {
        length: liveliest(np.concatenate(own[12 * n : 12 * n + max(math.ceil(length), 1)]), round(length * size))
        for n, length in enumerate(LENGTHS)
    }

    def others(draw: np.random.Generator) -> Iterator[Values]:
        while True:
            values = rest[draw.integers(len(rest))]
            yield stretched(values, round(len(values) / draw.uniform(0.8, 1.25)))

    return Source("gesture", 100.0, size / 100.0, ("x", "y", "z"), motifs, others)


def ecg(data: Path) -> Source:
    from geopatch.data.wfdb_records import read_record

    def lead(name: str) -> Values:
        return read_record(data / "mitdb" / name).at_rate(128.0).signal.values[:, :1].astype(float)

    def pattern(name: str, length: float) -> Values:
        """From half a beat before a ventricular one on."""
        record = read_record(data / "mitdb" / name).at_rate(128.0)
        beats = record.beat_samples[record.beat_symbols == "V"]
        start = int(beats[np.argmax(beats > 60 * 128)]) - round(32 * min(2 * length, 1))
        return record.signal.values[start : start + round(256 * length), :1].astype(float)

    own = ("208", "119", "200", "233", "210", "221")
    motifs = {length: pattern(name, length) for length, name in zip(LENGTHS, own, strict=True)}
    names = sorted(path.stem for path in (data / "mitdb").glob("*.hea") if path.stem not in (*own, "102", "104"))

    def others(draw: np.random.Generator) -> Iterator[Values]:
        while True:
            for name in draw.permutation(names):
                yield lead(str(name))

    return Source("ecg", 128.0, 2.0, ("MLII",), motifs, others)


def speech(data: Path) -> Source:
    from geopatch.data.audio import AudioConfig, read_frames

    config = AudioConfig()
    voices = {one: sorted((data / "arctic" / f"cmu_us_{one}_arctic" / "wav").glob("*.*a*")) for one in ("bdl", "slt")}

    def frames(path: Path) -> Values:
        return read_frames(path, config).values.astype(float)

    motifs = {
        length: liveliest(
            np.concatenate([frames(path) for path in voices["slt"][6 * n : 6 * n + 6]]), round(150 * length)
        )
        for n, length in enumerate(LENGTHS)
    }

    def others(draw: np.random.Generator) -> Iterator[Values]:
        paths = [path for some in voices.values() for path in some[40:]]
        while True:
            for place in draw.permutation(len(paths)):
                yield frames(paths[place])

    return Source("speech", 100.0, 1.5, config.channels, motifs, others)


def walks(data: Path) -> Source:
    """Drawn by formula, as the folder that the tests index: three channels at 50 Hz, motifs of 0.7 to 60 s."""

    def event(draw: np.random.Generator, samples: int) -> Values:
        phase = np.linspace(0, 1, samples)
        waves = [np.sin(2 * np.pi * (turns * phase + draw.uniform())) for turns in draw.uniform(0.5, 5.0, 3)]
        shape: Values = np.sin(np.pi * phase[:, None]) ** 2 * np.stack(waves, axis=1) * draw.uniform(0.5, 1.5, 3)
        return shape

    def pattern(n: int, length_s: float) -> Values:
        """Several events one after the other, each of some seconds."""
        draw, count = np.random.default_rng([17, n]), max(round(length_s / 4), 1)
        return np.concatenate([event(draw, round(length_s * 50 / count)) for _ in range(count)])

    def others(draw: np.random.Generator) -> Iterator[Values]:
        while True:
            level = np.interp(np.linspace(0, 60, 30_000), np.arange(61), draw.normal(size=61))[:, None]
            values = 0.3 * level + 0.08 * draw.normal(size=(30_000, 3))
            for start in draw.integers(0, 29_000, 8):
                length = int(draw.integers(125, 333))
                values[start : start + length] += event(draw, length)
            yield values

    lengths = (0.175, 0.5, 1.0, 2.25, 3.75, 15.0)
    motifs = {length: pattern(n, 4 * length) for n, length in enumerate(lengths)}
    return Source("walks", 50.0, 4.0, ("x", "y", "z"), motifs, others, longest=4.0)


SOURCES = {"gesture": gesture, "ecg": ecg, "speech": speech, "walks": walks}


def stretched(values: Values, length: int) -> Values:
    at = np.linspace(0, len(values) - 1, length)
    return np.stack([np.interp(at, np.arange(len(values)), channel) for channel in values.T], axis=1)


def liveliest(values: Values, length: int) -> Values:
    """The part of so many samples that moves most: a flat piece is found by nobody."""
    moves = np.concatenate([[0.0], (np.diff(values, axis=0) ** 2).sum(1).cumsum()])
    start = int(np.argmax(moves[length - 1 :] - moves[: len(moves) - length + 1]))
    return values[start : start + length]


def warped(values: Values, speed: float, uneven: bool, draw: np.random.Generator) -> Values:
    """At a speed, which changes six times where it is uneven."""
    length = round(len(values) / speed)
    if not uneven:
        return stretched(values, length)
    speeds = np.exp(draw.normal(0, UNEVEN, 6))
    knots = np.concatenate([[0.0], np.cumsum(speeds)]) / speeds.sum() * (len(values) - 1)
    at = np.interp(np.linspace(0, 6, length), np.arange(7), knots)
    return np.stack([np.interp(at, np.arange(len(values)), channel) for channel in values.T], axis=1)


def archive(source: Source, hours: float, noise: float, uneven: bool, copies: int, seed: int) -> Archive:
    """Recordings of ten minutes with `copies` of the motif of each length."""
    draw = np.random.default_rng([seed, round(100 * noise), uneven])
    size, count = round(RECORD_S * source.rate_hz), max(round(hours * 3600 / RECORD_S), 1)
    parts, filled, stream = list[Values](), 0, source.others(draw)
    while filled < size * count:
        parts.append(next(stream))
        filled += len(parts[-1])
    records = np.concatenate(parts)[: size * count].reshape(count, size, -1)
    spread = records.std((0, 1))
    motifs = source.motifs
    free = [[(0, size)] for _ in range(count)]
    places: dict[float, list[Copy]] = {one: [] for one in motifs}
    for one in sorted(motifs, reverse=True):
        for _ in range(copies):
            values = warped(motifs[one], float(draw.uniform(*SPEEDS)), uneven, draw)
            record, start = _room(draw, free, len(values))
            there = records[record, start : start + len(values)]
            records[record, start : start + len(values)] = (
                values * draw.uniform(0.8, 1.25) + there.mean(0) - values.mean(0)
            )
            places[one].append(Copy(record, start / source.rate_hz, (start + len(values)) / source.rate_hz))
    records = records + noise * spread * draw.normal(size=records.shape)
    signals = [made_signal(source, values, f"record{n}") for n, values in enumerate(records)]
    queries = {one: made_signal(source, values, "query") for one, values in motifs.items()}
    return Archive(signals, queries, places)


def made_signal(source: Source, values: Values, id: str) -> Signal:
    return Signal(values.astype(np.float32), id, source.rate_hz, source.channels)


def _room(draw: np.random.Generator, free: list[list[tuple[int, int]]], length: int) -> tuple[int, int]:
    """A record and a start where nothing was planted yet."""
    gaps = [
        (r, n, b - a - length) for r, some in enumerate(free) for n, (a, b) in enumerate(some) if b - a > length + 2
    ]
    weights = np.asarray([gap[2] for gap in gaps], dtype=float)
    record, place, room = gaps[draw.choice(len(gaps), p=weights / weights.sum())]
    low, high = free[record].pop(place)
    start = low + 1 + int(draw.integers(room - 1))
    free[record] += [(low, start), (start + length, high)]
    return record, start


Hit = tuple[int, float, float]  # record, start and stop in seconds


def by_geopatch(gallery: Gallery, query: Signal, k: int, refined: bool = True) -> list[Hit]:
    hits = gallery.search(query, k=k, windows=False)
    names = ("start_s", "stop_s") if refined else ("window_start_s", "window_stop_s")
    return [(int(hit.record.removeprefix("record")), *(getattr(hit, name) for name in names)) for hit in hits]


def by_mass(signals: Sequence[Signal], query: Signal, k: int, speeds: Sequence[float]) -> list[Hit]:
    """The least z-normalised distances, over all channels, at the best of several speeds."""
    from stumpy.core import mass

    candidates = []
    for record, signal in enumerate(signals):
        values = signal.values.astype(np.float64)
        for speed in speeds:
            own = stretched(query.values.astype(np.float64), round(query.length / speed))
            squares = [mass(own[:, c], values[:, c]) ** 2 for c in range(values.shape[1]) if own[:, c].std() > 0]
            distance = np.sqrt(np.sum(squares, axis=0)) / math.sqrt(len(own))
            candidates += [(cost, record, start, len(own)) for cost, start in _minima(distance, len(own) // 2, k)]
    return _apart(candidates, k, query.clock_hz)


def _minima(distance: Values, zone: int, k: int) -> list[tuple[float, int]]:
    left, chosen = distance.copy(), []
    for _ in range(k):
        start = int(np.argmin(left))
        if not np.isfinite(left[start]):
            break
        chosen.append((float(left[start]), start))
        left[max(start - zone, 0) : start + zone + 1] = np.inf
    return chosen


def _apart(candidates: list[tuple[float, int, int, int]], k: int, rate_hz: float) -> list[Hit]:
    kept: list[Hit] = []
    for _, record, start, length in sorted(candidates):
        hit = (record, start / rate_hz, (start + length) / rate_hz)
        if all(_shared(hit, other) < SAME for other in kept):
            kept.append(hit)
            if len(kept) == k:
                break
    return kept


def by_dtw(signals: Sequence[Signal], query: Signal, k: int) -> list[Hit]:
    """Subsequence DTW of z-scored channels, without a band: the least cost for each end, over the query's length."""
    own = query.values.astype(np.float64)
    own = (own - own.mean(0)) / np.where(own.std(0) > 0, own.std(0), 1.0)
    candidates = []
    for record, signal in enumerate(signals):
        values = signal.values.astype(np.float64)
        values = (values - values.mean(0)) / np.where(values.std(0) > 0, values.std(0), 1.0)
        cost, begin = _subsequence_dtw(own, values)
        for one, stop in _minima(cost, len(own) // 2, k):
            candidates.append((one, record, int(begin[stop]), max(stop + 1 - int(begin[stop]), 1)))
    return _apart(candidates, k, query.clock_hz)


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _subsequence_dtw(query: Values, values: Values) -> tuple[Values, npt.NDArray[np.int64]]:
    rows, columns = len(query), len(values)
    cost, begin = np.full(rows, np.inf), np.zeros(rows, dtype=np.int64)
    ends, starts = np.empty(columns), np.empty(columns, dtype=np.int64)
    for t in range(columns):
        diagonal, diagonal_begin = 0.0, t
        for i in range(rows):
            here = 0.0
            for c in range(query.shape[1]):
                here += (query[i, c] - values[t, c]) ** 2
            left, left_begin = cost[i], begin[i]
            if i == 0:
                best, from_ = 0.0, t
            else:
                best, from_ = diagonal, diagonal_begin
                if left < best:
                    best, from_ = left, left_begin
                if cost[i - 1] < best:
                    best, from_ = cost[i - 1], begin[i - 1]
            diagonal, diagonal_begin = left, left_begin
            cost[i], begin[i] = best + here, from_
        ends[t], starts[t] = cost[rows - 1], begin[rows - 1]
    return ends, starts


def _shared(first: Hit, second: Hit) -> float:
    if first[0] != second[0]:
        return 0.0
    both = min(first[2], second[2]) - max(first[1], second[1])
    return max(both, 0.0) / min(first[2] - first[1], second[2] - second[1])


def judged(hits: Sequence[Hit], copies: Sequence[Copy]) -> dict[str, float]:
    """Recall, and median errors of start and stop of what was recalled."""
    errors = []
    for copy in copies:
        place = (copy.record, copy.start_s, copy.stop_s)
        near = [hit for hit in hits if _shared(hit, place) >= SAME]
        if near:
            best, length_s = max(near, key=lambda hit: _shared(hit, place)), copy.stop_s - copy.start_s
            errors.append((abs(best[1] - copy.start_s) / length_s, abs(best[2] - copy.stop_s) / length_s))
    start, stop = np.median(errors, axis=0) if errors else (math.nan, math.nan)
    places = [(copy.record, copy.start_s, copy.stop_s) for copy in copies]
    right = sum(any(_shared(hit, place) >= SAME for place in places) for hit in hits)
    precision = right / len(hits) if hits else 0.0
    return {
        "recall": len(errors) / len(copies),
        "precision": precision,
        "start_error": float(start),
        "stop_error": float(stop),
    }


@dataclass(frozen=True)
class Row:
    source: str
    hours: float
    noise: float
    uneven: bool
    length: float  # in windows
    method: str
    recall: float
    precision: float  # share of the hits that are copies
    start_error: float
    stop_error: float
    seconds: float
    cpu_s: float  # what it took of a processor: others may have been at work
    copies: int
    seed: int
    windows: int
    gallery_mb: float
    indexing_s: float
    indexing_cpu_s: float
    level_factor: float
    overlap: float
    version: str = geopatch.__version__
    machine: str = platform.machine()


def measure(source: Source, arguments: argparse.Namespace, noise: float, uneven: bool, scratch: Path) -> Iterator[Row]:
    made = archive(source, arguments.hours, noise, uneven, arguments.copies, arguments.seed)
    place, start, cpu = scratch / f"{source.name}-{noise}-{uneven}", time.perf_counter(), time.process_time()
    settings: dict[str, Any] = {"window_s": source.window_s, "overlap": arguments.overlap}
    if not arguments.default_levels:
        settings |= {"shortest_s": min(source.motifs) * source.window_s, "longest_s": source.longest * source.window_s}
    with geopatch.index(made.signals, place, **settings) as gallery:
        indexing_s, info = time.perf_counter() - start, gallery.info()
        size: dict[str, Any] = {
            "windows": info.windows,
            "gallery_mb": info.bytes / 1e6,
            "indexing_s": round(indexing_s, 1),
            "indexing_cpu_s": round(time.process_time() - cpu, 1),
        }
        assert gallery.front_end is not None
        config: dict[str, Any] = {"level_factor": front_end.LEVEL_FACTOR, "overlap": gallery.front_end.overlap}
        by_geopatch(gallery, made.queries[1.0], 3)  # loads the model, and compiles
        by_mass([one.window(0, 4 * made.queries[1.0].length) for one in made.signals[:1]], made.queries[1.0], 1, [1.0])
        by_dtw([one.window(0, 4 * made.queries[1.0].length) for one in made.signals[:1]], made.queries[1.0], 1)
        for length in arguments.lengths or source.motifs:
            for method, search in methods_of(gallery, made, length, arguments).items():
                begin, cpu = time.perf_counter(), time.process_time()
                hits = search()
                seconds, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
                setting: dict[str, Any] = {
                    "source": source.name,
                    "hours": arguments.hours,
                    "noise": noise,
                    "uneven": uneven,
                }
                scores: dict[str, Any] = judged(hits, made.copies[length])
                yield Row(
                    **setting,
                    length=length,
                    method=method,
                    **scores,
                    seconds=seconds,
                    cpu_s=cpu_s,
                    copies=arguments.copies,
                    seed=arguments.seed,
                    **size,
                    **config,
                )


def methods_of(
    gallery: Gallery, made: Archive, length: float, arguments: argparse.Namespace
) -> dict[str, Callable[[], list[Hit]]]:
    query, k, eleven = made.queries[length], arguments.hits or arguments.copies, np.geomspace(*SPEEDS, 11).tolist()
    own: dict[str, Callable[[], list[Hit]]] = {
        "geopatch": partial(by_geopatch, gallery, query, k),
        "geopatch, grid": partial(by_geopatch, gallery, query, k, refined=False),
    }
    if arguments.alone:
        return own
    return own | {
        "mass, one speed": partial(by_mass, made.signals, query, k, [1.0]),
        "mass, eleven speeds": partial(by_mass, made.signals, query, k, eleven),
        "dtw": partial(by_dtw, made.signals, query, k),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--source", choices=SOURCES, nargs="+", default=["gesture", "ecg", "speech"])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.2, 0.6])
    parser.add_argument("--speeds", choices=["even", "uneven"], nargs="+", default=["even", "uneven"])
    parser.add_argument("--lengths", type=float, nargs="+", help="of motifs, in windows")
    parser.add_argument("--hits", type=int, help="by default as many as copies")
    parser.add_argument("--overlap", type=float)
    parser.add_argument("--factor", type=float, default=front_end.LEVEL_FACTOR, help="between two levels")
    parser.add_argument("--default-levels", action="store_true", help="windows of one length, as without options")
    parser.add_argument("--alone", action="store_true", help="without the peers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a file of JSON lines to append to")
    parser.add_argument("--draw", type=Path, help="draw the rows that are there, and measure nothing")
    arguments = parser.parse_args()
    if arguments.draw is not None:
        draw(arguments.out, arguments.draw)
        return
    front_end.LEVEL_FACTOR = arguments.factor
    for name in arguments.source:
        source = SOURCES[name](arguments.data)
        for noise in arguments.noise:
            for speeds in arguments.speeds:
                with tempfile.TemporaryDirectory() as scratch:
                    for row in measure(source, arguments, noise, speeds == "uneven", Path(scratch)):
                        report(row, arguments.out)


def draw(rows: Path, stem: Path) -> None:
    """Recall over the length of the query, a panel for each archive that the peers searched too."""
    from geopatch.plot.canvas import FAINT, QUERY, RECORDED, RIGHT, WRONG, pyplot, save_all, tidy

    styles = {"geopatch": (RIGHT, "o"), "mass, eleven speeds": (WRONG, "s"), "mass, one speed": (RECORDED, "^")}
    styles |= {"dtw": (FAINT, "v")}
    read = [json.loads(line) for line in rows.read_text().splitlines()]
    cells = list(dict.fromkeys((one["source"], one["hours"], one["noise"], one["uneven"]) for one in read))
    shown = [
        cell
        for cell in cells
        if len({one["length"] for one in read if cell_of(one) == cell and "mass" in one["method"]}) > 2
    ]
    figure, panels = pyplot().subplots(1, len(shown), figsize=(3 * len(shown), 2.9), sharey=True, layout="constrained")
    for cell, axes in zip(shown, panels, strict=True):
        for method, (colour, mark) in styles.items():
            own = sorted(
                (one["length"], one["recall"]) for one in read if cell_of(one) == cell and one["method"] == method
            )
            axes.plot(*zip(*own, strict=True), color=colour, marker=mark, markersize=4, linewidth=1.2, label=method)
        axes.set_xscale("log", base=2)
        axes.set_xticks([0.25, 0.5, 1, 2, 4, 8], ["1/4", "1/2", "1", "2", "4", "8"])
        axes.set_title(f"{cell[0]}, {'uneven' if cell[3] else 'even'} speed, noise {cell[2]:g}", fontsize=9)
        axes.set_xlabel("length of the query, in windows", fontsize=9, color=QUERY)
        axes.set_ylim(-0.03, 1.05)
        tidy(axes)
    panels[0].set_ylabel("recall of planted copies", fontsize=9)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=9, frameon=False
    )
    print(*save_all(figure, stem))


def cell_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["source"], row["hours"], row["noise"], row["uneven"]


def report(row: Row, out: Path | None) -> None:
    kind = f"{row.source:8} {row.hours:g} h {'uneven' if row.uneven else 'even  '} noise {row.noise:g}"
    shares = f"recall {row.recall:.2f} precision {row.precision:.2f}"
    scores = f"{shares} start {row.start_error:.3f} stop {row.stop_error:.3f} {row.cpu_s:7.2f} s"
    print(f"{kind} length {row.length:<5g} {row.method:20} {scores}", flush=True)
    if out is not None:
        with out.open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")


if __name__ == "__main__":
    main()
