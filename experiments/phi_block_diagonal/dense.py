"""The dense Hessian of a network whose last layer is linear, exactly, without a product for each of
its columns.

z = W h + c with h = h(theta) the d outputs of the trunk, n of whose N parameters are the trunk's; p
= softmax(z), r = (p - y) / B and A = (diag p - p p^T) / B of each example, h' = (h, 1), J =
dh/dtheta. Then, summed over the examples,

    trunk, trunk      J^T (W^T A W) J   +  (W^T r) . d2h/dtheta2
    head, trunk       (A W J) x h'      +  r x (J, 0)
    head, head        A x h' h'^T

of which the first terms are the Gauss-Newton matrix. Operations, F of them a forward pass of the
trunk over B examples: 6 F n from the kept graph of a gradient for d2h/dtheta2, 3 F d for J, and
matrix products of 2 B d n^2, 2 B K d^2 n and 2 B K^2 d^2. Columns of both matrices take (6 + 5) F N
instead, where N is 4 n for K = 100 classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap


def dense_curvature(model: nn.Sequential, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """(Hessian, Gauss-Newton matrix), (N, N) each, of the mean cross-entropy of (x, y); parameters
    in their own order.

    model: any modules that act on each example alone, and an nn.Linear with bias as the last one. x
    (B, ...), y (B,).
    """
    trunk = model[:-1]
    head = model[-1]
    assert isinstance(head, nn.Linear)
    weight = head.weight.detach()
    count = len(x)
    with torch.no_grad():
        h = trunk(x)
        logits = h @ weight.mT + head.bias
    p = torch.softmax(logits, 1)
    classes = p.shape[1]
    residual = (p - torch.nn.functional.one_hot(y, classes)) / count
    products = p.unsqueeze(2) * p.unsqueeze(1)
    curved = (torch.diag_embed(p) - products) / count
    extended = torch.cat([h, torch.ones_like(h[:, :1])], 1)
    jacobian = _jacobian(trunk, x)

    inner = curved @ weight  # (B, K, d): A W
    through = weight.mT @ inner
    trunk_gn = torch.einsum("bin,bim->nm", through @ jacobian, jacobian)
    crossed = torch.einsum("bj,bki->jkbi", extended, inner).flatten(2)  # (d + 1, K, B d)
    cross_gn = crossed @ jacobian.flatten(0, 1)  # (d + 1, K, n)
    outer = extended.unsqueeze(2) * extended.unsqueeze(1)
    head_gn = curved.flatten(1).mT @ outer.flatten(1)
    cross = cross_gn.clone()
    cross[:-1] += torch.einsum("bk,bjn->jkn", residual, jacobian)
    second = _second_derivative(trunk, x, residual @ weight)
    hessian = _assemble(trunk_gn + second, cross, head_gn, classes)
    gauss_newton = _assemble(trunk_gn, cross_gn, head_gn, classes)
    return hessian, gauss_newton


def _jacobian(trunk: nn.Module, x: Tensor) -> Tensor:
    """dh_b / dtheta of every example, (B, d, n)."""
    named = {name: p.detach() for name, p in trunk.named_parameters()}

    def one(parameters: dict[str, Tensor], example: Tensor) -> Tensor:
        return functional_call(trunk, parameters, (example.unsqueeze(0),)).squeeze(0)

    jacobians = vmap(jacrev(one), (None, 0))(named, x)
    return torch.cat([jacobians[name].flatten(2) for name in named], 2).detach()


def _second_derivative(trunk: nn.Module, x: Tensor, weights: Tensor) -> Tensor:
    """d2 / dtheta2 of sum_b weights_b . h_b, (n, n): columns from the kept graph of the
    gradient."""
    parameters = list(trunk.parameters())
    gradients = torch.autograd.grad((trunk(x) * weights).sum(), parameters, create_graph=True)
    flat = torch.cat([g.flatten() for g in gradients])
    rows = []
    for column in torch.eye(len(flat), dtype=flat.dtype):
        products = torch.autograd.grad(
            flat, parameters, column, retain_graph=True, materialize_grads=True
        )
        rows.append(torch.cat([product.flatten() for product in products]))
    matrix = torch.stack(rows)
    return (matrix + matrix.mT) / 2


def _assemble(trunk: Tensor, cross: Tensor, head: Tensor, classes: int) -> Tensor:
    """The matrix in the order trunk, W row by row, c. cross (d + 1, K, n); head (K K, (d +
    1)^2)."""
    size = len(cross)
    count = classes * (size - 1)  # entries of W
    square = head.view(classes, classes, size, size).permute(0, 2, 1, 3)  # k, j, k', j'
    of_weights = square[:, :-1]
    weights = of_weights[..., :-1].reshape(count, count)
    mixed = of_weights[..., -1].reshape(count, classes)
    biases = square[:, -1, :, -1]
    corner = _bordered(weights, mixed, biases)
    by_class = cross[:-1].transpose(0, 1)
    border = torch.cat([by_class.reshape(count, -1), cross[-1]]).mT
    return _bordered(trunk, border, corner)


def _bordered(first: Tensor, upper: Tensor, last: Tensor) -> Tensor:
    """The symmetric matrix of two diagonal blocks and the one above the diagonal."""
    top = torch.cat([first, upper], 1)
    bottom = torch.cat([upper.mT, last], 1)
    return torch.cat([top, bottom])
