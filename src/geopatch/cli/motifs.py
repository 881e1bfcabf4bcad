"""geopatch motifs"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geopatch.cli import options

if TYPE_CHECKING:
    from geopatch.plot import WindowGroup
    from geopatch.search import Motif

LISTED = 3  # members of each motif that the table names


@click.command("motifs", short_help="Find what happens most often in a gallery.")
@click.argument("gallery")
@click.option("-k", default=5, show_default=True, help="How many motifs to return.")
@click.option("--where", help="Only windows with this metadata, such as: sex == 'F' and 40 <= age < 60")
@click.option("--plot", "figure", type=click.Path(path_type=Path), help="Draw each motif over its nearest members.")
@options.device
@options.as_json
def command(gallery: str, k: int, where: str | None, figure: Path | None, device: str, as_json: bool) -> None:
    """Find what happens most often in GALLERY, without a query.

    A motif is a window with all those that are like it: as near as half of all windows are to their nearest neighbour,
    and nearer than chance explains. Windows that overlap in time are never alike, and no window is in two motifs. A
    member can be searched by: geopatch search GALLERY --id ID
    """
    from geopatch.gallery import Gallery

    if figure is not None:
        options.check_figure(figure)
    with Gallery.open(gallery, read_only=True, device=device) as opened:
        motifs = opened.motifs(k, where=where, windows=figure is not None)
    if figure is not None and motifs:
        from geopatch import plot

        plot.save(plot.window_groups(_drawn(motifs), f"what happens most often in {gallery}"), figure)
    if as_json:
        click.echo(json.dumps({"motifs": [motif.as_dict() for motif in motifs]}))
    else:
        _print(motifs, figure)


def _drawn(motifs: list[Motif]) -> list[WindowGroup]:
    from geopatch.plot import WindowGroup

    return [
        WindowGroup(
            f"{motif.rank}. {motif.count} times · {motif.centre.record}, {motif.centre.start_s:g} s",
            motif.centre.window,
            [member.window for member in motif.members[1:] if member.window is not None],
        )
        for motif in motifs
        if motif.centre.window is not None
    ]


def _print(motifs: list[Motif], figure: Path | None) -> None:
    from geopatch.cli.tables import print_places

    if not motifs:
        click.echo("nothing is repeated")
        return
    rows = [
        ((motif.rank, motif.count, member.cosine) if n == 0 else ("", "", member.cosine), member)
        for motif in motifs
        for n, member in enumerate(motif.members[:LISTED])
    ]
    print_places(("#", "times", "cosine"), rows)
    for motif in motifs:
        records = f"{len(motif.records)} records" if len(motif.records) > 1 else f"record {motif.records[0]}"
        click.echo(f"{motif.rank}: {motif.count} times in {records}{''.join(f'; {note}' for note in motif.notes)}")
    if figure is not None:
        click.echo(f"figure: {figure}")
