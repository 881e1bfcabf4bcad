"""Encoding with the workers of a cluster beside one process: rows of results/scale.jsonl.

python runs/scale.py DATA/mitdb --records 12 --workers 2 >> results/scale.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster

from geopatch.gallery import Gallery
from geopatch.indexing.folder import index_files
from geopatch.indexing.settings import IndexSettings, Listener
from geopatch.version import __version__


def indexed(files: list[Path], place: Path, cluster: str | None) -> dict[str, float]:
    """What it took to encode files into a gallery that has its model."""
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    report = index_files(files, place, IndexSettings(cluster=cluster), Listener())
    seconds, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    load = round(os.getloadavg()[0], 1)  # of the whole machine, over the last minute
    return {"windows": report.written, "seconds": round(seconds, 2), "driver_cpu_s": round(cpu_s, 2), "load": load}


def difference(one: Path, two: Path) -> float:
    """The largest one between the vectors of two galleries, which must have the same ids in the same order."""
    largest = 0.0
    with Gallery.open(one, read_only=True) as first, Gallery.open(two, read_only=True) as second:
        for left, right in zip(first.scan(), second.scan(), strict=True):
            assert left.ids == right.ids
            for name in ("embedding", "tokens"):
                largest = max(largest, float(np.abs(getattr(left, name) - getattr(right, name)).max()))
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=int, default=12)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    files = sorted(arguments.folder.glob("*.hea"))[: arguments.records]
    about = {"version": __version__, "cores": os.cpu_count(), "machine": platform.machine(), "records": len(files)}
    with tempfile.TemporaryDirectory() as folder:
        model, one, two = (Path(folder, name) for name in ("model", "one", "two"))
        index_files(files[:2], model, IndexSettings(window_s=4.0), Listener())
        for place in (one, two):
            with Gallery.open(model, read_only=True) as gallery:
                assert gallery.model is not None
                Gallery.create(place, gallery.model).close()
        row = indexed(files, one, None)
        print(json.dumps({"task": "encode", "engine": "one process", "workers": 0, **about, **row}), flush=True)
        workers = {"n_workers": arguments.workers, "threads_per_worker": 1, "dashboard_address": None}
        with LocalCluster(host="127.0.0.1", **workers) as cluster, Client(cluster, set_as_default=False) as client:
            before = sum(client.run(time.process_time).values())
            row = indexed(files, two, cluster.scheduler_address)
            row["workers_cpu_s"] = round(sum(client.run(time.process_time).values()) - before, 2)
        row["largest_difference"] = difference(one, two)
        print(json.dumps({"task": "encode", "engine": "dask", "workers": arguments.workers, **about, **row}))


if __name__ == "__main__":
    main()
