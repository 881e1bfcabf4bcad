"""The tables of the study as Markdown, from rows, with the paper's numbers beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import mean

from geopatch.evaluate.rows import Row
from geopatch.evaluate.stress import STRESSES
from geopatch.scoring import encoded_scorers
from geopatch_lab.baselines.registry import METHODS
from geopatch_lab.study import paper
from geopatch_lab.study.ablations import ALL_ABLATIONS, BEFORE, FULL, INSTANT
from geopatch_lab.study.classification import ACCURACY, LINEAR, NEAREST, PROTOCOL
from geopatch_lab.study.compare import Table, average_ranks, beyond_chance, critical_difference, difference
from geopatch_lab.study.jobs import ABLATION_SETS, POOL_METHODS, SEEDS, WITHOUT_CHANCE, ablation_target
from geopatch_lab.study.paper import PUBLISHED, Published
from geopatch_lab.study.scores import CLASS_R1, MAP, R1, WARPED, Condition, StudyScores, amplitude_of, method_of
from geopatch_lab.study.sets import REBUILT, ROBUSTNESS, UEA, UNSEEN

PRESETS = {
    "default": "GeoPatch",
    INSTANT: "GeoPatch, no labels",
    FULL: "GeoPatch, learned half alone",
    "paper": "GeoPatch, paper preset",
}
BY_BOTH = tuple((method, scorer) for method in ("default", INSTANT, FULL) for scorer in ("cosine", "fused"))
OURS = (*BY_BOTH, ("paper", "cosine"), ("paper", "maxsim"))
TITLES = {"nsrdb": "NSRDB", "nstdb": "NSTDB", "mitdb": "MITDB", "arctic": "ARCTIC"}
ECG_AND_SPEECH = ("nsrdb", "nstdb", "mitdb", "arctic")
PAPER_STRESS = {"clean": "clean", "warp-both-alike": "warp"}
PAPER_STRESS |= {name: name for name in ("geometry-noise", "span-mask", "shuffle")}
CLOSE = 0.05  # of a published accuracy
STRICT = {"nsrdb": "strict-nonoverlap", "mitdb": "strict-cross-record"}


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    body = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([f"| {' | '.join(head)} |", "|" + "---|" * len(head), *body])


def cell(*values: float | None) -> str:
    return "-" if any(value is None for value in values) else " / ".join(f"{value:.3f}" for value in values)


def shown(name: str) -> str:
    return f"{TITLES.get(name, name)}{' (rebuilt)' if name in REBUILT else ''}"


def main_table(scores: StudyScores, stress: str = "clean") -> str:
    """Table (a): R@1 / mAP of every method; the paper's below ours where it has one and the queries are clean."""
    head = ["method: R@1 / mAP", *(shown(name) for name in paper.COLUMNS), "seeds", "failed"]
    lines = [_main_line(scores, method, scorer, stress) for method, scorer in contestants(scores)]
    return markdown(head, lines)


def contestants(scores: StudyScores) -> list[tuple[str, str]]:
    """Ours with each scorer that a table shows, then the baselines, as far as there are rows of them."""
    there = set(scores.methods)
    ours = [(method, scorer) for method, scorer in OURS if method in there]
    return [*ours, *((method, "own") for method in METHODS if method in there)]


def presets(scores: StudyScores) -> dict[str, str]:
    """Ours of which there are rows, with their titles."""
    there = set(scores.methods)
    return {name: title for name, title in PRESETS.items() if name in there}


def titled(method: str, scorer: str) -> str:
    return method if method in METHODS else f"**{PRESETS.get(method, method)}**, {scorer}"


def _main_line(scores: StudyScores, method: str, scorer: str, stress: str) -> list[str]:
    cells = []
    for place, column in enumerate(paper.COLUMNS):
        pair = [scores.column(column, method, metric, scorer=scorer, stress=stress) for metric in (R1, MAP)]
        text = cell(*pair) + _amplitude(scores, column, method)
        theirs = _paper_pair(method, scorer, place) if stress == "clean" else None
        cells.append(f"{text}<br>*{theirs[0]:.3f} / {theirs[1]:.3f}*" if theirs else text)
    seeds = "any" if method in WITHOUT_CHANCE else str(_fewest_seeds(scores, method))
    return [titled(method, scorer), *cells, seeds, str(scores.failures(method))]


