"""A module between whose outputs there is no graph: one run of the whole batch, with perturbations through hooks.

A graph needs every node as a function of its parents, for any number of examples. A module that runs on one number of
examples alone, or a submodule that sees some rows of the batch (an expert of a mixture), has none. Its perturbed loss
can still be evaluated and differentiated on the batch as it is, which is all that products need.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from runner.curvature.graph.dag import Node
from runner.curvature.graph.errors import MeasurementError
from runner.curvature.graph.tracing.batches import Layout
from runner.curvature.graph.tracing.record import Leaf, Shape, Shapes
from runner.curvature.graph.tracing.segment import Replay

ADVICE = (
    "Products need no graph: inter_layer_metrics, and CurvatureOperator with frobenius_norms, spectral_norms, "
    "stable_ranks, couplings, gn_gaps and lanczos_extremes"
)


class NoGraph(MeasurementError):
    """The outputs can be measured, and are no functions of one another for any number of examples."""


class NoFunction(nn.Module):
    """Stands for the function of a node that has none."""

    def __init__(self, replay: Replay, why: str) -> None:
        super().__init__()
        self.replay, self.why = replay, why

    def forward(self, *given: Tensor) -> Tensor:
        """Raises MeasurementError, with the reason."""
        raise MeasurementError(f"there are no exact blocks without a graph: {self.why}. {ADVICE}")


def without_functions(nodes: list[Node], replay: Replay, why: str) -> list[Node]:
    """The nodes with their edges, and the reason in place of their functions."""
    missing = NoFunction(replay, why)
    return [Node(node.name, node.parents, missing) for node in nodes]


def guessed(known: Shapes, n: int, batch_dim: int) -> Shapes:
    """The shapes with a layout for every floating output: a dimension of the size of the batch holds its examples; of
    what is the same for every number of examples, the whole is perturbed; of anything else, every row alike."""

    def of(shape: Shape) -> Shape:
        return Shape(shape.spec, [_with_layout(leaf, n, batch_dim) for leaf in shape.leaves])

    return Shapes({call: of(shape) for call, shape in known.calls.items()}, of(known.output), known.nested)


def fixed_in_both(one: Shapes, other: Shapes) -> Shapes:
    """The first shapes, where only those leaves are fixed that are so in the second ones."""

    def of(a: Shape, b: Shape | None) -> Shape:
        leaves = b.leaves if b is not None and len(b.leaves) == len(a.leaves) else [None] * len(a.leaves)
        pairs = zip(a.leaves, leaves, strict=True)
        return Shape(a.spec, [replace(x, fixed=x.fixed and _fixed(y)) if isinstance(x, Leaf) else x for x, y in pairs])

    return Shapes(
        {call: of(shape, other.calls.get(call)) for call, shape in one.calls.items()},
        of(one.output, other.output),
        one.nested,
    )


def _fixed(leaf: Any) -> bool:
    return isinstance(leaf, Leaf) and leaf.fixed


def _with_layout(leaf: Any, n: int, batch_dim: int) -> Any:
    if not isinstance(leaf, Leaf) or leaf.layout is not None or not leaf.shape or not leaf.dtype.is_floating_point:
        return leaf
    dims = [d for d in (batch_dim, 0) if d < len(leaf.shape) and leaf.shape[d] == n]
    if dims and not leaf.fixed:
        return replace(leaf, layout=Layout(dims[0], 1, len(leaf.shape)))
    return replace(leaf, layout=Layout(0, leaf.shape[0] if leaf.fixed else 1, len(leaf.shape)))


def described(values: dict[str, Tensor]) -> str:
    """The rows of each node that all get the same perturbation."""
    rows = ", ".join(f"{name!r} has {len(value)} of shape {tuple(value.shape[1:])}" for name, value in values.items())
    return f"every row of a node gets the same perturbation, and that examples do not mix is not checked: {rows}"
