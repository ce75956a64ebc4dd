"""Norms of every pair of blocks of both networks of Exp. 5, in closed form; (query, key) is `search.closed`'s.

With f = wᵀ mean_s o_s + b, o_s = Σ_t a_st v_t, c = 1/√d and ā the mean of a over its rows,

    ∂f/∂v_t = ā_t w
    ∂²f/∂q_s∂v_t = c/S a_st (k_t − Σ_p a_sp k_p) wᵀ
    ∂²f/∂k_p∂v_t = c/S Σ_s a_st (δ_tp − a_sp) q_s wᵀ

so that a block with the values is (a matrix over positions and one width) ⊗ w, of the norm of that matrix times |w|.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from experiments.dag.exp5.search.closed import AttentionParts, attention_parts, relu_norms
from runner.models import Network

KINDS = ("full", "gn", "tensor")
ATTENTION_PAIRS = ("q-k", "q-v", "k-v")
RELU_PAIRS = tuple(f"block{v}-block{w}{how}" for v, w in ((0, 1), (0, 2), (1, 2)) for how in ("", " shared"))


class AttentionNorms:
    """‖H‖_F, ‖H^GN‖_F and ‖H^T‖_F of the three pairs at inputs x (B, S, d), for any targets."""

    def __init__(self, network: Network, x: Tensor) -> None:
        stages: Any = network.stages
        wq, wk = (stages[name].weight.detach() for name in "qk")
        wv, self.head = stages["v"].weight.detach(), stages["head"].linear.weight.detach()[0]
        q, k, u = x @ wq.T, x @ wk.T, x @ wv.T @ self.head
        tokens, c = x.shape[1], x.shape[2] ** -0.5
        a = torch.softmax(c * q @ k.mT, -1)
        h = a * (u[:, None] - (a * u[:, None]).sum(-1, keepdim=True))
        mean = a.mean(1)
        self.first = {"q-v": c / tokens * (h @ k), "k-v": c / tokens * (h.mT @ q)}
        self.first = {name: torch.einsum("bsi,bt->bsit", by, mean) for name, by in self.first.items()}
        by_q = a[:, :, None, :] * (k.mT[:, None] - (a @ k)[..., None])  # (B, s, i, t)
        diagonal = torch.einsum("bst,bsi->bti", a, q)
        by_k = torch.diag_embed(diagonal.mT).permute(0, 3, 1, 2) - torch.einsum("bst,bsp,bsi->bpit", a, a, q)
        self.second = {"q-v": c / tokens * by_q, "k-v": c / tokens * by_k}
        self.query_key: AttentionParts = attention_parts(network, x)

    def of(self, y: Tensor) -> dict[str, dict[str, float]]:
        """pair -> {"full", "gn", "tensor"} for targets y (B,)."""
        found = {"q-k": dict(zip(KINDS, self.query_key.norms(y), strict=True))}
        residual, scale = self.query_key.outputs - y, 2 / len(y)
        for pair in ATTENTION_PAIRS[1:]:
            gauss_newton = scale * self.first[pair].sum(0)
            tensor = scale * torch.einsum("b,bsit->sit", residual, self.second[pair])
            parts = (gauss_newton + tensor, gauss_newton, tensor)
            found[pair] = {kind: float(m.norm() * self.head.norm()) for kind, m in zip(KINDS, parts, strict=True)}
        return found


def relu_pairs(network: Network, x: Tensor) -> dict[str, float]:
    """‖H‖_F = ‖H^GN‖_F of every pair of blocks, by position and for one shift shared by all positions."""
    return relu_norms(network, x)
