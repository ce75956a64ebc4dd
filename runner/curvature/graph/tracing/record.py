"""Three runs of a module that tell how its measured outputs depend on each other.

Two runs with different numbers of examples give the shape of every call's output and where it keeps its examples. The
third follows the data from the measured outputs to one another, operation by operation: every operation is recorded
with what it reads and writes, by storage, so that views and in-place operations are followed. A measured output is a
source of its own: what is computed from it does not depend on what came before. Values that leave the tensors (item(),
nonzero, tolist) may decide what is done next, so that everything after them counts as computed from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from runner.curvature.function.repairs import measurable
from runner.curvature.graph.dag import INPUT
from runner.curvature.graph.modes import Watch
from runner.curvature.graph.state import refuse_draws
from runner.curvature.graph.tensors import TreeSpec, tree_flatten, tree_leaves, tree_unflatten
from runner.curvature.graph.tracing.batches import Layout
from runner.curvature.graph.tracing.calls import Call, Pick, intercepted, label, picked

Source = int | str
"""The index of an operation, or the name of a measured output or of the input."""

_LEAVES_TENSORS = (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__)
_ATTENTION = (
    torch.nn.functional.scaled_dot_product_attention,
    torch.nn.functional.multi_head_attention_forward,
)


@dataclass(frozen=True)
class Needs:
    """What an output is computed from: measured outputs (and "input"), operations, and the storages they read."""

    names: frozenset[str]
    operations: frozenset[int]
    storages: frozenset[int]


class Flow(Watch):
    """Records while it is active. `name` declares a tensor a source, `needs` asks what another was computed from."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[frozenset[Source]] = []
        self.storages: list[frozenset[int]] = []
        self.control: set[Source] = set()
        self._writers: dict[int, frozenset[Source]] = {}
        self._alive: list[Any] = []  # a freed storage could give its number to another

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self._record(func, args, kwargs or {}, out)
        return out

    def name(self, t: Tensor, name: str) -> None:
        """From now on, what is read from `t` comes from `name`."""
        self._writers[self.key(t)] = frozenset((name,))

    def key(self, t: Tensor) -> int:
        """A number of the memory of `t`, the same for its views."""
        storage = t.untyped_storage()
        self._alive.append(storage)
        return storage._cdata

    def sources(self, tensors: Iterable[Tensor]) -> frozenset[Source]:
        """What the tensors were written by."""
        return frozenset().union(*(self._writers.get(self.key(t), frozenset()) for t in tensors))

    def left(self, tensors: Iterable[Tensor]) -> None:
        """The values of the tensors have been seen outside."""
        self.control |= self.sources(tensors)

    def needs(self, t: Tensor) -> Needs:
        """Everything that `t` is computed from, back to the sources."""
        waiting, seen, names = list(self.sources([t]) | self.control), set(), set()
        storages = {self.key(t)}
        while waiting:
            source = waiting.pop()
            if isinstance(source, str):
                names.add(source)
            elif source not in seen:
                seen.add(source)
                storages |= self.storages[source]
                waiting += self.reads[source]
        return Needs(frozenset(names), frozenset(seen), frozenset(storages))

    def _record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        given = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        made = [t for t in pytree.tree_leaves(out) if isinstance(t, Tensor)]
        written = _written(func, args, kwargs)
        read = frozenset(self.key(t) for t in given)
        fresh = [t for t in made if self.key(t) not in read]
        seen_outside = (
            torch.Tag.data_dependent_output in func.tags
            or torch.Tag.dynamic_output_shape in func.tags
        )
        if not fresh and not written and not seen_outside:
            return  # a view
        index = len(self.reads)
        self.reads.append(self.sources(given))
        self.storages.append(read)
        for t in (*fresh, *written):
            self._writers[self.key(t)] = frozenset((index,))
        if seen_outside:
            self.control.add(index)


class Unfollowed(Flow):
    """Stands for the flow of operations that cannot be followed: nothing is known of where a value comes from."""

    def key(self, t: Tensor) -> int:
        return 0

    def sources(self, tensors: Iterable[Tensor]) -> frozenset[Source]:
        return frozenset()

    def _record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        pass


class Departures(TorchFunctionMode):
    """Reports to a `Flow` the values that leave the tensors unseen by it, and whether fused attention is asked for."""

    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self.flow = flow
        self.attention = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _LEAVES_TENSORS:
            self.flow.left(t for t in pytree.tree_leaves(args) if isinstance(t, Tensor))
        if func in _ATTENTION:
            self.attention = True
        return func(*args, **(kwargs or {}))


