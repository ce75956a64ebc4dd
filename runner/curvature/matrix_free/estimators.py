"""Norms and eigenvalues from products alone: Hutchinson, power iteration, Lanczos, each with its error and its cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from runner.curvature.graph.dag import Dag
from runner.curvature.matrix_free.operators import CurvatureOperator

Pair = tuple[str, str]


class Estimate(NamedTuple):
    """value; error: standard error (Hutchinson) or residual bound (power iteration, Lanczos); products used.

    reason says why value is NaN, else "".
    """

    value: float
    error: float
    products: int
    reason: str = ""


def rademacher(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator | None) -> Tensor:
    """Independent signs."""
    return torch.randint(0, 2, shape, generator=generator).to(dtype) * 2 - 1


def frobenius_norms(
    operator: CurvatureOperator, pairs: Iterable[Pair], probes: int = 30, generator: torch.Generator | None = None
) -> dict[Pair, Estimate]:
    """||H[v,w]||_F by Hutchinson: the mean of |H[v,w] z|^2 over Rademacher z on w is ||H[v,w]||_F^2.

    All v of one w come from the same products, `probes` per w. error: standard error of the norm (delta method). Raises
    ValueError for fewer than two probes.
    """
    squares = probe_squares(operator, pairs, probes, generator)
    return {pair: _root_mean(values, probes) for pair, values in squares.items()}


def probe_squares(
    operator: CurvatureOperator, pairs: Iterable[Pair], probes: int, generator: torch.Generator | None = None
) -> dict[Pair, Tensor]:
    """|H[v,w] z_k|^2 of every probe z_k, shape (probes,), float64. The same generator state gives the same probes."""
    squares: dict[Pair, Tensor] = {}
    for w, z, targets in _probes(operator, pairs, probes, generator):
        products = operator.apply({w: z})
        for v in targets:
            squares[v, w] = products[v].double().square().sum(1)
    return squares


def spectral_norms(
    operator: CurvatureOperator,
    pairs: Iterable[Pair],
    iterations: int = 20,
    generator: torch.Generator | None = None,
    tolerance: float = 0.0,
) -> dict[Pair, Estimate]:
    """sigma_1 of each H[v,w] by power iteration on H^T H, all pairs in the same passes: 2 products per pair and step.

    From a Gaussian start, q <- H^T H q / |.|; stops after `iterations` or when every residual is below tolerance *
    sigma_1. value = |H q|; error = |H^T H q - sigma^2 q| / sigma bounds the distance of the value to some singular
    value. A power iteration never overestimates sigma_1.
    """
    pairs = list(pairs)
    q = {pair: _unit(_gaussian(operator, operator.sizes[pair[1]], generator)) for pair in pairs}
    sigma: dict[Pair, float] = {}
    residual: dict[Pair, float] = {}
    steps = 0
    while pairs and steps < max(1, iterations):
        steps += 1
        forward = _products(operator, pairs, {pair: (pair[1], q[pair], pair[0]) for pair in pairs})
        back = _products(operator, pairs, {pair: (pair[0], forward[pair], pair[1]) for pair in pairs})
        for pair in pairs:
            sigma[pair] = float(forward[pair].double().norm())
            gap = float((back[pair].double() - sigma[pair] ** 2 * q[pair].double()).norm())
            residual[pair] = gap / sigma[pair] if sigma[pair] > 0 else 0.0
            if float(back[pair].norm()) > 0:
                q[pair] = _unit(back[pair])
        if all(residual[pair] <= tolerance * sigma[pair] for pair in pairs):
            break
    return {pair: Estimate(sigma[pair], residual[pair], 2 * steps) for pair in pairs}


def stable_ranks(
    operator: CurvatureOperator,
    pairs: Iterable[Pair],
    probes: int = 30,
    iterations: int = 20,
    generator: torch.Generator | None = None,
) -> dict[Pair, Estimate]:
    """D = ||H||_F^2 / sigma_1^2 (DAG paper, Algorithm 4), NaN with a reason where the block is numerically zero.

    error adds the relative errors of both in quadrature. As an estimate, D may fall below 1.
    """
    pairs = list(pairs)
    frobenius = frobenius_norms(operator, pairs, probes, generator)
    spectral = spectral_norms(operator, pairs, iterations, generator)
    scale = max((e.value for e in frobenius.values()), default=0.0)
    found = {}
    for pair in pairs:
        f, s = frobenius[pair], spectral[pair]
        cost = f.products + s.products
        if s.value <= torch.finfo(operator.dtype).eps * scale or s.value == 0:
            found[pair] = Estimate(math.nan, math.nan, cost, "block is numerically zero")
            continue
        value = (f.value / s.value) ** 2
        found[pair] = Estimate(value, 2 * value * math.hypot(f.error / f.value, s.error / s.value), cost)
    return found


def couplings(
    operator: CurvatureOperator, pairs: Iterable[Pair], probes: int = 30, generator: torch.Generator | None = None
) -> dict[Pair, Estimate]:
    """C = R(v,w) / sqrt(R(v,v) R(w,w)) from Hutchinson norms; not clipped at 1. NaN when a diagonal block is
    numerically zero."""
    pairs = list(pairs)
    wanted = dict.fromkeys([*pairs, *((u, u) for pair in pairs for u in pair)])
    norms = frobenius_norms(operator, wanted, probes, generator)
    scale = max((e.value for e in norms.values()), default=0.0)
    found = {}
    for v, w in pairs:
        r, a, b = norms[v, w], norms[v, v], norms[w, w]
        cost = probes if v == w else 2 * probes
        if min(a.value, b.value) <= torch.finfo(operator.dtype).eps * scale:
            found[v, w] = Estimate(math.nan, math.nan, cost, "diagonal block is numerically zero")
        elif v == w:
            found[v, w] = Estimate(1.0, 0.0, cost)
        else:
            value = r.value / math.sqrt(a.value * b.value)
            relative = math.hypot(r.error / r.value if r.value else 0.0, a.error / a.value / 2, b.error / b.value / 2)
            found[v, w] = Estimate(value, value * relative, cost)
    return found


@dataclass(frozen=True)
class GapEstimate:
    """Norms of the parts of one pair from common probes, and their ratio with a jackknife error."""

    total: Estimate
    gauss_newton: Estimate
    tensor: Estimate
    gap: Estimate
    squares: dict[str, Tensor] = field(repr=False)


def gn_gaps(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    nodes: Iterable[str] | None,
    pairs: Iterable[Pair],
    probes: int = 30,
    generator: torch.Generator | None = None,
    memory_budget: int = 1 << 30,
) -> dict[Pair, GapEstimate]:
    """||H||_F, ||H^GN||_F, ||H^T||_F and the GN-gap of each pair, all from the same probes.

    Common probes make the ratio far less noisy than its parts. Gap NaN with a reason where ||H^GN||_F is zero.
    """
    operator = CurvatureOperator(dag, x, y, nodes, part="tensor", memory_budget=memory_budget)
    pairs = list(pairs)
    squares: dict[str, dict[Pair, Tensor]] = {"total": {}, "gauss_newton": {}, "tensor": {}}
    for w, z, targets in _probes(operator, pairs, probes, generator):
        total, gauss_newton = operator.apply_parts({w: z})
        for v in targets:
            images = {"total": total[v], "gauss_newton": gauss_newton[v], "tensor": total[v] - gauss_newton[v]}
            for part, image in images.items():
                squares[part][v, w] = image.double().square().sum(1)
    found = {}
    for pair in pairs:
        parts = {part: values[pair] for part, values in squares.items()}
        norms = {part: _root_mean(values, probes) for part, values in parts.items()}
        gap = _ratio_of_roots(parts["tensor"], parts["gauss_newton"], probes)
        found[pair] = GapEstimate(norms["total"], norms["gauss_newton"], norms["tensor"], gap, parts)
    return found


@dataclass(frozen=True)
class Extremes:
    """Largest and smallest eigenvalue found by Lanczos, each with the bound on its distance to an eigenvalue."""

    largest: Estimate
    smallest: Estimate


def lanczos_extremes(
    operator: CurvatureOperator,
    nodes: Sequence[str] | None = None,
    steps: int = 30,
    generator: torch.Generator | None = None,
) -> Extremes:
    """Extreme eigenvalues of the symmetric matrix [H[v,w]] over `nodes` by Lanczos with full reorthogonalisation.

    error = beta_k |last component of the Ritz vector|: some eigenvalue lies within it. Ritz values never leave the
    spectrum's interval, so that the largest is a lower bound of lambda_1 and the smallest an upper bound of lambda_n.
    """
    names = list(nodes) if nodes is not None else list(operator.nodes)
    sizes = [operator.sizes[v] for v in names]
    n = sum(sizes)
    basis = [_unit(_gaussian(operator, n, generator).double())]
    alphas: list[float] = []
    betas: list[float] = []
    for _ in range(min(steps, n)):
        pieces = dict(zip(names, (p.unsqueeze(0) for p in basis[-1].to(operator.dtype).split(sizes)), strict=True))
        image = operator.apply(pieces)
        product = torch.cat([image[v][0] for v in names]).double()
        alphas.append(float(product @ basis[-1]))
        stacked = torch.stack(basis)
        for _ in range(2):  # once is not enough in floating point
            product = product - stacked.mT @ (stacked @ product)
        betas.append(float(product.norm()))
        scale = max(abs(a) for a in alphas) + max(betas)
        if betas[-1] <= 10 * torch.finfo(torch.float64).eps * scale:
            break
        basis.append(product / betas[-1])
    k = len(alphas)
    off = torch.tensor(betas[: k - 1], dtype=torch.float64)
    tridiagonal = torch.diag(torch.tensor(alphas, dtype=torch.float64)) + torch.diag(off, 1) + torch.diag(off, -1)
    values, vectors = torch.linalg.eigh(tridiagonal)
    ends = [Estimate(float(values[i]), betas[-1] * abs(float(vectors[-1, i])), k) for i in (-1, 0)]
    return Extremes(*ends)


def _probes(
    operator: CurvatureOperator, pairs: Iterable[Pair], probes: int, generator: torch.Generator | None
) -> Iterator[tuple[str, Tensor, list[str]]]:
    """(w, Rademacher probes on w, nodes v of the pairs (v, w)) for every w."""
    if probes < 2:
        raise ValueError(f"a standard error needs at least 2 probes, got {probes}")
    targets: dict[str, list[str]] = {}
    for v, w in pairs:
        targets.setdefault(w, []).append(v)
    for w, nodes in targets.items():
        yield w, rademacher((probes, operator.sizes[w]), operator.dtype, generator), nodes


def _products(
    operator: CurvatureOperator, pairs: list[Pair], requests: dict[Pair, tuple[str, Tensor, str]]
) -> dict[Pair, Tensor]:
    """For each pair (source node, direction, target node): the target's part of H times the direction, in one call."""
    directions: dict[str, Tensor] = {}
    for k, pair in enumerate(pairs):
        source, direction, _ = requests[pair]
        if source not in directions:
            directions[source] = direction.new_zeros(len(pairs), operator.sizes[source])
        directions[source][k] = direction
    images = operator.apply(directions)
    return {pair: images[requests[pair][2]][k] for k, pair in enumerate(pairs)}


