"""Instances under Assumption G.1, random or found by gradient ascent, and the bounds measured on
them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from experiments.attention.bounds import BOUNDS, case_norms, left_side, scale_to_norm
from experiments.attention.settings import AttentionHessian
from experiments.certificates import STREAM, of_hessian
from runner.closed_form import attention as att
from runner.contract import Cell, Context, Table

CLIMBED = ("G.3", "G.4", "H.3", "H.4", "H.7", "H.8", "H.9", "H.10", "I.1", "I.2", "I.3")
"""Bounds whose ratio is maximised; the others are attained by random instances already."""

Row = dict[str, Any]
Instance = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""X, Y, W, V, B with leading dimension for the instances."""


def measure(setup: AttentionHessian, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Tables of one cell: `bounds` always; `cases`, `convexity` and `accuracy` for the random
    searches."""
    n = int(cell.params["tokens"])
    d = int(cell.params["width"])
    radius = float(cell.params["radius"])
    generator = ctx.torch_generator(f"attention_hessian {cell.label}")
    search = cell.params["search"]
    rows = []
    if search == "ascent":
        for i, name in enumerate(CLIMBED):
            ctx.progress(i, len(CLIMBED), name)
            raw = draw_raw(n, d, setup.ascent_starts, generator)
            largest = climb(name, raw, radius, setup)
            rows.append(_bound_row(name, largest, n, d, radius))
        example = draw_raw(n, d, 1, ctx.torch_generator(STREAM))
        x, _, w, v, b = feasible(example, radius, setup.near)
        return {"bounds": rows, "certificate": [_certificate(x, w, v, b, ctx)]}
    aligned = search == "rank one"
    x, y, w, v, b = draw(aligned, n, d, radius, setup, generator)
    for name in BOUNDS:
        rows.append(_bound_row(name, left_side(name, x, y, w, v, b), n, d, radius))
    norms = case_norms(x, w, v)
    convexity = _convexity(x, w, v, b, radius)
    accuracy = _accuracy(x, w, v, b, setup.checked)
    return {
        "bounds": rows,
        "cases": _case_rows(norms),
        "convexity": [convexity],
        "accuracy": [accuracy],
        "certificate": [_certificate(x, w, v, b, ctx)],
    }


def loss(flat: Tensor, w: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """The squared error of one instance at vec X, written without the closed forms."""
    x = att.unvec(flat, w.shape[0])
    scores = (x.mT @ w @ x).mT
    attention = torch.softmax(scores, -1)
    residual = attention @ (x.mT @ v) - b
    return residual.square().sum()


def _certificate(x: Tensor, w: Tensor, v: Tensor, b: Tensor, ctx: Context) -> Row:
    """Row of `certificate`: the closed-form Hessian of the first instance of the cell."""
    first = (x[0], w[0], v[0], b[0])
    hessian = att.hessian(*first)
    return of_hessian("Hessian", hessian, lambda flat: loss(flat, *first[1:]), att.vec(x[0]), ctx)


def _bound_row(name: str, values: Tensor, n: int, d: int, radius: float) -> Row:
    bound = BOUNDS[name]
    constant = bound.printed(n, d, radius)
    sharper = math.nan
    if bound.sharper:
        sharper = bound.sharper(n, d, radius)
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


def _case_rows(norms: Tensor) -> list[Row]:
    """Largest and median block norm of each of the four cases, from (instances, 4)."""
    rows = []
    for case, values in enumerate(norms.unbind(1), 1):
        largest = float(values.max())
        median = float(values.median())
        rows.append({"case": case, "largest": largest, "median": median})
    return rows


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _rank_one(rows: int, cols: int, count: int, generator: torch.Generator) -> Tensor:
    left = _normal(generator, count, rows, 1)
    right = _normal(generator, count, 1, cols)
    return left * right


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
    if aligned:
        common = _rank_one(d, n, count, generator)
        tokens = _rank_one(d, n, count, generator)
        column = common[:, :, :1]
        scores = column @ column.mT
        raw = [common, tokens, scores, column @ _rank_one(1, d, count, generator)]
    else:
        raw = [_normal(generator, count, *shape) for shape in ((d, n), (d, n), (d, d), (d, d))]
    x, y, w, v = (scale_to_norm(m, radius) for m in raw)
    uniform = torch.rand(count, n, d, generator=generator, dtype=torch.float64)
    b = (2 * uniform - 1) * radius**2
    even = torch.arange(count)[:, None, None] % 2 == 0
    near = (1 - setup.near) * x + 0.5 * setup.near * y  # inside the ball, never X itself
    y = torch.where(even, near, 0.9 * y)
    return x, y, w, v, b


def draw_raw(n: int, d: int, count: int, generator: torch.Generator) -> list[Tensor]:
    """Free parameters of X, a displacement, W, V and B."""
    return [_normal(generator, count, *shape) for shape in ((d, n), (d, n), (d, d), (d, d), (n, d))]


def feasible(raw: list[Tensor], radius: float, near: float) -> Instance:
    """Map free parameters into Assumption G.1: |X| = (1 - near) R, Y within near R of it, |W| = |V|
    = R, |b| < R^2."""
    *matrices, targets = raw
    x, step, w, v = (scale_to_norm(matrix, radius) for matrix in matrices)
    x = (1 - near) * x
    y = x + near * step
    b = radius**2 * torch.tanh(targets)
    return x, y, w, v, b


def climb(name: str, raw: list[Tensor], radius: float, setup: AttentionHessian) -> Tensor:
    """Largest value of one bound's left-hand side that Adam finds from each start (starts,)."""
    parameters = [m.clone().requires_grad_() for m in raw]
    optimiser = torch.optim.Adam(parameters, lr=setup.ascent_rate)
    starts = len(raw[0])
    best = torch.full((starts,), -math.inf, dtype=torch.float64)
    for _ in range(setup.ascent_steps):
        optimiser.zero_grad()
        values = left_side(name, *feasible(parameters, radius, setup.near))
        best = torch.maximum(best, values.detach())
        if name != "I.3":  # -lambda_min may be negative
            # the starts are independent, and the logarithm gives each the same weight
            values = values.clamp_min(1e-12).log()
        objective = -values.sum()
        objective.backward()
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.nan_to_num_(0.0, 0.0, 0.0)
        optimiser.step()
    return best


def _convexity(x: Tensor, w: Tensor, v: Tensor, b: Tensor, radius: float) -> Row:
    """Smallest gamma that makes the regularised Hessian semi-definite at every instance, next to
    the paper's."""
    d, n = x.shape[-2:]
    smallest = torch.linalg.eigvalsh(att.hessian(x, w, v, b))[:, 0]
    share = float((smallest < 0).double().mean())
    return {
        "share_indefinite": share,
        "needed_gamma": max(0.0, -float(smallest.min()) / 2),
        "admissible_gamma": BOUNDS["I.3"].printed(n, d, radius),
    }


def _accuracy(x: Tensor, w: Tensor, v: Tensor, b: Tensor, checked: int) -> Row:
    """Largest relative error of the closed-form Hessian and of its product against automatic
    differentiation, over the first `checked` instances."""
    hessian_error = 0.0
    product_error = 0.0
    instances = list(zip(x, w, v, b, strict=True))[:checked]
    for instance in instances:
        xi, *rest = instance
        exact = torch.func.hessian(loss)(att.vec(xi), *rest)
        size = exact.norm()
        probe = torch.ones_like(xi)
        product = att.vec(att.hessian_vector_product(*instance, probe))
        difference = (att.hessian(*instance) - exact).norm()
        hessian_error = max(hessian_error, float(difference / size))
        difference = (product - exact @ att.vec(probe)).norm()
        product_error = max(product_error, float(difference / size))
    return {
        "hessian_error": hessian_error,
        "product_error": product_error,
        "instances": len(instances),
    }
