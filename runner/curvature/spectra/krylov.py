"""Block Lanczos with thick restarts, and Lanczos from one vector for each of several probes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from runner.curvature.basics.adapters import Symmetric
from runner.curvature.basics.estimate import full

MEMORY_BUDGET = 1 << 30
"""Default bytes for the vectors of a search."""
COLUMNS = 1 << 16
"""Components of all vectors of a basis that are combined together."""

Order = Callable[[Tensor], Tensor]


class Krylov:
    """A basis V of a block Krylov space and the projected matrix T = V H Vᵀ, by products alone.

    Rows of V [0, ready) have their products in T; rows [ready, ready + block) are next. Every new
    block is made orthogonal to all rows. After `most` rows the best Ritz vectors replace the basis
    (Wu and Simon, thick restart). The upper half of T comes from products, the lower one from what
    they left of new rows, so that a matrix that is not symmetric shows: MeasurementError.
    """

    def __init__(
        self,
        symmetric: Symmetric,
        block: int,
        most: int,
        fresh: Callable[[int], Tensor],
        first: Tensor,
    ) -> None:
        self.symmetric = symmetric
        self.block = block
        self.most = most
        self.fresh = fresh
        dtype = symmetric.wide
        self.rows = torch.empty(most + block, symmetric.size, dtype=dtype, device=symmetric.device)
        self.matrix = full(0.0, most + block, most + block)
        self.last = self.matrix[:block, :block].clone()  # couples the last block to the next
        self.ready = 0
        self.largest = 0.0  # largest norm of a product
        self.skew = 0.0  # largest difference from the transpose: the rounding of products
        self.dropped = 0.0  # norm of the couplings that are left out
        self.near = 0  # the first row with which the next products are coupled
        self.eps = torch.finfo(dtype).eps
        self.rows[:block] = _orthonormal(first.to(dtype))[0]

    def expand(self) -> None:
        """One product with each row of the next block."""
        start = self.ready
        stop = self.ready + self.block
        basis = self.rows[:stop]
        images = self.symmetric.rows(basis[start:])
        self.largest = max(self.largest, float(torch.linalg.vector_norm(images)))
        # first what the product is known to have, then all of it: once is not enough
        # (k, n) @ (n, m): BLAS takes four times as long for (m, n) @ (n, k), k = 2
        near = basis[self.near :]
        local = images @ near.mT
        images.addmm_(local, near, alpha=-1)
        coefficients = images @ basis.mT
        images.addmm_(coefficients, basis, alpha=-1)
        coefficients[:, self.near :].add_(local)
        self.matrix[:stop, start:stop] = coefficients.mT
        self.ready = stop
        self.near = start
        room = self.symmetric.size - stop
        if not room:
            self.last = full(0.0, 0, self.block)
            self.block = 0
            return
        rows, factor = _orthonormal(images)
        if min(map(abs, factor.diagonal().tolist())) < math.sqrt(self.eps) * self.largest:
            rows, factor = self._mended(basis, images)
        self.block = min(self.block, room)
        self.last = factor[: self.block].double().cpu()
        self.rows[stop : stop + self.block] = rows[: self.block]
        self.matrix[stop : stop + self.block, start:stop] = self.last

    def _mended(self, basis: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """Directions by their length, where little is left; random ones in place of rounding."""
        u, lengths, v = torch.linalg.svd(images.mT, full_matrices=False)
        rows = u.mT.contiguous()
        lost = lengths <= 100 * self.eps * self.largest
        if bool(lost.any()):  # an invariant subspace: go on in another direction
            rows[lost] = self.fresh(int(lost.sum())).to(rows.dtype)
        rows, again = self._against(basis, rows)
        return rows, again @ (lengths.masked_fill(lost, 0.0)[:, None] * v)

    def _against(self, basis: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows orthogonal to the basis once more: once is not enough where little is left."""
        whole = torch.eye(len(rows), dtype=rows.dtype, device=rows.device)
        for _ in range(2):
            rows = torch.addmm(rows, rows @ basis.mT, basis, alpha=-1)
            rows, triangle = _orthonormal(rows)
            whole = triangle @ whole
        return rows, whole

    def ritz(self, order: Order) -> tuple[Tensor, Tensor, Tensor]:
        """Values in order, coefficients of their vectors, and residuals |H v - value v|."""
        m = self.ready
        matrix = self.matrix[:m, :m]
        skew = float((matrix - matrix.mT).abs().max())
        self.skew = max(self.skew, skew)
        self.symmetric.refuse_skew(skew, self.largest)
        values, vectors = torch.linalg.eigh(matrix, UPLO="U")
        best = order(values)
        values = values[best]
        vectors = vectors[:, best]
        residuals = self._coupling(vectors).norm(dim=0)
        return values, vectors, (residuals.square() + self.dropped**2).sqrt()

    @property
    def full(self) -> bool:
        return self.ready + self.block > self.most

    def restart(self, values: Tensor, vectors: Tensor, kept: int) -> None:
        """Replaces the basis by the first `kept` Ritz vectors."""
        next_rows = self.rows[self.ready : self.ready + self.block].clone()
        coupling = self._coupling(vectors[:, :kept])
        self._combine(vectors[:, :kept])
        self.rows[kept : kept + self.block] = next_rows
        self._reset(values[:kept])
        self.matrix[kept : kept + self.block, :kept] = coupling
        self.last = coupling

    def anew(self, values: Tensor, vectors: Tensor, kept: int, block: int) -> None:
        """Keeps the first `kept` Ritz vectors, which have converged, and goes on from `block`
        random vectors that are orthogonal to these: copies of an eigenvalue that the block before
        had no vectors for."""
        coupling = self._coupling(vectors[:, :kept])
        self.dropped = math.hypot(self.dropped, float(torch.linalg.matrix_norm(coupling, 2)))
        self._combine(vectors[:, :kept])
        block = min(block, self.symmetric.size - kept)
        self.most = min(self.symmetric.size, max(self.most, kept + 3 * block))
        old = self.rows
        self.rows = torch.empty(self.most + block, old.shape[1], dtype=old.dtype, device=old.device)
        self.rows[:kept] = old[:kept]
        self.matrix = full(0.0, len(self.rows), len(self.rows))
        self._reset(values[:kept])
        self._add_random(kept, block)
        self.block = block
        self.last = full(0.0, block, 0)

    def widen(self, more: int) -> None:
        """Goes on with `more` random vectors in the block, as many as the space has room for."""
        stop = self.ready + self.block
        more = min(more, self.symmetric.size - stop)
        if more > 0:
            self._add_random(stop, more)
            self.block += more
            self.last = torch.cat([self.last, self.last.new_zeros(more, self.last.shape[1])])

    def _coupling(self, vectors: Tensor) -> Tensor:
        """What couples combinations of the basis to the next block."""
        return self.last @ vectors[self.ready - self.last.shape[1] :]

    def _add_random(self, stop: int, count: int) -> None:
        """Random rows from `stop` on, orthogonal to all before."""
        random = _orthonormal(self.fresh(count).to(self.rows.dtype))[0]
        self.rows[stop : stop + count] = self._against(self.rows[:stop], random)[0]

    def _reset(self, values: Tensor) -> None:
        self.matrix.zero_()
        self.ready = len(values)
        self.near = 0
        self.matrix[: self.ready, : self.ready] = values.diag()

    def _combine(self, factors: Tensor) -> None:
        factors = factors.to(self.rows)
        for i in range(0, self.rows.shape[1], COLUMNS):
            piece = self.rows[:, i : i + COLUMNS]
            piece[: factors.shape[1]] = factors.mT @ piece[: len(factors)]

    def vectors(self, factors: Tensor) -> Tensor:
        """Combinations of the basis, (n, k); the basis is lost."""
        self._combine(factors)
        return self.rows[: factors.shape[1]].mT


