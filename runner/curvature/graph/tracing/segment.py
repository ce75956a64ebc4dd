"""One node of a traced module: the part of the network between its parents' outputs and its own, by replay.

The module is run with the given outputs in the place of its parents', up to the node's own output. Calls that the node
does not need are skipped. The module's own code runs, with its weights of this moment: nothing is copied.

A graph needs every node as a function of its parents, for any number of examples. A module that runs on one number of
examples alone, or a submodule that sees some rows of the batch (an expert of a mixture), has none. Its perturbed loss
can still be evaluated and differentiated on the batch as it is, which is all that products need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from runner.curvature.function.repairs import measurable
from runner.curvature.graph.dag import INPUT, Node
from runner.curvature.graph.errors import CallsChanged, MeasurementError
from runner.curvature.graph.state import untouched
from runner.curvature.graph.tensors import tree_unflatten
from runner.curvature.graph.tracing.batches import Examples, Layout
from runner.curvature.graph.tracing.calls import Call, check_evaluation, intercepted
from runner.curvature.graph.tracing.record import Leaf, Point, Shapes, Traced


class _Reached(BaseException):
    """The node's own output is there: the rest of the module is not run."""

    def __init__(self, value: Tensor) -> None:
        self.value = value


@dataclass(frozen=True)
class Plan:
    """What the replay of a node does: skip these calls."""

    point: Point
    parents: tuple[str, ...]
    skipped: frozenset[Call]


