"""DAG paper, Appendix H.2: negative curvature and saddle points."""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.paper_audit.checks import attack, exists, worst
from experiments.paper_audit.dag.networks import Instance, piecewise_linear, smooth
from experiments.paper_audit.dag.oracle import assembled, examples, mean, stacked
from experiments.paper_audit.formula import Entry, Outcome, Witness, needs

Jacobian = torch.autograd.functional.jacobian
Hessian = torch.autograd.functional.hessian


def negative_mass(matrix: Tensor) -> float:
    """m⁻(H) of Definition 82."""
    values = torch.linalg.eigvalsh((matrix + matrix.T) / 2)
    return float(-values[values < 0].sum())


def whole(case: Instance, part: str = "all") -> Tensor:
    """[H] or [H^GN] of the batch mean, all nodes."""
    found = [e.gauss_newton(case.dag.output) if part == "gn" else e.blocks for e in examples(case)]
    return assembled(mean(stacked(found)), case.dag.order)


def gauss_newton_mass() -> Outcome:
    return worst(
        (*smooth(), *piecewise_linear()), lambda c: negative_mass(whole(c, "gn")) / float(whole(c, "gn").trace())
    )


def full_mass() -> Outcome:
    return exists(
        "smooth networks", max(negative_mass(whole(c)) / float(whole(c).norm()) for c in smooth()), "m⁻ > 0 is wanted"
    )


def only_tensor() -> Outcome:
    """m⁻(H) <= m⁻-bound ‖H^T‖_*: no negative curvature beyond what H^T carries (Weyl), and none where H^T = 0."""
    found = []
    for case in (*smooth(), *piecewise_linear()):
        h, gn = whole(case), whole(case, "gn")
        nuclear = float(torch.linalg.svdvals(h - gn).sum())
        found.append((negative_mass(h) - nuclear) / float(h.norm()))
    return Outcome(max(found), instances=len(found))


def piecewise_mass() -> Outcome:
    return worst(piecewise_linear(), lambda c: negative_mass(whole(c)) / float(whole(c).trace()))


def parameter_saddle() -> Outcome:
    """Proposition 85: negative curvature in parameters is contained in H^T of Theorem 83? A linear network at its
    saddle: L = (a b − 1)²/2 at a = b = 0. Corrected: it is contained in H − GGN."""

    def loss(p: Tensor) -> Tensor:
        return (p[0] * p[1] - 1) ** 2 / 2

    p = torch.zeros(2, dtype=torch.float64)
    hessian = Hessian(loss, p)
    inner = Jacobian(lambda q: q[0] * q[1], p)
    rest = hessian - torch.outer(inner, inner)
    lowest = float(torch.linalg.eigvalsh(hessian)[0])
    activations = 0.0  # both nodes are linear: every T is zero
    witness = Witness(
        "f = a b x, loss = (f − 1)²/2 at x = 1, a = b = 0",
        f"H^T = {activations:g}, so no negative curvature",
        "it is in H − GGN (mixed terms of Eq. 5)",
        f"smallest eigenvalue {lowest:g}",
    )
    return Outcome(-lowest, max(0.0, negative_mass(hessian) - negative_mass(rest)), 1, witness)


def escape() -> Outcome:
    """Proposition 85: at a critical point L(θ ± a v) − L(θ) = a² λ/2 + O(a³) for an eigenvector v."""

    def loss(p: Tensor) -> Tensor:
        return torch.cos(p).sum() + (p[0] * p[1] * 3).sin() * 0 + 2 * p[0] * p[1] + p.pow(4).sum()

    point = torch.zeros(3, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(Hessian(loss, point))
    errors = [float(Jacobian(loss, point).norm())]
    for value, v in zip(values, vectors.T, strict=True):
        for step in (1e-2, -1e-2):
            change = float(loss(point + step * v) - loss(point))
            errors.append(abs(change - step**2 * float(value) / 2) / 1e-6)
            if value < 0:
                errors.append(max(0.0, change))
    return Outcome(max(errors), instances=len(errors), tolerance=0.1)


def descent_sign() -> Outcome:
    """Corollary 86: the step −sign(∇L·v) v does not ascend to first order."""

    def excess(z: Tensor) -> float:
        g, v = z[:4], z[4:]
        return float(g @ (-torch.sign(g @ v) * v))

    found = max(
        attack(excess, torch.randn(8, generator=torch.Generator().manual_seed(k), dtype=torch.float64))[0]
        for k in range(3)
    )
    return Outcome(found, instances=240)


CHECKS: dict[str, Entry] = {
    "dag.thm83.gn": gauss_newton_mass,
    "dag.thm83.full": full_mass,
    "dag.thm83.only": only_tensor,
    "dag.remark84": needs(
        piecewise_mass,
        (
            "piecewise linear",
            lambda: worst(smooth(), lambda c: negative_mass(whole(c)) / float(whole(c).trace().abs())),
        ),
    ),
    "dag.prop85": escape,
    "dag.prop85.space": parameter_saddle,
    "dag.cor86": descent_sign,
}
