"""The shorthands of the scalar-spectrum paper as formulas over a network with its data.

a = σ² = mean x², d = dx = mean xδ, d0 = mean δ, ww = ‖w‖², wv = ⟨w, v⟩ and so on, r2 = dx² + d0²,
s = ‖v‖² + ‖w‖².
"""

from __future__ import annotations

import torch

from experiments.paper_audit import tensors
from experiments.paper_audit.formulas import Formula, attributes, lifted

w, v, b, m, a, yx = attributes("w", "v", "b", "m", "a", "yx")
d, dx, d0 = attributes("d", "d", "d0")
r2, s, ww, vv, bb, wv, wb, vb = attributes("r2", "s", "ww", "vv", "bb", "wv", "wb", "vb")
one = Formula(lambda c: tensors.ones(()))
identity = Formula(lambda c: tensors.unit(c.m))
dense_gradient, dense_hessian, dense_eigenvalues = attributes("gradient", "hessian", "eigenvalues")
"""By automatic differentiation; the eigenvalues of the Hessian, ascending."""

block_matrix = lifted(tensors.block_matrix)
matrix = lifted(tensors.matrix)
cat = lifted(torch.cat)
stack = lifted(torch.stack)
det = lifted(torch.linalg.det)
inverse = lifted(torch.linalg.inv)
sqrt = lifted(torch.sqrt)
root = lifted(lambda number: number.clamp_min(0).sqrt())
"""Square root; 0 of a number that rounding made negative."""
