"""Identity 5: the loss is minus the logarithm of a distribution's density, up to a constant factor
and summand.

Then d loss/df = c (mean(f) - target) with one c > 0 for all rows, and the Fisher matrix E[g g^T],
the targets drawn from the distribution, is J^T (d2 loss/df2) J: the matrix A of natural parameters
f is c times their covariance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor

from runner.curvature.function.errors import MeasurementError
from runner.curvature.function.identities import Outcome

Likelihood = Literal["categorical", "bernoulli", "normal"]
LIKELIHOODS = ("categorical", "bernoulli", "normal")


def likelihood(
    outputs: list[Tensor],
    slopes: list[Tensor],
    target: object,
    name: Likelihood | None,
    slope_at: Callable[[Tensor], Tensor] | None = None,
) -> Outcome:
    """Which distribution the slope d loss/df belongs to. name: the only one that is tried.
    slope_at: the slope elsewhere, as a vector of outputs to a vector, where c is compared."""
    if name is not None and name not in LIKELIHOODS:
        raise MeasurementError(f"expected likelihood as one of {list(LIKELIHOODS)}, found {name!r}")
    error = 1.0
    allowed = 0.0
    best: str = name or "any"
    if len(outputs) == 1 and isinstance(target, Tensor):
        f = outputs[0].detach()
        slope = slopes[0].detach()
        eps = torch.finfo(f.dtype).eps
        allowed = 1e-10
        if f.dtype != torch.float64:
            allowed = max(1e-5, 4 * eps)
        least = 4 * eps / allowed
        place = 0
        residual = torch.zeros_like(f)
        for i, (kind, candidate) in enumerate(_residuals(f, target)):
            misfit = 1.0
            if name in (None, kind):
                misfit = _misfit(slope, candidate, least)
            if misfit < error:
                error = misfit
                best = kind
                place = i
                residual = candidate
        if slope_at is not None and error <= allowed:
            beyond = f + residual / 8
            slopes_there = slope_at(beyond.reshape(-1)).reshape(f.shape)
            _, there = [*_residuals(beyond, target)][place]
            error = _misfit(torch.cat([slope, slopes_there]), torch.cat([residual, there]), least)
    return Outcome("5 likelihood", "right" if error <= allowed else "wrong", error, (best,))


def _residuals(f: Tensor, y: Tensor) -> Iterator[tuple[str, Tensor]]:
    """mean - target of each distribution, in the shape of f; zero in rows whose label is out of
    range."""
    dims = {0}
    if f.dim() > 1:
        dims = {1, f.dim() - 1}
    if y.numel() == f.numel():
        values = y.reshape(f.shape).to(f.dtype)
        yield "normal", f - values
        yield "bernoulli", f.sigmoid() - values
    if y.shape == f.shape:
        for dim in dims:
            yield "categorical", f.softmax(dim) - y.to(f.dtype)
    for dim in dims:
        if y.is_floating_point() or f.numel() != y.numel() * f.shape[dim]:
            continue
        rows = f.unsqueeze(0)
        if f.dim() > 1:
            rows = f.movedim(dim, -1).flatten(0, -2)
        labels = y.reshape(-1).long()
        valid = (labels >= 0) & (labels < f.shape[dim])
        hot = torch.nn.functional.one_hot(labels.where(valid, 0), f.shape[dim])
        hot = hot.to(f.dtype)
        means = {"categorical": rows.softmax(1), "bernoulli": rows.sigmoid(), "normal": rows}
        for kind, mean in means.items():
            residual = (mean - hot) * valid.unsqueeze(1)
            if f.dim() > 1:
                shape = [*f.shape[:dim], *f.shape[dim + 1 :], f.shape[dim]]
                residual = residual.reshape(shape).movedim(-1, dim)
            yield kind, residual.reshape(f.shape)


def _misfit(slope: Tensor, residual: Tensor, least: float) -> float:
    """|slope - c residual| / |slope| at the best c; 1 where that is not positive. Rows that do not
    move the loss, such as those of ignored labels, are left out. least: residuals below it, which
    are differences of numbers near 1, have too few digits to be told from others."""
    counted = slope != 0
    if slope.dim() == 2:
        counted = slope.reshape(slope.shape[0], -1).any(1)
    s = slope[counted].double().reshape(-1)
    r = residual[counted].double().reshape(-1)
    factor = float(s.dot(r)) / max(float(r.dot(r)), 1e-300)
    if factor <= 0 or not float(s.norm()) > 0:
        return 1.0
    floor = factor * least * math.sqrt(s.numel())
    return float((s - factor * r).norm()) / max(float(s.norm()), floor)
