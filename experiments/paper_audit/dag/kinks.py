"""DAG paper, Theorems 46 and 48: second derivatives of piecewise-linear networks, at kinks and away from them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from experiments.paper_audit.checks import attack, exists, relative_error
from experiments.paper_audit.dag.networks import Instance, chain, smooth
from experiments.paper_audit.dag.oracle import examples
from experiments.paper_audit.dag.saddles import Hessian, whole
from experiments.paper_audit.formula import Entry, Outcome, Witness


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

        def gradient(e: Tensor, case: Instance = case, x: Tensor = x, y: Tensor = y, last: str = last) -> Tensor:
            return torch.func.grad(lambda s: case.dag.mean_loss(x, y, {last: s[None]}))(e)

        zero, step = torch.zeros(width, dtype=torch.float64), 1e-5
        rows = [(gradient(zero + step * u) - gradient(zero - step * u)) / (2 * step) for u in torch.eye(width).double()]
        errors.append(relative_error(torch.stack(rows), examples(case)[0].blocks[last, last]))
    return Outcome(max(errors), instances=3, tolerance=1e-6)


def smooth_point_of_kinks() -> Outcome:
    """Theorem 46.3: at points of differentiability the AD-Hessian is the classical one? f = ReLU(x) − ReLU(−x) = x,
    loss f²/2, at x = 0; corrected: off the kinks of single neurons."""

    def loss(x: Tensor) -> Tensor:
        return (torch.relu(x) - torch.relu(-x)) ** 2 / 2

    def second(x: float) -> float:
        return float(torch.func.grad(torch.func.grad(loss))(torch.tensor(x, dtype=torch.float64)))

    witness = Witness(
        "f(x) = ReLU(x) − ReLU(−x) = x, loss = f²/2, at x = 0: second derivative",
        f"{second(0.0):g} (AD)",
        "equal off the kinks of single neurons",
        "1",
    )
    return Outcome(abs(second(0.0) - 1), max(abs(second(x) - 1) for x in (-1.0, 1e-9, 0.3)), 4, witness)


def quadratic_of_relu() -> Outcome:
    """Appendix D, proof step 2: ℓ = ReLU(x)²/2 is twice non-differentiable on (−∞, 0]; corrected: at 0 alone."""

    def loss(x: Tensor) -> Tensor:
        return torch.relu(x) ** 2 / 2

    def jump(x: float, step: float = 1e-4) -> float:
        t = torch.tensor([x - step, x, x + step, x - 2 * step, x + 2 * step], dtype=torch.float64)
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
    return Outcome(1.0 if max(inside) < 1e-6 else 0.0, max(inside) if jump(0.0) > 0.5 else 1.0, 4, witness)


def lipschitz_product() -> Outcome:
    """Theorem 46, proof step 1: f_v is (Π L_u)‖W‖₂-Lipschitz; corrected: √(Σ L_u²)‖W‖₂. Attacked over W and x."""

    def slope(z: Tensor) -> tuple[float, float]:
        w = z[:4].view(2, 2)
        x, y = z[4], z[5]
        parts = [torch.stack([t, t]) for t in (x, y)]  # f_u1 = f_u2 = x: both 1-Lipschitz
        moved = (torch.relu(w @ parts[0]) - torch.relu(w @ parts[1])).norm() / (x - y).abs().clamp_min(1e-12)
        norm = float(torch.linalg.matrix_norm(w, 2))
        return float(moved) / norm - 1, float(moved) / (math.sqrt(2) * norm) - 1

    start = torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0, 2.0], dtype=torch.float64)
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
    h, g = torch.diag(torch.tensor([1.0, 0.0]).double()), torch.tensor([0.0, 1.0], dtype=torch.float64)
    d = -torch.linalg.pinv(h) @ g
    residual = float((h @ d + g).norm())
    errors = []
    for seed in range(4):
        m = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        m = m @ m.T
        b = torch.randn(4, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
        errors.append(float((m @ (m @ (-torch.linalg.pinv(m, rtol=1e-10) @ b) + b)).norm() / b.norm()))
    full = torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    errors.append(relative_error(torch.linalg.pinv(full), torch.linalg.inv(full)))
    witness = Witness("H = diag(1, 0), g = (0, 1): H d + g", "0", "least squares", f"({residual:g} in norm)")
    return Outcome(residual, max(errors), 6, witness)


def layer_norm() -> Outcome:
    x = torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)
    second = Hessian(lambda t: torch.nn.functional.layer_norm(t, (3,))[0], x)
    return exists("LayerNorm of (1, 2, −1)", float(second.norm()), "a second derivative is wanted")


def masked() -> Outcome:
    """Appendix N.1: ‖diag(σ') W‖₂ <= ‖W‖₂ for ReLU, attacked."""

    def excess(z: Tensor) -> float:
        w = z[:16].view(4, 4)
        mask = (z[16:] > 0).double()
        return float(torch.linalg.matrix_norm(mask[:, None] * w, 2) / torch.linalg.matrix_norm(w, 2)) - 1

    return Outcome(
        attack(excess, torch.randn(20, generator=torch.Generator().manual_seed(0), dtype=torch.float64))[0],
        instances=81,
    )


def residual_above_one() -> Outcome:
    """Section 5.1: for a residual block rho > 1 by construction (J = alpha D W + I)? alpha D W = −I/2."""
    value = float(torch.linalg.matrix_norm(torch.eye(3).double() - 0.5 * torch.eye(3).double(), 2))
    values = [
        float(
            torch.linalg.matrix_norm(
                torch.eye(4).double() + 0.35 * torch.randn(4, 4, generator=torch.Generator().manual_seed(k)).double(), 2
            )
        )
        for k in range(10)
    ]
    witness = Witness("J = I + alpha D W with alpha D W = −I/2: ‖J‖₂", "> 1", "> 1 for random weights", f"{value:g}")
    return Outcome(1.0 if value < 1 else 0.0, max(0.0, 1 - min(values)), 11, witness)


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
}
