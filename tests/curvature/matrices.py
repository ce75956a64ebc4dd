"""Matrices with known eigenvalues, and matrices as operators."""

import torch

from tests.draws import normal, seeded


def spectrum(low, high, size, *outliers):
    """These outliers, and as many evenly spread eigenvalues as `size` leaves."""
    bulk = torch.linspace(low, high, size - len(outliers), dtype=torch.float64)
    return torch.cat([torch.tensor(outliers, dtype=torch.float64), bulk])


def symmetric(values):
    """A matrix with these eigenvalues and random eigenvectors."""
    q, _ = torch.linalg.qr(normal(len(values), len(values), generator=seeded(5)))
    return (q * values) @ q.mT


def largest(operator, count):
    """The largest eigenvalues of the dense matrix, in descending order."""
    return torch.linalg.eigvalsh(operator.dense()).flip(0)[:count]


class Grouped:
    """A matrix as an operator over groups of parameters, which are slices."""

    dtype, device = torch.float64, torch.device("cpu")

    def __init__(self, matrix, **groups):
        self.matrix, self.shape, self.groups = matrix, matrix.shape, groups
        self.sizes = {name: len(matrix[rows]) for name, rows in groups.items()}

    def __matmul__(self, v):
        return self.matrix @ v


class _Stopping(Grouped):
    """A matrix whose product after the first `left` ones is interrupted."""

    def __init__(self, matrix, left):
        super().__init__(matrix)
        self.dtype, self.left = matrix.dtype, left

    def __matmul__(self, v):
        self.left -= v[0].numel()
        if self.left < 0:
            raise KeyboardInterrupt
        return super().__matmul__(v)


def cut_short(estimate, matrix, products):
    """What is known of an estimate that is interrupted after so many products, if it takes more."""
    try:
        return estimate(_Stopping(matrix, products))
    except KeyboardInterrupt as stopped:
        return stopped.partial


METRICS = ("R", "C", "D", "gap")


def exact_metrics(split, pairs):
    """Pair -> metric -> value, of blocks and by the definitions; NaN where it is not defined."""
    rows = {}
    for v, w in pairs:
        block, own, other = (split.total[pair] for pair in ((v, w), (v, v), (w, w)))
        norm = block.norm()
        coupling = norm / (own.norm() * other.norm()).sqrt()
        stable_rank = (norm / torch.linalg.matrix_norm(block, 2)).square()
        gap = split.tensor[v, w].norm() / split.gauss_newton[v, w].norm()
        values = torch.stack([norm, coupling, stable_rank, gap])
        defined = values.where(values.isfinite(), torch.nan)
        rows[v, w] = dict(zip(METRICS, defined.tolist(), strict=True))
    return rows
