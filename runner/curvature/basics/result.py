"""What all results share: value, error, low, high, a dictionary, a short form for notebooks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from html import escape
from typing import Any

from torch import Tensor

NORMAL = 1.96
"""Half width of a 95 % interval in standard errors."""
MOST = 6
"""Entries of a tensor or mapping that the short form shows."""


class Result:
    """A measured quantity, or several, with their uncertainty.

    Attributes
    ----------
    value, error, low, high
        The quantity, its standard error (or bound of its error), and the ends of its 95 % interval:
        numbers, or tensors of one shape. A subclass defines value and error (`Estimated`), or all.
    """

    __slots__ = ()

    def to_dict(self: Any) -> dict[str, Any]:
        """value, error, low and high, then the other fields by name. Tensors stay tensors."""
        names = dict.fromkeys(["value", "error", "low", "high", *field_names(self)])
        return {name: getattr(self, name) for name in names}

    def summary(self: Any) -> str:
        """The result in one line."""
        if reason := getattr(self, "reason", ""):
            return f"nan: {reason}"
        products = getattr(self, "products", 0)
        cost = f", {products} products" if products else ""
        return f"{self.value:.4g} ± {self.error:.2g}{cost}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.summary()})"

    def _repr_html_(self) -> str:
        rows = ""
        for name, value in self.to_dict().items():
            if isinstance(value, str | tuple) and not value:
                continue
            heading = f'<th style="text-align: left">{escape(str(name))}</th>'
            rows += f"<tr>{heading}<td>{escape(short(value))}</td></tr>"
        return f"<table><caption>{escape(type(self).__name__)}</caption>{rows}</table>"


class TensorResult(Result):
    """A result of tensors; a dataclass with eq=False."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Whether both are of one kind with the same numbers; NaN equals NaN."""
        if type(self) is not type(other):
            return NotImplemented
        return all(same(getattr(self, name), getattr(other, name)) for name in field_names(self))

    __hash__ = None  # type: ignore[assignment]


class Estimated(Result):
    """A result whose 95 % interval is value ± half, both ends included: half is 1.96 error where a
    subclass does not say otherwise."""

    __slots__ = ()

    @property
    def half(self: Any) -> Any:
        return NORMAL * self.error

    @property
    def low(self: Any) -> Any:
        return self.value - self.half

    @property
    def high(self: Any) -> Any:
        return self.value + self.half


def field_names(result: Any) -> list[str]:
    """What a result is made from."""
    if dataclasses.is_dataclass(result):
        return [f.name for f in dataclasses.fields(result)]
    return list(result._fields)


def same(one: Any, other: Any) -> bool:
    """Equality of what results are made of; tensors by their values, NaN equal to NaN."""
    if isinstance(one, Tensor):
        if not isinstance(other, Tensor) or one.shape != other.shape:
            return False
        return bool(((one == other) | (one.isnan() & other.isnan())).all())
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if one.keys() != other.keys():
            return False
        return all(same(v, other[k]) for k, v in one.items())
    if isinstance(one, tuple | list) and type(one) is type(other) and not isinstance(one, Result):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other or (one != one and other != other))


def short(value: object) -> str:
    """One line for any value: four digits of a number, the first entries of a tensor or mapping."""
    if isinstance(value, Result):
        return value.summary()
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Tensor):
        if value.dim() > 1 or value.numel() > MOST:
            return f"tensor of shape {tuple(value.shape)}"
        return short(tuple(value.tolist()))
    if isinstance(value, Mapping):
        value = tuple(f"{key}: {short(entry)}" for key, entry in value.items())
    if isinstance(value, tuple | list):
        rest = f" and {len(value) - MOST} more" if len(value) > MOST else ""
        return ", ".join(map(short, value[:MOST])) + rest
    return str(value)
