"""Groups of a module's parameters, as slices of one flat vector."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from runner.curvature.basics.trees import slices_of
from runner.curvature.function.layers import matching

GroupSpec = Mapping[str, str | Sequence[str]] | Sequence[str]


@dataclass(frozen=True)
class ParameterGroups:
    """The parameters in the order of the flat vector, complex ones as pairs of real numbers;
    groups[name]: their slice; members[name]: names of each group."""

    parameters: dict[str, Tensor]
    groups: dict[str, slice]
    members: dict[str, tuple[str, ...]]

    @property
    def size(self) -> int:
        return sum(p.numel() for p in self.parameters.values())


def parameter_groups(module: nn.Module, groups: GroupSpec | None) -> ParameterGroups:
    """The parameters in `groups`: {name: pattern or patterns}, or patterns that name themselves.

    A pattern is the name of a module ("layer1": everything below it) or of a parameter, or a glob
    of either, as those of layers ("blocks.*.attn", "**.weight": see `layers.matching`). None: one
    group for each module that has parameters of its own and trains them; that of the module itself
    is called "module", or "module()" where a submodule has that name. Tied parameters appear once,
    under their first name, and belong to the group that has this name, else to one that has
    another. Parameters outside the groups are held fixed. Raises ValueError for a pattern that
    matches nothing, a parameter in two groups, and a module without parameters.
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
                "the module has no parameter that requires a gradient: name groups, or unfreeze "
                "some"
            )
    else:
        named = groups
        if isinstance(groups, str) or not isinstance(groups, Iterable):
            named = [groups]
        spec = (
            dict(named) if isinstance(named, Mapping) else {pattern: pattern for pattern in named}
        )
        found = _named(module, spec)
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
    sizes = {group: _numbers(names, known) for group, names in found.items()}
    if groups is None and any(sizes.values()):
        found = {group: names for group, names in found.items() if sizes[group]}
        sizes = {group: sizes[group] for group in found}
    if empty := [group for group, size in sizes.items() if not size]:
        raise ValueError(f"the parameters of group {empty[0]!r} are empty: name others")
    parameters: dict[str, Tensor] = {
        name: known[name] for names in found.values() for name in names
    }
    members = {group: tuple(names) for group, names in found.items()}
    return ParameterGroups(parameters, slices_of(sizes), members)


def _numbers(names: Iterable[str], known: Mapping[str, Tensor]) -> int:
    """How many numbers these parameters have together."""
    return sum(known[name].numel() for name in names)


def _named(module: nn.Module, spec: Mapping[str, str | Sequence[str]]) -> dict[str, list[str]]:
    """First names of the parameters of each group."""
    every = dict(module.named_parameters(remove_duplicate=False))
    first = {id(p): name for name, p in module.named_parameters()}
    asked = {group: _matching(patterns, every) for group, patterns in spec.items()}
    by_first_name = {name for names in asked.values() for name in names if name in first.values()}
    found = {}
    for group, names in asked.items():
        firsts = {name: first[id(every[name])] for name in names}
        kept = [f for name, f in firsts.items() if name == f or f not in by_first_name]
        found[group] = list(dict.fromkeys(kept or firsts.values()))
    return found


def _matching(patterns: str | Sequence[str], known: Mapping[str, Tensor]) -> list[str]:
    wanted: dict[str, None] = {}
    given = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(given, Iterable) or not all(isinstance(pattern, str) for pattern in given):
        raise ValueError(f"expected names or patterns of modules or parameters, found {patterns!r}")
    places = {name: {*accumulate(name.split("."), "{}.{}".format)} for name in known}
    every = set[str]().union(*places.values())
    for pattern in given:
        found = matching(pattern, every)
        names = [name for name, around in places.items() if around.intersection(found)]
        if not names:
            modules = {n.rpartition(".")[0] for n in known}
            near = difflib.get_close_matches(pattern, [*modules, *known], 1)
            hint = f"; did you mean {near[0]!r}?" if near else f": there are {sorted(modules)}"
            raise ValueError(f"no parameter matches {pattern!r}{hint}")
        wanted |= dict.fromkeys(names)
    return list(wanted)
