"""The page of results, its figures and the compact rows it is made from.

python -m geopatch_lab.study.report --rows results/study.jsonl.gz --cost results/study-cost.json \\
    --stability results/stability.jsonl --page docs/RESULTS.md
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from geopatch import plot
from geopatch.errors import one_line_errors
from geopatch.evaluate.rows import Row, read_rows
from geopatch.storage import atomic_file
from geopatch_lab.plot.stability import FIGURES as THEORY_FIGURES
from geopatch_lab.stability.finding import FAILED, StabilityRow
from geopatch_lab.study import tables
from geopatch_lab.study.budgets import long_table
from geopatch_lab.study.claims import claims_table, tally
from geopatch_lab.study.cost import Cost, read_cost
from geopatch_lab.study.figures import draw_all
from geopatch_lab.study.jobs import BATCH, LONG_BATCH, LONG_STEPS, STEPS, WHOLE
from geopatch_lab.study.leads import lead_table
from geopatch_lab.study.row_file import added
from geopatch_lab.study.scores import WARPED, StudyScores
from geopatch_lab.study.sets import UEA, UEA_MISSING, UNSEEN
from geopatch_lab.study.statements import statements_table
from geopatch_lab.study.theory import read_stability

INTRODUCTION = """# Results of the study

Made by `geopatch reproduce` from rows; every row tells its protocol, config digest, seed and device. Each number is a
mean over seeds. *Italic*: the paper's number. *Warped*: queries are read at t + 0.1 T sin(2 pi t / T) and the gallery
stays as it is. Every test window is a query against the test side, itself left out.
"""

SMALL = """**This is a small version**: few sets, few windows of each and few steps of training. It shows that all of it
runs; its numbers say nothing about the methods, and what is said of sizes below holds for the whole study."""

DATA = """## What the numbers stand on

- Of the paper's 17 UEA sets {count} are here: {here}. Missing: {missing}. AbnormalHeartbeat is rebuilt from its source
  with a split of our own, and thinned to every third sample behind a low-pass. (The paper's robustness row of that name
  has values that are multiples of 1/205, which is the test size of Heartbeat, another set.)
- NSRDB is the first minute of one lead of each of 18 subjects: the first half trains, the second is searched; target
  `subject`. MITDB: DS1 trains (300 windows a record), DS2 is searched (100 a record), target `subject` unless it is
  said otherwise. NSTDB: trained on the patients of DS1 that are not in it, 0.5 to 40 Hz, searched within itself. It has
  the same minutes of two patients at six levels of noise, so the nearest window by plain Euclidean distance is mostly
  the same moment with other noise.
- ARCTIC: target `prompt`, the other speaker's utterance of the sentence; 150 prompts train, 148 others are searched,
  both by the same two speakers; 40 log-mel bands, 50 frames a second. Each sentence is there once by either speaker:
  who goes by the voice is never right.
- Pool sets have at most 1,000 training and 500 test windows, every class by its share. All sets are kept in 16 bits a
  sample, for all methods alike.
- Everything that trains has one budget: {steps} steps on batches of {batch}, the same rate and schedule. That is less
  than half of what GeoPatch takes by default, to keep the whole short. Each baseline's treatment of
  amplitude (k: kept, z: z-scored) was chosen by two-fold cross-validation inside the train side; nothing was chosen on
  a test side here. GeoPatch keeps amplitude in `default` and z-scores in `paper`, on all sets.
- "any" seeds: the method has no chance in it.
{absent}"""

CLAIMS = """## The claims of the paper

Computed from the rows by `geopatch_lab.study.claims`, for the learned half and for the paper's own (preset `paper`).
An ablation counts as lower if it is so by more than what stands behind *seeds*: two standard errors of a difference.
On five sets, both encoders and five ablations were also trained for {steps} steps of {batch}; each claim that speaks of
these sets is judged on them as well, the baselines as they are, and the verdict that says more for the paper stands.
"""
LONG = """### After ten times the steps

R@1, cosine, clean queries, the mean over so many seeds as stand in brackets: {ordinary} steps of {small} -> {steps}
steps of {batch}.
"""
PUBLISHED = """## The baselines against their papers

Accuracy on an archive's test split, amplitude kept, by the nearest training window and by a ridge classifier on the
embeddings; three times the steps of the other tables, where papers often took ten times as many. A difference of a few
points is expected, one of twenty is a fault. *From memory*: the paper was not at hand to check the figure.
"""
LATE = """## Late interaction under each protocol (table b)

*strict*: candidates of the query's record (or overlapping it) are removed. *penalised*: they stay and count as wrong,
which is how the paper's text reads. R@1 / mAP.
"""
ROBUSTNESS = """## Robustness

The paper does not say which side its warp is on; the number beside ours stands at *warp-both-alike*, the other reading
is *warp-queries*. Our other stresses are on queries alone.
"""
ABLATIONS = """## Ablations

