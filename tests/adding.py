"""A process that adds batches to a gallery until it is killed: python adding.py PLACE FIRST_BATCH

It says `ready`, waits for a line, and from then on names every batch that was acknowledged.
"""

from __future__ import annotations

import sys

from galleries import entries_of

from geopatch.gallery import Gallery

BATCH = 16


def ids_of(batch: int) -> list[str]:
    return [f"batch {batch} #{n}" for n in range(BATCH)]


def main(place: str, first: int) -> None:
    with Gallery.open(place) as gallery:
        print("ready", flush=True)
        sys.stdin.readline()
        for batch in range(first, first + 100_000):
            gallery.add(entries_of(ids_of(batch), seed=batch))
            print(batch, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
