"""A compiled Hessian that `verify` finds to be wrong (with torch 2.13.0; needs a C++ compiler):
`python docs/examples/compiled_hessian.py`.

torch.compile adds a constant to the second derivatives of functions that contain a trace. Values
and first derivatives stay right, so that nothing else tells
(https://github.com/pytorch/pytorch/issues/190855).
"""

import torch
from torch.func import grad, hessian

from runner.curvature import verify

torch.manual_seed(0)
size = 3
identity = torch.eye(size, dtype=torch.float64)


def f(x):
    matrix = x.view(size, size)
    return (1 / (matrix + matrix.trace() * identity)).mean()


x = torch.rand(size * size, dtype=torch.float64) + 0.1
eager, compiled = hessian(f)(x), torch.compile(hessian(f))(x)
print("largest difference:", float((compiled - eager).abs().max()))
print("eager:", verify(eager, at=x, gradient=grad(f)))
print("compiled:", verify(compiled, at=x, gradient=grad(f)))
