"""Make the prior of the fixed kernels from training windows of archive sets and of MITDB's DS1, without labels.

python runs/prior.py --data-root DATA --out src/geopatch/kernels/general.safetensors
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from geopatch.config import DISTORTIONS, ModelConfig
from geopatch.data import catalog
from geopatch.kernels.bank import FEATURES, TOKEN_FEATURES, copies, draw_mixes
from geopatch.kernels.fitting import RANK, KernelFit, Views, centre_and_scale, evened, half_features
from geopatch.kernels.half import KernelHalf, token_spans
from geopatch.kernels.moments import Moments, directions
from geopatch.kernels.prior import FeaturePrior, LowRank, Prior
from geopatch.kernels.transform import learn_bias, span_features
from geopatch.model.encoder import Encoder
from geopatch.patches import WindowBatch, stack
from geopatch.signal import Signal
from geopatch.views import MildClock

WINDOWS, VIEWS, LENGTH = 64, 16, 256  # of each set
TOKEN_VIEWS = 4
GENERAL_WINDOWS = 8  # of each set, for the biases of the model that nothing is fitted for


def signals_of(root: Path) -> Iterator[tuple[str, list[Signal]]]:
    """Up to WINDOWS training windows of each set, one channel each."""
    rng = np.random.default_rng(0)
    for name in (*sorted(path.stem for path in (root / "ucr_pool").glob("*.npz")), "mitdb"):
        train = catalog.windows(name, root, download=None).train
        assert train is not None
        count = 4 * WINDOWS if name == "mitdb" else WINDOWS
        chosen = rng.permutation(len(train.signals))[:count]
        signals = [train.signals[int(n)] for n in chosen]
        yield name, [one_channel(signal, int(rng.integers(signal.values.shape[1]))) for signal in signals]


def write_windows(root: Path, path: Path) -> None:
    arrays: dict[str, Any] = {
        f"{name} {n}": signal.values for name, signals in signals_of(root) for n, signal in enumerate(signals)
    }
    np.savez_compressed(path, **arrays)


def read_windows(path: Path) -> list[tuple[str, list[Signal]]]:
    by_set: dict[str, list[Signal]] = {}
    with np.load(path) as arrays:
        for name in arrays.files:
            by_set.setdefault(name.split()[0], []).append(Signal.from_array(arrays[name], id=name))
    return list(by_set.items())


def one_channel(signal: Signal, channel: int) -> Signal:
    return replace(signal, values=signal.values[:, [channel]], channels=())


def scaled(signals: list[Signal], amplitude: str, device: str) -> tuple[KernelHalf, WindowBatch]:
    """Windows in units of their set, at the length of the kernels, and a half with biases of their own."""
    windows = stack(signals).to(device)
    length = LENGTH if amplitude == "zscore" else min(int(windows.lengths.float().median()), LENGTH)
    config = ModelConfig(halves=("kernels",), length=max(length, 9), amplitude=amplitude)
    encoder = Encoder(config)
    encoder.learn_scale(windows.to("cpu"))
    encoder.to(device)
    half = encoder.kernels
    assert half is not None
    batch = evened(half, encoder.treated(encoder.scale(windows)))
    half.mixes.copy_(draw_mixes(1, 0))
    half.bias.copy_(learn_bias(copies(batch.values.transpose(1, 2).contiguous(), half.layout), half.mixes, half.layout))
    return half, batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, help="Read training windows from here and write --windows.")
    parser.add_argument("--windows", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    if arguments.data_root is not None:
        write_windows(arguments.data_root, arguments.windows)
    if arguments.out is not None:
        write_prior(read_windows(arguments.windows), arguments.out, arguments.device)


def write_prior(sets: list[tuple[str, list[Signal]]], out: Path, device: str) -> None:
    views = Views(DISTORTIONS, MildClock(), torch.Generator(device=device).manual_seed(0))
    prepared = [(name, signals, *scaled(signals, "keep", device)) for name, signals in sets]
    clean = [clean_features(half, batch) for _, _, half, batch in prepared]
    mean, scale = pooled([part for part, _ in clean])
    token_mean, token_scale = pooled([part for _, part in clean])
    everything, tokens = Moments.empty(FEATURES, 0, device), Moments.empty(TOKEN_FEATURES, 0, device)
    between, token_between = (
        torch.zeros(size, size, dtype=torch.float64, device=device) for size in (FEATURES, TOKEN_FEATURES)
    )
    for name, _, half, batch in prepared:
        own, own_tokens = Moments.empty(FEATURES, 0, device), Moments.empty(TOKEN_FEATURES, 0, device)
        fit = KernelFit(mean, scale, torch.eye(FEATURES, device=device), own, token_mean, token_scale, own_tokens)
        for part in batch_parts(batch):
            seen = views.draw(part, VIEWS)
            values = copies(seen.windows.values.transpose(1, 2).contiguous(), half.layout)
            placed = (half_features(half, seen.windows) - mean) / scale
            fit.moments.add(placed.unflatten(0, (len(part), VIEWS)))
            fit.add_tokens(half, part, seen, values, VIEWS, TOKEN_VIEWS / VIEWS)
        share = 1 / len(prepared)
        everything.within += share * fit.moments.drift()
        tokens.within += share * fit.token_moments.drift()
        between += share * fit.moments.between()
        token_between += share * fit.token_moments.between()
        print(name, half.layout.length, len(batch), flush=True)
    prior = Prior(
        feature_prior(mean, scale, everything.within, between, ModelConfig.embedding),
        feature_prior(token_mean, token_scale, tokens.within, token_between, ModelConfig.width),
        general_bias([signal for _, signals in sets for signal in signals[:GENERAL_WINDOWS]], device),
    )
    save_file({name: value.cpu().contiguous() for name, value in prior.tensors().items()}, out)


def feature_prior(mean: Tensor, scale: Tensor, drift: Tensor, between: Tensor, count: int) -> FeaturePrior:
    basis = torch.linalg.eigh(drift + between).eigenvectors[:, -RANK:]
    turned = basis @ directions(basis.mT @ drift @ basis, basis.mT @ between @ basis, count)
    return FeaturePrior(mean, scale, LowRank.of(drift), LowRank.of(between), (turned / scale[:, None]).half())


def batch_parts(batch: WindowBatch) -> Iterator[WindowBatch]:
    for first in range(0, len(batch), WINDOWS):
        yield batch.rows(slice(first, first + WINDOWS))


def clean_features(half: KernelHalf, batch: WindowBatch) -> tuple[Tensor, Tensor]:
    """Of windows and of tokens."""
    values = copies(batch.values.transpose(1, 2).contiguous(), half.layout)
    scaffold = half.scaffold(batch.lengths)
    spans = token_spans(scaffold, batch.lengths, half.layout.length)
    tokens = span_features(values, half.mixes, half.bias, half.layout, *spans)[scaffold.valid]
    return half_features(half, batch), tokens


def pooled(parts: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The mean of the sets' means, and the root mean square of their scales."""
    measured = [centre_and_scale(part) for part in parts]
    means, scales = (torch.stack(column) for column in zip(*measured, strict=True))
    return means.mean(0), scales.square().mean(0).sqrt()


def general_bias(signals: list[Signal], device: str) -> Tensor:
    """Biases for windows of any set, each brought to mean 0 and spread 1."""
    half, batch = scaled(signals, "zscore", device)
    values = copies(batch.values.transpose(1, 2).contiguous(), half.layout)
    return learn_bias(values, half.mixes, half.layout, len(signals))


if __name__ == "__main__":
    with torch.inference_mode():
        main()
