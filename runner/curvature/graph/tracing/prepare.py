"""What tracing a module begins with: its runs, the loss of one tensor, the measured outputs, and the nodes."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from runner.curvature.graph.dag import INPUT, Node
from runner.curvature.graph.errors import MeasurementError, describe, explained, first_line
from runner.curvature.graph.losses import LossSpec
from runner.curvature.graph.reachable import hooked
from runner.curvature.graph.tensors import tree_leaves
from runner.curvature.graph.tracing.batches import Examples, count_examples
from runner.curvature.graph.tracing.calls import Call, Nodes, Pick, chosen, submodules
from runner.curvature.graph.tracing.criterion import Criterion, criterion, of_layout
from runner.curvature.graph.tracing.record import (
    Leaf,
    Point,
    Shape,
    Shapes,
    Traced,
    follow,
    last_point,
    point_of,
    shapes,
)
from runner.curvature.graph.tracing.segment import (
    NoGraph,
    Plan,
    Replay,
    Segment,
    fixed_in_both,
    guessed,
    plan_of,
)

UNCALLED = "is never called"


def points_of(
    root: nn.Module, replay: Replay, nodes: Nodes, notes: list[str]
) -> tuple[dict[Call, Point], set[str]]:
    """The measured calls in the order of their beginning, and the names asked for one by one."""
    picks, asked = chosen(root, nodes)
    found: dict[Call, Point] = {}
    unfit: dict[str, str] = dict.fromkeys(picks, UNCALLED)
    for call, shape in replay.shapes.calls.items():
        if call[0] not in picks:
            continue
        point = point_of(call, call[0], shape, picks[call[0]])
        if point is None:
            unfit[call[0]] = "has no output with one row per example"
            continue
        unfit.pop(call[0], None)
        found[call] = point
        tensors = sum(isinstance(leaf, Leaf) for leaf in shape.leaves)
        if tensors > 1 and picks[call[0]] is None:
            notes.append(
                f"node {point.name!r} is tensor {point.leaf} of the {tensors} of its output"
            )
    for name, why in unfit.items():
        if name in asked:
            kind = MeasurementError if why == UNCALLED or not _floating(replay, name) else NoGraph
            raise kind(
                f"submodule {name!r} {why}: it cannot be a node. Measure another, or a part that holds it"
            )
    if unfit:
        notes.append("left out: " + ", ".join(f"{name} ({why})" for name, why in unfit.items()))
    return found, asked


def _floating(replay: Replay, name: str) -> bool:
    """Whether a call of the submodule gives a floating tensor."""
    leaves = [
        leaf
        for call, shape in replay.shapes.calls.items()
        if call[0] == name
        for leaf in shape.leaves
    ]
    return any(
        isinstance(leaf, Leaf) and leaf.dtype.is_floating_point and leaf.shape for leaf in leaves
    )


def nodes_of(
    replay: Replay, traced: Traced, final: Point, asked: set[str], whole: bool
) -> list[Node]:
    """The nodes that reach the output."""
    points = {p.name: p for p in replay.points.values()} | {final.name: final}
    order = {INPUT: -1} | {name: i for i, name in enumerate(traced.needs)}
    plans = {name: plan_of(replay, traced, points[name], order, whole) for name in traced.needs}
    reached, waiting = set(), [final.name]
    while waiting:
        name = waiting.pop()
        if name not in reached and name != INPUT:
            reached.add(name)
            waiting += plans[name].parents
    lost = [p.name for p in points.values() if p.name not in reached and p.name in asked]
    if lost:
        raise MeasurementError(f"the output does not depend on {lost}: they cannot be nodes")
    empty = [name for name in reached if not plans[name].parents]
    if empty:
        raise MeasurementError(
            f"{empty} do not depend on the input at first: choose others, nodes=[...]"
        )
    return [
        Node(n, plans[n].parents, _function(replay, traced, plans[n]))
        for n in traced.needs
        if n in reached
    ]


def _function(replay: Replay, traced: Traced, plan: Plan) -> nn.Module:
    """The submodule itself where a node is one plain module of one parent, which has closed forms; else a replay."""
    call = plan.point.call
    if call is not None and plan.point.layout.plain and len(plan.parents) == 1:
        module = submodules(replay.root)[call[0]]
        single = len(replay.shapes.calls[call].leaves) == 1
        if single and traced.spans[call].argument == plan.parents[0] and _direct(module):
            parent = next((p for p in replay.points.values() if p.name == plan.parents[0]), None)
            if parent is None or parent.layout.plain:
                return module
    return Segment(replay, plan)


def _direct(module: nn.Module) -> bool:
    """Whether a module can be called by itself: torch's own parts, nothing in place, fused or recurrent, no hooks."""
    return all(
        type(m).__module__.startswith("torch.nn.modules")
        and not isinstance(
            m, nn.MultiheadAttention | nn.RNNBase
        )  # those in nn.Transformer included
        and not getattr(m, "inplace", False)
        and getattr(m, "_compiled_call_impl", None) is None
        and "forward" not in vars(m)
        for m in module.modules()
    ) and not hooked(module)


ATTENTION_NOTE = "attention is measured with the math kernel in place of fused ones, which have no second derivative"


@dataclass(frozen=True)
class Task:
    """The arguments of trace_module; tree: the (args, kwargs) of the module."""

    root: nn.Module
    loss: LossSpec
    tree: Any
    target: Any
    nodes: Nodes
    output: Pick
    batch_dim: int
    shared: tuple[str, ...]


