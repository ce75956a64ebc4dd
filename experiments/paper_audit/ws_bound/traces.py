"""WS-bound paper, Theorems 1 to 4: the model, the bound, gradient and Hessian, the trace and its bounds."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from experiments.paper_audit.formula import Formula
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


TRACES: tuple[Formula, ...] = (
    Formula(
        "ws.eq1",
        "Eqs. 1-3",
        "z with four parameters equals z with h(x), h(r) and theta = [vec W, v]",
        equality(_forward, lambda c: stacked(c, lambda i: i.z)),
    ),
    Formula(
        "ws.eq4",
        "Eqs. 4, 5",
        "L = Σ_i −q log p − (1 − q) log(1 − p), a sum over samples",
        equality(
            _by_entropy,
            lambda c: torch.nn.functional.binary_cross_entropy_with_logits(
                stacked(c, lambda i: i.z), c.q, reduction="sum"
            ),
        ),
    ),
    Formula(
        "ws.eq6",
        "Eq. 6",
        "H = U diag(λ) Uᵀ, real eigenvalues in falling order",
        equality(_eigen, lambda c: c.hessian),
    ),
    Formula("ws.theorem1", "Theorem 1, Eqs. 7-9", "λ_1 <= λ_sup = μ + √(D−1) σ", inequality(_excess_upper)),
    Formula(
        "ws.proposition2",
        "Proposition 2, Eqs. 11-13",
        "∂l/∂w = delta h(x) ⊗ (F'(y) Ṽᵀ), ∂l/∂v = delta h(r), delta = p − q",
        equality(_gradient, lambda c: c.gradient),
    ),
    Formula(
        "ws.proposition3",
        "Proposition 3, Eq. 14",
        "H is made of its four blocks",
        equality(_whole, lambda c: c.hessian),
    ),
    Formula(
        "ws.eq15",
        "Proposition 4, Eq. 15",
        "H(w,w) = h(x)h(x)ᵀ ⊗ (s' F'ṼᵀṼF' + delta diag(Ṽᵀ) F'')",
        equality(total(block_ww), ww),
    ),
    Formula("ws.eq16", "Eq. 16", "H(v,v) = s' h(r)h(r)ᵀ", equality(total(block_vv), vv)),
    Formula("ws.eq17", "Eq. 17", "H(v,w) = h(x)ᵀ ⊗ (s' h(r) ṼF' + delta [0ᵀ; F'])", equality(total(block_vw), vw)),
    Formula(
        "ws.eq18",
        "Eq. 18",
        "H(w,v) = h(x) ⊗ (s' F'Ṽᵀ h(r)ᵀ + delta [0 F'])",
        equality(total(block_wv), lambda c: vw(c).T),
    ),
    Formula(
        "ws.eq19",
        "Theorem 2, Eq. 19",
        "tr H = tr H(w,w) + tr H(v,v)",
        equality(lambda c: _trace_ww(c) + _trace_vv(c), lambda c: c.hessian.trace()),
    ),
    Formula("ws.eq35", "Eq. 35", "df/dy = F' = diag f', df'/dy = diag f''", equality(_jacobians, _true_jacobians)),
    Formula(
        "ws.eq20",
        "Theorem 2, Eq. 20",
        "tr H(w,w) = (s'⊙(F'^⊙2 Ṽ^⊙2ᵀ) + delta⊙(F''Ṽᵀ))ᵀ (E + XᵀX⊙E) 1",
        equality(_trace_ww, lambda c: ww(c).trace()),
    ),
    Formula(
        "ws.eq21", "Theorem 2, Eq. 21", "tr H(v,v) = s'ᵀ (E + RᵀR⊙E) 1", equality(_trace_vv, lambda c: vv(c).trace())
    ),
    Formula(
        "ws.theorem3",
        "Theorem 3, Eq. 22",
        "tr H(v,v) <= I(N+1)/4 for sigmoid and tanh",
        inequality(_excess_vv, ("sigmoid", "tanh")),
    ),
    Formula(
        "ws.theorem4",
        "Theorem 4, Eq. 23",
        "tr H(w,w) <= (ζ_1||Ṽ||²/4 + ζ_2|Ṽ|1) Σ(1 + xᵀx), ζ of linear, sigmoid, tanh, SmoothReLU",
        inequality(excess_ww, INCREASING),
    ),
    Formula(
        "ws.eq57", "Lemma 1, Eq. 57", "H(v,w)ᵀ = H(w,v)", equality(total(block_wv), lambda c: total(block_vw)(c).T)
    ),
    Formula(
        "ws.eq64",
        "Eqs. 64, 65",
        "tr H_l(v,v) = s'(1 + rᵀr), tr H_l(w,w) = (1 + xᵀx)(s'||F'Ṽᵀ||² + delta Ṽf'')",
        equality(
            lambda c: torch.stack(
                [
                    stacked(c, lambda i: i.s1 * (1 + i.f @ i.f)),
                    stacked(c, lambda i: i.norm * (i.s1 * (i.F(1) @ i.V).square().sum() + i.delta * (i.V @ i.d(2)))),
                ]
            ),
            lambda c: torch.stack(
                [stacked(c, lambda i: block_vv(i).trace()), stacked(c, lambda i: block_ww(i).trace())]
            ),
        ),
    ),
)
