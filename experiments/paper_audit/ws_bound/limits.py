"""WS-bound paper: the equality condition, the limits of normalised data, Theorem 7."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from experiments.paper_audit.checks import BothErrors, Checks, Errors, Outcome, attack, worked
from experiments.paper_audit.tensors import gauss, ones, real, seeded, uniform, zeros
from experiments.paper_audit.three_layer import Instance, instances
from experiments.paper_audit.three_layer_search import inequality, omega_range
from experiments.paper_audit.ws_bound.activations import gelu_slope
from experiments.paper_audit.ws_bound.trace_bounds import excess_ww, near_ww, upper_bound, value
from experiments.paper_audit.ws_bound.traces import ww

CHECKS = Checks()
Size = tuple[int, int, int]
CHECKS["ws.omega"] = omega_range


def at_its_label(instance: Instance) -> Instance:
    """The same network with soft labels q = p: delta = 0, so H is its positive semi-definite
    Gauss–Newton part."""
    outputs = [i.p for i in instance.samples]
    return Instance(instance.name, instance.theta, instance.x, torch.stack(outputs))


@CHECKS.clause("ws.proposition1")
def gaps_at_labels(*sizes: Size) -> Errors:
    """λ_sup against λ_1 where delta = 0, on instances with the number of samples of the first size:
    with one sample H = s' j jᵀ has one eigenvalue other than zero."""
    chosen = sizes or ((1, 1, 1), (2, 3, 1), (4, 6, 1))
    for instance in instances(sizes=chosen):
        samples = chosen[0][2]
        if len(instance.x) == samples:
            hessian = at_its_label(instance).hessian
            largest = float(torch.linalg.eigvalsh(hessian)[-1])
            yield abs(upper_bound(hessian) - largest) / largest


CHECKS.without["ws.proposition1", "other eigenvalues not zero"] = lambda: gaps_at_labels((2, 3, 2))


@CHECKS.clause("ws.proposition1.only")
def equal_eigenvalues() -> Outcome:
    """Spectra (a, b, ..., b) with b != 0 reach the bound; corrected: no gap exactly where all
    others are equal."""
    gaps = []
    errors = []
    for size in (2, 4, 7):
        pairs = ((3.0, 1.0), (2.0, -1.0))
        for first, rest in pairs:
            values = rest * ones(size)
            values[0] = first
            gap = abs(upper_bound(torch.diag(values)) - first)
            spread = 0.1 * torch.linspace(0, 1, size).double() * (values != first)
            gap_of_unequal = upper_bound(torch.diag(values + spread)) - first
            gaps.append(gap)
            unequal_attained = size > 2 and gap_of_unequal < 1e-4
            errors.append(gap + float(unequal_attained))
    shown = upper_bound(torch.diag(real([3.0, 1.0]))) - 3.0
    witness = worked(
        "H = diag(3, 1, 1, 1): λ_sup − λ_1",
        "> 0, as λ_2 is not 0",
        "0, as λ_2 = λ_3 = λ_4",
        f"{shown:.1g}",
    )
    attained = float(min(gaps) < 1e-9)
    return Outcome(attained, max(errors), len(gaps), witness)


@CHECKS.clause("ws.proposition5")
def normalised_inputs() -> Errors:
    """Random inputs in [0, 1] stay below, all ones reach it."""
    generator = seeded(0)
    shapes = ((1, 1), (50, 2), (7, 30))
    for samples, width in shapes:
        random = uniform(generator, 20, samples, width)
        at_limit = torch.ones(samples, width)
        for x in (*random, at_limit):
            mean = 1 + x.square().sum(1).mean()
            excess = float(mean - (1 + width))
            yield excess
        yield abs(excess)


def gram(rows: Tensor) -> float:
    """||J + X Xᵀ||²."""
    return float((1 + rows @ rows.T).square().sum())


def attacked_gram(samples: int, width: int) -> float:
    """The largest ||J + XᵀX||² over inputs in [0, 1] that a search, and inputs of ones, reach."""
    start = 0.5 * ones(samples, width)
    searched = attack(lambda z: gram(z.clamp(0, 1)), start)
    return max(searched, gram(ones(samples, width)))


@CHECKS.clause("ws.proposition6")
def largest_gram() -> BothErrors:
    """The largest ||J + XᵀX||² over inputs in [0, 1], reached at ones: I²(1 + M) as scanned, I²(1 +
    M)²."""
    witness = None
    generator = seeded(0)
    shapes = ((1, 1), (5, 2), (3, 4))
    for samples, width in shapes:
        random = uniform(generator, 20, samples, width)
        searched = attacked_gram(samples, width)
        largest = max(*(gram(x) for x in random), searched)
        scanned = samples**2 * (1 + width)
        right = samples**2 * (1 + width) ** 2
        printed = abs(largest - scanned) / scanned
        yield printed, abs(largest - right) / right
        witness = witness or worked(
            "I = M = 1, x = 1: ||J + XᵀX||²",
            str(scanned),
            str(right),
            f"{largest:.5g}",
        )
    return witness


