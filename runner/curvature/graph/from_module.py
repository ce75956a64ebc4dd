"""The graph of an unmodified `nn.Module`: measured outputs of its submodules as nodes, by tracing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from runner.curvature.graph.dag import INPUT, Dag, Node
from runner.curvature.graph.errors import (
    CallsChanged,
    MeasurementError,
    describe,
    first_not_finite,
    no_derivatives,
)
from runner.curvature.graph.losses import LossSpec
from runner.curvature.graph.state import measuring_module, untouched
from runner.curvature.graph.tensors import alike, deep_copy, in_dtype, tree_leaves
from runner.curvature.graph.tracing.batches import arguments_of, names_of
from runner.curvature.graph.tracing.calls import Nodes, Pick, check_evaluation, unwrapped
from runner.curvature.graph.tracing.criterion import Criterion
from runner.curvature.graph.tracing.prepare import (
    Prepared,
    Task,
    hooked_replay,
    nodes_of,
    prepared,
    replay_of,
)
from runner.curvature.graph.tracing.record import Point
from runner.curvature.graph.tracing.segment import NoGraph, Replay, described, without_functions


class TracedDag(Dag):
    """The graph of a module. x, y: its traced batch as the engine takes it, row b for example b; `pack` and
    `pack_target` make the same of another batch. notes: what was decided while tracing, in plain words.

    no_graph: why the nodes have no functions of their own, else "".

    `forward` runs the module once, with the perturbations added where the outputs are made.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        loss: LossSpec,
        replay: Replay,
        point: Point,
        y: Tensor,
        measured: Criterion,
    ) -> None:
        super().__init__(nodes, loss)
        self.replay, self.point, self.y, self.targets, self.held = (
            replay,
            point,
            y,
            measured.targets,
            measured.fixed,
        )
        self.packed = len(replay.inputs.parts) > 1
        self.notes: tuple[str, ...] = ()
        self.no_graph = ""

    @property
    def x(self) -> Tensor:
        return self.replay.x

    @property
    def module(self) -> nn.Module:
        """The traced module itself."""
        return self.replay.root

    def pack(self, given: Any) -> Tensor:
        """The input of a batch, of the structure that was traced, as the engine takes it."""
        return self.replay.inputs.pack(arguments_of(given))

    def pack_target(self, target: Any) -> Tensor:
        """The target of a batch as the engine takes it. Raises MeasurementError for a loss that divides by a number of
        the batch (weights of classes, labels that are ignored) or reads tensors of the output that are kept as they
        were (masks)."""
        if len(self.targets.spec.children()[0].children()) > 1:
            raise MeasurementError(
                "the loss divides by a number of its batch, or reads a mask of the output: trace the module again with "
                "this batch"
            )
        return self.targets.pack(((target,), {}))

    def check_target(self, x: Tensor, y: Tensor) -> None:
        """Raises MeasurementError where tensors of the output that the loss reads and holds fixed are no longer those
        in y: of another batch, or of other weights."""
        if not self.held:
            return
        (_, *kept), _ = self.targets.unpack(y)
        with torch.no_grad():
            leaves = tree_leaves(self.replay.run(x.clone()))
        for place, old in zip(self.held, kept, strict=False):
            layout = self.replay.shapes.output.leaves[place].layout
            now = leaves[place] if layout is None else layout.encode(leaves[place])
            if not alike(now.to(old.dtype), old):
                raise MeasurementError(
                    "the loss reads a tensor of the output that it does not differentiate (a mask, a detached weight), "
                    "and it has changed since the module was traced: trace the module again"
                )

    def forward(
        self, x: Tensor, perturbation: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Outputs of every node (and "input") in one run of the module; see Dag.forward."""
        found = self.replay.values(x, self.point, perturbation or {})
        missing = [name for name in self.order if name not in found]
        if missing:
            raise CallsChanged(
                f"nodes {missing}: the module did not call them on this batch; trace it again"
            )
        return {name: found[name] for name in (INPUT, *self.order)}

    def to(self, dtype: torch.dtype) -> TracedDag:
        """A copy with every floating tensor in `dtype`; shared weights stay shared. The loss is kept."""
        kept = (
            self.loss,
            self.replay.shapes,
            self.replay.inputs.spec,
            self.targets.spec,
        )  # none of them changes
        twin = deep_copy(self, {id(part): part for part in kept})
        for part in (twin.replay, twin.targets):
            part._apply(lambda t: in_dtype(t, dtype))
        if twin.y.is_floating_point():
            twin.y = twin.y.to(dtype)
            twin.targets.refuse_rounding(self.y, twin.y)
        twin.replay.inputs.refuse_rounding(self.x, twin.x)
        return twin


def trace_module(
    module: nn.Module,
    loss: LossSpec,
    batch: tuple[Any, Any],
    nodes: Nodes = None,
    *,
    output: Pick = None,
    batch_dim: int = 0,
    shared: Iterable[str] = (),
) -> TracedDag:
    """The graph of an unmodified module, whose nodes are the outputs of its submodules.

    module: in evaluation mode. loss(output, target): the mean over the examples or one value per example, as torch's,
    or a name ("cross_entropy", "mse"). batch = (input, target): input is a tensor, a tuple of positional arguments, a
    dict of keyword arguments, or (tuple, dict).
    nodes: names or patterns of submodules ("layers.*", "**.attn"; * stays inside one part of a name), or a mapping
    name -> which tensor of a structured output ("0", "hidden.0", or a callable that returns it; default the first
    floating one). Default: the submodules with parameters directly below the module, containers opened. The second
    call of a module is the node "name#2". The module's own output is the last node, called "output" unless it is that
    of a submodule. output: which tensor of a structured output the loss gets; without it the loss gets the whole.
    What the loss reads of it and does not differentiate stays as it is in this batch. batch_dim: the dimension of the
    examples in inputs and targets. shared: inputs that belong to no example although their first dimension has the size
    of the batch ("mask", or "1" for the second positional argument).

    Returns a Dag whose edges are the data flow between the measured outputs, with the batch as `.x` and `.y`:
    H[v,w] = d2 L / de_v de_w for e_v added to the output of submodule v (DAG paper, Definition 4). Node functions
    replay the module itself, so that they follow its weights; its code, hooks and modes are left as they are. Whatever
    depends on values that leave the tensors (item(), nonzero) counts as depending on all that went into them.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    >>> dag = trace_module(net, "cross_entropy", (torch.zeros(5, 3), torch.zeros(5, dtype=torch.long)))
    >>> dag.order, dag.nodes["2"].parents
    (('0', '2'), ('0',))

    Where no graph can be had (a module that runs on one number of examples alone, a submodule that sees some rows of
    the batch) the Dag says why in `no_graph`: the matrix-free operators work all the same, on the whole batch at once,
    with the perturbations added as hooks would; everything exact refuses with the reason.

    Raises ValueError for unknown names, submodules that are not called, training modes that make the loss random,
    modules that mix examples or draw at random, autocast, weights without values, and a batch that is no pair.
    """
    if not isinstance(module, nn.Module):
        raise MeasurementError(
            f"expected an nn.Module, found {type(module).__name__}: Dag([Node(...), ...]) takes functions"
        )
    root = unwrapped(module)
    check_evaluation(root)
    given, target = _pair(batch)
    with measuring_module(root, loss):
        return _traced(
            Task(
                root, loss, arguments_of(given), target, nodes, output, batch_dim, names_of(shared)
            )
        )


def _pair(batch: object) -> tuple[Any, Any]:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        found = f"{len(batch)} of them" if isinstance(batch, tuple | list) else describe(batch)
        raise MeasurementError(
            f"expected batch = (input, target), found {found}; several inputs are a tuple of their own"
        )
    if batch[1] is None:
        raise MeasurementError(
            "the target is None: give loss(output, target) a tensor, the input itself if it needs none"
        )
    return batch[0], batch[1]


def _traced(task: Task) -> TracedDag:
    notes: list[str] = []
    try:
        replay, count = replay_of(task, notes)
        made = prepared(task, replay, count, notes)
        dag = _graph(made, notes)
    except NoGraph as error:
        notes = [f"no graph, and no exact blocks: {error}"]
        replay, count = hooked_replay(task)
        made = prepared(task, replay, count, notes)
        dag = _hooked(made, str(error), notes)
    if made.measured.value is not None:
        _refuse_kept(dag, made.measured.value)
    return _with_notes(dag, notes)


def _refuse_kept(dag: TracedDag, value: Callable[[], Any]) -> None:
    """Raises MeasurementError for a loss that reads what the module keeps of its last call (an auxiliary loss in an
    attribute): it changes when the measured outputs are perturbed, while output and target stay."""
    g = torch.Generator().manual_seed(0)
    with (
        torch.no_grad(),
        untouched(dag.replay.root),
        contextlib.suppress(RuntimeError, CallsChanged),
    ):
        values = dag.forward(dag.x)
        first, again = value().mean(), value().mean()
        floating = {v: t for v, t in values.items() if t.is_floating_point()}
        dag.forward(dag.x, {v: (0.1 + 0.1 * t.abs()) * _noise(t, g) for v, t in floating.items()})
        moved = value().mean()
        eps = 16 * torch.finfo(first.dtype).eps * float(first.abs())
        if float((first - again).abs()) <= eps < float((first - moved).abs()):
            raise MeasurementError(
                "the loss depends on what the module keeps of its last call, by another way than its output (an "
                "auxiliary loss or features in an attribute): let the module return it in its output"
            )


def _graph(made: Prepared, notes: list[str]) -> TracedDag:
    """Raises ValueError when the module is no function of one example, or its parts are none of one another."""
    _check_rows(made.replay, made.last)
    for whole in (False, True):
        if made.traced.followed or whole:
            dag = _dag(made, nodes_of(made.replay, made.traced, made.final, made.asked, whole))
            if _agrees(dag):
                return dag
            notes.append(
                "the data flow could not be followed: every node depends on all nodes before it"
            )
    raise MeasurementError(
        "the module is no function of its inputs and of the outputs of its submodules (it keeps values from one "
        "call to the next, or draws at random): blocks between its nodes do not exist"
    )


def _hooked(made: Prepared, why: str, notes: list[str]) -> TracedDag:
    nodes = nodes_of(made.replay, made.traced, made.final, made.asked, not made.traced.followed)
    dag = _dag(made, without_functions(nodes, made.replay, why))
    dag.no_graph = why
    with torch.no_grad():
        values = dag.forward(dag.x)
    notes.append(described({name: values[name] for name in dag.order}))
    return dag


def _dag(made: Prepared, nodes: list[Node]) -> TracedDag:
    return TracedDag(nodes, made.loss, made.replay, made.final, made.y, made.measured)


def _with_notes(dag: TracedDag, notes: list[str]) -> TracedDag:
    dropped = [p.name for p in dag.replay.points.values() if p.name not in dag.nodes]
    if dropped:
        notes.append(f"left out, since the output does not depend on them: {', '.join(dropped)}")
    dag.notes = tuple(notes)
    return dag


def _check_rows(replay: Replay, output: Point) -> None:
    """Raises ValueError when a node's rows for the same examples differ between two batches."""
    n = len(replay.x)
    with torch.no_grad():
        one, more = (replay.values(replay.rows(k), output, {}) for k in (n, n + 1))
        if bad := first_not_finite(one):
            raise no_derivatives(bad)
        same = {
            name: name in more and alike(more[name], torch.cat([t, t[:1]]))
            for name, t in one.items()
        }
        if n > 2 and all(
            same.values()
        ):  # where one more changes a mean by less than half precision tells
            with contextlib.suppress(Exception):  # two examples may be too few for the module
                few = replay.values(replay.rows(2), output, {})
                same |= {name: alike(t, one[name][:2]) for name, t in few.items()}
    for name in one:
        if not same[name]:
            raise MeasurementError(
                f"node {name!r} mixes the examples of the batch, or draws at random: its rows for the same examples "
                "differ between two batches. Blocks need a function of one example (evaluation mode; batch_dim=...)"
            )


def _agrees(dag: TracedDag) -> bool:
    """Whether the graph, node by node, gives the module's outputs, all of them perturbed."""
    g = torch.Generator().manual_seed(0)
    with torch.no_grad(), untouched(dag.replay.root):
        values = dag.forward(dag.x)
        shift = {
            v: 0.01 * values[v].std(correction=0).item() * _noise(values[v], g) for v in dag.order
        }
        moved = dag.forward(dag.x, shift)
        # Whatever the replay before, of the same node or another, left in the module.
        every = (
            dag.nodes[v] for v in (*dag.nodes, *(v for v in reversed(dag.nodes) for _ in range(2)))
        )
        try:
            same = all(
                alike(n(*(moved[p] for p in n.parents)) + shift[n.name], moved[n.name])
                for n in every
            )
        except MeasurementError:
            if dag.replay.resets:
                raise
            same = False
    if not same and not dag.replay.resets:
        dag.replay.resets = True
        dag.replay.resets = same = _agrees(dag)
    return same


def _noise(t: Tensor, g: torch.Generator) -> Tensor:
    return torch.randn(t.shape, generator=g, dtype=torch.float32, device="cpu").to(t)
