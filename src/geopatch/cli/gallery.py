"""geopatch gallery"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

from geopatch.cli import options
from geopatch.data import read
from geopatch.data.physionet import read_wfdb
from geopatch.data.recording import Recording, WindowConfig
from geopatch.engines import Value
from geopatch.errors import ConfigError
from geopatch.estimator import GeoPatch
from geopatch.gallery import Gallery
from geopatch.progress import counting_bar

PLACE = "PLACE is a folder, or postgresql://user@host:5432/database/gallery."

place = click.argument("place")
model = click.option("--model", required=True, type=click.Path(path_type=Path), help="Folder of the trained model.")
where = click.option("--where", help="Only entries that pass, as in: age >= 40 and lead in ('MLII', 'V1')")


@click.group("gallery", short_help="Make and tend a searchable collection of encoded windows.")
def command() -> None:
    """Make and tend a gallery: a searchable collection of encoded windows, in a folder or on a server."""


@command.command("create", help=f"An empty gallery for the vectors of one model. {PLACE}")
@place
@model
@options.as_json
def create(place: str, model: Path, as_json: bool) -> None:
    with Gallery.create(place, GeoPatch.load(model, device="cpu")) as gallery:
        _tell(as_json, {"place": place, "encoder": gallery.about.encoder}, f"created the gallery {place}")


@command.command("add")
@place
@click.argument("data", nargs=-1, required=True, type=click.Path(path_type=Path))
@model
@click.option("--window-s", type=float, help="Cut signals into windows of this length; WFDB records always are.")
@click.option("--overlap", default=0.5, show_default=True, help="Share of a window that the next one repeats.")
@click.option("--prefix", default="", help="Put before every id, to keep files apart that use the same ones.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Metadata for all that is added.")
@click.option("--skip-known", is_flag=True, help="Leave entries that are there as they are, instead of replacing them.")
@click.option("--drop-windows", is_flag=True, help="Keep no raw windows: smaller, but nothing to draw or to warp.")
@options.device
@options.as_json
def add(
    place: str,
    data: Sequence[Path],
    model: Path,
    window_s: float | None,
    overlap: float,
    prefix: str,
    settings: Sequence[str],
    skip_known: bool,
    drop_windows: bool,
    device: str,
    as_json: bool,
) -> None:
    """Encode DATA and add it to the gallery PLACE.

    DATA are files (.ts .arff .tsv .csv .parquet .npz) or WFDB records (the path of the .hea file). An id that is there
    already is replaced, so that a work that was interrupted can be done again.
    """
    how: dict[str, Any] = {"existing": "skip" if skip_known else "replace", "keep_windows": not drop_windows}
    told = _settings(settings)
    with Gallery.open(place, model=GeoPatch.load(model, device=device)) as gallery, _bar("adding", as_json) as report:
        before, written = len(gallery), 0
        for path in data:
            for item in _items(gallery, path, window_s, overlap, prefix):
                written += item(told, {**how, "report": _from(report, written)})
        windows = len(gallery)
    replaced = written - (windows - before)
    line = f"added {written} windows to {place}, which has {windows}"
    counts = {"place": place, "written": written, "replaced": replaced, "windows": windows}
    _tell(as_json, counts, f"{line}; {replaced} replaced others of the same id" if replaced else line)


Adding = Callable[[Mapping[str, Value], dict[str, Any]], int]


def _items(gallery: Gallery, path: Path, window_s: float | None, overlap: float, prefix: str) -> Iterator[Adding]:
    """What a file holds, each as a call that adds it: a recording to be cut into windows, or signals as they are."""
    record = path.with_suffix("") if path.suffix == ".hea" else path
    rate_hz, length = gallery.about.clock_hz, gallery.about.length
    window = WindowConfig(rate_hz=rate_hz, length_s=window_s or length / rate_hz, overlap=overlap)
    if path.suffix == ".hea" or record.with_name(f"{record.name}.hea").is_file():
        found = _renamed(read_wfdb(record), prefix)
        yield lambda told, how: gallery.add_recording(found, window, metadata={"file": path.name, **told}, **how)
        return
    collection = read(path)
    labels = [{}] * len(collection) if collection.labels is None else [{"label": str(v)} for v in collection.labels]
    signals = [dataclasses.replace(signal, id=f"{prefix}{signal.id}") for signal in collection.signals]
    if window_s is None:
        yield lambda told, how: gallery.add(
            signals, metadata=[{"file": path.name, **row, **told} for row in labels], **how
        )
        return
    for signal, row in zip(signals, labels, strict=True):
        yield _adding_recording(gallery, Recording(signal, signal.id), window, {"file": path.name, **row})


def _adding_recording(gallery: Gallery, recording: Recording, window: WindowConfig, row: Mapping[str, Value]) -> Adding:
    return lambda told, how: gallery.add_recording(recording, window, metadata={**row, **told}, **how)


def _renamed(recording: Recording, prefix: str) -> Recording:
    return dataclasses.replace(
        recording, signal=dataclasses.replace(recording.signal, id=f"{prefix}{recording.signal.id}")
    )


@command.command("remove", help=f"Take entries out by id, or those that pass a filter. {PLACE}")
@place
@click.argument("ids", nargs=-1)
@where
@options.as_json
def remove(place: str, ids: Sequence[str], where: str | None, as_json: bool) -> None:
    if bool(ids) == (where is not None):
        raise ConfigError("say what to remove: either ids or --where")
    with Gallery.open(place) as gallery:
        chosen = list(ids) or [id for batch in gallery.scan(where=where) for id in batch.ids]
        removed, windows = gallery.remove(chosen), len(gallery)
    counts = {"place": place, "removed": removed, "windows": windows}
    _tell(as_json, counts, f"removed {removed} windows from {place}, which has {windows}")


@command.command("info", help=f"What a gallery holds. {PLACE}")
@place
@options.as_json
def info(place: str, as_json: bool) -> None:
    with Gallery.open(place, read_only=True) as gallery:
        found = gallery.info()
    about = found.about
    lines = {
        "place": found.place,
        "engine": found.engine,
        "windows": f"{found.windows} ({found.indexed} of them in the index)",
        "size": f"{found.bytes / 1e6:.1f} MB",
        "encoder": about.encoder,
        "vectors": f"{about.widths.embedding} numbers, {about.widths.patches} tokens of {about.widths.token}",
        "trained on": f"windows of up to {about.length} samples at {about.rate_hz:g} Hz",
    }
    _tell(as_json, dataclasses.asdict(found), "\n".join(f"{name:10s} {text}" for name, text in lines.items()))


@command.command("optimize", help=f"Build the index anew and give space back; may take minutes. {PLACE}")
@place
@options.as_json
def optimize(place: str, as_json: bool) -> None:
    with Gallery.open(place) as gallery:
        gallery.optimize()
        found = gallery.info()
    counts = {"place": place, "windows": found.windows, "indexed": found.indexed, "bytes": found.bytes}
    _tell(as_json, counts, f"optimized {place}: {found.indexed} of {found.windows} windows in the index")


@command.command("copy", help=f"Copy the gallery PLACE to a new one TO, also of another engine. {PLACE}")
@place
@click.argument("to")
@where
@options.as_json
def copy(place: str, to: str, where: str | None, as_json: bool) -> None:
    with Gallery.open(place, read_only=True) as gallery, _bar("copying", as_json) as report:
        copied = gallery.copy(to, where=where, report=report)
    _tell(as_json, {"place": place, "to": to, "windows": copied}, f"copied {copied} windows to {to}")


@command.command("export", help=f"Write embeddings, tokens and metadata to a .parquet or .arrow file OUT. {PLACE}")
@place
@click.argument("out", type=click.Path(path_type=Path))
@where
@options.as_json
def export(place: str, out: Path, where: str | None, as_json: bool) -> None:
    options.check_file_place(out)
    with Gallery.open(place, read_only=True) as gallery:
        written = gallery.export(out, where=where)
    _tell(as_json, {"place": place, "out": str(out), "windows": written}, f"exported {written} windows to {out}")


def _tell(as_json: bool, told: Mapping[str, Any], line: str) -> None:
    click.echo(json.dumps(told) if as_json else line)


@contextmanager
def _bar(title: str, quiet: bool) -> Iterator[Callable[[int], None] | None]:
    with nullcontext(None) if quiet else counting_bar(title) as report:
        yield report


def _from(report: Callable[[int], None] | None, start: int) -> Callable[[int], None] | None:
    """Counts on from what was written before."""
    return None if report is None else lambda count: report(start + count)


def _settings(settings: Sequence[str]) -> dict[str, Value]:
    """NAME=VALUE; a value that reads as a number, true or false is one."""
    found: dict[str, Value] = {}
    for setting in settings:
        name, sign, text = setting.partition("=")
        if not sign:
            raise ConfigError(f"--set takes NAME=VALUE, got {setting!r}")
        found[name] = _value(text)
    return found


def _value(text: str) -> Value:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return value if isinstance(value, (bool, int, float, str)) else text
