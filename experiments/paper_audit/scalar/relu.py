"""Scalar-spectrum paper, Section 2 and Appendices B and C.2 (ReLU network).

A cell is a linear network of its own neurons and samples (`Relu.cell`), weighted with its share
n±/n of the samples.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, dot, outer

from experiments.paper_audit.checks import Checks, matches, relative_error
from experiments.paper_audit.scalar.cases import ascending, eigen_error, errors, relu_cases
from experiments.paper_audit.scalar.determinant import right_matrix
from experiments.paper_audit.scalar.linear import outliers
from experiments.paper_audit.scalar.linear_vectors import projected_start
from experiments.paper_audit.scalar.networks import Linear, Relu, relu_network
from experiments.paper_audit.scalar.terms import dense_eigenvalues, dense_gradient, dense_hessian
from experiments.paper_audit.tensors import block_matrix, zeros

CHECKS = Checks()
SIGNS = (1, -1)
RESIDUAL = "‖Hz − λz‖ / (‖H‖₂ ‖z‖), the largest"


def cells(c: Relu) -> tuple[Linear, Linear]:
    """The networks of the cells + and −."""
    return c.cell(1)[0], c.cell(-1)[0]


def neurons_of(c: Relu, sign: int) -> Tensor:
    """Which neurons belong to a cell."""
    if sign > 0:
        return c.v > 0
    return c.v <= 0


def network(c: Relu) -> Tensor:
    return relu_network(c.x, c.v, c.w)


def definition(c: Relu) -> Tensor:
    """As printed: the indicator alone."""
    return (outer(c.x, c.v) > 0).double() @ c.w


def right_definition(c: Relu) -> Tensor:
    inputs = outer(c.x, c.v)
    return (inputs * (inputs > 0)) @ c.w


def output(c: Relu) -> Tensor:
    """⟨w_+, v_+⟩ x 1{x>0} + ⟨w_-, v_-⟩ x 1{x<=0}."""
    plus, minus = cells(c)
    of_plus = plus.wv * c.x
    of_minus = minus.wv * c.x
    return torch.where(c.x > 0, of_plus, of_minus)


CHECKS["scalar.relu_definition"] = matches(relu_cases, network, definition, right_definition)
CHECKS["scalar.relu_output"] = matches(relu_cases, network, output)


def covariance(c: Relu, over_all: bool) -> Tensor:
    """Input-output covariances of the cells; over_all=False: the sums up to n_± that Section 2
    prints."""
    sums = []
    masks = (c.x > 0, c.x <= 0)
    for mask in masks:
        count = int(mask.sum())
        terms = c.y * c.x * mask
        if not over_all:
            terms = terms[:count]
        sums.append(terms.sum() / count)
    return torch.stack(sums)


CHECKS["scalar.relu_covariance"] = matches(
    relu_cases,
    lambda c: torch.stack([cell.yx for cell in cells(c)]),
    lambda c: covariance(c, False),
    lambda c: covariance(c, True),
)
CHECKS["scalar.cell_residual"] = matches(
    relu_cases,
    lambda c: torch.stack([cell.d for cell in cells(c)]),
    lambda c: torch.stack([cell.a * cell.wv - cell.yx for cell in cells(c)]),
)


def gradient(c: Relu) -> Tensor:
    """Eqs. (35), (36), averaged over the samples."""
    x = c.x[:, None]
    of_positive = (c.v > 0).double()
    of_negative = (c.v <= 0).double()
    active = torch.where(x > 0, of_positive, of_negative)
    slopes = active * x  # (n, m)
    hidden = slopes * c.v
    delta = hidden @ c.w - c.y
    by_v = delta @ (slopes * c.w)
    by_w = delta @ hidden
    summed = torch.cat([by_v, by_w])
    return summed / len(c.y)


CHECKS["scalar.eq35_36"] = matches(relu_cases, dense_gradient, gradient)


def single_hessian(c: Relu) -> Tensor:
    """Eqs. (37)–(39), one sample."""
    x = c.x[0]
    active = neurons_of(c, 1 if x > 0 else -1)
    v = c.v * active
    w = c.w * active
    delta = dot(w, v) * x - c.y[0]
    square = x**2
    residuals = torch.diag(delta * x * active)
    corner = residuals + square * outer(v, w)
    first = square * outer(w, w)
    second = square * outer(v, v)
    return block_matrix([first, corner.T], [corner, second])


def single_samples() -> tuple[Relu, ...]:
    return relu_cases(1)


CHECKS["scalar.eq37_39"] = matches(single_samples, dense_hessian, single_hessian)


def average_hessian(c: Relu) -> Tensor:
    """Eqs. (40)–(42)."""
    size = 2 * c.m
    total = zeros(size, size)
    for sign in SIGNS:
        cell, share = c.cell(sign)
        neurons = neurons_of(c, sign)
        v = c.v * neurons
        w = c.w * neurons
        scale = share * cell.a
        residuals = torch.diag(cell.d * neurons)
        corner = share * (residuals + cell.a * outer(v, w))
        by_w = scale * outer(w, w)
        first = [by_w, corner.T]
        second = [corner, scale * outer(v, v)]
        total += block_matrix(first, second)
    return total


CHECKS["scalar.eq40_42"] = matches(relu_cases, dense_hessian, average_hessian)


def order(c: Relu) -> Tensor:
    """Places of the parameters (v_+, w_+, v_-, w_-) among (v, w)."""
    plus, minus = (torch.nonzero(neurons_of(c, sign)).flatten() for sign in SIGNS)
    return torch.cat([plus, plus + c.m, minus, minus + c.m])


def cell_matrix(c: Relu) -> Tensor:
    """Eq. (4): blockdiag(n_+/n H_+, n_-/n H_-), rows and columns back in the order (v, w)."""
    blocks = []
    for sign in SIGNS:
        cell, share = c.cell(sign)
        if cell.m:
            blocks.append(share * right_matrix(cell))
    matrix = torch.block_diag(*blocks)
    back = torch.argsort(order(c))
    return matrix[back][:, back]


def off_diagonal(c: Relu) -> float:
    """Largest entry between the cells, relative to the largest of all."""
    places = order(c)
    sizes = c.hessian[places][:, places].abs()
    q = 2 * int((c.v > 0).sum())
    return float(sizes[:q, q:].max() / sizes.max())


def block_structure_error(c: Relu) -> float:
    return max(off_diagonal(c), relative_error(cell_matrix(c), c.hessian))


CHECKS["scalar.thm4"] = errors(relu_cases, block_structure_error)


def cell_values(c: Relu, sign: int) -> Tensor:
    """Corollary 5 for one cell: ±(n±/n) d±, q−1 times each, and the outliers (43), (44)."""
    cell, share = c.cell(sign)
    bulk = cell.d.expand(cell.m - 1)
    return share * torch.cat([bulk, -bulk, outliers(cell)])


def corollary5(c: Relu) -> Tensor:
    """Both cells."""
    return ascending(cell_values(c, 1), cell_values(c, -1))


CHECKS["scalar.cor5"] = matches(relu_cases, dense_eigenvalues, corollary5)


def embedded(c: Relu, sign: int, vector: Tensor) -> Tensor:
    """A cell's (z_v, z_w) among all parameters."""
    neurons = neurons_of(c, sign)
    full = zeros(2 * c.m)
    full[torch.cat([neurons, neurons])] = vector
    return full


