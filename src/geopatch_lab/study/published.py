"""Figures that were published for the baselines, to see how close ours come: accuracies on an archive's test split."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """What is reported for a method on one set; None where no figure for one set is known to us."""

    method: str
    data: str
    accuracy: float | None
    source: str
    checked: bool = True  # False: from memory, the paper was not at hand


ARCHIVE = "Dau et al. 2018, the archive's table of default rates"
UEA_TABLE = "Yue et al. 2022 (TS2Vec), table of UEA results"
RESNET = "Ismail Fawaz et al. 2019, first of ten runs, 1500 epochs"
INCEPTION = "Ismail Fawaz et al. 2020, first single network, 1500 epochs"
PUBLISHED = (
    Published("euclidean", "GunPoint", 0.913, ARCHIVE),
    Published("euclidean", "OSULeaf", 0.521, ARCHIVE),
    Published("dtw", "GunPoint", 0.907, ARCHIVE),
    Published("dtw", "OSULeaf", 0.591, ARCHIVE),
    Published("minirocket-ridge", "OSULeaf", 0.958, "Dempster et al. 2021, mean of 30 resamples"),
    Published("ts-resnet", "GunPoint", 0.993, RESNET),
    Published("ts-resnet", "OSULeaf", 0.979, RESNET),
    Published("inceptiontime", "GunPoint", 1.000, INCEPTION),
    Published("inceptiontime", "OSULeaf", 0.926, INCEPTION),
    Published("ts2vec", "NATOPS", 0.928, UEA_TABLE, checked=False),
    Published("ts-tcc", "NATOPS", 0.822, UEA_TABLE, checked=False),
    Published("transformer", "UWaveGestureLibrary", 0.856, "Wu et al. 2023 (TimesNet)", checked=False),
    Published("patchtst", "UWaveGestureLibrary", 0.858, "Luo and Wang 2024 (ModernTCN)", checked=False),
    Published("invconvnet", "UWaveGestureLibrary", None, "Germain et al. 2025: no figure for one set at hand"),
)
SETS = tuple(dict.fromkeys(one.data for one in PUBLISHED))