22 of the paper's design, and two (patch-only stem, z-score only) that take away what this project adds to it.
"""
LEADS = """### Where the default leads, and where not

Both halves, fused, less the best of the baselines in each column; **bold**: a baseline is ahead. On NSTDB the same
minutes are there at six levels of noise, so that the plain distance finds the same moment. Where mAP is behind on
MITDB and the archive sets, features with ridge regression or a deeper network order whole classes better than our
500 steps do; under warped queries they fall behind.
"""
POOL_TEXT = """## Wins and losses on sets that no choice has seen

{count} sets of the UCR archive; six at which we looked since are left out. Intervals: paired bootstrap over sets.
"""
THEORY = """## Theorems and propositions

What each says and how it is measured stands in `docs/theory.md`. Computed from rows by `geopatch_lab.study.statements`:
{runs} on {sets}.
A run trains two encoders with the budget of this study, one on fixed and one on adaptive patches. Numbers are means
over runs, behind them the least and the greatest; figures are means over the seeds of a set.
"""
COST = """## Cost

Measured exponents (one CPU thread, the fastest of several runs) against what the paper claims. Encoding is linear in K
only where patches are the work; our context stem reads the whole window, so its cost lies in T.
"""


def page(
    rows: Sequence[Row],
    cost: Cost | None,
    reasons: Mapping[str, str],
    figures: Sequence[str],
    place: str,
    note: str = "",
    stability: Sequence[StabilityRow] = (),
) -> str:
    """All of it as Markdown; `place` is where the figures lie, seen from the page."""
    scores = StudyScores.of(rows)
    parts = [
        INTRODUCTION,
        note,
        _data(scores),
        CLAIMS.format(steps=LONG_STEPS, batch=LONG_BATCH),
        tally(scores),
        claims_table(scores),
        *_long(scores),
        "## Retrieval (table a)\n\nClean queries:",
        tables.main_table(scores),
        "Warped queries, clean gallery:",
        tables.main_table(scores, WARPED),
        LEADS,
        lead_table(scores),
        "Archive sets one by one, clean:",
        tables.archive_table(scores),
        "Archive sets one by one, warped queries:",
        tables.archive_table(scores, WARPED),
        "Which treatment of amplitude validation chose:",
        tables.choice_table(scores),
        _published(rows),
        _picture("ranks", figures, place),
        "Average ranks over the archive sets:",
        tables.rank_table(scores, UEA, tables.contestants(scores)),
        LATE,
        tables.late_table(scores),
        _picture("pareto-nsrdb", figures, place),
        _picture("pareto-mitdb", figures, place),
        ROBUSTNESS,
        tables.drop_table(scores),
        _picture("stress-examples", figures, place),
        _picture("robustness", figures, place),
        *(f"{title}:\n\n{tables.robustness_table(scores, name)}" for name, title in tables.presets(scores).items()),
        ABLATIONS,
        _picture("ablations", figures, place),
        tables.ablation_table(scores),
        tables.ablation_noise(scores),
        POOL_TEXT.format(count=sum(scores.has(name) for name in UNSEEN)),
        tables.duel_table(scores),
        _picture("wins-and-losses", figures, place),
        tables.rank_table(scores, UNSEEN, tables.POOL_CONTESTANTS),
        *_theory(stability, figures, place),
        *_cost(cost, figures, place),
        _failures(rows, stability, reasons),
        _spent(cost),
        _made_by(rows),
    ]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _data(scores: StudyScores) -> str:
    here = [name for name in UEA if scores.has(name)]
    absent = [name for name in WHOLE.data if not scores.has(name)]
    absence = f"- Not in these rows: {', '.join(absent)}.\n" if absent else ""
    missing = ", ".join((*UEA_MISSING, *(name for name in UEA if name not in here)))
    return DATA.format(
        count=len(here), here=", ".join(here) or "none", missing=missing, absent=absence, steps=STEPS, batch=BATCH
    )


def _long(scores: StudyScores) -> list[str]:
    table = long_table(scores)
    text = LONG.format(ordinary=STEPS, small=BATCH, steps=LONG_STEPS, batch=LONG_BATCH)
    return [text, table] if table else []


def _published(rows: Sequence[Row]) -> str:
    table = tables.published_table(rows)
    return f"{PUBLISHED}\n{table}" if table else ""


def _picture(name: str, figures: Sequence[str], place: str) -> str:
    return f"![{name}]({place}/{name}.png)" if name in figures else ""


def _theory(rows: Sequence[StabilityRow], figures: Sequence[str], place: str) -> list[str]:
    if not rows:
        return []
    runs = {(row.data, row.target, row.seed) for row in rows if row.topic != FAILED}
    names = sorted({f"{tables.shown(data)} (target `{target}`)" for data, target, _ in runs}) or ["no set"]
    drawn = [f"{topic}-{data}" for topic in THEORY_FIGURES for data in dict.fromkeys(row.data for row in rows)]
    return [
        THEORY.format(runs="1 run" if len(runs) == 1 else f"{len(runs)} runs", sets=" and ".join(names)),
        statements_table(rows, figures, place),
        *(_picture(name, figures, place) for name in drawn),
    ]


def _cost(cost: Cost | None, figures: Sequence[str], place: str) -> list[str]:
    if cost is None or not cost.mflop:
        return []
    lines = [[g.what, g.variable, _sizes(g.sizes), f"{g.exponent:.2f}", f"{g.claimed:g}"] for g in cost.growths]
    flops = [[name, f"{value:.1f}"] for name, value in cost.mflop.items()]
    return [
        COST,
        tables.markdown(["what", "grows with", "sizes", "measured exponent", "the paper's"], lines),
        "MFLOP of encoding one window of 256 samples and one channel:",
        tables.markdown(["encoder", "MFLOP"], flops),
        _picture("pareto-cost", figures, place),
    ]


def _sizes(sizes: Sequence[int]) -> str:
    return f"{sizes[0]} to {sizes[-1]}"


def failures(rows: Sequence[Row], stability: Sequence[StabilityRow]) -> int:
    return sum(row.failures for row in rows) + len(failed(stability))


def failed(rows: Sequence[StabilityRow]) -> list[StabilityRow]:
    return [row for row in rows if row.topic == FAILED]


def _failures(rows: Sequence[Row], stability: Sequence[StabilityRow], reasons: Mapping[str, str]) -> str:
    known = reasons or {f"stability {row.data} {row.seed}": str(row.setting["reason"]) for row in failed(stability)}
    reasons_text = "".join(f"\n- `{job}`: {reason}" for job, reason in known.items())
    return f"## Failures\n\n{failures(rows, stability)} runs failed.{reasons_text}"


def _spent(cost: Cost | None) -> str:
    """What each machine took for its jobs, all stretches together."""
    if cost is None or not cost.spent:
        return ""
    lines = []
    for device in dict.fromkeys(one.device for one in cost.spent):
        parts = [one for one in cost.spent if one.device == device]
        workers, jobs = max(one.workers for one in parts), sum(one.jobs for one in parts)
        minutes = sum(one.seconds for one in parts) / 60
        lines.append([device, str(jobs), str(workers), str(len(parts)), f"{minutes:.1f}"])
    table = tables.markdown(["on", "jobs", "at a time", "stretches", "minutes in all"], lines)
    return f"## Time\n\nWhat the jobs took by the clock, starts included.\n\n{table}"


def _made_by(rows: Sequence[Row]) -> str:
    measured = [row for row in rows if row.scores]
    if not measured:
        return ""
    seconds = {(row.data, row.target, row.preset, row.seed): row.fit_s for row in measured}
    devices = ", ".join(sorted({row.device for row in measured}))
    versions = sorted(
        {", ".join(f"{name} {number}" for name, number in row.versions.items()) for row in measured} - {""}
    )
    protocols = sorted({f"{row.protocol} ({row.protocol_digest})" for row in measured})
    hours = sum(seconds.values()) / 3600
    return (
        f"{len(rows)} rows; {len(seconds)} fits, {hours:.1f} hours of them together. "
        f"Protocols: {', '.join(protocols)}. Devices: {devices}. Versions: {'; '.join(versions)}."
    )


def write_report(
    rows: Sequence[Row],
    cost: Cost | None,
    reasons: Mapping[str, str],
    path: Path,
    figures: Path,
    note: str = "",
    stability: Sequence[StabilityRow] = (),
) -> list[str]:
    """The page and its figures."""
    drawn = draw_all(StudyScores.of(rows), cost, figures, stability)
    path.parent.mkdir(parents=True, exist_ok=True)
    place = figures.name if figures.parent == path.parent else str(figures)
    with atomic_file(path) as partial:
        partial.write_text(page(rows, cost, reasons, drawn, place, note, stability), encoding="utf-8")
    return drawn


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--add", type=Path, nargs="*", default=(), help="folders of a study, to add to the rows")
    parser.add_argument("--cost", type=Path)
    parser.add_argument("--stability", type=Path, help="rows about the theorems")
    parser.add_argument("--page", type=Path, required=True)
    parser.add_argument("--figures", type=Path, help="a folder beside the page, if it is not told")
    options = parser.parse_args(arguments)
    plot.check_installed()
    if options.add:
        added(options.rows, options.add)
    cost = None if options.cost is None else read_cost(options.cost)
    stability = [] if options.stability is None else read_stability(options.stability)
    figures = options.figures or options.page.parent / "figures"
    write_report(read_rows(options.rows), cost, {}, options.page, figures, stability=stability)


if __name__ == "__main__":
    with one_line_errors():
        main()
