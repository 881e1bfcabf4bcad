"""The theorems and propositions of the paper: each with its place in the code, its tests, its figure and a verdict.

The verdict is computed from rows by a rule (`rules`); nothing here is written by hand but what the paper says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from geopatch_lab.stability.finding import StabilityRow
from geopatch_lab.study import rules
from geopatch_lab.study.claims import Part, shown_parts, verdict_on
from geopatch_lab.study.tables import markdown


@dataclass(frozen=True)
class Statement:
    """What the paper says, how rows are asked about it, and where to look for it."""

    says: str
    check: Callable[[Sequence[rules.Run]], Iterable[Part]]
    code: tuple[str, ...]  # below src/geopatch: file::name
    tests: tuple[str, ...]  # below tests, as pytest writes them
    figure: str = ""


DRIFT, BOUND, MARGIN, PREFERENCE = "drift", "bound", "margin", "preference"
STATEMENTS: tuple[Statement, ...] = (
    Statement(
        "Eq. drift_decomp: drift is at most boundary drift and feature drift together",
        rules.parts_bound_the_whole,
        ("geopatch_lab/stability/drift.py::drift",),
        ("test_stability_drift.py::test_the_parts_bound_the_whole", "test_stability_drift.py::test_equals_its_twin"),
        DRIFT,
    ),
    Statement(
        "Prop. boundary drift: patches that follow the values move with them, those of a fixed scaffold do not",
        rules.fixed_patches_have_no_boundary_drift,
        (
            "geopatch/scaffold.py::fixed_scaffold",
            "geopatch/scaffold.py::adaptive_scaffold",
            "geopatch_lab/stability/drift.py::drift_curves",
        ),
        (
            "test_stability_drift.py::test_the_fixed_scaffold_has_no_boundary_drift_and_the_adaptive_one_has",
            "test_scaffold.py::test_the_fixed_scaffold_of_a_warped_signal_is_the_same_and_the_adaptive_one_moves",
        ),
        DRIFT,
    ),
    Statement(
        "... and so an embedding on fixed patches drifts less (as the paper reads it; in distances of two windows)",
        rules.fixed_patches_drift_less,
        ("geopatch_lab/stability/drift.py::drift_curves",),
        ("test_stability_drift.py::test_curves_have_a_finding_for_each_strength_and_rise",),
        DRIFT,
    ),
    Statement(
        "Prop. affine equivariance: R(alpha tau + beta) = R(tau)",
        rules.residual_has_no_gauge,
        ("geopatch/geometry.py::local_residual", "geopatch_lab/stability/affine.py::affine_findings"),
        (
            "test_geometry.py::test_local_residual_has_no_affine_gauge",
            "test_clock.py::test_affine_marks_leave_the_residual_as_it_is",
            "test_stability_affine.py::test_no_gauge_changes_what_is_left",
        ),
    ),
    Statement(
        "Thm. modulation stability (the descriptor bound, with the largest constants of the operating set)",
        rules.bound_holds,
        ("geopatch_lab/stability/lipschitz.py::steepness", "geopatch_lab/stability/bound.py::tightness"),
        (
            "test_stability_bound.py::test_the_constants_of_a_linear_encoder_are_those_of_its_matrices",
            "test_stability_bound.py::test_the_bound_holds_on_a_linear_encoder",
            "test_stability_bound.py::test_the_pathway_is_the_encoder",
        ),
        BOUND,
    ),
    Statement(
        "... the bound grows linearly with eta, and the median ratio stays within a small factor",
        rules.bound_scales,
        ("geopatch_lab/stability/bound.py::bound_sweep",),
        ("test_stability_bound.py::test_a_sweep_has_every_level_and_kind_and_the_factors_multiply",),
        BOUND,
    ),
    Statement(
        "... the bound is scale-correct: it characterises the drift (a tenth of it or more is used)",
        rules.bound_characterises,
        ("geopatch_lab/stability/bound.py::bound_sweep",),
        ("test_stability_bound.py::test_one_number_wide_the_token_bound_is_met",),
        BOUND,
    ),
    Statement(
        "... with typical constants, rare saturation goes beyond it",
        rules.largest_ratio_exceeds_one,
        ("geopatch_lab/stability/bound.py::tightness",),
        ("test_stability_bound.py::test_displacements_equal_their_twin",),
        BOUND,
    ),
    Statement(
        "Thm. top-R stability: who is certified stays among the R best",
        rules.certified_stay,
        ("geopatch/search/certificate.py::cosine_certificate", "geopatch_lab/stability/margin.py::margin_findings"),
        (
            "test_certificate.py::test_no_drift_shorter_than_the_radius_moves_a_hit_out",
            "test_stability_margin.py::test_who_is_certified_never_leaves",
        ),
        MARGIN,
    ),
    Statement(
        "Prop. surface-similarity bias: a score that rises with the strongest match prefers the own record",
        rules.own_record_is_preferred,
        ("geopatch_lab/stability/preference.py::dominance", "geopatch_lab/stability/preference.py::preference"),
        (
            "test_stability_preference.py::test_dominance_makes_the_mean_larger",
            "test_stability_preference.py::test_preference_by_hand",
        ),
        PREFERENCE,
    ),
    Statement(
        "Cor. no universal scorer: none is best under every protocol",
        rules.no_scorer_wins_all,
        (
            "geopatch_lab/stability/preference.py::protocol_findings",
            "geopatch_lab/stability/preference.py::best_scorers",
        ),
        ("test_stability_preference.py::test_the_best_scorers_are_named_together_where_they_tie",),
        PREFERENCE,
    ),
)


def statement_parts(statement: Statement, rows: Iterable[StabilityRow]) -> list[Part]:
    """What rows say about a statement."""
    return list(statement.check(rules.runs_of(rows)))


def statements_table(rows: Sequence[StabilityRow], figures: Sequence[str], place: str) -> str:
    """A line for each statement; `figures` are the names of those drawn, `place` is where they lie."""
    lines = []
    for one in STATEMENTS:
        parts = statement_parts(one, rows)
        drawn = [name for name in sorted(figures) if one.figure and name.startswith(f"{one.figure}-")]
        links = "<br>".join(f"[{name}]({place}/{name}.png)" for name in drawn) or "-"
        code, tests = ("<br>".join(f"`{name}`" for name in names) for names in (one.code, one.tests))
        lines.append([one.says, code, tests, links, shown_parts(parts), f"**{verdict_on(parts)}**"])
    return markdown(["statement", "place in the code", "test", "figure", "measured", "verdict"], lines)