@dataclass(frozen=True)
class Prepared:
    """A followed module. last: its own output; final: the node that is the output; asked: nodes named one by one."""

    replay: Replay
    traced: Traced
    last: Point
    final: Point
    asked: set[str]
    loss: LossSpec
    y: Tensor
    measured: Criterion

    @property
    def targets(self) -> Examples:
        return self.measured.targets


def prepared(task: Task, replay: Replay, count: int, notes: list[str]) -> Prepared:
    """The loss, the measured outputs and the data flow between them."""
    try:
        targets = Examples(((task.target,), {}), count, task.batch_dim, several=True)
    except MeasurementError as error:
        kinds = ", ".join(describe(leaf) for leaf in tree_leaves(task.target))
        raise MeasurementError(
            f"the target ({kinds}) does not fit {count} examples: expected a tensor with a row for each"
        ) from error
    shape = replay.shapes.output
    measured = criterion(
        task.loss, replay, targets, shape, task.target, task.output, task.batch_dim
    )
    of_tensor = measured.loss
    name = "output" if "output" not in submodules(task.root) else "output()"
    last = last_point(name, shape, measured.leaves, task.output)
    if last is None:
        raise MeasurementError(_no_output(shape))
    replay.points, asked = points_of(task.root, replay, task.nodes, notes)
    traced = follow(task.root, replay.x, replay.run, replay.points, last)
    if not traced.followed:
        notes.append(
            "the data flow could not be followed: every node depends on all nodes before it"
        )
    if traced.attention or any(isinstance(m, nn.MultiheadAttention) for m in task.root.modules()):
        notes.append(ATTENTION_NOTE)
    final = next((p for p in replay.points.values() if p.name == traced.output), last)
    fitting: LossSpec = of_tensor if isinstance(of_tensor, str) else of_layout(of_tensor, final)  # type: ignore[assignment]
    y = measured.targets.pack(((task.target, *measured.extra), {}))
    return Prepared(replay, traced, last, final, asked, fitting, y, measured)


def _no_output(shape: Shape) -> str:
    kinds = sorted({type(leaf).__name__ for leaf in tree_leaves(shape.example())})
    return (
        f"the module's output ({', '.join(kinds)}) has no tensor with one row per example: expected the tensor that "
        "the loss takes, alone or in tuples and dicts; pick it with output=..., return its tensors in a dict where it "
        "is an object of another kind, and leave the loss to loss(output, target) where the module returns its loss"
    )


def replay_of(task: Task, notes: list[str]) -> tuple[Replay, int]:
    """The module with its batch, run with two numbers of examples, and the number of examples.

    A square matrix with as many rows as there are examples may be a mask for all of them: tried where the module does
    not run otherwise. Raises NoGraph where it runs with one number of examples alone.
    """
    count = count_examples(task.tree, task.batch_dim, task.shared)
    if count == 0:
        raise MeasurementError("the batch is empty: expected at least one example")
    try:
        replay = _replay(task, task.shared, count, count + 1)
    except NoGraph:
        square = Examples(task.tree, count, task.batch_dim, task.shared).ambiguous()
        if not square:
            raise
        replay = _replay(task, (*task.shared, *square), count, count + 1)
    notes += [
        f"input {name!r} is the same for all examples"
        for name in replay.inputs.shared_names.values()
    ]
    return replay, count


def _replay(task: Task, shared: tuple[str, ...], *counts: int) -> Replay:
    inputs = Examples(task.tree, counts[0], task.batch_dim, shared)
    replay = Replay(task.root, inputs, inputs.pack(task.tree))
    replay.shapes = _shapes(replay, *counts)
    return replay


def hooked_replay(task: Task) -> tuple[Replay, int]:
    """The same where there is no graph: layouts are taken from one run where the module does not run otherwise."""
    try:
        replay, count = replay_of(task, [])
        # One example more may go to another expert: only what is the same for twice as many is the same for all.
        with contextlib.suppress(NoGraph):
            replay.shapes = fixed_in_both(replay.shapes, _shapes(replay, count, 2 * count))
    except NoGraph:
        count = count_examples(task.tree, task.batch_dim, task.shared)
        replay = _replay(task, task.shared, count)
    replay.shapes = guessed(replay.shapes, count, task.batch_dim)
    return replay, count


def _shapes(replay: Replay, *counts: int) -> Shapes:
    """Runs with these numbers of examples. Raises ValueError where the module does not run on its batch, NoGraph where
    it does not on another number of its examples."""
    done: list[int] = []

    def run(count: int) -> Any:
        out = replay.run(replay.rows(count))
        done.append(count)
        return out

    def failure(error: Exception) -> MeasurementError:
        line = first_line(error)
        if done:
            return NoGraph(
                f"the module cannot be run on {counts[1]} examples as on the {counts[0]} of the batch ({line}). Inputs "
                "that belong to no example are named by shared=[...]; the dimension of the examples is batch_dim=..."
            )
        given = ", ".join(describe(t) for t in tree_leaves(replay.inputs.unpack(replay.x)))
        return MeasurementError(
            f"the module failed on its batch, {given}: {type(error).__name__}: {line}. Check the shapes and dtypes of "
            f"the data{_gradient_inside(line)}"
        )

    with explained(failure):
        return shapes(replay.root, run, counts)


def _gradient_inside(line: str) -> str:
    if "does not require grad" not in line:
        return ""
    return "; a gradient that the module takes itself needs torch.enable_grad() around it, on a tensor that requires it"
