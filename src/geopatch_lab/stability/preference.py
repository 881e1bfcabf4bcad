"""What a scorer prefers: windows of the query's own record, or right windows of other records.

For each query the best candidate of its own record (whatever its label, itself left out) is set against the best right
candidate of another record; preference is how often the first scores higher. `own` is every window of the record, or
only those that share no sample with the query: what overlaps it is all but the query itself.

The proposition on max aggregation speaks of M(q, c), the highest cosine of any two tokens, and of scores that rise with
it. MaxSim as everyone uses it, the mean over query tokens of the best token, is no function of M: `strongest` is M
itself and stands beside the scorers. Its premise, that M of the same record dominates M of others, is measured, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from geopatch.encoding import Encoding
from geopatch.errors import SignalError, one_of
from geopatch.evaluate.retrieval import EncodedSide, score
from geopatch.protocol import Labels, Mask, Places, Protocol
from geopatch.scoring import SCORERS, encoded_scorers, similarities
from geopatch_lab.stability.finding import Finding, Numbers

STRONGEST = "strongest"
LATE = tuple(name for name in encoded_scorers() if SCORERS[name].tokens is not None)
PREFERRING = (*encoded_scorers(), STRONGEST)
OWN = ("any", "apart")  # of the query's record: any window, or those that do not overlap it
PROTOCOLS = (
    "standard",
    "strict-nonoverlap",
    "strict-cross-record",
    "penalised-nonoverlap",
    "penalised-cross-record",
)
PAIRS = 2048  # query-candidate pairs whose tokens are compared at a time
LEVELS = 201  # thresholds at which two distributions are compared


@dataclass(frozen=True)
class Preference:
    """How often a query's own record scores higher than the best right candidate of any other record."""

    rate: float  # NaN where no query has both
    tied: float
    queries: int
    left_out: int  # queries that lack one of the two
    gap: float  # mean of own less other


