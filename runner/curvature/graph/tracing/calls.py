"""The calls that a module makes to its submodules: which are measured, and how they are seen and replaced.

A call is (name of the submodule, how many times it has been called), so that a module used twice makes two of them. The
module itself is not changed.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as room

from runner.curvature.graph.errors import MeasurementError, some
from runner.curvature.graph.reachable import watches
from runner.curvature.graph.tensors import tree_leaves

Call = tuple[str, int]
Handler = Callable[[Call, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""handler(call, forward, args, kwargs) gives the output of the call; forward(*args, **kwargs) makes it."""

_WRAPPED = ("_orig_mod", "_checkpoint_wrapped_module")
RANDOM_IN_TRAINING = (nn.modules.dropout._DropoutNd, nn.MultiheadAttention, nn.RNNBase)


def label(call: Call) -> str:
    """The node's name of a call: "act", "act#2" for the second one; "input" is taken by the graph."""
    name, count = call
    return name if count == 1 and name != "input" else f"{name}#{count}"


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside torch.compile and data-parallel wrappers."""
    while True:
        parallel = isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel)
        inner = module.module if parallel else getattr(module, "_orig_mod", None)
        if not isinstance(inner, nn.Module):
            return module
        if module._forward_hooks or module._forward_pre_hooks:
            raise MeasurementError(
                "the wrapper (torch.compile, data parallel) has hooks: put them on the module"
            )
        module = inner


def submodules(root: nn.Module) -> dict[str, nn.Module]:
    """Submodules by name without the words of wrappers ("_orig_mod"); a module with two names has its first one."""
    found: dict[str, nn.Module] = {}
    for name, module in root.named_modules():
        plain = ".".join(part for part in name.split(".") if part not in _WRAPPED)
        if plain and hasattr(module, "_orig_mod"):
            continue
        if plain and not isinstance(module, torch.jit.ScriptModule):
            found.setdefault(plain, module)
    return found


def disturbance(module: nn.Module, mixing: bool = True) -> str:
    """What makes the loss of an example random or, where `mixing` matters, dependent on others; "" for nothing."""
    normalises = isinstance(module, nn.modules.batchnorm._BatchNorm)
    if normalises and (module.training or (mixing and module.running_mean is None)):
        mode = " in training mode" if module.training else ""
        return f"normalises by the batch{mode}: call .eval() on the model (and keep running statistics)"
    rate = (
        getattr(module, "p", getattr(module, "dropout", 0.0))
        if isinstance(module, RANDOM_IN_TRAINING)
        else 0.0
    )
    return (
        f"is in training mode and draws at random (dropout {rate}): call .eval()"
        if module.training and rate
        else ""
    )


def check_evaluation(root: nn.Module, mixing: bool = True) -> None:
    """Raises ValueError for submodules whose training mode makes an example's loss random or, where `mixing` is
    refused, dependent on others."""
    for name, module in root.named_modules():
        if why := disturbance(module, mixing):
            where = f"module {name!r} ({type(module).__name__})" if name else type(module).__name__
            raise MeasurementError(f"{where} {why}")


@contextmanager
def intercepted(
    root: nn.Module, handler: Handler, counts: Counter[str] | None = None
) -> Iterator[None]:
    """While inside, every call of a submodule goes through `handler`, its own hooks inside of it. counts: calls by
    name, which a handler that leaves calls out has to raise by those."""
    counts = Counter() if counts is None else counts
    changed: list[tuple[nn.Module, str, Any]] = []

    def wrap(name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return handler((name, counts[name]), forward, args, kwargs)

        return call

    try:
        for name, module in submodules(root).items():
            entry = _entry(module)
            changed.append((module, entry, module.__dict__.get(entry)))
            module.__dict__[entry] = wrap(name, getattr(module, entry))
        yield
    finally:
        for module, entry, own in changed:
            if own is None:
                module.__dict__.pop(entry, None)
            else:
                module.__dict__[entry] = own


def _entry(module: nn.Module) -> str:
    """The method that gives a module's output: hooks may change what `forward` returns."""
    if not (
        module._forward_hooks
        or any(not watches(hook) for hook in room._global_forward_hooks.values())
    ):
        return "forward"
    return (
        "_call_impl"
        if getattr(module, "_compiled_call_impl", None) is None
        else "_compiled_call_impl"
    )