def _fewest_seeds(scores: StudyScores, method: str) -> int:
    """On any of the sets of table (a)."""
    by_set: dict[str, set[int]] = {}
    for row in scores.rows:
        if method_of(row) == method and row.scores and row.data in (*ECG_AND_SPEECH, *UEA):
            by_set.setdefault(row.data, set()).add(row.seed)
    return min((len(seeds) for seeds in by_set.values()), default=0)


def _amplitude(scores: StudyScores, data: str, method: str) -> str:
    """k: kept, z: z-scored, as validation inside the train split chose."""
    matching = scores.at(Condition(data, method)) if method in METHODS else []
    return f" {amplitude_of(matching[0])[0]}" if matching else ""


def _paper_pair(method: str, scorer: str, place: int) -> tuple[float, float] | None:
    if method in METHODS:
        return paper.MAIN[method][place] if method in paper.MAIN else None
    known = {"cosine": paper.MAIN["geopatch"], "maxsim": paper.MAXSIM} if method in BEFORE else {}
    return known.get(scorer, (None,) * 6)[place]


def archive_table(scores: StudyScores, stress: str = "clean") -> str:
    """R@1 on each archive set of table (a)."""
    there = [name for name in UEA if scores.has(name)]
    lines = [
        [
            titled(method, scorer),
            *(cell(scores.value(Condition(name, method, scorer=scorer, stress=stress))) for name in there),
        ]
        for method, scorer in contestants(scores)
    ]
    return markdown(["R@1", *(shown(name) for name in there)], lines)


def choice_table(scores: StudyScores) -> str:
    """On how many of its sets each baseline was better with amplitude kept, by validation inside train splits."""
    lines = []
    for method in METHODS:
        rows = (row for row in scores.rows if method_of(row) == method and row.scores and row.protocol != PROTOCOL)
        chosen = {row.data: amplitude_of(row) for row in rows}
        kept = [name for name, amplitude in chosen.items() if amplitude == "keep"]
        if chosen:
            lines.append([method, str(len(kept)), str(len(chosen) - len(kept))])
    return markdown(["baseline", "sets on which amplitude is kept", "sets on which it is z-scored"], lines)


def late_table(scores: StudyScores) -> str:
    """Table (b): every scorer under every protocol that makes sense."""
    lines = []
    targets = [*((name, "") for name in ECG_AND_SPEECH), ("mitdb", "beat")]
    for method in PRESETS:
        for data, target in targets:
            for protocol in dict.fromkeys(row.protocol for row in scores.rows):
                line = _late_line(scores, Condition(data, method, target, protocol))
                lines += [line] if line else []
    return markdown(["encoder", "set, target", "protocol", *_measured(scores), "the paper: base, MaxSim"], lines)


def _measured(scores: StudyScores) -> list[str]:
    """The scorers that have rows."""
    there = {row.scorer for row in scores.rows}
    return [scorer for scorer in encoded_scorers() if scorer in there]


def _late_line(scores: StudyScores, condition: Condition) -> list[str] | None:
    conditions = [replace(condition, scorer=scorer) for scorer in _measured(scores)]
    if not conditions or scores.value(conditions[0]) is None:
        return None
    cells = [cell(scores.value(one), scores.value(one, MAP)) for one in conditions]
    if condition.target == "beat":  # one class is most of the data
        by_class = [cell(scores.value(one, CLASS_R1)) for one in conditions]
        cells = [f"{text}<br>by class {mean_text}" for text, mean_text in zip(cells, by_class, strict=True)]
    theirs = _paper_late(condition) if condition.target != "beat" else "-"
    target = condition.target or conditions[0].key[2]
    return [PRESETS[condition.method], f"{shown(condition.data)}, {target}", condition.protocol, *cells, theirs]


def _paper_late(condition: Condition) -> str:
    if condition.protocol == "standard":
        place = paper.COLUMNS.index(condition.data)
        return f"{cell(*paper.MAIN['geopatch'][place])}, {cell(*paper.MAXSIM[place])}"
    known = paper.STRICT_RECALL.get(condition.data) if condition.protocol.startswith("penalised") else None
    return "R@1 {:.3f}, {:.3f}".format(*known) if known else "-"


