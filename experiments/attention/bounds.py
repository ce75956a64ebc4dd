"""Bounds on softmax-attention regression when |W|, |V|, |X| <= R in spectral norm and |b| <= R^2
(Assumption G.1).

`BOUNDS` holds each bound of Sections G, H and I of the attention paper with its constant, and a
sharper constant where one follows in a line from the compact form in `attention`. `POINT` and
`MOVED` measure the left-hand sides. Derivation of the sharper ones, in operator norm with respect
to vec X, with the names of `attention`:

- |A_i| <= |k_i| + |X^T W| <= 2 R^2, and |diag(f) - f f^T| <= 1/2, so |grad f_i| <= R^2;
- r = (diag(f) - f f^T) X^T v, so |r| <= R^2 / 2 and |grad c_ij| <= |A^T r| + |f| |v| <= R^4 + R;
- grad^2 c_ij = A^T diag(r) A + sym(A^T (diag f - f f^T) G - A^T f r^T A) + sym(sum_p r_p E_i^T W^T
  E_p) with sym(M) = M + M^T: at most 2 R^6 + 2 R^3 + 4 R^6 + R^3 = 6 R^6 + 3 R^3, for each of its
  blocks as well;
- grad^2 L >= 2 sum_i Hess phi_i(V c_i), linear in V c_i, |V c_i| <= R |c_i| <= 2 R^3 sqrt(d):
  at least -4 n sqrt(d) R^2 (6 R^6 + 3 R^3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.closed_form import attention as att

Value = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""A quantity at X, W, V, B."""
Constant = Callable[[int, int, float], float]
"""A constant for n tokens of width d at radius R."""


def attention_jacobian(x: Tensor, w: Tensor) -> Tensor:
    """df_{i,p}/d vec X (..., n, n, n d) = (diag f_i - f_i f_i^T) A_i (Lemma B.14)."""
    d, n = x.shape[-2:]
    directions = att.unvec(torch.eye(n * d, dtype=x.dtype), d)
    x = x.unsqueeze(-3)
    w = w.unsqueeze(-3)
    by_keys = x.mT @ w @ directions
    slopes = (directions.mT @ w @ x + by_keys).mT  # (..., direction, i, p)
    f = att.attention(x, w)
    mean = (f * slopes).sum(-1, keepdim=True)
    return (f * (slopes - mean)).movedim(-3, -1)


