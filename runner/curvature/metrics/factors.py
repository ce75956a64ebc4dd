"""Gauss-Newton blocks of every pair of nodes as products of thin factors, from a few backward passes of the batch.

With the loss Hessian A_b = sum_k s_bk a_bk a_bk^T of example b (s = +1 or -1; A has rank r <= K, r = K - 1 for softmax
cross-entropy), one backward pass of the batch with cotangents a_bk gives row (b, k) of F_v, f = J_out,v^T a_bk, for
every node v at once. Then

    GN[v,w] = F_v^T S F_w / B,      ||GN[v,w]||_F^2 = sum_ij S_i S_j (F_v F_v^T)_ij (F_w F_w^T)_ij / B^2,

S the signs. r passes of the batch replace d_w products for each w, and a product with GN costs 2 B r (d_v + d_w).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from runner.curvature.graph.convolutions import FixedConvolutions
from runner.curvature.graph.dag import INPUT, Dag
from runner.curvature.metrics.operations import Operations

Products = dict[str, Tensor]


@dataclass(frozen=True)
class Perturbed:
    """The network's output as a function of perturbations of every example at some nodes, (B, ...) each, at zero.

    operations, moving: of the forward pass, and of the part of it that the perturbations go through. still: values of
    the nodes before that part. in_place: nodes that would overwrite their parents' outputs. whole: perturbations are
    those of all examples, (1, ...) each, of a module that runs on the whole batch alone: it has no `copies`.
    """

    leaves: dict[str, Tensor]
    output: Tensor
    operations: float = 0.0
    moving: float = 0.0
    still: dict[str, Tensor] = field(default_factory=dict)
    in_place: frozenset[str] = frozenset()
    whole: bool = False

    def copies(self, dag: Dag, count: int) -> Perturbed:
        """The same for `count` copies of the batch; what no perturbation moves is not computed again."""
        nodes = tuple(self.leaves)
        repeated = {name: v.repeat(count, *(1,) * (v.dim() - 1)) for name, v in self.still.items()}
        return Perturbed.of(dag, repeated[INPUT], nodes, self.in_place, repeated)

    @classmethod
    def of_whole(cls, dag: Dag, x: Tensor, nodes: tuple[str, ...]) -> Perturbed:
        """The same of a module whose nodes have no functions of their own, in one run of it."""
        with torch.no_grad():
            values = dag.forward(x)
        leaves = {v: torch.zeros_like(values[v][:1]).requires_grad_() for v in nodes}
        return cls(leaves, dag.forward(x, leaves)[dag.output], whole=True)

    @classmethod
    def of(
        cls,
        dag: Dag,
        x: Tensor,
        nodes: tuple[str, ...],
        in_place: frozenset[str] = frozenset(),
        still: Mapping[str, Tensor] | None = None,
    ) -> Perturbed:
        leaves: dict[str, Tensor] = {}
        values: dict[str, Tensor] = {}
        behind: set[str] = set()  # nodes with a perturbation before them
        counts = {True: 0.0, False: 0.0}
        kept: dict[str, Tensor] = {}
        for name in (INPUT, *dag.order):
            node = dag.nodes.get(name)
            if node is None or (still is not None and name in still):
                value = x if node is None or still is None else still[name]
            else:
                parents = [values[p].clone() if name in in_place else values[p] for p in node.parents]
                with Operations() as counted, FixedConvolutions():
                    value = node(*parents)
                if any(p in behind or p in leaves for p in node.parents):
                    behind.add(name)
                counts[name in behind] += counted.total
            if name not in behind:
                kept[name] = value.detach()
            if name in nodes:
                leaves[name] = torch.zeros_like(value).requires_grad_()
                value = value + leaves[name]
            values[name] = value
        return cls(
            {v: leaves[v] for v in nodes}, values[dag.output], sum(counts.values()), counts[True], kept, in_place
        )


class OutputFactors:
    """F_v of every node of `nodes`, (B r, d_v), up to a common `scale`: GN[v,w] = scale F_v^T S F_w / B.

    scale is the largest |eigenvalue| of the loss Hessian in the batch, so that the factors are of order one whatever
    the size of the loss. zero: whether the loss Hessian is zero. passes: backward passes of the batch it took.
    """

    def __init__(self, network: Perturbed, loss_hessian: Tensor) -> None:
        leaves, output = network.leaves, network.output
        self.nodes, self.examples = tuple(leaves), len(output)
        columns, signs, self.scale = _root(loss_hessian)
        self.signs = signs.flatten()
        self.passes = len(columns)
        rows: dict[str, list[Tensor]] = {v: [] for v in self.nodes}
        for column in columns:
            grads = torch.autograd.grad(
                output, list(leaves.values()), column.view(output.shape), retain_graph=True, allow_unused=True
            )
            for (v, leaf), g in zip(leaves.items(), grads, strict=True):
                rows[v].append((torch.zeros_like(leaf) if g is None else g).flatten(1))
        self.rows = {
            v: torch.cat(found) if found else leaves[v].new_zeros(0, leaves[v][0].numel()) for v, found in rows.items()
        }
        self._grams: dict[str, Tensor] = {}
        self._turned: dict[str, Tensor] = {}
        self._squares: dict[frozenset[str], float] = {}

    @property
    def zero(self) -> bool:
        return self.passes == 0

    def gram(self, v: str) -> Tensor:
        """F_v F_v^T with signs on its rows, float64."""
        if v not in self._grams:
            self._grams[v] = (self.rows[v] @ self.rows[v].mT).double() * self.signs.double()[:, None]
        return self._grams[v]

    def square(self, v: str, w: str) -> float:
        """||F_v^T S F_w||_F^2 / B^2."""
        pair = frozenset((v, w))
        if pair not in self._squares:
            # With M_v = S G_v: the sum of S_i S_j G_v,ij G_w,ij is that of M_v,ij M_w,ji. Read in one order, both.
            if w not in self._turned:
                self._turned[w] = self.gram(w).mT.flatten()
            total = float(self.gram(v).flatten() @ self._turned[w])
            self._squares[pair] = max(0.0, total / self.examples**2)
        return self._squares[pair]

    def apply(self, directions: Mapping[str, Tensor]) -> Products:
        """sum_w F_v^T S F_w r_w / B for every v: (k, d_w) -> (k, d_v), without the scale."""
        inner = sum(r.to(self.rows[w]) @ self.rows[w].mT for w, r in directions.items())
        assert isinstance(inner, Tensor)
        inner = inner * self.signs / self.examples
        return {v: inner @ self.rows[v] for v in self.nodes}


def _root(hessian: Tensor) -> tuple[list[Tensor], Tensor, float]:
    """Columns a_k (B, K) with A_b = scale sum_k s_bk a_bk a_bk^T, signs (r, B), scale: those that are not zero."""
    wide = torch.promote_types(hessian.dtype, torch.float32)  # eigh has no bfloat16
    values, vectors = (found.to(hessian.dtype) for found in torch.linalg.eigh(hessian.to(wide)))
    scale = float(values.abs().max())
    if not scale > 0:
        return [], values.new_zeros(0, len(values)), 0.0
    values = values / scale
    kept = values.abs() > values.shape[1] * torch.finfo(values.dtype).eps
    order = values.abs().argsort(1, descending=True)
    rank = int(kept.sum(1).max())
    columns, signs = [], []
    for k in order[:, :rank].unbind(1):
        chosen = values.gather(1, k[:, None]).squeeze(1)
        vector = vectors.gather(2, k[:, None, None].expand(-1, vectors.shape[1], 1)).squeeze(2)
        columns.append(vector * chosen.abs().sqrt()[:, None])
        signs.append(torch.where(chosen < 0, -1.0, 1.0).to(values.dtype))
    return columns, torch.stack(signs), scale
