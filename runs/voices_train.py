"""Training for voices that are not there: what each choice is worth for a voice that no training has met.

Reads the file that `voices.py --pack` wrote; torch, numpy and safetensors are enough.

    python runs/voices_train.py --pack voices.npz --rows results/voices.jsonl --workers 8 --device cuda

Trained on sentences of the two real voices, with the sentences as labels; or, left out in turn, on one of them. Queries
are sentences that did not train, by one voice. Searched are the same sentences by the real voices other than that one
("others"), and these with the query's own voice ("all", where the same sentence is right and the same voice tempts).
Every candidate is scored, without a shortlist. Choices look at the rows of "validation" alone: 100 sentences that those
models did not train on, by the real voices and by synthesised ones that are no test voices.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from side_by_side import add_flags, side_by_side
from voices import DEVELOPMENT, FLOOR_DB, LEVELS, REAL, VALIDATION_SENTENCES, VOICES

from geopatch.config import DISTORTIONS, PRESETS, TrainConfig
from geopatch.data.arctic import prompt_split
from geopatch.data.audio import DECIBELS, AudioConfig, shaped
from geopatch.data.collection import Collection
from geopatch.estimator import GeoPatch
from geopatch.evaluate import Row, Stress, Trained, append_rows, read_rows
from geopatch.evaluate.metrics import ScoredQueries, retrieval_scores
from geopatch.evaluate.retrieval import make_row
from geopatch.parameters import device_of
from geopatch.patches import stack
from geopatch.protocol import Protocol, places
from geopatch.scoring import rerank
from geopatch.signal import Signal
from geopatch_lab.baselines.dtw import dtw_distances

RATE_HZ = 50.0
SIDES = ("validation", "test")
STRESSES = ("clean", "warp-queries")
SCORERS = ("cosine", "maxsim", "aligned", "fused", "fused-aligned")
QUERIES = 64  # scored at a time
NORMALISED = AudioConfig()


@dataclass(frozen=True)
class Variant:
    """What is trained, and on which frames."""

    audio: AudioConfig = NORMALISED
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    preset: str = "default"
    voices: tuple[str, ...] = REAL
    labels: bool = True
    names: str = "mel"  # of channels: by these a model knows the bands of a spectrum


NO_TRACT = {"robust_to": DISTORTIONS[::-1]}  # as they were before there were views of sound
VARIANTS = {
    "labels, frames of version 0.1": Variant(DECIBELS, {"patch_budget": 16}, NO_TRACT, names="band"),
    "labels, 16 tokens": Variant(model={"patch_budget": 16}, training=NO_TRACT),
    "labels, no other tracts": Variant(training=NO_TRACT),
    "labels": Variant(),
    "labels, bdl alone": Variant(voices=("bdl",)),
    "labels, slt alone": Variant(voices=("slt",)),
    "no labels": Variant(preset="instant", labels=False),
    "no labels, bdl alone": Variant(preset="instant", labels=False, voices=("bdl",)),
    "no labels, slt alone": Variant(preset="instant", labels=False, voices=("slt",)),
}
PEERS = {
    f"{name}, {frames}": (band, Variant(audio))
    for name, band in (("dtw", None), ("dtw-10", 0.1))
    for frames, audio in (
        ("decibels", DECIBELS),
        ("z-scored", replace(DECIBELS, normalise="utterance")),
        ("normalised", NORMALISED),
    )
}
CHOOSING = ("labels, no other tracts", "labels")
LEARNED_TOKENS = "learned tokens"


@dataclass(frozen=True, eq=False)
class Utterances:
    """All utterances of a file, with the voice and the sentence of each."""

    voice: npt.NDArray[np.str_]
    prompt: npt.NDArray[np.str_]
    decibels: list[npt.NDArray[np.float32]]  # (T, bands)

    @classmethod
    def read(cls, path: Path) -> Utterances:
        with np.load(path) as file:
            levels = np.split(file["frames"], np.cumsum(file["lengths"])[:-1])
            peaks = file["peak"]
            voice, prompt = file["voice"], file["prompt"]
        decibels = [
            part.astype(np.float32) * np.float32(FLOOR_DB / LEVELS) - np.float32(FLOOR_DB) + peak
            for part, peak in zip(levels, peaks, strict=True)
        ]
        return cls(voice, prompt, decibels)

    def collection(self, chosen: npt.NDArray[np.bool_], variant: Variant, name: str) -> Collection:
        """Some of them as a variant sees them; labels are the sentences."""
        places = np.flatnonzero(chosen)
        signals = tuple(self._signal(place, variant) for place in places.tolist())
        return Collection(name, signals, self.prompt[places])

    def _signal(self, place: int, variant: Variant) -> Signal:
        values = shaped(self.decibels[place].T, variant.audio)[0].T
        names = tuple(f"{variant.names} {number}" for number in range(values.shape[1]))
        return Signal(values, f"{self.voice[place]}/{self.prompt[place]}", RATE_HZ, names)

    def sides(self) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which utterances are of validation sentences, and which of test sentences."""
        is_test = prompt_split(self.prompt)
        trained = np.unique(self.prompt[~is_test])
        return np.isin(self.prompt, trained[-VALIDATION_SENTENCES:]), is_test


