"""How a model states its graph: named nodes, their parents, one batched function each, one output,
one loss.

The modules at the beginning state a node's structure: several steps as one node, residual blocks,
merges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from runner.curvature.basics.errors import expect_tensor, explained, node_failure
from runner.curvature.basics.result import short
from runner.curvature.basics.trees import deep_copy, in_dtype
from runner.curvature.graphs.losses import Loss, LossSpec, resolve_loss


class Residual(nn.Module):
    """h + scale * branch(h), (B, d) -> (B, d): a residual block as one node.

    Raises torch's RuntimeError where the branch changes the width.
    """

    def __init__(self, branch: nn.Module, scale: float = 1.0) -> None:
        super().__init__()
        self.branch = branch
        self.scale = scale

    def forward(self, h: Tensor) -> Tensor:
        return h + self.scale * self.branch(h)


class WeightedSum(nn.Module):
    """sum_k weights[k] * parents[k], parents (B, d) each: a linear merge, e.g. WeightedSum(2 **
    -0.5, 2 ** -0.5).

    Raises ValueError for another number of parents than weights.
    """

    def __init__(self, *weights: float) -> None:
        super().__init__()
        self.weights = tuple(float(weight) for weight in weights)

    def forward(self, *parents: Tensor) -> Tensor:
        if len(parents) != len(self.weights):
            raise ValueError(
                f"WeightedSum has {len(self.weights)} weights and got {len(parents)} parents"
            )
        total = self.weights[0] * parents[0]
        for weight, parent in zip(self.weights[1:], parents[1:], strict=True):
            total = total + weight * parent
        return total


class Concatenated(nn.Module):
    """body(cat(parents)), parents (B, d_p) to (B, sum d_p) for `body`: a merge by concatenation
    along dimension 1.

    Whatever the body raises is raised.
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, *parents: Tensor) -> Tensor:
        return self.body(torch.cat(parents, 1))


INPUT = "input"


@dataclass(frozen=True, eq=False)
class Node:
    """One node f_v = fn(f_p for p in parents) of the graph.

    name: unique, not "input" (reserved for the network's input). parents: names, in the order of
    fn's arguments; a name may repeat. fn: batched over examples (dimension 0) and acting on each
    example by itself; any callable or `nn.Module`. in_place: whether fn overwrites its arguments,
    None before it is called; it is then given copies.

    Outputs with more than one dimension per example, shape (B, d1, d2, ...), are flattened row by
    row (last index fastest): component (i, j) of a (B, S, d) output is row i*d + j of its blocks.
    """

    name: str
    parents: tuple[str, ...]
    fn: Callable[..., Tensor]
    in_place: bool | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        parents = (self.parents,) if isinstance(self.parents, str) else tuple(self.parents)
        object.__setattr__(self, "parents", parents)
        if not self.name or self.name == INPUT:
            raise ValueError(
                f"a node's name must be non-empty and not {INPUT!r} (the network's input), "
                f"got {self.name!r}"
            )
        if not parents:
            raise ValueError(
                f"node {self.name!r} has no parents: name at least one, for example ({INPUT!r},)"
            )
        if not callable(self.fn):
            raise ValueError(
                f"node {self.name!r}: fn must be callable, got {type(self.fn).__name__}"
            )

    def __call__(self, *inputs: Tensor) -> Tensor:
        """fn of the parents' outputs, which are left as they are. Raises ValueError with the node's
        name for whatever goes wrong in it."""
        given = inputs if self.in_place is False else [t.clone() for t in inputs]
        with explained(lambda error: node_failure(self.name, inputs, error)):
            value = self.fn(*given)
        if self.in_place is None and not torch.is_inference_mode_enabled():
            object.__setattr__(self, "in_place", any(t._version for t in given))
        return expect_tensor(self.name, value)

    def forget(self) -> None:
        """Whether fn overwrites its arguments is to be seen anew: its modules may have changed."""
        object.__setattr__(self, "in_place", None)

    def parameters(self) -> dict[str, Tensor]:
        """Parameters by name, of a module."""
        if isinstance(self.fn, nn.Module):
            return dict(self.fn.named_parameters())
        return {}


