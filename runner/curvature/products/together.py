"""Products with one vector or several: together through a graph, or one after the other."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from runner.curvature.basics.errors import MeasurementError, first_line
from runner.curvature.products.kept import Graphs

TOGETHER = 4
"""Directions from which on they may go through the graph together."""


class Multiplication:
    """z (n,), or rows z (k, n), to H z, by graphs.

    batched: whether several rows go through a graph together, None before it was tried. why_not:
    why they do not. writes: to tensors of the network, before its graphs were made.
    """

    writes = 0

    def __init__(self, graphs: Graphs) -> None:
        self.graphs = graphs
        self.batched: bool | None = None
        self.why_not = ""
        self._compared: set[int] = set()
        """Numbers of rows whose products together were compared with those of one."""

    def __call__(self, rows: Tensor) -> Tensor:
        if rows.dim() == 1:
            return self.graphs.apply(rows, False)
        if len(rows) < TOGETHER or self.batched is False:  # the same bits for the same rows
            return self._one_by_one(rows)
        width = self.graphs.width
        if width < 2:
            return self._never("sizes", rows)
        found = []
        for some in rows.split(-(-len(rows) // -(-len(rows) // width))):
            images = self._together(some)
            if images is None:
                return self._never(self.why_not, rows)
            found.append(images)
        self.batched = True
        return found[0] if len(found) == 1 else torch.cat(found)

    def forget(self, writes: int) -> None:
        """Graphs that were made before tensors were written to."""
        self.graphs.kept = {}
        self.writes = writes

    def words(self) -> list[str]:
        """How products are taken."""
        planned = self.graphs.planned
        found = ["graph kept" if planned.keep else "graph made for each product"]
        if planned.chunk is not None:
            found.append(f"pieces of {planned.chunk} examples")
        if self.batched:
            found.append("batch repeated" if self.graphs.repeats else "vectors together")
        elif self.batched is not None:
            found.append(f"one vector at a time ({self.why_not})")
        return found

    def _never(self, reason: str, rows: Tensor) -> Tensor:
        """From now on one by one."""
        self.batched = False
        self.why_not = reason
        return self._one_by_one(rows)

    def _one_by_one(self, rows: Tensor) -> Tensor:
        images = rows.new_empty(rows.shape)
        for row, image in zip(rows, images, strict=True):
            self.graphs.apply(row, False, image)
        return images

    def _together(self, rows: Tensor) -> Tensor | None:
        """Their products, or None where torch gives others together than alone. What it does may
        depend on their number (how it sorts the rows of a batch), so that each is compared once: a
        sum of the products with the product of the sum, of vectors that are weighed at random."""
        # A graph for batched rows is one for all their numbers.
        number = len(rows) if self.graphs.repeats else 0
        if number in self._compared:
            return self.graphs.apply(rows, True)
        generator = torch.Generator().manual_seed(len(rows))
        weights = torch.randn(len(rows), generator=generator, dtype=torch.float64, device="cpu")
        weights = weights.to(rows)
        alone = self.graphs.apply(weights @ rows, False)
        try:
            with warnings.catch_warnings():  # torch's about operations without a batching rule
                warnings.simplefilter("ignore")
                images = self.graphs.apply(rows, True)
        except (RuntimeError, NotImplementedError, MeasurementError) as error:
            self.why_not = first_line(error)
            return None
        self.why_not = "their products differ"
        allowed = 1e-3 * float(images.abs().nan_to_num().max()) * len(rows) ** 0.5
        if not torch.allclose(weights @ images, alone, 1e-3, allowed, equal_nan=True):
            return None
        self._compared.add(number)
        return images