@dataclass(frozen=True)
class Job:
    """A variant with a seed, on the sentences that are left when those of a side are kept aside."""

    name: str
    seed: int
    side: str  # validation or test


def jobs(seeds: int) -> list[Job]:
    peers = [Job(name, 0, side) for name in PEERS for side in SIDES]
    test = [Job(name, seed, "test") for seed in range(seeds) for name in VARIANTS]
    return [*(Job(name, 0, "validation") for name in CHOOSING), *peers, *test]


def run(job: Job, arguments: argparse.Namespace) -> None:
    known = Utterances.read(arguments.pack)
    validation, test = known.sides()
    if job.name in PEERS:
        append_rows(arguments.rows, warped_distances(job, known, test if job.side == "test" else validation, arguments))
        return
    variant = VARIANTS[job.name]
    kept_aside = test if job.side == "test" else validation | test
    training = known.collection(~kept_aside & np.isin(known.voice, variant.voices), variant, "arctic")
    estimator = GeoPatch(
        model=replace(PRESETS[variant.preset], **variant.model),
        train=TrainConfig(**variant.training, **({"max_steps": arguments.steps} if arguments.steps else {})),
        random_state=job.seed,
        device=arguments.device,
    )
    started = time.perf_counter()
    estimator.fit(training.signals, training.labels if variant.labels else None)
    trained = Trained(estimator, job.name, job.seed, time.perf_counter() - started)
    rows = list(measured(trained, known, variant, test if job.side == "test" else validation, job.side))
    append_rows(arguments.rows, rows)
    print(f"{trained.fit_s:6.1f} s to fit: {job.name}, seed {job.seed}, {job.side}", flush=True)


def measured(
    trained: Trained, known: Utterances, variant: Variant, side: npt.NDArray[np.bool_], name: str
) -> Iterator[Row]:
    """Rows of each voice, searched among others and among all."""
    config = trained.estimator.encoder_.config
    kinds = ("own", LEARNED_TOKENS) if config.bands and config.is_trained else ("own",)
    for search in searches(known, variant, side, name):
        kept = encoded(trained.estimator, search.gallery.signals)
        for stress in map(Stress.parse, STRESSES):
            query = encoded(trained.estimator, stress.queries(search.queries.signals))
            for kind in kinds:
                preset = trained.preset + (f", {kind}" if kind == LEARNED_TOKENS else "")
                for scorer in SCORERS if kind == "own" else SCORERS[1:]:
                    scores = all_scores(query[kind], kept[kind], scorer)
                    how = {**trained.as_row(), "preset": preset, "scorer": scorer}
                    yield from search.rows(scores, stress, how)


def warped_distances(
    job: Job, known: Utterances, side: npt.NDArray[np.bool_], arguments: argparse.Namespace
) -> Iterator[Row]:
    """Dynamic time warping of all pairs; the distance over the root of both lengths."""
    band, variant = PEERS[job.name]
    device = device_of(arguments.device)
    how = {"preset": job.name, "scorer": "own", "config_digest": "", "seed": 0, "fit_s": 0.0, "device": device.type}
    for search in searches(known, variant, side, job.side):
        for stress in map(Stress.parse, STRESSES):
            queries, gallery = (
                [signal.values for signal in signals]
                for signals in (stress.queries(search.queries.signals), search.gallery.signals)
            )
            distance = dtw_distances(queries, gallery, band=band, device=device)
            lengths = [np.sqrt([len(values) for values in one]) for one in (queries, gallery)]
            yield from search.rows(torch.from_numpy(-distance / np.sqrt(np.outer(*lengths))), stress, how)


