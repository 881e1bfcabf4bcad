"""geopatch gallery"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from geopatch.cli import gallery_add, gallery_shards, options
from geopatch.cli.printing import late_bar, print_line, settings_of, window_bar
from geopatch.config import PRESETS
from geopatch.errors import ConfigError

if TYPE_CHECKING:
    from geopatch.engines import Info, Record
    from geopatch.gallery.facts import RecordFacts

PLACE = "PLACE is a folder, or postgresql://user@host:5432/database/gallery."

place = click.argument("place")
model = click.option("--model", required=True, type=click.Path(path_type=Path), help="Folder of the trained model.")
record = click.option("--record", "records", multiple=True, help="Only entries of this record; may be given again.")
where = click.option("--where", help="Only entries that pass, as in: age >= 40 and lead in ('MLII', 'V1')")


@click.group("gallery", short_help="Make and tend a searchable collection of encoded windows.")
def command() -> None:
    """Make and tend a gallery: a searchable collection of encoded windows, in a folder or on a server."""


command.add_command(gallery_add.command)
command.add_command(gallery_shards.command)


@command.command("create", help=f"Make an empty gallery for the vectors of one model. {PLACE}")
@place
@model
@options.as_json
def create(place: str, model: Path, as_json: bool) -> None:
    from geopatch.estimator import GeoPatch
    from geopatch.gallery import Gallery

    with Gallery.create(place, GeoPatch.load(model, device="cpu")) as gallery:
        print_line(as_json, {"place": place, "encoder": gallery.about.encoder}, f"created the gallery {place}")


@command.command("remove", help=f"Take entries out by id, by record, or those that pass a filter. {PLACE}")
@place
@click.argument("ids", nargs=-1)
@record
@where
@click.option("--missing", type=click.Choice(["error", "ignore"]), default="error", show_default=True,
              help="What to do where an id or record is not there: remove nothing, or remove the others.")  # fmt: skip
@options.as_json
def remove(
    place: str, ids: Sequence[str], records: Sequence[str], where: str | None, missing: str, as_json: bool
) -> None:
    if bool(ids) + bool(records) + (where is not None) != 1:
        raise ConfigError("say what to remove: either ids, --record or --where")
    from geopatch.gallery import Gallery

    chosen: dict[str, Any] = {"record": list(records) or None, "where": where, "missing": missing}
    with Gallery.open(place) as gallery:
        removed, windows = gallery.remove(list(ids) or None, **chosen), len(gallery)
    counts = {"place": place, "removed": removed, "windows": windows}
    print_line(as_json, counts, f"removed {removed} windows from {place}, which has {windows}")


@command.command("relabel")
@place
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A new value; may be given again.")
@click.option("--unset", "unset", multiple=True, metavar="NAME", help="A name to take away; may be given again.")
@record
@where
@options.as_json
def relabel(
    place: str,
    settings: Sequence[str],
    unset: Sequence[str],
    records: Sequence[str],
    where: str | None,
    as_json: bool,
) -> None:
    """Change metadata of the entries of PLACE, of all or of some, in one change."""
    if not settings and not unset:
        raise ConfigError("say what to change: --set NAME=VALUE or --unset NAME")
    from geopatch.gallery import Gallery

    changes = {**dict.fromkeys(unset), **settings_of(settings)}
    with Gallery.open(place) as gallery:
        changed = gallery.relabel(changes, record=list(records) or None, where=where)
    print_line(as_json, {"place": place, "changed": changed}, f"changed the metadata of {changed} windows of {place}")


@command.command("info", help=f"Show what a gallery holds. {PLACE}")
@place
@click.option("--records", "list_records", is_flag=True, help="List the records too, with their spans.")
@options.as_json
def info(place: str, list_records: bool, as_json: bool) -> None:
    from geopatch.gallery import Gallery

    with Gallery.open(place, read_only=True) as gallery:
        state, records, facts, layouts = gallery.info(), gallery.records(), gallery.record_facts(), gallery.layouts()
        model = gallery.model_card()
    if as_json:
        rows = [{**dataclasses.asdict(one), **_facts(facts.get(one.name))} for one in records]
        extra = {"records": rows, "layouts": layouts, "model": model}
        print_line(True, {**dataclasses.asdict(state), **extra}, "")
        return
    lines = _info_lines(state, records, layouts, model)
    click.echo("\n".join(f"{name:10s} {text}" for name, text in lines.items()))
    for line in gallery_shards.shard_lines(state):
        click.echo(line)
    for one in records if list_records else ():
        start = _facts(facts.get(one.name))["start_time"]
        when = f", from {start}" if start else ""
        click.echo(f"  {one.name}: {one.start_s:g} to {one.stop_s:g} s, {one.windows} windows{when}")


def _info_lines(
    state: Info, records: Sequence[Record], layouts: Sequence[Sequence[str]], model: dict[str, Any] | None
) -> dict[str, str]:
    about = state.about
    rate = "a rate that is not known" if about.rate_hz is None else f"{about.rate_hz:g} Hz"
    covered_s = sum(one.stop_s - one.start_s for one in records)
    channels = [", ".join(names) for names in ([about.channels] if about.channels else layouts)]
    fitted = "not in the gallery" if model is None else f"{model['halves']}, fitted on {model['windows']} windows"
    return {
        "place": state.place,
        "engine": state.engine,
        "windows": f"{state.windows} ({state.indexed} of them in the index)",
        "records": f"{len(records)}, {_duration(covered_s)} in all" if about.rate_hz else f"{len(records)}",
        **({"channels": "; ".join(channels)} if channels else {}),
        "size": f"{state.bytes / 1e6:.1f} MB",
        **({"created": state.created} if state.created else {}),
        **({"changed": state.changed} if state.changed else {}),
        "encoder": about.encoder,
        "model": fitted,
        "vectors": f"{about.widths.embedding} numbers, {about.widths.patches} tokens of {about.widths.token}",
        "trained on": f"windows of up to {about.length} samples at {rate}",
    }


def _duration(seconds: float) -> str:
    """75 s, 12.5 min, 3.1 h."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _facts(facts: RecordFacts | None) -> dict[str, Any]:
    if facts is None:
        return {"start_time": None, "units": []}
    return {"start_time": facts.start_time and facts.start_time.isoformat(), "units": list(facts.units)}


