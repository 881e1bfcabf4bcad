"""How fast training and encoding are beside the floor their operations set. Machines are noisy: read the ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from geopatch.config import PRESETS, ModelConfig, TrainConfig
from geopatch.model import Encoder
from geopatch.patches import WindowBatch, stack
from geopatch.signal import Signal
from geopatch.train.objective import Objective
from geopatch.train.stepper import Stepper

WINDOWS, SAMPLES, REPEATS = 128, 256, 7


def median_s(work: Callable[[], object]) -> tuple[float, float]:
    """Median wall and CPU seconds of a call."""
    work()
    walls, cpus = [], []
    for _ in range(REPEATS):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return statistics.median(walls), statistics.median(cpus)


def matmul_flops_per_s() -> float:
    """What this machine reaches on a large matrix product: the floor's speed."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    return float(2 * 1024**3 / median_s(lambda: a @ b)[0])


def encode_flops(encoder: Encoder, batch: WindowBatch) -> int:
    with FlopCounterMode(display=False) as counter:
        encoder.train().encode(batch)
    encoder.eval()
    return int(counter.get_total_flops())


def measure(name: str, config: ModelConfig, channels: int) -> None:
    draw = np.random.default_rng(0)
    signals = [Signal.from_array(draw.normal(size=(SAMPLES, channels)), id=str(n)) for n in range(WINDOWS)]
    batch = stack(signals)
    encoder = Encoder(replace(config, channels=channels))
    encoder.learn_scale(batch)
    flops = encode_flops(encoder, batch)
    speed = matmul_flops_per_s()
    with torch.inference_mode():
        wall, cpu = median_s(lambda: encoder.encode(batch))
    print(
        f"{name:8s} C={channels:2d} encode  {flops / WINDOWS / 1e6:5.1f} MFLOP a window"
        f"  {wall / WINDOWS * 1e6:7.0f} us wall  {cpu / WINDOWS * 1e6:7.0f} us CPU"
        f"  {wall / (flops / speed):4.1f} x the floor"
    )
    settings = TrainConfig()
    labels = torch.arange(WINDOWS) % 8
    stepper = Stepper(Objective(encoder, 8, settings), encoder.scale(batch), labels, settings, steps=1000)
    index = torch.arange(WINDOWS)
    wall, cpu = median_s(lambda: stepper.step(index, 500))
    floor = 3 * 2 * flops / speed  # two views; backward costs twice forward
    print(
        f"{name:8s} C={channels:2d} step    {WINDOWS} windows, 2 views each  {wall:.3f} s wall  {cpu:.3f} s CPU"
        f"  {wall / floor:4.1f} x the floor"
    )


if __name__ == "__main__":
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; floor = operations / speed of a large matmul")
    for preset, model in PRESETS.items():
        for channels in (1, 6):
            measure(preset, model, channels)
