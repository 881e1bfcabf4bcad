"""The rules by which rows of stability say whether a theorem or proposition of the paper holds, part by part.

What was measured is a mean over runs, a run being one set with one seed, and behind it the least and the greatest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import mean, median

from geopatch_lab.plot.stability import KIND_TITLES
from geopatch_lab.stability.bound import LEVELS
from geopatch_lab.stability.drift import KINDS
from geopatch_lab.stability.finding import FAILED, StabilityRow
from geopatch_lab.stability.preference import STRONGEST
from geopatch_lab.study.claims import Part
from geopatch_lab.study.tables import shown

ROUNDING = 1e-6  # of a unit vector in float32 when it is computed twice, and of the residual under another gauge
SMALL_FACTOR = 2.0  # within which the ratio of observed to bound stays over all eta
LINEAR = 1.1  # the same of the bound over eta, which would be 1 but for the draw of the noise
USED = 0.1  # a bound of which less is used in the median does not characterise what it bounds
SHORT = 0.01  # by which a distribution may fall short of another one and still be said to dominate it
LAST_DIGIT = 0.002  # R@1 by which a scorer must lose to be beaten
SMALL = 1e-12

Run = Sequence[StabilityRow]
Numbers = Sequence[float]


def runs_of(rows: Iterable[StabilityRow]) -> list[Run]:
    """The rows of each set and seed; failures are none."""
    groups: dict[tuple[str, int], list[StabilityRow]] = {}
    for row in rows:
        if row.topic != FAILED:
            groups.setdefault((row.data, row.seed), []).append(row)
    return list(groups.values())


def spread(values: Numbers, form: str = ".3g") -> str:
    """'0.25 (0.2 to 0.3)': mean, least and greatest; one number where they are the same."""
    middle, low, high = (format(value, form) for value in (mean(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def at(run: Run, topic: str, **setting: str | float) -> list[StabilityRow]:
    """The rows of a topic that are set so."""
    of_topic = (row for row in run if row.topic == topic)
    return [row for row in of_topic if all(row.setting.get(name) == value for name, value in setting.items())]


def each(
    runs: Sequence[Run], take: Callable[[Numbers], float], topic: str, name: str, **setting: str | float
) -> list[float]:
    """One number for each run that has such rows."""
    by_run = ([row.values[name] for row in at(run, topic, **setting)] for run in runs)
    return [take(values) for values in by_run if values]


def parts_bound_the_whole(runs: Sequence[Run]) -> Iterator[Part]:
    broken = each(runs, max, "drift", "violations")
    if broken:
        reached = [mean(shares) for run in runs if (shares := [_reached(row) for row in _changed(run)])]
        text = f"share of windows beyond the sum: {spread(broken)}; of the sum {spread(reached, '.0%')} is reached"
        yield Part(text, max(broken) == 0)


def _changed(run: Run, **setting: str | float) -> list[StabilityRow]:
    """Drift where there is something to drift by."""
    return [row for row in at(run, "drift", **setting) if row.setting["strength"]]


def _reached(row: StabilityRow) -> float:
    return row.values["total_mean"] / max(row.values["boundary_mean"] + row.values["feature_mean"], SMALL)


def fixed_patches_have_no_boundary_drift(runs: Sequence[Run]) -> Iterator[Part]:
    most = each(runs, max, "drift", "boundary_max", rule="fixed")
    if most:
        yield Part(f"fixed: boundary drift is at most {spread(most)}", max(most) <= ROUNDING)
    for kind in KINDS:
        by_run = [_changed(run, kind=kind, rule="adaptive", weights="own") for run in runs]
        shares = [mean(row.values["boundary_share"] for row in rows) for rows in by_run if rows]
        if shares:
            yield Part(f"adaptive, {KIND_TITLES[kind]}: it is {spread(shares, '.0%')} of both parts", min(shares) > 0)


def fixed_patches_drift_less(runs: Sequence[Run]) -> Iterator[Part]:
    """At the least and the greatest strength, each rule on an encoder of its own; then both on the same weights."""
    for kind in KINDS:
        for strength in _ends(runs, kind):
            yield from _drifts_less(runs, kind, strength, "own")
    for kind in KINDS:
        for strength in _ends(runs, kind)[-1:]:
            yield from _drifts_less(runs, kind, strength, "shared")


def _ends(runs: Sequence[Run], kind: str) -> list[float]:
    strengths = sorted({float(row.setting["strength"]) for run in runs for row in _changed(run, kind=kind)})
    return list(dict.fromkeys((*strengths[:1], *strengths[-1:])))


def _drifts_less(runs: Sequence[Run], kind: str, strength: float, weights: str) -> Iterator[Part]:
    fixed = _by_distance(runs, kind=kind, strength=strength, rule="fixed", weights="own")
    other = _by_distance(runs, kind=kind, strength=strength, rule="adaptive", weights=weights)
    if fixed and len(fixed) == len(other):
        where = f"{KIND_TITLES[kind]} {strength:g}" + (", same weights" if weights == "shared" else "")
        less = sum(one < two for one, two in zip(fixed, other, strict=True))
        text = f"{where}: fixed {spread(fixed, '.3f')}, adaptive {spread(other, '.3f')}"
        text += f", less in {less} of {len(fixed)} runs"
        yield Part(text, mean(fixed) < mean(other) and 2 * less > len(fixed))


def _by_distance(runs: Sequence[Run], **setting: str | float) -> list[float]:
    """Drift as a share of the distance of two windows drawn by chance, as the figure has it."""
    total, apart = (each(runs, mean, "drift", name, **setting) for name in ("total_mean", "apart"))
    return [one / max(other, SMALL) for one, other in zip(total, apart, strict=True)]


def residual_has_no_gauge(runs: Sequence[Run]) -> Iterator[Part]:
    change, slow = (each(runs, max, "affine", name) for name in ("change_max", "too_slow"))
    if change:
        text = (
            f"R goes by at most {spread(change, '.0e')} of 1 + R; {spread(slow, '.1%')} of patches too slow for a rate"
        )
        yield Part(text, max(change) <= ROUNDING)


def bound_holds(runs: Sequence[Run]) -> Iterator[Part]:
    for level in LEVELS:
        broken = each(runs, max, "bound", "violations", level=level, constants="maximum")
        if broken:
            yield Part(f"{level}: share beyond the bound {spread(broken)}", max(broken) == 0)


def bound_scales(runs: Sequence[Run]) -> Iterator[Part]:
    ratios = each(runs, _factor, "bound", "median", level="window", constants="maximum")
    if ratios:
        text = f"the median ratio differs by a factor of {spread(ratios, '.2f')} between all eta"
        yield Part(text, mean(ratios) < SMALL_FACTOR)
        slopes = [_factor(slopes_of_run) for run in runs if (slopes_of_run := _bound_over_eta(run))]
        yield Part(f"the bound over eta by a factor of {spread(slopes, '.2f')}", mean(slopes) < LINEAR)


def _bound_over_eta(run: Run) -> list[float]:
    bounds = at(run, "bound", level="window", constants="maximum")
    return [row.values["bound_median"] / float(row.setting["eta"]) for row in bounds]


def _factor(values: Numbers) -> float:
    return max(values) / max(min(values), SMALL)


def bound_characterises(runs: Sequence[Run]) -> Iterator[Part]:
    for constants in ("maximum", "typical"):
        used = each(runs, median, "bound", "median", level="window", constants=constants)
        if used:
            text = f"{constants} constants: {spread(used, '.2%')} of it is used in the median"
            yield Part(text, USED <= mean(used) <= 1 / USED)


def largest_ratio_exceeds_one(runs: Sequence[Run]) -> Iterator[Part]:
    for level in LEVELS:
        most = each(runs, max, "bound", "max", level=level, constants="typical")
        if most:
            yield Part(f"{level}: the largest ratio is {spread(most)}", mean(most) > 1)


def certified_stay(runs: Sequence[Run]) -> Iterator[Part]:
    flips = each(runs, sum, "margin", "certified_flips")
    if flips:
        text = f"flips of certified queries: {spread(flips)}"
        yield Part("; ".join((text, *_certified(runs))), max(flips) == 0)


def _certified(runs: Sequence[Run], drift: float = 0.01) -> Iterator[str]:
    """How many are, at the largest R."""
    R = max(float(row.setting["R"]) for run in runs for row in at(run, "margin"))
    sure, paper = (
        each(runs, mean, "margin", name, protocol="standard", R=R, drift=drift)
        for name in ("certified", "certified_product")
    )
    if sure:
        yield f"at R = {R:g} and a drift of {drift:g}, {spread(sure, '.0%')} of queries are certified"
        yield f"by the paper's 4 r + 2 r² {spread(paper, '.0%')}"


def own_record_is_preferred(runs: Sequence[Run]) -> Iterator[Part]:
    short = each(runs, mean, "dominance", "short", scorer=STRONGEST, own="apart")
    if short:
        where = ", ".join(dict.fromkeys(shown(run[0].data) for run in runs if at(run, "dominance")))
        text = f"premise, {where}: P(M > t) of others exceeds that of the own record by {spread(short)} at most"
        yield Part(text, mean(short) <= SHORT)
        yield _own_mean(runs, STRONGEST, "conclusion: mean M")
        yield _own_mean(runs, "maxsim", "MaxSim, which it does not cover: mean")
        rates = {
            scorer: each(runs, mean, "preference", "rate", scorer=scorer, own="apart")
            for scorer in ("maxsim", "cosine")
        }
        text = ", ".join(f"{scorer} {spread(values, '.0%')}" for scorer, values in rates.items())
        yield Part(f"queries whose own record comes first: {text}", mean(rates["maxsim"]) > mean(rates["cosine"]))


def _own_mean(runs: Sequence[Run], scorer: str, title: str) -> Part:
    own, other = (
        each(runs, mean, "dominance", name, scorer=scorer, own="apart") for name in ("own_mean", "other_mean")
    )
    return Part(f"{title} {spread(own, '.3f')} own, {spread(other, '.3f')} others", mean(own) >= mean(other))


def no_scorer_wins_all(runs: Sequence[Run]) -> Iterator[Part]:
    for data in dict.fromkeys(run[0].data for run in runs):
        table = _recalls([row for run in runs for row in at(run, "protocol") if row.data == data])
        if len(table) > 1:
            loss = _losses(table)
            least = min(loss, key=lambda scorer: loss[scorer])
            most, protocol = loss[least]
            text = f"{shown(data)}: {least}, which loses least, is {most:.3f} R@1 behind the best under {protocol}"
            yield Part(text, most > LAST_DIGIT)


def _losses(table: Mapping[str, Mapping[str, float]]) -> dict[str, tuple[float, str]]:
    """Of each scorer the most that it loses to the best, and under which protocol."""
    scorers = next(iter(table.values()))
    return {
        name: max((max(recalls.values()) - recalls[name], protocol) for protocol, recalls in table.items())
        for name in scorers
    }


def _recalls(rows: Run) -> dict[str, dict[str, float]]:
    """Protocol -> scorer -> R@1, mean over seeds."""
    by_protocol: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        protocol, scorer = str(row.setting["protocol"]), str(row.setting["scorer"])
        by_protocol.setdefault(protocol, {}).setdefault(scorer, []).append(row.values["recall@1"])
    return {name: {scorer: mean(values) for scorer, values in one.items()} for name, one in by_protocol.items()}
