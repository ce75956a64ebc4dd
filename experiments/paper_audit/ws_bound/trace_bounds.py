"""WS-bound paper, Theorems 1, 3 and 4: bounds of the largest eigenvalue and of the traces."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from experiments.paper_audit.checks import Checks, Outcome, worked
from experiments.paper_audit.tensors import grid, real, zeros
from experiments.paper_audit.three_layer import INCREASING, Instance, derivative
from experiments.paper_audit.three_layer_search import inequality
from experiments.paper_audit.ws_bound.activations import BEND, BENT, SLOPE, STEEPEST
from experiments.paper_audit.ws_bound.traces import vv, ww

CHECKS = Checks()


def upper_bound(hessian: Tensor) -> float:
    """λ_sup from the eigenvalues."""
    eigenvalues = torch.linalg.eigvalsh(hessian)
    reach = math.sqrt(len(eigenvalues) - 1) * eigenvalues.std(correction=0)
    return float(eigenvalues.mean() + reach)


def excess_upper(hessian: Tensor) -> float:
    """Theorem 1, relative to the largest eigenvalue in modulus."""
    eigenvalues = torch.linalg.eigvalsh(hessian)
    return float((eigenvalues[-1] - upper_bound(hessian)) / eigenvalues.abs().max())


def excess_vv(instance: Instance) -> float:
    """Theorem 3."""
    bound = len(instance.x) * (instance.units + 1) / 4
    trace = float(vv(instance).trace())
    return (trace - bound) / bound


CHECKS["ws.theorem1"] = inequality(lambda c: excess_upper(c.hessian))
CHECKS["ws.theorem3"] = inequality(excess_vv, names=("sigmoid", "tanh"))


def bound_ww(instance: Instance, size: float) -> float:
    """Right-hand side of Eq. 23; size: what ζ_2 multiplies."""
    V = instance.samples[0].V
    norms = float(sum(i.norm for i in instance.samples))
    by_slope = SLOPE[instance.name] / 4 * float(V @ V)
    by_bend = BEND[instance.name] * size
    return (by_slope + by_bend) * norms


def sum_of_moduli(instance: Instance) -> float:
    """||Ṽ||_1."""
    return float(instance.samples[0].V.abs().sum())


def modulus_of_sum(instance: Instance) -> float:
    """|Ṽ 1_N|, the bars around the product as in our text."""
    return abs(float(instance.samples[0].V.sum()))


def excess_ww(instance: Instance, size: Callable[[Instance], float] = sum_of_moduli) -> float:
    """Theorem 4 with ζ_2 times the size."""
    bound = bound_ww(instance, size(instance))
    if not bound:
        return -1.0
    trace = float(ww(instance).trace())
    return (trace - bound) / bound


def value(name: str, y: float) -> float:
    """f(y)."""
    return float(derivative(name, 0)(real([y])))


def near_ww(name: str) -> Iterator[Instance]:
    """One unit, x = 0: large Ṽ at the steepest point with z = 0 (the term of ζ_1), small Ṽ at the
    most bent one with a saturated output (that of ζ_2)."""
    points = ((STEEPEST[name], 4000.0, 0.0), (BENT[name], 0.001, 12.0))
    for y, weight, z in points:
        offset = z - weight * value(name, y)
        theta = real([y, 0.0, offset, weight])
        yield Instance(name, theta, zeros(1, 1), zeros(1))


def opposite(name: str) -> Instance:
    """Two units, the first where f'' is largest, the second where it is least or 0, Ṽ = (0.1,
    −0.1), x = z = q = 0."""
    high = BENT[name]
    low = -high or 8.0
    offset = -0.1 * (value(name, high) - value(name, low))
    theta = real([high, low, 0.0, 0.0, offset, 0.1, -0.1])
    return Instance(name, theta, zeros(1, 1), zeros(1))


@CHECKS.clause("ws.theorem4")
def theorem_four() -> Outcome:
    """|Ṽ 1_N| as the modulus of the sum, for each nonlinear activation, and as the sum of the
    moduli."""
    excesses = [excess_ww(opposite(name), modulus_of_sum) for name in SLOPE if name != "linear"]
    corrected = inequality(excess_ww, names=INCREASING, starts=near_ww)()
    case = opposite("sigmoid")
    printed_limit = bound_ww(case, modulus_of_sum(case))
    right_limit = bound_ww(case, sum_of_moduli(case))
    witness = worked(
        "sigmoid, N = 2, x = 0, Ṽ = (0.1, −0.1), y at the extremes of f'', z = 0, q = 0: "
        "bound of tr H(w, w)",
        f"{printed_limit:.3g} with |Ṽ 1_N| = |Σ v_n|",
        f"{right_limit:.3g} with ||Ṽ||_1",
        f"tr H(w, w) = {float(ww(case).trace()):.3g}",
    )
    count = corrected.instances + len(excesses)
    return Outcome(min(excesses), corrected.printed, count, witness)


def reached_share(name: str, weights: tuple[float, ...]) -> float:
    """sup of δ Ṽ f''(y) over |δ| < 1 and y, over ζ_2 ||Ṽ||_1."""
    bends = derivative(name, 2)(grid(-8, 8, 3201))
    suprema = []
    for sign in (1, -1):
        suprema.append(sum(float((sign * v * bends).max()) for v in weights))
    moduli = sum(abs(v) for v in weights)
    return max(suprema) / (BEND[name] * moduli)


@CHECKS.clause("ws.theorem4.proof")
def supremum() -> Outcome:
    """sup of δ Ṽ f''(y) over |δ| < 1 and y, over ζ_2 ||Ṽ||_1: gap to either reading of the print,
    the smaller of the two largest; corrected: ζ_2 ||Ṽ||_1 as an upper bound."""
    to_moduli = []
    to_sum = []
    excess = []
    for name in INCREASING[1:]:
        signs = ((1.0, 1.0), (1.0, -1.0), (0.3, -2.0))
        for weights in signs:
            reached = reached_share(name, weights)
            moduli = sum(abs(v) for v in weights)
            share = abs(sum(weights)) / moduli
            to_moduli.append(abs(reached - 1))
            to_sum.append(abs(reached - share))
            excess.append(reached - 1)
    witness = worked(
        "SmoothReLU, Ṽ = (1, −1): sup of δ Ṽ f''(y)",
        "1/2 read as ζ_2 ||Ṽ||_1, 0 read as ζ_2 |Σ v_n|",
        "<= 1/2",
        "1/4, since 0 < f'' <= 1/4",
    )
    printed = min(max(to_moduli), max(to_sum))
    return Outcome(printed, max(excess), len(excess), witness, tolerance=1e-4)
