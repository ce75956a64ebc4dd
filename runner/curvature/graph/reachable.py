"""What graphs, modules and functions are made of, and whether any of it was changed.

Functions keep modules and tensors in closures, defaults, bound methods and globals; `reachable` finds them without
calling anything. `as_written` tells whether a module computes what its class computes, so that a closed form may stand
for it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as room

from runner.curvature.graph.dag import Dag
from runner.curvature.graph.errors import MeasurementError
from runner.curvature.graph.precision import full_precision

_DEPTH = (
    5  # of containers, closures and attributes: user code nests no deeper, and a search must end
)


@dataclass
class Reachable:
    """Modules and loose tensors that a function uses, each once, with a label for messages."""

    modules: dict[int, tuple[str, nn.Module]] = field(default_factory=dict)
    tensors: dict[int, tuple[str, Tensor]] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)

    def add(self, value: Any, label: str, depth: int = _DEPTH) -> None:
        """Files `value` and what it refers to."""
        if depth < 0 or id(value) in self.seen:
            return
        self.seen.add(id(value))
        if isinstance(value, Tensor):
            self.tensors[id(value)] = (label, value)
        elif isinstance(value, nn.Module):
            for path, module in value.named_modules():
                self.modules[id(module)] = (f"{label}.{path}" if path else label, module)
                for key, inner in vars(module).items():
                    if not key.startswith("_"):
                        self.add(inner, f"{label}.{key}", depth - 1)
        else:
            for key, inner in _parts(value):
                self.add(inner, f"{label}.{key}" if key else label, depth - 1)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What a function, container or object of the user's refers to. torch's own functions refer to nothing of his."""
    if isinstance(value, functools.partial):
        yield from (("", part) for part in (value.func, *value.args, *value.keywords.values()))
    elif isinstance(value, types.MethodType):
        yield from (("", value.__self__), ("", value.__func__))
    elif isinstance(value, types.FunctionType):
        if value.__module__ and value.__module__.split(".")[0] == "torch":
            return
        yield from _of_function(value)
    elif isinstance(value, dict):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(i), part) for i, part in enumerate(value))
    elif hasattr(value, "__dict__") and callable(value) and not isinstance(value, type):
        yield from vars(value).items()


