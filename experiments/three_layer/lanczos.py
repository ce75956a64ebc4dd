"""Largest Hessian eigenvalue and bound of a network as the stored cells were measured: the
arithmetic is fixed.

The estimators of `runner.curvature` may change their digits with better methods; numbers of stored
cells may not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from experiments.three_layer.stochastic_bound import ParameterHessian
from runner.curvature.estimators.estimate import exponent_of, student
from runner.curvature.function.precision import full_precision

EPS = torch.finfo(torch.float64).eps


class Products:
    """Hessian products of float64 vectors, counted."""

    def __init__(self, hessian: ParameterHessian) -> None:
        self.hessian = hessian
        self.size = hessian.sizes["parameters"]
        self.count = 0

    def __call__(self, v: Tensor) -> Tensor:
        self.count += 1
        typed = v.to(self.hessian.dtype)
        rows = typed.unsqueeze(0)
        images = self.hessian.apply({"parameters": rows})
        return images["parameters"][0].double()

    def gaussian(self, generator: torch.Generator) -> Tensor:
        return torch.randn(self.size, generator=generator, dtype=torch.float64)

    def signs(self, generator: torch.Generator) -> Tensor:
        bits = torch.randint(0, 2, (self.size,), generator=generator, dtype=torch.int8)
        doubled = bits.double().mul_(2)
        return doubled.sub_(1)


def make_orthogonal(w: Tensor, vectors: Sequence[Tensor]) -> None:
    """Removes from w its components along orthonormal vectors, in place."""
    rows = torch.stack(list(vectors))
    w -= (rows @ w) @ rows


@full_precision()
def largest_after(hessian: ParameterHessian, steps: int, generator: torch.Generator) -> float:
    """Largest Ritz value after `steps` of Lanczos with full reorthogonalisation; NaN where a
    product is not finite."""
    product = Products(hessian)
    steps = min(steps, product.size)
    basis: list[Tensor] = []
    normal = torch.randn(product.size, generator=generator)
    start = normal.to(hessian.dtype).double()
    current = start / start.norm()
    before = torch.zeros(0)
    alphas: list[float] = []
    betas: list[float] = []
    exponent = 0
    while len(alphas) < steps:
        basis.append(current)
        w = product(current)
        if not alphas:
            exponent = exponent_of(w)
        w = w * 2.0**-exponent
        alphas.append(float(w @ current))
        if not math.isfinite(alphas[-1]):
            return math.nan
        w -= alphas[-1] * current
        if betas:
            w -= betas[-1] * before
        make_orthogonal(w, basis)
        betas.append(float(w.norm()))
        scale = max(map(abs, alphas)) + max(betas)
        if not betas[-1] > 10 * EPS * scale:
            break
        before = current
        current = w.div_(betas[-1])
    values, _ = eigh_tridiagonal(alphas, betas[:-1])
    largest = torch.from_numpy(values)[-1]
    return float(2.0**exponent * largest)


class Largest(NamedTuple):
    """Eigenvalue, residual |H v - value v|, and whether that is below the tolerance."""

    value: float
    residual: float
    converged: bool


@full_precision()
def largest_eigenvalue(
    hessian: ParameterHessian, tolerance: float, generator: torch.Generator
) -> Largest:
    """λ₁ by Lanczos with thick restarts (Wu and Simon) after 40 vectors; the residual is relative
    to the size of H.

    Stops after max(10 n, 1000) products in any case.
    """
    product = Products(hessian)
    start = product.gaussian(generator)
    image = product(product.gaussian(generator))
    size = float(image.norm()) / math.sqrt(product.size)
    if not math.isfinite(size):
        return Largest(math.nan, math.nan, False)
    if size == 0:
        value = 0.0
        axes = torch.eye(product.size, 1, dtype=torch.float64)
        vector = axes[:, 0]
    else:
        value, vector = _restarted(product, start, tolerance / 10, generator)
    difference = product(vector) - value * vector
    residual = float(difference.norm())
    converged = residual <= tolerance * max(abs(value), size)
    return Largest(value, residual, converged)


def _restarted(
    product: Products, start: Tensor, tolerance: float, generator: torch.Generator
) -> tuple[float, Tensor]:
    """The largest Ritz value and its vector."""
    most = min(product.size, 40)
    limit = max(10 * product.size, 1000)
    matrix = torch.zeros(most, most, dtype=torch.float64)
    basis = [start / start.norm()]
    arrow = matrix[0, :0]  # couplings of the newest vector to all restarted ones
    while True:
        j = len(basis) - 1
        v = basis[j]
        w = product(v)
        matrix[j, j] = float(w @ v)
        w = torch.sub(w, v, alpha=float(matrix[j, j]))
        if j == len(arrow):
            matrix[j, :j] = matrix[:j, j] = arrow
            make_orthogonal(w, basis)  # once is not enough in floating point
        else:
            w.sub_(basis[j - 1], alpha=float(matrix[j, j - 1]))
        make_orthogonal(w, basis)
        beta = float(w.norm())
        if not math.isfinite(beta):
            return math.nan, v
        scale = float(matrix.abs().max()) + beta
        if not beta > 10 * EPS * scale:
            beta = 0.0
            w = product.gaussian(generator)  # an invariant subspace: go on in another direction
            make_orthogonal(w, basis)
            make_orthogonal(w, basis)
        full = j + 1 == most
        last = product.count >= limit
        if full or last or (j % 4 == 0 and j >= 1 and beta > 0):
            part = matrix[: j + 1, : j + 1]
            values, vectors = torch.linalg.eigh(part)
            best = (-values).argsort()
            values = values[best]
            vectors = vectors[:, best]
            last_entry = vectors[-1, 0].abs()
            residual = float(beta * last_entry)
            if last or residual <= tolerance * float(values.abs().max()):
                vector = vectors[:, :1].mT @ torch.stack(basis)
                return float(values[0]), vector[0]
        if full:
            half = max(1, (most - 1) // 2)
            kept = min(1 + half, most - 1)
            combined = vectors[:, :kept].mT @ torch.stack(basis)
            basis = list(combined)
            arrow = beta * vectors[-1, :kept]
            matrix = torch.zeros_like(matrix)
            matrix[:kept, :kept] = values[:kept].diag()
        else:
            matrix[j + 1, j] = matrix[j, j + 1] = beta
        basis.append(w / w.norm())


class Bound(NamedTuple):
    """λ_sup and its 95 % interval."""

    value: float
    low: float
    high: float


def bound_from_probes(hessian: ParameterHessian, probes: int, generator: torch.Generator) -> Bound:
    """λ_sup = μ + σ √(n−1) from zᵀHz and |Hz|² of sign vectors z; interval: jackknife with
    Student's factor."""
    product = Products(hessian)
    rows = []
    for _ in range(probes):
        z = product.signs(generator)
        image = product(z)
        row = (float(z @ image), float(image @ image))
        rows.append(row)
    moments = torch.tensor(rows, dtype=torch.float64)
    traces, squares = moments.unbind(1)
    upper = _upper(product.size, traces.mean(), squares.mean())
    value = float(upper)
    if not math.isfinite(value):
        return Bound(math.nan, math.nan, math.nan)
    rest = probes - 1
    other_traces = (traces.sum() - traces) / rest
    other_squares = (squares.sum() - squares) / rest
    left_out = _upper(product.size, other_traces, other_squares)
    positive = bool((left_out > 0).all())
    scaled = left_out.log() if positive else left_out  # there the interval is closer to symmetric
    deviations = (scaled - scaled.mean()).square()
    error = math.sqrt(rest / probes * float(deviations.sum())) * student(rest)
    if not positive:
        half_width = 1.96 * error
        return Bound(value, value - half_width, value + half_width)
    width = math.exp(min(1.96 * error, 700.0))
    return Bound(value, value / width, value * width)


def _upper(n: int, trace: Tensor, square: Tensor) -> Tensor:
    mean = trace / n
    variance = square / n - mean * mean
    return mean + math.sqrt(n - 1) * torch.sqrt(torch.clamp(variance, min=0))
