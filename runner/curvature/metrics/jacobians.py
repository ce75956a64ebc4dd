"""Jacobians of the nodes alone: their spectral norms (rho) and the Lyapunov exponents of their products."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from runner.curvature.exact.derivatives import evaluate, node_derivatives
from runner.curvature.graph.checks import check_network
from runner.curvature.graph.dag import Dag
from runner.curvature.graph.state import undisturbed


@undisturbed
def block_jacobians(
    dag: Dag, x: Tensor, nodes: Iterable[str] | None = None, *, check: bool = True
) -> dict[tuple[str, str], Tensor]:
    """D_up = df_u/df_p of every edge p -> u into `nodes` (default: all), keyed (u, p), shape (B, d_u, d_p).

    Raises ValueError for unknown nodes, and as the guards of checks.py do for examples that mix, training modes and
    values that are not finite (check=False skips them).
    """
    names = [u for u in dag.select(nodes) if u in dag.nodes]
    found = {}
    with torch.no_grad():
        evaluation = check_network(dag, x) if check else evaluate(dag, x)
        for u in names:
            node = dag.nodes[u]
            zero = evaluation.values[u].flatten(1) * 0
            local = node_derivatives(node, evaluation, zero, tuple(dict.fromkeys(node.parents)), second=False)
            for p, jacobian in local.jacobians.items():
                found[u, p] = jacobian
    return found


def mean_spectral_norms(jacobians: dict[tuple[str, str], Tensor]) -> dict[tuple[str, str], float]:
    """Batch mean of the largest singular value sigma_max(D_up) of every edge (p, u).

    jacobians: D_up of each edge, (B, d_u, d_p), as `block_jacobians` gives them; any floating dtype, taken in float64.
    Raises torch.linalg.LinAlgError for an entry that is not finite.
    """
    return {edge: float(torch.linalg.svdvals(j.double())[:, 0].mean()) for edge, j in jacobians.items()}


def spectral_radius(jacobians: dict[tuple[str, str], Tensor]) -> float:
    """rho of the DAG paper's Table 2: the batch mean of sigma_max(D_up), maximised over the edges given.

    jacobians: (B, d_u, d_p) of each edge. As published, the edges are those into the blocks (projection and head left
    out). Raises ValueError when there are none.
    """
    if not jacobians:
        raise ValueError("rho needs at least one Jacobian")
    return max(mean_spectral_norms(jacobians).values())


def lyapunov_exponents(jacobians: Sequence[Tensor]) -> Tensor:
    """Lyapunov exponents of J_L ... J_1 by QR (Benettin): batch mean of log|R_kk| / L, sorted from the largest,
    float64.

    jacobians: J_1 ... J_L of consecutive blocks, each (B, d_l, d_{l-1}). From Q = I, Q_l R_l = J_l Q_{l-1}. A direction
    that some block annihilates has exponent -inf. The number of exponents is the smallest width. Raises ValueError for
    no Jacobians and for consecutive ones that do not fit.
    """
    steps = _chain(jacobians)
    width = min(min(j.shape[1:]) for j in steps)
    q = torch.eye(steps[0].shape[2], dtype=torch.float64, device=steps[0].device)[:, :width]
    q = q.expand(steps[0].shape[0], -1, -1)
    logs = torch.zeros(steps[0].shape[0], width, dtype=torch.float64, device=q.device)
    for j in steps:
        q, r = torch.linalg.qr(j @ q)
        logs += r.diagonal(dim1=1, dim2=2).abs().log()
    return (logs / len(steps)).mean(0).sort(descending=True).values


def lyapunov_log_norm(jacobians: Sequence[Tensor]) -> float:
    """Eq. 8 of the DAG paper: batch mean of (1/L) log ||J_L ... J_1||_2, in nats a block.

    jacobians: J_1 ... J_L of consecutive blocks, each (B, d_l, d_{l-1}). Raises ValueError as `lyapunov_exponents`
    does.
    """
    steps = _chain(jacobians)
    logs = torch.zeros(steps[0].shape[0], dtype=torch.float64, device=steps[0].device)
    product = torch.eye(steps[0].shape[2], dtype=torch.float64, device=steps[0].device).expand(
        steps[0].shape[0], -1, -1
    )
    for j in steps:
        # Rescaled at every step, or deep products leave the range of floating-point numbers.
        product = j @ product
        size = product.flatten(1).norm(dim=1).clamp_min(torch.finfo(torch.float64).tiny)
        logs, product = logs + size.log(), product / size[:, None, None]
    return float(((logs + torch.linalg.svdvals(product)[:, 0].log()) / len(steps)).mean())


def interaction_radius(constant: float, rate: float, diagonal_norms: Iterable[float], epsilon: float) -> float:
    """Definition 79: the smallest integer k >= 0 with constant * rate^k < epsilon * min_v ||H[v,v]||_F; inf if there
    is none.

    rate: s rho (largest out-degree times largest Jacobian norm). Raises ValueError for negative arguments.
    """
    smallest = min(diagonal_norms)
    if constant < 0 or rate < 0 or smallest < 0 or epsilon <= 0:
        raise ValueError(f"expected non-negative sizes, got {constant=}, {rate=}, smallest norm {smallest}, {epsilon=}")
    target = epsilon * smallest
    if constant < target:
        return 0
    if rate >= 1 or target == 0:
        return math.inf
    k = 1 if rate == 0 else max(1, math.floor(math.log(target / constant) / math.log(rate)))
    while constant * rate**k >= target:
        k += 1
    return k


def _chain(jacobians: Sequence[Tensor]) -> list[Tensor]:
    steps = [j.double() for j in jacobians]
    if not steps:
        raise ValueError("Lyapunov exponents need at least one Jacobian")
    for before, after in pairwise(steps):
        if before.shape[1] != after.shape[2]:
            raise ValueError(f"consecutive Jacobians do not fit: {tuple(after.shape)} after {tuple(before.shape)}")
    return steps
