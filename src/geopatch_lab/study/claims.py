"""The claims of the paper, each with a rule that says from rows whether it holds. Nothing here is written by hand.

A claim is tested on our learned half alone and on the paper's own (the `paper` preset), part by part. It holds if every
part does, holds in part if some do, and does not hold if none does. Where encoders were also trained with ten times the
steps, it is judged once more on those, and the better verdict stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from geopatch.evaluate.rows import Row
from geopatch_lab.baselines.registry import METHODS
from geopatch_lab.study.ablations import FULL
from geopatch_lab.study.compare import beyond_chance, difference
from geopatch_lab.study.jobs import ABLATION_SETS, POOL_METHODS, ablation_target
from geopatch_lab.study.scores import R1, WARPED, Condition, StudyScores, method_of
from geopatch_lab.study.sets import UNSEEN
from geopatch_lab.study.tables import PAPER_STRESS, POOL_CONTESTANTS, STRICT, drops, markdown, plain, wide

PRESETS = (FULL, "paper")
HOLDS, IN_PART, NOT, UNKNOWN = "holds", "holds in part", "does not hold", "not measured"
PAPERS_EIGHT = ("transformer", "patchtst", "ts2vec", "ts-tcc", "ts-resnet", "inceptiontime", "minirocket", "invconvnet")
POINT = 0.01
NEAR = 0.02  # R@1 that two methods may differ by and still be called level


@dataclass(frozen=True)
class Part:
    """One thing that was measured, and whether it is as the claim says."""

    text: str
    holds: bool


Check = Callable[[StudyScores, str], Iterable[Part]]


@dataclass(frozen=True)
class Claim:
    """What the paper says, and how rows are asked about it."""

    says: str
    check: Check
    presets: tuple[str, ...] = PRESETS
    long: bool = False  # whether all that it speaks of was measured with ten times the steps too


@dataclass(frozen=True)
class Verdict:
    """What rows say about a claim, and which rows those are; `long` after ten times the steps."""

    claim: Claim
    parts: tuple[Part, ...]
    rows: tuple[Row, ...]
    long: tuple[Part, ...] = ()

    @property
    def verdict(self) -> str:
        return better(verdict_on(self.parts), verdict_on(self.long))


def verdict_on(parts: Sequence[Part]) -> str:
    if not parts:
        return UNKNOWN
    if all(part.holds for part in parts):
        return HOLDS
    return IN_PART if any(part.holds for part in parts) else NOT


def better(one: str, other: str) -> str:
    """The verdict that says more for a claim."""
    return min(one, other, key=(HOLDS, IN_PART, NOT, UNKNOWN).index)


def shown_parts(parts: Sequence[Part]) -> str:
    """One below the other in a cell."""
    return "<br>".join(f"{'yes' if part.holds else 'no'}: {part.text}" for part in parts) or "-"


def best_rival(
    scores: StudyScores, column: str, names: Sequence[str], stress: str = "clean"
) -> tuple[str, float] | None:
    values = {name: scores.column(column, name, stress=stress) for name in names}
    known = {name: value for name, value in values.items() if value is not None}
    best = max(known, key=lambda name: known[name], default=None)
    return None if best is None else (best, known[best])


def _leads(column: str, by: float, names: Sequence[str] = PAPERS_EIGHT, stress: str = "clean") -> Check:
    """R@1 on a column of table (a) is above the best rival's by so much."""

    def check(scores: StudyScores, preset: str) -> Iterable[Part]:
        own, rival = scores.column(column, preset, stress=stress), best_rival(scores, column, names, stress)
        if own is not None and rival is not None:
            text = f"{preset}: {column} R@1 {own:.3f}, best rival {rival[0]} {rival[1]:.3f}"
            yield Part(text, own - rival[1] >= by)

    return check


def _reaches_the_top(scores: StudyScores, preset: str) -> Iterable[Part]:
    value = scores.value(Condition("nstdb", preset))
    if value is not None:
        yield Part(f"{preset}: NSTDB R@1 {value:.4f}", value >= 0.9995)


def _costs(stress: str, holds: Callable[[float], bool]) -> Check:
    """The average drop in R@1 that a stress brings, in percent of the clean score."""

    def check(scores: StudyScores, preset: str) -> Iterable[Part]:
        by_set = drops(scores, preset, stress, R1)
        if by_set:
            drop = mean(by_set.values())
            yield Part(f"{preset}: {stress} lowers R@1 by {drop:.1f} % over {len(by_set)} sets", holds(drop))

    return check


def _mask_is_worst(scores: StudyScores, preset: str) -> Iterable[Part]:
    by_stress = {stress: drops(scores, preset, stress, R1) for stress in PAPER_STRESS if stress != "clean"}
    means = {stress: mean(values.values()) for stress, values in by_stress.items() if values}
    if len(means) == len(by_stress):
        text = ", ".join(f"{stress} {value:.1f} %" for stress, value in means.items())
        yield Part(f"{preset}: {text}", max(means, key=lambda stress: means[stress]) == "span-mask")


