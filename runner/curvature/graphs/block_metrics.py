"""Metrics of inter-layer blocks and of the Jacobians of the nodes.

Resonance R, coupling C, stable rank D, effective dimension and GN-gap (DAG paper, Section 4 and
Appendix G): a ratio of numerically zero norms is NaN, and `block_metrics` says why in its status
column. Low-rank factors of Gauss-Newton blocks (Appendix K)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations_with_replacement
from typing import Any

import torch
from torch import Tensor

from runner.curvature.basics.estimate import norm_of
from runner.curvature.graphs.blocks import BlockSplit
from runner.curvature.graphs.checks import checked_evaluation, checked_network
from runner.curvature.graphs.dag import Dag
from runner.curvature.graphs.derivatives import node_derivatives
from runner.curvature.graphs.routing import Reach, Router
from runner.curvature.graphs.state import differentiable, undisturbed

Columns = dict[str, list[Any]]


def resonance(block: Tensor) -> float:
    """R = ||H[v,w]||_F of a block (d_v, d_w) (DAG paper, Definition 23), at every scale; NaN when
    an entry is.

    In the units of the loss over those of both nodes. Never raises for a matrix; torch's error for
    another shape."""
    return _in_range(float(torch.linalg.matrix_norm(block.double())), block)


def _in_range(norm: float, values: Tensor) -> float:
    """The norm, formed again at another scale where squares of the entries have left the range of
    float64."""
    return norm if 1e-100 < norm < 1e100 else norm_of(values)


def coupling(r_vw: float, r_vv: float, r_ww: float) -> float:
    """C = R(v,w) / sqrt(R(v,v) R(w,w)) (DAG paper, Definition 23); at most 1 when H is positive
    semi-definite.

    Of three norms, as `resonance` gives them; without units. NaN when a diagonal norm is 0. Raises
    ValueError for a negative one."""
    scale = math.sqrt(r_vv) * math.sqrt(r_ww)
    return r_vw / scale if scale > 0 else math.nan


def stable_rank(block: Tensor) -> float:
    """D = ||H||_F^2 / ||H||_2^2 of a block (d_v, d_w) (DAG paper, Eq. 7), between 1 and the rank;
    without units.

    NaN for a zero block and one that is not finite: nothing is raised for numbers.
    """
    s = _svdvals(block.double())
    if s[0] > 0:
        return float((s / s[0]).square().sum())
    return math.nan


def gn_gap(tensor: float, gauss_newton: float) -> float:
    """||H^T||_F / ||H^GN||_F of one pair (DAG paper, Eq. 4), of norms as `resonance` gives them;
    NaN when the denominator is 0.

    The paper's epsilon of 1e-12 in the denominator is left out: it has the units of the loss, and
    decides the gap of a network whose loss is small."""
    return tensor / gauss_newton if gauss_newton > 0 else math.nan


COLUMNS = ("v", "w", "distance", "R", "C", "D", "d_eff", "frob_gn", "frob_tensor", "gap", "status")


def block_metrics(split: BlockSplit, order: Sequence[str] | None = None) -> Columns:
    """COLUMNS, with one row per unordered pair of nodes.

    order: nodes from first to last (default: those of the split); rows run over i <= j, with
    distance j - i. gap is Eq. 4 per pair. status is "" or the reason for the NaN in the row. DAG
    paper, Section 4 and Appendix G; R in the units of the blocks, ratios without."""
    nodes = split.nodes if order is None else tuple(order)
    pairs = list(combinations_with_replacement(nodes, 2))
    singular = {pair: _svdvals(split.total[pair].double()) for pair in pairs}
    norms = {pair: _in_range(float(s.norm()), s) for pair, s in singular.items()}
    columns: Columns = {name: [] for name in COLUMNS}
    for v, w in pairs:
        scale = math.sqrt(norms[v, v]) * math.sqrt(norms[w, w])
        distance = nodes.index(w) - nodes.index(v)
        row: dict[str, Any] = {"v": v, "w": w, "distance": distance}
        row |= _ranks(singular[v, w], norms[v, w], scale, split.total[v, w].dtype)
        row["R"] = norms[v, w]
        row["frob_gn"] = resonance(split.gauss_newton[v, w])
        row["frob_tensor"] = resonance(split.tensor[v, w])
        row["gap"] = gn_gap(row["frob_tensor"], row["frob_gn"])
        if math.isnan(row["gap"]):
            row["status"] = row["status"] or "Gauss-Newton block is zero"
        for name, column in columns.items():
            column.append(row[name])
    return columns


def _ranks(s: Tensor, norm: float, scale: float, dtype: torch.dtype) -> dict[str, Any]:
    """C, D, d_eff and status from the singular values. Zero means below rounding of the blocks it
    is made of."""
    row: dict[str, Any] = dict.fromkeys(("C", "D", "d_eff"), math.nan)
    if not math.isfinite(norm) or not math.isfinite(scale):
        return row | {"status": "block is not finite"}
    if scale == 0:
        return row | {"status": "diagonal block is zero"}
    row["C"] = norm / scale
    if norm <= torch.finfo(dtype).eps * scale:
        return row | {"status": "block is numerically zero"}
    unit = s / s[0]
    row["D"] = float(unit.square().sum())
    row["d_eff"] = float(unit.sum())
    return row | {"status": ""}


def _svdvals(block: Tensor) -> Tensor:
    """Singular values, NaN for a block that is not finite (LAPACK would fail)."""
    if not bool(block.isfinite().all()):
        return block.new_full((min(block.shape),), math.nan)
    return torch.linalg.svdvals(block)


@undisturbed
def gauss_newton_factors(
    dag: Dag, x: Tensor, y: Tensor, nodes: Iterable[str] | None = None
) -> dict[str, Tensor]:
    """F_v, (B K, d_v), of each node, with F_v^T F_w the batch-mean Gauss-Newton block of every
    pair, without the blocks.

    With the loss Hessian A = S S^T, the rows S^T J_out,v / sqrt(B) of all examples are exact
    factors of rank B K. Storage B K sum d_v instead of (sum d_v)^2. Raises ValueError when the loss
    is not convex at an output, and as the checks of a stated graph do."""
    x, y = differentiable(x=x, y=y)
    names = dag.select(nodes)
    evaluation = checked_evaluation(dag, x, y)
    with torch.no_grad():
        router = Router(dag, evaluation, y, Reach(dag, names), second=False)
        router.derive_all()
        hessian = router.loss_hessian
        wide = torch.promote_types(hessian.dtype, torch.float32)  # linalg has no bfloat16
        eigenvalues, vectors = torch.linalg.eigh(hessian.to(wide))
        floor = -1e3 * torch.finfo(hessian.dtype).eps * float(eigenvalues.abs().max())
        if float(eigenvalues.min()) < floor:
            raise ValueError(
                "the loss is not convex in the output: its Gauss-Newton matrix has no real factors"
            )
        root = eigenvalues.clamp_min(0).sqrt().unsqueeze(2) * vectors.mT / math.sqrt(len(x))
        factors = {v: torch.bmm(root, router.factor(v).to(wide)) for v in names}
    return {v: factor.flatten(0, 1).to(hessian.dtype) for v, factor in factors.items()}


@undisturbed
def block_jacobians(
    dag: Dag, x: Tensor, nodes: Iterable[str] | None = None
) -> dict[tuple[str, str], Tensor]:
    """D_up = df_u/df_p of every edge p -> u into `nodes` (default: all), keyed (u, p), shape (B,
    d_u, d_p).

    Raises ValueError for unknown nodes, and as the checks of a stated graph do for examples that
    mix, training modes and values that are not finite."""
    (x,) = differentiable(x=x)
    names = [u for u in dag.select(nodes) if u in dag.nodes]
    jacobians: dict[tuple[str, str], Tensor] = {}
    with torch.no_grad():
        evaluation = checked_network(dag, x)
        for u in names:
            node = dag.nodes[u]
            zero = evaluation.values[u].flatten(1) * 0
            local = node_derivatives(node, evaluation, zero, node.parents, second=False)
            jacobians |= {(u, p): jacobian for p, jacobian in local.jacobians.items()}
    return jacobians
