"""Instances and numbers that errata print, computed again without the formulas of the audit; each
next to the words that the text must still have."""

import math

import pytest

from experiments.paper_audit.papers import clauses, errata
from tests.experiments.stored import rows

P = 1 / (1 + math.exp(-1 / 2))
"""Softmax probability of the first of the logits (1/2, 0)."""
S = 1 / (1 + math.exp(-1))
BY_HAND = {
    "dag.prop102.source": f"{2**0.5 / 4:.4g}, {2**0.5 / 2:.4g}, 0; ",
    "dag.cor17.coupling": f"{1e4 + 1e4:.0f}",
    "dag.example37": f"0; {2**1.5 * S * (1 - S) ** 2:.4g} at ",
    "dag.remark60": f"{1 + 1 / (2 - P) ** 2:.4g}",
    "dag.remark53": f"{(1 / 9) / (3 / 9):.3g}",
    "attention.h.3.proof": "0.5",
}
"""What two lines by hand give for the reference of a worked check."""


@pytest.mark.parametrize("name", BY_HAND)
def test_worked_checks_by_hand(name):
    (clause,) = (c for c in clauses(name.partition(".")[0]) if c.id == name)
    assert clause.check().witness["reference"].startswith(BY_HAND[name])


def text(name, key):
    (found,) = (e for e in errata(name.partition(".")[0])["erratum"] if e["id"] == name)
    return found[key]


def test_norms_of_the_mean_and_means_of_norms_of_exp_1():
    where = {"arch": "plain", "depth": 8, "checkpoint": "init", "images": 0, "distance": 0}
    means = rows("exp1_resonance", "distances", **where)[["R", "R_examples"]].mean()
    shown = f"d = 0: {means.R:.3f}, as a mean of norms {means.R_examples:.3f}"
    assert shown in text("dag.remark38", "consequence")


def test_steps_within_a_branch_fall_for_every_seed():
    assert "they fall for every single seed, too" in text("dag.steps", "view")
    own = rows("exp4_diamond", "distances", images=0)
    own = own[own.relation.isin(("a", "b"))].sort_values("distance")
    groups = own.groupby(["merge", "activation", "branch_depth", "seed", "checkpoint", "relation"])
    steps = groups.R.diff().dropna()
    assert len(steps) == 5 * 72 and steps.max() < 0


@pytest.mark.parametrize("k", (1, 2, 3))
def test_limits_of_the_upper_bound_with_scaled_branches(k):
    """Theorem 34(b), α = c/L: the limits that the authors' view of its erratum names."""
    view = text("dag.thm34b", "view")
    assert "it tends to C (k >= 2) or C e^{cρ} (k = 1) with branches of norm (αρ)^k" in view
    assert "to C e^{cρ^k/k} with branches of norm αρ^k" in view
    c, rho, depth = 2.0, 0.5, 10**7
    alpha = c / depth
    limit = math.exp(c * rho) if k == 1 else 1
    assert (1 + (alpha * rho) ** k) ** (depth / k) == pytest.approx(limit, rel=1e-6)
    assert (1 + alpha * rho**k) ** (depth / k) == pytest.approx(math.exp(c * rho**k / k), rel=1e-6)
