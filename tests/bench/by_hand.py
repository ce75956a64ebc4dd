"""What a competent user writes by hand: blocks between layers by perturbations that all examples
share.

e_v is added to the output of node v for every example; the Hessian of the mean loss with respect to
all e at once, at zero, is the matrix of blocks. `batched` makes the gradient differentiable and
pulls back all unit vectors in one backward pass (`is_grads_batched`), which `torch.func.hessian`
does by forward over reverse differentiation.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from runner.curvature import Dag


def batched(dag: Dag, x: Tensor, y: Tensor, nodes: Sequence[str], sizes: Sequence[int]) -> Tensor:
    """The matrix [H[v,w]] over the nodes, (n, n)."""
    shifts = {
        v: torch.zeros(size, requires_grad=True) for v, size in zip(nodes, sizes, strict=True)
    }
    leaves = list(shifts.values())
    gradient = torch.autograd.grad(dag.mean_loss(x, y, shifts), leaves, create_graph=True)
    flat = torch.cat(gradient)
    rows = torch.autograd.grad(flat, leaves, torch.eye(len(flat)), is_grads_batched=True)
    return torch.cat(rows, 1)


def functional(
    dag: Dag, x: Tensor, y: Tensor, nodes: Sequence[str], sizes: Sequence[int]
) -> Tensor:
    """The same by torch.func.hessian."""

    def loss(flat: Tensor) -> Tensor:
        return dag.mean_loss(x, y, dict(zip(nodes, flat.split(list(sizes)), strict=True)))

    return torch.func.hessian(loss)(torch.zeros(sum(sizes)))
