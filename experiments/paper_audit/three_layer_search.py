"""Inequalities on three-layer networks, attacked by searches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from experiments.paper_audit import checks
from experiments.paper_audit.checks import TOLERANCE, Check, Outcome, Worked, worked
from experiments.paper_audit.tensors import real
from experiments.paper_audit.three_layer import NAMES, Instance, instances

Excess = Callable[[Instance], float]
STEPS = 15
SPREADS = (0.5, 0.02)
"""Steps of a search, and its first sizes of a step."""


def inequality(
    *excesses: Excess,
    names: tuple[str, ...] = NAMES,
    starts: Callable[[str], Iterable[Instance]] = lambda name: (),
) -> Check:
    """Largest violation of one or several inequalities, each searched for on its own and for each
    activation.

    A search begins at the worst of random networks with tiny, small, ordinary and large weights,
    the same networks with a saturated output, and `starts`, networks of that activation that nearly
    attain the bound.
    """

    def check() -> Outcome:
        searches = []
        for excess, name in itertools.product(excesses, names):
            searches.append(_attacked(excess, [*_ladder(name), *starts(name)]))
        value, start, _ = max(searches, key=lambda search: search[0])
        count = sum(tried for _, _, tried in searches)
        return Outcome(value, instances=count, witness=_witness(value, start))

    return check


def _attacked(excess: Excess, tried: list[Instance]) -> tuple[float, Instance, int]:
    """(largest excess, where the search began, networks tried) for one activation."""
    worst, k = max((excess(instance), k) for k, instance in enumerate(tried))
    start = tried[k]
    for spread in SPREADS:
        value = checks.attack(lambda z: excess(moved(start, z)), flat(start), STEPS, spread)
        worst = max(worst, value)
    return worst, start, len(tried) + STEPS * len(SPREADS)


def _ladder(name: str) -> Iterator[Instance]:
    for scale in (0.01, 0.1, 1.0, 5.0):
        for instance in instances((name,), scale=scale):
            yield instance
            if scale == 1.0:
                yield from _saturated(instance)


def _saturated(instance: Instance) -> Iterator[Instance]:
    """The same network with its output bias at 12 and −12."""
    for bias in (12.0, -12.0):
        theta = instance.theta.clone()
        theta[instance.count] = bias
        saturated = Instance(instance.name, theta, instance.x, instance.q)
        yield saturated


def flat(instance: Instance) -> Tensor:
    """theta and the inputs in one vector, what a search for violations moves."""
    return torch.cat([instance.theta, instance.x.flatten()])


def moved(instance: Instance, z: Tensor) -> Instance:
    theta, x = z.split([len(instance.theta), instance.x.numel()])
    return Instance(instance.name, theta, x.view(instance.x.shape), instance.q)


def _witness(value: float, start: Instance) -> Worked | None:
    if value <= TOLERANCE:
        return None
    where = f"search from {start}: largest excess over the bound, relative to it"
    return worked(where, "0", "", f"{value:.3g}")


def omega_range() -> Outcome:
    """ω_ij = s'(z_i) s'(z_j) in (0, 1/16]: violation of either end, attacked."""

    def excess(z: Tensor) -> float:
        p = torch.sigmoid(z)
        omega = float((p * (1 - p)).prod())
        return max(-omega, omega - 1 / 16)

    starts = (real([0.1, -0.2]), real([2.0, -3.0]))
    return Outcome(max(checks.attack(excess, z) for z in starts), instances=160)
