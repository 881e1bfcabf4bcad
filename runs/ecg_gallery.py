"""A gallery of MITDB windows, measured as a user has it: what search finds, and what its index misses.

Reads prepared windows (`geopatch data prepare mitdb`) and a model that was trained on the DS1 patients:

    geopatch fit mitdb --target beat --out beats
    python runs/ecg_gallery.py search --cache cache --model beats --rows results/gallery.jsonl
    python runs/ecg_gallery.py index --cache cache --model beats --rows results/gallery.jsonl

`search` puts all windows of one side (test: the DS2 patients) into a gallery and searches it with some of each record,
clean and warped, by every scorer; with `--tempos`, at other tempos too. `index` puts real windows of all patients, cut
five to a step, into a gallery from an iterator and compares its shortlists with and without index.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

from geopatch.data.cache import Cache
from geopatch.data.collection import Collection
from geopatch.engines import about_model
from geopatch.engines.entry import Entries, entries_from
from geopatch.estimator import GeoPatch
from geopatch.evaluate.rows import versions
from geopatch.gallery import Gallery
from geopatch.protocol import Protocol
from geopatch.search.candidates import shortlists
from geopatch.search.options import SearchOptions
from geopatch.search.query import at_tempos, encode_queries
from geopatch.search.ranking import rank
from geopatch.signal import Signal
from geopatch.warp import warped

SCORERS = ("cosine", "maxsim", "fused", "dtw")
PROTOCOLS = ("standard", "strict-nonoverlap", "strict-cross-record")
CHUNK, BATCH, K = 32, 512, 50
SHIFTS_S = (0.0, 0.2, 0.4, 0.6, 0.8)  # of windows that start a second apart


def write(path: Path, row: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({**row, "versions": versions()})
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    print(line, flush=True)


def held_out(collection: Collection, records: Sequence[str]) -> Collection:
    """The windows of some records; of all where none are named."""
    return collection.subset([n for n, one in enumerate(collection.signals) if not records or one.record in records])


def spread(collection: Collection, per_record: int) -> list[int]:
    """Windows to search by: so many of each record, evenly spread over it."""
    members: dict[str, list[int]] = defaultdict(list)
    for n, signal in enumerate(collection.signals):
        members[signal.record].append(n)
    return [own[n] for own in members.values() for n in np.linspace(0, len(own) - 1, per_record).round().astype(int)]


def search_part(arguments: argparse.Namespace, folder: Path) -> None:
    model = GeoPatch.load(arguments.model, device=arguments.device)
    windows = Cache(arguments.cache / "mitdb").windows(arguments.side).collection("beat")
    windows = held_out(windows, arguments.records)
    assert windows.labels is not None
    chosen = spread(windows, arguments.queries)
    labels = windows.labels[chosen].tolist()
    with Gallery.create(folder / "gallery", model) as gallery:
        gallery.add(windows.signals, metadata=[{"beat": str(label)} for label in windows.labels])
        for stress in ("clean", "warped queries"):
            queries = [windows.signals[n] if stress == "clean" else warped(windows.signals[n]) for n in chosen]
            for protocol in arguments.protocols:
                found = first_hits(gallery, queries, Protocol(protocol), arguments.scorers, tempos=arguments.tempos)
                for scorer, answers in found.items():
                    how = {"protocol": protocol, "scorer": scorer, "tempos": arguments.tempos, "stress": stress}
                    about = {"part": "search", "side": arguments.side, "records": arguments.records, **how}
                    told = {"encoder": gallery.about.encoder, "windows": len(windows), "queries": len(labels)}
                    write(arguments.rows, {**about, **recalls(answers, labels), **told})


def first_hits(
    gallery: Gallery, queries: Sequence[Signal], protocol: Protocol, scorers: Sequence[str], *, tempos: bool
) -> dict[str, list[str]]:
    """The class of each query's first hit by each scorer; what the scorers share is fetched once."""
    searches = [SearchOptions(1, scorer, protocol=protocol, tempos=tempos) for scorer in scorers]
    assert gallery.model is not None
    found: dict[str, list[str]] = {scorer: [] for scorer in scorers}
    for start in range(0, len(queries), CHUNK):
        encoded = encode_queries(gallery, queries[start : start + CHUNK], gallery.model)
        encoded = at_tempos(gallery, encoded, gallery.model) if tempos else encoded
        for query, near in zip(encoded, shortlists(gallery, encoded, searches[0]), strict=True):
            entries = gallery.fetch(near.ids, with_windows="dtw" in scorers)
            for options in searches:
                ranking = rank(query, near, entries, options, gallery.model.encoder_)
                found[options.ranking.name].append(str(entries.metadata[ranking.rows[0]]["beat"]))
    return found


