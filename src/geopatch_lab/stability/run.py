"""Every measurement of stability on one trained encoder, as rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from geopatch.data.collection import Collection
from geopatch.errors import ConfigError, at_least
from geopatch.evaluate.retrieval import EncodedSide, Trained, check_labels
from geopatch.evaluate.task import check_sense
from geopatch.protocol import Protocol, places
from geopatch_lab.stability.affine import affine_findings
from geopatch_lab.stability.bound import ETAS, PATCHES, bound_sweep
from geopatch_lab.stability.drift import KINDS, RULES, drift_curves
from geopatch_lab.stability.finding import Finding, StabilityRow, stability_rows
from geopatch_lab.stability.margin import DRIFTS, margin_findings
from geopatch_lab.stability.preference import PROTOCOLS, preference_findings, protocol_findings, queried

Say = Callable[[str], None]


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    drift_windows: int = 256
    every: int = 1  # one strength of so many, the first and the last always
    bound_windows: int = 192  # whose factors are taken; they come again with other noise until there are enough patches
    patches: int = PATCHES
    etas: tuple[float, ...] = ETAS
    R: tuple[int, ...] = (1, 5)
    queries: int = 2000  # whose tokens are compared with those of every window

    def __post_init__(self) -> None:
        for name in ("drift_windows", "every", "bound_windows", "patches", "queries"):
            at_least(name, getattr(self, name), 1)
        if not self.etas or not self.R:
            raise ConfigError("a size needs at least one eta and one R, got none")

    def strengths(self) -> Mapping[str, Sequence[float]]:
        return {name: _thinned(kind.strengths, self.every) for name, kind in KINDS.items()}


FULL = Size()
QUICK = Size(drift_windows=64, every=3, bound_windows=32, patches=1000, queries=200)


def measure_stability(
    trained: Trained, test: Collection, *, twin: Trained | None = None, size: Size = FULL, say: Say | None = None
) -> list[StabilityRow]:
    """Rows of all topics. `twin` is the same encoder trained with adaptive patches; without, weights are shared.

    The protocols of strict and penalised retrieval are left out where they make no sense on the data.
    """
    report = say or (lambda _: None)
    check_labels(test)
    rows = []
    report("drift: patches that move against values that change")
    for one, rule in _pairs(trained, twin):
        rows += stability_rows(_drift(one, test, rule, size), one, test)
    rows += stability_rows(_affine(trained, test, size), trained, test)
    report(f"bound: {size.patches} patches at each of {len(size.etas)} strengths")
    signals = _spread(test, size.bound_windows).signals
    rows += stability_rows(bound_sweep(trained.estimator.encoder_, signals, size.etas, size.patches), trained, test)
    report("margins, and what scorers prefer")
    rows += stability_rows(_retrieval(trained, test, size), trained, test)
    return rows


def _pairs(trained: Trained, twin: Trained | None) -> list[tuple[Trained, str]]:
    """Each rule on the encoder itself, and on the twin the rule that it was trained with."""
    pairs = [(trained, rule) for rule in RULES]
    return pairs if twin is None else [*pairs, (twin, twin.estimator.encoder_.config.boundaries)]


def _drift(trained: Trained, test: Collection, rule: str, size: Size) -> list[Finding]:
    encoder = trained.estimator.encoder_
    weights = "own" if rule == encoder.config.boundaries else "shared"
    return drift_curves(encoder, _spread(test, size.drift_windows).signals, rule, size.strengths(), weights)


def _affine(trained: Trained, test: Collection, size: Size) -> list[Finding]:
    return affine_findings(_spread(test, size.drift_windows).signals, trained.estimator.encoder_.config)


def _retrieval(trained: Trained, test: Collection, size: Size) -> list[Finding]:
    assert test.labels is not None
    encoded = EncodedSide(trained.estimator.encode(test.signals), places(test.signals), test.labels)
    protocols = [name for name in PROTOCOLS if _sensible(test, name)]
    queries = queried(encoded, _evenly(len(test), size.queries))
    margins = [
        finding
        for name in ("standard", "strict-cross-record")
        if name in protocols
        for finding in _margins(encoded, name, size)
    ]
    preferred = preference_findings(queries, encoded, trained.device) if len(protocols) > 1 else []
    return margins + preferred + protocol_findings(encoded, encoded, protocols, trained.device)


def _margins(encoded: EncodedSide, name: str, size: Size) -> list[Finding]:
    protocol = Protocol(name)
    candidate = protocol.candidates(encoded.where, encoded.where)
    relevant = protocol.relevant(encoded.where, encoded.where, encoded.labels, encoded.labels)
    drifts = _thinned(DRIFTS, min(size.every, 2))
    embedding = encoded.encoding.embedding
    return [one for R in size.R for one in margin_findings(embedding, candidate, relevant, R, drifts, name)]


def _sensible(test: Collection, name: str) -> bool:
    try:
        check_sense(test, "label", Protocol(name))
    except ConfigError:
        return False
    return True


def _spread(test: Collection, count: int) -> Collection:
    return test.subset(_evenly(len(test), count))


def _evenly(total: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """At most so many places, spread over all."""
    return np.unique(np.linspace(0, total - 1, min(total, count)).round().astype(np.intp))


def _thinned(values: Sequence[float], every: int) -> tuple[float, ...]:
    return tuple(sorted({*values[::every], values[0], values[-1]}))
