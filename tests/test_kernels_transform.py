"""The features of the fixed kernels: compiled, by torch and by the naive twin they are the same numbers."""

from __future__ import annotations

import subprocess
import sys

import naive
import numpy as np
import pytest
import torch
from torch import Tensor

from geopatch.kernels import compiled, torch_transform, transform
from geopatch.kernels.bank import FEATURES, TOKEN_FEATURES, Layout, copies, draw_mixes

PATHS = (compiled, torch_transform, transform)
SIZES = [(length, channels) for length in (9, 10, 17, 64, 100, 256, 1000) for channels in (1, 6)]


class Case:
    """Windows, and kernels with biases learned from them."""

    def __init__(self, length: int, channels: int, count: int = 3, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.layout = Layout.of(length)
        self.copies = copies(torch.randn(count, channels, length, generator=generator).cumsum(-1), self.layout)
        self.mixes = draw_mixes(channels, seed)
        self.bias = transform.learn_bias(self.copies, self.mixes, self.layout)
        self.starts = torch.randint(0, length, (count, 5), generator=generator)
        self.stops = self.starts + 1 + (torch.rand(count, 5, generator=generator) * (length - self.starts)).long()
        self.stops.clamp_(max=length)
        self.starts[:, 0], self.stops[:, 0] = 0, 1
        self.starts[:, 1], self.stops[:, 1] = length - 1, length
        self.starts[:, 2], self.stops[:, 2] = 0, length

    def features(self, path: object = compiled, rows: slice = slice(None)) -> Tensor:
        result: Tensor = path.features(self.copies[rows], self.mixes, self.bias, self.layout)  # type: ignore[attr-defined]
        return result

    def spans(self, path: object = compiled, rows: slice = slice(None)) -> Tensor:
        spans = self.starts[rows], self.stops[rows]
        result: Tensor = path.span_features(self.copies[rows], self.mixes, self.bias, self.layout, *spans)  # type: ignore[attr-defined]
        return result

    def both(self, path: object) -> tuple[Tensor, Tensor]:
        spans = self.starts, self.stops
        result: tuple[Tensor, Tensor] = path.window_features(  # type: ignore[attr-defined]
            self.copies, self.mixes, self.bias, self.layout, *spans
        )
        return result


@pytest.mark.parametrize(("length", "channels"), SIZES)
def test_compiled_is_torch_bit_for_bit(length: int, channels: int) -> None:
    case = Case(length, channels)
    assert torch.equal(case.features(), case.features(torch_transform))
    assert torch.equal(case.spans(), case.spans(torch_transform))
    assert case.features().shape == (3, FEATURES)
    assert case.spans().shape == (3, 5, TOKEN_FEATURES)
    for path in PATHS:
        shares, spans = case.both(path)
        assert torch.equal(shares, case.features())
        assert torch.equal(spans, case.spans())


@pytest.mark.parametrize(("length", "channels"), [(9, 1), (17, 6), (64, 2), (130, 1)])
def test_features_are_those_of_the_twin(length: int, channels: int) -> None:
    case = Case(length, channels, count=1)
    mixes, bias, layout = case.mixes.numpy(), case.bias.numpy(), case.layout
    for window in range(1):
        values = case.copies[window].numpy()
        shares = naive.kernel_features(values, mixes, bias, layout.dilation, layout.inner)
        places = list(zip(case.starts[window].tolist(), case.stops[window].tolist(), strict=True))
        spans = naive.kernel_span_features(values, mixes, bias, layout.dilation, places)
        for path in PATHS:
            assert np.array_equal(case.features(path)[window].numpy(), shares)
            assert np.array_equal(case.spans(path)[window].numpy(), spans)


@pytest.mark.parametrize("value", [0.0, 1.0, -3.25])
@pytest.mark.parametrize("channels", [1, 6])
def test_constant_windows(value: float, channels: int) -> None:
    case = Case(64, channels)
    case.copies = torch.full_like(case.copies, value)
    assert torch.equal(case.features(), case.features(torch_transform))
    assert torch.equal(case.spans(), case.spans(torch_transform))
    case.bias = transform.learn_bias(case.copies, case.mixes, case.layout)
    assert torch.equal(case.features(), case.features(torch_transform))
    assert torch.equal(case.spans(), case.spans(torch_transform))


def test_many_channels() -> None:
    case = Case(40, 1345, count=2)
    assert torch.equal(case.features(), case.features(torch_transform))
    assert torch.equal(case.spans(), case.spans(torch_transform))


@pytest.mark.parametrize("channels", [1, 6])
def test_results_depend_on_neither_batch_nor_threads(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(100, channels, count=11)
    whole, spans = case.features(), case.spans()
    for window in range(11):
        row = slice(window, window + 1)
        assert torch.equal(case.features(rows=row), whole[row])
        assert torch.equal(case.spans(rows=row), spans[row])
    monkeypatch.setattr(compiled, "LEAST_WORK", 1)
    for threads in (1, 2, 3, 16):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert torch.equal(case.features(), whole)
        assert torch.equal(case.spans(), spans)


def test_no_windows() -> None:
    case = Case(64, 2)
    for path in (compiled, transform):
        assert case.features(path, slice(0)).shape == (0, FEATURES)
        assert case.spans(path, slice(0)).shape == (0, 5, TOKEN_FEATURES)


def test_windows_need_not_be_contiguous() -> None:
    case = Case(64, 2)
    expected = case.features()
    case.copies = case.copies.transpose(2, 3).contiguous().transpose(2, 3)
    assert torch.equal(case.features(), expected)


def test_without_numba_torch_computes() -> None:
    """In a process that cannot import numba; the product imports it only when features are computed on a CPU."""
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "import torch; from geopatch.kernels import torch_transform, transform\n"
        "from geopatch.kernels.bank import Layout, copies, draw_mixes\n"
        "layout = Layout.of(20); parts = copies(torch.randn(2, 1, 20), layout); mixes = draw_mixes(1, 0)\n"
        "bias = transform.learn_bias(parts, mixes, layout)\n"
        "expected = torch_transform.features(parts, mixes, bias, layout)\n"
        "assert torch.equal(transform.features(parts, mixes, bias, layout), expected)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_importing_the_package_does_not_import_numba() -> None:
    program = "import sys, geopatch, geopatch.estimator; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_nowhere_to_cache() -> None:
    """Neither the package nor the home can be written to: compiled afresh, without a complaint."""
    program = (
        "from numba.core import caching; caching.CacheImpl._locator_classes = []\n"
        "import torch; from geopatch.kernels import compiled\n"
        "from geopatch.kernels.bank import Layout, draw_mixes; layout = Layout.of(9)\n"
        "shares = compiled.features(torch.zeros(1, 3, 1, 9), draw_mixes(1, 0), torch.ones(48, 84), layout)\n"
        "assert not shares.any()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("length", "channels"), SIZES)
def test_cuda_gives_the_same_features(length: int, channels: int) -> None:
    case = Case(length, channels)
    expected, spans = case.features(), case.spans()
    for name in ("copies", "mixes", "bias", "starts", "stops"):
        setattr(case, name, getattr(case, name).cuda())
    torch.testing.assert_close(case.features(transform).cpu(), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(case.spans(transform).cpu(), spans, atol=1e-6, rtol=0)