@dataclass(frozen=True, eq=False)
class VoiceSearch:
    """The sentences of one voice, and those of the real voices and its own, which they are looked for among."""

    queries: Collection
    gallery: Collection
    foreign: npt.NDArray[np.bool_]  # (N,) what is of another voice in the gallery

    def rows(self, scores: torch.Tensor, stress: Stress, how: dict[str, Any]) -> Iterator[Row]:
        """Of scores (Q, N): among other voices, and among all."""
        protocol, asked, there = Protocol(), places(self.queries.signals), places(self.gallery.signals)
        assert self.queries.labels is not None
        assert self.gallery.labels is not None
        relevant = protocol.relevant(asked, there, self.queries.labels, self.gallery.labels)
        for among, allowed in (("others", self.foreign), ("all", self.foreign | True)):
            candidate = torch.from_numpy(protocol.candidates(asked, there) & allowed[None])
            kept = scores.cpu().masked_fill(~candidate, -torch.inf)
            ranked = ScoredQueries(kept, candidate, torch.from_numpy(relevant))
            named = Collection(f"{self.queries.name} among {among}", self.queries.signals, self.queries.labels)
            how = {"target": "prompt", "encode_s": 0.0, **how}
            yield make_row(named, protocol, stress, retrieval_scores([ranked], labels=named.labels), **how)


def searches(known: Utterances, variant: Variant, side: npt.NDArray[np.bool_], name: str) -> Iterator[VoiceSearch]:
    """One for each voice; of validation sentences for the voices that choices may look at."""
    for voice in (*REAL, *(voice for voice in VOICES if name == "test" or voice in DEVELOPMENT)):
        copied = VOICES[voice].copy_of if voice in VOICES else voice
        gallery = known.collection(side & np.isin(known.voice, [*REAL, voice]), variant, "gallery")
        queries = known.collection(side & (known.voice == voice), variant, f"{name} {voice}")
        speakers = np.asarray([signal.id.split("/")[0] for signal in gallery.signals])
        yield VoiceSearch(queries, gallery, ~np.isin(speakers, [voice, copied or voice]))


Encoded = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # embedding (N, D), tokens (N, K, d), valid (N, K)


@torch.inference_mode()
def encoded(estimator: GeoPatch, signals: Sequence[Signal]) -> dict[str, Encoded]:
    """With the tokens of the model, and with those of its learned half."""
    encoding, encoder = estimator.encode(signals), estimator.encoder_
    device = encoder.level.device
    embedding, tokens, valid = (
        torch.from_numpy(part).to(device) for part in (encoding.embedding, encoding.tokens, encoding.valid)
    )
    own = embedding, tokens, valid
    if encoder.kernels is None or encoder.learned is None:
        return {"own": own}
    learned = encoder.learned(encoder.patch(encoder.scale(stack(signals).to(device))))
    return {"own": own, LEARNED_TOKENS: (embedding, learned.tokens, learned.valid)}


@torch.inference_mode()
def all_scores(query: Encoded, kept: Encoded, scorer: str) -> torch.Tensor:
    """Scores (Q, N) of every candidate: a shortlist that leaves nothing out."""
    parts = []
    for part in (slice(start, start + QUERIES) for start in range(0, len(query[0]), QUERIES)):
        cosine = query[0][part] @ kept[0].mT
        parts.append(rerank(cosine, query[1][part], query[2][part], kept[1], kept[2], scorer, len(kept[0])))
    return torch.cat(parts)


def table(rows: Sequence[Row], side: str, among: str) -> str:
    """R@1 clean / warped by voice, mean over seeds; of each variant and scorer."""
    rows = [row for row in rows if row.data.startswith(f"{side} ") and row.data.endswith(f" among {among}")]
    voices = list(dict.fromkeys(row.data.split()[1] for row in rows))
    lines = [f"| {side}, among {among} | seeds | " + " | ".join(voices) + " |", "|" + "---|" * (len(voices) + 2)]
    for preset, scorer in dict.fromkeys((row.preset, row.scorer) for row in rows):
        mine = [row for row in rows if (row.preset, row.scorer) == (preset, scorer)]
        cells = [" / ".join(_mean(mine, voice, Stress.parse(stress).text) for stress in STRESSES) for voice in voices]
        lines.append(f"| {preset}, {scorer} | {len({row.seed for row in mine})} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _mean(rows: Sequence[Row], voice: str, stress: str) -> str:
    values = [row.scores["recall@1"] for row in rows if row.data.split()[1] == voice and row.stress == stress]
    return f"{np.mean(values):.3f}" if values else "-"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="training steps, where not the default")
    parser.add_argument("--only", nargs="*", choices=(*VARIANTS, *PEERS))
    parser.add_argument("--table", action="store_true", help="print what the rows say, and measure nothing")
    add_flags(parser)
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parse()
    wanted = [job for job in jobs(arguments.seeds) if arguments.only is None or job.name in arguments.only]
    if arguments.table or side_by_side(arguments, wanted, lambda job: run(job, arguments)):
        measured_rows = read_rows(arguments.rows)
        print("\n\n".join(table(measured_rows, side, among) for side in SIDES for among in ("others", "all")))
