"""Verdicts on the attention paper, derived from recomputed numbers."""

from __future__ import annotations

import pytest
import torch

from experiments.paper_audit.attention import FORMULAS
from experiments.paper_audit.attention.terms import all_same, compare, derivative, points, same1
from experiments.paper_audit.formula import Formula

torch.set_num_threads(1)
BY_ID = {formula.id: formula for formula in FORMULAS}


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.id)
def test_verdict(formula: Formula) -> None:
    outcome = formula.check()
    assert outcome.verdict == formula.expected, outcome
    assert outcome.instances > 0
    if formula.expected == "holds":
        assert not formula.difference and outcome.corrected is None
    else:
        assert formula.difference and formula.correction and outcome.counterexample


def test_ids_are_unique_and_places_are_the_papers() -> None:
    assert len(BY_ID) == len(FORMULAS)
    assert all(formula.id.startswith("attention.") and " " not in formula.id for formula in FORMULAS)


def test_known_suspects_have_their_verdicts() -> None:
    """First-derivative lemmas hold; the loss misses factors of 2; second derivatives fail mostly for i2 != i1."""
    for number in range(10, 17):
        found = [f for name, f in BY_ID.items() if name.startswith(f"attention.b.{number}")]
        assert found and all(formula.expected == "holds" for formula in found)
    for name in ("b.17", "f.1", "f.2"):
        assert "2 sum" in BY_ID[f"attention.{name}"].correction
    second = [f for f in FORMULAS if f.place.startswith(("Lemma C.", "Lemma D."))]
    wrong = [f for f in second if f.expected != "holds"]
    assert len(wrong) >= 12
    assert [f.place for f in FORMULAS if f.expected == "fails"] == ["Theorem J.1, recovery"]


def test_a_wrong_formula_is_caught_and_described() -> None:
    """A sign slipped into Lemma B.16 is reported with its smallest instance."""
    outcome = compare(
        points(same1),
        lambda t: derivative(lambda inner: inner.s, t, 1),
        lambda t: t.s * t.f00 * t.w1 - t.s * t.z1 + t.f00 * t.h0 * t.w1 + t.m1 + t.f00 * t.v1,
    )
    assert outcome.verdict == "fails"
    assert outcome.counterexample.startswith("n = 1, d = 1")


def test_forward_mode_oracle_agrees_with_finite_differences() -> None:
    """The oracle itself, on one lemma's left-hand side."""
    for _, t in points(all_same):
        step = 1e-6
        moved = []
        for sign in (1, -1):
            x = t.x.clone()
            x[t.k.j2, t.k.i2] += sign * step
            moved.append(type(t)(x, t.w, t.v, t.b, t.k).z1)
        estimate = (moved[0] - moved[1]) / (2 * step)
        assert abs(float(estimate - derivative(lambda inner: inner.z1, t, 2))) < 1e-7
