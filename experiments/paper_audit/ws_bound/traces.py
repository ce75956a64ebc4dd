"""WS-bound paper, Theorems 1 to 4: the model, the bound, gradient and Hessian, the trace and its bounds."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from experiments.paper_audit.formula import Entry
from experiments.paper_audit.three_layer.checks import equality, inequality
from experiments.paper_audit.three_layer.oracle import INCREASING, Instance, derivative
from experiments.paper_audit.three_layer.pair_terms import kron
from experiments.paper_audit.ws_bound.activations import gelu_slope
from experiments.paper_audit.ws_bound.terms import (
    block_vv,
    block_vw,
    block_wv,
    block_ww,
    stacked,
    total,
    vv,
    vw,
    ww,
)

SLOPE = {"linear": 1.0, "sigmoid": 1 / 16, "tanh": 1.0, "softplus": 1.0, "gelu": gelu_slope() ** 2}


BEND = {
    "linear": 0.0,
    "sigmoid": math.sqrt(3) / 18,
    "tanh": 4 * math.sqrt(3) / 9,
    "softplus": 0.25,
    "gelu": math.sqrt(2 / math.pi),
}


def _forward(instance: Instance) -> Tensor:
    """Eq. 1 written with four parameters W̃, b, Ṽ, c."""
    columns = instance.theta[: instance.count].reshape(-1, instance.units).T
    y = columns[:, 1:] @ instance.x.T + columns[:, :1]
    i = instance.samples[0]
    r = type(i)(i.hx, y.T.flatten(), i.V, i.full, i.z, i.q, i.name).f.reshape(len(instance.x), -1)
    return r @ i.V + i.full[0]


def _by_entropy(instance: Instance) -> Tensor:
    """Eq. 4 with p itself."""
    return torch.stack([-i.q * torch.log(i.p) - (1 - i.q) * torch.log(1 - i.p) for i in instance.samples]).sum()


def _whole(instance: Instance) -> Tensor:
    """Eq. 14 with the blocks of Eqs. 15–18."""
    blocks = [total(part)(instance) for part in (block_ww, block_wv, block_vw, block_vv)]
    return torch.cat([torch.cat(blocks[:2], 1), torch.cat(blocks[2:], 1)])


def _trace_ww(instance: Instance) -> Tensor:
    """Eq. 20 in matrix form."""
    slopes, bends = stacked(instance, lambda i: i.d(1)), stacked(instance, lambda i: i.d(2))
    s, delta = stacked(instance, lambda i: i.s1), stacked(instance, lambda i: i.delta)
    V, X, ones = instance.samples[0].V, instance.x.T, torch.ones(len(instance.x)).double()
    eye = torch.eye(len(instance.x)).double()
    return (s * (slopes**2 @ V**2) + delta * (bends @ V)) @ ((eye + X.T @ X * eye) @ ones)


def _trace_vv(instance: Instance) -> Tensor:
    """Eq. 21 in matrix form."""
    R, eye = stacked(instance, lambda i: i.f).T, torch.eye(len(instance.x)).double()
    return stacked(instance, lambda i: i.s1) @ ((eye + R.T @ R * eye) @ torch.ones(len(instance.x)).double())


def _excess_upper(instance: Instance) -> float:
    eigenvalues = torch.linalg.eigvalsh(instance.hessian)
    bound = eigenvalues.mean() + math.sqrt(len(eigenvalues) - 1) * eigenvalues.std(correction=0)
    return float((eigenvalues[-1] - bound) / eigenvalues.abs().max())


def _excess_vv(instance: Instance) -> float:
    bound = len(instance.x) * (instance.units + 1) / 4
    return (float(vv(instance).trace()) - bound) / bound


def excess_ww(instance: Instance) -> float:
    V, norms = instance.samples[0].V, float(sum(i.norm for i in instance.samples))
    bound = (SLOPE[instance.name] / 4 * float(V @ V) + BEND[instance.name] * float(V.abs().sum())) * norms
    return (float(ww(instance).trace()) - bound) / bound


def _eigen(instance: Instance) -> Tensor:
    """U diag(λ) Uᵀ with real λ_1 >= ... >= λ_D (Eq. 6 and the display after it)."""
    values, vectors = torch.linalg.eigh(instance.hessian)
    values, vectors = values.flip(0), vectors.flip(1)
    assert not values.is_complex() and bool((values.diff() <= 0).all())
    return vectors @ torch.diag(values) @ vectors.T


def _jacobians(instance: Instance) -> Tensor:
    """F' = diag(f') and F'' = diag(f'') (Eq. 35) of the first sample."""
    i = instance.samples[0]
    return torch.stack([torch.diag(i.d(1)), torch.diag(i.d(2))])


def _true_jacobians(instance: Instance) -> Tensor:
    """df/dy and df'/dy by automatic differentiation."""
    i = instance.samples[0]
    return torch.stack([torch.func.jacrev(derivative(i.name, k))(i.y) for k in (0, 1)])


def _gradient(instance: Instance) -> Tensor:
    """Eqs. 11–13."""
    by_w = total(lambda i: i.delta * kron(i.hx, i.F(1) @ i.V))(instance)
    return torch.cat([by_w, total(lambda i: i.delta * i.hr)(instance)])


CHECKS: dict[str, Entry] = {
    "ws.eq1": equality(_forward, lambda c: stacked(c, lambda i: i.z)),
    "ws.eq4": equality(
        _by_entropy,
        lambda c: torch.nn.functional.binary_cross_entropy_with_logits(stacked(c, lambda i: i.z), c.q, reduction="sum"),
    ),
    "ws.eq6": equality(_eigen, lambda c: c.hessian),
    "ws.theorem1": inequality(_excess_upper),
    "ws.proposition2": equality(_gradient, lambda c: c.gradient),
    "ws.proposition3": equality(_whole, lambda c: c.hessian),
    "ws.eq15": equality(total(block_ww), ww),
    "ws.eq16": equality(total(block_vv), vv),
    "ws.eq17": equality(total(block_vw), vw),
    "ws.eq18": equality(total(block_wv), lambda c: vw(c).T),
    "ws.eq19": equality(lambda c: _trace_ww(c) + _trace_vv(c), lambda c: c.hessian.trace()),
    "ws.eq35": equality(_jacobians, _true_jacobians),
    "ws.eq20": equality(_trace_ww, lambda c: ww(c).trace()),
    "ws.eq21": equality(_trace_vv, lambda c: vv(c).trace()),
    "ws.theorem3": inequality(_excess_vv, ("sigmoid", "tanh")),
    "ws.theorem4": inequality(excess_ww, INCREASING),
    "ws.eq57": equality(total(block_wv), lambda c: total(block_vw)(c).T),
    "ws.eq64": equality(
        lambda c: torch.stack(
            [
                stacked(c, lambda i: i.s1 * (1 + i.f @ i.f)),
                stacked(c, lambda i: i.norm * (i.s1 * (i.F(1) @ i.V).square().sum() + i.delta * (i.V @ i.d(2)))),
            ]
        ),
        lambda c: torch.stack([stacked(c, lambda i: block_vv(i).trace()), stacked(c, lambda i: block_ww(i).trace())]),
    ),
}
