"""The shorthands of the scalar-spectrum paper as formulas over a network with its data.

a = σ² = mean x², d = dx = mean xδ, d0 = mean δ, ww = ‖w‖², wv = ⟨w, v⟩ and so on, r2 = dx² + d0²,
s = ‖v‖² + ‖w‖².
"""

from __future__ import annotations

import torch

from experiments.paper_audit import tensors
from experiments.paper_audit.formulas import Formula, lifted

w = Formula(lambda c: c.w)
v = Formula(lambda c: c.v)
b = Formula(lambda c: c.b)
m = Formula(lambda c: c.m)
a = Formula(lambda c: c.a)
d = Formula(lambda c: c.d)
dx = Formula(lambda c: c.d)
d0 = Formula(lambda c: c.d0)
r2 = Formula(lambda c: c.r2)
s = Formula(lambda c: c.s)
ww = Formula(lambda c: c.ww)
vv = Formula(lambda c: c.vv)
bb = Formula(lambda c: c.bb)
wv = Formula(lambda c: c.wv)
wb = Formula(lambda c: c.wb)
vb = Formula(lambda c: c.vb)
yx = Formula(lambda c: c.yx)
one = Formula(lambda c: tensors.ones(()))
identity = Formula(lambda c: tensors.unit(c.m))
dense_hessian = Formula(lambda c: c.hessian)
dense_eigenvalues = Formula(lambda c: c.eigenvalues)
"""Of the automatic Hessian, ascending."""

block_matrix = lifted(tensors.block_matrix)
matrix = lifted(tensors.matrix)
cat = lifted(torch.cat)
stack = lifted(torch.stack)
det = lifted(torch.linalg.det)
inverse = lifted(torch.linalg.inv)
sqrt = lifted(torch.sqrt)
root = lifted(lambda number: number.clamp_min(0).sqrt())
"""Square root; 0 of a number that rounding made negative."""
