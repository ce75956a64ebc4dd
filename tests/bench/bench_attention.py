"""Attention Hessian: closed form against automatic differentiation, and matrix-free products; one thread.

Operation counts (multiply-adds, N = n d): closed form n N^2 + N^3 for the Gauss-Newton product;
forward-over-reverse autodiff N directional derivatives of a gradient that costs n^2 d each, so n^2 d N with
the overhead of every recorded step. A Hessian-vector product costs about three gradients, O(n^2 d + n d^2),
against N^2 for a product with the matrix.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from experiments.attention.newton_method import lbfgs, minimise
from experiments.attention.problem import recovery_objective
from runner.curvature.closed_form import attention as att

SIZES = ((4, 3), (8, 4), (16, 8), (32, 8), (32, 16))


def milliseconds(call: Callable[[], Tensor], budget: float = 0.5) -> float:
    """Median time of a call over as many repetitions as fit the budget (seconds), at least three."""
    call()
    times: list[float] = []
    while len(times) < 3 or sum(times) < budget:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * sorted(times)[len(times) // 2]


def report(name: str, ours: float, opponent: float) -> None:
    print(f"{name}: ours {ours:.3f} ms, opponent {opponent:.3f} ms, ratio {opponent / ours:.1f}")


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    for n, d in SIZES:
        shapes = ((d, n), (d, d), (d, d), (n, d))
        draws = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
        x, w, v, b = (draw / d**0.5 for draw in draws)

        def objective(flat: Tensor, w: Tensor = w, v: Tensor = v, b: Tensor = b) -> Tensor:
            x = flat.reshape(b.shape).T
            return (torch.softmax((x.T @ w @ x).T, -1) @ (x.T @ v) - b).square().sum()

        flat, probe = att.vec(x), torch.randn(n * d, generator=generator, dtype=torch.float64)
        direction = att.unvec(probe, d)
        name = f"n {n} d {d}"
        gradient = torch.func.grad(objective)
        report(
            f"hessian, {name}, against torch.func.hessian",
            milliseconds(lambda x=x, w=w, v=v, b=b: att.hessian(x, w, v, b)),
            milliseconds(lambda f=objective, flat=flat: torch.func.hessian(f)(flat)),
        )
        report(
            f"product, {name}, against forward-over-reverse",
            milliseconds(lambda x=x, w=w, v=v, b=b, p=direction: att.hessian_vector_product(x, w, v, b, p)),
            milliseconds(lambda g=gradient, flat=flat, p=probe: torch.func.jvp(g, (flat,), (p,))[1]),
        )
        every = att.unvec(torch.eye(n * d, dtype=torch.float64), d)
        report(
            f"hessian, {name}, against products with the identity",
            milliseconds(lambda x=x, w=w, v=v, b=b: att.hessian(x, w, v, b)),
            milliseconds(lambda x=x, w=w, v=v, b=b, p=every: att.hessian_vector_product(x, w, v, b, p)),
        )
        report(
            f"gradient, {name}, against reverse mode",
            milliseconds(lambda x=x, w=w, v=v, b=b: att.gradient(x, w, v, b)),
            milliseconds(lambda g=gradient, flat=flat: g(flat)),
        )
    recover(generator)


def recover(generator: torch.Generator) -> None:
    """Newton's method with line search against L-BFGS, from 1 % away to the same gradient norm; 16 variables."""
    shapes = ((4, 4), (4, 4), (4, 4))
    x, w, v = (torch.randn(shape, generator=generator, dtype=torch.float64) / 2 for shape in shapes)
    objective = recovery_objective(w, v, att.outputs(x, w, v), 1e-4)
    offset = torch.randn(1, 16, generator=generator, dtype=torch.float64)
    start = att.vec(x) + 0.01 * x.norm() * offset / offset.norm()
    report(
        "recovery, n 4 d 4, against L-BFGS",
        milliseconds(lambda: minimise(objective, start, "line search", tolerance=1e-9).points),
        milliseconds(lambda: lbfgs(objective, start, 2000, tolerance=1e-9).points),
    )


if __name__ == "__main__":
    main()
