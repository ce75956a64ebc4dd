"""Linear graphs given by a vector of numbers, on which bounds of Gauss–Newton blocks can be attacked.

Gauss–Newton blocks depend on the Jacobians of the edges and on ∇²ℓ alone, so a graph of free matrices is the general
case. Nothing here uses the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

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
    """Edges with matrices read off z, scaled so that (largest out-degree) · (largest norm) is `target` (None: as is).

    The last numbers of z make ∇²ℓ = A Aᵀ.
    """

    edges: Edges
    z: Tensor
    target: float | None = None

    @staticmethod
    def start(edges: Edges, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn((len(edges) + 1) * WIDTH**2, generator=generator, dtype=torch.float64)

    @cached_property
    def order(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(v for edge in self.edges for v in edge))

    @cached_property
    def branching(self) -> int:
        return max(sum(a == v for a, _ in self.edges) for v in self.order)

    @cached_property
    def matrices(self) -> dict[tuple[str, str], Tensor]:
        """D of each edge (v, u), mapping f_v to f_u."""
        raw = self.z.view(-1, WIDTH, WIDTH)
        largest = float(torch.linalg.matrix_norm(raw[:-1], 2).max()) or 1.0
        scale = 1.0 if self.target is None else self.target / (self.branching * largest)
        return {edge: scale * raw[k] for k, edge in enumerate(self.edges)}

    @cached_property
    def base(self) -> Tensor:
        a = self.z.view(-1, WIDTH, WIDTH)[-1]
        return a @ a.T

    def total(self, w: str, v: str) -> Tensor:
        """Jacobian of f_w with respect to f_v over all paths; zero without one."""
        if v == w:
            return torch.eye(WIDTH, dtype=torch.float64)
        parts = [self.total(w, u) @ self.matrices[a, u] for a, u in self.edges if a == v]
        return torch.stack(parts).sum(0) if parts else torch.zeros(WIDTH, WIDTH, dtype=torch.float64)

    def blocks(self) -> dict[tuple[str, str], Tensor]:
        """Gauss–Newton blocks of all pairs."""
        out = self.order[-1] if self.order[-1] in {b for _, b in self.edges} else "out"
        j = {v: self.total(out, v) for v in self.order}
        return {(v, w): j[v].T @ self.base @ j[w] for v in self.order for w in self.order}

    def distance(self, v: str, w: str) -> int:
        """Edges of the shortest undirected path."""
        reached, steps = {v}, 0
        while w not in reached:
            reached |= {b for a, b in self.edges if a in reached} | {a for a, b in self.edges if b in reached}
            steps += 1
        return steps

    def depth(self, v: str) -> int:
        """Edges of the longest directed path from v."""
        return max((1 + self.depth(u) for a, u in self.edges if a == v), default=0)

    def path_norm(self, v: str) -> float:
        """Sum over paths to the end of the product of ‖D‖₂."""
        parts = [
            float(torch.linalg.matrix_norm(self.matrices[a, u], 2)) * self.path_norm(u) for a, u in self.edges if a == v
        ]
        return sum(parts) if parts else 1.0

    def decay_excess(self) -> float:
        """max R^GN(v,w) / (‖∇²ℓ‖_F (s rho)^dist) − 1."""
        assert self.target is not None
        size = float(self.base.norm()) or 1.0
        return (
            max(float(b.norm()) / (size * self.target ** self.distance(v, w)) for (v, w), b in self.blocks().items())
            - 1
        )

    def disturbed(self, noise: Linear, eps: float) -> Linear:
        """The graph with each D moved by eps ‖D‖₂ along the noise's direction."""
        parts = []
        for edge, d in self.matrices.items():
            direction = noise.matrices[edge] / torch.linalg.matrix_norm(noise.matrices[edge], 2)
            parts.append((d + eps * torch.linalg.matrix_norm(d, 2) * direction).flatten())
        return Linear(self.edges, torch.cat([*parts, self.z[-(WIDTH**2) :]]))
