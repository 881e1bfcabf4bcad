"""The demo: train on the built-in sample, measure it clean and with warped queries, search it, draw what was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from geopatch import plot
from geopatch.data.collection import Collection
from geopatch.data.sample import basic_motions, ecg_windows
from geopatch.estimator import GeoPatch
from geopatch.evaluate.retrieval import evaluate, train
from geopatch.evaluate.rows import Row
from geopatch.evaluate.stress import warped
from geopatch.train.objective import TrainConfig

MOTION_STEPS, ECG_STEPS = 120, 100  # enough to see it work in a minute or two; a real training takes 1200 and more
TRAIN_S = 120.0  # of each recording's three minutes, those before this are trained on
QUERY_RECORD, QUERY_LABEL = "119", "V"
SHOWN = 6


@dataclass(frozen=True)
class Demo:
    """What the demo measured and where its figure is."""

    rows: list[Row]
    figure: Path
    found: str


def run(
    out: Path, say: Callable[[str], None], *, progress: bool, device: str = "auto", steps: int | None = None
) -> Demo:
    """Motions and heart beats, each trained, measured and searched."""
    say("1 of 2  BasicMotions: four activities seen by a smart watch, 40 windows to train on and 40 to search")
    rows = _measure(*basic_motions(), steps or MOTION_STEPS, progress, device)[1]
    say("2 of 2  MIT-BIH ECG: six patients, trained on two minutes of each, searched in the third")
    before, after = _by_time(ecg_windows(), TRAIN_S)
    estimator, ecg_rows = _measure(before, after, steps or ECG_STEPS, progress, device)
    figure = out / "hits.png"
    out.mkdir(parents=True, exist_ok=True)
    found = draw_hits(estimator, after, figure)
    return Demo(rows + ecg_rows, figure, found)


def _measure(
    before: Collection, after: Collection, steps: int, progress: bool, device: str
) -> tuple[GeoPatch, list[Row]]:
    settings = TrainConfig(min_steps=steps, max_steps=steps)
    trained = train(before, GeoPatch(train=settings, device=device, progress=progress), "default")
    return trained.estimator, evaluate(trained, after, scorers=("fused",))


def _by_time(windows: Collection, until_s: float) -> tuple[Collection, Collection]:
    """Windows that end before a time, and windows that start after it: no sample is on both sides."""
    ends = np.asarray([signal.start_s + signal.duration_s for signal in windows.signals])
    starts = np.asarray([signal.start_s for signal in windows.signals])
    return windows.subset(ends <= until_s), windows.subset(starts >= until_s)


def draw_hits(estimator: GeoPatch, gallery: Collection, path: Path) -> str:
    """One heart beat, played at another tempo, and the nearest windows of the other patients."""
    assert gallery.labels is not None
    records = np.asarray([signal.record for signal in gallery.signals])
    place = int(np.flatnonzero((records == QUERY_RECORD) & (gallery.labels == QUERY_LABEL))[0])
    query = warped(gallery.signals[place])
    scores = estimator.transform(gallery.signals) @ estimator.transform([query])[0]
    others = np.flatnonzero(records != query.record)
    ranked = others[np.argsort(-scores[others], kind="stable")]
    best = _apart(gallery, ranked)[:SHOWN]
    label = str(gallery.labels[place])
    shown = [
        plot.Shown(gallery.signals[n], str(gallery.labels[n]), float(scores[n]), str(gallery.labels[n]) == label)
        for n in best
    ]
    title = (
        f"A ventricular beat of patient {query.record} at another tempo, and the nearest windows of the other patients"
    )
    plot.save(plot.hits(query, label, shown, title, gallery.signals[place]), path)
    right = sum(hit.right for hit in shown)
    return f"{right} of the {len(shown)} nearest windows of other patients are of the query's class {label}"


def _apart(gallery: Collection, ranked: npt.NDArray[np.intp]) -> list[int]:
    """The ranked windows without those that overlap a better one."""
    kept: list[int] = []
    for place in ranked.tolist():
        window = gallery.signals[place]
        near = (gallery.signals[other] for other in kept if gallery.signals[other].record == window.record)
        if all(abs(other.start_s - window.start_s) >= window.duration_s for other in near):
            kept.append(place)
    return kept
