"""Exp. 5 in closed form: norms of the measured blocks of both networks, for many data sets in little time.

Attention: f = 1/S Σ_s g_s + b with g_s = Σ_t a_st u_t, a_s = softmax(z_s), z_st = q_s·k_t/√d, u = V w. With
h_st = a_st (u_t − g_s), the first derivative of g_s by z_st, and c = 1/√d,

    ∂f/∂q_s = c/S Σ_t h_st k_t        ∂f/∂k_t = c/S Σ_s h_st q_s
    ∂²f/∂q_s∂k_t = 1/S (c h_st I + c² Σ_t' M^s_t't k_t' q_sᵀ),   M^s = diag(h_s) − a_s h_sᵀ − h_s a_sᵀ

ReLU network: f = wᵀ mean_s h³_s + b, h^k = relu(W_k h^{k−1} + b_k), which is linear in each of the h^k.

For the mean squared error over B samples, H = 2/B Σ_b (∂f_b/∂v ∂f_b/∂wᵀ + r_b ∂²f_b/∂v∂w) with the residual r_b.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from runner.models import Network


@dataclass(frozen=True)
class AttentionParts:
    """Of B samples: outputs (B,), gauss_newton (n, n) with n = S d, and curvature ∂²f/∂q∂k as (B, n·n)."""

    outputs: Tensor
    gauss_newton: Tensor
    curvature: Tensor

    def norms(self, y: Tensor) -> tuple[float, float, float]:
        """‖H‖_F, ‖H^GN‖_F, ‖H^T‖_F of the (query, key) block for targets y (B,)."""
        residual = (self.outputs - y) * 2 / len(y)
        tensor = (residual @ self.curvature).view_as(self.gauss_newton)
        found = (self.gauss_newton + tensor, self.gauss_newton, tensor)
        full, gauss_newton, rest = (float(torch.linalg.matrix_norm(m)) for m in found)
        return full, gauss_newton, rest


def attention_parts(network: Network, x: Tensor) -> AttentionParts:
    """The parts of `runner.models.attention_regressor` at inputs x (B, S, d), in the dtype of x."""
    stages: Any = network.stages
    wq, wk, wv = (stages[name].weight.detach().to(x) for name in "qkv")
    head = stages["head"].linear
    q, k, u = x @ wq.T, x @ wk.T, x @ wv.T @ head.weight.detach()[0].to(x)
    batch, tokens, width = x.shape
    c = width**-0.5
    a = torch.softmax(c * q @ k.mT, -1)
    g = (a * u[:, None]).sum(-1)
    h = a * (u[:, None] - g[..., None])
    by_q, by_k = (c / tokens * m for m in (h @ k, h.mT @ q))
    flat_q, flat_k = by_q.flatten(1), by_k.flatten(1)
    m = torch.diag_embed(h) - a[..., None] * h[..., None, :] - h[..., None] * a[..., None, :]  # (B, s, t', t)
    inner = torch.einsum("bspt,bpi->bsit", m, k)
    second = c**2 * torch.einsum("bsit,bsj->bsitj", inner, q)
    second += c * h[:, :, None, :, None] * torch.eye(width, dtype=x.dtype)[:, None]
    n = tokens * width
    outputs = g.mean(-1) + float(head.bias.detach())
    return AttentionParts(outputs, flat_q.T @ flat_k * (2 / batch), (second / tokens).reshape(batch, n * n))


def attention_gauss_newton(network: Network, x: Tensor) -> float:
    """‖H^GN‖_F of the (query, key) block alone: no targets, and none of the second derivatives."""
    stages: Any = network.stages
    wq, wk, wv = (stages[name].weight.detach().to(x) for name in "qkv")
    q, k, u = x @ wq.T, x @ wk.T, x @ wv.T @ stages["head"].linear.weight.detach()[0].to(x)
    c = x.shape[-1] ** -0.5
    a = torch.softmax(c * q @ k.mT, -1)
    h = a * (u[:, None] - (a * u[:, None]).sum(-1, keepdim=True))
    by_q, by_k = ((c / x.shape[1] * m).flatten(1) for m in (h @ k, h.mT @ q))
    return 2 / len(x) * float(((by_q @ by_q.T) * (by_k @ by_k.T)).sum().clamp_min(0).sqrt())


def relu_norms(network: Network, x: Tensor) -> dict[str, float]:
    """‖H‖_F of every pair of blocks of `runner.models.positionwise_mlp`, by "block0-block1", …

    "… shared": for one shift of the block's output at all positions, a d×d block.
    """
    blocks: list[Any] = [stage.module.linear for stage in network.graph() if stage.name.startswith("block")]
    activations, h = [], x
    for layer in blocks:
        h = torch.relu(h @ layer.weight.detach().to(x).T + layer.bias.detach().to(x))
        activations.append(h)
    head: Any = next(stage.module.linear for stage in network.graph() if stage.name == "head")
    by = [head.weight.detach()[0].to(x).expand_as(h) / x.shape[1]]
    for layer, out in zip(blocks[:0:-1], activations[:0:-1], strict=True):
        by.insert(0, (by[0] * (out > 0)) @ layer.weight.detach().to(x))
    found = {}
    for v, w in combinations(range(len(blocks)), 2):
        for name, (p, r) in {
            "": (by[v].flatten(1), by[w].flatten(1)),
            " shared": (by[v].sum(1), by[w].sum(1)),
        }.items():
            size = 2 / len(x) * float(((p @ p.T) * (r @ r.T)).sum().clamp_min(0).sqrt())
            found[f"block{v}-block{w}{name}"] = size
    return found
