"""Spectral norms of the Jacobians of a chain of nodes (rho), and the Lyapunov exponents of their
product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from runner.curvature import Dag
from runner.curvature.graphs.block_metrics import block_jacobians


def chain_dynamics(dag: Dag, nodes: Sequence[str], x: Tensor) -> dict[str, float]:
    """rho and the largest Lyapunov exponents of consecutive nodes; NaN where the nodes are no
    chain."""
    parents = [dag.nodes[name].parents for name in nodes]
    expected = [(before,) for before in nodes[:-1]]
    found = [tuple(names) for names in parents[1:]]
    if len(parents[0]) != 1 or found != expected:
        return dict.fromkeys(("rho", "rho_mean", "lyapunov_1", "lyapunov_log_norm"), math.nan)
    jacobians = block_jacobians(dag, x, nodes)
    steps = [jacobians[name, before] for name, (before,) in zip(nodes, parents, strict=True)]
    exponents = lyapunov_exponents(steps)
    return {
        **spectral_norms_of(jacobians),
        "lyapunov_1": float(exponents[0]),
        "lyapunov_log_norm": lyapunov_log_norm(steps),
    }


def spectral_norms_of(jacobians: dict[tuple[str, str], Tensor]) -> dict[str, float]:
    """rho (Table 2) and rho_mean: the largest and the mean over the blocks of the batch mean of
    σ_max(J). As published, the edges are those into the blocks, projection and head left out.

    The authors store both. Cells measured before this column existed lack rho_mean.
    """
    norms = mean_spectral_norms(jacobians)
    return {"rho": max(norms.values()), "rho_mean": math.fsum(norms.values()) / len(norms)}


def mean_spectral_norms(jacobians: dict[tuple[str, str], Tensor]) -> dict[tuple[str, str], float]:
    """Batch mean of the largest singular value sigma_max(D_up) of every edge (p, u).

    jacobians: D_up of each edge, (B, d_u, d_p), as `block_jacobians` gives them; any floating
    dtype, taken in float64. Raises torch.linalg.LinAlgError for an entry that is not finite.
    """
    found = {}
    for edge, jacobian in jacobians.items():
        found[edge] = float(torch.linalg.svdvals(jacobian.double())[:, 0].mean())
    return found


def lyapunov_exponents(jacobians: Sequence[Tensor]) -> Tensor:
    """Lyapunov exponents of J_L ... J_1 by QR (Benettin): batch mean of log|R_kk| / L, sorted from
    the largest, float64.

    jacobians: J_1 ... J_L of consecutive blocks, each (B, d_l, d_{l-1}). From Q = I, Q_l R_l = J_l
    Q_{l-1}. A direction that some block annihilates has exponent -inf. The number of exponents is
    the smallest width. Raises ValueError for no Jacobians and for consecutive ones that do not fit.
    """
    steps, q = _chain(jacobians)
    narrowest = min(size for step in steps for size in step.shape[1:])
    q = q[..., :narrowest]
    logs = q.new_zeros(len(q), q.shape[2])
    for j in steps:
        q, r = torch.linalg.qr(j @ q)
        logs += r.diagonal(dim1=1, dim2=2).abs().log()
    exponents = (logs / len(steps)).mean(0)
    return exponents.sort(descending=True).values


def lyapunov_log_norm(jacobians: Sequence[Tensor]) -> float:
    """Eq. 8 of the DAG paper: batch mean of (1/L) log ||J_L ... J_1||_2, in nats a block.

    jacobians: J_1 ... J_L of consecutive blocks, each (B, d_l, d_{l-1}). Raises ValueError as
    `lyapunov_exponents` does.
    """
    steps, product = _chain(jacobians)
    logs = product.new_zeros(len(product))
    tiny = torch.finfo(torch.float64).tiny
    for j in steps:
        # Rescaled at every step, or deep products leave the range of floating-point numbers.
        product = j @ product
        size = product.flatten(1).norm(dim=1).clamp_min(tiny)
        logs = logs + size.log()
        product = product / size[:, None, None]
    logs = logs + torch.linalg.svdvals(product)[:, 0].log()
    return float((logs / len(steps)).mean())


def _chain(jacobians: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """The Jacobians in float64, and the identity (B, d_0, d_0) that their product begins from."""
    steps = [j.double() for j in jacobians]
    if not steps:
        raise ValueError("Lyapunov exponents need at least one Jacobian")
    for before, after in pairwise(steps):
        if before.shape[1] != after.shape[2]:
            shapes = f"{tuple(after.shape)} after {tuple(before.shape)}"
            raise ValueError(f"consecutive Jacobians do not fit: {shapes}")
    batch, _, width = steps[0].shape
    identity = torch.eye(width, dtype=torch.float64, device=steps[0].device)
    return steps, identity.expand(batch, -1, -1)