def token_scores(query: Encoding, gallery: Encoding, device: torch.device | str = "cpu") -> dict[str, Numbers]:
    """Every scorer over all pairs (Q, N), without a shortlist, and the strongest single match."""
    query_parts, gallery_parts = _tensors(query, device), _tensors(gallery, device)
    cosine = query_parts[0] @ gallery_parts[0].mT
    rows: dict[str, list[Tensor]] = {name: [] for name in (*LATE, STRONGEST)}
    step = max(PAIRS // len(gallery_parts[0]), 1)
    for start in range(0, len(cosine), step):
        part = slice(start, start + step)
        tokens = gallery_parts[1][None].expand(len(cosine[part]), *gallery_parts[1].shape)
        valid = gallery_parts[2][None].expand(len(cosine[part]), *gallery_parts[2].shape)
        similarity = similarities(query_parts[1][part], query_parts[2][part], tokens, valid)
        for name in LATE:
            rows[name].append(SCORERS[name].combine(cosine[part], similarity))
        rows[STRONGEST].append(similarity.amax((1, 3)))
    return {"cosine": cosine.cpu().numpy()} | {name: torch.cat(parts).cpu().numpy() for name, parts in rows.items()}


def _tensors(encoding: Encoding, device: torch.device | str) -> tuple[Tensor, Tensor, Tensor]:
    embedding, tokens, valid = (
        torch.from_numpy(array).to(device) for array in (encoding.embedding, encoding.tokens, encoding.valid)
    )
    return embedding, tokens, valid


def sides(query: Places, gallery: Places, query_labels: Labels, labels: Labels, own: str) -> tuple[Mask, Mask]:
    """Which candidates (Q, N) are of the query's own record, and which are right and of another one."""
    one_of("own", own, OWN)
    same = np.equal(query.records[:, None], gallery.records[None])
    other: Mask = np.equal(query_labels[:, None], labels[None]) & ~same
    protocol = Protocol("standard" if own == "any" else "strict-nonoverlap")
    return same & protocol.candidates(query, gallery), other


def preference(scores: Numbers, own: Mask, other: Mask) -> Preference:
    """Of scores (Q, N), where `own` and `other` mark the candidates of each side; a tie is no preference."""
    if scores.shape != own.shape or scores.shape != other.shape:
        raise SignalError(f"expected masks of shape {scores.shape}, got {own.shape} and {other.shape}")
    known = own.any(1) & other.any(1)
    near = np.where(own, scores, -np.inf).max(1)[known]
    far = np.where(other, scores, -np.inf).max(1)[known]
    if not known.any():
        return Preference(float("nan"), float("nan"), 0, len(scores), float("nan"))
    rate, tied = float((near > far).mean()), float((near == far).mean())
    return Preference(rate, tied, int(known.sum()), int((~known).sum()), float((near - far).mean()))


def dominance(own: Numbers, other: Numbers) -> tuple[float, float]:
    """The most that P(other > t) exceeds P(own > t), 0 where `own` dominates for all t, and the reverse."""
    if not len(own) or not len(other):
        raise SignalError(f"dominance needs scores on both sides, got {len(own)} and {len(other)}")
    levels = np.linspace(min(own.min(), other.min()), max(own.max(), other.max()), LEVELS)
    above = [1 - np.searchsorted(np.sort(side), levels, side="right") / len(side) for side in (own, other)]
    gap = above[1] - above[0]
    return float(gap.max(initial=0.0)), float((-gap).max(initial=0.0))


def preference_findings(query: EncodedSide, gallery: EncodedSide, device: torch.device | str = "cpu") -> list[Finding]:
    """The preference of each scorer, and what the proposition assumes and says of each."""
    scores = token_scores(query.encoding, gallery.encoding, device)
    return [
        finding
        for own in OWN
        for name in PREFERRING
        for finding in _findings(
            scores[name], *sides(query.where, gallery.where, query.labels, gallery.labels, own), name, own
        )
    ]


def _findings(scores: Numbers, own: Mask, other: Mask, scorer: str, kind: str) -> Iterator[Finding]:
    preferred = preference(scores, own, other)
    setting: dict[str, str | float] = {"scorer": scorer, "own": kind}
    yield Finding(
        "preference",
        setting,
        {"rate": preferred.rate, "tied": preferred.tied, "gap": preferred.gap, "left_out": float(preferred.left_out)},
        preferred.queries,
    )
    if own.any() and other.any():
        short, ahead = dominance(scores[own], scores[other])
        means = {"own_mean": float(scores[own].mean()), "other_mean": float(scores[other].mean())}
        yield Finding("dominance", setting, {"short": short, "ahead": ahead, **means}, int(own.sum() + other.sum()))


def protocol_findings(
    query: EncodedSide, gallery: EncodedSide, protocols: Sequence[str] = PROTOCOLS, device: torch.device | str = "cpu"
) -> list[Finding]:
    """R@1 and mAP of every scorer under every protocol: does one scorer win them all?"""
    findings = []
    for name in protocols:
        protocol = Protocol(name)
        for scorer in encoded_scorers():
            scores = score(query, gallery, protocol, scorer, device)
            setting: dict[str, str | float] = {"protocol": name, "digest": protocol.digest, "scorer": scorer}
            findings.append(Finding("protocol", setting, scores.as_dict(), scores.queries))
    return findings


def best_scorers(findings: Sequence[Finding], metric: str = "recall@1") -> dict[str, tuple[str, ...]]:
    """For each protocol the scorers with the highest value: more than one where they tie."""
    by_protocol: dict[str, dict[str, float]] = {}
    for one in findings:
        if one.topic == "protocol":
            by_protocol.setdefault(str(one.setting["protocol"]), {})[str(one.setting["scorer"])] = one.values[metric]
    return {
        protocol: tuple(scorer for scorer, value in values.items() if value == max(values.values()))
        for protocol, values in by_protocol.items()
    }


def queried(encoded: EncodedSide, places: npt.NDArray[np.intp]) -> EncodedSide:
    """Some of the windows as queries."""
    encoding, where = encoded.encoding, encoded.where
    picked = Encoding(
        tuple(encoding.ids[place] for place in places),
        encoding.embedding[places],
        encoding.tokens[places],
        encoding.valid[places],
        encoding.starts[places],
    )
    spots = Places(where.ids[places], where.records[places], where.start_s[places], where.stop_s[places])
    return replace(encoded, encoding=picked, where=spots, labels=encoded.labels[places])
