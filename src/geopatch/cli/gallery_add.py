"""geopatch gallery add"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from geopatch.cli import options
from geopatch.cli.printing import print_line, settings_of, window_bar

if TYPE_CHECKING:
    from geopatch.data.recording import Recording, WindowConfig
    from geopatch.engines import Value
    from geopatch.gallery import Gallery


@click.command("add")
@click.argument("place")
@click.argument("data", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--model", type=click.Path(path_type=Path), help="Folder of the model, where the gallery does not hold its own."
)
@click.option("--window-s", type=float, help="Cut signals into windows of this length; WFDB records always are.")
@click.option("--overlap", default=0.5, show_default=True, help="Share of a window that the next one repeats.")
@click.option("--prefix", help="Put before every id. By default FILE/ where the file only numbers its signals.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Metadata for all that is added.")
@click.option(
    "--existing",
    type=click.Choice(["error", "replace", "skip"]),
    default="error",
    show_default=True,
    help="What to do with an id that is there already; skip takes up an add that was interrupted.",
)
@click.option("--drop-windows", is_flag=True, help="Keep no raw windows: smaller, but nothing to draw or to warp.")
@options.device
@options.as_json
def command(
    place: str,
    data: Sequence[Path],
    model: Path | None,
    window_s: float | None,
    overlap: float,
    prefix: str | None,
    settings: Sequence[str],
    existing: str,
    drop_windows: bool,
    device: str,
    as_json: bool,
) -> None:
    """Encode DATA and add it to the gallery PLACE.

    DATA are files (.ts .arff .tsv .csv .parquet .npz) or WFDB records (the path of the .hea file). Signals of a file
    that has no ids of its own get the file's name and their number: train/0, train/1. An add that was interrupted is
    taken up where it stopped by --existing skip.
    """
    from geopatch.estimator import GeoPatch
    from geopatch.gallery import Gallery

    flags: dict[str, Any] = {"existing": existing, "keep_windows": not drop_windows}
    metadata = settings_of(settings)
    loaded = None if model is None else GeoPatch.load(model, device=device)
    with Gallery.open(place, model=loaded, device=device) as gallery, window_bar("adding", as_json) as report:
        before, written = len(gallery), 0
        for path in data:
            for add_item in _items(gallery, path, window_s, overlap, prefix):
                written += add_item(metadata, {**flags, "report": _from(report, written)})
        windows = len(gallery)
    replaced = written - (windows - before)
    line = f"added {written} windows to {place}, which has {windows}"
    counts = {"place": place, "written": written, "replaced": replaced, "windows": windows}
    print_line(as_json, counts, f"{line}; {replaced} replaced others of the same id" if replaced else line)


AddItem = Callable[[Mapping[str, "Value"], dict[str, Any]], int]


def _items(
    gallery: Gallery, path: Path, window_s: float | None, overlap: float, prefix: str | None
) -> Iterator[AddItem]:
    """What a file holds, each as a call that adds it: a recording to be cut into windows, or signals as they are."""
    from geopatch.data import read
    from geopatch.data.physionet import read_wfdb
    from geopatch.data.recording import Recording, WindowConfig

    record = path.with_suffix("") if path.suffix == ".hea" else path
    is_wfdb = path.suffix == ".hea" or record.with_name(f"{record.name}.hea").is_file()

    def window(rate_hz: float | None) -> WindowConfig:
        clock_hz = gallery.about.rate_hz or rate_hz or 1.0
        return WindowConfig(rate_hz=clock_hz, length_s=window_s or gallery.about.length / clock_hz, overlap=overlap)

    if is_wfdb:
        recording = _renamed(read_wfdb(record), prefix or "")
        yield _adding_recording(gallery, recording, window(recording.signal.rate_hz), {"file": path.name})
        return
    collection = read(path)
    labels = [{}] * len(collection) if collection.labels is None else [{"label": str(v)} for v in collection.labels]
    if prefix is None:
        prefix = f"{path.stem}/" if _are_numbers([signal.id for signal in collection.signals]) else ""
    signals = [dataclasses.replace(signal, id=f"{prefix}{signal.id}") for signal in collection.signals]
    if window_s is None:
        yield lambda metadata, flags: gallery.add(
            signals, metadata=[{"file": path.name, **row, **metadata} for row in labels], **flags
        )
        return
    for signal, row in zip(signals, labels, strict=True):
        recording = Recording(signal, signal.id)
        yield _adding_recording(gallery, recording, window(signal.rate_hz), {"file": path.name, **row})


def _are_numbers(ids: Sequence[str]) -> bool:
    """Whether ids only say which signal of the file it is."""
    return list(ids) == [str(n) for n in range(len(ids))]


def _adding_recording(
    gallery: Gallery, recording: Recording, window: WindowConfig, row: Mapping[str, Value]
) -> AddItem:
    return lambda metadata, flags: gallery.add_recording(recording, window, metadata={**row, **metadata}, **flags)


def _renamed(recording: Recording, prefix: str) -> Recording:
    return dataclasses.replace(
        recording, signal=dataclasses.replace(recording.signal, id=f"{prefix}{recording.signal.id}")
    )


def _from(report: Callable[[int], None] | None, start: int) -> Callable[[int], None] | None:
    """Counts on from what was written before."""
    return None if report is None else lambda count: report(start + count)