def _late_interaction_gains(scores: StudyScores, preset: str) -> Iterable[Part]:
    for data in ("nsrdb", "mitdb"):
        base, late = (scores.value(Condition(data, preset, scorer=scorer)) for scorer in ("cosine", "maxsim"))
        if base is not None and late is not None:
            yield Part(f"{preset}: {data} R@1 {base:.3f} -> {late:.3f} with MaxSim", late - base >= POINT)


def _falls(protocols: Sequence[tuple[str, str, str]], by: float) -> Check:
    """MaxSim loses that much R@1 against cosine under (set, target, protocol)."""

    def check(scores: StudyScores, preset: str) -> Iterable[Part]:
        for data, target, protocol in protocols:
            conditions = [Condition(data, preset, target, protocol, scorer) for scorer in ("cosine", "maxsim")]
            base, late = (scores.value(condition) for condition in conditions)
            if base is not None and late is not None:
                yield Part(f"{preset}: {data} {target}, {protocol} R@1 {base:.3f} -> {late:.3f}", base - late >= by)

    return check


PENALISED = (
    ("nsrdb", "subject", "penalised-nonoverlap"),
    ("nstdb", "subject", "penalised-cross-record"),
    ("mitdb", "beat", "penalised-cross-record"),
)
REMOVED = (
    ("nsrdb", "subject", "strict-nonoverlap"),
    ("nstdb", "subject", "strict-cross-record"),
    ("mitdb", "beat", "strict-cross-record"),
)


def _lowers(ablations: Sequence[str], data: Sequence[str], stress: str = "clean") -> Check:
    """An ablation has less R@1 than the full encoder, by more than seeds differ."""

    def check(scores: StudyScores, preset: str) -> Iterable[Part]:
        for name in data:
            spread = scores.ablation_spread(name, stress=stress)
            for ablation in ablations:
                conditions = [
                    Condition(name, method, ablation_target(name), stress=stress) for method in (preset, ablation)
                ]
                full, less = map(scores.value, conditions)
                if spread is not None and full is not None and less is not None:
                    chance = beyond_chance(spread, min(len(scores.seeds(one)) for one in conditions))
                    warped = ", warped queries" if stress != "clean" else ""
                    text = f"{ablation} on {name}{warped}: R@1 {full:.3f} -> {less:.3f} (seeds: {chance:.3f})"
                    yield Part(text, full - less > chance)

    return check


def _strict_equals_standard(scores: StudyScores, preset: str) -> Iterable[Part]:
    protocols = {row.protocol for row in scores.rows if row.target in ("class", "prompt") and method_of(row) == preset}
    if protocols:
        text = "each archive series and each utterance is a record of its own, so strict protocols are refused there"
        yield Part(f"{preset}: {text}", protocols == {"standard"})


def _trade_off(scores: StudyScores, preset: str) -> Iterable[Part]:
    """From cosine to MaxSim, standard R@1 rises and strict R@1 falls."""
    for data, protocol in STRICT.items():
        values = [
            scores.ablation(data, preset, scorer=scorer, protocol=rule)
            for rule in ("standard", protocol)
            for scorer in ("cosine", "maxsim")
        ]
        if None not in values:
            base, late, strict, strict_late = (float(value or 0) for value in values)
            text = f"{data}: standard {base:.3f} -> {late:.3f}, {protocol} {strict:.3f} -> {strict_late:.3f}"
            yield Part(f"{preset}: {text}", late > base and strict_late < strict)


def _resists_warps(scores: StudyScores, preset: str) -> Iterable[Part]:
    """Against what a user would pick instead, over the sets that no choice has seen, with warped queries."""
    table = wide(scores, UNSEEN, POOL_CONTESTANTS, WARPED)
    for rival in POOL_METHODS:
        gap = difference(table, plain(preset, "cosine"), rival)
        if gap is not None:
            text = f"{100 * gap.mean:+.1f} points [{100 * gap.low:+.1f}, {100 * gap.high:+.1f}]"
            yield Part(f"{preset} against {rival}, {gap.sets} sets, warped queries: {text}", gap.low > 0)


