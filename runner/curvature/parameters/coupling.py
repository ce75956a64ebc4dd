"""R, C, D and gap between groups of parameters.

One product with a direction on group w gives the whole column H[., w]: L groups with m probes each cost L m products.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from runner.curvature.matrix_free.base import FEW, on_sphere, rademacher
from runner.curvature.metrics.ratios import InterLayerMetrics, Measured, Pair, Square, pair_metrics
from runner.curvature.metrics.singular_values import Requests, leading_singular_values
from runner.curvature.parameters.operator import ParameterOperator


def _probes(count: int, size: int, dtype: torch.dtype, generator: torch.Generator | None) -> Tensor:
    """Signs, or where there are few components, on the sphere: signs of two are equal or opposite."""
    return (on_sphere if size <= FEW else rademacher)((count, size), dtype, generator)


@torch.inference_mode(False)
@torch.enable_grad()
def group_metrics(
    operator: ParameterOperator,
    pairs: Iterable[Pair] | None = None,
    probes: int = 30,
    *,
    tolerance: float = 1e-3,
    ranks: Iterable[Pair] | None = None,
    generator: torch.Generator | None = None,
) -> InterLayerMetrics:
    """R, C, D and the gap ||H - GN||_F / ||GN||_F between groups of parameters, each an Estimate.

    operator: of part="hessian". pairs: default every pair of groups. Exact from dense matrices where n products of each
    kind cost no more than the probes, else from `probes` products of each kind on each group and, for the D of the
    pairs in `ranks` (default all), Golub-Kahan steps for sigma_1, two products each: no two pairs share them. Raises
    ValueError for an operator of another part and for unknown groups.
    """
    if getattr(operator, "part", None) != "hessian":
        kind = f"{type(operator).__name__} {getattr(operator, 'part', '')}"
        raise ValueError(f'expected a ParameterOperator with part="hessian", found {kind}')
    names = list(operator.groups)
    asked = (
        [(g, h) for i, g in enumerate(names) for h in names[i:]]
        if pairs is None
        else [(g, h) for g, h in pairs]
    )
    wanted = list(dict.fromkeys([*asked, *((u, u) for pair in asked for u in pair)]))
    smooth = operator.with_part("gauss_newton")
    eps = float(torch.finfo(operator.dtype).eps)
    if operator.shape[0] <= probes * len(names):
        total, gauss_newton = operator.dense().double(), smooth.dense().double()
        found = {pair: _dense(operator, total, gauss_newton, pair) for pair in wanted}
        return pair_metrics(found, asked, 1.0, eps, "dense")
    squares: dict[Pair, tuple[Square, Square, Square]] = {}
    for w in dict.fromkeys(w for _, w in wanted):
        rows: dict[str, list[Tensor]] = {v: [] for v, other in wanted if other == w}
        for z in map(operator.drawn, _probes(probes, operator.sizes[w], operator.dtype, generator)):
            whole, flat = operator.column(w, z, list(rows)), smooth.column(w, z, list(rows))
            for v, kept in rows.items():
                h, gn = whole[v].double(), flat[v].double()
                kept.append(
                    torch.stack([h.square().sum(), gn.square().sum(), (h - gn).square().sum()])
                )
        for v, kept in rows.items():
            one, two, three = (Square.of({w: s}) for s in torch.stack(kept).unbind(1))
            squares[v, w] = one, two, three

    def products(requests: Requests) -> dict[Pair, Tensor]:
        return {pair: operator.column(w, z, [v])[v] for pair, w, z, v in requests}

    chosen = asked if ranks is None else [(g, h) for g, h in ranks]
    starts = {
        (v, w): operator.drawn(torch.randn(operator.sizes[w], generator=generator, device="cpu"))
        for v, w in chosen
    }
    leading = leading_singular_values(products, starts, tolerance, 40) if starts else {}
    measured = {}
    for p in wanted:
        top = leading.get(p)
        sigma = (
            (math.nan, math.nan, 2 * probes)
            if top is None
            else (top.value, top.error, 2 * probes + 2 * top.steps)
        )
        measured[p] = Measured(*squares[p], *sigma)
    return pair_metrics(measured, asked, 1.0, eps, "products")


def _dense(
    operator: ParameterOperator, total: Tensor, gauss_newton: Tensor, pair: Pair
) -> Measured:
    rows, columns = (operator.groups[g] for g in pair)
    h, gn = total[rows, columns], gauss_newton[rows, columns]
    whole, smooth, rest = (Square(float(part.square().sum())) for part in (h, gn, h - gn))
    return Measured(
        whole, smooth, rest, float(torch.linalg.matrix_norm(h, 2)), 0.0, operator.shape[0]
    )
