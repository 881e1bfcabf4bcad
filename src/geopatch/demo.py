"""The demo: search the built-in sample without labels and without training, measure it, and what labels add."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geopatch import plot
from geopatch.data.collection import Collection
from geopatch.data.sample import basic_motions, ecg_windows, mitdb_minutes
from geopatch.estimator import GeoPatch
from geopatch.evaluate.retrieval import Trained, evaluate, train
from geopatch.evaluate.rows import Row
from geopatch.gallery import Gallery
from geopatch.search import Hit
from geopatch.signal import Signal
from geopatch.warp import warped

STEPS = 100  # enough to see it work in a minute or two; a real training takes 1200 and more
FIT_S = 120.0  # of each recording's three minutes, those before this are fitted on
QUERY_RECORD, QUERY_BEAT = "119", "V"
OPENS_ON = "#record=119&start=130.2&stop=132.2&scorer=fused&protocol=strict-cross-record"  # a ventricular beat
PROTOCOL, MIN_GAP_S, SHOWN = "strict-cross-record", 2.0, 6
TITLE = "A ventricular beat of patient {} at another tempo, and the nearest windows of the other patients"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Demo:
    """The hits of a search that had neither labels nor training, and where model, gallery and figures are."""

    fitted: Trained
    hits: list[Hit]
    model: Path
    gallery: Path
    figures: tuple[Path, Path]
    summary: str
    again: tuple[str, ...]  # arguments of a command that searches the gallery


def search(out: Path, say: Say, *, progress: bool, device: str = "auto") -> Demo:
    """Fixed kernels fitted to heart beats without their labels; then a gallery of others, searched and drawn."""
    before, after = _by_time(ecg_windows(), FIT_S)
    say("MIT-BIH ECG: fixed kernels, fitted to two minutes of six patients; no label, no training")
    fitted = _fit_unlabelled(before, progress, device)
    say(f"fitted to {len(before)} windows in {fitted.fit_s:.0f} s")
    model, gallery, figures = out / "model", out / "gallery", (out / "hits.png", out / "alignment.png")
    out.mkdir(parents=True, exist_ok=True)
    fitted.estimator.save(model, overwrite=True)
    make_gallery(gallery, fitted.estimator, after)
    say(f"a gallery of the {len(after)} windows of the third minute, searched by a beat of one patient, warped in time")
    recorded = _example(after)
    hits = _search(gallery, fitted.estimator, warped(recorded))
    draw(recorded, hits, figures)
    return Demo(fitted, hits, model, gallery, figures, _summary(hits), _again(gallery, recorded))


def measure(fitted: Trained, say: Say, *, progress: bool, device: str = "auto") -> list[Row]:
    """How often the nearest window has the query's class, which no fit was told."""
    say("how often the nearest window is of the query's class: heart beats, and motions seen by a smart watch")
    before, after = basic_motions()
    motions = _fit_unlabelled(before, progress, device)
    beats = _by_time(ecg_windows(), FIT_S)[1]
    return evaluate(motions, after, scorers=("fused",)) + evaluate(fitted, beats, scorers=("fused",))


def measure_trained(say: Say, *, steps: int | None, progress: bool, device: str = "auto") -> list[Row]:
    """The same with labels: a half that is trained beside the fixed kernels."""
    count = steps or STEPS
    say(f"the same with labels: {count} training steps each; a real training takes 1200 and more")
    rows = list[Row]()
    for before, after in (basic_motions(), _by_time(ecg_windows(), FIT_S)):
        estimator = GeoPatch(max_steps=count, device=device, progress=progress)
        rows += evaluate(train(before, estimator, "default"), after, scorers=("fused",))
    return rows


def _fit_unlabelled(windows: Collection, progress: bool, device: str) -> Trained:
    started = time.perf_counter()
    estimator = GeoPatch(device=device, progress=progress).fit(windows.signals)
    return Trained(estimator, "instant", estimator.seed_, time.perf_counter() - started)


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


def sample_gallery(out: Path, say: Say, *, progress: bool, device: str) -> Path:
    """The folder of a gallery of all three minutes, without labels. What was made before is used again."""
    folder = out / "ecg-gallery"
    if folder.is_dir():
        return folder
    say("fitting fixed kernels to three minutes of six ECG recordings; this takes seconds, and only the first time")
    fitted = GeoPatch(device=device, progress=progress).fit(ecg_windows().signals)
    out.mkdir(parents=True, exist_ok=True)
    with Gallery.create(folder, fitted) as gallery:
        for recording in mitdb_minutes():
            gallery.add_recording(recording)
    return folder
