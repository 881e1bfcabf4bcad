"""geopatch gallery shards"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from geopatch.cli import options
from geopatch.cli.printing import print_line
from geopatch.errors import ConfigError

if TYPE_CHECKING:
    from geopatch.engines.engine import Info, Replica


@click.command("shards")
@click.argument("place")
@click.option("--add", "added", multiple=True, metavar="ADDRESS",
              help="A further server, postgresql://user@host:5432/database; replicas as further hosts. "
              "May be repeated.")  # fmt: skip
@click.option("--remove", "removed", metavar="NAME", help="Move all windows away from this shard, and forget it.")
@options.as_json
def command(place: str, added: Sequence[str], removed: str | None, as_json: bool) -> None:
    """Show the shards of the gallery PLACE, add servers to them, or take one away.

    Windows are spread evenly while the gallery is searched. Where PLACE is not there yet, --add prepares it: create,
    copy and index then make the gallery on these shards.
    """
    from geopatch.engines.postgres_moving import add_shards, remove_shard
    from geopatch.gallery import Gallery
    from geopatch.progress import counting_bars

    if added and removed:
        raise ConfigError("give either --add or --remove, one after the other")
    if not place.startswith(("postgresql://", "postgres://")):
        raise ConfigError(f"only a gallery on a PostgreSQL server has shards, got {place}")
    if added or removed:
        with counting_bars(quiet=as_json) as bar:
            report = None if bar is None else (lambda done, total: bar("buckets moved", done, total))
            moved = remove_shard(place, removed, report) if removed else add_shards(place, added, report)
        what = f"took {removed} away from {place}" if removed else f"added {len(added)} to the shards of {place}"
        print_line(as_json, {"place": place, "moved_buckets": moved}, f"{what}; {moved} of 1024 buckets moved")
        return
    with Gallery.open(place, read_only=True) as gallery:
        state = gallery.info()
    rows = [dataclasses.asdict(one) for one in state.shards]
    print_line(as_json, {"place": place, "shards": rows}, "\n".join(shard_lines(state)) or f"{place} has no shards")


def shard_lines(state: Info) -> Iterator[str]:
    """A line for each shard and replica of a gallery."""
    yield from (f"  replica {_replica(one)}" for one in state.replicas)
    for shard in state.shards:
        size = f"{shard.windows} windows ({shard.indexed} in the index), {shard.bytes / 1e6:.1f} MB"
        yield f"  {shard.name} {shard.place}: {shard.share:.0%}, {size if shard.answers else 'does not answer'}"
        yield from (f"    replica {_replica(one)}" for one in shard.replicas)


def _replica(replica: Replica) -> str:
    lag = "" if replica.lag_bytes is None else f", {replica.lag_bytes} bytes behind"
    delay = "" if replica.lag_s is None else f", {replica.lag_s:.3g} s"
    return f"{replica.address}: {replica.state}{lag}{delay}"
