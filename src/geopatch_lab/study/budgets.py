"""Encoders with the budget of the study beside the same after ten times the steps."""

from __future__ import annotations

from statistics import mean

from geopatch_lab.study.ablations import FULL
from geopatch_lab.study.jobs import LONG_ABLATIONS, LONG_SETS, ablation_target
from geopatch_lab.study.scores import Condition, StudyScores
from geopatch_lab.study.sets import target_of
from geopatch_lab.study.tables import markdown, shown


def long_table(scores: StudyScores) -> str:
    """R@1 with the ordinary budget and after ten times the steps. Empty without such rows."""
    longer = scores.longer()
    targets = [
        (data, target) for data in LONG_SETS for target in dict.fromkeys((target_of(data), ablation_target(data)))
    ]
    heads = [f"{shown(data)}, {target}" for data, target in targets]
    lines = []
    for method in (FULL, "paper", *LONG_ABLATIONS):
        conditions = [Condition(data, method, target) for data, target in targets]
        if any(longer.seeds(condition) for condition in conditions):
            lines.append([method, *(_both_budgets(scores, longer, condition) for condition in conditions)])
    return markdown(["R@1", *heads], lines) if lines else ""


def _both_budgets(scores: StudyScores, longer: StudyScores, condition: Condition) -> str:
    both = [one.seeds(condition) for one in (scores, longer)]
    return " -> ".join(f"{mean(seeds.values()):.3f} ({len(seeds)})" if seeds else "-" for seeds in both)
