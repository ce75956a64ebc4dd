"""Extreme eigenvalues from products alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.curvature.graph.errors import MeasurementError
from runner.curvature.matrix_free.base import SymmetricOperator
from runner.curvature.matrix_free.probes import (
    NOT_FINITE,
    Estimate,
    exponent_of,
    gaussian,
    not_measurable,
    unknown,
)

ROUNDINGS = 8
"""Rounding of a product H z, in units of the last place of ||H||: what the residual cannot see."""


@dataclass(frozen=True)
class Extremes:
    """Largest and smallest eigenvalue found by Lanczos, each with the bound on its distance to an eigenvalue."""

    largest: Estimate
    smallest: Estimate


def lanczos_extremes(
    operator: SymmetricOperator,
    nodes: Sequence[str] | None = None,
    steps: int = 30,
    generator: torch.Generator | None = None,
) -> Extremes:
    """Extreme eigenvalues of the symmetric matrix [H[v,w]] over `nodes` by Lanczos with full reorthogonalisation.

    error = beta_k |last component of the Ritz vector|, plus ROUNDINGS of the products: some eigenvalue lies within it.
    Ritz values never leave the spectrum's interval but by rounding, so that the largest is a lower bound of
    lambda_1 and the smallest an upper bound of lambda_n. Raises ValueError for unknown nodes and fewer than one step.

    >>> from runner.curvature import CurvatureOperator, Dag
    >>> dag = Dag.from_sequential([torch.sin, torch.square], loss="mse", names=["h", "out"])
    >>> operator = CurvatureOperator(dag, torch.ones(2, 3), torch.zeros(2, 3))
    >>> round(lanczos_extremes(operator, ["out"]).largest.value, 4)
    0.6667
    """
    names = [nodes] if isinstance(nodes, str) else list(nodes) if nodes is not None else list(operator.nodes)
    if not names or any(v not in operator.sizes for v in names):
        raise MeasurementError(f"expected nodes of the operator, {list(operator.nodes)}, found {names}")
    if steps < 1:
        raise ValueError(f"expected at least 1 Lanczos step, got {steps}")
    if reason := not_measurable(operator):
        return Extremes(unknown(0, reason), unknown(0, reason))
    alphas, betas, exponent = _tridiagonal(operator, names, steps, generator)
    k = len(alphas)
    diagonal, off = (torch.tensor(t, dtype=torch.float64, device="cpu") for t in (alphas, betas[: k - 1]))
    if not (diagonal.isfinite().all() and off.isfinite().all()):
        return Extremes(unknown(k, NOT_FINITE), unknown(k, NOT_FINITE))
    values, vectors = torch.linalg.eigh(torch.diag(diagonal) + torch.diag(off, 1) + torch.diag(off, -1))
    rounding = ROUNDINGS * torch.finfo(operator.dtype).eps * float(values.abs().max())
    scale = 2.0**exponent
    ends = [
        Estimate(float(values[i]) * scale, (betas[-1] * abs(float(vectors[-1, i])) + rounding) * scale, k)
        for i in (-1, 0)
    ]
    return Extremes(*ends)


def _tridiagonal(
    operator: SymmetricOperator, names: list[str], steps: int, generator: torch.Generator | None
) -> tuple[list[float], list[float], int]:
    """Diagonal and off-diagonal of the projected matrix, as multiples of 2**exponent."""
    sizes = [operator.sizes[v] for v in names]
    n = sum(sizes)
    start = gaussian(operator, n, generator)
    basis = [(start / start.norm()).double()]
    alphas: list[float] = []
    betas: list[float] = []
    exponent: int | None = None
    for _ in range(min(steps, n)):
        pieces = dict(zip(names, (p.unsqueeze(0) for p in basis[-1].to(operator.dtype).split(sizes)), strict=True))
        image = operator.apply(pieces)
        product = torch.cat([image[v][0] for v in names]).double()
        exponent = exponent_of(product) if exponent is None else exponent
        product = product * 2.0**-exponent  # a power of two: no digit changes, and no square leaves the range
        alphas.append(float(product @ basis[-1]))
        product = _orthogonal(product, basis)
        betas.append(float(product.norm()))
        scale = max(abs(a) for a in alphas) + max(betas)
        if not betas[-1] > 10 * torch.finfo(torch.float64).eps * scale:
            break
        basis.append(product / betas[-1])
    return alphas, betas, exponent or 0


def _orthogonal(product: Tensor, basis: list[Tensor]) -> Tensor:
    """The part of `product` orthogonal to the basis; twice, as once is not enough in floating point."""
    stacked = torch.stack(basis)
    for _ in range(2):
        product = product - stacked.mT @ (stacked @ product)
    return product
