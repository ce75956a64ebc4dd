"""Low-rank factors of inter-layer blocks and their error (DAG paper, Appendix K)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.curvature.exact.derivatives import evaluate
from runner.curvature.exact.routing import Blocks, Reach, Router
from runner.curvature.graph.checks import check_before_measuring
from runner.curvature.graph.dag import Dag
from runner.curvature.graph.state import undisturbed


@dataclass(frozen=True)
class LowRank:
    """left diag(values) right^T: left (d_v, r), values (r,), right (d_w, r) (DAG paper, Eq. K.1)."""

    left: Tensor
    values: Tensor
    right: Tensor

    def dense(self) -> Tensor:
        return (self.left * self.values) @ self.right.mT

    @property
    def rank(self) -> int:
        return len(self.values)

    @property
    def numbers(self) -> int:
        """Stored numbers, (d_v + d_w + 1) r."""
        return self.left.numel() + self.right.numel() + self.rank


def truncate(block: Tensor, rank: int) -> tuple[LowRank, float]:
    """The best rank-r approximation of a block by its SVD, and its Frobenius error sqrt(sum_{i>r} sigma_i^2) (Theorem
    93).

    Raises ValueError for a negative rank.
    """
    if rank < 0:
        raise ValueError(f"rank must be at least 0, got {rank}")
    left, values, right = torch.linalg.svd(block, full_matrices=False)
    error = float(values[rank:].double().norm())
    return LowRank(left[:, :rank], values[:rank], right[:rank].mT), error


def truncation_bound(values: Tensor, rank: int) -> float:
    """sqrt(d_min - r) sigma_{r+1}, the bound of the DAG paper's Theorem 93 on the error of `truncate`.

    values: all singular values (d_min,), descending; 0 for a rank that drops none. Raises ValueError for a negative
    rank.
    """
    if rank < 0:
        raise ValueError(f"rank must be at least 0, got {rank}")
    return math.sqrt(len(values) - rank) * float(values[rank]) if rank < len(values) else 0.0


def rank_for_accuracy(values: Tensor, epsilon: float) -> int:
    """The smallest rank k with sqrt(d_min - k) sigma_{k+1} <= epsilon sigma_1 (DAG paper, Corollary 94): then the error
    of `truncate` is at most epsilon sigma_1.

    values: all singular values (d_min,), descending; epsilon relative. Raises ValueError for epsilon < 0 and when there
    are no values.
    """
    if epsilon < 0 or not len(values):
        raise ValueError(f"expected singular values and epsilon >= 0, got {len(values)} values and {epsilon=}")
    first = float(values[0])
    return next(k for k in range(len(values) + 1) if truncation_bound(values, k) <= epsilon * first)


def pull_back(
    factors: Mapping[tuple[str, str], LowRank], left: Mapping[str, Tensor], right: Mapping[str, Tensor], rank: int
) -> LowRank:
    """Factors of sum_{u1,u2} D_{u1,v}^T H[u1,u2] D_{u2,w} from those of H[u1,u2], cut to `rank` (Proposition 92).

    left[u1] = D_{u1,v}, right[u2] = D_{u2,w} of one example. The SVD is of the small core of stacked factors: cost
    O((d_v + d_w) (k r)^2) for k stacked factors, never O(d_v d_w min(d_v, d_w)). Raises ValueError for a negative rank
    and KeyError for a factor without its Jacobians.
    """
    lefts = torch.cat([left[a].mT @ f.left for (a, _), f in factors.items()], 1)
    rights = torch.cat([right[b].mT @ f.right for (_, b), f in factors.items()], 1)
    values = torch.cat([f.values for f in factors.values()])
    q_left, r_left = torch.linalg.qr(lefts)
    q_right, r_right = torch.linalg.qr(rights)
    core, _ = truncate((r_left * values) @ r_right.mT, rank)
    return LowRank(q_left @ core.left, core.values, q_right @ core.right)


@dataclass(frozen=True)
class GaussNewtonFactors:
    """F_v, (r, d_v), with GN[v,w] = F_v^T F_w; error: Frobenius norm of what truncation dropped from the matrix
    [GN[v,w]], in its units. `block` raises KeyError for a node without a factor."""

    factors: dict[str, Tensor]
    error: float

    def block(self, v: str, w: str) -> Tensor:
        return self.factors[v].mT @ self.factors[w]

    def blocks(self) -> Blocks:
        return {(v, w): self.block(v, w) for v in self.factors for w in self.factors}


@undisturbed
def gauss_newton_factors(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    nodes: Iterable[str] | None = None,
    rank: int | None = None,
    *,
    check: bool = True,
) -> GaussNewtonFactors:
    """Factors of the batch-mean Gauss-Newton blocks of all pairs at once, without the blocks.

    With the loss Hessian A = S S^T, the rows S^T J_out,v / sqrt(B) of all examples are exact factors of rank B K;
    rank cuts the matrix over all `nodes` to its leading eigenvectors, which keeps it positive semi-definite. Storage
    r sum d_v instead of (sum d_v)^2. Raises ValueError when the loss is not convex at an output, and as the guards of
    checks.py do.
    """
    names = dag.select(nodes)
    evaluation = check_before_measuring(dag, x, y) if check else evaluate(dag, x)
    with torch.no_grad():
        router = Router(dag, evaluation, y, Reach(dag, names), second=False)
        router.derive_all()
        jacobians = router.gauss_newton_factors()
        hessian = router.loss_hessian
        wide = torch.promote_types(hessian.dtype, torch.float32)  # linalg has no bfloat16
        eigenvalues, vectors = torch.linalg.eigh(hessian.to(wide))
        floor = -1e3 * torch.finfo(hessian.dtype).eps * float(eigenvalues.abs().max())
        if float(eigenvalues.min()) < floor:
            raise ValueError("the loss is not convex in the output: its Gauss-Newton matrix has no real factors")
        root = eigenvalues.clamp_min(0).sqrt().unsqueeze(2) * vectors.mT / math.sqrt(len(x))
        stacked = torch.cat([torch.bmm(root, jacobians[v].to(wide)) for v in names], 2).flatten(0, 1)
        error = 0.0
        if rank is not None and rank < min(stacked.shape):
            low, _ = truncate(stacked, rank)
            # The matrix is F^T F: its dropped eigenvalues are the squares of the dropped singular values of F.
            dropped = torch.linalg.svdvals(stacked.double())[rank:].square()
            error, stacked = float(dropped.norm()), low.values[:, None] * low.right.mT
    sizes = [jacobians[v].shape[2] for v in names]
    pieces = stacked.to(hessian.dtype).split(sizes, 1)
    return GaussNewtonFactors(dict(zip(names, pieces, strict=True)), error)
