"""How much of what encoder and engine can do together is left when a server stands in between. Machines are noisy.

    python benchmarks/serve.py [--windows 100000] [--seconds 60]

The ceiling is `search_batch` with batches of 32 in this process, one thread, while the server has nothing to do. It is
measured before and after 64 clients ask as fast as they can (closed loop), and after 64 clients at 70 % of it, whose
arrivals do not wait for answers (open loop). One client asks before and after the open loop. All in turns, because the
speed of a shared machine drifts by a third within a minute. Queries are signals that have to be encoded.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from gallery import batches, unit
from threadpoolctl import threadpool_limits

from geopatch.config import TrainConfig
from geopatch.data.sample import ecg_windows
from geopatch.engines.about import about_model
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.signal import Signal

CLIENTS, SHARE, TOGETHER, K = 64, 0.7, 32, 10
WARM_S, CEILING_S, ALONE_S = 10.0, 10.0, 5.0


@dataclass
class LoadResult:
    """What clients saw: seconds of each answer, how many were refused, answers of each client."""

    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    of_client: list[int] = field(default_factory=list)
    lasted_s: float = 0.0

    def line(self, name: str) -> str:
        times = np.asarray(self.seconds) * 1e3
        p50, p99 = np.percentile(times, [50, 99])
        rate = len(times) / self.lasted_s
        least = f"   least of a client {min(self.of_client)}" if self.of_client else ""
        return f"{name:<22}{rate:8.1f}/s   p50 {p50:7.1f} ms   p99 {p99:7.1f} ms   errors {self.refused}{least}"


def make(folder: Path, windows: int) -> list[Signal]:
    """A model, a gallery of random unit vectors as wide as its own, and queries of real ECG."""
    sample = ecg_windows()
    train = TrainConfig(min_steps=20, max_steps=20)
    model = GeoPatch(train=train, device="cpu").fit(sample.signals[:400], None)
    model.save(folder / "model")
    draw = np.random.default_rng(0)
    vectors = unit(draw.normal(size=(20_000, model.encoder_.config.embedding)))
    about = about_model(model)
    with Gallery.create(folder / "gallery", model) as gallery:
        for part in batches(vectors, windows, draw):
            object.__setattr__(part, "encoder", about.encoder)
            gallery.add(part)
    return list(sample.signals[400:656])


class Ceiling:
    """Searches a second without a server, measured again and again."""

    def __init__(self, folder: Path, queries: list[Signal]) -> None:
        torch.set_num_threads(1)
        model = GeoPatch.load(folder / "model", device="cpu")
        self.gallery, self.queries = Gallery.open(folder / "gallery", model=model, read_only=True), queries
        self.rates: list[float] = []
        self.gallery.search_batch(queries[:TOGETHER], K)

    def measure(self, seconds: float) -> float:
        done, start = 0, time.perf_counter()
        with threadpool_limits(1):
            while time.perf_counter() - start < seconds:
                batch = [self.queries[(done + n) % len(self.queries)] for n in range(TOGETHER)]
                self.gallery.search_batch(batch, K)
                done += TOGETHER
        self.rates.append(done / (time.perf_counter() - start))
        return self.rates[-1]


class Wire:
    """One client on a connection that stays open; as little work of its own as can be."""

    def __init__(self, port: int, requests: list[bytes]) -> None:
        self.port, self.requests = port, requests

    async def open(self) -> Wire:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def send(self, n: int) -> bool:
        self.writer.write(self.requests[n % len(self.requests)])
        head = await self.reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        await self.reader.readexactly(size)
        return head.startswith(b"HTTP/1.1 200")


async def closed_loop(port: int, requests: list[bytes], clients: int, seconds: float) -> LoadResult:
    """Each client asks again when it has its answer."""
    seen, until = LoadResult(of_client=[0] * clients), time.perf_counter() + seconds
    wires = [await Wire(port, requests).open() for _ in range(clients)]

    async def client(c: int) -> None:
        n = c * 7
        while (start := time.perf_counter()) < until:
            good = await wires[c].send(n)
            seen.refused += not good
            seen.seconds.append(time.perf_counter() - start)
            seen.of_client[c] += 1
            n += 1

    start = time.perf_counter()
    await asyncio.gather(*(client(c) for c in range(clients)))
    seen.lasted_s = time.perf_counter() - start
    return seen


async def open_loop(port: int, requests: list[bytes], clients: int, rate: float, seconds: float) -> LoadResult:
    """Arrivals at random moments, so many a second, whether or not others have been answered.

    A time counts from the moment of arrival, also where all clients are busy.
    """
    seen, draw = LoadResult(), np.random.default_rng(1)
    idle: asyncio.Queue[Wire] = asyncio.Queue()
    for _ in range(clients):
        idle.put_nowait(await Wire(port, requests).open())

    async def arrive(n: int, at: float) -> None:
        wire = await idle.get()
        seen.refused += not await wire.send(n)
        seen.seconds.append(time.perf_counter() - at)
        idle.put_nowait(wire)

    tasks: list[asyncio.Task[None]] = []
    at = start = time.perf_counter()
    while at - start < seconds:
        await asyncio.sleep(max(at - time.perf_counter(), 0))
        tasks.append(asyncio.create_task(arrive(len(tasks), at)))
        at += float(draw.exponential(1 / rate))
    await asyncio.gather(*tasks)
    seen.lasted_s = time.perf_counter() - start
    return seen


def as_request(signal: Signal) -> bytes:
    body = json.dumps({"query": {"signal": {"values": signal.values.round(4).tolist()}}, "k": K}).encode()
    head = "POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class Load:
    """What was seen of one client before and after the open loop, of many in a closed loop, of many in an open one."""

    alone: LoadResult
    full: LoadResult
    steady: LoadResult


def load(port: int, queries: list[Signal], ceiling: Ceiling, seconds: float) -> Load:
    requests = [as_request(signal) for signal in queries]
    asyncio.run(closed_loop(port, requests, 8, WARM_S))
    gc.collect()
    gc.disable()  # a look through all tasks of a loop would hold the clients up, not the server
    before = ceiling.measure(CEILING_S)
    full = asyncio.run(closed_loop(port, requests, CLIENTS, seconds))
    rate = SHARE * statistics.mean([before, ceiling.measure(CEILING_S)])
    alone = asyncio.run(closed_loop(port, requests, 1, ALONE_S))
    steady = asyncio.run(open_loop(port, requests, CLIENTS, rate, seconds))
    again = asyncio.run(closed_loop(port, requests, 1, ALONE_S))
    ceiling.measure(CEILING_S)
    alone.seconds += again.seconds
    alone.refused, alone.lasted_s = alone.refused + again.refused, alone.lasted_s + again.lasted_s
    alone.of_client = []
    return Load(alone, full, steady)


def start_server(folder: Path) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-m", "geopatch", "serve", str(folder / "gallery"), "--model", str(folder / "model")]
    process = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stdout is not None
    return process, int(process.stdout.readline().rsplit(":", 1)[1])


def main(windows: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        queries = make(folder, windows)
        ceiling = Ceiling(folder, queries)
        process, port = start_server(folder)
        try:
            result = load(port, queries, ceiling, seconds)
        finally:
            process.terminate()
            process.wait()
        ceiling.gallery.close()
    report(windows, ceiling.rates, result)


def report(windows: int, ceilings: list[float], result: Load) -> None:
    rate = len(result.full.seconds) / result.full.lasted_s
    ratio = np.percentile(result.steady.seconds, 99) / np.percentile(result.alone.seconds, 50)
    print(f"closed loop: {rate / statistics.mean(ceilings[:2]):.0%} of the ceiling before and after it")
    print(f"open loop at {SHARE:.0%} of that ceiling: p99 is {ratio:.1f} x the p50 of one client")
    print(f"{windows} windows; ceiling {', '.join(f'{one:.0f}' for one in ceilings)}/s, one thread")
    print(result.alone.line("one client"))
    print(result.full.line(f"{CLIENTS} clients, closed"))
    print(result.steady.line(f"{CLIENTS} clients, open"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    main(arguments.windows, arguments.seconds)