def case_norms(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """Largest spectral norm of a block H_k^{(i1,i2)} over all outputs, by case k = 1..4: (..., 4);
    NaN for no block."""
    d, n = x.shape[-2:]
    by_rows = att.output_hessians(x, w, v).unflatten(-1, (n, d))
    blocks = by_rows.unflatten(-3, (n, d)).transpose(-3, -2)
    norms = torch.linalg.matrix_norm(blocks, 2)  # (..., i0, j0, i1, i2)
    same = torch.eye(n, dtype=torch.bool)
    first = same[:, None, :, None]
    second = same[:, None, None, :]
    cases = (first & second, first & ~second, ~first & second, ~first & ~second)
    largest = []
    for case in cases:
        norm = torch.where(case, norms, -1.0).flatten(-4).amax(-1)
        norm = torch.where(norm < 0, torch.nan, norm)
        largest.append(norm)
    return torch.stack(largest, dim=-1)


VALUES: dict[str, Value] = {
    "f": lambda x, w, v, b: att.attention(x, w),
    "h": lambda x, w, v, b: x.mT @ v,
    "c": att.residual,
    "output": lambda x, w, v, b: att.outputs(x, w, v),
    "X^T W": lambda x, w, v, b: x.mT @ w,
    "w": lambda x, w, v, b: w @ x,
    "z": lambda x, w, v, b: att.attention(x, w) @ x.mT @ w,
    "df/dx": lambda x, w, v, b: attention_jacobian(x, w),
    "dc/dx": lambda x, w, v, b: att.jacobian(x, w, v),
    "H_k": lambda x, w, v, b: case_norms(x, w, v).nan_to_num(0.0),
    "d2c": lambda x, w, v, b: att.output_hessians(x, w, v),
    "d2L": att.hessian,
}
"""Quantities that the lemmas bound; row i of z is (W^T X f_i)^T."""
LINEAR = ("h", "w")
"""Those that are linear in X: their difference at X and Y is their value at X - Y."""


# Sizes of quantities: the largest over all indices, for each instance (...,).


def entries(dims: int) -> Callable[[Tensor], Tensor]:
    """Largest absolute entry over the last dimensions."""
    return lambda values: values.abs().flatten(-dims).amax(-1)


def rows(values: Tensor) -> Tensor:
    return values.norm(dim=-1).amax(-1)


def columns(values: Tensor) -> Tensor:
    return values.norm(dim=-2).amax(-1)


def slopes(values: Tensor) -> Tensor:
    return entries(2)(values.norm(dim=-2))


def spectral(hessians: Tensor) -> Tensor:
    return torch.linalg.eigvalsh(hessians).abs().amax(-1)


def spectral_of_outputs(hessians: Tensor) -> Tensor:
    return spectral(hessians).flatten(-2).amax(-1)


def most_negative(hessians: Tensor) -> Tensor:
    return -torch.linalg.eigvalsh(hessians)[..., 0]


# Sharper constants, as derived above.


def sharper_attention(n: int, d: int, r: float) -> float:
    return r**2


def sharper_output(n: int, d: int, r: float) -> float:
    return r**4 + r


def sharper_bend(n: int, d: int, r: float) -> float:
    return 6 * r**6 + 3 * r**3


def sharper_convexity(n: int, d: int, r: float) -> float:
    return 4 * n * d**0.5 * r**2 * sharper_bend(n, d, r)


@dataclass(frozen=True)
class Bound:
    """One inequality: size of a quantity <= factor (n d)^size_power R^power, and <= sharper(n, d,
    R) where that is known.

    symbol: what is bounded, in plain text; value: of `VALUES`; over: "point" (a value at X) or
    "pair" (a ratio over |vec X - vec Y|).
    """

    place: str
    symbol: str
    over: str
    value: str
    size: Callable[[Tensor], Tensor]
    factor: int
    power: int
    size_power: int = 0
    sharper: Constant | None = None

    def printed(self, n: int, d: int, r: float) -> float:
        """The printed constant."""
        return self.factor * (n * d) ** self.size_power * r**self.power


BOUNDS: dict[str, Bound] = {
    "G.2.1": Bound("Lemma G.2, Part 1", "|f_i|", "point", "f", rows, 1, 0),
    "G.2.2": Bound("Lemma G.2, Part 2", "|h_j|", "point", "h", columns, 1, 2),
    "G.2.3": Bound("Lemma G.2, Part 3", "|c_ij|", "point", "c", entries(2), 2, 2),
    "G.2.4": Bound("Lemma G.2, Part 4", "|X^T W_{*,j}|", "point", "X^T W", columns, 1, 2),
    "G.2.5": Bound("Lemma G.2, Part 5", "|w_ij|", "point", "w", entries(2), 1, 2),
    "G.2.6": Bound("Lemma G.2, Part 6", "|z_ij|", "point", "z", entries(2), 1, 2),
    "G.3": Bound(
        "Lemma G.3", "|df_i/dx|", "point", "df/dx", slopes, 4, 2, sharper=sharper_attention
    ),
    "G.4": Bound(
        "Lemma G.4", "|dc_ij/dx|", "point", "dc/dx", entries(3), 5, 4, sharper=sharper_output
    ),
    "H.3": Bound("Lemma H.3", "Lipschitz f_i", "pair", "f", rows, 4, 2, sharper=sharper_attention),
    "H.4": Bound(
        "Lemma H.4", "Lipschitz c_ij", "pair", "output", entries(2), 5, 4, sharper=sharper_output
    ),
    "H.5": Bound("Lemma H.5", "Lipschitz h_j", "pair", "h", columns, 1, 1),
    "H.6": Bound("Lemma H.6", "Lipschitz w_ij", "pair", "w", entries(2), 1, 1),
    "H.7": Bound(
        "Lemma H.7", "Lipschitz z_ij", "pair", "z", entries(2), 5, 4, sharper=sharper_output
    ),
    "H.8": Bound(
        "Lemma H.8", "Lipschitz dc_ij/dx", "pair", "dc/dx", entries(3), 320, 6, sharper=sharper_bend
    ),
    "H.9": Bound("Lemma H.9", "Lipschitz d2c_ij/dx dx", "pair", "d2c", entries(4), 2688, 8),
    "H.10": Bound("Lemma H.10", "Lipschitz grad^2 L", "pair", "d2L", spectral, 9193, 10, 3),
    "I.1": Bound(
        "Lemma I.1", "|H_k^(i1,i2)|", "point", "H_k", entries(1), 21, 6, sharper=sharper_bend
    ),
    "I.2": Bound(
        "Lemma I.2",
        "|grad^2 c_ij|",
        "point",
        "d2c",
        spectral_of_outputs,
        21,
        6,
        sharper=sharper_bend,
    ),
    "I.3": Bound(
        "Lemma I.3",
        "-lambda_min(grad^2 L)",
        "point",
        "d2L",
        most_negative,
        42,
        8,
        size_power=1,
        sharper=sharper_convexity,
    ),
}
"""Constants as printed; H.10 and I.3 with the constants of their proofs (9193 and 42), the
statements having O(.)."""


def scale_to_norm(matrix: Tensor, norm: float) -> Tensor:
    """matrix (..., a, b) scaled to the spectral norm given (Assumption G.1 with equality)."""
    factor = norm / torch.linalg.matrix_norm(matrix, 2)
    return matrix * factor[..., None, None]


def point_value(name: str, x: Tensor, w: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """Left-hand side of a bound at a point, (...): the largest over all indices."""
    bound = BOUNDS[name]
    return bound.size(VALUES[bound.value](x, w, v, b))


def pair_value(name: str, x: Tensor, y: Tensor, w: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """Left-hand side of a Lipschitz bound over |vec X - vec Y|, (...). X and Y must differ."""
    bound = BOUNDS[name]
    value = VALUES[bound.value]
    if bound.value in LINEAR:
        difference = value(x - y, w, v, b)
    else:
        of_y = value(y, w, v, b)  # first: an ascent's gradient rounds by the order of operations
        difference = value(x, w, v, b) - of_y
    distance = (x - y).norm(dim=(-2, -1))
    return bound.size(difference) / distance


def left_side(name: str, x: Tensor, y: Tensor, w: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """`pair_value` or `point_value`, as the bound says."""
    if BOUNDS[name].over == "pair":
        return pair_value(name, x, y, w, v, b)
    return point_value(name, x, w, v, b)
