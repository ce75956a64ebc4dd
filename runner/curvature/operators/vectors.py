"""Flat vectors over all variables, and the tensors that they are made of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from runner.curvature.function.errors import MeasurementError
from runner.curvature.function.function import Tensors
from runner.curvature.function.variables import Values
from runner.curvature.operators.products import Images


class Flat:
    """The order, shapes and types of variables in a flat vector of `size` numbers of `dtype`."""

    def __init__(self, values: Values) -> None:
        tensors = list(values.values())
        self.dtype, self.device = tensors[0].dtype, tensors[0].device
        for t in tensors:
            if t.device != self.device:
                raise MeasurementError(
                    f"variables are on {self.device} and {t.device}: use one device"
                )
            self.dtype = torch.promote_types(self.dtype, t.dtype)
        self.shapes = [t.shape for t in tensors]
        self.numbers = [t.numel() for t in tensors]
        self.dtypes = [t.dtype for t in tensors]
        self.mixed = any(dtype != self.dtype for dtype in self.dtypes)
        self.size = sum(self.numbers)

    def split(self, rows: Tensor) -> Tensors:
        """Vectors (n,) or (k, n) as one tensor for each variable."""
        lead = rows.shape[:-1]
        parts = zip(rows.split(self.numbers, -1), self.shapes, strict=True)
        found = [part.view((*lead, *shape)) for part, shape in parts]
        if self.mixed:
            found = [part.to(dtype) for part, dtype in zip(found, self.dtypes, strict=True)]
        return found

    def join(self, images: Images, lead: Sequence[int] = ()) -> Tensor:
        """Tensors of all variables, None for zeros, as vectors (*lead, n)."""
        present = [image for image in images if image is not None]
        if 1 < len(present) == len(images) and not (lead or self.mixed):
            joined: Tensor = torch._C._nn.flatten_dense_tensors(present)
            return joined
        flat = []
        for image, number in zip(images, self.numbers, strict=True):
            if image is None:
                flat.append(torch.zeros(*lead, number, dtype=self.dtype, device=self.device))
            else:
                flat.append(image.reshape(*lead, number))
        return torch.cat(flat, -1).to(self.dtype)
