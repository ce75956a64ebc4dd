"""WS-bound paper: what its checks share: equalities and inequalities on random networks, blocks of the Hessian."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from experiments.paper_audit.formula import Outcome
from experiments.paper_audit.hsr.pair_terms import kron
from experiments.paper_audit.three_layer_oracle import (
    NAMES,
    SIZES,
    Instance,
    Sample,
    instances,
    relative_error,
)

PAIRED = ((1, 1, 2), (2, 3, 3))


def equality(
    found: Callable[[Instance], Tensor],
    expected: Callable[[Instance], Tensor],
    sizes: tuple[tuple[int, int, int], ...] = SIZES,
) -> Callable[[], Outcome]:
    """Largest relative error on random instances of every activation and size."""

    def check() -> Outcome:
        errors = [relative_error(found(instance), expected(instance)) for instance in instances(sizes=sizes)]
        return Outcome(max(errors), instances=len(errors))

    return check


def inequality(excess: Callable[[Instance], float], names: tuple[str, ...] = NAMES) -> Callable[[], Outcome]:
    """Largest violation on random instances with small, ordinary and large weights."""

    def check() -> Outcome:
        worst = [excess(instance) for scale in (0.1, 1.0, 5.0) for instance in instances(names, scale=scale)]
        return Outcome(max(worst), instances=len(worst))

    return check


def ww(instance: Instance) -> Tensor:
    return instance.hessian[: instance.count, : instance.count]


def vv(instance: Instance) -> Tensor:
    return instance.hessian[instance.count :, instance.count :]


def vw(instance: Instance) -> Tensor:
    return instance.hessian[instance.count :, : instance.count]


def total(part: Callable[[Sample], Tensor]) -> Callable[[Instance], Tensor]:
    """Σ_i of a term of one sample."""
    return lambda instance: torch.stack([part(i) for i in instance.samples]).sum(0)


def stacked(instance: Instance, part: Callable[[Sample], Tensor]) -> Tensor:
    return torch.stack([part(i) for i in instance.samples])


def block_ww(i: Sample) -> Tensor:
    """Eq. 15."""
    a = i.F(1) @ i.V
    return kron(torch.outer(i.hx, i.hx), i.s1 * torch.outer(a, a) + i.delta * torch.diag(i.V) @ i.F(2))


def block_vv(i: Sample) -> Tensor:
    """Eq. 16."""
    return i.s1 * torch.outer(i.hr, i.hr)


def block_vw(i: Sample) -> Tensor:
    """Eq. 17."""
    return kron(i.hx[None], i.s1 * torch.outer(i.hr, i.V @ i.F(1)) + i.delta * i.F0(1))


def block_wv(i: Sample) -> Tensor:
    """Eq. 18."""
    return kron(i.hx[:, None], i.s1 * torch.outer(i.F(1) @ i.V, i.hr) + i.delta * i.F0(1).T)
