"""Instances under Assumption G.1, random or found by gradient ascent, and the bounds measured on
them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from experiments.attention.bounds import (
    BOUNDS,
    MOVED,
    POINT,
    case_norms,
    pair_value,
    scale_to_norm,
)
from experiments.attention.settings import AttentionHessian
from experiments.certificates import STREAM, of_hessian
from runner.contract import Cell, Context, Table
from runner.curvature.closed_form import attention as att

CLIMBED = ("G.3", "G.4", "H.3", "H.4", "H.7", "H.8", "H.9", "H.10", "I.1", "I.2", "I.3")
"""Bounds whose ratio is maximised; the others are attained by random instances already."""

Instance = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""X, Y, W, V, B with leading dimension for the instances."""


def measure(setup: AttentionHessian, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Tables of one cell: `bounds` always; `cases`, `convexity` and `accuracy` for the random
    searches."""
    n, d, radius = (
        int(cell.params["tokens"]),
        int(cell.params["width"]),
        float(cell.params["radius"]),
    )
    generator = ctx.torch_generator(f"attention_hessian {cell.label}")
    if cell.params["search"] == "ascent":
        rows = []
        for i, name in enumerate(CLIMBED):
            ctx.progress(i, len(CLIMBED), name)
            found = climb(name, draw_raw(n, d, setup.ascent_starts, generator), radius, setup)
            rows.append(_bound_row(name, found, n, d, radius))
        x, _, w, v, b = feasible(draw_raw(n, d, 1, ctx.torch_generator(STREAM)), radius, setup.near)
        return {"bounds": rows, "certificate": [_certificate(x[0], w[0], v[0], b[0], ctx)]}
    x, y, w, v, b = draw(cell.params["search"] == "rank one", n, d, radius, setup, generator)
    rows = []
    for name, bound in BOUNDS.items():
        at_pair = bound.over == "pair"
        values = pair_value(name, x, y, w, v, b) if at_pair else POINT[name](x, w, v, b)
        rows.append(_bound_row(name, values, n, d, radius))
    norms = case_norms(x, w, v)
    cases = [
        {"case": k + 1, "largest": norms[:, k].max().item(), "median": norms[:, k].median().item()}
        for k in range(4)
    ]
    return {
        "bounds": rows,
        "cases": cases,
        "convexity": [_convexity(x, w, v, b, n, d, radius)],
        "accuracy": [_accuracy(*(m[: setup.checked] for m in (x, w, v, b)))],
        "certificate": [_certificate(x[0], w[0], v[0], b[0], ctx)],
    }


def _certificate(x: Tensor, w: Tensor, v: Tensor, b: Tensor, ctx: Context) -> dict[str, Any]:
    """Row of `certificate`: the closed-form Hessian of one instance of the cell."""

    def loss(flat: Tensor) -> Tensor:
        at = att.unvec(flat, x.shape[0])
        return (torch.softmax((at.mT @ w @ at).mT, -1) @ (at.mT @ v) - b).square().sum()

    return of_hessian("Hessian", att.hessian(x, w, v, b), loss, att.vec(x), ctx)


def _bound_row(name: str, values: Tensor, n: int, d: int, radius: float) -> dict[str, Any]:
    bound = BOUNDS[name]
    constant = bound.printed(n, d, radius)
    sharper = bound.sharper(n, d, radius) if bound.sharper else math.nan
    largest = float(values.max())
    finite = bool(torch.isfinite(values).all())
    return {
        "bound": name,
        "largest": largest,
        "median": float(values.median()),
        "constant": constant,
        "ratio": largest / constant,
        "sharper_constant": sharper,
        "sharper_ratio": largest / sharper,
        "instances": len(values),
        "status": "ok" if finite else "not finite",
    }


def _rank_one(rows: int, cols: int, count: int, generator: torch.Generator) -> Tensor:
    left, right = (
        torch.randn(count, k, generator=generator, dtype=torch.float64) for k in (rows, cols)
    )
    return left.unsqueeze(-1) * right.unsqueeze(-2)


def draw(
    aligned: bool,
    n: int,
    d: int,
    radius: float,
    setup: AttentionHessian,
    generator: torch.Generator,
) -> Instance:
    """Instances with |W| = |V| = |X| = R and |b| <= R^2; every other Y near X, the rest of norm 0.9
    R.

    aligned: rank-one X, W, V that share their singular vectors, so that W X and V^T X are as large
    as R allows.
    """
    count = setup.instances
    shapes = ((d, n), (d, n), (d, d), (d, d))
    if aligned:
        common, tokens = _rank_one(d, n, count, generator), _rank_one(d, n, count, generator)
        column = common[:, :, :1]
        raw = [common, tokens, column @ column.mT, column @ _rank_one(1, d, count, generator)]
    else:
        raw = [
            torch.randn(count, *shape, generator=generator, dtype=torch.float64) for shape in shapes
        ]
    x, y, w, v = (scale_to_norm(m, radius) for m in raw)
    b = (2 * torch.rand(count, n, d, generator=generator, dtype=torch.float64) - 1) * radius**2
    close = torch.arange(count)[:, None, None] % 2 == 0
    y = torch.where(
        close, (1 - setup.near) * x + 0.5 * setup.near * y, 0.9 * y
    )  # inside the ball, never X itself
    return x, y, w, v, b


def draw_raw(n: int, d: int, count: int, generator: torch.Generator) -> list[Tensor]:
    """Free parameters of X, a displacement, W, V and B."""
    shapes = ((d, n), (d, n), (d, d), (d, d), (n, d))
    return [
        torch.randn(count, *shape, generator=generator, dtype=torch.float64) for shape in shapes
    ]


def feasible(raw: list[Tensor], radius: float, near: float) -> Instance:
    """Map free parameters into Assumption G.1: |X| = (1 - near) R, Y within near R of it, |W| = |V|
    = R, |b| < R^2."""
    x, w, v = (scale_to_norm(raw[i], radius) for i in (0, 2, 3))
    x = (1 - near) * x
    return x, x + near * scale_to_norm(raw[1], radius), w, v, radius**2 * torch.tanh(raw[4])


def climb(name: str, raw: list[Tensor], radius: float, setup: AttentionHessian) -> Tensor:
    """Largest value of one bound's left-hand side that Adam finds from each start (starts,)."""
    parameters = [m.clone().requires_grad_() for m in raw]
    optimiser = torch.optim.Adam(parameters, lr=setup.ascent_rate)
    best = torch.full((len(raw[0]),), -math.inf, dtype=torch.float64)
    for _ in range(setup.ascent_steps):
        optimiser.zero_grad()
        x, y, w, v, b = feasible(parameters, radius, setup.near)
        values = pair_value(name, x, y, w, v, b) if name in MOVED else POINT[name](x, w, v, b)
        best = torch.maximum(best, values.detach())
        # the starts are independent, and the logarithm gives each the same weight; -lambda_min may
        # be negative
        objective = values.sum() if name == "I.3" else values.clamp_min(1e-12).log().sum()
        (-objective).backward()
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.nan_to_num_(0.0, 0.0, 0.0)
        optimiser.step()
    return best


def _convexity(
    x: Tensor, w: Tensor, v: Tensor, b: Tensor, n: int, d: int, radius: float
) -> dict[str, Any]:
    """Smallest gamma that makes the regularised Hessian semi-definite at every instance, next to
    the paper's."""
    smallest = torch.linalg.eigvalsh(att.hessian(x, w, v, b))[:, 0]
    return {
        "share_indefinite": float((smallest < 0).double().mean()),
        "needed_gamma": max(0.0, -float(smallest.min()) / 2),
        "admissible_gamma": BOUNDS["I.3"].printed(n, d, radius),
    }


def _accuracy(x: Tensor, w: Tensor, v: Tensor, b: Tensor) -> dict[str, Any]:
    """Largest relative error of the closed-form Hessian and of its product against automatic
    differentiation."""
    hessian_error = product_error = 0.0
    for xi, wi, vi, bi in zip(x, w, v, b, strict=True):
        d = xi.shape[0]

        def loss(
            flat: Tensor, w: Tensor = wi, v: Tensor = vi, b: Tensor = bi, d: int = d
        ) -> Tensor:
            x = att.unvec(flat, d)
            return (torch.softmax((x.mT @ w @ x).mT, -1) @ (x.mT @ v) - b).square().sum()

        exact = torch.func.hessian(loss)(att.vec(xi))
        found = att.hessian(xi, wi, vi, bi)
        probe = torch.ones_like(xi)
        product = att.vec(att.hessian_vector_product(xi, wi, vi, bi, probe))
        hessian_error = max(hessian_error, float((found - exact).norm() / exact.norm()))
        product_error = max(
            product_error, float((product - exact @ att.vec(probe)).norm() / exact.norm())
        )
    return {"hessian_error": hessian_error, "product_error": product_error, "instances": len(x)}
