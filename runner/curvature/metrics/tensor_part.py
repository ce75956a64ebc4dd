"""Products with the tensor part T alone, exactly zero where the network is piecewise linear.

T is the Hessian of the function delta . f_out(e) with the loss gradient delta at the output held fixed: with e_v added
to the output of node v for all examples, q_v(e) = J_out,v(e)^T delta / B summed over them, and T r = d(sum_w q_w . r_w)
/ de. One backward pass of that sum gives T[v,w] r for every v. No Gauss-Newton part is made and subtracted, so that
nothing cancels, and the graph needs no second pass through the loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.curvature.exact.derivatives import refuse_cut_backwards, second_derivatives
from runner.curvature.graph.dag import Dag
from runner.curvature.metrics.factors import Perturbed

Products = dict[str, Tensor]

COPIES, FEW = 8, 4
ENOUGH = 4e8
"""Forward operations that keep one thread busy: smaller networks take up to COPIES directions at once, which are the
probes of a node (an MLP of width 256: 1.1 times as fast as with 4). Larger ones take FEW, so that a convolution reads
its weights once for all of them (ResNet-18 on 8 x 8 maps: 1.5 times as fast)."""


@dataclass(frozen=True)
class _Pulled:
    """The network over `copies` copies of the batch, and q_v of every example where it changes with perturbations."""

    copies: int
    leaves: Products
    gradients: Products


class TensorPart:
    """T over the nodes of `network` as an operator, up to `scale`: T[v,w] = scale times what `apply` gives.

    scale: largest |component| of the loss gradient in the batch, so that products are of the same order for every
    size of the loss. operations: of one forward pass; they decide how many directions go through the network at once.
    products: directions applied so far.
    """

    def __init__(
        self,
        dag: Dag,
        x: Tensor,
        y: Tensor,
        network: Perturbed,
        operations: float,
        memory_budget: int,
    ) -> None:
        self._dag, self._network = dag, network
        self.nodes = tuple(network.leaves)
        self.sizes = {v: leaf[0].numel() for v, leaf in network.leaves.items()}
        output = network.output.detach()
        self.dtype, self.device = output.dtype, output.device
        delta = dag.loss.gradient(output, y)
        self.scale = float(delta.abs().max())
        self._delta = delta / self.scale / len(x) if self.scale > 0 else delta
        kept = len(x) * sum(self.sizes.values()) * output.element_size()
        # An eighth of the budget by the size of the perturbed outputs: what a node keeps inside is not known here.
        room = max(1, memory_budget // (8 * max(1, kept)))
        self.copies = _copies(operations, room)
        if network.whole:
            self.copies = 1
        self._sizes = tuple(sorted({1, min(FEW, self.copies), self.copies}))
        self._pulled: dict[int, _Pulled] = {}
        self.products = 0

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
        self.products += count
        return {v: torch.cat(images) for v, images in found.items()}

    def curved_nodes(self, generator: torch.Generator | None) -> set[str]:
        """Nodes whose row of T is not exactly zero: one product with a random direction on all nodes at once.

        A row that is not zero gives zero for almost no direction; rounding only hides a row below the smallest number.
        """
        direction = {
            w: torch.randn(1, d, generator=generator, device="cpu").to(self.device, self.dtype)
            for w, d in self.sizes.items()
        }
        return {v for v, image in self.apply(direction).items() if bool((image != 0).any())}

    def _product(self, directions: Products, count: int, copies: int) -> Products:
        if copies not in self._pulled:
            self._pulled[copies] = self._pull(copies)
        pulled = self._pulled[copies]
        dot: Tensor | None = None
        for w, r in directions.items():
            if w in pulled.gradients:
                q = pulled.gradients[w].flatten(1).view(copies, -1, self.sizes[w]).sum(1)[:count]
                term = (q * r.to(q)).sum()
                dot = term if dot is None else dot + term
        zero = {v: torch.zeros(count, d, dtype=self.dtype, device=self.device) for v, d in self.sizes.items()}
        if dot is None or not dot.requires_grad:
            return zero
        with second_derivatives("a node"):
            grads = torch.autograd.grad(dot, list(pulled.leaves.values()), retain_graph=True, allow_unused=True)
        return {
            v: zero[v] if g is None else g.reshape(copies, -1, self.sizes[v]).sum(1)[:count]
            for v, g in zip(pulled.leaves, grads, strict=True)
        }

    def _pull(self, copies: int) -> _Pulled:
        """q_v of every example, differentiable once more."""
        network = self._network
        if copies > 1:
            network = network.copies(self._dag, copies)
        leaves, output = network.leaves, network.output
        cotangent = self._delta.repeat(copies, 1).view(output.shape)
        pulled = torch.autograd.grad(output, list(leaves.values()), cotangent, create_graph=True, allow_unused=True)
        refuse_cut_backwards(pulled, "the network")  # it would look like a tensor part of zero
        gradients = {v: q for v, q in zip(leaves, pulled, strict=True) if q is not None and q.requires_grad}
        return _Pulled(copies, leaves, gradients)


def _copies(operations: float, room: int) -> int:
    """How many directions go through the network at once."""
    return int(min(room, max(FEW, min(COPIES, ENOUGH // max(operations, 1.0)))))


def _fitting(sizes: tuple[int, ...], count: int) -> int:
    """Of the sizes, the smallest that takes `count` directions and is not left half empty, else the largest below."""
    best = sizes[0]
    for size in sizes:
        if size <= count or count > 0.7 * size:
            best = size
    return best
