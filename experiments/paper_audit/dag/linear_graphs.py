"""Graphs of free matrices, the general case for Gauss–Newton blocks, on which their bounds are
attacked.

Gauss–Newton blocks depend on the Jacobians of the edges and on ∇²ℓ alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from experiments.paper_audit.tensors import (
    gauss,
    norm_of,
    seeded,
    spectral_norm,
    total,
    unit,
    zeros,
)

Edges = tuple[tuple[str, str], ...]
WIDTH = 2


def line(length: int) -> Edges:
    return tuple((f"n{k}", f"n{k + 1}") for k in range(length))


GRAPHS: tuple[Edges, ...] = (
    line(3),
    (("s", "a"), ("s", "b"), ("a", "out"), ("b", "out")),
    (("a", "b"), ("b", "out"), ("a", "out")),
    (("a", "b"), ("a", "c"), ("a", "d"), ("b", "d"), ("c", "d"), ("d", "out")),
    line(6),
)


@dataclass(frozen=True, eq=False)
class Linear:
    """Edges with matrices read off z, scaled so that (largest out-degree) · (largest norm) is
    `target` (None: as is).

    The last numbers of z make ∇²ℓ = A Aᵀ.
    """

    edges: Edges
    z: Tensor
    target: float | None = None

    @staticmethod
    def start(edges: Edges, seed: int) -> Tensor:
        return gauss(seeded(seed), (len(edges) + 1) * WIDTH**2)

    @cached_property
    def order(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(v for edge in self.edges for v in edge))

    def children(self, v: str) -> list[str]:
        return [u for a, u in self.edges if a == v]

    @cached_property
    def branching(self) -> int:
        return max(len(self.children(v)) for v in self.order)

    @cached_property
    def matrices(self) -> dict[tuple[str, str], Tensor]:
        """D of each edge (v, u), mapping f_v to f_u."""
        raw = self.z.view(-1, WIDTH, WIDTH)
        scale = 1.0
        if self.target is not None:
            largest = float(spectral_norm(raw[:-1]).max()) or 1.0
            scale = self.target / (self.branching * largest)
        return {edge: scale * raw[k] for k, edge in enumerate(self.edges)}

    @cached_property
    def base(self) -> Tensor:
        a = self.z.view(-1, WIDTH, WIDTH)[-1]
        return a @ a.T

    def total(self, w: str, v: str) -> Tensor:
        """Jacobian of f_w with respect to f_v over all paths; zero without one."""
        if v == w:
            return unit(WIDTH)
        if not self.children(v):
            return zeros(WIDTH, WIDTH)
        return total(self.total(w, u) @ self.matrices[v, u] for u in self.children(v))

    def blocks(self) -> dict[tuple[str, str], Tensor]:
        """Gauss–Newton blocks of all pairs."""
        ends = [v for v in self.order if not self.children(v)]
        jacobians = {v: self.total(ends[0], v) for v in self.order}
        blocks = {}
        for v, left in jacobians.items():
            for w, right in jacobians.items():
                blocks[v, w] = left.T @ self.base @ right
        return blocks

    def distance(self, v: str, w: str) -> int:
        """Edges of the shortest undirected path."""
        reached = {v}
        steps = 0
        while w not in reached:
            touching = [edge for edge in self.edges if reached.intersection(edge)]
            reached = reached.union(*touching)
            steps += 1
        return steps

    def depth(self, v: str) -> int:
        """Edges of the longest directed path from v."""
        return max((1 + self.depth(u) for u in self.children(v)), default=0)

    def path_norm(self, v: str) -> float:
        """Sum over paths to the end of the product of ‖D‖₂."""
        if not self.children(v):
            return 1.0
        norms = {u: float(spectral_norm(self.matrices[v, u])) for u in self.children(v)}
        return sum(norm * self.path_norm(u) for u, norm in norms.items())

    def decay_excess(self) -> float:
        """max R^GN(v,w) / (‖∇²ℓ‖_F (s rho)^dist) − 1."""
        assert self.target is not None
        size = norm_of(self.base) or 1.0
        shares = []
        blocks = self.blocks()
        for (v, w), block in blocks.items():
            bound = size * self.target ** self.distance(v, w)
            shares.append(norm_of(block) / bound)
        return max(shares) - 1

    def disturbed(self, noise: Linear, eps: float) -> Linear:
        """The graph with each D moved by eps ‖D‖₂ along the noise's direction."""
        moved = []
        for edge, d in self.matrices.items():
            raw = noise.matrices[edge]
            direction = raw / spectral_norm(raw)
            step = eps * spectral_norm(d) * direction
            moved.append((d + step).flatten())
        root = self.z[-(WIDTH**2) :]
        return Linear(self.edges, torch.cat([*moved, root]))


def of_numbers(
    measure: Callable[[Linear], float], edges: Edges, target: float | None = None
) -> Callable[[Tensor], float]:
    """A measure of a graph as a function of its numbers, for a search."""
    return lambda z: measure(Linear(edges, z, target))
