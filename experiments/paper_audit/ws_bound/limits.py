"""WS-bound paper: the equality condition, the limits of normalised data, Theorem 7 and Proposition 8."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from experiments.paper_audit.formula import Formula, Outcome
from experiments.paper_audit.three_layer_oracle import Instance, instances


def bound(hessian: Tensor) -> float:
    """λ_sup from the eigenvalues."""
    eigenvalues = torch.linalg.eigvalsh(hessian)
    return float(eigenvalues.mean() + math.sqrt(len(eigenvalues) - 1) * eigenvalues.std(correction=0))


def at_its_label(instance: Instance) -> Instance:
    """The same network with soft labels q = p: delta = 0, so H is its positive semi-definite Gauss–Newton part."""
    return Instance(instance.name, instance.theta, instance.x, torch.stack([i.p for i in instance.samples]))


def _proposition_one() -> Outcome:
    """One sample with delta = 0: H = s' j jᵀ has one eigenvalue other than zero."""
    errors = []
    for instance in instances(sizes=((1, 1, 1), (2, 3, 1), (4, 6, 1))):
        hessian = at_its_label(instance).hessian
        largest = float(torch.linalg.eigvalsh(hessian)[-1])
        errors.append(abs(bound(hessian) - largest) / largest)
    return Outcome(max(errors), instances=len(errors))


def _proposition_five() -> Outcome:
    """Random inputs in [0, 1] stay below, all ones reach it."""
    generator = torch.Generator().manual_seed(0)
    worst = []
    for samples, width in ((1, 1), (50, 2), (7, 30)):
        for x in (
            *torch.rand(20, samples, width, generator=generator, dtype=torch.float64),
            torch.ones(samples, width),
        ):
            worst.append(float(1 + x.square().sum(1).mean() - (1 + width)))
        worst.append(abs(worst[-1]))
    return Outcome(max(worst), instances=len(worst))


def _gram(rows: Tensor) -> float:
    return float((1 + rows @ rows.T).square().sum())


def _proposition_six() -> Outcome:
    """The largest ||J + XᵀX||² over inputs in [0, 1], reached at ones: I²(1 + M) as scanned, I²(1 + M)²."""
    scanned: list[float] = []
    right: list[float] = []
    text = ""
    generator = torch.Generator().manual_seed(0)
    for samples, width in ((1, 1), (5, 2), (3, 4)):
        values = [_gram(x) for x in torch.rand(20, samples, width, generator=generator, dtype=torch.float64)]
        largest = max(*values, _gram(torch.ones(samples, width, dtype=torch.float64)))
        for errors, limit in ((scanned, samples**2 * (1 + width)), (right, samples**2 * (1 + width) ** 2)):
            errors.append(abs(largest - limit) / limit)
        text = text or f"I = M = 1, x = 1: ||J + XᵀX||² = {largest:.0f}, the scan has {samples**2 * (1 + width)}"
    return Outcome(max(scanned), max(right), len(right), text)


def _proposition_seven() -> Outcome:
    """Hidden values in (−1, 1) stay below I²(1 + N)², and saturating the layer reaches it."""
    worst: list[float] = []
    generator = torch.Generator().manual_seed(0)
    for samples, units in ((1, 1), (5, 3), (4, 10)):
        limit = samples**2 * (1 + units) ** 2
        for y in torch.randn(20, samples, units, generator=generator, dtype=torch.float64) * 3:
            worst.extend((_gram(f(y)) - limit) / limit for f in (torch.sigmoid, torch.tanh))
        saturated = torch.sigmoid(torch.full((samples, units), 40.0, dtype=torch.float64))
        worst.append(abs(_gram(saturated) - limit) / limit)
    return Outcome(max(worst), instances=len(worst))


def _theorem_seven() -> Outcome:
    """δ → 0 along two paths, I = 2 samples of both classes.

    A ray, theta = a theta_0 with theta_0 separating the samples: λ_sup falls. Weights that grow as fast as δ falls: two
    equal hidden units with Ṽ = (K, −K) leave z alone, a third unit separates with |z| = log K: λ_sup grows like K.
    """
    x = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    q = torch.tensor([1.0, 0.0], dtype=torch.float64)

    def value(weights: tuple[float, ...]) -> tuple[float, float]:
        instance = Instance("linear", torch.tensor(weights, dtype=torch.float64), x, q)
        return bound(instance.hessian), max(abs(float(i.delta)) for i in instance.samples)

    ray = [value((0.0, 0.0, 0.0, a, a, a, 0.0, a, a, a)) for a in (1.0, 3.5)]
    steep = [value((0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, k, -k, math.log(k))) for k in (1e2, 1e8)]
    text = (
        f"linear, x = ±1, hidden weights 1, Ṽ = (K, −K, log K): max|δ| falls from {steep[0][1]:.2g} to "
        f"{steep[1][1]:.2g}, λ_sup grows from {steep[0][0]:.3g} to {steep[1][0]:.3g}"
    )
    return Outcome(steep[1][0] / steep[0][0], ray[1][0] / ray[0][0], 2, text)


def _proposition_eight() -> Outcome:
    """tr(H)²/D <= tr H² <= tr(H)² where H is positive semi-definite, and the left half wherever."""
    worst = []
    for instance in instances():
        for case in (instance, at_its_label(instance)):
            hessian = case.hessian
            trace, square = float(hessian.trace()), float(hessian.square().sum())
            worst.append((trace**2 / len(hessian) - square) / square)
        worst.append((square - trace**2) / square)
    return Outcome(max(worst), instances=len(worst))


def _variance_limit() -> Outcome:
    """max p(1 − p) = 1/4 at p = 1/2."""
    p = torch.linspace(0, 1, 1001, dtype=torch.float64)
    return Outcome(abs(float((p * (1 - p)).max()) - 0.25), instances=len(p))


LIMIT_FORMULAS: tuple[Formula, ...] = (
    Formula(
        "ws.proposition1", "Proposition 1, Eq. 10", "λ_1 >= 0 and λ_2 = ... = λ_D = 0 ⇒ λ_sup = λ_1", _proposition_one
    ),
    Formula(
        "ws.proposition5",
        "Proposition 5, Eq. 24",
        "max over inputs in [0, 1] of 1ᵀ(E + XᵀX⊙E)1 = I(1 + M)",
        _proposition_five,
    ),
    Formula(
        "ws.proposition6",
        "Proposition 6, Eq. 31",
        "max over inputs in [0, 1] of ||J + XᵀX||² = I²(1 + M)",
        _proposition_six,
        "holds after correction",
        "scan artefact",
        "I²(1 + M)²: the scan lost the last square",
    ),
    Formula(
        "ws.proposition7",
        "Proposition 7, Eq. 32",
        "sup ||J + RᵀR||² = I²(1 + N)² for sigmoid and tanh",
        _proposition_seven,
    ),
    Formula(
        "ws.theorem7",
        "Theorem 7, Eq. 33",
        "δ → 0 ⇒ λ_sup → 0",
        _theorem_seven,
        "holds after correction",
        "missing assumption",
        "|δ_i| (||Ṽ||² + ||r_i||²) must vanish too: δ → 0 needs growing weights, and along rays theta = a θ_0 it does, "
        "since |δ| falls exponentially; weights that cancel in z can grow faster than δ falls",
    ),
    Formula(
        "ws.proposition8", "Proposition 8, Eqs. 34, 96, 97", "H >= 0 ⇒ tr(H)²/D <= tr H² <= tr(H)²", _proposition_eight
    ),
    Formula("ws.eq67", "Eq. 67", "max s'(z) = 1/4", _variance_limit),
)
