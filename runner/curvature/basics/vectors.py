"""Flat vectors over all variables, and the tensors that they are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from typing import TypeVar

import torch
from torch import Tensor

from runner.curvature.basics.errors import MeasurementError

K = TypeVar("K")
Values = dict[str, Tensor]
Images = Sequence[Tensor | None]


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors as one vector, in the widest of their types."""
    if len(tensors) > 1 and len({t.dtype for t in tensors}) == 1:
        vector: Tensor = torch._C._nn.flatten_dense_tensors([*tensors])
        return vector
    return torch.cat([t.reshape(-1) for t in tensors])


def divided(vector: Tensor, like: Mapping[K, Tensor]) -> dict[K, Tensor]:
    """The pieces of a vector in the shapes and types of tensors."""
    pieces = torch._C._nn.unflatten_dense_tensors(vector, [*like.values()])
    found = dict(zip(like, map(_at_even_place, pieces), strict=True))
    for name, t in like.items():
        if t.dtype != vector.dtype:
            found[name] = found[name].to(t.dtype)
    return found


def _at_even_place(piece: Tensor) -> Tensor:
    """A piece, copied where its place in memory is odd, of which `torch.view_as_complex` makes
    nothing."""
    return piece.clone() if piece.storage_offset() % 2 else piece


def norm(vector: Tensor) -> float:
    """Euclidean norm, in float64 where its square may leave the range of another type."""
    size = float(torch.linalg.vector_norm(vector))
    if 1e-15 < size < 1e15:
        return size
    return float(torch.linalg.vector_norm(vector, dtype=torch.float64))


def dot(one: Tensor, other: Tensor) -> float:
    """Inner product in float64."""
    return float(torch.dot(one.double(), other.double()))


def filled(images: Images, like: Values) -> Values:
    """Tensors by name, zeros for None."""
    pairs = zip(like.items(), images, strict=True)
    return {name: torch.zeros_like(t) if g is None else g.detach() for (name, t), g in pairs}


def norms(values: Values) -> dict[str, float]:
    """Euclidean norm of each tensor."""
    return {name: norm(t) for name, t in values.items()}


def norm_of(values: Values) -> float:
    """Euclidean norm of all of them together."""
    return math.hypot(*norms(values).values())


def dot_of(one: Values, other: Values) -> float:
    """Inner product of all of them together, in float64."""
    return math.fsum(dot(t.flatten(), other[name].flatten()) for name, t in one.items())


class Flat:
    """The order, shapes and types of variables in a flat vector of `size` numbers of `dtype`."""

    def __init__(self, values: Values) -> None:
        tensors = list(values.values())
        self.device, *others = {t.device for t in tensors}
        if others:
            raise MeasurementError(
                f"variables are on {self.device} and {others[0]}: use one device"
            )
        self.dtype = reduce(torch.promote_types, {t.dtype for t in tensors})
        self.shapes = [t.shape for t in tensors]
        self.numbers = [t.numel() for t in tensors]
        self.dtypes = [t.dtype for t in tensors]
        self.mixed = len({*self.dtypes}) > 1
        self.size = sum(self.numbers)
        self.eps = max(torch.finfo(dtype).eps for dtype in self.dtypes)

    @cached_property
    def like(self) -> list[Tensor]:
        """Tensors of these shapes, without numbers."""
        return [torch.empty((), device=self.device).expand(shape) for shape in self.shapes]

    def split(self, rows: Tensor) -> list[Tensor]:
        """Vectors (n,) or (k, n) as one tensor for each variable."""
        if rows.dim() == 1:
            found = [*map(_at_even_place, torch._C._nn.unflatten_dense_tensors(rows, self.like))]
        else:
            parts = zip(rows.split(self.numbers, -1), self.shapes, strict=True)
            apart = torch.contiguous_format
            found = [p.clone(memory_format=apart).view(len(rows), *shape) for p, shape in parts]
        if self.mixed:
            found = [part.to(dtype) for part, dtype in zip(found, self.dtypes, strict=True)]
        return found

    def join(self, images: Images, lead: Sequence[int] = (), out: Tensor | None = None) -> Tensor:
        """Tensors of all variables, None for zeros, as vectors (*lead, n), or as the vector `out`
        of `dtype`."""
        filled = [
            torch.zeros(*lead, number, dtype=self.dtype, device=self.device)
            if image is None
            else image
            for image, number in zip(images, self.numbers, strict=True)
        ]
        return torch.cat([image.reshape(*lead, -1) for image in filled], -1, out=out).to(self.dtype)