def robustness_table(scores: StudyScores, method: str) -> str:
    """Seven sets under every stress, by cosine; the paper's below."""
    lines = []
    for data in ROBUSTNESS:
        for stress in STRESSES:
            condition = Condition(data, method, stress=stress)
            values = [scores.value(condition, metric) for metric in paper.ROBUSTNESS_METRICS]
            if None in values:
                continue
            theirs = paper.ROBUSTNESS[data].get(PAPER_STRESS.get(stress, ""), (None,) * 4)
            cells = [
                cell(one) + (f"<br>*{other:.3f}*" if other else "") for one, other in zip(values, theirs, strict=True)
            ]
            lines.append([shown(data), stress, *cells])
    return markdown(["set", "stress", "R@1", "R@5", "mAP", "MRR"], lines)


def drops(scores: StudyScores, method: str, stress: str, metric: str, scorer: str = "cosine") -> dict[str, float]:
    """By how many percent a stress lowers a score on each set; less than 0: it is higher."""
    by_set = {}
    for data in ROBUSTNESS:
        clean = scores.value(Condition(data, method, scorer=scorer), metric)
        other = scores.value(Condition(data, method, scorer=scorer, stress=stress), metric)
        if clean and other is not None:
            by_set[data] = 100 * (1 - other / clean)
    return by_set


def drop_table(scores: StudyScores) -> str:
    """Average drop in percent of the clean score, as the paper counts it."""
    lines, there = [], presets(scores)
    for stress in STRESSES[1:]:
        theirs = paper.DROPS_PERCENT.get(PAPER_STRESS.get(stress, ""))
        text = ", ".join(f"{value:.1f}" for value in theirs) if theirs else "-"
        ours = [_drop_cell(scores, method, stress) for method in there]
        lines.append([stress, *ours, text])
    return markdown(["stress: drop in R@1, R@5, mAP, MRR in %", *there.values(), "the paper"], lines)


def _drop_cell(scores: StudyScores, method: str, stress: str) -> str:
    by_metric = [drops(scores, method, stress, metric) for metric in paper.ROBUSTNESS_METRICS]
    return ", ".join(f"{mean(one.values()):.1f}" for one in by_metric) if all(by_metric) else "-"


def ablation_columns(scores: StudyScores) -> list[tuple[str, str, str]]:
    """Set, protocol and stress of what an ablation is measured by, as far as the rows have it."""
    columns = []
    for data in dict.fromkeys((*ABLATION_SETS, *(row.data for row in scores.rows if row.preset in ALL_ABLATIONS))):
        if not any(row.data == data and row.preset in ALL_ABLATIONS and row.scores for row in scores.rows):
            continue
        columns.append((data, "standard", "clean"))
        columns += [(data, STRICT[data], "clean")] if data in STRICT else []
        columns.append((data, "standard", WARPED))
    return [one for one in columns if scores.ablation(one[0], FULL, protocol=one[1], stress=one[2]) is not None]


def ablation_table(scores: StudyScores) -> str:
    """R@1 / mAP of the learned half and of each ablation, by cosine."""
    columns = ablation_columns(scores)
    lines = []
    for method in (FULL, *ALL_ABLATIONS):
        conditions = [
            Condition(data, method, ablation_target(data), rule, stress=stress) for data, rule, stress in columns
        ]
        if any(scores.value(condition) is not None for condition in conditions):
            cells = [cell(scores.value(condition), scores.value(condition, MAP)) for condition in conditions]
            lines.append(["**full**" if method == FULL else method, *cells, str(scores.failures(method))])
    heads = [
        f"{shown(data)} {ablation_target(data)}, {protocol}, {'warped' if stress != 'clean' else 'clean'}"
        for data, protocol, stress in columns
    ]
    return markdown(["R@1 / mAP", *heads, "failed"], lines)


