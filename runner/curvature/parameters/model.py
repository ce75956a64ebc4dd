"""The module as a function of its parameters: its output, the loss of a batch, and groups of the flat vector."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from runner.curvature.function.repairs import measurable
from runner.curvature.graph.errors import MeasurementError
from runner.curvature.graph.state import CONTAINERS, reachable, untouched
from runner.curvature.graph.tensors import (
    copy_of_object,
    slices_of,
    tree_flatten,
    tree_leaves,
    tree_unflatten,
)
from runner.curvature.graph.tracing.batches import arguments_of
from runner.curvature.graph.tracing.calls import Pick, picked
from runner.curvature.graph.tracing.criterion import FixedMeans
from runner.curvature.matrix_free.reference import widen

R = TypeVar("R")
Named = dict[str, Tensor]
Loss = Callable[[Any, Any], Tensor]


def call_with(module: nn.Module, tensors: Named, arguments: Any) -> Any:
    """torch.func.functional_call, which leaves wrong tensors in a module that has two names (torch 2.13)."""
    names = {id(t): name for name, t in (*module.named_parameters(), *module.named_buffers())}
    every = {}
    for prefix, m in module.named_modules(prefix="."):
        for key, t in (*m._parameters.items(), *m._buffers.items()):
            if names.get(id(t)) in tensors:
                every[f"{prefix}.{key}".lstrip(".")] = tensors[names[id(t)]]
    return functional_call(module, every, arguments, tie_weights=False)


class _Within(nn.Module):
    """Runs a function while a module, and the loss where it is one, have other tensors in place of their own."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module, self.loss = module, loss

    def forward(self, run: Callable[[], R]) -> R:
        return run()


