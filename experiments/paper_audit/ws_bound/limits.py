"""WS-bound paper: the equality condition, the limits of normalised data, Theorem 7 and Proposition 8."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from experiments.paper_audit.checks import Entry, Outcome, Witness, attack, exists, needs
from experiments.paper_audit.tensors import gauss, real, seeded
from experiments.paper_audit.three_layer import (
    Instance,
    derivative,
    inequality,
    instances,
    omega_range,
)
from experiments.paper_audit.ws_bound.traces import excess_ww, gelu_slope, near_ww


def bound(hessian: Tensor) -> float:
    """λ_sup from the eigenvalues."""
    eigenvalues = torch.linalg.eigvalsh(hessian)
    return float(
        eigenvalues.mean() + math.sqrt(len(eigenvalues) - 1) * eigenvalues.std(correction=0)
    )


def at_its_label(instance: Instance) -> Instance:
    """The same network with soft labels q = p: delta = 0, so H is its positive semi-definite Gauss–Newton part."""
    return Instance(
        instance.name, instance.theta, instance.x, torch.stack([i.p for i in instance.samples])
    )


def _proposition_one(*sizes: tuple[int, int, int]) -> Outcome:
    """delta = 0: with one sample H = s' j jᵀ has one eigenvalue other than zero."""
    errors = []
    for instance in (i for i in instances(sizes=sizes) if len(i.x) == sizes[0][2]):
        hessian = at_its_label(instance).hessian
        largest = float(torch.linalg.eigvalsh(hessian)[-1])
        errors.append(abs(bound(hessian) - largest) / largest)
    return Outcome(max(errors), instances=len(errors))


def _proposition_one_only() -> Outcome:
    """Spectra (a, b, ..., b) with b != 0 reach the bound; corrected: no gap exactly where all others are equal."""
    gaps, errors = [], []
    for size in (2, 4, 7):
        for largest, rest in ((3.0, 1.0), (2.0, -1.0)):
            values = torch.full((size,), rest, dtype=torch.float64)
            values[0] = largest
            gaps.append(bound(torch.diag(values)) - largest)
            unequal = torch.diag(
                values + 0.1 * torch.linspace(0, 1, size).double() * (values != largest)
            )
            errors.append(
                abs(gaps[-1]) + (1.0 if size > 2 and bound(unequal) - largest < 1e-4 else 0.0)
            )
    witness = Witness(
        "H = diag(3, 1, 1, 1): λ_sup − λ_1",
        "> 0, as λ_2 is not 0",
        "0, as λ_2 = λ_3 = λ_4",
        f"{gaps[0]:.1g}",
    )
    return Outcome(
        1.0 if min(abs(g) for g in gaps) < 1e-9 else 0.0, max(errors), len(gaps), witness
    )


def _proposition_five() -> Outcome:
    """Random inputs in [0, 1] stay below, all ones reach it."""
    generator = seeded(0)
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
    witness = None
    generator = seeded(0)
    for samples, width in ((1, 1), (5, 2), (3, 4)):
        values = [
            _gram(x)
            for x in torch.rand(20, samples, width, generator=generator, dtype=torch.float64)
        ]
        start = torch.full((samples, width), 0.5, dtype=torch.float64)
        values.append(attack(lambda z: _gram(z.clamp(0, 1)), start)[0])
        largest = max(*values, _gram(torch.ones(samples, width, dtype=torch.float64)))
        for errors, limit in (
            (scanned, samples**2 * (1 + width)),
            (right, samples**2 * (1 + width) ** 2),
        ):
            errors.append(abs(largest - limit) / limit)
        witness = witness or Witness(
            "I = M = 1, x = 1: ||J + XᵀX||²",
            str(samples**2 * (1 + width)),
            str(samples**2 * (1 + width) ** 2),
            f"{largest:.5g}",
        )
    return Outcome(max(scanned), max(right), len(right), witness)


