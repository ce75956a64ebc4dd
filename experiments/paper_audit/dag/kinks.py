"""DAG paper, Appendices A and E: differentiability and kinks; norms and ranks of blocks from random probes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from experiments.paper_audit.checks import (
    Entry,
    Outcome,
    Witness,
    attack,
    exists,
    random_matrices,
    relative_error,
    worst,
)
from experiments.paper_audit.dag.instances import Instance, chain, smooth
from experiments.paper_audit.dag.oracle import examples
from experiments.paper_audit.dag.parameters import Hessian, whole
from experiments.paper_audit.dag.ranks import stable
from experiments.paper_audit.tensors import gauss, real, seeded, spectral_norm


def at_the_kink() -> Outcome:
    """Remark 1, Definition 47: automatic differentiation has ReLU'(0) = 0 and ReLU''(0) = 0; LeakyReLU''(0) = 0."""
    zero = torch.zeros((), dtype=torch.float64)
    values = [torch.func.grad(torch.relu)(zero)]
    for act in (torch.relu, torch.nn.functional.leaky_relu):
        values.append(torch.func.grad(torch.func.grad(act))(zero))
    return Outcome(max(abs(float(v)) for v in values), instances=3)


def finite_differences() -> Outcome:
    """Remark 1, smooth case: the AD-Hessian against central differences of the gradient."""
    errors = []
    for case in smooth()[:3]:
        x, y = case.x[:1], case.y[:1]
        last = case.dag.order[0]
        width = case.dag.forward(x)[last].shape[1]

        def gradient(
            e: Tensor, case: Instance = case, x: Tensor = x, y: Tensor = y, last: str = last
        ) -> Tensor:
            return torch.func.grad(lambda s: case.dag.mean_loss(x, y, {last: s[None]}))(e)

        zero, step = torch.zeros(width, dtype=torch.float64), 1e-5
        rows = [
            (gradient(zero + step * u) - gradient(zero - step * u)) / (2 * step)
            for u in torch.eye(width).double()
        ]
        errors.append(relative_error(torch.stack(rows), examples(case)[0].blocks[last, last]))
    return Outcome(max(errors), instances=3, tolerance=1e-6)


def smooth_point_of_kinks() -> Outcome:
    """Theorem 46.3: at points of differentiability the AD-Hessian is the classical one? f = ReLU(x) − ReLU(−x) = x,
    loss f²/2, at x = 0; corrected: off the kinks of single neurons."""

    def loss(x: Tensor) -> Tensor:
        return (torch.relu(x) - torch.relu(-x)) ** 2 / 2

    def second(x: float) -> float:
        return float(torch.func.grad(torch.func.grad(loss))(real(x)))

    witness = Witness(
        "f(x) = ReLU(x) − ReLU(−x) = x, loss = f²/2, at x = 0: second derivative",
        f"{second(0.0):g} (AD)",
        "equal off the kinks of single neurons",
        "1",
    )
    return Outcome(
        abs(second(0.0) - 1), max(abs(second(x) - 1) for x in (-1.0, 1e-9, 0.3)), 4, witness
    )


def quadratic_of_relu() -> Outcome:
    """Appendix D, proof step 2: ℓ = ReLU(x)²/2 is twice non-differentiable on (−∞, 0]; corrected: at 0 alone."""

    def loss(x: Tensor) -> Tensor:
        return torch.relu(x) ** 2 / 2

    def jump(x: float, step: float = 1e-4) -> float:
        t = real([x - step, x, x + step, x - 2 * step, x + 2 * step])
        f = loss(t)
        left, right = (f[1] - 2 * f[0] + f[3]) / step**2, (f[4] - 2 * f[2] + f[1]) / step**2
        return abs(float(right - left))

    inside = [jump(x) for x in (-2.0, -0.5, -0.01)]
    witness = Witness(
        "ReLU(x)²/2 at x = −1/2: jump of the second derivative",
        "≠ 0",
        "only at x = 0",
        f"{jump(-0.5):g}; at 0 it is {jump(0.0):.3g}",
    )
    return Outcome(
        1.0 if max(inside) < 1e-6 else 0.0, max(inside) if jump(0.0) > 0.5 else 1.0, 4, witness
    )


def lipschitz_product() -> Outcome:
    """Theorem 46, proof step 1: f_v is (Π L_u)‖W‖₂-Lipschitz; corrected: √(Σ L_u²)‖W‖₂. Attacked over W and x."""

    def slope(z: Tensor) -> tuple[float, float]:
        w = z[:4].view(2, 2)
        x, y = z[4], z[5]
        parts = [torch.stack([t, t]) for t in (x, y)]  # f_u1 = f_u2 = x: both 1-Lipschitz
        moved = (torch.relu(w @ parts[0]) - torch.relu(w @ parts[1])).norm() / (
            x - y
        ).abs().clamp_min(1e-12)
        norm = float(spectral_norm(w))
        return float(moved) / norm - 1, float(moved) / (math.sqrt(2) * norm) - 1

    start = real([1.0, 1.0, 0.0, 0.0, 1.0, 2.0])
    right = attack(lambda z: slope(z)[1], start)[0]
    witness = Witness(
        "f_u1 = f_u2 = x, f_v = ReLU(f_u1 + f_u2) = 2x for x > 0: Lipschitz constant",
        "1 · 1 · √2 = 1.4142",
        "√(1 + 1) · √2 = 2",
        "2",
    )
    return Outcome(slope(start)[0], right, 81, witness)


