"""The nodes of a traced module: which calls are measured, and the function of each from its parents."""

from __future__ import annotations

from torch import nn

from runner.curvature.graph.dag import INPUT, Node
from runner.curvature.graph.errors import MeasurementError
from runner.curvature.graph.tracing.calls import Call, submodules
from runner.curvature.graph.tracing.hooked import NoGraph
from runner.curvature.graph.tracing.points import Nodes, chosen
from runner.curvature.graph.tracing.record import Leaf, Point, Traced, point_of
from runner.curvature.graph.tracing.segment import Plan, Replay, Segment, plan_of
from runner.curvature.graph.written import hooked

_SPECIAL = (
    nn.MultiheadAttention,
    nn.RNNBase,
    nn.Transformer,
    nn.TransformerEncoder,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoder,
    nn.TransformerDecoderLayer,
)

UNCALLED = "is never called"


def points_of(root: nn.Module, replay: Replay, nodes: Nodes, notes: list[str]) -> tuple[dict[Call, Point], set[str]]:
    """The measured calls in the order of their beginning, and the names asked for one by one."""
    assert replay.shapes is not None
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
            notes.append(f"node {point.name!r} is tensor {point.leaf} of the {tensors} of its output")
    for name, why in unfit.items():
        if name in asked:
            kind = MeasurementError if why == UNCALLED or not _floating(replay, name) else NoGraph
            raise kind(f"submodule {name!r} {why}: it cannot be a node. Measure another, or a part that holds it")
    if unfit:
        notes.append("left out: " + ", ".join(f"{name} ({why})" for name, why in unfit.items()))
    return found, asked


def _floating(replay: Replay, name: str) -> bool:
    """Whether a call of the submodule gives a floating tensor."""
    assert replay.shapes is not None
    leaves = [leaf for call, shape in replay.shapes.calls.items() if call[0] == name for leaf in shape.leaves]
    return any(isinstance(leaf, Leaf) and leaf.dtype.is_floating_point and leaf.shape for leaf in leaves)


def nodes_of(replay: Replay, traced: Traced, final: Point, asked: set[str], whole: bool) -> list[Node]:
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
        raise MeasurementError(f"{empty} do not depend on the input: they cannot be nodes")
    return [Node(n, plans[n].parents, _function(replay, traced, plans[n])) for n in traced.needs if n in reached]


def _function(replay: Replay, traced: Traced, plan: Plan) -> nn.Module:
    """The submodule itself where a node is one plain module of one parent, which has closed forms; else a replay."""
    call = plan.point.call
    if call is not None and plan.point.layout.plain and len(plan.parents) == 1:
        module = submodules(replay.root)[call[0]]
        single = replay.shapes is not None and len(replay.shapes.calls[call].leaves) == 1
        if single and traced.spans[call].argument == plan.parents[0] and _direct(module):
            parent = next((p for p in replay.points.values() if p.name == plan.parents[0]), None)
            if parent is None or parent.layout.plain:
                return module
    return Segment(replay, plan)


def _direct(module: nn.Module) -> bool:
    """Whether a module can be called by itself: torch's own parts, nothing in place, fused or recurrent, no hooks."""
    return all(
        type(m).__module__.startswith("torch.nn.modules")
        and not isinstance(m, _SPECIAL)
        and not getattr(m, "inplace", False)
        and getattr(m, "_compiled_call_impl", None) is None
        and "forward" not in vars(m)
        for m in module.modules()
    ) and not hooked(module)
