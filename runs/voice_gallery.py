"""A gallery of every sentence by every voice: what a shortlist from tokens holds, what is found, what a query costs.

    python runs/voice_gallery.py --voices /tmp/voices --out results/voice-gallery.jsonl

Reads what `voices.py` wrote. Fitted without labels on the two real voices. Queries are the test sentences of the voices
that no choice has looked at; the same sentence by any other voice is right.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from voices import DEVELOPMENT, FRAMES, REAL, VOICES, read

import geopatch
from geopatch import Gallery, GeoPatch, Signal
from geopatch.data.arctic import prompt_split
from geopatch.data.audio import AudioConfig, shaped
from geopatch.evaluate import Stress

NORMALISED = AudioConfig()
K = 50
SHORTLISTS: dict[str, int | str] = {"tokens": "tokens", "embedding": K}


def utterances(folder: Path, voice: str) -> list[Signal]:
    """Every sentence of a voice, normalised as sound is by default."""
    names = tuple(f"mel {number}" for number in range(NORMALISED.bands))
    return [
        Signal(shaped(frames.T, NORMALISED)[0].T, f"{voice}/{prompt}", FRAMES.frame_rate_hz, names)
        for prompt, frames in sorted(read(folder / f"{voice}.npz").items())
    ]


def sentence(id: str) -> str:
    return id.split("@")[0].split("/")[1]


def measured(gallery: Gallery, queries: list[Signal], shortlist: int | str) -> dict[str, Any]:
    """Whether the shortlist holds a right one, whether the first hit is right, and CPU seconds of a search for ids."""
    held, first, spent = [], [], []
    for query in queries:
        started = time.process_time()
        hits = gallery.search(query, k=K, shortlist=shortlist, windows=False)
        spent.append(time.process_time() - started)
        others = [hit.id for hit in hits if hit.id.split("/")[0] != query.id.split("/")[0]]
        right = [sentence(id) == sentence(query.id) for id in others]
        held.append(any(right))
        first.append(bool(right) and right[0])
    return {"held": mean(held), "first": mean(first), "cpu_ms": 1000 * median(spent), "queries": len(queries)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voices", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=0, help="of each voice, at most; 0: all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    known = {voice: utterances(arguments.voices, voice) for voice in (*REAL, *VOICES)}
    model = GeoPatch("instant").fit([signal for voice in REAL for signal in known[voice]])
    rows = []
    with tempfile.TemporaryDirectory() as scratch, Gallery.create(Path(scratch, "gallery"), model) as gallery:
        for voice, signals in known.items():
            gallery.add(signals)
            print(f"{len(gallery)} utterances, {voice} last", file=sys.stderr, flush=True)
        gallery.optimize()
        for voice in (name for name in VOICES if name not in DEVELOPMENT):
            tested = prompt_split(np.asarray([sentence(signal.id) for signal in known[voice]]))
            asked = [signal for signal, test in zip(known[voice], tested, strict=True) if test]
            asked = asked[: arguments.queries or None]
            for stress in ("clean", "warp-queries"):
                moved = Stress.parse(stress).queries(asked)
                for shortlist, option in SHORTLISTS.items():
                    about = {"voice": voice, "stress": stress, "shortlist": shortlist, "utterances": len(gallery)}
                    row = {**about, **measured(gallery, moved, option), "version": geopatch.__version__}
                    rows.append(row)
                    print(json.dumps(row), flush=True)
    arguments.out.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
