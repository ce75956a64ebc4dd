"""How things would be if confirmed statements on attention were false, by experiment."""

from __future__ import annotations

from runner.stats.alternatives import changed, scaled

GROSS = 10
"""Factor from which an alternative is a gross error."""
BOUNDED = ("largest", "ratio", "sharper_ratio")


def _times(factor: float) -> str:
    text = f"the quantity is {factor:g} times as large"
    if factor >= GROSS:
        text += " (a loose bound: only gross errors fail)"
    return text


HESSIAN = {_times(factor): scaled(factor, *BOUNDED) for factor in (2, 10, 100, 2000, 1e7)}
"""Bounds that are not tight fail only where the quantity is many times as large: the factor says
how much the check can see."""
NEWTON = {"steps converge linearly": changed(lambda values: 0 * values + 1, "order")}
