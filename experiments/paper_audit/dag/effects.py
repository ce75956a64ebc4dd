"""What the corrections of the DAG paper change in its experiments, from their stored tables or at their sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import nn

from experiments.paper_audit import stored
from experiments.paper_audit.dag import printed
from experiments.paper_audit.dag.networks import chain
from experiments.paper_audit.dag.oracle import examples

DEPTH = 12
"""Of the deepest network of Exp. 1 with published values."""


def gap_of_equation_2() -> Mapping[str, float]:
    """Exp. 3's gap of SiLU at init, Σ ‖H^T‖ / Σ ‖H^GN‖ over all pairs, mean of the seeds; with Eq. 2 the tensor part of
    a pair v ≠ w of a chain is zero (its recursion ends at H[v,out], which has none), that of (v, v) is right."""
    rows = [row for row in stored.rows("exp3_gn_gap", "pairs", activation="silu") if row["checkpoint"] == "init"]
    gaps: dict[str, list[float]] = {"right": [], "printed": []}
    for seed in sorted({row["seed"] for row in rows}):
        own = [row for row in rows if row["seed"] == seed]
        total = sum(float(row["frob_gn"]) for row in own)
        gaps["right"].append(sum(float(row["frob_tensor"]) for row in own) / total)
        gaps["printed"].append(sum(float(row["frob_tensor"]) for row in own if row["v"] == row["w"]) / total)
    return {name: sum(values) / len(values) if values else float("nan") for name, values in gaps.items()}


def counted_twice() -> Mapping[str, float]:
    """‖Eq. 11‖ / ‖H[v,v]‖ of the first node of a linear chain as deep as Exp. 1's."""
    case = chain(0, nn.Identity, widths=(2,) * (DEPTH + 1), batch=1)
    e, first = examples(case)[0], case.dag.order[0]
    found = printed.equation_11(case.dag, e, first, first)
    return {"depth": DEPTH, "times": float(found.norm() / e.blocks[first, first].norm())}


def stabilised() -> Mapping[str, float]:
    """Theorem 34(b) with the paper's alpha = L^(−1/2) and k = 1, in units of C: what the print allows, and what
    f(h) = h + alpha rho h, L times, reaches; R at the largest over R at the smallest distance in Exp. 1 at init."""
    rho = 0.9
    scaled = rho / DEPTH**0.5
    rows = [
        row
        for row in stored.rows("exp1_resonance", "distances", arch="residual", depth=DEPTH)
        if row["checkpoint"] == "init" and row["images"] == "0"
    ]
    ends = [stored.middle([r for r in rows if r["distance"] == d], "R") for d in (str(DEPTH - 1), "0")]
    kept = ends[0] / ends[1]
    return {"depth": DEPTH, "rho": rho, "allowed": scaled, "reached": (1 + scaled) ** DEPTH, "kept": kept}


NUMBERS: dict[str, Callable[[], Mapping[str, float]]] = {
    "dag.eq2": gap_of_equation_2,
    "dag.thm33": counted_twice,
    "dag.thm34b": stabilised,
}