@command.command("optimize", help=f"Build the index anew and give space back; may take minutes. {PLACE}")
@place
@options.as_json
def optimize(place: str, as_json: bool) -> None:
    from geopatch.gallery import Gallery

    with Gallery.open(place) as gallery:
        gallery.optimize()
        state = gallery.info()
    counts = {"place": place, "windows": state.windows, "indexed": state.indexed, "bytes": state.bytes}
    print_line(as_json, counts, f"optimized {place}: {state.indexed} of {state.windows} windows in the index")


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
    with Gallery.open(place, device=device) as gallery, late_bar("encoding", as_json) as report:
        present = gallery.model if preset is None else None
        settings = GeoPatch(preset) if present is None else clone(present)
        fitted = gallery.refit(settings.set_params(device=device, progress=not as_json), report=report)
        encoder, windows = gallery.about.encoder, len(gallery)
    if out is not None:
        fitted.save(out)
    fields = {"place": place, "windows": windows, "encoder": encoder, "model": None if out is None else str(out)}
    saved = "" if out is None else f"; its model is saved to {out}"
    print_line(as_json, fields, f"refitted {place} on its {windows} windows{saved}")


@command.command("upgrade", help=f"Bring a gallery of an earlier version to the present format, in place. {PLACE}")
@place
@options.as_json
def upgrade(place: str, as_json: bool) -> None:
    from geopatch.gallery import Gallery

    upgraded = Gallery.upgrade(place)
    line = f"upgraded {place} to the present format" if upgraded else f"{place} has the present format already"
    print_line(as_json, {"place": place, "upgraded": upgraded}, line)


@command.command("copy", help=f"Copy the gallery PLACE to a new one TO, also of another engine. {PLACE}")
@place
@click.argument("to")
@where
@options.as_json
def copy(place: str, to: str, where: str | None, as_json: bool) -> None:
    from geopatch.gallery import Gallery

    with Gallery.open(place, read_only=True) as gallery, window_bar("copying", as_json) as report:
        copied = gallery.copy(to, where=where, report=report)
    print_line(as_json, {"place": place, "to": to, "windows": copied}, f"copied {copied} windows to {to}")


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
    print_line(as_json, {"place": place, "out": str(out), "windows": written}, f"exported {written} windows to {out}")


@command.command("backup")
@place
@click.argument("out", type=click.Path(path_type=Path))
@options.as_json
def backup(place: str, out: Path, as_json: bool) -> None:
    """Write the gallery PLACE, a folder, to the new file OUT as it is at this moment.

    It may be written and searched meanwhile. The index is left out: geopatch gallery optimize makes it anew.
    """
    from geopatch.gallery import Gallery
    from geopatch.progress import counting_bars

    options.check_file_place(out)
    with Gallery.open(place, read_only=True) as gallery, counting_bars(quiet=as_json) as bar:
        report = None if bar is None else (lambda done, total: bar("bytes", done, total))
        size, windows = gallery.backup(out, report=report), len(gallery)
    counts = {"place": place, "out": str(out), "bytes": size, "windows": windows}
    print_line(as_json, counts, f"backed up {windows} windows of {place} to {out}, {size / 1e6:.1f} MB")


@command.command("restore")
@click.argument("backup", type=click.Path(path_type=Path))
@place
@click.option("--replace", is_flag=True, help="Allow PLACE to be there; what it holds now is gone afterwards.")
@options.as_json
def restore(backup: Path, place: str, replace: bool, as_json: bool) -> None:
    """Make a gallery in the folder PLACE of a file that `geopatch gallery backup` wrote.

    With --replace, a gallery that is there gets what the backup holds, in one change: it may be searched meanwhile.
    """
    from geopatch.gallery import Gallery

    if Path(place.removeprefix("exact:")).exists() and not replace:
        raise ConfigError(f"{place} is there already; give another place, or --replace to put the backup in its place")
    Gallery.restore(backup, place)
    with Gallery.open(place, read_only=True) as gallery:
        windows = len(gallery)
    counts = {"backup": str(backup), "place": place, "windows": windows}
    print_line(as_json, counts, f"restored {windows} windows from {backup} to {place}")
