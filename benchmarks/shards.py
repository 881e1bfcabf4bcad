"""A gallery on one server beside the same over several, as real processes on this machine: rows of results/scale.jsonl.

    python benchmarks/shards.py GALLERY --shards 0,3 --windows 40000,80000,200000 >> results/scale.jsonl
    python benchmarks/shards.py GALLERY --load --windows 20000 >> results/scale.jsonl
    python benchmarks/shards.py --fit results/scale.jsonl

GALLERY is a gallery of real windows in a folder; where more are wanted than it has, the others are points between two
of them. 0 shards are one server. All servers share the cores of this machine: seconds of processor time say what a
query costs, and the clock only what it took here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geopatch.engines import About, Entries, Widths
from geopatch.engines.postgres_moving import add_shards
from geopatch.gallery import Gallery
from geopatch.version import __version__

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from servers import PostgresServer, fdw_settings, running_server

QUERIES, K, BATCH, THREADS = 200, 50, 1000, 4
BUFFERS_MB = 768  # of all servers together
FITTED = ("cpu_ms", "table_bytes", "index_bytes")
TICKS = os.sysconf("SC_CLK_TCK")
Vectors = npt.NDArray[np.float32]


def vectors_of(place: Path, windows: int) -> tuple[Vectors, Vectors]:
    """Vectors to search among, real ones first, and queries that are not among them."""
    with Gallery.open(place, read_only=True) as gallery:
        real = gallery.embeddings().vectors
    draw = np.random.default_rng(0)
    order = draw.permutation(len(real))
    queries, base = real[order[:QUERIES]], real[order[QUERIES:]]
    more = max(windows - len(base), 0)
    pairs, share = draw.integers(0, len(base), size=(2, more)), draw.uniform(0.2, 0.8, size=(more, 1))
    between = share * base[pairs[0]] + (1 - share) * base[pairs[1]]
    between /= np.linalg.norm(between, axis=1, keepdims=True)
    return np.concatenate([base, between.astype(np.float32)])[:windows], queries


def entries_of(vectors: Vectors, start: int, stop: int, about: About) -> Entries:
    """Windows with vectors alone: tokens and values would be the same bytes in any engine."""
    rows, count = np.arange(start, stop), stop - start
    widths = about.widths
    return Entries(
        about.encoder,
        tuple(f"w{n}" for n in rows),
        vectors[start:stop],
        np.zeros((count, widths.patches, widths.token), np.float32),
        np.ones((count, widths.patches), bool),
        np.zeros((count, widths.patches, 2), np.float32),
        tuple(f"r{n // 1800}" for n in rows),
        (rows % 1800).astype(float),
        (rows % 1800).astype(float) + 2.0,
        tuple({"age": int(n % 70), "sex": "FM"[n % 2]} for n in rows),
        (None,) * count,
    )


@contextmanager
def servers(shards: int) -> Iterator[tuple[str, list[PostgresServer], list[PostgresServer]]]:
    """A place without a gallery, its servers with entries, and all of them."""
    share = f"shared_buffers={BUFFERS_MB // max(shards, 1)}MB"
    with running_server(*fdw_settings(), share if not shards else "shared_buffers=32MB") as first:
        if not shards:
            yield first.url("bench"), [first], [first]
            return
        others = [PostgresServer(share) for _ in range(shards)]
        try:
            for server in others:
                server.create()
            add_shards(first.url("bench"), [server.database for server in others])
            yield first.url("bench"), others, [first, *others]
        finally:
            for server in others:
                server.stop()


def texts(server: PostgresServer, name: str) -> list[str]:
    """A file of /proc, for the server and all that it started and that have not ended yet."""
    assert server.process is not None
    pid = server.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    read = list[str]()
    for each in (pid, *children):
        with suppress(OSError):
            read.append(Path(f"/proc/{each}/{name}").read_text())
    return read


def cpu_s(every: list[PostgresServer]) -> float:
    """Processor time of all processes that run now."""
    fields = [text.rpartition(")")[2].split() for server in every for text in texts(server, "stat")]
    return sum(int(one[11]) + int(one[12]) for one in fields) / TICKS


def memory_mb(server: PostgresServer) -> float:
    """Memory of a server, what processes share counted once."""
    lines = [line for text in texts(server, "smaps_rollup") for line in text.splitlines()]
    return round(sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024, 1)


def sizes(holding: list[PostgresServer]) -> list[tuple[int, int]]:
    """Bytes of the table with its small indexes, and of the index over vectors, of each server."""
    query = (
        "SELECT pg_total_relation_size('geopatch_bench.entry'), (SELECT coalesce(sum(pg_relation_size(indexrelid)), 0) "
        "FROM pg_stat_user_indexes WHERE indexrelname LIKE 'entry_embedding%')"
    )
    both = [server.ask(query)[0] for server in holding]
    return [(int(total - index), int(index)) for total, index in both]


def measured(
    gallery: Gallery, place: str, queries: Vectors, exact: npt.NDArray[np.int64], every: Any
) -> dict[str, Any]:
    """Recall, latency and processor time one after the other, and throughput from several threads."""
    gallery.shortlist(queries[:20], K)  # what is read often is in memory, and connections are made
    before, times, kept = cpu_s(every), list[float](), 0
    for query, wanted in zip(queries, exact, strict=True):
        start = time.perf_counter()
        near = gallery.shortlist(query[None], K)[0]
        times.append(1000 * (time.perf_counter() - start))
        kept += len({f"w{n}" for n in wanted} & set(near.ids))
    cpu_ms = 1000 * (cpu_s(every) - before) / len(queries)
    filtered = list[float]()
    for query in queries[:50]:
        start = time.perf_counter()
        gallery.shortlist(query[None], K, "sex == 'F' and age < 35")
        filtered.append(1000 * (time.perf_counter() - start))
    return {
        "recall@50": round(kept / exact.size, 4),
        "p50_ms": round(float(np.percentile(times, 50)), 2),
        "p99_ms": round(float(np.percentile(times, 99)), 2),
        "filtered_p50_ms": round(float(np.percentile(filtered, 50)), 2),
        "cpu_ms": round(cpu_ms, 3),
        "queries_per_s": round(throughput(place, queries), 1),
    }


def throughput(place: str, queries: Vectors) -> float:
    """Queries a second from several readers at the same time."""

    def work(n: int) -> None:
        with Gallery.open(place, read_only=True) as reader:
            ready.wait()
            for query in queries[n::THREADS]:
                reader.shortlist(query[None], K)

    ready = threading.Barrier(THREADS + 1)
    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(work, n) for n in range(THREADS)]
        ready.wait()
        start = time.perf_counter()
        for future in futures:
            future.result()
        return len(queries) / (time.perf_counter() - start)


def compare(gallery_place: Path, shards: int, stops: list[int]) -> None:
    vectors, queries = vectors_of(gallery_place, stops[-1])
    about = About("bench", Widths(vectors.shape[1], 1, 4), patch_length=8, rate_hz=360.0, length=720)
    with servers(shards) as (place, holding, every), Gallery.create(place, about) as gallery:
        loaded = 0
        for stop in stops:
            for server in holding:
                server.ask("DROP INDEX IF EXISTS geopatch_bench.entry_embedding, geopatch_bench.entry_embedding_0")
            start, before, first = time.perf_counter(), cpu_s(every), loaded
            while loaded < stop:
                gallery.engine.put(entries_of(vectors, loaded, min(loaded + BATCH, stop), about))
                loaded = min(loaded + BATCH, stop)
            load_s, load_cpu_s = time.perf_counter() - start, cpu_s(every) - before
            start = time.perf_counter()
            optimized = build(gallery, every)
            exact = np.argsort(-(queries @ vectors[:stop].T), axis=1)[:, :K]
            row = measured(gallery, place, queries, exact, every)
            parts = sizes(holding)
            print_row(
                "search",
                engine="one server" if not shards else "shards",
                shards=max(shards, 1),
                windows=stop,
                width=about.widths.embedding,
                **row,
                load_cpu_ms=round(1000 * load_cpu_s / (stop - first), 3),
                load_s=round(load_s, 1),
                index_s=round(optimized, 1),
                table_bytes=sum(table for table, _ in parts),
                index_bytes=sum(index for _, index in parts),
                disk_mb=[round((table + index) / 1e6, 1) for table, index in parts],
                memory_mb=[memory_mb(server) for server in holding],
            )


def build(gallery: Gallery, every: list[PostgresServer]) -> float:
    """Seconds that the indexes took; also below the size from which a gallery has one by itself."""
    from geopatch.engines import postgres, postgres_shards

    postgres.INDEX_FROM = postgres_shards.INDEX_FROM = 1  # type: ignore[attr-defined]
    start = time.perf_counter()
    gallery.optimize()
    return time.perf_counter() - start


def load(gallery_place: Path, windows: int) -> None:
    """A fourth shard is added while others search: what they get, and how long they wait."""
    vectors, queries = vectors_of(gallery_place, windows)
    about = About("bench", Widths(vectors.shape[1], 1, 4), patch_length=8, rate_hz=360.0, length=720)
    exact = np.argsort(-(queries @ vectors.T), axis=1)[:, :K]
    with servers(3) as (place, _, _), running_server() as fourth:
        with Gallery.create(place, about) as gallery:
            for start in range(0, windows, BATCH):
                gallery.engine.put(entries_of(vectors, start, min(start + BATCH, windows), about))
        times, wrong, stop = list[float](), list[str](), threading.Event()

        def search() -> None:
            with Gallery.open(place, read_only=True) as reader:
                while not stop.is_set():
                    n = len(times) % len(queries)
                    start = time.perf_counter()
                    near = reader.shortlist(queries[n : n + 1], K)[0]
                    times.append(1000 * (time.perf_counter() - start))
                    if set(near.ids) != {f"w{m}" for m in exact[n]} or len(near.ids) != K:
                        wrong.append(f"{n}: {len(set(near.ids))} ids")

        thread = threading.Thread(target=search)
        thread.start()
        time.sleep(10)
        quiet, began = len(times), time.perf_counter()
        moved = add_shards(place, [fourth.database])
        seconds = time.perf_counter() - began
        meanwhile = times[quiet:]
        stop.set()
        thread.join()
    print_row(
        "a fourth shard added",
        windows=windows,
        moved_buckets=moved,
        seconds=round(seconds, 1),
        searches=len(meanwhile),
        wrong=len(wrong),
        p50_before_ms=round(float(np.percentile(times[:quiet], 50)), 2),
        p50_ms=round(float(np.percentile(meanwhile, 50)), 2),
        p99_ms=round(float(np.percentile(meanwhile, 99)), 2),
        longest_ms=round(max(meanwhile), 2),
    )


def print_row(task: str, **values: Any) -> None:
    about = {"version": __version__, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    print(json.dumps({"task": task, **about, **values}), flush=True)


def features(row: dict[str, Any], name: str) -> list[float]:
    """What a cost is a sum of: a part for each shard, each level of its index, and what lies between; or windows."""
    shards, windows = row["shards"], row["windows"]
    if name == "cpu_ms":
        return [shards, shards * float(np.log2(windows / shards)), shards * (row["engine"] == "shards")]
    return [float(windows)]


def fit(rows: list[dict[str, Any]], name: str) -> npt.NDArray[np.float64]:
    """Least squares of relative errors."""
    values = np.asarray([row[name] for row in rows], float)
    matrix = np.asarray([features(row, name) for row in rows]) / values[:, None]
    return np.asarray(np.linalg.lstsq(matrix, np.ones(len(rows)), rcond=None)[0], dtype=np.float64)


def model(path: Path) -> None:
    """Fitted to one server and to the smallest gallery on 3 shards whose indexes are used; the others are predicted."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [row for row in rows if row["task"] == "search" and row["recall@50"] < 1]
    known = [row for row in rows if row["engine"] == "one server" or (row["shards"], row["windows"]) == (3, 80_000)]
    for name in FITTED:
        weights = fit(known, name)
        print(name, weights.tolist())
        for row in rows:
            expected = float(np.dot(features(row, name), weights))
            point = f"{'fitted   ' if row in known else 'predicted'} {row['windows']} windows, {row['shards']} shards"
            error = expected / row[name] - 1
            print(f"  {point}: {expected:.4g}, measured {row[name]:.4g}, {error:+.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gallery", type=Path, nargs="?")
    parser.add_argument("--shards", default="0,3")
    parser.add_argument("--windows", default="40000,80000,200000")
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--fit", type=Path)
    arguments = parser.parse_args()
    if arguments.fit is not None:
        model(arguments.fit)
        return
    stops = [int(text) for text in arguments.windows.split(",")]
    if arguments.load:
        load(arguments.gallery, stops[-1])
        return
    for shards in arguments.shards.split(","):
        compare(arguments.gallery, int(shards), stops)


if __name__ == "__main__":
    main()