def _proposition_seven() -> Outcome:
    """Hidden values in (−1, 1) stay below I²(1 + N)², and saturating the layer reaches it."""
    worst: list[float] = []
    generator = seeded(0)
    for samples, units in ((1, 1), (5, 3), (4, 10)):
        limit = samples**2 * (1 + units) ** 2
        for y in gauss(generator, 20, samples, units) * 3:
            worst.extend((_gram(f(y)) - limit) / limit for f in (torch.sigmoid, torch.tanh))
        saturated = torch.sigmoid(torch.full((samples, units), 40.0, dtype=torch.float64))
        worst.append(abs(_gram(saturated) - limit) / limit)
    return Outcome(max(worst), instances=len(worst))


def _steep(k: float) -> Instance:
    """Linear, x = ±1, hidden weights 1, Ṽ = (K, −K, log K): two units that cancel, one that separates."""
    x = real([[1.0], [-1.0]])
    theta = real([0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, k, -k, math.log(k)])
    return Instance("linear", theta, x, real([1.0, 0.0]))


def _excess_seven(instance: Instance) -> float:
    """λ_sup over Σ_i |δ_i| (1 + |r|² + (1 + |x|²)(|F'Ṽᵀ|² + |Ṽ ⊙ f''|) + √(2 (1 + |x|²)) |f'|), less 1.

    λ_sup <= ||H||_F by Cauchy–Schwarz, and with labels 0 and 1, s' <= |δ|.
    """
    total = 0.0
    for i in instance.samples:
        slope, bend = i.d(1) * i.V, i.d(2) * i.V
        size = (
            1
            + i.f @ i.f
            + i.norm * (slope @ slope + bend.norm())
            + (2 * i.norm).sqrt() * i.d(1).norm()
        )
        total += abs(float(i.delta)) * float(size)
    return bound(instance.hessian) / total - 1 if total else -1.0  # every delta 0 in float64


def _theorem_seven() -> Outcome:
    """δ → 0 while λ_sup grows: weights that cancel in z. Corrected: the explicit bound of `_excess_seven`, attacked."""
    steep = [(k, _steep(k)) for k in (1e2, 1e4, 1e8)]
    values = [bound(case.hessian) for _, case in steep]
    deltas = [max(abs(float(i.delta)) for i in case.samples) for _, case in steep]
    corrected = inequality(_excess_seven)()
    own = max(_excess_seven(case) for _, case in steep)
    witness = Witness(
        "linear, x = ±1, q = 1, 0, hidden weights 1, Ṽ = (K, −K, log K)",
        "λ_sup → 0 as K → ∞",
        "λ_sup <= Σ |δ_i| (1 + |r_i|² + ...)",
        f"max|δ| = {deltas[0]:.2g}, {deltas[-1]:.2g}; λ_sup = {values[0]:.3g}, {values[-1]:.3g} at K = 1e2, 1e8",
    )
    printed = values[-1] / values[0] if values[-1] > values[0] and deltas[-1] < deltas[0] else 0.0
    return Outcome(printed, max(corrected.printed, own), corrected.instances + len(steep), witness)


def _gelu_unit(weight: float) -> Instance:
    """One GELU unit at its steepest point y = √2, x = 0, with z = 0, q = 1."""
    root = math.sqrt(2)
    f = float(derivative("gelu", 0)(real([root])))
    theta = real([root, 0.0, -weight * f, weight])
    return Instance(
        "gelu", theta, torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    )


def _gelu_constant() -> Outcome:
    """Theorem 4 with ζ_1 = 1.273 (every number that begins 1.272 is smaller); corrected: the square of the maximum,
    on that instance and on random GELU networks, attacked."""
    weight = 4000.0
    instance = _gelu_unit(weight)
    trace = float(instance.hessian[:2, :2].trace())
    limits = [
        zeta / 4 * weight**2 + math.sqrt(2 / math.pi) * weight
        for zeta in (1.273, gelu_slope() ** 2)
    ]
    searched = inequality(excess_ww, names=("gelu",), starts=near_ww)()
    witness = Witness(
        f"M = N = I = 1, x = 0, y = √2, Ṽ = {weight:.0f}, z = 0, q = 1: bound of tr H(w, w)",
        f"{limits[0]:.0f} with ζ_1 = 1.273, {1.272 / 4 * weight**2 + math.sqrt(2 / math.pi) * weight:.0f} with 1.272",
        f"{limits[1]:.0f} with ζ_1 = {gelu_slope() ** 2:.6f}",
        f"tr H(w, w) = {trace:.0f}",
    )
    right = max((trace - limits[1]) / trace, searched.printed)
    return Outcome((trace - limits[0]) / trace, right, 1 + searched.instances, witness)


