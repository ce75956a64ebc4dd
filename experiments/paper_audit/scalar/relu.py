"""Scalar-spectrum paper, Section 2 and Appendices B and C.2 (ReLU network): what was checked, and the verdicts.

A cell is a linear network of its own neurons and samples (`Relu.cell`), weighted with its share n±/n of the samples.
"""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.paper_audit.checks import Entry, relative_error
from experiments.paper_audit.scalar import linear
from experiments.paper_audit.scalar.cases import (
    Relu,
    ascending,
    autodiff_gradient,
    compare,
    eigen_error,
    relu_cases,
    relu_network,
    worst,
)

SIGNS = (1, -1)
RESIDUAL = "‖Hz − λz‖ / (‖H‖₂ ‖z‖), the largest"


def order(c: Relu) -> Tensor:
    """Places of the parameters (v_+, w_+, v_-, w_-) among (v, w)."""
    plus, minus = torch.nonzero(c.v > 0).flatten(), torch.nonzero(c.v <= 0).flatten()
    return torch.cat([plus, plus + c.m, minus, minus + c.m])


def cell_matrix(c: Relu) -> Tensor:
    """Eq. (4): blockdiag(n_+/n H_+, n_-/n H_-), rows and columns back in the order (v, w)."""
    parts = []
    for sign in SIGNS:
        cell, share = c.cell(sign)
        parts.append(
            torch.zeros(0, 0, dtype=torch.float64)
            if cell.m == 0
            else share * linear.right_matrix(cell)
        )
    matrix = torch.block_diag(*parts)
    back = torch.argsort(order(c))
    return matrix[back][:, back]


def cell_values(c: Relu, sign: int) -> Tensor:
    """Corollary 5 for one cell: ±(n±/n) d±, q−1 times each, and the outliers (43), (44)."""
    cell, share = c.cell(sign)
    bulk = cell.d.expand(cell.m - 1)
    return share * torch.cat([bulk, -bulk, linear.outliers(cell)])


def corollary5(c: Relu) -> Tensor:
    """Both cells."""
    return ascending(cell_values(c, 1), cell_values(c, -1))


def gradient(c: Relu) -> Tensor:
    """Eqs. (35), (36), averaged over the samples."""
    slopes = (
        torch.where(c.x[:, None] > 0, (c.v > 0).double(), (c.v <= 0).double()) * c.x[:, None]
    )  # (n, m)
    delta = (slopes * c.v) @ c.w - c.y
    return torch.cat([delta @ (slopes * c.w), delta @ (slopes * c.v)]) / len(c.y)


def single_hessian(c: Relu) -> Tensor:
    """Eqs. (37)–(39), one sample."""
    x = c.x[0]
    active = (c.v > 0) if x > 0 else (c.v <= 0)
    v, w = c.v * active, c.w * active
    delta = torch.dot(w, v) * x - c.y[0]
    corner = torch.diag(delta * x * active) + x**2 * torch.outer(v, w)
    top = torch.cat([x**2 * torch.outer(w, w), corner.T], dim=1)
    return torch.cat([top, torch.cat([corner, x**2 * torch.outer(v, v)], dim=1)])


def average_hessian(c: Relu) -> Tensor:
    """Eqs. (40)–(42)."""
    total = torch.zeros(2 * c.m, 2 * c.m, dtype=torch.float64)
    for sign in SIGNS:
        cell, share = c.cell(sign)
        neurons = (c.v > 0) if sign > 0 else (c.v <= 0)
        v, w = c.v * neurons, c.w * neurons
        corner = share * (torch.diag(cell.d * neurons) + cell.a * torch.outer(v, w))
        top = torch.cat([share * cell.a * torch.outer(w, w), corner.T], dim=1)
        total += torch.cat([top, torch.cat([corner, share * cell.a * torch.outer(v, v)], dim=1)])
    return total


def embedded(c: Relu, sign: int, vector: Tensor) -> Tensor:
    """A cell's (z_v, z_w) among all parameters."""
    neurons = (c.v > 0) if sign > 0 else (c.v <= 0)
    full = torch.zeros(2 * c.m, dtype=torch.float64)
    full[torch.cat([neurons, neurons])] = vector
    return full


def outlier_vector_error(c: Relu, sign: int, weighted: bool) -> float:
    """Eqs. (64), (65): λ_outlier w + d v, d w + λ_outlier v; weighted: with (n±/n) d± and the weighted λ."""
    cell, share = c.cell(sign)
    errors = []
    for value in share * linear.outliers(cell):
        d = cell.d * (share if weighted else 1.0)
        vector = torch.cat([value * cell.w + d * cell.v, d * cell.w + value * cell.v])
        errors.append(eigen_error(c.hessian, embedded(c, sign, vector), value))
    return max(errors)