Pick = str | int | Callable[[Any], Tensor] | None
"""A path into an output ("0", "hidden.0", "logits"), a callable output -> tensor, or None: the first that fits."""
Nodes = str | Sequence[str] | Mapping[str, Pick] | None

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def default_names(root: nn.Module) -> list[str]:
    """The submodules with parameters directly below `root`, Sequential, ModuleList and ModuleDict opened; below its
    only submodule where there is one."""

    def below(module: nn.Module, prefix: str) -> list[str]:
        found: list[str] = []
        for name, child in module.named_children():
            path = f"{prefix}{name}"
            if isinstance(child, _CONTAINERS):
                found += below(child, f"{path}.")
            elif any(True for _ in child.parameters()):
                found.append(path)
        return found

    names = below(root, "")
    known = dict(root.named_modules())
    while len(names) == 1 and (deeper := below(known[names[0]], f"{names[0]}.")):
        names = deeper
    return [".".join(part for part in name.split(".") if part != "_orig_mod") for name in names]


def chosen(root: nn.Module, nodes: Nodes) -> tuple[dict[str, Pick], set[str]]:
    """Measured submodules with their pick, in the module's order, and which of them were asked for by their own name.

    In a pattern, * and ? stay inside one part of a name and ** crosses its dots: "layers.*.attn", "**.conv1". Raises
    ValueError for a name or pattern that no submodule has.
    """
    known = submodules(root)
    if nodes is None:
        return {name: None for name in default_names(root) if name in known}, set()
    if not isinstance(nodes, str | Iterable):
        raise MeasurementError(f"expected names or patterns of submodules, found {nodes!r}")
    asked = {nodes: None} if isinstance(nodes, str) else nodes
    patterns: dict[str, Pick] = dict(asked) if isinstance(asked, Mapping) else dict.fromkeys(asked)
    if not patterns:
        raise MeasurementError(
            "nodes is empty: name at least one submodule, or pass None for the default"
        )
    found: dict[str, Pick] = {}
    for pattern, pick in patterns.items():
        names = matching(pattern, known)
        if not names:
            near = difflib.get_close_matches(pattern, known, n=1)
            hint = f"; the nearest is {near[0]!r}" if near else ""
            raise MeasurementError(
                f"no submodule is called {pattern!r}{hint}. There are {some(known, 12)}"
            )
        found |= {name: pick for name in names}
    return {name: found[name] for name in known if name in found}, {
        name for name in patterns if name in known
    }


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern stands for.

    >>> matching("layers.*", ["layers.0", "layers.0.attn", "layers.1"])
    ['layers.0', 'layers.1']
    """
    pieces = {"**": ".*", "*": "[^.]*", "?": "[^.]"}
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    expression = re.compile("".join(pieces.get(part, re.escape(part)) for part in parts))
    return [name for name in names if expression.fullmatch(name)]


def picked(output: Any, pick: Pick, where: str) -> int:
    """The position, among the leaves of an output, of the tensor that `pick` names. Raises ValueError if it is none."""
    leaves = tree_leaves(output)
    found: Any = output
    if callable(pick):
        found = pick(output)
    elif pick is not None:
        for key in str(pick).split("."):
            found = _item(found, key, where, pick)
    if not isinstance(found, Tensor):
        kinds = [type(leaf).__name__ for leaf in leaves]
        raise MeasurementError(
            f"{where}: {pick!r} picks a {type(found).__name__}, expected a tensor; its output has {kinds}"
        )
    place = next((i for i, leaf in enumerate(leaves) if leaf is found), None)
    if place is None:
        raise MeasurementError(
            f"{where}: the callable must return one of the tensors of the output as it is, not one computed from it "
            "(a perturbation is added to the tensor itself)"
        )
    return place


def _item(found: Any, key: str, where: str, pick: Pick) -> Any:
    try:
        if isinstance(found, Mapping):
            return found[key] if key in found else found[int(key)]
        return found[int(key)] if key.lstrip("-").isdigit() else getattr(found, key)
    except (KeyError, IndexError, AttributeError, ValueError, TypeError) as error:
        raise MeasurementError(
            f"{where}: the path {pick!r} has no {key!r} in a {type(found).__name__}"
        ) from error
