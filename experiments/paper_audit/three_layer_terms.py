"""Terms of one sample of the three-layer network as formulas (letters of `three_layer.Sample`)."""

from __future__ import annotations

import torch

from experiments.paper_audit.formulas import Formula, attributes, lifted
from experiments.paper_audit.tensors import kron as product, unit

hx, hr, full, y, V, z, f, q = attributes("hx", "hr", "full", "y", "V", "z", "f", "q")
p, o, delta, s1, s2, s21, norm = attributes("p", "o", "delta", "s1", "s2", "s21", "norm")
identity = Formula(lambda i: unit(len(i.y)))
d1 = Formula(lambda i: i.d(1))
d2 = Formula(lambda i: i.d(2))
F0 = Formula(lambda i: i.F(0))
F1 = Formula(lambda i: i.F(1))
F2 = Formula(lambda i: i.F(2))
F3 = Formula(lambda i: i.F(3))
F01 = Formula(lambda i: i.F0(1))
f01 = Formula(lambda i: i.f0(1))
f02 = Formula(lambda i: i.f0(2))


def on_pair(term: Formula) -> tuple[Formula, Formula]:
    """A term of one sample at sample i, and at sample j, of a pair."""
    return Formula(lambda i, j: term(i)), Formula(lambda i, j: term(j))


def swapped(term: Formula) -> Formula:
    """A term of a pair with i and j exchanged."""
    return Formula(lambda i, j: term(j, i))


diag = lifted(torch.diag)
kron = lifted(product)
stack = lifted(torch.stack)
squares = lifted(lambda vector: vector.square().sum())
"""|vector|²."""
slope = F1 @ V
"""F'(y) Ṽᵀ."""
bend = V @ d2
"""Ṽ f''(y)."""
hidden_norm = 1 + f @ f
"""1 + |f|²."""