def _written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The arguments that an operation changes."""
    found: list[Tensor] = []
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            found += [t for t in pytree.tree_leaves(value) if isinstance(t, Tensor)]
    return found


@dataclass(frozen=True)
class Leaf:
    """One tensor of an output: its shape for the first run, its type, and where it keeps its examples."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: Layout | None
    fixed: bool
    """The same shape for every number of examples."""


@dataclass
class Shape:
    """An output: its structure, and for each leaf a Leaf, or its value where it is no tensor."""

    spec: TreeSpec
    leaves: list[Any]

    def first_tensor(self) -> int | None:
        """The first floating leaf with one row per example."""
        return next((i for i, x in enumerate(self.leaves) if _measurable(x)), None)

    def example(self) -> Any:
        """An output of this structure with tensors of no particular numbers."""
        leaves = [
            torch.empty(x.shape, dtype=x.dtype, device="cpu") if isinstance(x, Leaf) else x
            for x in self.leaves
        ]
        return tree_unflatten(leaves, self.spec)

    @property
    def regular(self) -> bool:
        """Whether the output's shape is known for any number of examples."""
        return all(not isinstance(x, Leaf) or x.layout or x.fixed for x in self.leaves)


def _measurable(leaf: Any) -> bool:
    return isinstance(leaf, Leaf) and leaf.dtype.is_floating_point and leaf.layout is not None


@dataclass
class Shapes:
    """Every call in its order of beginning, and the module's own output."""

    calls: dict[Call, Shape]
    output: Shape
    nested: dict[Call, tuple[Call, ...]]
    """All calls made inside a call."""

    def with_leaves(self, change: Callable[[Call | None, int, Leaf], Leaf]) -> Shapes:
        """The same with change(call, place, leaf) for each tensor; the call of the module's own output is None."""

        def of(call: Call | None, shape: Shape) -> Shape:
            leaves = [
                change(call, i, x) if isinstance(x, Leaf) else x for i, x in enumerate(shape.leaves)
            ]
            return Shape(shape.spec, leaves)

        return Shapes(
            {call: of(call, s) for call, s in self.calls.items()},
            of(None, self.output),
            self.nested,
        )


def shapes(root: nn.Module, run: Callable[[int], Any], counts: Sequence[int]) -> Shapes:
    """From runs with two numbers of examples; from a single one nothing is known of the layouts."""
    n, m = counts[0], counts[-1]
    calls, nested, output = _outputs(root, lambda: run(n))
    others, _, other = _outputs(root, lambda: run(m)) if len(counts) > 1 else ({}, {}, None)
    common = {call: _shape(calls[call], others.get(call), n, m) for call in calls}
    return Shapes(common, _shape(output, other, n, m), nested)


def _outputs(
    root: nn.Module, run: Callable[[], Any]
) -> tuple[dict[Call, Any], dict[Call, tuple[Call, ...]], Any]:
    calls: dict[Call, Any] = {}
    nested: dict[Call, list[Call]] = {}
    stack: list[Call] = []

    def handler(call: Call, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        for outer in stack:
            nested[outer].append(call)
        calls[call], nested[call] = None, []
        stack.append(call)
        out = forward(*args, **kwargs)
        stack.pop()
        calls[call] = _metadata(out)
        return out

    with torch.no_grad(), measurable(root), intercepted(root, handler), refuse_draws("the module"):
        output = run()
    return calls, {call: tuple(inner) for call, inner in nested.items()}, _metadata(output)


def _metadata(out: Any) -> tuple[list[Any], TreeSpec]:
    leaves, spec = tree_flatten(out)
    return [(t.shape, t.dtype) if isinstance(t, Tensor) else t for t in leaves], spec


def _shape(
    first: tuple[list[Any], TreeSpec], second: tuple[list[Any], TreeSpec] | None, n: int, m: int
) -> Shape:
    leaves, spec = first
    other = (
        second[0] if second is not None and len(second[0]) == len(leaves) else [None] * len(leaves)
    )
    found: list[Any] = []
    for a, b in zip(leaves, other, strict=True):
        if not _is_metadata(a):
            found.append(a)
            continue
        known = _is_metadata(b)
        layout = Layout.between(a[0], n, b[0], m) if known else None
        found.append(Leaf(tuple(a[0]), a[1], layout, known and a[0] == b[0]))
    return Shape(spec, found)


def _is_metadata(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], torch.Size)


@dataclass(frozen=True)
class Point:
    """A measured output: a call (None: the module's own output), which of its tensors, and its layout."""

    name: str
    call: Call | None
    leaf: int
    layout: Layout
    parts: tuple[Point, ...] = ()
    """Of the module's own output, the tensors that are measured as one, next to each other in one row."""

    def take(self, output: Any) -> Tensor:
        """The tensor, with one row per example."""
        if self.parts:
            return torch.cat([part.take(output).flatten(1) for part in self.parts], 1)
        return self.layout.encode(tree_leaves(output)[self.leaf])

    def put(self, output: Any, value: Tensor) -> Any:
        """The output with `value` (one row per example) in the tensor's place."""
        leaves, spec = tree_flatten(output)
        leaves[self.leaf] = self.layout.decode(value)
        return tree_unflatten(leaves, spec)


