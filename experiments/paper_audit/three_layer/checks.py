"""Checks of equalities and inequalities on random three-layer networks, and the search for violations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from experiments.paper_audit import checks
from experiments.paper_audit.formula import TOLERANCE, Check, Outcome, Witness
from experiments.paper_audit.three_layer.oracle import NAMES, SIZES, Instance, instances


def equality(
    found: Callable[[Instance], Tensor],
    expected: Callable[[Instance], Tensor],
    sizes: tuple[tuple[int, int, int], ...] = SIZES,
) -> Check:
    """Largest relative error on random instances of every activation and size."""
    return lambda: checks.equality(instances(sizes=sizes), expected, found)


def inequality(excess: Callable[[Instance], float], names: tuple[str, ...] = NAMES, steps: int = 30) -> Check:
    """Largest violation on random instances with small, ordinary and large weights, and by a search from the worst."""

    def check() -> Outcome:
        tried = [(excess(i), k, i) for k, i in enumerate(_ladder(names))]
        value, _, start = max(tried)
        for name in names:
            own = max(t for t in tried if t[2].name == name)[2]

            def from_here(z: Tensor, own: Instance = own) -> float:
                return excess(moved(own, z))

            value = max(value, checks.attack(from_here, flat(own), steps)[0])
        return Outcome(value, instances=len(tried) + steps * len(names), witness=_witness(value, start))

    return check


def _ladder(names: tuple[str, ...]) -> Iterator[Instance]:
    for scale in (0.1, 1.0, 5.0):
        yield from instances(names, scale=scale)


def flat(instance: Instance) -> Tensor:
    """theta and the inputs in one vector, what a search for violations moves."""
    return torch.cat([instance.theta, instance.x.flatten()])


def moved(instance: Instance, z: Tensor) -> Instance:
    theta, x = z.split([len(instance.theta), instance.x.numel()])
    return Instance(instance.name, theta, x.view(instance.x.shape), instance.q)


def _witness(value: float, start: Instance) -> Witness | None:
    if value <= TOLERANCE:
        return None
    return Witness(f"search from {start}", f"exceeded by {value:.3g}", "", "0")