def kink_symmetry() -> Outcome:
    """Symmetry property, Case B: with φ'(0) := 0 the AD-Hessian is symmetric at a kink, too (networks with x = 0)."""
    errors = []
    for seed in range(4):
        case = chain(seed, nn.ReLU)
        with torch.no_grad():
            case.dag.nodes["h1"].parameters()["0.bias"].zero_()
        zero = Instance("at the kink", case.dag, torch.zeros_like(case.x[:1]), case.y[:1])
        for (v, w), b in examples(zero)[0].blocks.items():
            errors.append(float((b - examples(zero)[0].blocks[w, v].T).abs().max()))
    return Outcome(max(errors), instances=len(errors))


def continuous() -> Outcome:
    """Theorem 48, last sentence: inside a linear region the AD-Hessian is continuous: its change over the step."""
    errors = []
    for seed in range(3):
        case = chain(seed, nn.ReLU)
        base = whole(Instance("", case.dag, case.x[:1], case.y[:1]))
        moved = whole(Instance("", case.dag, case.x[:1] + 1e-9, case.y[:1]))
        errors.append(float((base - moved).abs().max() / base.abs().max()))
    return Outcome(max(errors), instances=3, tolerance=1e-6)


def pseudoinverse() -> Outcome:
    """Remark 45: d = −H⁺ g solves H d = −g? H = diag(1, 0), g = (0, 1); corrected: in the least-squares sense."""
    h, g = (
        torch.diag(torch.tensor([1.0, 0.0]).double()),
        real([0.0, 1.0]),
    )
    d = -torch.linalg.pinv(h) @ g
    residual = float((h @ d + g).norm())
    errors = []
    for seed in range(4):
        m = gauss(seeded(seed), 4, 3)
        m = m @ m.T
        b = gauss(seeded(9), 4)
        errors.append(
            float((m @ (m @ (-torch.linalg.pinv(m, rtol=1e-10) @ b) + b)).norm() / b.norm())
        )
    full = gauss(seeded(0), 3, 3)
    errors.append(relative_error(torch.linalg.pinv(full), torch.linalg.inv(full)))
    witness = Witness(
        "H = diag(1, 0), g = (0, 1): H d + g", "0", "least squares", f"({residual:g} in norm)"
    )
    return Outcome(residual, max(errors), 6, witness)


def layer_norm() -> Outcome:
    x = real([1.0, 2.0, -1.0])
    second = Hessian(lambda t: torch.nn.functional.layer_norm(t, (3,))[0], x)
    return exists("LayerNorm of (1, 2, −1)", float(second.norm()), "a second derivative is wanted")


def masked() -> Outcome:
    """Appendix N.1: ‖diag(σ') W‖₂ <= ‖W‖₂ for ReLU, attacked."""

    def excess(z: Tensor) -> float:
        w = z[:16].view(4, 4)
        mask = (z[16:] > 0).double()
        return float(spectral_norm(mask[:, None] * w) / spectral_norm(w)) - 1

    return Outcome(
        attack(excess, gauss(seeded(0), 20))[0],
        instances=81,
    )


def residual_above_one() -> Outcome:
    """Section 5.1: for a residual block rho > 1 by construction (J = alpha D W + I)? alpha D W = −I/2."""
    value = float(spectral_norm(torch.eye(3).double() - 0.5 * torch.eye(3).double()))
    values = [
        float(
            spectral_norm(
                torch.eye(4).double() + 0.35 * torch.randn(4, 4, generator=seeded(k)).double()
            )
        )
        for k in range(10)
    ]
    witness = Witness(
        "J = I + alpha D W with alpha D W = −I/2: ‖J‖₂",
        "> 1",
        "> 1 for random weights",
        f"{value:g}",
    )
    return Outcome(1.0 if value < 1 else 0.0, max(0.0, 1 - min(values)), 11, witness)


def hutchinson() -> Outcome:
    """E|A z|² = ‖A‖_F² = tr AᵀA over all sign vectors z, exactly."""

    def error(a: Tensor) -> float:
        signs = real(list(itertools.product((-1.0, 1.0), repeat=a.shape[1])))
        return abs(float((signs @ a.mT).square().sum(1).mean() / a.square().sum()) - 1) + abs(
            float((a.T @ a).trace() / a.square().sum()) - 1
        )

    return worst(random_matrices(((4, 1), (4, 3), (2, 6))), error)


