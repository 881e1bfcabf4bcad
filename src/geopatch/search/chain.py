"""Queries longer than the longest windows: cut into parts, each of them searched, and hits of parts joined in order.

A chain has at most one hit of each part, in the order of the parts and about as far apart as these are, at the speeds
that are searched; parts may be missing. It scores the mean of its parts, where a missing one counts as much as the
worst candidate of that part.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from geopatch.search.certificate import no_certificate
from geopatch.search.chance import Chance
from geopatch.search.explain import Tokens
from geopatch.search.hit import Evidence, Hit
from geopatch.search.levels import OVERLAPPING, SPEEDS, Levels, Place, own_place, shared
from geopatch.search.options import SearchOptions
from geopatch.search.placing import evidence, place_near
from geopatch.search.query import EncodedQuery, Searchable
from geopatch.search.ranking import Placed, Ranking
from geopatch.signal import Signal

LONG = 1.25  # times the longest windows, from which on a query is cut
PLACES_OF_A_PART = 4  # candidates of each part for each hit wanted
FEWEST_PLACES = 100
CHAINS = 2  # that are fitted for each hit wanted
GAP = 1.0  # parts that may lie between two that follow each other, besides what the speed explains
EARLY = 0.8  # of the least distance that the speed allows: windows lie on a grid
CHOICES = 30  # windows among which the next part of a chain is the best: what chance has to pick from
NO_CERTIFICATE = "the query is longer than the windows, and its hits are joined from those of its parts"


@dataclass(frozen=True, eq=False)
class Node:
    """A candidate of one part."""

    part: int
    row: int  # in the ranking of its part
    start_s: float
    stop_s: float
    score: float
    weight: float  # by how much it scores more than the worst candidate of its part


@dataclass(frozen=True, eq=False)
class Chain:
    """Candidates of several parts, in order of time, within one record."""

    record: str
    nodes: tuple[Node, ...]
    weight: float

    @property
    def best(self) -> Node:
        return max(self.nodes, key=lambda node: node.weight)


def parts_of(window: Signal, levels: Levels) -> list[Signal]:
    """A query as parts of one length; itself where it is not too long."""
    if window.duration_s <= LONG * levels.lengths_s[-1]:
        return [window]
    count = math.ceil(window.duration_s / levels.lengths_s[-1])
    edges = [round(n * window.length / count) for n in range(count + 1)]
    return [window.window(edges[n], edges[n + 1]) for n in range(count)]


def part_options(options: SearchOptions) -> SearchOptions:
    """How the parts of a query are searched."""
    return options.deeper(max(options.depth, PLACES_OF_A_PART * options.k, FEWEST_PLACES))


def chains(rankings: Sequence[Ranking], length_s: float) -> Iterator[Chain]:
    """Chains of the candidates of parts that last `length_s` each, best first, none over another."""
    nodes: dict[str, list[Node]] = defaultdict(list)
    for part, ranking in enumerate(rankings):
        floor = float(ranking.score.min(initial=math.inf))
        for place, row in enumerate(ranking.rows.tolist()):
            span = float(ranking.entries.start_s[row]), float(ranking.entries.stop_s[row])
            score = float(ranking.score[place])
            nodes[ranking.entries.records[row]].append(Node(part, place, *span, score, score - floor))
    best = {record: _best(record, some, length_s) for record, some in nodes.items()}
    while best:
        record = max(best, key=lambda one: best[one].weight)
        chain = best.pop(record)
        yield chain
        low, high = chain.nodes[0].start_s, chain.nodes[-1].stop_s
        nodes[record] = [node for node in nodes[record] if node.stop_s <= low or node.start_s >= high]
        if nodes[record]:
            best[record] = _best(record, nodes[record], length_s)


def _best(record: str, nodes: Sequence[Node], length_s: float) -> Chain:
    """The heaviest chain: each node after the heaviest chain that it may follow."""
    ordered = sorted(nodes, key=lambda node: (node.part, node.start_s))
    part, start_s = np.asarray([node.part for node in ordered]), np.asarray([node.start_s for node in ordered])
    total, before = np.asarray([node.weight for node in ordered]), np.full(len(ordered), -1)
    for n in range(len(ordered)):
        parts, apart = part[n] - part[:n], start_s[n] - start_s[:n]
        least, most = EARLY * parts * length_s / SPEEDS[1], parts * length_s / SPEEDS[0] + GAP * length_s
        follows = (parts > 0) & (least <= apart) & (apart <= most)
        if follows.any():
            before[n] = int(np.where(follows, total[:n], -1.0).argmax())
            total[n] += total[before[n]]
    at = int(total.argmax())
    weight, chosen = float(total[at]), list[Node]()
    while at >= 0:
        chosen.append(ordered[at])
        at = int(before[at])
    return Chain(record, tuple(reversed(chosen)), weight)


def chain_hits(
    gallery: Searchable, query: EncodedQuery, rankings: Sequence[Ranking], options: SearchOptions, chance: Chance | None
) -> list[Hit]:
    """The best chains as hits, each moved and stretched to where the whole query fits best."""
    assert query.window is not None
    part_s = query.window.duration_s / len(rankings)
    floor = sum(float(ranking.score.min(initial=0.0)) for ranking in rankings)
    fitted = list[FittedChain]()
    for chain in islice(chains(rankings, part_s), CHAINS * options.k):
        score, likely = (floor + chain.weight) / len(rankings), _chance(chain, chance)
        if options.min_score is not None and score < options.min_score:
            break
        if options.max_chance is not None and (likely is None or not likely <= options.max_chance):
            continue
        span, ranking = _span(chain, part_s, len(rankings)), rankings[chain.best.part]
        window = ranking.entries.ids[int(ranking.rows[chain.best.row])]
        fitted.append(FittedChain(chain, score, likely, span, place_near(gallery, query.window, span, window)))
    fitted.sort(key=lambda one: -float(evidence(one.score / options.ranking.steepness, one.placed.fit or 0.0)))
    own, kept = own_place(query), list[FittedChain]()
    taken = [own] if own is not None and not options.overlapping else []
    for one in fitted:
        if len(kept) < options.k and _is_free(one, taken, kept, options):
            kept.append(one)
            taken.append(one.place)
    return [_hit(one, rankings, n + 1, part_s, options, query) for n, one in enumerate(kept)]


@dataclass(frozen=True, eq=False)
class FittedChain:
    """A chain, what it scores, where its parts say it lies, and where the whole query fits best."""

    chain: Chain
    score: float
    chance: float | None
    span: Place
    placed: Placed

    @property
    def place(self) -> Place:
        return self.placed.record, self.placed.start_s, self.placed.stop_s


def _is_free(one: FittedChain, taken: Sequence[Place], kept: Sequence[FittedChain], options: SearchOptions) -> bool:
    if not options.overlapping and any(shared(one.place, other) > OVERLAPPING for other in taken):
        return False
    starts = [other.placed.start_s for other in kept if other.placed.record == one.placed.record]
    return all(abs(start_s - one.placed.start_s) >= options.min_gap_s for start_s in starts)


def _span(chain: Chain, part_s: float, parts: int) -> Place:
    """Where all parts would lie, those that are missing as far away as the others say."""
    first, last = chain.nodes[0], chain.nodes[-1]
    speed = part_s * (last.part - first.part + 1) / (last.stop_s - first.start_s)
    step_s = part_s / min(max(speed, SPEEDS[0]), SPEEDS[1])
    return chain.record, max(first.start_s - first.part * step_s, 0.0), last.stop_s + (parts - 1 - last.part) * step_s


def _chance(chain: Chain, chance: Chance | None) -> float | None:
    """How many chains would be as good by chance: the first part anywhere, each further one where it has to be."""
    if chance is None or not chance.windows:
        return None
    each = chance.of([node.score for node in chain.nodes]) / chance.windows
    first = int(np.argmin(each))
    others = np.minimum(np.delete(each, first) * CHOICES, 1.0)
    return float(chance.windows * each[first] * others.prod())


def _hit(
    one: FittedChain, rankings: Sequence[Ranking], rank: int, part_s: float, options: SearchOptions, query: EncodedQuery
) -> Hit:
    node, span, placed = one.chain.best, one.span, one.placed
    ranking = rankings[node.part]
    entries, row = ranking.entries, int(ranking.rows[node.row])
    part = ranking.query.tempos[ranking.tempo[node.row]]
    own = Tokens(entries.tokens[row], entries.valid[row], entries.patch_s[row])
    evidence = Evidence(
        _later(part.tokens, node.part * part_s), _later(own, node.start_s - span[1]), query.window, placed.window
    )
    return Hit(
        id=entries.ids[row],
        record=one.chain.record,
        start_s=placed.start_s,
        stop_s=placed.stop_s,
        score=one.score,
        rank=rank,
        scorer=options.ranking.name,
        cosine=float(ranking.cosine[node.row]),
        metadata=entries.metadata[row],
        certificate=no_certificate(options.k, NO_CERTIFICATE) if options.certify else None,
        evidence=evidence,
        tempo=part.tempo,
        chance=one.chance,
        speed=placed.speed,
        window_start_s=span[1],
        window_stop_s=span[2],
        fit=placed.fit,
        segment=placed.segment,
    )


def _later(tokens: Tokens, seconds: float) -> Tokens:
    return Tokens(tokens.tokens, tokens.valid, tokens.patch_s + np.float32(seconds))
