"""Checks of equalities and inequalities on random three-layer networks, and the search for violations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

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


Excess = Callable[[Instance], float]


def inequality(
    *excesses: Excess,
    names: tuple[str, ...] = NAMES,
    starts: Callable[[str], Iterable[Instance]] = lambda name: (),
    steps: int = 30,
) -> Check:
    """Largest violation of one or several inequalities, each searched for on its own and for each activation.

    A search begins at the worst of random networks with tiny, small, ordinary and large weights, the same networks
    with a saturated output, and `starts`, networks of that activation that nearly attain the bound.
    """

    def check() -> Outcome:
        found = [_attacked(e, n, [*_ladder(n), *starts(n)], steps) for e in excesses for n in names]
        value, start = max(((v, i) for v, i, _ in found), key=lambda pair: pair[0])
        return Outcome(value, instances=sum(count for *_, count in found), witness=_witness(value, start))

    return check


def _attacked(excess: Excess, name: str, tried: list[Instance], steps: int) -> tuple[float, Instance, int]:
    """(largest excess, where the search began, networks tried) for one activation."""
    value, k = max((excess(i), k) for k, i in enumerate(tried))
    start = tried[k]
    searches = [
        checks.attack(lambda z: excess(moved(start, z)), flat(start), steps // 2, spread)[0] for spread in (0.5, 0.02)
    ]
    return max(value, *searches), start, len(tried) + steps // 2 * 2


def _ladder(name: str) -> Iterator[Instance]:
    for scale in (0.01, 0.1, 1.0, 5.0):
        for instance in instances((name,), scale=scale):
            yield instance
            for bias in (12.0, -12.0) if scale == 1.0 else ():
                theta = instance.theta.clone()
                theta[instance.count] = bias
                yield Instance(name, theta, instance.x, instance.q)


def flat(instance: Instance) -> Tensor:
    """theta and the inputs in one vector, what a search for violations moves."""
    return torch.cat([instance.theta, instance.x.flatten()])


def moved(instance: Instance, z: Tensor) -> Instance:
    theta, x = z.split([len(instance.theta), instance.x.numel()])
    return Instance(instance.name, theta, x.view(instance.x.shape), instance.q)


def _witness(value: float, start: Instance) -> Witness | None:
    if value <= TOLERANCE:
        return None
    return Witness(f"search from {start}: largest excess over the bound, relative to it", "0", "", f"{value:.3g}")