def _orthonormal(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal rows Q and R, with rows = Rᵀ Q."""
    if len(rows) == 1:
        norm = torch.linalg.vector_norm(rows)
        return rows / norm.clamp(min=torch.finfo(rows.dtype).tiny), norm.reshape(1, 1)
    q, r = torch.linalg.qr(rows.mT)
    return q.mT.contiguous(), r


class Rule(NamedTuple):
    """A quadrature: nodes ascending, weights that add up to 1, and residuals of the nodes as
    eigenvalues."""

    nodes: Tensor
    weights: Tensor
    residuals: Tensor


class Quadratures:
    """Lanczos from several unit vectors (p, n) at once: for each the Gauss quadrature of the
    spectrum it sees.

    With full reorthogonalisation where all bases fit `budget` bytes, else with three vectors for
    each probe.
    """

    def __init__(self, symmetric: Symmetric, start: Tensor, steps: int, budget: int) -> None:
        self.symmetric = symmetric
        self.steps = min(steps, symmetric.size)
        count, n = start.shape
        self.current = start
        self.before = torch.zeros_like(start)
        self.kept = start.dtype.itemsize * count * self.steps * n <= budget
        shape = (count, self.steps if self.kept else 0, n)
        self.basis = torch.empty(shape, dtype=start.dtype, device=start.device)
        self.alphas = full(0.0, self.steps, count)
        self.betas = torch.zeros_like(self.alphas)
        self.done = 0

    def step(self) -> None:
        """One product with each vector."""
        images = self.symmetric.rows(self.current)
        done = self.done
        alpha = (images * self.current).sum(1)
        rest = images - alpha[:, None] * self.current
        if done:
            rest -= self.betas[done - 1].to(rest)[:, None] * self.before
        if self.kept:
            self.basis[:, done] = self.current
            basis = self.basis[:, : done + 1]
            rest -= ((basis @ rest[:, :, None]).mT @ basis)[:, 0]
        beta = rest.norm(dim=1)
        self.alphas[done] = alpha
        size = self.alphas.abs().amax(0) + self.betas.amax(0)
        ended = beta <= (10 * torch.finfo(rest.dtype).eps * size).to(beta)
        beta[ended] = 0  # the space of this probe is complete
        self.before = self.current
        self.current = rest / torch.where(beta > 0, beta, 1.0)[:, None]
        self.current[ended] = 0
        self.betas[done] = beta
        self.done += 1

    def rules(self, count: int) -> list[Rule]:
        """Of every probe after so many steps."""
        return [self._rule(probe, count) for probe in range(len(self.current))]

    def _rule(self, probe: int, count: int) -> Rule:
        alphas = self.alphas[:count, probe]
        betas = self.betas[:count, probe]
        ends = (betas == 0).nonzero()
        if len(ends):
            count = int(ends[0]) + 1
            alphas = alphas[:count]
            betas = betas[:count]
        matrix = alphas.diag() + betas[:-1].diag(1) + betas[:-1].diag(-1)
        values, vectors = torch.linalg.eigh(matrix)
        weights = vectors[0].square()
        residuals = vectors[-1].abs() * betas[-1]
        if not self.kept:
            apart = 100 * torch.finfo(self.symmetric.dtype).eps * float(values.abs().max())
            values, weights, residuals = _without_copies(values, weights, residuals, apart)
        restored = self.symmetric.restored
        return Rule(restored(values), weights, restored(residuals))


def _without_copies(values: Tensor, weights: Tensor, residuals: Tensor, apart: float) -> Rule:
    """Nodes closer than `apart` as one: without reorthogonalisation, eigenvalues that have
    converged come back as copies, among which their weight is divided (Greenbaum). A copy on its
    way has no weight, and is left out."""
    begins = (values.diff() > apart).long()
    group = torch.nn.functional.pad(begins.cumsum(0), (1, 0))
    count = int(group[-1]) + 1
    total = full(0.0, count).index_add_(0, group, weights)
    best = [int(torch.where(group == i, weights, -1.0).argmax()) for i in range(count)]
    least = full(math.inf, count)
    least = least.scatter_reduce_(0, group, residuals, "amin")
    kept = total > torch.finfo(torch.float64).eps
    return Rule(values[best][kept], total[kept], least[kept])