def recalls(answers: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
    """R@1 over all queries, for each class, and its mean over the classes."""
    right: dict[str, list[bool]] = defaultdict(list)
    for answer, label in zip(answers, labels, strict=True):
        right[label].append(answer == label)
    per_class = {label: round(mean(values), 4) for label, values in sorted(right.items())}
    all_queries = mean(answer == label for answer, label in zip(answers, labels, strict=True))
    return {
        "recall@1": round(all_queries, 4),
        "class_mean_recall@1": round(mean(per_class.values()), 4),
        "per_class": per_class,
    }


def shifted(cache: Path, most: int) -> Iterator[Signal]:
    """Real windows at every shift: neighbours that overlap by half, put together again and cut in between."""
    prepared, count = Cache(cache / "mitdb"), 0
    for shift_s in SHIFTS_S:
        for side in prepared.splits:
            signals = prepared.signals(side)
            for one, other in pairwise(signals):
                step_s = other.start_s - one.start_s
                if one.record != other.record or not step_s >= shift_s:
                    continue
                yield between(one, other, shift_s)
                count += 1
                if count == most:
                    return


def between(one: Signal, other: Signal, shift_s: float) -> Signal:
    """The window that starts `shift_s` after `one`; the next window, which overlaps it, has what it lacks."""
    step, first = round((other.start_s - one.start_s) * one.clock_hz), round(shift_s * one.clock_hz)
    values = np.concatenate([one.values[:step], other.values])[first : first + one.length]
    start_s = one.start_s + first / one.clock_hz
    return replace(one, id=f"{one.record}@{start_s:.3f}s", values=values, start_s=start_s, anchors=None)


def encoded(model: GeoPatch, signals: Iterator[Signal]) -> Iterator[Entries]:
    about = about_model(model)
    for batch in iter(lambda: [signal for _, signal in zip(range(BATCH), signals, strict=False)], []):
        yield entries_from(model.encode(batch), batch, about, keep_windows=False)


def index_part(arguments: argparse.Namespace, folder: Path) -> None:
    model = GeoPatch.load(arguments.model, device=arguments.device)
    cache = Cache(arguments.cache / "mitdb").windows("test").collection("beat")
    chosen = [warped(cache.signals[n]) for n in spread(cache, arguments.queries)]
    queries = model.transform(chosen)
    next(encoded(model, shifted(arguments.cache, BATCH)))  # what encoding needs is not the gallery's
    before, started = memory_mb("VmHWM"), time.perf_counter()
    with Gallery.create(folder / "gallery", model) as gallery:
        gallery.add(encoded(model, shifted(arguments.cache, arguments.windows)))
        add_s, grown = time.perf_counter() - started, memory_mb("VmHWM") - before
        widths, count = gallery.about.widths, len(gallery)
        raw = count * 4 * (widths.embedding + widths.patches * widths.token)
        plain = gallery.info().bytes
        exact = [set(near.ids) for start in range(0, len(queries), CHUNK) for near in nearest(gallery, queries, start)]
        gallery.optimize()
        known = [set(near.ids) for start in range(0, len(queries), CHUNK) for near in nearest(gallery, queries, start)]
        recall = mean(len(one & other) / K for one, other in zip(exact, known, strict=True))
        sizes = {"disk_bytes": plain, "disk_with_index_bytes": gallery.info().bytes, "raw_bytes": raw}
        told = {"part": "index", "windows": count, "indexed": gallery.info().indexed, "queries": len(queries)}
        took = {"add_s_with_encoding": round(add_s, 1), "memory_grew_mb": round(grown, 1)}
        write(
            arguments.rows, {**told, "recall@50": round(recall, 5), **took, **sizes, "encoder": gallery.about.encoder}
        )


def nearest(gallery: Gallery, queries: np.ndarray[Any, np.dtype[np.float32]], start: int) -> list[Any]:
    return gallery.shortlist(queries[start : start + CHUNK], K)


def memory_mb(name: str) -> float:
    status = Path("/proc/self/status").read_text()
    return float(next(line.split()[1] for line in status.splitlines() if line.startswith(name))) / 1024


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("search", "index"))
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--side", default="test", choices=("train", "test"))
    parser.add_argument("--records", nargs="*", default=[], help="only these; with --side train, to choose by")
    parser.add_argument("--queries", type=int, default=200, help="of each record")
    parser.add_argument("--protocols", nargs="*", default=PROTOCOLS)
    parser.add_argument("--scorers", nargs="*", default=SCORERS)
    parser.add_argument("--tempos", action="store_true", help="search by the queries at other tempos too")
    parser.add_argument("--windows", type=int, default=200_000, help="of the index part")
    parser.add_argument("--device", default="auto")
    return parser.parse_args()


if __name__ == "__main__":
    asked_for = parse()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        (search_part if asked_for.part == "search" else index_part)(asked_for, Path(scratch))