def ablation_noise(scores: StudyScores) -> str:
    """How much of the ablations may be chance: the spread from seed to seed, and how many differences exceed it."""
    spreads, cells, beyond = [], 0, 0
    for data, protocol, stress in ablation_columns(scores):
        full = scores.ablation(data, FULL, protocol=protocol, stress=stress)
        spread = scores.ablation_spread(data, protocol, stress)
        if full is None or spread is None:
            continue
        spreads.append(f"{shown(data)} {'warped' if stress != 'clean' else protocol} {100 * spread:.1f}")
        values = [scores.ablation(data, name, protocol=protocol, stress=stress) for name in ALL_ABLATIONS]
        differences = [value - full for value in values if value is not None]
        cells += len(differences)
        beyond += sum(abs(one) > beyond_chance(spread, len(SEEDS)) for one in differences)
    if not spreads:
        return ""
    return (
        "R@1 of one encoder differs from seed to seed by so many points (standard deviation, pooled over a column): "
        f"{'; '.join(spreads)}. Of {cells} differences from the full encoder {beyond} exceed two standard errors of "
        "such a difference."
    )


def wide(scores: StudyScores, names: Sequence[str], methods: Sequence[tuple[str, str]], stress: str = "clean") -> Table:
    """R@1 of methods on many sets."""
    by_method = {
        plain(method, scorer): scores.over_sets(names, method, scorer=scorer, stress=stress)
        for method, scorer in methods
    }
    return {name: values for name, values in by_method.items() if values}


def plain(method: str, scorer: str) -> str:
    if method in METHODS:
        return method
    return f"{PRESETS[method]}, {scorer}"


POOL_CONTESTANTS = (*BY_BOTH, *((method, "own") for method in POOL_METHODS))


def duel_table(scores: StudyScores) -> str:
    """GeoPatch against each rival over the pool: mean difference in points with its interval, wins, ties, losses."""
    lines = []
    for stress in ("clean", WARPED):
        table = wide(scores, UNSEEN, POOL_CONTESTANTS, stress)
        for ours in (plain(*one) for one in BY_BOTH):
            for rival in POOL_METHODS:
                gap = difference(table, ours, rival)
                if gap is not None:
                    interval = f"{100 * gap.mean:+.1f} [{100 * gap.low:+.1f}, {100 * gap.high:+.1f}]"
                    record = f"{gap.wins} / {gap.ties} / {gap.losses}"
                    lines.append([ours, rival, "warped" if stress != "clean" else stress, interval, record])
    return markdown(
        ["ours", "against", "queries", "mean difference in R@1, points [95 %]", "won / equal / lost"], lines
    )


def rank_table(scores: StudyScores, names: Sequence[str], methods: Sequence[tuple[str, str]]) -> str:
    """Average ranks by R@1 over the sets that all methods have."""
    tables = [wide(scores, names, methods, stress) for stress in ("clean", WARPED)]
    (clean, count), (warped, _) = (average_ranks(table) for table in tables)
    if len(clean) < 2:
        return "Too few rows to rank."
    lines = [[name, f"{rank:.2f}", f"{warped.get(name, float('nan')):.2f}"] for name, rank in clean.items()]
    apart = critical_difference(len(clean), count)
    note = f"\n\nOver {count} sets; mean ranks nearer than {apart:.2f} do not differ (Nemenyi, 5 %)."
    return markdown(["average rank", "clean", "warped queries"], sorted(lines, key=lambda line: float(line[1]))) + note


def published_table(rows: Sequence[Row]) -> str:
    """How close each came: the better of its two classifiers, mean over seeds. Empty without such rows."""
    lines = [line for one in PUBLISHED if (line := _line(one, rows)) is not None]
    return markdown(["method", "set", "seeds", "nearest", "linear", "published", "source"], lines) if lines else ""


def _line(one: Published, rows: Sequence[Row]) -> list[str] | None:
    matching = [
        row for row in rows if row.protocol == PROTOCOL and (row.data, method_of(row)) == (one.data, one.method)
    ]
    by = {name: [row.scores[ACCURACY] for row in matching if row.scorer == name] for name in (NEAREST, LINEAR)}
    if not by[NEAREST]:
        return None
    means = {name: mean(values) for name, values in by.items() if values}
    cells = [f"{means[name]:.3f}" if name in means else "-" for name in (NEAREST, LINEAR)]
    return [one.method, one.data, str(len(by[NEAREST])), *cells, _compared(one, max(means.values())), one.source]


def _compared(one: Published, ours: float) -> str:
    if one.accuracy is None:
        return "-"
    close = "close" if ours >= one.accuracy - CLOSE else f"**{100 * (ours - one.accuracy):.0f} points**"
    return f"{one.accuracy:.3f} ({close}{'' if one.checked else '; from memory'})"
