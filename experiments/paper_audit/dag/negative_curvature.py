"""DAG paper, Sections 3.5 and 4 and Appendix J: where negative curvature comes from; products with
the Hessian."""

from __future__ import annotations

import torch
from torch import Tensor, outer

from experiments.paper_audit.checks import (
    Checks,
    Errors,
    Outcome,
    attack,
    exists,
    outcome_of,
    relative_error,
    worked,
    worst,
)
from experiments.paper_audit.dag import recursion
from experiments.paper_audit.dag.instances import (
    Instance,
    piecewise_linear,
    smooth,
    smooth_and_piecewise_linear,
)
from experiments.paper_audit.dag.oracle import (
    Flat,
    Hessian,
    Jacobian,
    assembled,
    exact,
    first_example,
    gauss_newton,
    mean,
)
from experiments.paper_audit.tensors import gauss, norm_of, real, seeded, zeros

CHECKS = Checks()


def negative_mass(matrix: Tensor) -> float:
    """m⁻(H) of Definition 82."""
    values = torch.linalg.eigvalsh((matrix + matrix.T) / 2)
    return float(-values[values < 0].sum())


def whole(case: Instance) -> Tensor:
    """[H] of the batch mean, all nodes."""
    return assembled(mean(exact(case)), case.dag.order)


def whole_gauss_newton(case: Instance) -> Tensor:
    """[H^GN] of the batch mean, all nodes."""
    return assembled(mean(gauss_newton(case)), case.dag.order)


def mass_share(matrix: Tensor) -> float:
    return negative_mass(matrix) / float(matrix.trace().abs())


def negative_share(case: Instance) -> float:
    """m⁻(H) / |tr H|."""
    return mass_share(whole(case))


@CHECKS.errors("dag.thm83.gn", smooth_and_piecewise_linear)
def negative_share_of_gauss_newton(case: Instance) -> float:
    return mass_share(whole_gauss_newton(case))


CHECKS["dag.remark84"] = lambda: worst(piecewise_linear(), negative_share)
CHECKS.without["dag.remark84", "piecewise linear"] = lambda: worst(smooth(), negative_share)


@CHECKS.clause("dag.thm83.full")
def full_mass() -> Outcome:
    shares = []
    for case in smooth():
        h = whole(case)
        shares.append(negative_mass(h) / norm_of(h))
    return exists("smooth networks", max(shares), "m⁻ > 0 is wanted")


@CHECKS.clause("dag.thm83.only")
def only_tensor() -> Errors:
    """m⁻(H) <= ‖H^T‖_*: no negative curvature beyond what H^T carries (Weyl), and none where H^T =
    0."""
    for case in smooth_and_piecewise_linear():
        h = whole(case)
        tensor_part = h - whole_gauss_newton(case)
        nuclear = float(torch.linalg.svdvals(tensor_part).sum())
        excess = negative_mass(h) - nuclear
        yield excess / norm_of(h)


def product_loss(p: Tensor) -> Tensor:
    """(f − 1)²/2 of the linear network f = a b x at x = 1."""
    return (p[0] * p[1] - 1) ** 2 / 2


@CHECKS.clause("dag.prop85.space")
def parameter_saddle() -> Outcome:
    """Proposition 85: negative curvature in parameters is contained in H^T of Theorem 83? A linear
    network at its saddle, where every T is zero; corrected: it is contained in H − GGN."""
    p = zeros(2)
    hessian = Hessian(product_loss, p)
    inner = Jacobian(lambda q: q[0] * q[1], p)
    lowest = float(torch.linalg.eigvalsh(hessian)[0])
    tensor_part = hessian - outer(inner, inner)
    beyond = negative_mass(hessian) - negative_mass(tensor_part)
    witness = worked(
        "f = a b x, loss = (f − 1)²/2 at x = 1, a = b = 0",
        "H^T = 0, so no negative curvature",
        "it is in H − GGN (mixed terms of Eq. 5)",
        f"smallest eigenvalue {lowest:g}",
    )
    return Outcome(-lowest, max(0.0, beyond), 1, witness)


@CHECKS.clause("dag.prop85", tolerance=0.1)
def escape() -> Errors:
    """Proposition 85: at a critical point L(θ ± a v) − L(θ) = a² λ/2 + O(a³) for an eigenvector
    v."""

    def loss(p: Tensor) -> Tensor:
        mixed = 2 * p[0] * p[1]
        quartic = p.pow(4).sum()
        return torch.cos(p).sum() + mixed + quartic

    point = zeros(3)
    values, vectors = torch.linalg.eigh(Hessian(loss, point))
    yield norm_of(Jacobian(loss, point))
    pairs = zip(values, vectors.T, strict=True)
    for value, v in pairs:
        for step in (1e-2, -1e-2):
            change = float(loss(point + step * v) - loss(point))
            expected = step**2 * float(value) / 2
            yield abs(change - expected) / 1e-6
            if value < 0:
                yield max(0.0, change)


@CHECKS.clause("dag.cor86")
def descent_sign() -> Outcome:
    """Corollary 86: the step −sign(∇L·v) v does not ascend to first order."""

    def excess(z: Tensor) -> float:
        g = z[:4]
        v = z[4:]
        step = -torch.sign(g @ v) * v
        return float(g @ step)

    return outcome_of([attack(excess, gauss(seeded(k), 8)) for k in range(3)], instances=240)


@CHECKS.clause("dag.remark13")
def dropped_tensor_part() -> Outcome:
    """Remark 13: −λ_min / λ_max of the parametric Hessian without H^T, f = a b x, loss = (f − 1)²/2
    at a = b = 0, where H^T = 0; corrected: of the GGN at a = 0, b = 1."""
    inner = real([1.0, 0.0])
    values = torch.linalg.eigvalsh(torch.func.hessian(product_loss)(zeros(2)))
    right = torch.linalg.eigvalsh(outer(inner, inner))
    witness = worked(
        "f = a b x, loss = (f − 1)²/2, a = b = 0, x = 1: smallest eigenvalue without H^T",
        ">= 0",
        ">= 0 for the GGN",
        f"{float(values[0]):g}",
    )
    printed = float(-values[0] / values[-1])
    corrected = float(-right[0] / right[-1])
    return Outcome(printed, corrected, 2, witness)


def hessian_vector_product(case: Instance, r: Tensor) -> Tensor:
    """Forward over backward: the derivative along r of the gradient of the first example's loss.

    Backward over forward is the same; torch 2.13 loses terms of LayerNorm on that way.
    """
    x = case.x[:1]
    y = case.y[:1]
    values = case.dag.forward(x)
    outputs = {v: values[v] for v in case.dag.order}
    nodes = Flat(outputs)

    def loss(flat: Tensor) -> Tensor:
        return case.dag.mean_loss(x, y, nodes.tensors(flat))

    at = torch.zeros_like(r)
    along_r: Tensor = torch.func.jvp(torch.func.grad(loss), (at,), (r,))[1]
    return along_r.detach()


@CHECKS.errors("dag.remark22", smooth)
def split_product(case: Instance) -> float:
    """Remark 22: an HVP by two applications of AD against H^GN r + H^T r, the latter by the
    recursion."""

    e = first_example(case)
    order = case.dag.order
    tensor = recursion.routed(e, torch.zeros_like(e.base))
    sum_of_parts = assembled(e.gauss_newton, order) + assembled(tensor, order)
    r = gauss(seeded(0), len(sum_of_parts))
    return relative_error((sum_of_parts @ r).detach(), hessian_vector_product(case, r))
