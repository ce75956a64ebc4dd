"""Several modules or functions as one node."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn


class Composition(nn.Module):
    """f(x) = parts[-1](... parts[0](x)), for parts that are modules or plain functions."""

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
