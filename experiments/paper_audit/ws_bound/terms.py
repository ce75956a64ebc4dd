"""WS-bound paper: blocks of the Hessian, printed and measured."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from experiments.paper_audit.three_layer.oracle import Instance, Sample
from experiments.paper_audit.three_layer.pair_terms import kron

PAIRED = ((1, 1, 2), (2, 3, 3))


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
