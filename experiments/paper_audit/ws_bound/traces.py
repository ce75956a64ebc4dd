"""WS-bound paper, Theorems 1 and 2: network, gradient, Hessian and trace."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from experiments.paper_audit.checks import Checks
from experiments.paper_audit.formulas import lifted, outer
from experiments.paper_audit.tensors import block_matrix, ones, unit
from experiments.paper_audit.three_layer import Instance, Sample, derivative, equality
from experiments.paper_audit.three_layer_terms import (
    F01,
    F1,
    F2,
    V,
    bend,
    d1,
    d2,
    delta,
    diag,
    f,
    hidden_norm,
    hr,
    hx,
    kron,
    norm,
    p,
    q,
    s1,
    slope,
    squares,
    stack,
    z,
)

CHECKS = Checks()
Term = Callable[[Sample], Tensor]


def ww(instance: Instance) -> Tensor:
    return instance.hessian[instance.w, instance.w]


def vv(instance: Instance) -> Tensor:
    return instance.hessian[instance.v, instance.v]


def vw(instance: Instance) -> Tensor:
    return instance.hessian[instance.v, instance.w]


def dense_hessian(instance: Instance) -> Tensor:
    return instance.hessian


def stacked(instance: Instance, term: Term) -> Tensor:
    return torch.stack([term(i) for i in instance.samples])


def total(term: Term) -> Callable[[Instance], Tensor]:
    """Σ_i of a term of one sample."""
    return lambda instance: stacked(instance, term).sum(0)


def logits(instance: Instance) -> Tensor:
    return stacked(instance, z)


def forward(instance: Instance) -> Tensor:
    """Eq. 1 written with four parameters W̃, b, Ṽ, c."""
    columns = instance.theta[instance.w].reshape(-1, instance.units).T
    y = columns[:, 1:] @ instance.x.T + columns[:, :1]
    i = instance.samples[0]
    by_sample = derivative(i.name, 0)(y.T.flatten()).reshape(len(instance.x), -1)
    return by_sample @ i.V + i.full[0]


log = lifted(torch.log)
entropy = -q * log(p) - (1 - q) * log(1 - p)
"""Eq. 4 with p itself."""


def dense_loss(instance: Instance) -> Tensor:
    return binary_cross_entropy_with_logits(logits(instance), instance.q, reduction="sum")


CHECKS["ws.eq1"] = equality(forward, logits)
CHECKS["ws.eq4"] = equality(total(entropy), dense_loss)


def eigen(instance: Instance) -> Tensor:
    """U diag(λ) Uᵀ with real λ_1 >= ... >= λ_D (Eq. 6 and the display after it)."""
    values, vectors = torch.linalg.eigh(instance.hessian)
    values = values.flip(0)
    vectors = vectors.flip(1)
    assert not values.is_complex() and bool((values.diff() <= 0).all())
    return vectors @ torch.diag(values) @ vectors.T


CHECKS["ws.eq6"] = equality(eigen, dense_hessian)


of_sample = lifted(torch.cat)([delta * kron(hx, slope), delta * hr])
"""Eqs. 11–13, one sample."""
CHECKS["ws.proposition2"] = equality(total(of_sample), lambda c: c.gradient)


hidden_ww = s1 * outer(slope, slope) + delta * diag(V) @ F2
block_ww = kron(outer(hx, hx), hidden_ww)
"""Eq. 15."""
block_vv = s1 * outer(hr, hr)
"""Eq. 16."""
row = lifted(lambda vector: vector[None])
column = lifted(lambda vector: vector[:, None])
block_vw = kron(row(hx), s1 * outer(hr, V @ F1) + delta * F01)
"""Eq. 17."""
block_wv = kron(column(hx), s1 * outer(slope, hr) + delta * F01.T)
"""Eq. 18."""


def whole(instance: Instance) -> Tensor:
    """Eq. 14 with the blocks of Eqs. 15–18."""
    terms = (block_ww, block_wv, block_vw, block_vv)
    first, second, third, fourth = (total(term)(instance) for term in terms)
    return block_matrix([first, second], [third, fourth])


CHECKS["ws.proposition3"] = equality(whole, dense_hessian)
CHECKS["ws.eq15"] = equality(total(block_ww), ww)
CHECKS["ws.eq16"] = equality(total(block_vv), vv)
CHECKS["ws.eq17"] = equality(total(block_vw), vw)
CHECKS["ws.eq18"] = equality(total(block_wv), lambda c: vw(c).T)
CHECKS["ws.eq57"] = equality(total(block_wv), lambda c: total(block_vw)(c).T)


def jacobians(instance: Instance) -> Tensor:
    """F' = diag(f') and F'' = diag(f'') (Eq. 35) of the first sample."""
    i = instance.samples[0]
    first = torch.diag(i.d(1))
    second = torch.diag(i.d(2))
    return torch.stack([first, second])


def true_jacobians(instance: Instance) -> Tensor:
    """df/dy and df'/dy by automatic differentiation."""
    i = instance.samples[0]
    return torch.stack([torch.func.jacrev(derivative(i.name, k))(i.y) for k in (0, 1)])


CHECKS["ws.eq35"] = equality(jacobians, true_jacobians)


def trace_ww(instance: Instance) -> Tensor:
    """Eq. 20 in matrix form."""
    V = instance.samples[0].V
    X = instance.x.T
    slopes = stacked(instance, d1)
    bends = stacked(instance, d2)
    s = stacked(instance, s1)
    error = stacked(instance, delta)
    eye = unit(len(instance.x))
    diagonal = X.T @ X * eye
    norms = (eye + diagonal) @ ones(len(instance.x))
    by_slope = s * (slopes**2 @ V**2)
    return (by_slope + error * (bends @ V)) @ norms


def trace_vv(instance: Instance) -> Tensor:
    """Eq. 21 in matrix form."""
    R = stacked(instance, f).T
    eye = unit(len(instance.x))
    diagonal = R.T @ R * eye
    norms = (eye + diagonal) @ ones(len(instance.x))
    return stacked(instance, s1) @ norms


CHECKS["ws.eq19"] = equality(lambda c: trace_ww(c) + trace_vv(c), lambda c: c.hessian.trace())
CHECKS["ws.eq20"] = equality(trace_ww, lambda c: ww(c).trace())
CHECKS["ws.eq21"] = equality(trace_vv, lambda c: vv(c).trace())


trace_of_ww = norm * (s1 * squares(slope) + delta * bend)
sample_traces = stack([s1 * hidden_norm, trace_of_ww])
"""Eq. 64: traces of the blocks (v, v) and (w, w) of one sample."""
trace = lifted(torch.trace)
traces_of_blocks = stack([trace(block_vv), trace(block_ww)])
CHECKS["ws.eq64"] = equality(
    lambda c: stacked(c, sample_traces).T, lambda c: stacked(c, traces_of_blocks).T
)