class _NodeModule(nn.Module):
    """One node as a submodule, whatever its function is."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        node.forget()
        self.node = node
        if isinstance(node.fn, nn.Module):
            self.function = node.fn

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.node(*inputs)


class _DagModule(nn.Module):
    """A stated graph as a module; see `Dag.as_module`."""

    def __init__(self, dag: Dag) -> None:
        super().__init__()
        self.dag = dag
        self._modules[INPUT] = nn.Identity()
        for name, node in dag.nodes.items():  # `add_module` takes no names with dots
            self._modules[name] = _NodeModule(node)

    def forward(self, x: Tensor) -> Tensor:
        values = {INPUT: self._modules[INPUT](x)}  # type: ignore[misc]
        for name in self.dag.order:
            parents = self.dag.nodes[name].parents
            values[name] = self._modules[name](*(values[p] for p in parents))  # type: ignore[misc]
        return values[self.dag.output]


class Dag:
    """A network as a directed acyclic graph with one output and a per-example loss.

    nodes: in any order. loss: "cross_entropy", "mse" (mean over the output components of an
    example, as torch's), or a callable loss(output, target) that returns one value per example,
    shape (B,), or their mean, shape ().

    `order` lists the node names topologically (without "input"); `output` is the last one.

    >>> dag = Dag([Node("a", ("input",), torch.tanh), Node("out", ("a",), torch.tanh)], loss="mse")
    >>> dag.order
    ('a', 'out')

    Raises ValueError for duplicate or unknown names, cycles, and nodes that never reach the output.
    """

    def __init__(self, nodes: Iterable[Node], loss: LossSpec = "cross_entropy") -> None:
        self.nodes: dict[str, Node] = {}
        for node in nodes:
            if node.name in self.nodes:
                raise ValueError(f"two nodes are named {node.name!r}: names must be unique")
            self.nodes[node.name] = node
        if not self.nodes:
            raise ValueError("a graph needs at least one node")
        self.loss: Loss = resolve_loss(loss)
        self._check_parents()
        self.order: tuple[str, ...] = self._topological_order()
        self.children: dict[str, tuple[str, ...]] = self._children()
        self.output: str = self._single_output()

    # ------------------------------------------------------------------ construction

    @classmethod
    def from_sequential(
        cls,
        modules: nn.Sequential | nn.ModuleList | Sequence[Callable[..., Tensor]],
        loss: LossSpec = "cross_entropy",
        names: Sequence[str] | None = None,
    ) -> Dag:
        """The chain of an unmodified `nn.Sequential`, `nn.ModuleList` or list of modules, one node
        per module.

        names: one per node (default: the modules' own names, "0", "1", ...). An nn.Sequential among
        them is one node."""
        if not isinstance(modules, nn.Sequential | nn.ModuleList | Sequence):
            raise ValueError(
                "expected an nn.Sequential, an nn.ModuleList or a list of modules, found "
                f"{type(modules).__name__}: "
                "use LayerOperator(module, loss, (x, y)) for another module, or put it in a list"
            )
        parts: list[Callable[..., Tensor]] = list(modules)
        labels = [str(i) for i in range(len(parts))]
        if names is not None:
            labels = list(names)
        elif isinstance(modules, nn.Module):
            labels = list(modules._modules)  # a module may be there twice
        if len(labels) != len(parts):
            raise ValueError(f"expected {len(parts)} names, got {len(labels)}")
        parents = [INPUT, *labels[:-1]]
        chain = zip(labels, parents, parts, strict=True)
        return cls([Node(name, (parent,), part) for name, parent, part in chain], loss)

    def as_module(self) -> nn.Module:
        """The graph as a module, whose submodules are its nodes, by name, and "input".

        `LayerOperator` gives products between the nodes:

        >>> from runner.curvature import LayerOperator
        >>> dag = Dag.from_sequential([torch.sin, torch.tanh], loss="mse", names=["h", "out"])
        >>> batch = torch.ones(2, 3), torch.zeros(2, 3)
        >>> operator = LayerOperator(dag.as_module(), dag.loss, batch, dag.order)
        >>> operator.block("h", "out").dense().shape
        torch.Size([3, 3])
        """
        return _DagModule(self)

    def to(self, dtype: torch.dtype) -> Dag:
        """A copy with every module and parameter in `dtype`; shared weights stay shared. The loss
        is kept."""
        memo: dict[int, object] = {}
        copies = []
        for node in self.nodes.values():
            fn = node.fn
            if isinstance(fn, nn.Module):
                fn = deep_copy(fn, memo)._apply(lambda t: in_dtype(t, dtype))
            copies.append(Node(node.name, node.parents, fn))
        return Dag(copies, self.loss)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.order)} nodes: {short(self.order)})"

    # ------------------------------------------------------------------ evaluation

    def forward(
        self, x: Tensor, perturbation: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Outputs of every node (and "input"). perturbation[v], broadcastable to f_v, is added to
        f_v: the e_v of H[v,w]."""
        shift = perturbation or {}
        values = {INPUT: x + shift[INPUT] if INPUT in shift else x}
        for name in self.order:
            node = self.nodes[name]
            value = node(*(values[p] for p in node.parents))
            values[name] = value + shift[name] if name in shift else value
        return values

    def mean_loss(
        self, x: Tensor, y: Tensor, perturbation: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Mean over the batch of the loss, of the network with the perturbations added."""
        return self.loss.per_example(self.forward(x, perturbation)[self.output], y).mean()

    def select(self, nodes: Iterable[str] | None) -> tuple[str, ...]:
        """`nodes` checked and in topological order; None means every node. "input" may be asked for
        by name, and one name alone as a string."""
        if nodes is None:
            return self.order
        asked = [nodes]
        if not isinstance(nodes, str):
            asked = list(nodes)
        unknown = [name for name in asked if name not in self.nodes and name != INPUT]
        if unknown:
            raise ValueError(f"unknown nodes {unknown}: the graph has {[INPUT, *self.order]}")
        if not asked:
            raise ValueError("nodes is empty: name at least one, or pass None for all of them")
        return tuple(name for name in (INPUT, *self.order) if name in set(asked))

    def descendants(self, nodes: Iterable[str]) -> set[str]:
        """The nodes that a path leads to from one of `nodes`."""
        found = set[str]()
        sources = set(nodes)
        for name in self.order:
            if not sources.isdisjoint(self.nodes[name].parents):
                found.add(name)
                sources.add(name)
        return found

    def distance(self, v: str, w: str) -> int:
        """Length of the shortest undirected path between two nodes that does not run through
        "input".

        Raises ValueError when there is none.
        """
        self.select([v, w])
        neighbours = {
            name: {*self.children[name], *node.parents} for name, node in self.nodes.items()
        }
        neighbours[INPUT] = {*self.children[INPUT]}
        frontier = {v}
        seen = {v, INPUT} - {w}
        steps = 0
        while frontier:
            if w in frontier:
                return steps
            frontier = {n for f in frontier for n in neighbours[f]} - seen
            seen |= frontier
            steps += 1
        raise ValueError(f"no path between {v!r} and {w!r}")

    # ------------------------------------------------------------------ validation

    def _check_parents(self) -> None:
        for node in self.nodes.values():
            unknown = [p for p in node.parents if p != INPUT and p not in self.nodes]
            if unknown:
                raise ValueError(
                    f"node {node.name!r} names unknown parents {unknown}: known are "
                    f"{[INPUT, *self.nodes]}"
                )

    def _topological_order(self) -> tuple[str, ...]:
        placed = {INPUT}
        order = []
        waiting = list(self.nodes.values())
        while waiting:
            ready = [node for node in waiting if placed.issuperset(node.parents)]
            if not ready:
                raise ValueError(f"the graph has a cycle through {[node.name for node in waiting]}")
            order += [node.name for node in ready]
            placed.update(order)
            waiting = [node for node in waiting if node.name not in placed]
        return tuple(order)

    def _children(self) -> dict[str, tuple[str, ...]]:
        children: dict[str, list[str]] = {name: [] for name in (INPUT, *self.order)}
        for name in self.order:
            for parent in dict.fromkeys(self.nodes[name].parents):
                children[parent].append(name)
        return {name: tuple(found) for name, found in children.items()}

    def _single_output(self) -> str:
        ends = [name for name in self.nodes if not self.children[name]]
        if len(ends) != 1:
            raise ValueError(
                f"expected one output, found {len(ends)} nodes without children: {ends}. Only one "
                "of them can be the output, the others never reach it: remove them or connect them"
            )
        return ends[0]