class Unchanged:
    """Calls a function with a tree that it may change in place, of which the caller's own stays as it is.

    Tensors are copied once to see whether the function changes them, and from then on only if it does; objects that
    are no tensors (the cache of a language model) are always copied.
    """

    def __init__(self) -> None:
        self.changes: bool | None = None

    def call(self, function: Callable[[Any], R], tree: Any) -> R:
        leaves, spec = tree_flatten(tree)
        given = [self._copied(leaf) for leaf in leaves]
        found = function(tree_unflatten(given, spec))
        if self.changes is None:
            self.changes = any(
                isinstance(t, Tensor) and not t.is_inference() and t._version > 0 for t in given
            )
        return found

    def _copied(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf if self.changes is False else leaf.clone()
        return copy_of_object(leaf)


class Model:
    """loss(module(input), target). pick: which tensor of a structured output the loss gets; None: all of it.

    The loss sees the module with the parameters of the call, too. to: what all other tensors of both are replaced by.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        pick: Pick = None,
        *,
        to: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.module, self.loss, self.pick = module, loss, pick
        self._within, self._parts = _Within(module, loss), reachable(module, loss)
        self._constants: Named = {}
        self._buffers = dict(self._within.named_buffers())
        if to is not None:
            self._constants = {name: to(t.detach()) for name, t in self._within.named_parameters()}
            self._buffers = {name: to(t.detach()) for name, t in self._buffers.items()}
        self._complex = {name for name, p in module.named_parameters() if p.is_complex()}
        self._takes_gradients = False
        self.volatile: set[str] = set()
        """Names of attributes that calls change."""
        self._looks: float = (
            4  # calls of which it is seen whether they change the module; all, once one does
        )
        self._inputs, self._targets, self._held = Unchanged(), Unchanged(), Unchanged()

    def double(self) -> Model:
        """The same module in float64, without a copy of it."""
        return Model(self.module, self.loss, self.pick, to=widen)

    @contextmanager
    def differentiable(self, graph: bool = True) -> Iterator[None]:
        """Gradients on, every part of the module in a form that can be differentiated twice, and as it was in the
        end. graph=False: gradients off, unless the module takes some itself."""
        whole = untouched(found=self._parts) if self._looks else nullcontext()
        graph = graph or self._takes_gradients
        with (
            torch.inference_mode(False),
            torch.set_grad_enabled(graph),
            whole,
            measurable(self.module),
        ):
            before = self._state() if self._looks else None
            yield
            if before is not None and self._looks:
                after = self._state()
                self.volatile |= {
                    one[0] for one, other in zip(before[0], after[0], strict=False) if one != other
                }
                self._looks = self._looks - 1 if after == before else math.inf

    def _state(self) -> Any:
        """Identities of what modules hold, and versions of loose tensors: what a call may change besides buffers."""
        held: list[Any] = []
        for key, value in (
            item for _, m in self._parts.modules.values() for item in vars(m).items()
        ):
            inside = (
                value.values()
                if isinstance(value, dict)
                else value
                if isinstance(value, CONTAINERS)
                else ()
            )
            deeper = (id(v) for inner in inside if isinstance(inner, list) for v in inner)
            held.append((key, id(value), *map(id, inside), *deeper))
        return held, [t._version for _, t in self._parts.tensors.values() if not t.is_inference()]

    def within(self, parameters: Mapping[str, Tensor], run: Callable[[], R]) -> R:
        """run(), the module having these parameters; complex ones are given as pairs of real numbers."""
        placed = {
            f"module.{k}": torch.view_as_complex(p) if k in self._complex else p
            for k, p in parameters.items()
        }
        fixed = {**self._constants, **placed}
        return self._held.call(
            lambda held: call_with(self._within, {**fixed, **held}, (run,)), self._buffers
        )

    def call(self, parameters: Mapping[str, Tensor], given: Any) -> Any:
        """What the loss reads: module(*args, **kwargs), or the picked tensor of it."""
        return self.within(parameters, lambda: self._output(given))

    def value(self, parameters: Mapping[str, Tensor], batch: tuple[Any, Any]) -> Tensor:
        """The loss of a batch."""
        return self.within(parameters, lambda: self.loss_of(self._output(batch[0]), batch[1]))

    def output_and_loss(
        self, parameters: Mapping[str, Tensor], batch: tuple[Any, Any]
    ) -> tuple[Any, Tensor]:
        """What the loss reads, and the loss of a batch."""
        output = self.call(parameters, batch[0])
        return output, self.within(parameters, lambda: self.loss_of(output, batch[1]))

    def loss_alone(self, parameters: Mapping[str, Tensor], batch: tuple[Any, Any]) -> Tensor:
        """The loss of a batch without a graph."""
        try:
            with self.differentiable(graph=False):
                return self.value(parameters, batch).detach()
        except RuntimeError as error:
            if self._takes_gradients or "does not require grad" not in str(error):
                raise
            self._takes_gradients = True
            return self.loss_alone(parameters, batch)

    def labels(
        self, parameters: Mapping[str, Tensor], batch: tuple[Any, Any], classes: bool = True
    ) -> tuple[float, bool] | None:
        """The number that the cross-entropies of a batch divide by, NaN where they differ, and whether that is other
        than the number of all labels: some are ignored, or classes have weights. None: the loss has none."""
        with FixedMeans(classes=classes) as means:
            self.loss_alone(parameters, batch)
        if not means.totals:
            return None
        return means.totals[0] if len(set(means.totals)) == 1 else math.nan, not means.counts

    def loss_of(self, output: Any, target: Any) -> Tensor:
        """The loss of an output: a scalar, the mean where the loss has one value for each example."""
        found = self._targets.call(lambda t: self.loss(output, t), target)
        if isinstance(found, Tensor) and found.dim() and found.is_floating_point():
            first = next(
                (t for t in tree_leaves(output) if isinstance(t, Tensor) and t.dim()), None
            )
            whole = (
                first is not None and found.dim() > 1 and found.shape == first.shape
            )  # the output itself?
            if first is None or (found.shape[0] % len(first) == 0 and not whole):
                return found.mean()
        return scalar_loss(found)

    def _output(self, given: Any) -> Any:
        def run(tree: Any) -> Any:
            args, kwargs = tree
            return self.module(*args, **kwargs)

        found = self._inputs.call(run, arguments_of(given))
        return (
            found if self.pick is None else tree_leaves(found)[picked(found, self.pick, "output")]
        )


def scalar_loss(value: Any) -> Tensor:
    """The loss itself. Raises MeasurementError for anything but a scalar tensor."""
    if isinstance(value, Tensor) and value.dim() == 0:
        return value
    shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
    raise MeasurementError(
        f"the loss returned {shape}: expected a scalar tensor, the mean of the batch, or one value for each example"
    )


GroupSpec = Mapping[str, str | Sequence[str]] | Sequence[str]


@dataclass(frozen=True)
class Layout:
    """The parameters in the order of the flat vector, complex ones as pairs of real numbers; groups[name]: their slice;
    members[name]: names of each group."""

    parameters: dict[str, Tensor]
    groups: dict[str, slice]
    members: dict[str, tuple[str, ...]]

    @property
    def size(self) -> int:
        return sum(p.numel() for p in self.parameters.values())


def layout(module: nn.Module, groups: GroupSpec | None) -> Layout:
    """The layout of `groups`: {name: pattern or patterns}, or patterns that name themselves.

    A pattern is the name of a module ("layer1": everything below it) or of a parameter, or a glob of either
    ("block*.weight", where * crosses dots). None: one group for each module that has parameters of its own and trains
    them; that of the module itself is called "module", or "module()" where a submodule has that name. Tied parameters
    appear once, under their first name. Parameters outside the groups are held fixed. Raises ValueError for a pattern
    that matches nothing, a parameter in two groups, and a module without parameters.
    """
    known: dict[str, Tensor] = {
        k: torch.view_as_real(p) if p.is_complex() else p for k, p in module.named_parameters()
    }
    if groups is None:
        found: dict[str, list[str]] = {}
        own = "module()" if any(name.rpartition(".")[0] == "module" for name in known) else "module"
        for name, parameter in known.items():
            if parameter.requires_grad:
                found.setdefault(name.rpartition(".")[0] or own, []).append(name)
        if not found:
            raise ValueError(
                "the module has no parameter that requires a gradient: name groups, or unfreeze some"
            )
    else:
        named = [groups] if isinstance(groups, str) else groups
        spec = (
            dict(named) if isinstance(named, Mapping) else {pattern: pattern for pattern in named}
        )
        found = {group: _matching(patterns, known) for group, patterns in spec.items()}
        if not found:
            raise ValueError(
                "groups is empty: name at least one, or pass None for every module's parameters"
            )
    owner: dict[str, str] = {}
    for group, names in found.items():
        for name in names:
            if name in owner:
                raise ValueError(
                    f"parameter {name!r} is in two groups, {owner[name]!r} and {group!r}"
                )
            owner[name] = group
    if groups is None and any(known[name].numel() for names in found.values() for name in names):
        found = {
            g: names for g, names in found.items() if any(known[name].numel() for name in names)
        }
    if empty := [g for g, names in found.items() if not any(known[name].numel() for name in names)]:
        raise ValueError(f"the parameters of group {empty[0]!r} are empty: name others")
    slices = slices_of(
        {group: sum(known[name].numel() for name in names) for group, names in found.items()}
    )
    parameters: dict[str, Tensor] = {
        name: known[name] for names in found.values() for name in names
    }
    return Layout(parameters, slices, {group: tuple(names) for group, names in found.items()})


def _matching(patterns: str | Sequence[str], known: Mapping[str, Tensor]) -> list[str]:
    wanted: dict[str, None] = {}
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        names = [
            n for n in known if n == pattern or n.startswith(f"{pattern}.")
        ]  # a name may hold brackets
        names = names or [
            n for n in known if fnmatchcase(n, pattern) or fnmatchcase(n, f"{pattern}.*")
        ]
        if not names:
            modules = {n.rpartition(".")[0] for n in known}
            near = difflib.get_close_matches(pattern, [*modules, *known], 1)
            hint = f"; did you mean {near[0]!r}?" if near else f": there are {sorted(modules)}"
            raise ValueError(f"no parameter matches {pattern!r}{hint}")
        wanted |= dict.fromkeys(names)
    return list(wanted)
