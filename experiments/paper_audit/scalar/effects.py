"""What the corrections of the scalar paper change at the sizes of its experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median

from experiments.paper_audit.scalar import oracle
from experiments.paper_audit.scalar.cases import Linear, Relu
from experiments.paper_audit.scalar.linear_terms import bulk_error
from experiments.paper_audit.scalar.relu import outlier_vector_error

WIDTH, SAMPLES, DRAWS = 10, 100, 20
"""Neurons of Figs. 2 and 3; samples of a draw."""


def bulk_vectors() -> Mapping[str, float]:
    """Share of Gaussian draws of width 10 in which mean xδ is negative, and |Hz − λz| of the printed z there."""
    errors = []
    for seed in range(DRAWS):
        (w, v), x, y = oracle.random_instance(900 + seed, WIDTH, SAMPLES)
        case = Linear(w, v, x, y)
        if float(case.d) < 0:
            errors.append(bulk_error(case, False))
    return {"share": len(errors) / DRAWS, "error": median(errors) if errors else float("nan")}


def outlier_vectors() -> Mapping[str, float]:
    """Median |Hz − λz| of Eq. 64's vectors over Gaussian draws of width 10, as printed and with the weight."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(DRAWS):
        (w, v), x, y = oracle.random_instance(700 + seed, WIDTH, SAMPLES)
        for weighted in found:
            found[weighted].append(outlier_vector_error(Relu(w, v, x, y), 1, weighted))
    return {"printed": median(found[False]), "right": median(found[True])}


NUMBERS: dict[str, Callable[[], Mapping[str, float]]] = {
    "scalar.thm3": bulk_vectors,
    "scalar.eq64": outlier_vectors,
}
