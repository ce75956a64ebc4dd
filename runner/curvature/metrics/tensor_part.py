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

from runner.curvature.exact.derivatives import second_derivatives
from runner.curvature.graph.dag import INPUT, Dag

Products = dict[str, Tensor]

COPIES = 16
SMALL = 2e8  # forward operations below which replicas of the batch are worth their memory: overhead dominates there


@dataclass
class _Graph:
    leaves: dict[str, Tensor]
    pulled: dict[str, Tensor]  # q_v, of the nodes whose q_v changes with the perturbations


class TensorPart:
    """T over `nodes` as an operator, up to `scale`: T[v,w] = scale times what `apply` gives.

    scale: largest |component| of the loss gradient in the batch, so that products are of the same order for every
    size of the loss. operations: of one forward pass; they decide how many directions go through the network at once.
    products: directions applied so far.
    """

    def __init__(
        self, dag: Dag, x: Tensor, y: Tensor, nodes: tuple[str, ...], operations: float, memory_budget: int
    ) -> None:
        self.dag, self.x, self.nodes = dag, x, nodes
        with torch.no_grad():
            values = dag.forward(x)
        self.sizes = {v: values[v][0].numel() for v in nodes}
        self._shapes = {v: values[v].shape[1:] for v in nodes}
        self.dtype, self.device = values[dag.output].dtype, values[dag.output].device
        delta = dag.loss.gradient(values[dag.output], y)
        self.scale = float(delta.abs().max())
        self._delta = delta / self.scale / len(x) if self.scale > 0 else delta
        kept = len(x) * sum(v[0].numel() * v.element_size() for v in values.values())
        # An eighth of the budget by the size of the outputs alone: what a node keeps inside is not known beforehand.
        room = max(1, memory_budget // (8 * max(1, kept)))
        self.copies = int(min(COPIES, room)) if operations < SMALL else 1
        self._kept: _Graph | None = None
        self.products = 0

    def apply(self, directions: Mapping[str, Tensor]) -> Products:
        """sum_w T[v,w] r_w for every node v, without the scale: (k, d_w) -> (k, d_v)."""
        count = len(next(iter(directions.values())))
        found: dict[str, list[Tensor]] = {v: [] for v in self.nodes}
        for start in range(0, count, self.copies):
            piece = {w: r[start : start + self.copies] for w, r in directions.items()}
            for v, image in self._product(piece, min(self.copies, count - start)).items():
                found[v].append(image)
        self.products += count
        return {v: torch.cat(images) for v, images in found.items()}

    def curved_nodes(self, generator: torch.Generator | None) -> set[str]:
        """Nodes whose row of T is not exactly zero: one product with a random direction on all nodes at once.

        A row that is not zero gives zero for almost no direction; rounding only hides a row below the smallest number.
        """
        direction = {
            w: torch.randn(1, d, generator=generator).to(self.device, self.dtype) for w, d in self.sizes.items()
        }
        return {v for v, image in self.apply(direction).items() if bool((image != 0).any())}

    def _product(self, directions: Products, count: int) -> Products:
        if self._kept is None:
            self._kept = self._build()
        graph = self._kept
        dot: Tensor | None = None
        for w, r in directions.items():
            if w in graph.pulled:
                q = graph.pulled[w].flatten(1)[:count]
                term = (q * r.to(q)).sum()
                dot = term if dot is None else dot + term
        zero = {v: torch.zeros(count, d, dtype=self.dtype, device=self.device) for v, d in self.sizes.items()}
        if dot is None or not dot.requires_grad:
            return zero
        with second_derivatives("a node"):
            grads = torch.autograd.grad(dot, list(graph.leaves.values()), retain_graph=True, allow_unused=True)
        return {v: zero[v] if g is None else g.flatten(1)[:count] for v, g in zip(graph.leaves, grads, strict=True)}

    def _build(self) -> _Graph:
        copies, batch = self.copies, len(self.x)

        def repeated(t: Tensor) -> Tensor:
            return t if copies == 1 else t.repeat(copies, *(1,) * (t.dim() - 1))

        with torch.enable_grad():
            leaves: dict[str, Tensor] = {}
            values: dict[str, Tensor] = {}
            for name in (INPUT, *self.dag.order):
                node = self.dag.nodes.get(name)
                value = repeated(self.x) if node is None else node(*(values[p] for p in node.parents))
                if name in self.nodes:
                    leaves[name] = value.new_zeros(copies, 1, *self._shapes[name]).requires_grad_()
                    value = (value.view(copies, batch, *self._shapes[name]) + leaves[name]).flatten(0, 1)
                values[name] = value
            output = values[self.dag.output]
            pulled = torch.autograd.grad(
                output,
                list(leaves.values()),
                repeated(self._delta).view(output.shape),
                create_graph=True,
                allow_unused=True,
            )
        return _Graph(leaves, {v: q for v, q in zip(leaves, pulled, strict=True) if q is not None and q.requires_grad})
