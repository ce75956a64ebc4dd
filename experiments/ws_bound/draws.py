"""A statement about data sets, decided by further draws of the data: each draw is one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runner.contract import Claim, Statement
from runner.stats import judge, wilcoxon


def over_draws(statement: Statement, values: Sequence[float], unit: str) -> Claim:
    """Whether something is larger: confirmed when the 95 % interval of the mean over draws lies above 0, refuted when
    it lies below, and without power between the two: papers name no least gain, and the interval says what is excluded.
    """
    chosen = judge.bound(replace(statement, low=0.0, strict=True), values, over="draws of the data")
    test = wilcoxon(values, name=statement.name)
    above, below = sum(v > 0 for v in values), sum(v < 0 for v in values)
    detail = f"{unit}; {above} draws above 0, {below} below; Wilcoxon p {test.p:.2g}, shift {test.shift:.3g} "
    detail += f"[{test.shift_low:.3g}, {test.shift_high:.3g}]; {chosen.detail}"
    return replace(chosen, detail=detail, threshold="interval > 0; refuted below 0")
