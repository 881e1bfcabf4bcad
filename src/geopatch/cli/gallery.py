"""geopatch gallery"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from geopatch.cli import options
from geopatch.config import PRESETS
from geopatch.errors import ConfigError

if TYPE_CHECKING:
    from geopatch.data.recording import Recording, WindowConfig
    from geopatch.engines import Value
    from geopatch.gallery import Gallery

PLACE = "PLACE is a folder, or postgresql://user@host:5432/database/gallery."

place = click.argument("place")
model = click.option("--model", required=True, type=click.Path(path_type=Path), help="Folder of the trained model.")
own_model = click.option(
    "--model", type=click.Path(path_type=Path), help="Folder of the model, where the gallery does not hold its own."
)
where = click.option("--where", help="Only entries that pass, as in: age >= 40 and lead in ('MLII', 'V1')")


@click.group("gallery", short_help="Make and tend a searchable collection of encoded windows.")
def command() -> None:
    """Make and tend a gallery: a searchable collection of encoded windows, in a folder or on a server."""


@command.command("create", help=f"Make an empty gallery for the vectors of one model. {PLACE}")
@place
@model
@options.as_json
def create(place: str, model: Path, as_json: bool) -> None:
    from geopatch.estimator import GeoPatch
    from geopatch.gallery import Gallery

    with Gallery.create(place, GeoPatch.load(model, device="cpu")) as gallery:
        _print(as_json, {"place": place, "encoder": gallery.about.encoder}, f"created the gallery {place}")


@command.command("add")
@place
@click.argument("data", nargs=-1, required=True, type=click.Path(path_type=Path))
@own_model
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
def add(
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
    metadata = _settings(settings)
    loaded = None if model is None else GeoPatch.load(model, device=device)
    with Gallery.open(place, model=loaded, device=device) as gallery, _bar("adding", as_json) as report:
        before, written = len(gallery), 0
        for path in data:
            for add_item in _items(gallery, path, window_s, overlap, prefix):
                written += add_item(metadata, {**flags, "report": _from(report, written)})
        windows = len(gallery)
    replaced = written - (windows - before)
    line = f"added {written} windows to {place}, which has {windows}"
    counts = {"place": place, "written": written, "replaced": replaced, "windows": windows}
    _print(as_json, counts, f"{line}; {replaced} replaced others of the same id" if replaced else line)


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


@command.command("remove", help=f"Take entries out by id, or those that pass a filter. {PLACE}")
@place
@click.argument("ids", nargs=-1)
@where
@click.option("--missing", type=click.Choice(["error", "ignore"]), default="error", show_default=True,
              help="What to do where an id is not there: remove nothing, or remove the others.")  # fmt: skip
@options.as_json
def remove(place: str, ids: Sequence[str], where: str | None, missing: str, as_json: bool) -> None:
    if bool(ids) == (where is not None):
        raise ConfigError("say what to remove: either ids or --where")
    from geopatch.gallery import Gallery

    with Gallery.open(place) as gallery:
        removed, windows = gallery.remove(list(ids) or None, where=where, missing=missing), len(gallery)
    counts = {"place": place, "removed": removed, "windows": windows}
    _print(as_json, counts, f"removed {removed} windows from {place}, which has {windows}")


@command.command("info", help=f"Show what a gallery holds. {PLACE}")
@place
@options.as_json
def info(place: str, as_json: bool) -> None:
    from geopatch.gallery import Gallery

    with Gallery.open(place, read_only=True) as gallery:
        state = gallery.info()
    about = state.about
    rate = "a rate that is not known" if about.rate_hz is None else f"{about.rate_hz:g} Hz"
    lines = {
        "place": state.place,
        "engine": state.engine,
        "windows": f"{state.windows} ({state.indexed} of them in the index)",
        "size": f"{state.bytes / 1e6:.1f} MB",
        "encoder": about.encoder,
        "vectors": f"{about.widths.embedding} numbers, {about.widths.patches} tokens of {about.widths.token}",
        "trained on": f"windows of up to {about.length} samples at {rate}",
        **({"channels": ", ".join(about.channels)} if about.channels else {}),
    }
    _print(as_json, dataclasses.asdict(state), "\n".join(f"{name:10s} {text}" for name, text in lines.items()))


@command.command("optimize", help=f"Build the index anew and give space back; may take minutes. {PLACE}")
@place
@options.as_json
def optimize(place: str, as_json: bool) -> None:
    from geopatch.gallery import Gallery

    with Gallery.open(place) as gallery:
        gallery.optimize()
        state = gallery.info()
    counts = {"place": place, "windows": state.windows, "indexed": state.indexed, "bytes": state.bytes}
    _print(as_json, counts, f"optimized {place}: {state.indexed} of {state.windows} windows in the index")


@command.command("refit")
@place
@click.option(
    "--preset", type=click.Choice(tuple(PRESETS)), help="Encoder to fit; by default as the gallery's present model."
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder to save the new model to, beside the gallery.")
@options.device
@options.as_json
def refit(place: str, preset: str | None, out: Path | None, device: str, as_json: bool) -> None:
    """Fit a new model on the windows of the gallery PLACE, without labels, and encode them anew.

    The new model and vectors take the place of the old ones in one change. Until then the gallery can be searched as it
    was, and stays so where this is interrupted. Readers and servers go on with the new model by themselves.
    """
    from sklearn.base import clone

    from geopatch.estimator import GeoPatch
    from geopatch.gallery import Gallery

    if out is not None:
        options.check_new_model(out)
    with Gallery.open(place, device=device) as gallery, _late_bar("encoding", as_json) as report:
        present = gallery.model if preset is None else None
        settings = GeoPatch(preset) if present is None else clone(present)
        fitted = gallery.refit(settings.set_params(device=device, progress=not as_json), report=report)
        encoder, windows = gallery.about.encoder, len(gallery)
    if out is not None:
        fitted.save(out)
    fields = {"place": place, "windows": windows, "encoder": encoder, "model": None if out is None else str(out)}
    saved = "" if out is None else f"; its model is saved to {out}"
    _print(as_json, fields, f"refitted {place} on its {windows} windows{saved}")


@command.command("upgrade", help=f"Bring a gallery of an earlier version to the present format, in place. {PLACE}")
@place
@options.as_json
def upgrade(place: str, as_json: bool) -> None:
    from geopatch.gallery import Gallery

    upgraded = Gallery.upgrade(place)
    line = f"upgraded {place} to the present format" if upgraded else f"{place} has the present format already"
    _print(as_json, {"place": place, "upgraded": upgraded}, line)


@command.command("copy", help=f"Copy the gallery PLACE to a new one TO, also of another engine. {PLACE}")
@place
@click.argument("to")
@where
@options.as_json
def copy(place: str, to: str, where: str | None, as_json: bool) -> None:
    from geopatch.gallery import Gallery

    with Gallery.open(place, read_only=True) as gallery, _bar("copying", as_json) as report:
        copied = gallery.copy(to, where=where, report=report)
    _print(as_json, {"place": place, "to": to, "windows": copied}, f"copied {copied} windows to {to}")


@command.command("export", help=f"Write embeddings, tokens and metadata to a .parquet or .arrow file OUT. {PLACE}")
@place
@click.argument("out", type=click.Path(path_type=Path))
@where
@options.as_json
def export(place: str, out: Path, where: str | None, as_json: bool) -> None:
    from geopatch.gallery import Gallery

    options.check_file_place(out)
    with Gallery.open(place, read_only=True) as gallery:
        written = gallery.export(out, where=where)
    _print(as_json, {"place": place, "out": str(out), "windows": written}, f"exported {written} windows to {out}")


def _print(as_json: bool, fields: Mapping[str, Any], line: str) -> None:
    click.echo(json.dumps(fields) if as_json else line)


@contextmanager
def _bar(title: str, quiet: bool) -> Iterator[Callable[[int], None] | None]:
    from geopatch.progress import counting_bar

    with nullcontext(None) if quiet else counting_bar(title) as report:
        yield report


@contextmanager
def _late_bar(title: str, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Shown from the first count on: before, another bar may be there."""
    with ExitStack() as stack:
        bars = list[Callable[[int], None] | None]()

        def report(count: int) -> None:
            if not bars:
                bars.append(stack.enter_context(_bar(title, quiet)))
            if bars[0] is not None:
                bars[0](count)

        yield report


def _from(report: Callable[[int], None] | None, start: int) -> Callable[[int], None] | None:
    """Counts on from what was written before."""
    return None if report is None else lambda count: report(start + count)


def _settings(settings: Sequence[str]) -> dict[str, Value]:
    """NAME=VALUE; a value that reads as a number, true or false is one."""
    values: dict[str, Value] = {}
    for setting in settings:
        name, sign, text = setting.partition("=")
        if not sign:
            raise ConfigError(f"--set takes NAME=VALUE, got {setting!r}")
        values[name] = _value(text)
    return values


def _value(text: str) -> Value:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return value if isinstance(value, (bool, int, float, str)) else text
