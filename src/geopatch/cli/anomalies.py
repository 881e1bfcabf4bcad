"""geopatch anomalies"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geopatch.cli import options

if TYPE_CHECKING:
    from geopatch.plot import WindowGroup
    from geopatch.search import Anomaly


@click.command("anomalies", short_help="Find what happens nowhere else in a gallery.")
@click.argument("gallery")
@click.option("-k", default=10, show_default=True, help="How many windows to return.")
@click.option("--where", help="Only windows with this metadata, such as: sex == 'F' and 40 <= age < 60")
@click.option("--plot", "figure", type=click.Path(path_type=Path), help="Draw each one over its nearest neighbour.")
@options.device
@options.as_json
def command(gallery: str, k: int, where: str | None, figure: Path | None, device: str, as_json: bool) -> None:
    """Find what happens nowhere else in GALLERY, without a query: the windows whose nearest neighbour is farthest.

    Windows that overlap in time are no neighbours of each other, and no two of the windows that are returned overlap.
    """
    from geopatch.gallery import Gallery

    if figure is not None:
        options.check_figure(figure)
    with Gallery.open(gallery, read_only=True, device=device) as opened:
        anomalies = opened.anomalies(k, where=where, windows=figure is not None)
    if figure is not None and anomalies:
        from geopatch import plot

        plot.save(plot.window_groups(_drawn(anomalies), f"what happens nowhere else in {gallery}"), figure)
    if as_json:
        click.echo(json.dumps({"anomalies": [anomaly.as_dict() for anomaly in anomalies]}))
    else:
        _print(anomalies, figure)


def _drawn(anomalies: list[Anomaly]) -> list[WindowGroup]:
    from geopatch.plot import WindowGroup

    return [
        WindowGroup(
            f"{one.rank}. {one.place.record}, {one.place.start_s:g} s · distance {one.distance:.2f}",
            one.place.window,
            [] if one.nearest.window is None else [one.nearest.window],
        )
        for one in anomalies
        if one.place.window is not None
    ]


def _print(anomalies: list[Anomaly], figure: Path | None) -> None:
    from geopatch.cli.tables import print_places

    if not anomalies:
        click.echo("no window has a neighbour to be compared with")
        return
    print_places(("#", "distance"), [((one.rank, one.distance), one.place) for one in anomalies])
    for one in anomalies:
        for note in one.notes:
            click.echo(f"{one.rank}: {note}")
    if figure is not None:
        click.echo(f"figure: {figure}")