def _gaussian(operator: CurvatureOperator, size: int, generator: torch.Generator | None) -> Tensor:
    """Drawn on the CPU, so that the numbers do not depend on the device."""
    return torch.randn(size, generator=generator).to(operator.device, operator.dtype)


def _unit(vector: Tensor) -> Tensor:
    return vector / vector.norm()


def _root_mean(squares: Tensor, products: int) -> Estimate:
    mean = float(squares.mean())
    if mean == 0:
        return Estimate(0.0, 0.0, products)
    standard_error = float(squares.std()) / math.sqrt(len(squares))
    return Estimate(math.sqrt(mean), standard_error / (2 * math.sqrt(mean)), products)


def _ratio_of_roots(numerator: Tensor, denominator: Tensor, products: int) -> Estimate:
    """sqrt(mean(a) / mean(b)) with its jackknife standard error."""
    if float(denominator.sum()) == 0:
        return Estimate(math.nan, math.nan, products, "Gauss-Newton block is zero")
    n = len(numerator)
    left_out = ((numerator.sum() - numerator) / (denominator.sum() - denominator).clamp_min(1e-300)).sqrt()
    error = math.sqrt((n - 1) / n * float((left_out - left_out.mean()).square().sum()))
    return Estimate(math.sqrt(float(numerator.sum() / denominator.sum())), error, products)
