"""Closed-form scalar spectra against a dense eigensolver (small widths) and against power iteration (large widths).

Run: python tests/bench/bench_scalar.py. The opponents get the Hessian (or its product) for free where that is cheaper
than building it by automatic differentiation, so the ratios are lower bounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from experiments.paper_audit.scalar import cases as oracle
from runner.curvature.closed_form import scalar


def best_time(call: Callable[[], object], budget: float = 1.0) -> float:
    """Seconds of the fastest of the calls that fit in `budget` (at least two)."""
    times: list[float] = []
    while len(times) < 2 or (sum(times) < budget and len(times) < 200):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def report(name: str, ours: float, opponent: float) -> None:
    print(f"{name}: ours {1e3 * ours:.4g} ms, opponent {1e3 * opponent:.4g} ms, ratio {opponent / ours:.4g}")


def dense_hessian(w: torch.Tensor, v: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a, d = (x * x).mean(), (x * (torch.dot(w, v) * x - y)).mean()
    u = torch.cat([w, v])
    hessian = a * torch.outer(u, u)
    m = len(w)
    hessian[:m, m:].diagonal().add_(d)
    hessian[m:, :m].diagonal().add_(d)
    return hessian


def power_iteration(w: torch.Tensor, v: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Largest eigenvalue from 20 Hessian-vector products, one graph for all of them."""
    theta = torch.cat([v, w]).requires_grad_()
    loss = oracle.autodiff_loss(oracle.linear_network, [v, w], x, y)(theta)
    (gradient,) = torch.autograd.grad(loss, theta, create_graph=True)
    z = torch.ones_like(theta) / theta.numel() ** 0.5
    value = z.new_zeros(())
    for _ in range(20):
        (product,) = torch.autograd.grad(gradient, theta, z, retain_graph=True)
        value = torch.dot(z, product)
        z = product / torch.linalg.vector_norm(product)
    return value


def main() -> None:
    torch.set_num_threads(1)
    for m in (8, 32, 128, 512, 1024):
        (w, v), x, y = oracle.random_instance(m, m, 50)
        w, v = w / m**0.5, v / m**0.5
        ours = best_time(lambda w=w, v=v, x=x, y=y: scalar.linear_spectrum(w, v, x, y).eigenvalues)
        matrix = dense_hessian(w, v, x, y)
        report(f"linear eigenvalues m={m} vs eigvalsh", ours, best_time(lambda h=matrix: torch.linalg.eigvalsh(h)))
        relu = best_time(lambda w=w, v=v, x=x, y=y: scalar.relu_spectrum(w, v, x, y).eigenvalues)
        report(f"ReLU eigenvalues m={m} vs eigvalsh", relu, best_time(lambda h=matrix: torch.linalg.eigvalsh(h)))
        if m <= 512:
            ours = best_time(lambda w=w, v=v, x=x, y=y: scalar.linear_spectrum(w, v, x, y).eigenvectors())
            report(f"linear eigenvectors m={m} vs eigh", ours, best_time(lambda h=matrix: torch.linalg.eigh(h)))
    for m in (10**3, 10**4, 10**5, 10**6):
        (w, v), x, y = oracle.random_instance(m, m, 50)
        w, v = w / m**0.5, v / m**0.5
        moments = scalar.Moments.of(x, y)
        ours = best_time(lambda w=w, v=v, k=moments: scalar.linear_sharpness(w, v, k))
        opponent = best_time(lambda w=w, v=v, x=x, y=y: power_iteration(w, v, x, y))
        report(f"sharpness m={m} vs 20 power steps", ours, opponent)
        cells = scalar.CellMoments.of(x, y)
        relu = best_time(lambda w=w, v=v, k=cells: scalar.relu_sharpness(w, v, k))
        report(f"ReLU sharpness m={m} vs 20 power steps of the linear net", relu, opponent)
        inputs = scalar.InputMoments.with_bias(x, y)
        bias = best_time(lambda w=w, v=v, k=inputs: scalar.bias_sharpness(w, v, v.flip(0), k))
        report(f"bias sharpness m={m} vs 20 power steps of the linear net", bias, opponent)


if __name__ == "__main__":
    main()
