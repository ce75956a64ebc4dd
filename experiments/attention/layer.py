"""A softmax-attention layer of several heads: outputs and Jacobian in its input X.

With H heads W_h (d, d), V_h (d, k), row i of head h is

    f_hi = softmax over p of x_p^T W_h x_i,      o_hi = V_h^T X f_hi,

and the layer returns o_i = (o_1i, ..., o_Hi), its H k numbers side by side. One head with k = d is
the attention paper's Definition B.8. Lemma B.16 has for every head

    d o_hi / d x_p = f_hip V_h^T (I + (x_p - X f_hi) k_hi^T) + [p = i] V_h^T Cov_hi W_h,    k_hi =
    W_h x_i,

Cov_hi = X (diag f_hi - f_hi f_hi^T) X^T. Operations, multiply-adds to leading order: outputs H (n
d^2 + 2 n^2 d), Jacobian 3 H n^2 d k.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Heads:
    """Weights of one layer: w (H, d, d) with scores x_p^T W_h x_i, v (H, d, k).

    Raises ValueError for shapes that do not fit.

    >>> layer = Heads(torch.zeros(1, 2, 2), torch.eye(2).unsqueeze(0))
    >>> x = torch.tensor([[1.0, 3.0], [0.0, 2.0]])
    >>> layer.outputs(x)    # equal scores: both rows are the mean token
    tensor([[2., 1.],
            [2., 1.]])
    """

    w: Tensor
    v: Tensor

    def __post_init__(self) -> None:
        heads = self.w.shape[0]
        d = self.w.shape[-1]
        if self.w.ndim != 3 or self.w.shape[1] != d:
            raise ValueError(f"W: expected (heads, d, d), found {tuple(self.w.shape)}")
        if self.v.ndim != 3 or self.v.shape[:2] != (heads, d):
            raise ValueError(
                f"V: expected ({heads}, {d}, k) to match W, found {tuple(self.v.shape)}"
            )

    @property
    def width(self) -> int:
        """d, the entries of a token."""
        return self.w.shape[-1]

    def attention(self, x: Tensor) -> Tensor:
        """F (..., H, n, n): row i of head h is f_hi. x (..., d, n)."""
        if x.shape[-2] != self.width:
            raise ValueError(
                f"X: expected (..., {self.width}, n) to match W, found {tuple(x.shape)}"
            )
        products = x.mT.unsqueeze(-3) @ self.w @ x.unsqueeze(-3)
        scores = products.mT
        return torch.softmax(scores, -1)

    def outputs(self, x: Tensor) -> Tensor:
        """(..., n, H k): what the layer returns, token by token."""
        attention = self.attention(x)
        values = x.mT.unsqueeze(-3) @ self.v
        by_head = attention @ values
        return by_head.movedim(-3, -2).flatten(-2)

    def jacobian(self, x: Tensor) -> Tensor:
        """d outputs / d vec X (..., n, H k, n d)."""
        f = self.attention(x)
        tokens = x.mT.unsqueeze(-3)
        values = tokens @ self.v  # (..., H, n, k)
        means = f @ values  # (..., H, i, k): V^T X f_i
        centred = values.unsqueeze(-3) - means.unsqueeze(-2)  # (..., H, i, p, k)
        weighted = f.unsqueeze(-1) * centred
        keys = (self.w @ x.unsqueeze(-3)).mT  # (..., H, i, d): k_i
        blocks = weighted.unsqueeze(-1) * keys[..., :, None, None, :]  # (..., H, i, p, k, d)
        own_values = self.v.mT[:, None, None]
        blocks = blocks + f[..., None, None] * own_values
        own = weighted.mT @ (tokens @ self.w).unsqueeze(-3)  # (..., H, i, k, d): V^T Cov_i W
        diagonal = blocks.diagonal(dim1=-4, dim2=-3)
        diagonal.add_(own.movedim(-3, -1))
        # (H, i, p, k, d) -> (i, H, k, p, d)
        return blocks.movedim(-2, -3).movedim(-5, -4).flatten(-2).flatten(-3, -2)

    def singular_values(self, x: Tensor) -> Tensor:
        """Of the Jacobian at one input x (d, n), falling."""
        jacobian = self.jacobian(x)
        return torch.linalg.svdvals(jacobian.flatten(0, 1))
