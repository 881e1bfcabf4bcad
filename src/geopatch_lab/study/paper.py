"""Published numbers to compare with: the paper's own (R@1 / mAP unless it is said otherwise), and what was reported for
the baselines, as accuracies on an archive's test split."""

from __future__ import annotations

from dataclasses import dataclass

Pair = tuple[float, float]

COLUMNS = ("nsrdb", "nstdb", "mitdb", "arctic", "UEA mean", "UEA median")

MAIN: dict[str, tuple[Pair, ...]] = {
    "geopatch": (
        (0.8800, 0.4589),
        (1.0000, 0.9999),
        (0.8018, 0.4853),
        (0.8515, 0.6338),
        (0.7639, 0.5382),
        (0.8447, 0.5796),
    ),
    "transformer": (
        (0.6736, 0.5023),
        (0.9982, 0.9966),
        (0.6458, 0.4853),
        (0.8012, 0.5761),
        (0.5920, 0.4484),
        (0.6341, 0.3667),
    ),
    "patchtst": (
        (0.6520, 0.4943),
        (1.0000, 0.9913),
        (0.6334, 0.4413),
        (0.8044, 0.5754),
        (0.7326, 0.6232),
        (0.8594, 0.7087),
    ),
    "ts2vec": (
        (0.6445, 0.4927),
        (1.0000, 0.9954),
        (0.7455, 0.5276),
        (0.8076, 0.5741),
        (0.7841, 0.6550),
        (0.8694, 0.6548),
    ),
    "ts-tcc": (
        (0.6799, 0.4882),
        (1.0000, 0.9894),
        (0.7587, 0.5149),
        (0.8098, 0.5713),
        (0.7045, 0.5624),
        (0.7645, 0.6100),
    ),
    "ts-resnet": (
        (0.6676, 0.4755),
        (1.0000, 0.9981),
        (0.7343, 0.4835),
        (0.7619, 0.5445),
        (0.7691, 0.6524),
        (0.8652, 0.6513),
    ),
    "inceptiontime": (
        (0.6609, 0.4951),
        (1.0000, 0.9906),
        (0.7690, 0.5389),
        (0.7913, 0.5457),
        (0.7925, 0.6735),
        (0.8573, 0.6897),
    ),
    "minirocket": (
        (0.6673, 0.4930),
        (0.9945, 0.9494),
        (0.9138, 0.6056),
        (0.8450, 0.6323),
        (0.8538, 0.6471),
        (0.8507, 0.6464),
    ),
    "invconvnet": (
        (0.6805, 0.4998),
        (1.0000, 0.9966),
        (0.8416, 0.5320),
        (0.7517, 0.4919),
        (0.7707, 0.4935),
        (0.6712, 0.4584),
    ),
}
MAXSIM = ((0.9727, 0.4591), (1.0000, 0.9999), (0.9785, 0.4905), (0.8538, 0.6835), (0.7984, 0.5427), (0.8771, 0.5807))
STRICT_RECALL = {  # its Strict: same-record candidates stay in the ranking and count as wrong; base, MaxSim
    "nsrdb": (0.3229, 0.0563),
    "nstdb": (0.6494, 0.1697),
    "mitdb": (0.3885, 0.0355),
}
ROBUSTNESS_METRICS = ("recall@1", "recall@5", "map", "mrr")
ROBUSTNESS: dict[str, dict[str, tuple[float, float, float, float]]] = {
    "AbnormalHeartbeat": {
        "clean": (0.6439, 0.9463, 0.6253, 0.7799),
        "warp": (0.6049, 0.9220, 0.6121, 0.7469),
        "geometry-noise": (0.6683, 0.9463, 0.6212, 0.7868),
        "span-mask": (0.6634, 0.9659, 0.6271, 0.7915),
        "shuffle": (0.6634, 0.9610, 0.6252, 0.7876),
    },
    "ArticularyWordRecognition": {
        "clean": (0.7400, 0.9033, 0.4047, 0.8168),
        "warp": (0.7433, 0.9233, 0.4427, 0.8285),
        "geometry-noise": (0.7467, 0.9033, 0.4082, 0.8195),
        "span-mask": (0.4900, 0.8033, 0.2517, 0.6295),
        "shuffle": (0.7033, 0.9033, 0.3951, 0.7909),
    },
    "BasicMotions": {
        "clean": (0.9000, 0.9750, 0.6670, 0.9328),
        "warp": (0.7750, 0.9500, 0.6359, 0.8460),
        "geometry-noise": (0.9000, 0.9750, 0.6720, 0.9325),
        "span-mask": (0.9750, 1.0000, 0.6656, 0.9800),
        "shuffle": (0.9250, 0.9750, 0.6666, 0.9456),
    },
    "ECG5000": {
        "clean": (0.9184, 0.9609, 0.7373, 0.9389),
        "warp": (0.8956, 0.9524, 0.6947, 0.9231),
        "geometry-noise": (0.9171, 0.9598, 0.7348, 0.9375),
        "span-mask": (0.8678, 0.9440, 0.5814, 0.9045),
        "shuffle": (0.9080, 0.9587, 0.7286, 0.9324),
    },
    "Handwriting": {
        "clean": (0.4200, 0.7671, 0.1165, 0.5732),
        "warp": (0.3565, 0.6788, 0.1017, 0.5015),
        "geometry-noise": (0.4176, 0.7694, 0.1173, 0.5711),
        "span-mask": (0.1259, 0.3929, 0.0631, 0.2573),
        "shuffle": (0.4071, 0.7588, 0.1153, 0.5619),
    },
    "NATOPS": {
        "clean": (0.6722, 0.9444, 0.4533, 0.7792),
        "warp": (0.7333, 0.9500, 0.4463, 0.8256),
        "geometry-noise": (0.6833, 0.9611, 0.4531, 0.7880),
        "span-mask": (0.4000, 0.8167, 0.2260, 0.5781),
        "shuffle": (0.6611, 0.9333, 0.4464, 0.7725),
    },
    "UWaveGestureLibrary": {
        "clean": (0.7781, 0.9219, 0.3446, 0.8396),
        "warp": (0.7688, 0.9219, 0.3523, 0.8341),
        "geometry-noise": (0.7812, 0.9187, 0.3403, 0.8394),
        "span-mask": (0.6937, 0.8906, 0.3253, 0.7820),
        "shuffle": (0.7156, 0.9187, 0.3262, 0.7986),
    },
}
DROPS_PERCENT = {  # average of the relative drop in R@1, R@5, mAP, MRR
    "warp": (4.2, 2.1, 2.2, 3.0),
    "geometry-noise": (-0.9, -0.2, 0.0, -0.3),
    "span-mask": (21.3, 10.6, 22.9, 15.4),
    "shuffle": (1.9, 0.2, 1.6, 1.3),
}


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
PUBLISHED_SETS = tuple(dict.fromkeys(one.data for one in PUBLISHED))