ECG_AND_SPEECH = ("nsrdb", "mitdb", "arctic")
CLAIMS: tuple[Claim, ...] = (
    Claim(
        "GeoPatch leads all eight baselines on NSRDB by nearly 20 points of R@1 (.880 against .681)",
        _leads("nsrdb", 0.15),
        long=True,
    ),
    Claim("It ties at the maximum on NSTDB (R@1 1.000)", _reaches_the_top, long=True),
    Claim("It is competitive on MITDB (.802; the best baseline, MiniROCKET, .914)", _leads("mitdb", -NEAR), long=True),
    Claim("It is best on CMU ARCTIC (.852 against .845)", _leads("arctic", 0.0), long=True),
    Claim("It is competitive on the UEA archive (mean R@1 .764; MiniROCKET .854)", _leads("UEA mean", -NEAR)),
    Claim(
        "Left out by the paper: it leads also what a user would pick instead, on the UEA archive (mean R@1, all 14)",
        _leads("UEA mean", 0.0, tuple(METHODS)),
    ),
    Claim(
        "A smooth warp costs little: 4.2 % of R@1, read as both sides warped alike",
        _costs("warp-both-alike", lambda drop: drop < 5),
    ),
    Claim(
        "Left out by the paper: so it does when only the queries are warped",
        _costs("warp-queries", lambda drop: drop < 5),
    ),
    Claim("Noise on geometry costs almost nothing (-0.9 %)", _costs("geometry-noise", lambda drop: abs(drop) < 1)),
    Claim("Masking a span costs most of all (21.3 % of R@1)", _mask_is_worst),
    Claim("Another order of patches costs little (1.9 %)", _costs("shuffle", lambda drop: drop < 5)),
    Claim(
        "Curvature and residual inputs matter on ECG and speech: without them R@1 is lower",
        _lowers(("minus-curvature", "minus-residual"), ECG_AND_SPEECH),
        (FULL,),
        long=True,
    ),
    Claim(
        "The fixed scaffold must be paired with geometry conditioning to work well",
        _lowers(("no-geometry",), (*ABLATION_SETS, "arctic")),
        (FULL,),
        long=True,
    ),
    Claim(
        "Fixed boundaries resist timing better than adaptive ones",
        _lowers(("boundaries-adaptive",), ABLATION_SETS, WARPED),
        (FULL,),
        long=True,
    ),
    Claim("MaxSim on the shortlist raises R@1 (NSRDB +9.3 points, MITDB +17.7)", _late_interaction_gains, long=True),
    Claim(
        "Under Strict, where same-record candidates count as wrong, MaxSim falls sharply (by 27 to 48 points)",
        _falls(PENALISED, 0.1),
        long=True,
    ),
    Claim(
        "Left out by the paper: it falls as well where those candidates are removed (by a point or more)",
        _falls(REMOVED, POINT),
        long=True,
    ),
    Claim("MaxSim moves the full model towards standard retrieval and away from strict", _trade_off, long=True),
    Claim("On UEA and speech, strict is the same as standard", _strict_equals_standard),
    Claim(
        "The embedding resists timing deformation: with warped queries it leads what a user would pick instead",
        _resists_warps,
        (FULL,),
    ),
)


def verdicts(scores: StudyScores, claims: Sequence[Claim] = CLAIMS) -> list[Verdict]:
    reached, longer = [], scores.longer()
    for claim in claims:
        ordinary, long = scores.watched(), longer.watched()
        parts = tuple(part for preset in claim.presets for part in claim.check(ordinary, preset))
        more = tuple(part for preset in claim.presets for part in claim.check(long, preset)) if claim.long else ()
        rows = {id(row): row for row in (*ordinary.seen, *long.seen)}
        reached.append(Verdict(claim, parts, tuple(rows.values()), more))
    return reached


def claims_table(scores: StudyScores) -> str:
    lines = []
    for one in verdicts(scores):
        parts = [f"{shown_parts(own)}<br>**{verdict_on(own)}**" if own else "-" for own in (one.parts, one.long)]
        lines.append([one.claim.says, *parts, f"**{one.verdict}**", _behind(one.rows)])
    heads = ["the paper says", "measured", "after ten times the steps", "verdict: the better", "rows behind it"]
    return markdown(heads, lines)


def tally(scores: StudyScores) -> str:
    """How many claims came out how."""
    reached = [verdict.verdict for verdict in verdicts(scores)]
    counts = ", ".join(f"{one} {reached.count(one)}" for one in (HOLDS, IN_PART, NOT, UNKNOWN) if one in reached)
    return f"Of {len(reached)} claims: {counts}."


def _behind(rows: Sequence[Row]) -> str:
    """Where to look in the file of rows."""
    if not rows:
        return "-"
    columns = {
        "data": [row.data for row in rows],
        "target": [row.target for row in rows],
        "protocol": [row.protocol for row in rows],
        "scorer": [row.scorer for row in rows],
        "stress": [row.stress for row in rows],
    }
    parts = [f"{name} {', '.join(_shortened(list(dict.fromkeys(values))))}" for name, values in columns.items()]
    return f"{len(rows)} rows: {'; '.join(parts)}"


def _shortened(values: Sequence[str], most: int = 5) -> list[str]:
    return [*values] if len(values) <= most else [*values[:most], f"and {len(values) - most} more"]
