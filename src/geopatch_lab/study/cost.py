"""What encoding and searching cost: how time grows with size, against the paper's claims, and MFLOP of each network."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from geopatch.errors import DataError
from geopatch.model.encoder import Encoder
from geopatch.patches import WindowBatch, patchify
from geopatch.scoring import SHORTLIST, rerank
from geopatch.storage import atomic_file
from geopatch_lab.baselines.registry import NETWORKS
from geopatch_lab.study.ablations import ALL_ABLATIONS, ENCODERS, FULL, setting
from geopatch_lab.study.journal import Spent

SAMPLES = 256  # of the window whose MFLOP are counted
REPEATS = 5  # the fastest counts: everything else is what the machine did besides


@dataclass(frozen=True)
class Growth:
    """Seconds over sizes, and the exponent of the power law through them; the paper's own beside it."""

    what: str
    variable: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    claimed: float

    @property
    def exponent(self) -> float:
        """The slope of log seconds over log size."""
        return float(np.polyfit(np.log(self.sizes), np.log(self.seconds), 1)[0])


@dataclass(frozen=True)
class Cost:
    """MFLOP of one window by method, the growths, and what the study itself took."""

    mflop: dict[str, float]
    growths: tuple[Growth, ...]
    spent: tuple[Spent, ...] = ()


def growths(repeats: int = REPEATS, scale: int = 1) -> tuple[Growth, ...]:
    """Measured on this machine with one thread; `scale` divides all sizes, for a trial."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return tuple(_growth(*measurement, repeats, scale) for measurement in MEASUREMENTS)
    finally:
        torch.set_num_threads(threads)


def _growth(
    what: str,
    variable: str,
    sizes: Sequence[int],
    claimed: float,
    build: Callable[[int], Callable[[], object]],
    repeats: int,
    scale: int,
) -> Growth:
    smaller = tuple(max(size // scale, 2) for size in sizes)
    return Growth(what, variable, smaller, tuple(_fastest(build(size), repeats) for size in smaller), claimed)


@torch.inference_mode()
def _fastest(call: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats + 1):  # the first one warms up
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])


def _windows(count: int, samples: int, channels: int = 1) -> WindowBatch:
    values = torch.randn(count, samples, channels, generator=torch.Generator().manual_seed(0))
    return WindowBatch(values, torch.ones(count, samples), torch.full((count,), samples), None, False)


def _encoding(samples: int, count: int, patches: int | None = None) -> Callable[[], object]:
    config = setting(FULL).model
    encoder = Encoder(config if patches is None else replace(config, max_patches=patches)).eval()
    windows = _windows(count, samples)
    return lambda: encoder.encode(windows)


def _patching(samples: int, patches: int) -> Callable[[], object]:
    windows, config = _windows(64, samples), replace(setting(FULL).model, max_patches=patches)
    return lambda: patchify(windows, config)


def _searching(count: int) -> Callable[[], object]:
    vectors = nn.functional.normalize(torch.randn(count, 128), dim=1)
    return lambda: [(part @ vectors.mT).topk(min(SHORTLIST, count)) for part in vectors.split(256)]


def _reranking(count: int, patches: int) -> Callable[[], object]:
    vectors, tokens = torch.randn(max(count, 64), 128), torch.randn(max(count, 64), patches, 64)
    valid = torch.ones(len(tokens), patches, dtype=torch.bool)
    shortlist = min(SHORTLIST, len(tokens))

    def call() -> list[Tensor]:
        parts = torch.arange(count).split(64)
        return [rerank(vectors[p] @ vectors.mT, tokens[p], valid[p], tokens, valid, "maxsim", shortlist) for p in parts]

    return call


MEASUREMENTS: tuple[tuple[str, str, tuple[int, ...], float, Callable[[int], Callable[[], object]]], ...] = (
    ("encode", "N windows", (32, 64, 128, 256), 1.0, lambda size: _encoding(256, size)),
    ("encode", "T samples", (256, 512, 1024, 2048), 1.0, lambda size: _encoding(size, 32)),
    ("encode", "K patches", (8, 16, 32, 64), 1.0, lambda size: _encoding(1024, 32, size)),
    ("patches and geometry", "K patches", (8, 16, 32, 64), 1.0, lambda size: _patching(1024, size)),
    ("search all against all", "N windows", (2048, 4096, 8192), 2.0, _searching),
    ("MaxSim of the shortlists", "N windows", (64, 128, 256), 1.0, lambda size: _reranking(size, 16)),
    ("MaxSim of the shortlists", "K patches", (16, 32, 64), 2.0, lambda size: _reranking(64, size)),
)


def mflop() -> dict[str, float]:
    """Multiply-adds counted twice, of one window of 256 samples and one channel: encoders, ablations, networks."""
    counts = {name: _counted(_encoder_call(name)) for name in ENCODERS}
    for name, build in NETWORKS.items():
        body = build(1, SAMPLES).eval()
        values, inside = torch.zeros(1, SAMPLES, 1), torch.ones(1, SAMPLES, dtype=torch.bool)
        counts[name] = _counted(lambda body=body, values=values, inside=inside: body(values, inside))  # type: ignore[misc]
    return counts


def _encoder_call(name: str) -> Callable[[], object]:
    encoder = Encoder(setting(name).model).eval()
    if name in ALL_ABLATIONS and encoder.learned is not None:
        encoder.learned.rebuild = None  # a search rebuilds nothing
    return lambda: encoder.encode(_windows(1, SAMPLES))


@torch.inference_mode()
def _counted(call: Callable[[], object]) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # its fused attention is not counted
    try:
        with FlopCounterMode(display=False) as counter:
            call()
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return float(counter.get_total_flops()) / 1e6


def write_cost(path: Path, cost: Cost) -> None:
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(asdict(cost), indent=1) + "\n", encoding="utf-8")


def read_cost(path: Path) -> Cost:
    try:
        payload = json.loads(path.read_text(encoding="utf-8"))
        lists = ({**one, "sizes": tuple(one["sizes"]), "seconds": tuple(one["seconds"])} for one in payload["growths"])
        spent = tuple(Spent(**one) for one in payload.get("spent", ()))
        return Cost(payload["mflop"], tuple(Growth(**one) for one in lists), spent)
    except OSError as error:
        raise DataError(f"cannot read costs from {path}: {error.strerror}; check the path") from error
    except (json.JSONDecodeError, TypeError, KeyError) as error:
        raise DataError(f"{path} holds no costs ({error}); measure them again") from error
