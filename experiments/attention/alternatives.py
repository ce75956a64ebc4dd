"""How things would be if confirmed statements on attention were false, by experiment."""

from __future__ import annotations

from runner.contract import Alternative, Alternatives
from runner.stats.alternatives import changed, scaled

GROSS = 10
"""Factor from which an alternative is a gross error."""
BOUNDED = ("largest", "ratio", "sharper_ratio")


def _times(factor: float, *lemmas: str) -> Alternative:
    text = f"the quantity is {factor:g} times as large"
    if factor >= GROSS:
        text += " (a loose bound: only gross errors fail)"
    return Alternative(text, scaled(factor, *BOUNDED), lemmas)


HESSIAN: Alternatives = (
    _times(
        2,
        *("lemma_G.2.1", "lemma_G.2.2", "lemma_G.2.3", "lemma_G.2.4", "lemma_G.2.5"),
        *("lemma_G.2.6", "lemma_H.5", "lemma_H.6"),
    ),
    _times(10, "lemma_G.3", "lemma_G.4", "lemma_H.3", "lemma_H.4", "lemma_H.7"),
    _times(100, "lemma_I.1", "lemma_I.2", "lemma_I.3"),
    _times(2000, "lemma_H.8", "lemma_H.9"),
    _times(1e7, "lemma_H.10"),
)
"""Bounds that are not tight fail only where the quantity is many times as large: the factor says
how much the check can see."""
NEWTON: Alternatives = (
    Alternative(
        "steps converge linearly", changed(lambda values: 0 * values + 1, "order"), ("order",)
    ),
)
