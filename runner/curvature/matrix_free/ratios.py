"""Ratios of norms of blocks, each with an error that knows which probes its parts share: D, C and the GN-gap."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runner.curvature.graph.dag import Dag
from runner.curvature.graph.errors import MeasurementError
from runner.curvature.matrix_free.base import (
    NOT_FINITE,
    Estimate,
    Pair,
    Squares,
    Stream,
    Streams,
    SymmetricOperator,
    probe_batches,
    require_operator,
    skewed,
    squares_of,
    student,
)
from runner.curvature.matrix_free.norms import (
    ROUNDINGS,
    is_zero,
    probe_norms,
    root_mean,
    spectral_norms,
    whole_norm,
)
from runner.curvature.matrix_free.operators import CurvatureOperator
from runner.curvature.result import Estimated


def stable_ranks(
    operator: SymmetricOperator,
    pairs: Iterable[Pair],
    probes: int = 30,
    iterations: int = 20,
    generator: torch.Generator | None = None,
) -> dict[Pair, Estimate]:
    """D = ||H||_F^2 / sigma_1^2 (DAG paper, Algorithm 4), NaN with a reason where the block is numerically zero.

    Zero is relative to the whole Hessian, the tensor part's operator included, so that it does not depend on the scale
    of the loss or on which pairs are asked for. error adds the standard error of ||H||_F^2, widened for the skewness of
    squares, and the residual of sigma_1 in quadrature. As an estimate, D may fall below 1. Raises ValueError for fewer
    than two probes or one iteration, and for unknown nodes.

    >>> from runner.curvature import CurvatureOperator, Dag
    >>> dag = Dag.from_sequential([torch.sin, torch.square], loss="mse", names=["h", "out"])
    >>> operator = CurvatureOperator(dag, torch.ones(2, 3), torch.zeros(2, 3))
    >>> round(stable_ranks(operator, [("out", "out")])["out", "out"].value, 3)
    3.0
    """
    pairs = require_operator(operator).checked(pairs)
    if operator.reason:
        return dict.fromkeys(pairs, Estimate.undefined(0, operator.reason))
    streams = Streams(generator)
    norms = probe_norms(operator, pairs, probes, streams)
    spectral = spectral_norms(operator, pairs, iterations, generator)
    scale = whole_norm(operator, streams) if pairs else 0.0
    found = {}
    for pair in pairs:
        f, s = root_mean(norms[pair].own), spectral[pair]
        cost = f.products + s.products
        if not (math.isfinite(f.value) and math.isfinite(s.value)):
            found[pair] = Estimate.undefined(cost, NOT_FINITE)
        elif s.value == 0 or is_zero(operator, norms[pair], scale):
            found[pair] = Estimate.undefined(cost, "block is numerically zero")
        else:
            value, relative = (f.value / s.value) ** 2, f.error / f.value
            error = value * math.hypot(skewed(2 * relative), 2 * s.error / s.value)
            found[pair] = Estimate.if_finite(value, error, cost)
    return found


def couplings(
    operator: SymmetricOperator,
    pairs: Iterable[Pair],
    probes: int = 30,
    generator: torch.Generator | None = None,
) -> dict[Pair, Estimate]:
    """C = R(v,w) / sqrt(R(v,v) R(w,w)) from Hutchinson norms; not clipped at 1. NaN when a diagonal block is
    numerically zero.

    error: jackknife over the probes of w, which R(v,w) and R(w,w) share, and over those of v. DAG paper, Definition 23.
    Raises ValueError for fewer than two probes and for unknown nodes.

    >>> from runner.curvature import CurvatureOperator, Dag
    >>> dag = Dag.from_sequential([torch.sin, torch.square], loss="mse", names=["h", "out"])
    >>> operator = CurvatureOperator(dag, torch.ones(2, 3), torch.zeros(2, 3))
    >>> couplings(operator, [("h", "h")])["h", "h"].value
    1.0
    """
    pairs = require_operator(operator).checked(pairs)
    if operator.reason:
        return dict.fromkeys(pairs, Estimate.undefined(0, operator.reason))
    wanted = list(dict.fromkeys([*pairs, *((u, u) for pair in pairs for u in pair)]))
    streams = Streams(generator)
    norms = probe_norms(operator, wanted, probes, streams)
    scale = whole_norm(operator, streams) if pairs else 0.0
    found = {}
    for v, w in pairs:
        cost = probes if v == w else 2 * probes
        if not all(math.isfinite(norms[p].own.root_mean) for p in ((v, w), (v, v), (w, w))):
            found[v, w] = Estimate.undefined(cost, NOT_FINITE)
        elif any(is_zero(operator, norms[u, u], scale) for u in (v, w)):
            found[v, w] = Estimate.undefined(cost, "diagonal block is numerically zero")
        elif v == w:
            found[v, w] = Estimate(1.0, 0.0, cost)
        else:
            found[v, w] = _coupling(norms[v, w].own, norms[v, v].own, norms[w, w].own, cost)
    return found


def _coupling(off: Squares, first: Squares, second: Squares, cost: int) -> Estimate:
    """sqrt(mean off) / (mean first * mean second)^(1/4); off and second are from the same probes."""

    def ratio(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return a.sqrt() / (b * c).sqrt().sqrt()

    power = off.exponent - (first.exponent + second.exponent) / 2
    means = [s.values.mean() for s in (off, first, second)]
    value = float(ratio(*means)) * 2.0**power
    shared = ratio(_left_out(off.values), means[1], _left_out(second.values))
    alone = ratio(means[0], _left_out(first.values), means[2])
    error = math.hypot(_jackknife(shared), _jackknife(alone)) * 2.0**power
    return Estimate.if_finite(value, error, cost)


def _left_out(values: Tensor) -> Tensor:
    """Means of all values but one, for each one."""
    return ((values.sum() - values) / (len(values) - 1)).clamp_min(1e-300)


def _jackknife(left_out: Tensor) -> float:
    """Standard error from the estimates with one probe left out, widened for few probes."""
    n = len(left_out)
    return math.sqrt((n - 1) / n * float((left_out - left_out.mean()).square().sum())) * student(
        n - 1
    )


@dataclass(frozen=True, repr=False)
class GapEstimate(Estimated):
    """Norms of the parts of one pair from common probes, and their ratio, the value, with a jackknife error."""

    total: Estimate
    gauss_newton: Estimate
    tensor: Estimate
    gap: Estimate
    squares: dict[str, Tensor]

    @property
    def value(self) -> float:
        return self.gap.value

    @property
    def error(self) -> float:
        return self.gap.error


def gn_gaps(
    source: Dag | CurvatureOperator,
    x: Any = None,
    y: Tensor | None = None,
    nodes: Iterable[str] | None = None,
    pairs: Iterable[Pair] | None = None,
    probes: int = 30,
    generator: torch.Generator | None = None,
    memory_budget: int = 1 << 30,
    *,
    stream: Stream = "node",
) -> dict[Pair, GapEstimate]:
    """||H||_F, ||H^GN||_F, ||H^T||_F and the GN-gap of each pair, all from the same probes.

    gn_gaps(dag, x, y, nodes, pairs), or gn_gaps(operator, pairs) with an operator of part="tensor". Common probes make
    the ratio far less noisy than its parts. Gap NaN with a reason where H^GN is numerically zero next to H. stream:
    "node" gives the probes of a node whatever else is asked for; "shared" draws them all in order from the generator.
    DAG paper, Eq. 4. Raises ValueError as CurvatureOperator does, for fewer than two probes, unknown nodes, a Dag
    without its batch, and an operator of another part.

    >>> dag = Dag.from_sequential([torch.sin, torch.square], loss="mse", names=["h", "out"])
    >>> found = gn_gaps(dag, torch.ones(2, 3), torch.zeros(2, 3), None, [("h", "h")])["h", "h"]
    >>> round(found.gap.value, 4)  # (f^2)^2 bends by 12 f^2, of which Gauss-Newton has 8 f^2
    0.5
    """
    if isinstance(source, Dag):
        if x is None or y is None:
            raise MeasurementError(
                "gn_gaps of a Dag needs the batch: gn_gaps(dag, x, y, nodes, pairs)"
            )
        operator = CurvatureOperator(
            source, x, y, nodes, part="tensor", memory_budget=memory_budget
        )
    else:
        operator, pairs = source, pairs if pairs is not None else x
        if getattr(operator, "part", None) != "tensor" or y is not None or nodes is not None:
            raise MeasurementError(
                'gn_gaps takes (operator, pairs, probes=..., generator=...) with an operator of part="tensor"'
            )
    every = [(v, w) for i, v in enumerate(operator.nodes) for w in operator.nodes[i:]]
    asked = operator.checked(every if pairs is None else pairs)
    if operator.reason:
        none = Estimate.undefined(0, operator.reason)
        return {pair: GapEstimate(none, none, none, none, {}) for pair in asked}
    found = {}
    for w, z, targets in probe_batches(operator, asked, probes, Streams(generator, stream)):
        total, gauss_newton = operator.apply_parts({w: z})
        for v in targets:
            images = {
                "total": total[v],
                "gauss_newton": gauss_newton[v],
                "tensor": total[v] - gauss_newton[v],
            }
            parts = {part: squares_of(image) for part, image in images.items()}
            gap = _gap(parts, torch.finfo(operator.dtype).eps, probes)
            plain = {part: values.plain() for part, values in parts.items()}
            norms = {part: root_mean(values) for part, values in parts.items()}
            found[v, w] = GapEstimate(**norms, gap=gap, squares=plain)
    return {pair: found[pair] for pair in asked}


def _gap(parts: dict[str, Squares], eps: float, products: int) -> Estimate:
    """sqrt(mean |H^T z|^2 / mean |H^GN z|^2) with its jackknife standard error."""
    top, bottom = parts["tensor"], parts["gauss_newton"]
    if not all(bool(p.values.isfinite().all()) for p in parts.values()):
        return Estimate.undefined(products, NOT_FINITE)
    if bottom.root_mean <= ROUNDINGS * eps * parts["total"].root_mean or bottom.root_mean == 0:
        return Estimate.undefined(products, "Gauss-Newton block is numerically zero")
    scale = 2.0 ** (top.exponent - bottom.exponent)
    value = math.sqrt(float(top.values.sum() / bottom.values.sum())) * scale
    left_out = (_left_out(top.values) / _left_out(bottom.values)).sqrt()
    return Estimate.if_finite(value, _jackknife(left_out) * scale, products)
