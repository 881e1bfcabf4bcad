"""Every method by name. Each takes `amplitude`; learned ones also `train`, those that compute in torch `device`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from geopatch.config import TrainConfig
from geopatch.errors import one_of
from geopatch_lab.baselines.classical import Catch22, Euclidean
from geopatch_lab.baselines.dtw import DTW
from geopatch_lab.baselines.inceptiontime import InceptionTime
from geopatch_lab.baselines.invconvnet import InvConvNet
from geopatch_lab.baselines.learned import Build, Learned
from geopatch_lab.baselines.method import Method
from geopatch_lab.baselines.patchtst import PatchTST
from geopatch_lab.baselines.resnet import ResNet
from geopatch_lab.baselines.rocket import MiniRocketFeatures, MiniRocketRidge, MultiRocketHydraRidge
from geopatch_lab.baselines.transformer import Transformer
from geopatch_lab.baselines.ts2vec import BATCH, HierarchicalContrast, TS2Vec
from geopatch_lab.baselines.tstcc import TSTCC, TemporalContextual

NETWORKS: dict[str, Build] = {
    "transformer": Transformer,
    "patchtst": PatchTST,
    "ts2vec": TS2Vec,
    "ts-tcc": TSTCC,
    "ts-resnet": ResNet,
    "inceptiontime": InceptionTime,
    "invconvnet": InvConvNet,
}
SELF_SUPERVISED: dict[str, dict[str, Any]] = {
    "ts2vec": {"aim": HierarchicalContrast, "batch_size": BATCH},
    "ts-tcc": {"aim": TemporalContextual},
}
METHODS: dict[str, Callable[..., Method]] = {
    "euclidean": Euclidean,
    "dtw": DTW,
    "dtw-10": partial(DTW, band=0.1),
    "catch22": Catch22,
    "minirocket": MiniRocketFeatures,
    "minirocket-ridge": MiniRocketRidge,
    "multirocket-hydra-ridge": MultiRocketHydraRidge,
    **{name: partial(Learned, name, build, **SELF_SUPERVISED.get(name, {})) for name, build in NETWORKS.items()},
}


IN_TORCH = ("dtw", "dtw-10", "minirocket", "minirocket-ridge", "multirocket-hydra-ridge", *NETWORKS)


def make(name: str, *, amplitude: str = "keep", train: TrainConfig | None = None, device: str = "cpu") -> Method:
    """A method by its name. What does not concern it, a training or a device, is left aside."""
    one_of("method", name, tuple(METHODS))
    settings: dict[str, Any] = {"amplitude": amplitude}
    if name in NETWORKS:
        settings["train"] = train
    if name in IN_TORCH:
        settings["device"] = device
    return METHODS[name](**settings)
