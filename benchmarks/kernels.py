"""Series per CPU second on one thread: from raw arrays to embedding and tokens, and aeon's MiniRocket, in one run.

With `--fit N`: seconds and memory of `GeoPatch().fit` on N windows, on two threads.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable

import numpy as np
import torch

from geopatch import GeoPatch
from geopatch.kernels.bank import Layout, copies, draw_mixes
from geopatch.kernels.half import spans_round
from geopatch.kernels.transform import learn_bias, window_features

LENGTH, SERIES, FITTED, REPEATS, PATCHES = 256, 200, 30, 5, 16  # fitting is not timed
ROCKET_FEATURES = 10_000
THREADS = 2  # of a fit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", type=int, metavar="N", help="windows to fit on")
    count = parser.parse_args().fit
    if count is not None:
        print(json.dumps(fitting(count)))
        return
    torch.set_num_threads(1)
    rates = {f"channels_{channels}": compare(channels) for channels in (1, 6)}
    for name, row in rates.items():
        print(name, *(f"{key} {value:.3g}" for key, value in row.items()), sep="  ")
    print(json.dumps(rates))


def fitting(count: int) -> dict[str, float]:
    """Seconds of a fit without labels, and the most memory that the process ever had; compiling is not timed."""
    torch.set_num_threads(THREADS)
    X = np.random.default_rng(0).standard_normal((count, LENGTH), dtype=np.float32)
    np.cumsum(X, axis=1, out=X)
    GeoPatch(preset="instant").fit(X[:2])
    before, started, spent = peak_mb(), time.perf_counter(), time.process_time()
    GeoPatch().fit(X)
    wall, spent = time.perf_counter() - started, time.process_time() - spent
    return {"windows": count, "wall_s": wall, "cpu_s": spent, "peak_mb_before": before, "peak_mb": peak_mb()}


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def compare(channels: int) -> dict[str, float]:
    """Medians of series per CPU second; the methods take turns, so that a busy machine slows all."""
    from aeon.transformations.collection.convolution_based import MiniRocket

    rng = np.random.default_rng(0)
    X = rng.normal(size=(SERIES, channels, LENGTH)).cumsum(-1).astype(np.float32)
    rocket = MiniRocket(n_kernels=ROCKET_FEATURES, n_jobs=1, random_state=0).fit(X[:FITTED])
    rows = list(X.transpose(0, 2, 1).copy())
    model = GeoPatch(preset="instant").fit(rows[:FITTED])
    methods: dict[str, Callable[[], object]] = {
        "minirocket": lambda: rocket.transform(X),
        "kernels": kernels(X),
        "encode": lambda: model.encode(rows),
    }
    times: dict[str, list[float]] = {name: [] for name in methods}
    for repeat in range(REPEATS + 1):  # the first compiles
        for name, method in methods.items():
            torch.set_num_threads(1)  # MiniRocket sets the threads of OpenMP, which are torch's too
            started = time.process_time()
            method()
            if repeat:
                times[name].append(time.process_time() - started)
    rates = {name: SERIES / float(np.median(spent)) for name, spent in times.items()}
    rates["kernels_ratio"] = rates["kernels"] / rates["minirocket"]
    rates["encode_ratio"] = rates["encode"] / rates["minirocket"]
    return rates


def kernels(X: np.ndarray) -> Callable[[], object]:
    """The features of windows and of 16 spans of each, without what surrounds them."""
    layout, mixes = Layout.of(LENGTH), draw_mixes(X.shape[1], 0)
    windows = torch.from_numpy(X)
    bias = learn_bias(copies(windows, layout), mixes, layout)
    spans = spans_round(torch.linspace(0, LENGTH - 1, PATCHES).expand(len(X), -1), LENGTH)

    def run() -> object:
        parts = copies(windows, layout)
        return window_features(parts, mixes, bias, layout, *spans)

    return run


if __name__ == "__main__":
    main()