def _proposition_eight(semidefinite: bool) -> Outcome:
    """tr(H)²/D <= tr H² <= tr(H)² where H is positive semi-definite, and the left half wherever."""
    worst = []
    for instance in instances():
        for case in (instance, at_its_label(instance)):
            hessian = case.hessian
            trace, square = float(hessian.trace()), float(hessian.square().sum())
            worst.append((trace**2 / len(hessian) - square) / square)
            if case is not instance or not semidefinite:
                worst.append((square - trace**2) / square)
    return Outcome(max(worst), instances=len(worst))


def _variance_limit() -> Outcome:
    """max p(1 − p) = 1/4 at p = 1/2."""
    p = torch.linspace(0, 1, 1001, dtype=torch.float64)
    return Outcome(abs(float((p * (1 - p)).max()) - 0.25), instances=len(p))


def _from_traces(trace: float, square: float, dimension: int) -> float:
    """λ_sup of Theorem 1 from tr H and tr H²."""
    mean = trace / dimension
    return mean + math.sqrt((dimension - 1) * max(square / dimension - mean**2, 0.0))


def _square_raises() -> Outcome:
    """λ_sup at equal tr H and a tr H² larger by 1 %, over λ_sup: how far it falls (<= 0: it rises)."""
    worst = []
    for instance in instances():
        hessian = instance.hessian
        trace, square = float(hessian.trace()), float(hessian.square().sum())
        before, after = (_from_traces(trace, f * square, len(hessian)) for f in (1.0, 1.01))
        worst.append((before - after) / abs(bound(hessian)))
        worst.append(abs(before - bound(hessian)) / abs(bound(hessian)))
    return Outcome(max(worst), instances=len(worst))


def _trace_does_both() -> Outcome:
    """dλ_sup/dtr H at equal tr H² of the instances: largest and smallest, which must have both signs."""
    slopes = []
    for instance in instances():
        hessian = instance.hessian
        trace, square, step = float(hessian.trace()), float(hessian.square().sum()), 1e-5
        ends = [_from_traces(trace + sign * step, square, len(hessian)) for sign in (1, -1)]
        slopes.append((ends[0] - ends[1]) / (2 * step))
    return exists(
        "random networks: dλ_sup/dtr H at equal tr H²", min(max(slopes), -min(slopes)), "both signs"
    )


def _sizes_raise() -> Outcome:
    """sup ||J + XᵀX||² and ||J + RᵀR||², attacked, at sizes (I, M) and one larger: how far it falls."""

    def largest(samples: int, width: int) -> float:
        start = torch.full((samples, width), 0.5, dtype=torch.float64)
        return max(
            attack(lambda z: _gram(z.clamp(0, 1)), start)[0],
            _gram(torch.ones(samples, width).double()),
        )

    found = []
    for samples, width in ((1, 1), (2, 3), (4, 2)):
        smaller = largest(samples, width)
        found += [
            smaller / larger - 1
            for larger in (largest(samples + 1, width), largest(samples, width + 1))
        ]
    return Outcome(max(found), instances=len(found) * 160)


CHECKS: dict[str, Entry] = {
    "ws.discussion.square": _square_raises,
    "ws.discussion.trace": _trace_does_both,
    "ws.discussion.sizes": _sizes_raise,
    "ws.proposition1": needs(
        lambda: _proposition_one((1, 1, 1), (2, 3, 1), (4, 6, 1)),
        ("other eigenvalues not zero", lambda: _proposition_one((2, 3, 2))),
    ),
    "ws.proposition1.only": _proposition_one_only,
    "ws.proposition5": _proposition_five,
    "ws.proposition6": _proposition_six,
    "ws.proposition7": _proposition_seven,
    "ws.theorem7": _theorem_seven,
    "ws.theorem4.gelu": _gelu_constant,
    "ws.omega": omega_range,
    "ws.proposition8": needs(
        lambda: _proposition_eight(True), ("H >= 0", lambda: _proposition_eight(False))
    ),
    "ws.eq67": _variance_limit,
}
