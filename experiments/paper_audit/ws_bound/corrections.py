"""Corrections of the errata of the WS-bound paper on the family of simplest networks."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from experiments.paper_audit.checks import excess
from experiments.paper_audit.corrections import Corrections
from experiments.paper_audit.family import three_layer
from experiments.paper_audit.three_layer import Instance
from experiments.paper_audit.ws_bound.activations import BEND
from experiments.paper_audit.ws_bound.limits import at_its_label, excess_seven, gram
from experiments.paper_audit.ws_bound.trace_bounds import excess_ww, sum_of_moduli, upper_bound

CORRECTIONS = Corrections()
Errors = Iterator[float]


@CORRECTIONS.on(three_layer, "ws.theorem7")
def bound_of_the_bound(case: Instance) -> Errors:
    yield excess_seven(case)


@CORRECTIONS.on(three_layer, "ws.zeta1")
def trace_of_inputs(case: Instance) -> Errors:
    if case.name == "gelu" and sum_of_moduli(case):
        yield excess_ww(case)


@CORRECTIONS.on(three_layer, "ws.theorem4.proof")
def supremum(case: Instance) -> Errors:
    """δ Ṽ f''(y) <= ζ_2 ‖Ṽ‖₁."""
    for i in case.samples:
        yield float(i.delta * (i.V @ i.d(2))) - BEND[case.name] * sum_of_moduli(case)


@CORRECTIONS.on(three_layer, "ws.alignment")
def alignment_of_inputs(case: Instance) -> Errors:
    """‖J + XᵀX‖² = Σ (1 + x_i·x_j)²; with pairs of inputs at x_i·x_j = −1 it is least."""
    products = case.x @ case.x.mT
    formula = float((1 + products).square().sum())
    yield abs(gram(case.x) / formula - 1)
    least = (1 + products.diagonal()).square().sum()
    yield float(least) / formula - 1


@CORRECTIONS.on(three_layer, "ws.proposition1", tolerance=1e-7)
def equality_of_the_bound(case: Instance) -> Errors:
    """λ_sup = λ_1 exactly where λ_2 = ... = λ_D."""
    values = torch.linalg.eigvalsh(case.hessian)
    scale = float(values.abs().max())
    others = float(values[-2] - values[0]) / scale
    gap = (upper_bound(case.hessian) - float(values[-1])) / scale
    yield float((gap < 1e-9) != (others < 1e-4))


@CORRECTIONS.on(three_layer, "ws.trace")
def bounds_by_the_trace(case: Instance) -> Errors:
    """tr H / D <= λ_sup <= tr H for H >= 0: the network with its own outputs as labels."""
    hessian = at_its_label(case).hessian
    trace = float(hessian.trace())
    largest = upper_bound(hessian)
    yield excess(largest, trace)
    yield excess(trace / len(hessian), largest)