@dataclass
class Span:
    """The operations begin..end of a call, the memory of its output's tensors, and its argument where it has only one:
    the measured output (or "input") that it is, unchanged."""

    begin: int
    end: int
    storages: list[int | None]
    argument: str = ""


@dataclass
class Traced:
    """What the third run found. needs[name]: of each measured output; output: name of the last one."""

    needs: dict[str, Needs] = field(default_factory=dict)
    spans: dict[Call, Span] = field(default_factory=dict)
    finished: dict[str, frozenset[Call]] = field(default_factory=dict)
    """Calls that had ended when an output was measured."""
    output: str = ""
    attention: bool = False
    followed: bool = True
    """Whether the operations could be followed; if not, `needs` has only the names."""


def follow(
    root: nn.Module,
    x: Tensor,
    run: Callable[[Tensor], Any],
    points: Mapping[Call, Point],
    output: Point,
) -> Traced:
    """The data flow between the measured outputs. output: the module's own one, measured unless a point is it."""
    try:
        return _followed(Flow(), root, x, run, points, output)
    except NotImplementedError:  # tensors without a memory of their own, as those of torch.vmap
        traced = _followed(Unfollowed(), root, x, run, points, output)
        traced.followed = False
        return traced


def _followed(
    flow: Flow,
    root: nn.Module,
    x: Tensor,
    run: Callable[[Tensor], Any],
    points: Mapping[Call, Point],
    output: Point,
) -> Traced:
    found = Traced()
    passed: dict[int, str] = {}
    alive: list[Tensor] = []
    ended: list[Call] = []

    def unchanged(value: Any) -> str:
        """The measured output (or "input") that a value is; "" when it is none, or was changed in place since."""
        name = passed.get(id(value), "")
        return name if name and flow.sources([value]) == {name} else ""

    def pass_on(value: Tensor, name: str) -> None:
        flow.name(value, name)
        passed[id(value)] = name
        alive.append(value)

    def handler(call: Call, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        begin = len(flow.reads)
        only = args[0] if len(args) == 1 and not kwargs and isinstance(args[0], Tensor) else None
        argument = unchanged(only) if only is not None else ""
        out = forward(*args, **kwargs)
        leaves = tree_leaves(out)
        keys = [flow.key(t) if isinstance(t, Tensor) else None for t in leaves]
        found.spans[call] = Span(begin, len(flow.reads), keys, argument)
        if call in points:
            point = points[call]
            found.needs[point.name] = flow.needs(leaves[point.leaf])
            found.finished[point.name] = frozenset(ended)
            value = leaves[point.leaf].clone()
            pass_on(value, point.name)
            leaves[point.leaf] = value
            out = tree_unflatten(leaves, tree_flatten(out)[1])
            found.spans[call].end = len(flow.reads)
        ended.append(call)
        return out

    departures = Departures(flow)
    with torch.no_grad(), measurable(root), intercepted(root, handler), flow, departures:
        given = x.clone()
        pass_on(given, INPUT)
        whole = run(given)
        result = output.take(whole) if output.parts else tree_leaves(whole)[output.leaf]
    found.output = unchanged(result)
    if found.output in ("", INPUT):
        found.output = output.name
        found.needs[output.name] = flow.needs(result)
        found.finished[output.name] = frozenset(ended)
    found.attention = departures.attention
    return found


def last_point(name: str, shape: Shape, leaves: tuple[int, ...] | None, pick: Pick) -> Point | None:
    """The measured tensors of the module's own output; None when one has no row per example."""
    if leaves is None or pick is not None:
        return point_of(None, name, shape, pick)
    if not all(_measurable(shape.leaves[i]) for i in leaves):
        return None
    parts = tuple(Point(name, None, i, shape.leaves[i].layout) for i in leaves)
    return parts[0] if len(parts) == 1 else Point(name, None, leaves[0], Layout(0, 1, 2), parts)


def point_of(call: Call | None, name: str, shape: Shape, pick: Pick) -> Point | None:
    """The measured tensor of a call's output; None when no tensor of it has one row per example."""
    place = (
        shape.first_tensor() if pick is None else picked(shape.example(), pick, f"node {name!r}")
    )
    if place is None or not _measurable(shape.leaves[place]):
        return None
    return Point(label(call) if call else name, call, place, shape.leaves[place].layout)