@CHECKS.clause("ws.proposition7")
def hidden_values() -> Errors:
    """Hidden values in (−1, 1) stay below I²(1 + N)², and saturating the layer reaches it."""
    generator = seeded(0)
    shapes = ((1, 1), (5, 3), (4, 10))
    for samples, units in shapes:
        limit = samples**2 * (1 + units) ** 2
        draws = gauss(generator, 20, samples, units) * 3
        for y in draws:
            for f in (torch.sigmoid, torch.tanh):
                yield (gram(f(y)) - limit) / limit
        saturated = torch.sigmoid(40.0 * ones(samples, units))
        yield abs(gram(saturated) - limit) / limit


def cancelling(k: float) -> Instance:
    """Linear, x = ±1, hidden weights 1, Ṽ = (K, −K, log K): two units that cancel, one that
    separates."""
    theta = real([0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, k, -k, math.log(k)])
    x = real([[1.0], [-1.0]])
    q = real([1.0, 0.0])
    return Instance("linear", theta, x, q)


def excess_seven(instance: Instance) -> float:
    """λ_sup over Σ_i |δ_i| (1 + |r|² + (1 + |x|²)(|F'Ṽᵀ|² + |Ṽ ⊙ f''|) + √(2 (1 + |x|²)) |f'|),
    less 1.

    λ_sup <= ||H||_F by Cauchy–Schwarz, and with labels 0 and 1, s' <= |δ|.
    """
    limit = 0.0
    for i in instance.samples:
        slope = i.d(1) * i.V
        bend = i.d(2) * i.V
        curvature = slope @ slope + bend.norm()
        by_w = i.norm * curvature
        scale = (2 * i.norm).sqrt()
        by_v = scale * i.d(1).norm()
        size = 1 + i.f @ i.f + by_w + by_v
        limit += abs(float(i.delta)) * float(size)
    if not limit:  # every delta 0 in float64
        return -1.0
    return upper_bound(instance.hessian) / limit - 1


def largest_delta(instance: Instance) -> float:
    """max |δ_i|."""
    return max(abs(float(i.delta)) for i in instance.samples)


@CHECKS.clause("ws.theorem7")
def theorem_seven() -> Outcome:
    """δ → 0 while λ_sup grows: weights that cancel in z. Corrected: the explicit bound of
    `excess_seven`, attacked."""
    path = [cancelling(k) for k in (1e2, 1e4, 1e8)]
    values = [upper_bound(case.hessian) for case in path]
    deltas = [largest_delta(case) for case in path]
    corrected = inequality(excess_seven)()
    on_path = max(excess_seven(case) for case in path)
    witness = worked(
        "linear, x = ±1, q = 1, 0, hidden weights 1, Ṽ = (K, −K, log K)",
        "λ_sup → 0 as K → ∞",
        "λ_sup <= Σ |δ_i| (1 + |r_i|² + ...)",
        f"max|δ| = {deltas[0]:.2g}, {deltas[-1]:.2g}; "
        f"λ_sup = {values[0]:.3g}, {values[-1]:.3g} at K = 1e2, 1e8",
    )
    grows = values[-1] > values[0] and deltas[-1] < deltas[0]
    printed = values[-1] / values[0] if grows else 0.0
    right = max(corrected.printed, on_path)
    return Outcome(printed, right, corrected.instances + len(path), witness)


def gelu_unit(weight: float) -> Instance:
    """One GELU unit at its steepest point y = √2, x = 0, with z = 0, q = 1."""
    root = math.sqrt(2)
    offset = -weight * value("gelu", root)
    theta = real([root, 0.0, offset, weight])
    return Instance("gelu", theta, zeros(1, 1), ones(1))


def gelu_bound(weight: float, zeta: float) -> float:
    """Right-hand side of Theorem 4 for `gelu_unit`; zeta: ζ_1."""
    return zeta / 4 * weight**2 + math.sqrt(2 / math.pi) * weight


@CHECKS.clause("ws.theorem4.gelu")
def gelu_constant() -> Outcome:
    """Theorem 4 with ζ_1 = 1.273 (every number that begins 1.272 is smaller); corrected: the square
    of the maximum, on that instance and on random GELU networks, attacked."""
    weight = 4000.0
    zeta = gelu_slope() ** 2
    trace = float(ww(gelu_unit(weight)).trace())
    printed_limit = gelu_bound(weight, 1.273)
    right_limit = gelu_bound(weight, zeta)
    searched = inequality(excess_ww, names=("gelu",), starts=near_ww)()
    witness = worked(
        f"M = N = I = 1, x = 0, y = √2, Ṽ = {weight:.0f}, z = 0, q = 1: bound of tr H(w, w)",
        f"{printed_limit:.0f} with ζ_1 = 1.273, {gelu_bound(weight, 1.272):.0f} with 1.272",
        f"{right_limit:.0f} with ζ_1 = {zeta:.6f}",
        f"tr H(w, w) = {trace:.0f}",
    )
    beyond = (trace - right_limit) / trace
    right = max(beyond, searched.printed)
    printed = (trace - printed_limit) / trace
    return Outcome(printed, right, 1 + searched.instances, witness)
