"""Which submodules of a network are measured: their names, patterns of names, and tensors of their
outputs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from runner.curvature.basics.errors import MeasurementError, some
from runner.curvature.basics.trees import tree_leaves

_WRAPPED = ("_orig_mod", "_checkpoint_wrapped_module")


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


def _plain(name: str, wrappers: Sequence[str]) -> str:
    """A submodule's name without the words of wrappers."""
    return ".".join(part for part in name.split(".") if part not in wrappers)


def submodules(root: nn.Module) -> dict[str, nn.Module]:
    """Submodules by name without the words of wrappers ("_orig_mod"); a module with two names has
    its first one."""
    found: dict[str, nn.Module] = {}
    for name, module in root.named_modules():
        plain = _plain(name, _WRAPPED)
        if plain and hasattr(module, "_orig_mod"):
            continue
        if plain and not isinstance(module, torch.jit.ScriptModule):
            found.setdefault(plain, module)
    return found


Pick = str | int | Callable[[Any], Tensor] | None
"""A path into an output ("0", "hidden.0", "logits"), a callable output -> tensor, or None: the
first that fits."""
Nodes = str | Sequence[str] | Mapping[str, Pick] | None

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def default_names(root: nn.Module) -> list[str]:
    """The submodules with parameters directly below `root`, Sequential, ModuleList and ModuleDict
    opened; below its only submodule where there is one."""

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
    return [_plain(name, ["_orig_mod"]) for name in names]


def chosen(root: nn.Module, nodes: Nodes) -> tuple[dict[str, Pick], set[str]]:
    """Measured submodules with their pick, in the module's order, and which of them were asked for
    by their own name.

    In a pattern, * and ? stay inside one part of a name and ** crosses its dots: "layers.*.attn",
    "**.conv1". Raises ValueError for a name or pattern that no submodule has.
    """
    known = submodules(root)
    if nodes is None:
        return {name: None for name in default_names(root) if name in known}, set()
    if not isinstance(nodes, str | Iterable):
        raise MeasurementError(f"expected names or patterns of submodules, found {nodes!r}")
    asked = nodes
    if isinstance(nodes, str):
        asked = {nodes: None}
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
    """The position, among the leaves of an output, of the tensor that `pick` names. Raises
    ValueError if it is none."""
    leaves = tree_leaves(output)
    found: Any = output
    if callable(pick):
        found = pick(output)
    elif pick is not None and isinstance(output, Tensor):
        raise MeasurementError(f"{where}: the output is one tensor: leave {pick!r} out")
    elif pick is not None:
        for key in str(pick).split("."):
            found = _item(found, key, where, pick)
    if not isinstance(found, Tensor):
        kinds = [type(leaf).__name__ for leaf in leaves]
        raise MeasurementError(
            f"{where}: {pick!r} picks a {type(found).__name__}, expected a tensor; its output has "
            f"{kinds}"
        )
    place = next((i for i, leaf in enumerate(leaves) if leaf is found), None)
    if place is None:
        raise MeasurementError(
            f"{where}: the callable must return one of the tensors of the output as it is, not one "
            "computed from it (a perturbation is added to the tensor itself)"
        )
    return place


def _item(found: Any, key: str, where: str, pick: Pick) -> Any:
    try:
        if isinstance(found, Mapping):
            if key in found:
                return found[key]
            return found[int(key)]
        if key.lstrip("-").isdigit():
            return found[int(key)]
        return getattr(found, key)
    except (KeyError, IndexError, AttributeError, ValueError, TypeError) as error:
        raise MeasurementError(
            f"{where}: the path {pick!r} has no {key!r} in a {type(found).__name__}"
        ) from error
