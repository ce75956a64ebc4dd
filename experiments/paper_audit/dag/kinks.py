"""DAG paper, Appendices A and E: differentiability and kinks; pseudoinverse and Newton's method."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import grad, jacrev
from torch.nn.functional import layer_norm, leaky_relu

from experiments.paper_audit.checks import (
    Checks,
    Errors,
    Outcome,
    attack,
    exists,
    outcome_of,
    relative_error,
    worked,
)
from experiments.paper_audit.dag.instances import Instance, chain, smooth
from experiments.paper_audit.dag.negative_curvature import whole
from experiments.paper_audit.dag.oracle import Hessian, first_example
from experiments.paper_audit.tensors import (
    diagonal,
    gauss,
    norm_of,
    ones,
    real,
    seeded,
    spectral_norm,
    unit,
    zeros,
)

CHECKS = Checks()


def second_slope(function: Callable[[Tensor], Tensor], x: float) -> float:
    """f'' by automatic differentiation."""
    return float(grad(grad(function))(real(x)))


@CHECKS.clause("dag.def47")
def at_the_kink() -> Outcome:
    """Remark 1, Definition 47: automatic differentiation has ReLU'(0) = 0 and ReLU''(0) = 0;
    LeakyReLU''(0) = 0."""
    zero = zeros(())
    values = [grad(torch.relu)(zero)]
    of_relu = grad(grad(torch.relu))
    of_leaky_relu = grad(grad(leaky_relu))
    values += [of_relu(zero), of_leaky_relu(zero)]
    return outcome_of([abs(float(value)) for value in values])


def central_differences(case: Instance, node: str) -> Tensor:
    """Second derivatives of the first example's loss in a node's shift, by differences of the
    gradient."""
    x = case.x[:1]
    y = case.y[:1]
    gradient = grad(lambda shift: case.dag.mean_loss(x, y, {node: shift[None]}))
    step = 1e-5
    rows = []
    width = case.dag.forward(x)[node].shape[1]
    for direction in unit(width):
        above = gradient(step * direction)
        below = gradient(-step * direction)
        rows.append((above - below) / (2 * step))
    return torch.stack(rows)


@CHECKS.clause("dag.remark1.smooth", tolerance=1e-6)
def finite_differences() -> Errors:
    """Remark 1, smooth case: the AD-Hessian against central differences of the gradient."""
    for case in smooth()[:3]:
        first = case.dag.order[0]
        block = first_example(case).blocks[first, first]
        yield relative_error(central_differences(case, first), block)


@CHECKS.clause("dag.thm46.3")
def smooth_point_of_kinks() -> Outcome:
    """Theorem 46.3: at points of differentiability the AD-Hessian is the classical one? f = ReLU(x)
    − ReLU(−x) = x, loss f²/2, at x = 0; corrected: off the kinks of single neurons."""

    def loss(x: Tensor) -> Tensor:
        return (torch.relu(x) - torch.relu(-x)) ** 2 / 2

    at_zero = second_slope(loss, 0.0)
    elsewhere = max(abs(second_slope(loss, x) - 1) for x in (-1.0, 1e-9, 0.3))
    witness = worked(
        "f(x) = ReLU(x) − ReLU(−x) = x, loss = f²/2, at x = 0: second derivative",
        f"{at_zero:g} (AD)",
        "equal off the kinks of single neurons",
        "1",
    )
    return Outcome(abs(at_zero - 1), elsewhere, 4, witness)


def jump_of_relu_squared(x: float) -> float:
    """Difference of the second derivatives of ReLU(x)²/2 on either side, by finite differences."""
    step = 1e-4
    points = x + step * real([-2.0, -1.0, 0.0, 1.0, 2.0])
    f = torch.relu(points) ** 2 / 2
    left = (f[2] - 2 * f[1] + f[0]) / step**2
    right = (f[4] - 2 * f[3] + f[2]) / step**2
    return abs(float(right - left))


@CHECKS.clause("dag.thm46.example")
def quadratic_of_relu() -> Outcome:
    """Appendix D, proof step 2: ℓ = ReLU(x)²/2 is twice non-differentiable on (−∞, 0]; corrected:
    at 0 alone."""
    inside = max(jump_of_relu_squared(x) for x in (-2.0, -0.5, -0.01))
    at_zero = jump_of_relu_squared(0.0)
    witness = worked(
        "ReLU(x)²/2 at x = −1/2: jump of the second derivative",
        "≠ 0",
        "only at x = 0",
        f"{jump_of_relu_squared(-0.5):g}; at 0 it is {at_zero:.3g}",
    )
    printed = float(inside < 1e-6)
    right = inside if at_zero > 0.5 else 1.0
    return Outcome(printed, right, 4, witness)


def slope_of_sum(z: Tensor) -> tuple[float, float]:
    """(|f(x) − f(y)| / |x − y|, ‖W‖₂) of f = ReLU(W (x, x)): both inputs of the node are
    1-Lipschitz."""
    w, (x, y) = z[:4].view(2, 2), z[4:]
    of_x = torch.relu(w @ x.expand(2))
    of_y = torch.relu(w @ y.expand(2))
    difference = of_x - of_y
    distance = (x - y).abs().clamp_min(1e-12)
    slope = float(difference.norm() / distance)
    return slope, float(spectral_norm(w))


@CHECKS.clause("dag.thm46.lipschitz")
def lipschitz_product() -> Outcome:
    """Theorem 46, proof step 1: f_v is (Π L_u)‖W‖₂-Lipschitz; corrected: √(Σ L_u²)‖W‖₂. Attacked
    over W and x."""

    def excess(z: Tensor) -> float:
        slope, norm = slope_of_sum(z)
        return slope / (math.sqrt(2) * norm) - 1

    start = real([1.0, 1.0, 0.0, 0.0, 1.0, 2.0])
    slope, norm = slope_of_sum(start)
    witness = worked(
        "f_u1 = f_u2 = x, f_v = ReLU(f_u1 + f_u2) = 2x for x > 0: Lipschitz constant",
        "1 · 1 · √2 = 1.4142",
        "√(1 + 1) · √2 = 2",
        "2",
    )
    right = attack(excess, start)
    return Outcome(slope / norm - 1, right, 81, witness)


@CHECKS.clause("dag.symmetry.kink")
def kink_symmetry() -> Errors:
    """Symmetry property, Case B: with φ'(0) := 0 the AD-Hessian is symmetric at a kink, too
    (networks with x = 0)."""
    for seed in range(4):
        case = chain(seed, nn.ReLU)
        with torch.no_grad():
            case.dag.nodes["h1"].parameters()["0.bias"].zero_()
        at_kink = Instance("at the kink", case.dag, torch.zeros_like(case.x[:1]), case.y[:1])
        blocks = first_example(at_kink).blocks
        for (v, w), block in blocks.items():
            yield float((block - blocks[w, v].T).abs().max())


@CHECKS.clause("dag.thm48", tolerance=1e-6)
def continuous() -> Errors:
    """Theorem 48, last sentence: inside a linear region the AD-Hessian is continuous: its change
    over the step."""
    for seed in range(3):
        case = chain(seed, nn.ReLU)
        before, after = (
            whole(Instance("", case.dag, case.x[:1] + step, case.y[:1])) for step in (0.0, 1e-9)
        )
        yield float((before - after).abs().max() / before.abs().max())


def least_squares_error(seed: int) -> float:
    """‖M (M d + b)‖ / ‖b‖ of d = −M⁺ b with a singular M >= 0."""
    factor = gauss(seeded(seed), 4, 3)
    m = factor @ factor.T
    b = gauss(seeded(9), 4)
    d = -torch.linalg.pinv(m, rtol=1e-10) @ b
    residual = m @ (m @ d + b)
    return float(residual.norm() / b.norm())


@CHECKS.clause("dag.remark45")
def pseudoinverse() -> Outcome:
    """Remark 45: d = −H⁺ g solves H d = −g? H = diag(1, 0), g = (0, 1); corrected: in the
    least-squares sense."""
    h = diagonal(1.0, 0.0)
    g = real([0.0, 1.0])
    d = -torch.linalg.pinv(h) @ g
    residual = norm_of(h @ d + g)
    full = gauss(seeded(0), 3, 3)
    errors = [least_squares_error(seed) for seed in range(4)]
    errors.append(relative_error(torch.linalg.pinv(full), torch.linalg.inv(full)))
    where = "H = diag(1, 0), g = (0, 1): H d + g"
    witness = worked(where, "0", "least squares", f"({residual:g} in norm)")
    return Outcome(residual, max(errors), 6, witness)


@CHECKS.clause("dag.footnote1")
def curved_normalisation() -> Outcome:
    x = real([1.0, 2.0, -1.0])
    second = Hessian(lambda t: layer_norm(t, (3,))[0], x)
    return exists("LayerNorm of (1, 2, −1)", norm_of(second), "a second derivative is wanted")


@CHECKS.clause("dag.exp1b.norm")
def masked() -> Outcome:
    """Appendix N.1: ‖diag(σ') W‖₂ <= ‖W‖₂ for ReLU, attacked."""

    def excess(z: Tensor) -> float:
        w = z[:16].view(4, 4)
        mask = (z[16:] > 0).double()
        return float(spectral_norm(mask[:, None] * w) / spectral_norm(w)) - 1

    return Outcome(attack(excess, gauss(seeded(0), 20)), instances=81)


def norm_of_residual_block(weights: Tensor, alpha: float, h: Tensor) -> float:
    """‖J‖₂ of h + alpha ReLU(W h) by automatic differentiation."""
    jacobian = jacrev(lambda h: h + alpha * torch.relu(weights @ h))(h)
    return float(spectral_norm(jacobian))


@CHECKS.clause("dag.exp1.residual")
def residual_above_one() -> Outcome:
    """Section 5.1: for a residual block rho > 1 by construction (J = alpha D W + I)? alpha D W =
    −I/2."""
    value = norm_of_residual_block(-unit(3), 0.5, -ones(3))
    norms = []
    for k in range(10):
        generator = seeded(k)
        weights = gauss(generator, 4, 4)
        h = gauss(generator, 4)
        norms.append(norm_of_residual_block(weights, 0.35, h))
    witness = worked(
        "J = I + alpha D W with alpha D W = −I/2: ‖J‖₂",
        "> 1",
        "> 1 for random weights",
        f"{value:g}",
    )
    printed = float(value < 1)
    right = max(0.0, 1 - min(norms))
    return Outcome(printed, right, 11, witness)


def last_contraction(shift: Callable[[float], float]) -> float:
    """|x_{k+1}| / |x_k| of Newton's method with H + shift on x²/2 + x⁴/4, once it is small."""
    x = 0.5
    ratio = 1.0
    while abs(x) > 1e-6:
        slope = x + x**3
        curvature = 1 + 3 * x**2 + shift(x)
        step = slope / curvature
        ratio = abs((x - step) / x)
        x = x - step
    return ratio


@CHECKS.clause("dag.remark98")
def regularised_newton() -> Outcome:
    """Remark 98: |x_{k+1}| / |x_k| of Newton's method with H + λ I, λ = 1, on x²/2 + x⁴/4, once it
    is small; corrected: with λ = |gradient|, which tends to zero (superlinear), and with λ = 0."""
    fixed = last_contraction(lambda x: 1.0)
    by_gradient = last_contraction(lambda x: abs(x + x**3))
    plain = last_contraction(lambda x: 0.0)
    witness = worked(
        "x²/2 + x⁴/4, λ = 1: |x_{k+1}| / |x_k| near 0",
        "→ 0 (superlinear)",
        "→ 0 where λ → 0",
        f"{fixed:.3g}",
    )
    right = max(by_gradient, plain)
    return Outcome(fixed, right, 3, witness, tolerance=0.01)