def algorithm_4() -> Outcome:
    """Power iteration and all probes of Algorithm 4 on rectangular matrices: |estimate / D − 1|."""

    def error(h: Tensor) -> float:
        q = gauss(seeded(1), h.shape[1])
        q = q / q.norm()
        for _ in range(400):
            p = h @ q
            q = h.T @ p
            q = q / q.norm()
        sigma = float((h @ q).square().sum())
        signs = real(list(itertools.product((-1.0, 1.0), repeat=h.shape[1])))
        total = float((signs @ h.mT).square().sum())
        return abs(total / (len(signs) * sigma) / stable(h) - 1)

    return worst(random_matrices(((4, 3), (2, 5), (5, 5)), 3), error)


def power_rate() -> Outcome:
    """Remark 63: relative error of σ² after T steps over (σ2/σ1)^(2T), at most tan² of the starting angle."""

    def violation(h: Tensor) -> float:
        _, s, v = torch.linalg.svd(h)
        q = torch.ones(h.shape[1], dtype=torch.float64) / math.sqrt(h.shape[1])
        angle = float((1 - (v[0] @ q) ** 2) / (v[0] @ q) ** 2)
        found = []
        for steps in (1, 3, 6):
            p = q
            for _ in range(steps):
                p = h.T @ (h @ p)
                p = p / p.norm()
            error = 1 - float((h @ p).square().sum() / s[0] ** 2)
            found.append(error / (angle * float(s[1] / s[0]) ** (2 * steps)) - 1)
        return max(found)

    return worst(random_matrices(((4, 4), (3, 5), (6, 2)), 5), violation)


def coupling_violations() -> Outcome:
    """Remark 51: the share of independent estimates with C > 1 falls as O(1/m)? for v = w it stays near 1/2."""
    m, generator = (
        gauss(seeded(0), 6, 6),
        seeded(1),
    )

    def share(left: Tensor, right: Tensor, cross: Tensor, probes: int) -> float:
        def estimate(a: Tensor) -> Tensor:
            z = torch.randint(0, 2, (400, probes, a.shape[1]), generator=generator).double() * 2 - 1
            return (z @ a.mT).square().sum(-1).mean(-1).sqrt()

        return float((estimate(cross) > (estimate(left) * estimate(right)).sqrt()).double().mean())

    h = m @ m.T
    stays = [share(h, h, h, probes) for probes in (10, 160)]
    a, b = m[:3], m[3:]
    falls = [share(a @ a.T, b @ b.T, a @ b.T, probes) for probes in (1, 160)]
    witness = Witness(
        "H[v,v] = H[w,w] = H[v,w], 10 and 160 probes: share with Ĉ > 1",
        "falls as 1/m",
        "where C < 1",
        f"{stays[0]:.2f}, {stays[1]:.2f}",
    )
    return Outcome(max(0.0, stays[1] - stays[0] / 4), max(0.0, falls[1] - 0.02), 1600, witness)


def regularised_newton() -> Outcome:
    """Remark 98: |x_{k+1}| / |x_k| of Newton's method with H + λ I, λ = 1, on x²/2 + x⁴/4, once it is small; corrected:
    with λ = |gradient|, which tends to zero (superlinear), and with λ = 0."""

    def ratio(shift: Callable[[float], float]) -> float:
        x, found = 0.5, 1.0
        while abs(x) > 1e-6:
            step = (x + x**3) / (1 + 3 * x**2 + shift(x))
            found, x = abs((x - step) / x), x - step
        return found

    fixed, falling = ratio(lambda x: 1.0), max(ratio(lambda x: abs(x + x**3)), ratio(lambda x: 0.0))
    witness = Witness(
        "x²/2 + x⁴/4, λ = 1: |x_{k+1}| / |x_k| near 0",
        "→ 0 (superlinear)",
        "→ 0 where λ → 0",
        f"{fixed:.3g}",
    )
    return Outcome(fixed, falling, 3, witness, tolerance=0.01)


CHECKS: dict[str, Entry] = {
    "dag.remark1.smooth": finite_differences,
    "dag.def47": at_the_kink,
    "dag.thm46.lipschitz": lipschitz_product,
    "dag.thm46.example": quadratic_of_relu,
    "dag.thm46.3": smooth_point_of_kinks,
    "dag.symmetry.kink": kink_symmetry,
    "dag.thm48": continuous,
    "dag.remark45": pseudoinverse,
    "dag.footnote1": layer_norm,
    "dag.exp1b.norm": masked,
    "dag.exp1.residual": residual_above_one,
    "dag.remark54": hutchinson,
    "dag.algorithm4": algorithm_4,
    "dag.remark63": power_rate,
    "dag.remark51": coupling_violations,
    "dag.remark98": regularised_newton,
}
