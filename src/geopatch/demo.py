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
from geopatch.data.recording import WindowConfig
from geopatch.data.sample import basic_motions, ecg_windows, mitdb_minutes
from geopatch.errors import DataError
from geopatch.estimator import GeoPatch
from geopatch.evaluate.retrieval import Trained, evaluate, train
from geopatch.evaluate.rows import Row
from geopatch.gallery import Gallery
from geopatch.scoring import DEFAULT_SCORER
from geopatch.search import Hit
from geopatch.signal import Signal
from geopatch.warp import warped

STEPS = 100  # enough to see it work in a minute or two; a real training takes 1200 and more
FIT_S = 120.0  # of each recording's three minutes, those before this are fitted on
QUERY_RECORD, QUERY_BEAT = "119", "V"
OPENS_ON = "#record=119&start=130.2&stop=132.2&scorer=fused&protocol=strict-cross-record"  # a ventricular beat
RATE_HZ, SCORERS = 128.0, (DEFAULT_SCORER,)
PROTOCOL, MIN_GAP_S, SHOWN = "strict-cross-record", 2.0, 6
TITLE = "A ventricular beat of patient {} at another tempo, and the nearest windows of the other patients"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Demo:
    """The hits of a search that nothing was fitted for, and where gallery and figures are."""

    hits: list[Hit]
    seconds: float  # from the first window to the last hit
    gallery: Path
    figures: tuple[Path, Path]
    summary: str
    again: tuple[str, ...]  # arguments of a command that searches the gallery


def search(out: Path, say: Say, *, device: str = "auto") -> Demo:
    """A gallery of heart beats, encoded by the model that comes with the package; searched by one of them and drawn."""
    _, windows = samples()[1]
    say(
        f"MIT-BIH ECG, six patients: a gallery of {len(windows)} windows, searched by a beat of one of them, warped in"
        " time.\nNothing is trained or fitted, and no label is used: the model comes with the package."
    )
    started = time.perf_counter()
    gallery, figures = out / "gallery", (out / "hits.png", out / "alignment.png")
    out.mkdir(parents=True, exist_ok=True)
    make_gallery(gallery, general(windows, device), windows)
    recorded = _example(windows)
    with Gallery.open(gallery, read_only=True) as opened:
        hits = opened.search(warped(recorded), SHOWN, protocol=PROTOCOL, min_gap_s=MIN_GAP_S, certify=True)
    seconds = time.perf_counter() - started
    draw(recorded, hits, figures)
    return Demo(hits, seconds, gallery, figures, _summary(hits), _again(gallery, recorded))


def write_recordings(folder: Path) -> list[Path]:
    """The built-in ECG as CSV files with a column of seconds, to try `geopatch index` on."""
    if folder.exists():
        raise DataError(f"{folder} is there already; choose another folder")
    folder.mkdir(parents=True)
    paths = []
    for recording in mitdb_minutes():
        signal = recording.signal
        seconds = np.arange(signal.length) / signal.clock_hz
        head = ["time_s", *(f"{lead} (mV)" for lead in signal.channels or ())]
        paths.append(folder / f"{recording.subject}.csv")
        columns, formats = np.column_stack([seconds, signal.values]), ["%.4f", *["%.3f"] * signal.values.shape[1]]
        np.savetxt(paths[-1], columns, formats, delimiter=",", header=",".join(head), comments="")
    return paths


def samples() -> tuple[tuple[Collection, Collection], ...]:
    """What to fit on and what to search: motions seen by a smart watch, and two minutes of ECG and the third."""
    return basic_motions(), _by_time(ecg_windows(RATE_HZ), FIT_S)


def general(windows: Collection, device: str) -> GeoPatch:
    """The model that comes with the package, for windows of so many channels."""
    return GeoPatch.pretrained("general", channels=windows.signals[0].values.shape[1], device=device)


def measure(say: Say, *, progress: bool, device: str = "auto") -> list[Row]:
    """How often the nearest window has the query's class: with nothing fitted, and fitted without labels."""
    say("how often is the nearest window of the query's class? First with that model, then with kernels fitted")
    say("to other windows of the same kind; still without labels and without training")
    rows = list[Row]()
    for before, after in samples():
        rows += evaluate(Trained(general(after, device), "general", 0, 0.0), after, scorers=SCORERS)
        started = time.perf_counter()
        fitted = GeoPatch(device=device, progress=progress).fit(before.signals)
        took_s = time.perf_counter() - started
        rows += evaluate(Trained(fitted, "instant", fitted.seed_, took_s), after, scorers=SCORERS)
    return rows


def measure_trained(say: Say, *, steps: int | None, progress: bool, device: str = "auto") -> list[Row]:
    """The same with labels: a half that is trained beside the fixed kernels."""
    count = steps or STEPS
    say(f"the same with labels and {count} training steps; a real training takes 1200 and more")
    rows = list[Row]()
    for before, after in samples():
        estimator = GeoPatch(max_steps=count, device=device, progress=progress)
        rows += evaluate(train(before, estimator, "default"), after, scorers=SCORERS)
    return rows


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


def sample_gallery(out: Path, say: Say, *, device: str) -> Path:
    """The folder of a gallery of all three minutes. What was made before is used again."""
    folder = out / "ecg-gallery"
    if folder.is_dir():
        return folder
    say("making a gallery of six ECG recordings; nothing is trained for it")
    windows = ecg_windows(RATE_HZ)
    out.mkdir(parents=True, exist_ok=True)
    with Gallery.create(folder, general(windows, device)) as gallery:
        for recording in mitdb_minutes():
            gallery.add_recording(recording, WindowConfig(rate_hz=RATE_HZ))
    return folder
