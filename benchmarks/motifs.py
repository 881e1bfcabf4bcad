"""Motifs and anomalies of a gallery of ECG: how long they take, and whether anomalies are ectopic beats.

geopatch index mitdb --out mitdb.gallery --window-s 2
python benchmarks/motifs.py mitdb.gallery mitdb --out results/motifs.jsonl
python benchmarks/motifs.py mitdb.gallery mitdb --out results/motifs.jsonl --records 105 116 --minutes 10

The factor is the share of windows with an annotated ectopic beat (ventricular, supraventricular or fusion) among the
anomalies, over their share among all windows. Beside it, on the same records, stumpy's discords: windows of the same
length on the first lead, at 128 Hz, farthest from their nearest neighbour in the record.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import wfdb

from geopatch.gallery import Gallery
from geopatch.signal import Signal
from geopatch.version import __version__

ECTOPIC = frozenset("VEAaJSejnF!")
RATE_HZ = 128.0
DEPTHS = (20, 100, 500)
T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gallery")
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--records", nargs="*", default=[], help="these alone, beside stumpy; without, the whole gallery"
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="of each of these records, at most")
    arguments = parser.parse_args()
    with Gallery.open(arguments.gallery, read_only=True, device="cpu") as gallery:
        ectopic = ectopic_times(arguments.data, [record.name for record in gallery.records()])
        if not arguments.records:
            write(arguments.out, whole(gallery, ectopic))
        for record in arguments.records:
            own = one_record(gallery, record, 60 * arguments.minutes, ectopic)
            write(arguments.out, [own, discords(arguments.data, record, 60 * arguments.minutes, ectopic)])


def write(path: Path, rows: list[dict[str, object]]) -> None:
    facts = {"benchmark": "motifs", "version": __version__, "cores": os.cpu_count(), "load_average": os.getloadavg()[0]}
    with path.open("a") as file:
        for row in rows:
            line = json.dumps({**facts, **row})
            print(line, flush=True)
            file.write(line + "\n")


def ectopic_times(data: Path, records: list[str]) -> dict[str, np.ndarray]:
    """Seconds of the ectopic beats of each record."""
    times = {}
    for record in records:
        marks = wfdb.rdann(str(data / record), "atr")
        chosen = [sample for sample, symbol in zip(marks.sample, marks.symbol, strict=True) if symbol in ECTOPIC]
        times[record] = np.asarray(chosen) / marks.fs
    return times


def has_ectopic(ectopic: dict[str, np.ndarray], record: str, start_s: float, stop_s: float) -> bool:
    first, last = np.searchsorted(ectopic[record], [start_s, stop_s])
    return bool(last > first)


def share(ectopic: dict[str, np.ndarray], places: list[tuple[str, float, float]]) -> float:
    return float(np.mean([has_ectopic(ectopic, *place) for place in places]))


def factors(ectopic: dict[str, np.ndarray], places: list[tuple[str, float, float]], base: float) -> dict[str, float]:
    shares = {depth: share(ectopic, places[:depth]) for depth in DEPTHS if depth <= len(places)}
    return {f"factor@{depth}": value / base for depth, value in shares.items()} | {"base_share": base}


def whole(gallery: Gallery, ectopic: dict[str, np.ndarray]) -> list[dict[str, object]]:
    stored = gallery.embeddings()
    base = share(ectopic, list(zip(stored.records, stored.start_s, stored.stop_s, strict=True)))
    took, cpu, lone = timed(lambda: gallery.anomalies(max(DEPTHS), windows=False))
    places = [(one.place.record, one.place.start_s, one.place.stop_s) for one in lone]
    facts = {"windows": len(stored), "records": len(set(stored.records))}
    rows: list[dict[str, object]] = [
        {"what": "anomalies", **facts, "seconds": took, "cpu_s": cpu, **factors(ectopic, places, base)}
    ]
    took, cpu, motifs = timed(lambda: gallery.motifs(5, windows=False))
    counts = [motif.count for motif in motifs]
    of_ectopic = [
        share(ectopic, [(member.record, member.start_s, member.stop_s) for member in motif.members]) for motif in motifs
    ]
    spread = [len(motif.records) for motif in motifs]
    rows.append(
        {"what": "motifs", **facts, "seconds": took, "cpu_s": cpu, "counts": counts, "records_of_each": spread}
        | {"ectopic_share_of_each": of_ectopic, "base_share": base}
    )
    return rows


def one_record(gallery: Gallery, record: str, stop_s: float, ectopic: dict[str, np.ndarray]) -> dict[str, object]:
    where = f"record == '{record}' and stop_s <= {stop_s:g}"
    stored = gallery.embeddings(where)
    base = share(ectopic, list(zip(stored.records, stored.start_s, stored.stop_s, strict=True)))
    took, cpu, lone = timed(lambda: gallery.anomalies(100, where=where, windows=False))
    places = [(one.place.record, one.place.start_s, one.place.stop_s) for one in lone]
    facts = {"what": "anomalies of a record", "record": record, "until_s": stop_s, "windows": len(stored)}
    return {**facts, "seconds": took, "cpu_s": cpu, **factors(ectopic, places, base)}


def discords(data: Path, record: str, stop_s: float, ectopic: dict[str, np.ndarray]) -> dict[str, object]:
    """stumpy's: the places of its matrix profile that are farthest from their nearest neighbour, none overlapping."""
    import stumpy

    read = wfdb.rdrecord(str(data / record))
    signal = Signal(read.p_signal[:, :1], record, float(read.fs)).resampled(RATE_HZ)
    length = round(2 * RATE_HZ)
    values = signal.values[: round(stop_s * RATE_HZ), 0].astype(np.float64)
    stumpy.stump(values[: 4 * length], length)  # compiled
    took, cpu, profile = timed(lambda: stumpy.stump(values, length))
    distance = np.where(np.isfinite(profile[:, 0].astype(float)), profile[:, 0].astype(float), -1.0)
    places, free = list[tuple[str, float, float]](), np.ones(len(distance), dtype=bool)
    for start in np.argsort(-distance):
        if free[start] and len(places) < 100:
            places.append((record, start / RATE_HZ, (start + length) / RATE_HZ))
            free[max(start - length + 1, 0) : start + length] = False
    starts = np.arange(0, len(values) - length, length // 2) / RATE_HZ
    base = share(ectopic, [(record, start, start + 2.0) for start in starts])
    facts = {"what": "discords of stumpy", "record": record, "until_s": stop_s, "windows": len(distance)}
    return {**facts, "seconds": took, "cpu_s": cpu, **factors(ectopic, places, base)}


def timed(work: Callable[[], T]) -> tuple[float, float, T]:
    """Seconds, CPU seconds, and what came of it."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    result = work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, cpu, result


if __name__ == "__main__":
    main()