class Replay(nn.Module):
    """A module with its traced batch and its measured outputs, by call and by name."""

    x: Tensor
    root: nn.Module
    inputs: Examples
    shapes: Shapes

    def __init__(self, root: nn.Module, inputs: Examples, x: Tensor) -> None:
        super().__init__()
        self.root, self.inputs = root, inputs
        self.register_buffer("x", x, persistent=False)
        self.points: dict[Call, Point] = {}
        self.resets = False
        """Whether the module puts something back at its end, which the replay of a node does not reach."""

    def run(self, x: Tensor) -> Any:
        """The module's output for packed inputs."""
        args, kwargs = self.inputs.unpack(x)
        return self.root(*args, **kwargs)

    def rows(self, n: int) -> Tensor:
        """n examples of the traced batch, from the first one on and over again."""
        return self.x[torch.arange(n, device=self.x.device) % len(self.x)]

    def values(self, x: Tensor, output: Point, shift: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Every measured output in one run, with shift[v] added to each where it is made."""
        check_evaluation(self.root)
        found = {INPUT: x + shift[INPUT] if INPUT in shift else x}

        def handler(call: Call, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
            out = forward(*args, **kwargs)
            point = self.points.get(call)
            if point is None:
                return out
            value = point.take(out)
            found[point.name] = value + shift[point.name] if point.name in shift else value.clone()
            return point.put(out, found[point.name].clone())

        with measurable(self.root), intercepted(self.root, handler):
            result = self.run(
                found[INPUT].clone()
            )  # a module that works in place would change the batch
        if output.call is None:
            value = output.take(result)
            found[output.name] = value + shift[output.name] if output.name in shift else value
        return found

    def node(self, plan: Plan, given: tuple[Tensor, ...]) -> Tensor:
        """The output of a node from its parents'. Raises ValueError when the module makes other calls than it did."""
        check_evaluation(self.root)
        values = dict(zip(plan.parents, given, strict=True))
        waiting = set(plan.parents) - {INPUT}
        n = len(given[0])
        counts: Counter[str] = Counter()

        def handler(call: Call, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
            point = self.points.get(call)
            known = point is not None and point.name in values
            if call in plan.skipped:
                counts.update(name for name, _ in self.shapes.nested[call])
                waiting.difference_update([point.name] if point else [])
                return self._stand_in(call, n, values)
            out = forward(*args, **kwargs)
            if point is not None and point.name == plan.point.name:
                raise _Reached(point.take(out))
            if point is not None and known:
                waiting.discard(point.name)
                return point.put(out, values[point.name].clone())
            return out

        whole = untouched(self.root) if self.resets else nullcontext()
        try:
            with whole, measurable(self.root), intercepted(self.root, handler, counts):
                result = self.run(values[INPUT].clone() if INPUT in values else self.rows(n))
        except _Reached as reached:
            if not waiting:
                return reached.value
        else:
            if plan.point.call is None and not waiting:
                return plan.point.take(result)
        raise CallsChanged(
            f"node {plan.point.name!r}: the module made other calls than when it was traced (its control flow depends "
            "on the data, or it was changed since): trace it again, or measure fewer nodes"
        )

    def _stand_in(self, call: Call, n: int, values: Mapping[str, Tensor]) -> Any:
        """The output of a call that is not made: the given value, and zeros that nothing needs."""
        shape, point = self.shapes.calls[call], self.points.get(call)
        like: Tensor = next((p for p in self.root.parameters() if p.is_floating_point()), self.x)
        leaves: list[Any] = []
        for i, leaf in enumerate(shape.leaves):
            if not isinstance(leaf, Leaf):
                leaves.append(leaf)
            elif point is not None and point.leaf == i and point.name in values:
                leaves.append(point.layout.decode(values[point.name].clone()))
            else:
                size = leaf.layout.shape(leaf.shape, n) if leaf.layout else leaf.shape
                dtype = like.dtype if leaf.dtype.is_floating_point else leaf.dtype
                leaves.append(torch.zeros(size, dtype=dtype, device=like.device))
        return tree_unflatten(leaves, shape.spec)


class Segment(nn.Module):
    """f_u as a function of the outputs of u's parents."""

    def __init__(self, replay: Replay, plan: Plan) -> None:
        super().__init__()
        self.replay, self.plan = replay, plan

    def forward(self, *given: Tensor) -> Tensor:
        """Raises TypeError for anything but tensors: a replay cannot be traced symbolically."""
        if not all(isinstance(t, Tensor) for t in given):
            raise TypeError(f"expected tensors, found {[type(t).__name__ for t in given]}")
        return self.replay.node(self.plan, given)


def plan_of(
    replay: Replay, traced: Traced, point: Point, order: Mapping[str, int], whole: bool
) -> Plan:
    """The replay of a node. whole: everything measured before it is a parent and nothing is skipped; always right,
    where the data flow could not be followed."""
    ended = traced.finished[point.name]
    if whole:
        before = [p.name for call, p in replay.points.items() if call in ended and p.name in order]
        return Plan(point, (INPUT, *sorted(before, key=order.__getitem__)), frozenset())
    needs = traced.needs[point.name]
    skipped = frozenset(call for call in ended if _skippable(replay, traced, call, point.name))
    parents = sorted((name for name in needs.names), key=lambda name: order.get(name, -1))
    return Plan(point, tuple(parents), skipped)


def _skippable(replay: Replay, traced: Traced, call: Call, name: str) -> bool:
    """Whether a node needs nothing of what happens inside a call that ended before it, but its measured output."""
    span, needs, point = traced.spans[call], traced.needs[name], replay.points.get(call)
    if not replay.shapes.calls[call].regular or any(
        span.begin <= i < span.end for i in needs.operations
    ):
        return False
    return all(
        key not in needs.storages
        for i, key in enumerate(span.storages)
        if point is None or i != point.leaf
    )


ADVICE = (
    "Products need no graph: inter_layer_metrics, and CurvatureOperator with frobenius_norms, spectral_norms, "
    "stable_ranks, couplings, gn_gaps and top_eigenpairs"
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

    def with_layout(_: Call | None, __: int, leaf: Leaf) -> Leaf:
        if leaf.layout is not None or not leaf.shape or not leaf.dtype.is_floating_point:
            return leaf
        dims = [d for d in (batch_dim, 0) if d < len(leaf.shape) and leaf.shape[d] == n]
        if dims and not leaf.fixed:
            return replace(leaf, layout=Layout(dims[0], 1, len(leaf.shape)))
        return replace(leaf, layout=Layout(0, leaf.shape[0] if leaf.fixed else 1, len(leaf.shape)))

    return known.with_leaves(with_layout)


def fixed_in_both(one: Shapes, other: Shapes) -> Shapes:
    """The first shapes, where only those leaves are fixed that are so in the second ones."""

    def fixed(call: Call | None, place: int, leaf: Leaf) -> Leaf:
        shape = other.output if call is None else other.calls.get(call)
        twin = shape.leaves[place] if shape is not None and place < len(shape.leaves) else None
        return replace(leaf, fixed=leaf.fixed and isinstance(twin, Leaf) and twin.fixed)

    return one.with_leaves(fixed)


def described(values: dict[str, Tensor]) -> str:
    """The rows of each node that all get the same perturbation."""
    rows = ", ".join(
        f"{name!r} has {len(value)} of shape {tuple(value.shape[1:])}"
        for name, value in values.items()
    )
    return f"every row of a node gets the same perturbation, and that examples do not mix is not checked: {rows}"
