"""Largest singular values of many blocks at once by Golub-Kahan bidiagonalisation, from products alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

Pair = tuple[str, str]
Requests = list[tuple[Pair, str, Tensor, str]]
"""(pair, node of the direction, direction, node of the image)."""
Images = Mapping[Pair, Tensor]


class Leading(NamedTuple):
    """sigma_1 of a block from below, with the estimated error, sigma_2, the right singular vector and the steps."""

    value: float
    error: float
    second: float
    right: Tensor
    steps: int


@dataclass
class _Bidiagonal:
    """A V = U B, A^T U = V B^T + beta v e^T, B upper bidiagonal; V and U kept orthonormal in float64."""

    start: Tensor
    second: float
    right: list[Tensor] = field(default_factory=list)
    left: list[Tensor] = field(default_factory=list)
    alphas: list[float] = field(default_factory=list)
    betas: list[float] = field(default_factory=list)
    done: bool = False

    def forward(self, image: Tensor) -> None:
        """Takes A v of the newest right vector."""
        rest = _orthogonal(image.double(), self.left)
        self.alphas.append(float(rest.norm()))
        self.done = self.alphas[-1] <= 4 * torch.finfo(torch.float64).eps * max(self.alphas)
        self.left.append(rest / self.alphas[-1] if not self.done else torch.zeros_like(rest))

    def backward(self, image: Tensor) -> None:
        """Takes A^T u of the newest left vector."""
        rest = _orthogonal(image.double(), self.right)
        self.betas.append(float(rest.norm()))
        if self.betas[-1] <= 4 * torch.finfo(torch.float64).eps * max(self.alphas):
            self.done = True
        else:
            self.right.append(rest / self.betas[-1])

    def leading(self) -> Leading:
        """Ritz values of B, with the error that the residual leaves."""
        k = len(self.alphas)
        b = torch.diag(torch.tensor(self.alphas, dtype=torch.float64, device="cpu"))
        if k > 1:
            b += torch.diag(torch.tensor(self.betas[: k - 1], dtype=torch.float64, device="cpu"), 1)
        u, s, vh = torch.linalg.svd(b)
        residual = self.betas[k - 1] * abs(float(u[-1, 0])) if len(self.betas) >= k and not self.done else 0.0
        second = max(self.second, float(s[1]) if k > 1 else 0.0)
        error = kato_temple(float(s[0]), second, residual)
        right = torch.stack(self.right[:k], 1) @ vh[0]
        return Leading(float(s[0]), error, second, right, k)


def leading_singular_values(
    products: Callable[[Requests], Images],
    starts: Mapping[Pair, Tensor],
    tolerance: float,
    max_steps: int,
    seconds: Mapping[Pair, float] | None = None,
) -> dict[Pair, Leading]:
    """sigma_1 of A[v,w] for every pair of `starts` (its start: a right vector of w), all pairs in the same calls.

    products: A[v,w] r for each request (pair, w, r, v), and A[v,w]^T r for (pair, v, r, w). A pair stops when its
    error is at most tolerance * sigma_1, when its Krylov space is exhausted, or after max_steps (2 products each).
    seconds: known approximations of sigma_2, used while the Krylov space is too small to show one. A zero block
    gives 0.
    """
    states = {}
    for pair, start in starts.items():
        unit = start.double() / start.double().norm()
        states[pair] = _Bidiagonal(unit, (seconds or {}).get(pair, 0.0), right=[unit])
    active = dict(states)
    found: dict[Pair, Leading] = {}
    for _ in range(max_steps):
        images = products([(p, p[1], s.right[-1], p[0]) for p, s in active.items()])
        for pair, state in active.items():
            state.forward(images[pair])
        open_pairs = {p: s for p, s in active.items() if not s.done}
        images = products([(p, p[0], s.left[-1], p[1]) for p, s in open_pairs.items()]) if open_pairs else {}
        for pair, state in open_pairs.items():
            state.backward(images[pair])
        for pair, state in active.items():
            found[pair] = state.leading()
        active = {p: s for p, s in open_pairs.items() if not s.done and found[p].error > tolerance * found[p].value}
        if not active:
            break
    return found


def _orthogonal(vector: Tensor, basis: list[Tensor]) -> Tensor:
    if basis:
        stacked = torch.stack(basis)
        for _ in range(2):  # once is not enough in floating point
            vector = vector - stacked.mT @ (stacked @ vector)
    return vector


def kato_temple(first: float, second: float, residual: float) -> float:
    """Estimate of sigma_1 - first from A q = first u, |A^T u - first q| = residual, and second, close to sigma_2.

    first residual^2 / (2 (first^2 - second^2)) by the inequality of Kato and Temple for A^T A, at most the residual;
    0 where it is below the rounding of float64.
    """
    gap = first**2 - second**2
    error = min(residual, first * residual**2 / (2 * gap)) if gap > 0 else residual
    return error if error > 1e-15 * first else 0.0
