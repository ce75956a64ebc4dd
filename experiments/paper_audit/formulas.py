"""Formulas as values, so that a printed line is written as it is printed.

A formula is a tensor that depends on a case of the paper: its matrices and indices, a network, a
sample or a pair of samples. Sums and products of formulas are formulas; `lifted` makes a function
of tensors one of formulas.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from experiments.paper_audit import tensors


def value_at(case: tuple[Any, ...], operand: Any) -> Any:
    """The value of a formula, or of a list of formulas; other operands are values themselves."""
    if isinstance(operand, Formula):
        return operand(*case)
    if isinstance(operand, list):
        return [value_at(case, entry) for entry in operand]
    return operand


def lifted(function: Callable[..., Tensor]) -> Callable[..., Formula]:
    """A function of formulas, lists of them, and numbers: `function` of their values at the
    case."""

    def of_formulas(*operands: Any, **options: Any) -> Formula:
        def value(*case: Any) -> Tensor:
            return function(*(value_at(case, operand) for operand in operands), **options)

        return Formula(value)

    return of_formulas


class Formula:
    """A tensor that depends on a case.

    >>> x = Formula(lambda case: case)
    >>> (2 * x**2 - 1)(3)
    17
    """

    def __init__(self, value: Callable[..., Any]) -> None:
        self.value = value

    def __call__(self, *case: Any) -> Tensor:
        result: Tensor = self.value(*case)
        return result

    __add__ = lifted(operator.add)
    __radd__ = lifted(lambda own, left: left + own)
    __sub__ = lifted(operator.sub)
    __rsub__ = lifted(lambda own, left: left - own)
    __mul__ = lifted(operator.mul)
    __rmul__ = lifted(lambda own, left: left * own)
    __truediv__ = lifted(operator.truediv)
    __rtruediv__ = lifted(lambda own, left: left / own)
    __matmul__ = lifted(operator.matmul)
    __pow__ = lifted(operator.pow)
    __rpow__ = lifted(lambda own, left: left**own)
    __neg__ = lifted(operator.neg)
    __abs__ = lifted(abs)
    __getitem__ = lifted(operator.getitem)
    T = property(lifted(lambda matrix: matrix.T))


def attributes(*names: str) -> list[Formula]:
    """Attributes of a case as formulas, by their names."""
    return [Formula(operator.attrgetter(name)) for name in names]


outer = lifted(torch.outer)
total = lifted(tensors.total)
"""Sum of a list of formulas."""
