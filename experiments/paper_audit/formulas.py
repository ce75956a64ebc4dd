"""Formulas as values, so that a printed line is written as it is printed.

A formula is a tensor that depends on a case of the paper (its matrices, indices, network). Sums and
products of formulas are formulas; `lifted` makes a function of tensors one of formulas.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def lifted(function: Callable[..., Tensor]) -> Callable[..., Formula]:
    """A function of formulas and numbers: `function` of their values at the case."""

    def of_formulas(*operands: Any) -> Formula:
        def value(case: Any) -> Tensor:
            return function(*(o(case) if isinstance(o, Formula) else o for o in operands))

        return Formula(value)

    return of_formulas


class Formula:
    """A tensor that depends on a case.

    >>> x = Formula(lambda case: case)
    >>> (2 * x**2 - 1)(3)
    17
    """

    def __init__(self, value: Callable[[Any], Any]) -> None:
        self.value = value

    def __call__(self, case: Any) -> Tensor:
        result: Tensor = self.value(case)
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
    __neg__ = lifted(operator.neg)
    __getitem__ = lifted(operator.getitem)
    T = property(lifted(lambda matrix: matrix.T))


def summed(*formulas: Formula) -> Formula:
    """Sum of formulas, added up at once."""
    return Formula(lambda case: torch.stack([formula(case) for formula in formulas]).sum(0))
