"""Modules that state a node's structure: several steps as one node, residual blocks, merges."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


class Composition(nn.Module):
    """f(x) = parts[-1](... parts[0](x)), for parts that are modules or plain functions, (B, ...) -> (B, ...).

    Whatever a part raises is raised.
    """

    def __init__(self, parts: Sequence[Callable[..., Tensor]]) -> None:
        super().__init__()
        self.functions = {i: part for i, part in enumerate(parts) if not isinstance(part, nn.Module)}
        self.members = nn.ModuleDict({str(i): part for i, part in enumerate(parts) if isinstance(part, nn.Module)})
        self.length = len(parts)

    @property
    def parts(self) -> list[Callable[..., Tensor]]:
        return [self.functions[i] if i in self.functions else self.members[str(i)] for i in range(self.length)]

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


class Residual(nn.Module):
    """h + scale * branch(h), (B, d) -> (B, d): a residual block as one node.

    Raises torch's RuntimeError where the branch changes the width.
    """

    def __init__(self, branch: nn.Module, scale: float = 1.0) -> None:
        super().__init__()
        self.branch = branch
        self.scale = scale

    def forward(self, h: Tensor) -> Tensor:
        return h + self.scale * self.branch(h)


class WeightedSum(nn.Module):
    """sum_k weights[k] * parents[k], parents (B, d) each: a linear merge, e.g. WeightedSum(2 ** -0.5, 2 ** -0.5).

    Raises ValueError for another number of parents than weights.
    """

    def __init__(self, *weights: float) -> None:
        super().__init__()
        self.weights = tuple(float(weight) for weight in weights)

    def forward(self, *parents: Tensor) -> Tensor:
        if len(parents) != len(self.weights):
            raise ValueError(f"WeightedSum has {len(self.weights)} weights and got {len(parents)} parents")
        total = self.weights[0] * parents[0]
        for weight, parent in zip(self.weights[1:], parents[1:], strict=True):
            total = total + weight * parent
        return total


class Concatenated(nn.Module):
    """body(cat(parents)), parents (B, d_p) to (B, sum d_p) for `body`: a merge by concatenation along dimension 1.

    Whatever the body raises is raised.
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, *parents: Tensor) -> Tensor:
        return self.body(torch.cat(parents, 1))
