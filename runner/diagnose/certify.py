"""The Hessian in the parameters for `verify`: its products, and gradients of a float64 copy at displaced weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.utils._pytree import tree_map

from runner.curvature.graph.tracing.batches import arguments_of
from runner.curvature.graph.tracing.calls import measurable
from runner.diagnose.problem import Problem


class Certified:
    """Products of a ParameterOperator, and the gradients that they must agree with (runner.curvature.Certifiable).

    A piece is a batch, or all of them where they differ in size. apply({group: (k, d)}) -> {group: (k, d)};
    gradient({group: (d,)}, piece) -> {group: (d,)} in float64.
    """

    def __init__(self, problem: Problem) -> None:
        self.operator, self.loss = problem.operator, problem.loss
        self.dtype = self.operator.dtype
        spans = self.operator.groups
        self.nodes = tuple(spans)
        self.sizes = {g: s.stop - s.start for g, s in spans.items()}
        self.module = copy.deepcopy(problem.module).double()
        self.names = [name for g in self.nodes for name in self.operator.layout.members[g]]
        self.point = {name: p.detach() for name, p in self.module.named_parameters() if name in set(self.names)}
        self.batches = [tree_map(_double, tuple(batch)) for batch in problem.batches]
        self.counts = problem.examples
        self.examples = len(self.batches) if len(set(self.counts)) == 1 else 1
        flat = torch.cat([self.point[name].flatten() for name in self.names])
        rms = {g: float(flat[s].square().mean().sqrt()) for g, s in spans.items()}
        self.scales = {g: r if r > 0 else 1.0 for g, r in rms.items()}

    def apply(self, directions: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The products with k directions."""
        count = len(next(iter(directions.values())))
        rows = torch.zeros(count, self.operator.shape[0], dtype=self.dtype, device=self.operator.device)
        for g, r in directions.items():
            rows[:, self.operator.groups[g]] = r.to(rows)
        images = self.operator.matvec(rows.mT).mT
        return {g: images[:, s] for g, s in self.operator.groups.items()}

    def gradient(self, shift: Mapping[str, Tensor], example: int) -> dict[str, Tensor]:
        """The gradient of one piece at the weights displaced by `shift`."""
        flat = torch.cat([self.point[name].flatten() for name in self.names])
        for g, e in shift.items():
            flat[self.operator.groups[g]] += e.to(flat)
        flat.requires_grad_()
        sizes = [self.point[name].numel() for name in self.names]
        pieces = zip(self.names, flat.split(sizes), strict=True)
        placed = {name: piece.view_as(self.point[name]) for name, piece in pieces}
        chosen = [example] if self.examples > 1 else range(len(self.batches))
        weights = [self.counts[i] for i in chosen]
        with torch.enable_grad(), measurable(self.module):
            losses = torch.stack(
                [n / math.fsum(weights) * self._loss(placed, i) for n, i in zip(weights, chosen, strict=True)]
            )
            (found,) = torch.autograd.grad(losses.sum(), flat)
        return {g: found[s] for g, s in self.operator.groups.items()}

    def _loss(self, placed: dict[str, Tensor], batch: int) -> Tensor:
        given, target = self.batches[batch]
        args, kwargs = arguments_of(given)
        return self.loss(functional_call(self.module, placed, args, kwargs), target).mean()


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
