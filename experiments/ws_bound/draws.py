"""A statement about data sets, decided by further draws of the data: each draw is one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runner.contract.claim import Claim, Statement
from runner.stats import judge, wilcoxon


def over_draws(statement: Statement, values: Sequence[float], margin: float, unit: str) -> Claim:
    """Whether something is larger: confirmed when the 95 % interval of the mean over draws lies above 0, refuted when
    it lies below `margin`, the least gain that counts (0: none is too small), and without power between the two.
    """
    shown = judge.bound(replace(statement, low=0.0, strict=True), values, over="draws of the data")
    small = judge.bound(replace(statement, low=margin), values, over="draws of the data")
    chosen = small if shown.verdict != "confirmed" and small.verdict == "refuted" else shown
    test = wilcoxon(values, name=statement.name)
    above, below = sum(v > 0 for v in values), sum(v < 0 for v in values)
    detail = f"{unit}; {above} draws above 0, {below} below; Wilcoxon p {test.p:.2g}, shift {test.shift:.3g} "
    detail += f"[{test.shift_low:.3g}, {test.shift_high:.3g}]; {chosen.detail}"
    return replace(chosen, detail=detail, threshold=f"interval > 0; refuted below {margin:g}")
