"""Rows of the table `certificate`: closed forms and blocks against finite differences of
gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from runner.contract import Context
from runner.contract.records import certificate_row
from runner.curvature import BlockSplit, Dag, verify
from runner.curvature.graphs.blocks import BlockPart

STREAM = "certificate"
"""Random stream of the directions: no other number of a cell depends on it."""


def of_hessian(
    what: str,
    hessian: Any,
    loss: Callable[[Tensor], Tensor],
    theta: Tensor,
    ctx: Context,
    groups: Mapping[str, slice] | None = None,
    **columns: Any,
) -> dict[str, Any]:
    """The row of a Hessian in closed form, a matrix or a product, of loss(theta) at theta (n,).

    groups: of theta, which are then compared one by one.
    """

    def gradient(at: Tensor) -> Tensor:
        leaf = at.detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(loss(leaf), leaf)[0]

    generator = ctx.torch_generator(STREAM)
    found = verify(hessian, at=theta, gradient=gradient, groups=groups, generator=generator)
    return certificate_row(what, found, **columns)


def of_blocks(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    blocks: BlockSplit | dict[tuple[str, str], Tensor],
    ctx: Context,
    **columns: Any,
) -> list[dict[str, Any]]:
    """The rows of measured blocks between the nodes of a graph: the total, and of a split its
    Gauss-Newton part."""
    parts: dict[BlockPart, Mapping[tuple[str, str], Tensor]]
    if isinstance(blocks, BlockSplit):
        parts = {"total": blocks.total, "gauss_newton": blocks.gauss_newton}
    else:
        parts = {"total": blocks}
    rows = []
    for part, found in parts.items():
        generator = ctx.torch_generator(STREAM)
        certificate = verify(dag, x, y, blocks=found, part=part, generator=generator)
        rows.append(certificate_row(f"blocks, {part.replace('_', '-')}", certificate, **columns))
    return rows
