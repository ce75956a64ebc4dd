"""Gauss-Newton blocks of every pair of nodes as products of thin factors, and products with the
tensor part alone.

With the loss Hessian A_b = sum_k s_bk a_bk a_bk^T of example b (s = +1 or -1; A has rank r <= K, r
= K - 1 for softmax cross-entropy), one backward pass of the batch with cotangents a_bk gives row
(b, k) of F_v, f = J_out,v^T a_bk, for every node v at once. Then

    GN[v,w] = F_v^T S F_w / B,
    ||GN[v,w]||_F^2 = sum_ij S_i S_j (F_v F_v^T)_ij (F_w F_w^T)_ij / B^2,

S the signs. r passes of the batch replace d_w products for each w, and a product with GN costs 2 B
r (d_v + d_w).

T is the Hessian of the function delta . f_out(e) with the loss gradient delta at the output held
fixed: with e_v added to the output of node v for all examples, q_v(e) = J_out,v(e)^T delta / B
summed over them, and T r = d(sum_w q_w . r_w) / de. One backward pass of that sum gives T[v,w] r
for every v, exactly zero where the network is piecewise linear. No Gauss-Newton part is made and
subtracted, so that nothing cancels, and the graph needs no second pass through the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.curvature.basics.errors import second_derivatives
from runner.curvature.basics.symmetric import Products
from runner.curvature.graphs.dag import INPUT, Dag
from runner.curvature.graphs.derivatives import differentiable_value, refuse_cut_backwards
from runner.curvature.graphs.losses import repeated
from runner.curvature.pairs.singular_values import AT_ONCE


@dataclass(frozen=True)
class PerturbedNetwork:
    """The network's output as a function of perturbations of every example at some nodes, (B, ...)
    each, at zero.

    still: values of the nodes that no perturbation moves."""

    leaves: dict[str, Tensor]
    output: Tensor
    still: dict[str, Tensor]

    def copies(self, dag: Dag, count: int) -> PerturbedNetwork:
        """The same for `count` copies of the batch; what no perturbation moves is not computed
        again."""
        nodes = tuple(self.leaves)
        still = {name: repeated(value, count) for name, value in self.still.items()}
        return PerturbedNetwork.of(dag, still[INPUT], nodes, still)

    @classmethod
    def of(
        cls,
        dag: Dag,
        x: Tensor,
        nodes: tuple[str, ...],
        still: Mapping[str, Tensor] | None = None,
    ) -> PerturbedNetwork:
        leaves: dict[str, Tensor] = {}
        values = {INPUT: x, **(still or {})}
        kept = {}
        behind = dag.descendants(nodes)
        for name in (INPUT, *dag.order):
            if name not in values:
                values[name] = differentiable_value(dag.nodes[name], values)
            if name not in behind:
                kept[name] = values[name].detach()
            if name in nodes:
                leaves[name] = torch.zeros_like(values[name]).requires_grad_()
                values[name] = values[name] + leaves[name]
        return cls({v: leaves[v] for v in nodes}, values[dag.output], kept)


class OutputFactors:
    """F_v of every node of `nodes`, (B r, d_v), up to a common `scale`: GN[v,w] = scale F_v^T S F_w
    / B.

    scale is the largest |eigenvalue| of the loss Hessian in the batch, so that the factors are of
    order one whatever the size of the loss. Where the loss Hessian is zero, the factors have no
    rows."""

    def __init__(self, network: PerturbedNetwork, loss_hessian: Tensor) -> None:
        leaves = network.leaves
        output = network.output
        self.nodes = tuple(leaves)
        self.examples = len(output)
        columns, signs, self.scale = _root(loss_hessian)
        self.signs = signs.flatten()
        rows: dict[str, list[Tensor]] = {v: [] for v in self.nodes}
        at = list(leaves.values())
        for column in columns:
            slope = column.view(output.shape)
            grads = torch.autograd.grad(
                output, at, slope, retain_graph=True, materialize_grads=True
            )
            for v, g in zip(leaves, grads, strict=True):
                rows[v].append(g.flatten(1))
        self.rows = {}
        for v, leaf in leaves.items():
            none = leaf.new_zeros(0, leaf[0].numel())
            self.rows[v] = torch.cat([none, *rows[v]])
        self._grams: dict[str, Tensor] = {}
        self._turned: dict[str, Tensor] = {}
        self._squares: dict[frozenset[str], float] = {}

    def gram(self, v: str) -> Tensor:
        """F_v F_v^T with signs on its rows, float64."""
        if v not in self._grams:
            gram = (self.rows[v] @ self.rows[v].mT).double()
            self._grams[v] = gram * self.signs.double()[:, None]
        return self._grams[v]

    def square(self, v: str, w: str) -> float:
        """||F_v^T S F_w||_F^2 / B^2."""
        pair = frozenset((v, w))
        if pair not in self._squares:
            # With M_v = S G_v: the sum of S_i S_j G_v,ij G_w,ij is that of M_v,ij M_w,ji. Read in
            # one order, both.
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
    """Columns a_k (B, K) with A_b = scale sum_k s_bk a_bk a_bk^T, signs (r, B), scale: those that
    are not zero."""
    wide = torch.promote_types(hessian.dtype, torch.float32)  # eigh has no bfloat16
    values, vectors = (found.to(hessian.dtype) for found in torch.linalg.eigh(hessian.to(wide)))
    scale = float(values.abs().max())
    if not scale > 0:
        return [], values.new_zeros(0, len(values)), 0.0
    values = values / scale
    kept = values.abs() > values.shape[1] * torch.finfo(values.dtype).eps
    order = values.abs().argsort(1, descending=True)
    rank = int(kept.sum(1).max())
    columns = []
    signs = []
    for k in order[:, :rank].unbind(1):
        chosen = values.gather(1, k[:, None]).squeeze(1)
        vector = vectors.gather(2, k[:, None, None].expand(-1, vectors.shape[1], 1)).squeeze(2)
        columns.append(vector * chosen.abs().sqrt()[:, None])
        signs.append(torch.where(chosen < 0, -1.0, 1.0).to(values.dtype))
    return columns, torch.stack(signs), scale


COPIES = 8
ENOUGH = 4e8
"""Forward operations that keep one thread busy: smaller networks take up to COPIES directions at
once, which are the probes of a node (an MLP of width 256: 1.1 times as fast as with 4). Larger ones
take AT_ONCE, so that a convolution reads its weights once for all of them (ResNet-18 on 8 x 8 maps:
1.5 times as fast)."""


class TensorPart:
    """T over the nodes of `network` as an operator, up to `scale`: T[v,w] = scale times what
    `apply` gives.

    scale: largest |component| of the loss gradient in the batch, so that products are of the same
    order for every size of the loss. operations: of one forward pass, about; they decide how
    many directions go through the network at once. products: directions applied so far."""

    def __init__(
        self,
        dag: Dag,
        x: Tensor,
        y: Tensor,
        network: PerturbedNetwork,
        operations: float,
        memory_budget: int,
    ) -> None:
        self._dag = dag
        self._network = network
        self.nodes = tuple(network.leaves)
        self.sizes = {v: leaf[0].numel() for v, leaf in network.leaves.items()}
        output = network.output.detach()
        self.dtype = output.dtype
        self.device = output.device
        delta = dag.loss.gradient(output, y)
        self.scale = float(delta.abs().max())
        self._delta = delta
        if self.scale > 0:
            self._delta = delta / self.scale / len(x)
        kept = len(x) * sum(self.sizes.values()) * output.element_size()
        # An eighth of the budget by the size of the perturbed outputs: what a node keeps inside is
        # not known here.
        room = max(1, memory_budget // (8 * max(1, kept)))
        at_once = max(AT_ONCE, min(COPIES, ENOUGH // max(operations, 1.0)))
        self.copies = int(min(room, at_once))
        self._sizes = tuple(sorted({1, min(AT_ONCE, self.copies), self.copies}))
        self._pulled: dict[int, tuple[Products, Products]] = {}

    def apply(self, directions: Mapping[str, Tensor]) -> Products:
        """sum_w T[v,w] r_w for every node v, without the scale: (k, d_w) -> (k, d_v)."""
        count = len(next(iter(directions.values())))
        found: dict[str, list[Tensor]] = {v: [] for v in self.nodes}
        start = 0
        while start < count:
            copies = _fitting(self._sizes, count - start)
            piece = {w: r[start : start + copies] for w, r in directions.items()}
            for v, image in self._product(piece, min(copies, count - start), copies).items():
                found[v].append(image)
            start += copies
        return {v: torch.cat(images) for v, images in found.items()}

    def curved_nodes(self, generator: torch.Generator | None) -> set[str]:
        """Nodes whose row of T is not exactly zero: one product with a random direction on all
        nodes at once.

        A row that is not zero gives zero for almost no direction; rounding only hides a row below
        the smallest number."""
        direction = {}
        for w, size in self.sizes.items():
            noise = torch.randn(1, size, generator=generator, device="cpu")
            direction[w] = noise.to(self.device, self.dtype)
        return {v for v, image in self.apply(direction).items() if bool((image != 0).any())}

    def _product(self, directions: Products, count: int, copies: int) -> Products:
        if copies not in self._pulled:
            self._pulled[copies] = self._pull(copies)
        leaves, gradients = self._pulled[copies]
        dot: Tensor | None = None
        for w, r in directions.items():
            if w in gradients:
                q = self._of_batch(w, gradients[w], copies)[:count]
                term = (q * r.to(q)).sum()
                dot = term if dot is None else dot + term
        grads: Sequence[Tensor] = [torch.zeros_like(leaf) for leaf in leaves.values()]
        if dot is not None and dot.requires_grad:
            with second_derivatives("a node or the loss"):
                grads = torch.autograd.grad(
                    dot, list(leaves.values()), retain_graph=True, materialize_grads=True
                )
        images = {}
        for v, grad in zip(leaves, grads, strict=True):
            images[v] = self._of_batch(v, grad, copies)[:count]
        return images

    def _of_batch(self, node: str, rows: Tensor, copies: int) -> Tensor:
        """Sums over the examples of each copy of the batch, (copies, d_v)."""
        return rows.reshape(copies, -1, self.sizes[node]).sum(1)

    def _pull(self, copies: int) -> tuple[Products, Products]:
        """The perturbations of `copies` copies of the batch, and q_v of every example where it
        changes with them."""
        network = self._network
        if copies > 1:
            network = network.copies(self._dag, copies)
        leaves = network.leaves
        output = network.output
        cotangent = repeated(self._delta, copies).view(output.shape)
        pulled = torch.autograd.grad(
            output, list(leaves.values()), cotangent, create_graph=True, allow_unused=True
        )
        refuse_cut_backwards(pulled, "the network")  # it would look like a tensor part of zero
        moving = {}
        for v, gradient in zip(leaves, pulled, strict=True):
            if gradient is not None and gradient.requires_grad:
                moving[v] = gradient
        return leaves, moving


def _fitting(sizes: tuple[int, ...], count: int) -> int:
    """Of the sizes, the smallest that takes `count` directions and is not left half empty, else the
    largest below."""
    best = sizes[0]
    for size in sizes:
        if size <= count or count > 0.7 * size:
            best = size
    return best
