"""Where the default leads the baselines, where not, and by how much."""

from __future__ import annotations

from geopatch_lab.baselines.registry import METHODS
from geopatch_lab.study import paper
from geopatch_lab.study.scores import MAP, R1, WARPED, StudyScores
from geopatch_lab.study.tables import markdown, shown

LEADER, SCORER = "default", "fused"
METRICS = {R1: "R@1", MAP: "mAP"}


def lead_table(scores: StudyScores) -> str:
    """The default less the best baseline, in points, in each column of table (a)."""
    lines = [
        [f"{METRICS[metric]}, {title}", *(_lead(scores, column, metric, stress) for column in paper.COLUMNS)]
        for stress, title in (("clean", "clean"), (WARPED, "warped"))
        for metric in METRICS
    ]
    return markdown(["points ahead of the best baseline", *map(shown, paper.COLUMNS)], lines)


def _lead(scores: StudyScores, column: str, metric: str, stress: str) -> str:
    own = scores.column(column, LEADER, metric, scorer=SCORER, stress=stress)
    others = {method: scores.column(column, method, metric, scorer="own", stress=stress) for method in METHODS}
    known = {method: value for method, value in others.items() if value is not None}
    if own is None or not known:
        return "-"
    best = max(known, key=lambda method: known[method])
    ahead = 100 * (own - known[best])
    text = f"{ahead:+.1f} ({best})"
    return text if ahead >= 0 else f"**{text}**"
