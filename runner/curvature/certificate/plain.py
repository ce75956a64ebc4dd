"""A matrix, a function or a foreign operator as one that can be certified, beside the gradient it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from runner.curvature.graph.errors import MeasurementError

Products = dict[str, Tensor]


class PlainOperator:
    """H as products, and the gradient g of which it is said to be the derivative, at the point `at`.

    product: v (n,) -> H v (n,), the matrix itself (n, n), or anything with `matvec`. gradient: theta (n,) -> g (n,), by
    first derivatives alone (torch.func.grad of the loss). groups: names of parts of theta as slices, for the report;
    default one, "all". Raises MeasurementError for a point that is no vector, or a matrix of another size.
    """

    noun = "group"
    examples = 1

    def __init__(
        self,
        product: Any,
        at: Tensor,
        gradient: Callable[[Tensor], Tensor],
        groups: Mapping[str, slice] | None = None,
    ) -> None:
        if not isinstance(at, Tensor) or at.dim() != 1 or not at.is_floating_point():
            raise MeasurementError("verify(product, at=theta, gradient=...): expected theta as a floating vector (n,)")
        n = len(at)
        shape = getattr(product, "shape", (n, n))
        if tuple(shape) != (n, n):
            raise MeasurementError(f"the operator has shape {tuple(shape)}, and the point {n} numbers")
        self.at, self.field, self.spans = at.detach(), gradient, dict(groups or {"all": slice(0, n)})
        self.product: Callable[[Tensor], Tensor] = (
            product.__matmul__ if isinstance(product, Tensor) else getattr(product, "matvec", product)
        )
        self.nodes = tuple(self.spans)
        self.sizes = {g: len(range(n)[s]) for g, s in self.spans.items()}
        self.dtype = product.dtype if isinstance(product, Tensor) else getattr(product, "dtype", at.dtype)
        self.double = at.dtype == torch.float64
        rms = {g: float(at[s].double().square().mean().sqrt()) for g, s in self.spans.items()}
        self.scales = {g: r if r > 0 else 1.0 for g, r in rms.items()}

    def apply(self, directions: Mapping[str, Tensor]) -> Products:
        """The products with k directions, (k, d_g) each."""
        count = len(next(iter(directions.values())))
        rows = torch.zeros(count, len(self.at), dtype=self.dtype, device=self.at.device)
        for g, r in directions.items():
            rows[:, self.spans[g]] = r.to(rows)
        images = torch.stack([self.product(row).detach() for row in rows])
        return {g: images[:, s] for g, s in self.spans.items()}

    def gradient(self, shift: Mapping[str, Tensor], example: int) -> Products:
        """The gradient at the displaced point."""
        moved = self.at.clone()
        for g, e in shift.items():
            moved[self.spans[g]] += e.to(moved)
        found = self.field(moved).detach()
        return {g: found[s] for g, s in self.spans.items()}
