"""A gallery to look at: the built-in ECG, encoded by a model that is trained on part of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from geopatch.config import TrainConfig
from geopatch.data.sample import ecg_windows, mitdb_minutes
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery

STEPS = 150
TRAIN_S = 120.0  # of each recording's three minutes, those before this are trained on
OPENS_ON = "#record=119&start=130.2&stop=132.2&scorer=fused&protocol=strict-cross-record"  # a ventricular beat


def sample_gallery(out: Path, say: Callable[[str], None], *, progress: bool, device: str, steps: int | None) -> Path:
    """The folder of the gallery; beside it stands its model. What was made before is used again."""
    gallery, model = out / "ecg-gallery", out / "ecg-model"
    if gallery.is_dir() and model.is_dir():
        return gallery
    say("training on two minutes each of six ECG recordings; this takes a minute, and only the first time")
    windows = ecg_windows()
    early = np.asarray([signal.start_s + signal.duration_s <= TRAIN_S for signal in windows.signals])
    known, count = windows.subset(early), steps or STEPS
    out.mkdir(parents=True, exist_ok=True)
    train = TrainConfig(min_steps=count, max_steps=count)
    trained = GeoPatch(train=train, device=device, progress=progress).fit(known.signals, known.labels)
    trained.save(model, overwrite=True)
    with Gallery.create(gallery, trained) as made:
        for recording in mitdb_minutes():
            made.add_recording(recording)
    return gallery
