"""Softmax-attention regression: loss and its derivatives with respect to the input X.

With X (d, n) holding one token per column, W (d, d), V (d, d), B (n, d), and row i of the attention

    a_i = X^T W x_i,  f_i = softmax(a_i),  o_i = V^T X f_i,  c_i = o_i - b_i  (Definitions B.4-B.8)
    L(X) = sum_i |c_i|^2 = |softmax_rows(X^T W^T X) X^T V - B|_F^2                  (Definition B.9)

and the regulariser gamma |vec X|^2 of Theorem J.1 is a separate argument (default 0). Every
derivative follows from one scalar, phi_i(X; v) = v^T X f_i with v held fixed, because it is linear
in the value vector v. Write k_i = W x_i, g_p = v^T x_p, r_p = f_ip (g_p - phi_i), A_i = d a_i / d
vec X (n, nd) and G = dg / d vec X = I_n (x) v^T. Then

    grad phi_i = A_i^T r + G^T f_i
    Hess phi_i = A_i^T diag(r) A_i + S + S^T,
    S          = A_i^T diag(f_i) G - (A_i^T f_i) (grad phi_i)^T + sum_p r_p E_i^T W^T E_p,

where E_p picks the p-th block (token) of vec X. Since c_ij = phi_i(X; V e_j) - b_ij,

    grad^2 L = 2 (J^T J + sum_i Hess phi_i(X; V c_i)).

The four index cases of the attention paper (Definition E.2) are where the blocks that carry E_i
land: A_i has k_i in every block and W^T x_p in block i only.

vec X stacks the columns of X (token by token, Definition E.1): entry i * d + j is x_{i,j}, row j of
column i. All functions broadcast over leading dimensions of X, W, V and B, take float tensors of
one dtype, and raise ValueError for shapes that do not fit. Torch only.

Operation counts, multiply-adds to leading order: gradient 3 n^2 d + 4 n d^2; Hessian-vector product
about three gradients; curvature n (nd)^2 for the rank-one parts plus O(n^2 d^2) for the blocks;
Gauss-Newton part (nd)^3.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


def vec(x: Tensor) -> Tensor:
    """vec X: (..., d, n) -> (..., n d), column after column."""
    return x.mT.flatten(-2)


def unvec(flat: Tensor, d: int) -> Tensor:
    """Inverse of `vec`: (..., n d) -> (..., d, n).

    Raises ValueError when the length is no multiple of d.
    """
    if flat.shape[-1] % d:
        raise ValueError(
            f"unvec: expected a length that is a multiple of d = {d}, found {flat.shape[-1]}"
        )
    return flat.unflatten(-1, (-1, d)).mT


def _check(x: Tensor, w: Tensor, v: Tensor, b: Tensor | None = None) -> None:
    d, n = x.shape[-2:]
    for name, matrix in (("W", w), ("V", v)):
        if matrix.shape[-2:] != (d, d):
            raise ValueError(
                f"{name}: expected (..., {d}, {d}) to match X {tuple(x.shape)}, "
                f"found {tuple(matrix.shape)}"
            )
    if b is not None and b.shape[-2:] != (n, d):
        raise ValueError(
            f"B: expected (..., {n}, {d}) to match X {tuple(x.shape)}, found {tuple(b.shape)}"
        )


def attention(x: Tensor, w: Tensor) -> Tensor:
    """F (..., n, n) with rows f_i = softmax(X^T W x_i) (Definition B.6)."""
    return torch.softmax((x.mT @ w @ x).mT, dim=-1)


def outputs(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """Output of the attention layer, S (..., n, d) with entries s_ij = <f_i, X^T V e_j>."""
    _check(x, w, v)
    return attention(x, w) @ (x.mT @ v)


def residual(x: Tensor, w: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """c (..., n, d) = outputs - B (Definition B.8)."""
    _check(x, w, v, b)
    return outputs(x, w, v) - b


def loss(x: Tensor, w: Tensor, v: Tensor, b: Tensor, gamma: float = 0.0) -> Tensor:
    """L(X) + gamma |vec X|^2, (...,): squared residuals summed (Definition B.9, Theorem J.1)."""
    misfit = residual(x, w, v, b).square().sum((-2, -1))
    penalty = gamma * x.square().sum((-2, -1))
    return misfit + penalty


def gradient(x: Tensor, w: Tensor, v: Tensor, b: Tensor, gamma: float = 0.0) -> Tensor:
    """dL/dX (..., d, n) = W^T X R^T + W X R + 2 V C^T F + 2 gamma X, R = dL/da (rows i).

    R = F o (M - rowsum(F o M)), M = 2 C (X^T V)^T. The paper's Lemma B.17 lacks the factor 2.
    """
    _check(x, w, v, b)
    f = attention(x, w)
    values = x.mT @ v
    c = f @ values - b
    r = _softmax_adjoint(f, 2 * c @ values.mT)
    return w.mT @ x @ r.mT + w @ x @ r + 2 * v @ c.mT @ f + 2 * gamma * x


def _softmax_adjoint(f: Tensor, m: Tensor) -> Tensor:
    """Adjoint of the row softmax: F o (M - rowsum(F o M))."""
    return f * (m - (f * m).sum(-1, keepdim=True))


def jacobian(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """grad c (..., n, d, n d): entry (i0, j0, i1 d + j1) = d c_{i0,j0} / d x_{i1,j1} (Lemma B.16).

    Block i1 of row i0 is f_{i0,i1} V^T (I + (x_{i1} - X f_{i0}) k_{i0}^T), plus V^T Cov_{i0} W
    where i1 = i0, with Cov_i = X (diag f_i - f_i f_i^T) X^T the attention-weighted covariance of
    the tokens.
    """
    _check(x, w, v)
    gradients = value_gradients(x.unsqueeze(-3), w.unsqueeze(-3), _columns(v, x.shape[-1]))
    return gradients.movedim(-3, -2)


def _columns(v: Tensor, n: int) -> Tensor:
    """Value vectors V e_j for each j, the same in all n rows: (..., j, n, d)."""
    return v.mT.unsqueeze(-2).expand(*v.shape[:-1], n, v.shape[-1])


def gauss_newton(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """2 J^T J (..., n d, n d), the positive semi-definite part of grad^2 L.

    Lemma F.2, its factor 2 restored.
    """
    jac = jacobian(x, w, v).flatten(-3, -2)
    return 2 * jac.mT @ jac


class _Pieces(NamedTuple):
    """What grad phi_i and Hess phi_i are made of, for all rows i at once.

    Hess phi_i = half + half^T, half = S + A_i^T diag(r) A_i / 2. The rank-one part of S is kept as
    its factors, score = A_i^T f_i and slope = grad phi_i, both (..., i, n d). What is left of half
    are its blocks (p, p), diagonal (..., i, p, d, d), and (i, p), own (..., i, p, d, d).
    """

    score: Tensor
    slope: Tensor
    diagonal: Tensor
    own: Tensor


def _slope(x: Tensor, w: Tensor, values: Tensor, f: Tensor, r: Tensor) -> Tensor:
    """grad phi_i = A_i^T r_i + f_i (x) v_i, as blocks (..., i, p, d)."""
    of_scores = r.unsqueeze(-1) * (w @ x).mT.unsqueeze(-2)
    of_values = f.unsqueeze(-1) * values.unsqueeze(-2)
    slope = of_scores + of_values
    slope.diagonal(dim1=-3, dim2=-2).add_((r @ x.mT @ w).mT)
    return slope


def _row_terms(x: Tensor, w: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """f_ip and r_ip = f_ip (v_i^T x_p - phi_i), both (..., i, p)."""
    f = attention(x, w)
    return f, _softmax_adjoint(f, values @ x)


def _pieces(x: Tensor, w: Tensor, values: Tensor) -> _Pieces:
    f, r = _row_terms(x, w, values)
    # rows k_i = W x_i and (W^T x_p)^T
    k = (w @ x).mT
    tokens = x.mT @ w
    score = f.unsqueeze(-1) * k.unsqueeze(-2)
    score.diagonal(dim1=-3, dim2=-2).add_((f @ tokens).mT)
    rk = r.unsqueeze(-1) * k.unsqueeze(-2)  # (..., i, p, d)
    fv = f.unsqueeze(-1) * values.unsqueeze(-2)
    # A^T diag(r) A is symmetric, so its (p, p) and (i, i) blocks enter half of it
    diagonal = k[..., :, None, :, None] * (fv + 0.5 * rk)[..., None, :]
    own = tokens[..., None, :, :, None] * (fv + rk)[..., None, :]
    own = own + r[..., None, None] * w.mT[..., None, None, :, :]
    weighted = tokens.mT.unsqueeze(-3) * r.unsqueeze(-2)
    spread = 0.5 * weighted @ tokens.unsqueeze(-3)  # (..., i, d, d)
    own.diagonal(dim1=-4, dim2=-3).add_(spread.movedim(-3, -1))
    return _Pieces(score.flatten(-2), _slope(x, w, values, f, r).flatten(-2), diagonal, own)


def value_gradients(x: Tensor, w: Tensor, values: Tensor) -> Tensor:
    """grad phi_i(X; v_i) (..., n, n d) for one value vector per row, values (..., n, d)."""
    f, r = _row_terms(x, w, values)
    return _slope(x, w, values, f, r).flatten(-2)


def value_hessians(x: Tensor, w: Tensor, values: Tensor) -> Tensor:
    """Hess phi_i(X; v_i) of every row i, (..., n, n d, n d); values (..., n, d), one v_i per row.

    Memory n (n d)^2; for the sum over rows use `value_curvature`, which never builds them.
    """
    d, n = x.shape[-2:]
    pieces = _pieces(x, w, values)
    half = -pieces.score.unsqueeze(-1) * pieces.slope.unsqueeze(-2)
    blocks = half.view(*half.shape[:-2], n, d, n, d)  # (..., i, p, a, q, b)
    blocks.diagonal(dim1=-4, dim2=-2).add_(pieces.diagonal.movedim(-3, -1))
    blocks.diagonal(dim1=-5, dim2=-4).add_(pieces.own.movedim(-3, -2).movedim(-4, -1))
    return half + half.mT


def value_curvature(x: Tensor, w: Tensor, values: Tensor) -> Tensor:
    """sum_i Hess phi_i(X; v_i), (..., n d, n d), for values (..., n, d).

    All rank-one parts are one matrix product.
    """
    d, n = x.shape[-2:]
    pieces = _pieces(x, w, values)
    half = -pieces.score.mT @ pieces.slope
    blocks = half.view(*half.shape[:-2], n, d, n, d)  # (..., p, a, q, b)
    blocks.diagonal(dim1=-4, dim2=-2).add_(pieces.diagonal.sum(-4).movedim(-3, -1))
    blocks.add_(pieces.own.movedim(-3, -2))
    return half + half.mT


def output_hessians(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """grad^2 c (..., n, d, n d, n d): entry (i0, j0) is Hess c_{i0,j0} (Definition E.1)."""
    _check(x, w, v)
    hessians = value_hessians(x.unsqueeze(-3), w.unsqueeze(-3), _columns(v, x.shape[-1]))
    return hessians.movedim(-4, -3)


def curvature(x: Tensor, w: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """2 sum_ij c_ij grad^2 c_ij (..., n d, n d): second term of Lemma F.2, factor 2 restored.

    It is 0 where B is fitted.
    """
    return 2 * value_curvature(x, w, residual(x, w, v, b) @ v.mT)


def hessian(x: Tensor, w: Tensor, v: Tensor, b: Tensor, gamma: float = 0.0) -> Tensor:
    """grad^2 (L + gamma |vec X|^2), (..., n d, n d) (Lemma F.2, corrected).

    2 J^T J + curvature + 2 gamma I.
    """
    total = gauss_newton(x, w, v) + curvature(x, w, v, b)
    total.diagonal(dim1=-2, dim2=-1).add_(2 * gamma)
    return total


def hessian_vector_product(
    x: Tensor, w: Tensor, v: Tensor, b: Tensor, direction: Tensor, gamma: float = 0.0
) -> Tensor:
    """grad^2 (L + gamma |vec X|^2) times direction (..., d, n), without the matrix: (..., d, n).

    The directional derivative of `gradient`: O(n^2 d + n d^2) time and O(n^2) memory. Leading
    dimensions of direction broadcast against those of X, so a stack of directions is one call.
    """
    _check(x, w, v, b)
    f = attention(x, w)
    values = x.mT @ v
    c = f @ values - b
    m = 2 * c @ values.mT
    r = _softmax_adjoint(f, m)
    df = _softmax_adjoint(f, (direction.mT @ w @ x + x.mT @ w @ direction).mT)
    dvalues = direction.mT @ v
    dc = df @ values + f @ dvalues
    dm = 2 * (dc @ values.mT + c @ dvalues.mT)
    mean = (f * m).sum(-1, keepdim=True)
    dmean = (df * m + f * dm).sum(-1, keepdim=True)
    dr = df * (m - mean) + f * (dm - dmean)
    moved = w.mT @ (direction @ r.mT + x @ dr.mT) + w @ (direction @ r + x @ dr)
    return moved + 2 * v @ (dc.mT @ f + c.mT @ df) + 2 * gamma * direction
