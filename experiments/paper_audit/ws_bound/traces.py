"""WS-bound paper, Theorems 1 and 2: network, gradient, Hessian and trace."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, diag, outer
from torch.nn.functional import binary_cross_entropy_with_logits

from experiments.paper_audit.checks import Checks
from experiments.paper_audit.tensors import block_matrix, ones, unit
from experiments.paper_audit.three_layer import Instance, Sample, derivative, equality
from experiments.paper_audit.three_layer_pairs import kron

CHECKS = Checks()
Term = Callable[[Sample], Tensor]


def ww(instance: Instance) -> Tensor:
    return instance.hessian[: instance.count, : instance.count]


def vv(instance: Instance) -> Tensor:
    return instance.hessian[instance.count :, instance.count :]


def vw(instance: Instance) -> Tensor:
    return instance.hessian[instance.count :, : instance.count]


def dense_hessian(instance: Instance) -> Tensor:
    return instance.hessian


def stacked(instance: Instance, term: Term) -> Tensor:
    return torch.stack([term(i) for i in instance.samples])


def total(term: Term) -> Callable[[Instance], Tensor]:
    """Σ_i of a term of one sample."""
    return lambda instance: stacked(instance, term).sum(0)


def logits(instance: Instance) -> Tensor:
    return stacked(instance, lambda i: i.z)


def forward(instance: Instance) -> Tensor:
    """Eq. 1 written with four parameters W̃, b, Ṽ, c."""
    columns = instance.theta[: instance.count].reshape(-1, instance.units).T
    y = columns[:, 1:] @ instance.x.T + columns[:, :1]
    i = instance.samples[0]
    values = derivative(i.name, 0)(y.T.flatten())
    return values.reshape(len(instance.x), -1) @ i.V + i.full[0]


def entropy(i: Sample) -> Tensor:
    """Eq. 4 with p itself."""
    return -i.q * torch.log(i.p) - (1 - i.q) * torch.log(1 - i.p)


def dense_loss(instance: Instance) -> Tensor:
    return binary_cross_entropy_with_logits(logits(instance), instance.q, reduction="sum")


CHECKS["ws.eq1"] = equality(forward, logits)
CHECKS["ws.eq4"] = equality(total(entropy), dense_loss)


def eigen(instance: Instance) -> Tensor:
    """U diag(λ) Uᵀ with real λ_1 >= ... >= λ_D (Eq. 6 and the display after it)."""
    values, vectors = torch.linalg.eigh(instance.hessian)
    values, vectors = values.flip(0), vectors.flip(1)
    assert not values.is_complex() and bool((values.diff() <= 0).all())
    return vectors @ diag(values) @ vectors.T


CHECKS["ws.eq6"] = equality(eigen, dense_hessian)


def gradient(instance: Instance) -> Tensor:
    """Eqs. 11–13."""
    by_w = total(lambda i: i.delta * kron(i.hx, i.F(1) @ i.V))(instance)
    by_v = total(lambda i: i.delta * i.hr)(instance)
    return torch.cat([by_w, by_v])


CHECKS["ws.proposition2"] = equality(gradient, lambda c: c.gradient)


def block_ww(i: Sample) -> Tensor:
    """Eq. 15."""
    a = i.F(1) @ i.V
    hidden = i.s1 * outer(a, a) + i.delta * diag(i.V) @ i.F(2)
    return kron(outer(i.hx, i.hx), hidden)


def block_vv(i: Sample) -> Tensor:
    """Eq. 16."""
    return i.s1 * outer(i.hr, i.hr)


def block_vw(i: Sample) -> Tensor:
    """Eq. 17."""
    return kron(i.hx[None], i.s1 * outer(i.hr, i.V @ i.F(1)) + i.delta * i.F0(1))


def block_wv(i: Sample) -> Tensor:
    """Eq. 18."""
    return kron(i.hx[:, None], i.s1 * outer(i.F(1) @ i.V, i.hr) + i.delta * i.F0(1).T)


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
    return torch.stack([diag(i.d(1)), diag(i.d(2))])


def true_jacobians(instance: Instance) -> Tensor:
    """df/dy and df'/dy by automatic differentiation."""
    i = instance.samples[0]
    return torch.stack([torch.func.jacrev(derivative(i.name, k))(i.y) for k in (0, 1)])


CHECKS["ws.eq35"] = equality(jacobians, true_jacobians)


def trace_ww(instance: Instance) -> Tensor:
    """Eq. 20 in matrix form."""
    V, X = instance.samples[0].V, instance.x.T
    slopes, bends = stacked(instance, lambda i: i.d(1)), stacked(instance, lambda i: i.d(2))
    s, delta = stacked(instance, lambda i: i.s1), stacked(instance, lambda i: i.delta)
    eye = unit(len(instance.x))
    norms = (eye + X.T @ X * eye) @ ones(len(instance.x))
    return (s * (slopes**2 @ V**2) + delta * (bends @ V)) @ norms


def trace_vv(instance: Instance) -> Tensor:
    """Eq. 21 in matrix form."""
    R = stacked(instance, lambda i: i.f).T
    eye = unit(len(instance.x))
    norms = (eye + R.T @ R * eye) @ ones(len(instance.x))
    return stacked(instance, lambda i: i.s1) @ norms


CHECKS["ws.eq19"] = equality(lambda c: trace_ww(c) + trace_vv(c), lambda c: c.hessian.trace())
CHECKS["ws.eq20"] = equality(trace_ww, lambda c: ww(c).trace())
CHECKS["ws.eq21"] = equality(trace_vv, lambda c: vv(c).trace())


def sample_traces(i: Sample) -> Tensor:
    """Eq. 64: traces of the blocks (v, v) and (w, w) of one sample."""
    slope = (i.F(1) @ i.V).square().sum()
    by_w = i.norm * (i.s1 * slope + i.delta * (i.V @ i.d(2)))
    return torch.stack([i.s1 * (1 + i.f @ i.f), by_w])


def traces_of_blocks(i: Sample) -> Tensor:
    return torch.stack([block_vv(i).trace(), block_ww(i).trace()])


CHECKS["ws.eq64"] = equality(
    lambda c: stacked(c, sample_traces).T, lambda c: stacked(c, traces_of_blocks).T
)
