"""WS-bound paper, Section VI: arguments that are drawn from the bounds."""

from __future__ import annotations

import torch

from experiments.paper_audit.checks import Checks, Outcome, apart, excess, worked
from experiments.paper_audit.tensors import diagonal, gauss, real, seeded, unit
from experiments.paper_audit.ws_bound.figures import CALIBRATED, correlations
from experiments.paper_audit.ws_bound.limits import gram
from experiments.paper_audit.ws_bound.trace_bounds import upper_bound

CHECKS = Checks()


@CHECKS.clause("ws.discussion.alignment")
def alignment() -> Outcome:
    """Section VI, on Eq. 29: inputs of opposite direction raise ‖J + XᵀX‖² as those of the same do;
    corrected: a pair adds 2 (1 + x_iᵀx_j)² − 2 to what it adds if it is orthogonal, which is
    negative between −2 and 0."""
    same = real([[1.0], [1.0]])
    opposite = real([[1.0], [-1.0]])
    orthogonal = unit(2)
    errors = []
    for seed in range(5):
        pair = gauss(seeded(seed), 3, 2).mT
        lengths = pair.norm(dim=1)
        product = float(pair[0] @ pair[1])
        change = gram(pair) - gram(torch.diag(lengths))
        formula = 2 * (1 + product) ** 2 - 2
        errors.append(apart(formula, change))
    witness = worked(
        "two unit inputs, same, orthogonal, opposite: ‖J + XᵀX‖²",
        "opposite above orthogonal",
        "lower where −2 < x_iᵀx_j < 0",
        f"{gram(same):g}, {gram(orthogonal):g}, {gram(opposite):g}",
    )
    printed = 1 - gram(opposite) / gram(orthogonal)
    return Outcome(printed, max(errors), 6, witness)


@CHECKS.clause("ws.discussion.reduce")
def trace_and_bound() -> Outcome:
    """Section VI, on Proposition 8: a smaller trace lowers λ_sup, since the trace bounds tr H²;
    corrected: tr H / D <= λ_sup <= tr H for H >= 0, attained by the identity and by rank one."""
    before = diagonal(1.0, 1.0, 1.0)
    after = diagonal(2.0, 0.0, 0.0)
    excesses = []
    for seed in range(4):
        root = gauss(seeded(seed), 4, 1 + seed)
        cases = (root @ root.mT, unit(4))
        for hessian in cases:
            trace = float(hessian.trace())
            largest = upper_bound(hessian)
            excesses += [excess(largest, trace), excess(trace / 4, largest)]
    measured = [value for value, _ in correlations("trace", *CALIBRATED)]
    witness = worked(
        "H = diag(1, 1, 1) and diag(2, 0, 0), trace 3 and 2: λ_sup",
        "falls",
        "between tr H / D and tr H",
        f"{upper_bound(before):g}, {upper_bound(after):g}; at the calibrated points the rank "
        f"correlation of trace and λ_sup is {min(measured):.2f} to {max(measured):.2f}",
    )
    printed = upper_bound(after) / upper_bound(before) - 1
    return Outcome(printed, max(excesses), 9, witness)