def outlier_vector_error(c: Relu, sign: int, weighted: bool) -> float:
    """Eqs. (64), (65): λ_outlier w + d v, d w + λ_outlier v; weighted: with (n±/n) d± and the
    weighted λ."""
    cell, share = c.cell(sign)
    d = cell.d * (share if weighted else 1.0)
    found = []
    for value in share * outliers(cell):
        z_v = value * cell.w + d * cell.v
        z_w = d * cell.w + value * cell.v
        vector = embedded(c, sign, torch.cat([z_v, z_w]))
        found.append(eigen_error(c.hessian, vector, value))
    return max(found)


CHECKS["scalar.eq64"] = errors(
    relu_cases,
    lambda c: outlier_vector_error(c, 1, False),
    lambda c: outlier_vector_error(c, 1, True),
    RESIDUAL,
)
CHECKS["scalar.eq65"] = errors(
    relu_cases,
    lambda c: outlier_vector_error(c, -1, False),
    lambda c: outlier_vector_error(c, -1, True),
    RESIDUAL,
)


def bulk_vector_error(c: Relu, weighted: bool) -> float:
    """Appendix C.2: eigenvectors (z, z), z ⟂ w + v of the bulk value d±; weighted: of (n±/n) d±;
    and their mirror."""
    found = [0.0]
    for sign in SIGNS:
        cell, share = c.cell(sign)
        if cell.m == 1:
            continue
        for mirror in (1.0, -1.0):
            value = mirror * cell.d * (share if weighted else 1.0)
            z = projected_start(cell.w + mirror * cell.v)
            vector = embedded(c, sign, torch.cat([z, mirror * z]))
            found.append(eigen_error(c.hessian, vector, value))
    return max(found)


CHECKS["scalar.relu_bulk"] = errors(
    relu_cases,
    lambda c: bulk_vector_error(c, False),
    lambda c: bulk_vector_error(c, True),
    RESIDUAL,
)


def density_error(c: Relu, sign: int) -> float:
    """Section 2: with the other cell's samples twice, the cell's block against (new share / old
    share) times itself."""
    others = c.x <= 0 if sign > 0 else c.x > 0
    x = torch.cat([c.x, c.x[others]])
    y = torch.cat([c.y, c.y[others]])
    more = replace(c, x=x, y=y)
    neurons = neurons_of(c, sign)
    rows = torch.cat([neurons, neurons]).nonzero().flatten()
    before = c.hessian[rows][:, rows]
    after = more.hessian[rows][:, rows]
    _, old_share = c.cell(sign)
    _, new_share = more.cell(sign)
    ratio = float(new_share / old_share)
    return relative_error(after, ratio * before)


CHECKS["scalar.density"] = errors(
    relu_cases, lambda c: max(density_error(c, sign) for sign in SIGNS)
)