def bulk_vector_error(c: Relu, weighted: bool) -> float:
    """Appendix C.2: eigenvectors (z, z), z ⟂ w + v of the bulk value d±; weighted: of (n±/n) d±; and their mirror."""
    errors = [0.0]
    for sign in SIGNS:
        cell, share = c.cell(sign)
        for mirror in (1.0, -1.0):
            value = mirror * cell.d * (share if weighted else 1.0)
            p = cell.w + mirror * cell.v
            start = torch.linspace(-1, 1, cell.m, dtype=torch.float64) + 0.3
            z = start - p * torch.dot(p, start) / torch.dot(p, p)
            if cell.m > 1:
                errors.append(
                    eigen_error(c.hessian, embedded(c, sign, torch.cat([z, mirror * z])), value)
                )
    return max(errors)


def output(c: Relu) -> Tensor:
    """⟨w_+, v_+⟩ x 1{x>0} + ⟨w_-, v_-⟩ x 1{x<=0}."""
    plus, minus = c.cell(1)[0], c.cell(-1)[0]
    return torch.where(c.x > 0, plus.wv * c.x, minus.wv * c.x)


def covariance(c: Relu, over_all: bool) -> Tensor:
    """Input-output covariances of the cells; over_all=False: the sums up to n_± that Section 2 prints."""
    sums = []
    for mask in (c.x > 0, c.x <= 0):
        count = int(mask.sum())
        terms = c.y * c.x * mask
        sums.append((terms if over_all else terms[:count]).sum() / count)
    return torch.stack(sums)


def network(c: Relu) -> Tensor:
    return relu_network(c.x, c.v, c.w)


def residual_identity(c: Relu) -> Tensor:
    return torch.stack([cell.a * cell.wv - cell.yx for cell in (c.cell(1)[0], c.cell(-1)[0])])


def off_diagonal(c: Relu) -> float:
    """Largest entry between the cells, relative to the largest of all."""
    arranged = c.hessian[order(c)][:, order(c)]
    q = 2 * int((c.v > 0).sum())
    return float(arranged[:q, q:].abs().max() / arranged.abs().max())


def density_error(c: Relu, sign: int) -> float:
    """Section 2: with the other cell's samples twice, the cell's block against (new share / old share) times itself."""
    others = c.x <= 0 if sign > 0 else c.x > 0
    more = Relu(c.w, c.v, torch.cat([c.x, c.x[others]]), torch.cat([c.y, c.y[others]]))
    neurons = c.v > 0 if sign > 0 else c.v <= 0
    rows = torch.cat([neurons, neurons]).nonzero().flatten()
    before, after = (case.hessian[rows][:, rows] for case in (c, more))
    return relative_error(after, float(more.cell(sign)[1] / c.cell(sign)[1]) * before)


CHECKS: dict[str, Entry] = {
    "scalar.relu_definition": lambda: compare(
        relu_cases(),
        network,
        lambda c: (torch.outer(c.x, c.v) > 0).double() @ c.w,
        lambda c: (torch.outer(c.x, c.v) * (torch.outer(c.x, c.v) > 0)) @ c.w,
    ),
    "scalar.relu_covariance": lambda: compare(
        relu_cases(),
        lambda c: torch.stack([c.cell(1)[0].yx, c.cell(-1)[0].yx]),
        lambda c: covariance(c, False),
        lambda c: covariance(c, True),
    ),
    "scalar.relu_output": lambda: compare(relu_cases(), network, output),
    "scalar.eq35_36": lambda: compare(
        relu_cases(), lambda c: autodiff_gradient(relu_network, [c.v, c.w], c.x, c.y), gradient
    ),
    "scalar.eq37_39": lambda: compare(relu_cases(1), lambda c: c.hessian, single_hessian),
    "scalar.eq40_42": lambda: compare(relu_cases(), lambda c: c.hessian, average_hessian),
    "scalar.thm4": lambda: worst(
        relu_cases(), lambda c: max(off_diagonal(c), relative_error(cell_matrix(c), c.hessian))
    ),
    "scalar.density": lambda: worst(
        relu_cases(), lambda c: max(density_error(c, sign) for sign in SIGNS)
    ),
    "scalar.cell_residual": lambda: compare(
        relu_cases(), lambda c: torch.stack([c.cell(1)[0].d, c.cell(-1)[0].d]), residual_identity
    ),
    "scalar.cor5": lambda: compare(relu_cases(), lambda c: c.eigenvalues, corollary5),
    "scalar.eq64": lambda: worst(
        relu_cases(),
        lambda c: outlier_vector_error(c, 1, False),
        lambda c: outlier_vector_error(c, 1, True),
        RESIDUAL,
    ),
    "scalar.eq65": lambda: worst(
        relu_cases(),
        lambda c: outlier_vector_error(c, -1, False),
        lambda c: outlier_vector_error(c, -1, True),
        RESIDUAL,
    ),
    "scalar.relu_bulk": lambda: worst(
        relu_cases(),
        lambda c: bulk_vector_error(c, False),
        lambda c: bulk_vector_error(c, True),
        RESIDUAL,
    ),
}