def _of_function(fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield from (
        ("", part) for part in (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())
    )
    codes = [fn.__code__, *(c for c in fn.__code__.co_consts if isinstance(c, types.CodeType))]
    for name in dict.fromkeys(n for code in codes for n in code.co_names):
        part = fn.__globals__.get(name)
        if isinstance(
            part, Tensor | nn.Module | types.FunctionType | functools.partial | types.MethodType
        ):
            yield name, part


def reachable(*owners: Any) -> Reachable:
    """Everything that graphs (their nodes and loss), modules and functions are made of."""
    found = Reachable()
    for owner in owners:
        if not isinstance(owner, Dag):
            found.add(owner, type(owner).__name__)
            continue
        for name in owner.order:
            node = owner.nodes[name]
            found.add(node.fn, name)
        found.add(owner.loss.fn, "loss")
    return found


SPAN = 1 << 20


@cache
def _weights(device: torch.device, dtype: torch.dtype) -> Tensor:
    drawn = torch.rand(SPAN, generator=torch.Generator().manual_seed(0), dtype=dtype, device="cpu")
    return (drawn + 0.5).to(device)


def weighted_sum(t: Tensor) -> Tensor:
    """The sum of the entries with weights that differ from one to the next, a scalar on the tensor's device."""
    if t.layout != torch.strided or t.is_meta or t.is_nested:
        return torch.zeros((), dtype=torch.float64)
    flat = (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).reshape(-1)
    dtype = torch.float64 if flat.dtype == torch.float64 else torch.float32
    weights = _weights(t.device, dtype)
    if len(flat) <= SPAN:
        return flat.to(dtype).dot(weights[: len(flat)])
    sums = [
        (i + 1) * piece.to(dtype).dot(weights[: len(piece)])
        for i, piece in enumerate(flat.split(SPAN))
    ]
    return torch.stack(sums).sum()


def _settings(module: nn.Module) -> dict[str, Any]:
    """Attributes that a result depends on, but whole numbers, which are often counts of calls: values, which tensor or
    function it is, and the submodules and hooks."""
    found = {
        key: value for key, value in vars(module).items() if isinstance(value, bool | float | str)
    }
    found |= {
        key: id(value)
        for key, value in vars(module).items()
        if isinstance(value, Tensor | types.FunctionType)
    }
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return found | {PARTS: (*map(id, module._modules.values()), *map(len, hooks))}


PARTS = "submodules or hooks"


class Fingerprint:
    """Identity, version and a weighted sum of every tensor that graphs and modules are made of, to notice a change.

    The weights of the sum differ from entry to entry: a change through `.data` has no version, and a permutation has
    the same plain sum.
    """

    def __init__(self, *made: Any, **others: Tensor) -> None:
        found = reachable(*made)
        self.owners = [
            (f"{label}.{key}", module, key, t)
            for label, module in found.modules.values()
            for key, t in (*module._parameters.items(), *module._buffers.items())
            if t is not None
        ]
        self.volatile: set[str] | None = (
            None  # attributes that calls change; where known, the others are compared
        )
        self.settings = [
            (label, module, _settings(module)) for label, module in found.modules.values()
        ]
        self.tensors: dict[int, tuple[str, Tensor]] = {
            k: v for k, v in found.tensors.items() if v[1].is_leaf
        }
        self.loose = set(self.tensors)  # measurements put their values back, and not their versions
        self.tensors |= {id(t): (label, t) for label, _, _, t in self.owners}
        self.tensors |= {id(t): (key, t) for key, t in others.items()}
        self.marks = self._marks()

    @full_precision()
    def _marks(self) -> list[tuple[int, int, float]]:
        with torch.no_grad():
            sums = [weighted_sum(t.detach()) for _, t in self.tensors.values()]
            home = next((s.device for s in sums if s.device.type != "cpu"), torch.device("cpu"))
            told = (
                torch.stack([s.to(home) for s in sums]).tolist() if sums else []
            )  # the host waits once
            return [
                (0 if t.is_inference() or key in self.loose else t._version, t.data_ptr(), s)
                for (key, (_, t)), s in zip(self.tensors.items(), told, strict=True)
            ]

    @property
    def sums(self) -> dict[str, float]:
        """The weighted sum of every parameter and buffer by its label."""
        marks = dict(zip(self.tensors, self.marks, strict=True))
        return {label: marks[id(t)][2] for label, _, _, t in self.owners}

    def renew(self) -> None:
        """Takes the present state as the right one."""
        self.marks = self._marks()

    def changed(self) -> str:
        """Label of the first tensor that is not what it was, "" when all are."""
        for label, module, settings in self.settings:
            for key, value in _settings(module).items():
                compared = key in ("training", PARTS) or (
                    self.volatile is not None and key not in self.volatile
                )
                if compared and value == value != settings.get(key, value):
                    return f"{label} (its {'training mode' if key == 'training' else key})"
        for label, module, key, tensor in self.owners:
            if getattr(module, key, None) is not tensor:
                return label
        for (label, _), old, new in zip(
            self.tensors.values(), self.marks, self._marks(), strict=True
        ):
            same = old[2] == new[2] or (old[2] != old[2] and new[2] != new[2])
            if old[:2] != new[:2] or not same:
                return label
        return ""

    def refuse_changes(self) -> None:
        """Raises MeasurementError where a tensor is not what it was."""
        if label := self.changed():
            raise MeasurementError(
                f"{label} has changed since this operator was built, and what is kept here belongs to the old network: "
                "build a new operator after an optimiser step, load_state_dict, an assignment, .train() or .eval()"
            )


Hook = Callable[..., Any]


def watching(hook: Hook) -> Hook:
    """Marks a hook for all modules that looks on and changes nothing."""
    hook.watches = True  # type: ignore[attr-defined]
    return hook


def watches(hook: Hook) -> bool:
    return getattr(hook, "watches", False)


def hooked(module: nn.Module) -> bool:
    """Whether a hook may change what the module or a part of it computes."""
    everywhere = (room._global_forward_hooks, room._global_forward_pre_hooks)
    if any(not watches(hook) for hooks in everywhere for hook in hooks.values()):
        return True
    return any(
        m._forward_hooks or m._forward_pre_hooks or m._backward_hooks or m._backward_pre_hooks
        for m in module.modules()
    )


def as_written(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether `module` computes what `kind` computes: neither the class nor the object overrides forward or the call,
    and no hook changes it."""
    own = type(module)
    return (
        isinstance(module, kind)
        and own.forward is kind.forward
        and own.__call__ is nn.Module.__call__
        and not {"forward", "_call_impl"} & vars(module).keys()
        and not hooked(module)
    )
