"""The demo: train on the built-in sample, measure it, make a gallery of it, search that and draw the hits."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geopatch import plot
from geopatch.config import TrainConfig
from geopatch.data.collection import Collection
from geopatch.data.sample import basic_motions, ecg_windows, mitdb_minutes
from geopatch.estimator import GeoPatch
from geopatch.evaluate.retrieval import evaluate, train
from geopatch.evaluate.rows import Row
from geopatch.gallery import Gallery
from geopatch.search import Hit
from geopatch.signal import Signal
from geopatch.warp import warped

MOTION_STEPS, ECG_STEPS, SERVED_STEPS = (
    120,
    100,
    150,
)  # enough to see it work in a minute or two; a real training takes 1200 and more
TRAIN_S = 120.0  # of each recording's three minutes, those before this are trained on
QUERY_RECORD, QUERY_BEAT = "119", "V"
OPENS_ON = "#record=119&start=130.2&stop=132.2&scorer=fused&protocol=strict-cross-record"  # a ventricular beat
PROTOCOL, MIN_GAP_S, SHOWN = "strict-cross-record", 2.0, 6
TITLE = "A ventricular beat of patient {} at another tempo, and the nearest windows of the other patients"


@dataclass(frozen=True)
class Demo:
    """What the demo measured, its hits, and where it left its model, gallery and figures."""

    rows: list[Row]
    hits: list[Hit]
    model: Path
    gallery: Path
    figures: tuple[Path, Path]
    summary: str
    again: tuple[str, ...]  # arguments of a command that searches the gallery


def run(
    out: Path, say: Callable[[str], None], *, progress: bool, device: str = "auto", steps: int | None = None
) -> Demo:
    """Motions and heart beats, each trained and measured; then a gallery of the heart beats, and a search of it."""
    say("1 of 3  BasicMotions: four activities seen by a smart watch, 40 windows to train on and 40 to search")
    rows = _measure(*basic_motions(), steps or MOTION_STEPS, progress, device)[1]
    say("2 of 3  MIT-BIH ECG: six patients, trained on two minutes of each, searched in the third")
    before, after = _by_time(ecg_windows(), TRAIN_S)
    estimator, ecg_rows = _measure(before, after, steps or ECG_STEPS, progress, device)
    say(f"3 of 3  A gallery of the {len(after)} windows of the third minute, searched by a beat of one patient")
    model, gallery, figures = out / "model", out / "gallery", (out / "hits.png", out / "alignment.png")
    out.mkdir(parents=True, exist_ok=True)
    estimator.save(model, overwrite=True)
    make_gallery(gallery, estimator, after)
    recorded = _example(after)
    hits = _search(gallery, estimator, warped(recorded))
    draw(recorded, hits, figures)
    return Demo(rows + ecg_rows, hits, model, gallery, figures, _summary(hits), _again(gallery, recorded))


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


def make_gallery(folder: Path, estimator: GeoPatch, windows: Collection) -> None:
    """A gallery of windows with the class of their beats. One that an earlier demo left is made anew."""
    assert windows.labels is not None
    if folder.exists():
        Gallery.open(folder).close()  # refuses a folder that is no gallery, and one that is being written to
        shutil.rmtree(folder)
    with Gallery.create(folder, estimator) as gallery:
        gallery.add(windows.signals, metadata=[{"beat": str(label)} for label in windows.labels])


def _example(windows: Collection) -> Signal:
    """The window that is searched by."""
    assert windows.labels is not None
    records = np.asarray([signal.record for signal in windows.signals])
    return windows.signals[int(np.flatnonzero((records == QUERY_RECORD) & (windows.labels == QUERY_BEAT))[0])]


def _search(folder: Path, estimator: GeoPatch, query: Signal) -> list[Hit]:
    with Gallery.open(folder, model=estimator, read_only=True) as gallery:
        return gallery.search(query, SHOWN, protocol=PROTOCOL, min_gap_s=MIN_GAP_S, certify=True)


def _again(folder: Path, query: Signal) -> tuple[str, ...]:
    """The same search by the window as it was recorded."""
    how = ("--protocol", PROTOCOL, "--min-gap", f"{MIN_GAP_S:g}", "-k", str(SHOWN))
    return ("search", str(folder), "--id", query.id, *how, "--plot", str(folder.parent / "again.png"))


def _summary(hits: Sequence[Hit]) -> str:
    right = sum(_is_right(hit) for hit in hits)
    return f"{right} of the {len(hits)} nearest windows of other patients are of the query's class {QUERY_BEAT}"


def _is_right(hit: Hit) -> bool:
    return bool(hit.metadata["beat"] == QUERY_BEAT)


def draw(recorded: Signal, hits: Sequence[Hit], figures: tuple[Path, Path]) -> None:
    """The query over its hits, and the best hit patch by patch."""
    query = warped(recorded)
    shown = [
        plot.Shown(hit.window, str(hit.metadata["beat"]), hit.score, _is_right(hit))
        for hit in hits
        if hit.window is not None
    ]
    plot.save(plot.hits(query, QUERY_BEAT, shown, TITLE.format(query.record), recorded), figures[0])
    plot.save(plot.alignment(query, hits[0]), figures[1])


def sample_gallery(out: Path, say: Callable[[str], None], *, progress: bool, device: str, steps: int | None) -> Path:
    """The folder of the gallery; beside it stands its model. What was made before is used again."""
    gallery, model = out / "ecg-gallery", out / "ecg-model"
    if gallery.is_dir() and model.is_dir():
        return gallery
    say("training on two minutes each of six ECG recordings; this takes a minute, and only the first time")
    windows = ecg_windows()
    early = np.asarray([signal.start_s + signal.duration_s <= TRAIN_S for signal in windows.signals])
    known, count = windows.subset(early), steps or SERVED_STEPS
    out.mkdir(parents=True, exist_ok=True)
    train = TrainConfig(min_steps=count, max_steps=count)
    trained = GeoPatch(train=train, device=device, progress=progress).fit(known.signals, known.labels)
    trained.save(model, overwrite=True)
    with Gallery.create(gallery, trained) as made:
        for recording in mitdb_minutes():
            made.add_recording(recording)
    return gallery
