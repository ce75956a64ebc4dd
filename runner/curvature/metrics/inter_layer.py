"""Metrics of inter-layer blocks: resonance R, coupling C, stable rank D, effective dimension, GN-gap, negative
curvature mass.

All of the DAG paper, Section 4 and Appendices G and H. A ratio of numerically zero norms is NaN, and `block_metrics`
says why in its status column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from runner.curvature.exact.split import BlockSplit

Columns = dict[str, list[Any]]
Pair = tuple[str, str]


def resonance(block: Tensor) -> float:
    """R = ||H[v,w]||_F of a block (d_v, d_w) (DAG paper, Definition 23), at every scale; NaN when an entry is.

    In the units of the loss over those of both nodes. Never raises for a matrix; torch's error for another shape.
    """
    found = float(torch.linalg.matrix_norm(block.double()))
    return found if _in_range(found) else _norm(block.double())


def _in_range(norm: float) -> bool:
    """Whether no square of the entries has left the range of float64."""
    return 1e-100 < norm < 1e100


def _norm(values: Tensor) -> float:
    """Euclidean norm at every scale: a power of two taken out changes no digit."""
    largest = float(values.abs().max()) if values.numel() else 0.0
    if not math.isfinite(largest) or largest == 0:
        return float(values.norm())
    exponent = math.frexp(largest)[1]
    return math.ldexp(float(torch.ldexp(values, torch.tensor(-exponent, device="cpu")).norm()), exponent)


def coupling(r_vw: float, r_vv: float, r_ww: float) -> float:
    """C = R(v,w) / sqrt(R(v,v) R(w,w)) (DAG paper, Definition 23); at most 1 when H is positive semi-definite.

    Of three norms, as `resonance` gives them; without units. NaN when a diagonal norm is 0. Raises ValueError for a
    negative one.
    """
    scale = math.sqrt(r_vv) * math.sqrt(r_ww)
    return r_vw / scale if scale > 0 else math.nan


def stable_rank(block: Tensor) -> float:
    """D = ||H||_F^2 / ||H||_2^2 of a block (d_v, d_w) (DAG paper, Eq. 7), between 1 and the rank; without units.

    NaN for a zero block and one that is not finite: nothing is raised for numbers.
    """
    s = _svdvals(block.double())
    return float((s / s[0]).square().sum()) if s[0] > 0 else math.nan


def effective_dimension(block: Tensor) -> float:
    """d_eff = ||H||_* / ||H||_2 of a block (d_v, d_w) (DAG paper, Definition 57), D <= d_eff <= sqrt(rank D).

    Without units; NaN as for `stable_rank`.
    """
    s = _svdvals(block.double())
    return float((s / s[0]).sum()) if s[0] > 0 else math.nan


def gn_gap(tensor: Tensor, gauss_newton: Tensor, epsilon: float = 0.0) -> float:
    """||H^T||_F / (||H^GN||_F + epsilon) of the parts (d_v, d_w) of one pair (DAG paper, Eq. 4); NaN when the
    denominator is 0.

    The paper's epsilon of 1e-12 is left out by default: it has the units of the loss, and decides the gap of a network
    whose loss is small.
    """
    bottom = resonance(gauss_newton) + epsilon
    return resonance(tensor) / bottom if bottom > 0 else math.nan


def gn_gap_of_sums(tensor_norms: Iterable[float], gauss_newton_norms: Iterable[float]) -> float:
    """sum ||H^T||_F / sum ||H^GN||_F over pairs: what the tables of the DAG paper report, from norms as `resonance`
    gives them. NaN when the denominator is 0; nothing is raised."""
    total = math.fsum(gauss_newton_norms)
    return math.fsum(tensor_norms) / total if total > 0 else math.nan


def assemble(blocks: Mapping[Pair, Tensor], nodes: Sequence[str]) -> Tensor:
    """The symmetric matrix [H[v,w]] over `nodes`, (sum d_v, sum d_v), from blocks (d_v, d_w) of all ordered pairs.

    Raises KeyError for a pair that has no block.
    """
    return torch.cat([torch.cat([blocks[v, w] for w in nodes], 1) for v in nodes], 0)


def negative_curvature_mass(matrix: Tensor) -> float:
    """m^-(H) = sum of |eigenvalues| below zero of a symmetric matrix (n, n) (DAG paper, Definition 82), in its units.

    Raises torch.linalg.LinAlgError for a matrix that is not finite.
    """
    return float(-torch.linalg.eigvalsh(matrix.double()).clamp_max(0).sum())


def block_metrics(
    blocks: BlockSplit | Mapping[Pair, Tensor],
    gn_blocks: Mapping[Pair, Tensor] | None = None,
    order: Sequence[str] | None = None,
    distance: Callable[[str, str], int] | Mapping[tuple[str, str], int] | None = None,
) -> Columns:
    """Columns v, w, distance, R, C, D, d_eff, sigma1, frob_gn, frob_tensor, gap, status; one row per unordered pair.

    blocks: a BlockSplit, or blocks with gn_blocks (without them, frob_gn, frob_tensor and gap are NaN). order: nodes
    from first to last (default: those of the split, or the blocks' own order); rows run over i <= j. distance: of a
    pair (default |i - j|), for example Dag.distance. gap is Eq. 4 per pair; see gap_by_distance for the tables' ratio.
    status is "" or the reason for the NaN in the row. DAG paper, Section 4 and Appendix G; R and sigma1 in the units of
    the blocks, ratios without. Raises ValueError for nodes in `order` that have no blocks.
    """
    total, gauss_newton, tensor = _parts(blocks, gn_blocks)
    nodes = _order(blocks, order)
    pairs = [(v, w) for i, v in enumerate(nodes) for w in nodes[i:]]
    singular = dict(zip(pairs, _singular_values([total[pair] for pair in pairs]), strict=True))
    norms = {pair: float(s.norm()) if _in_range(float(s.norm())) else _norm(s) for pair, s in singular.items()}
    columns: Columns = {name: [] for name in COLUMNS}
    place = {v: i for i, v in enumerate(nodes)}
    for v, w in pairs:
        scale = math.sqrt(norms[v, v]) * math.sqrt(norms[w, w])
        row: dict[str, Any] = {"v": v, "w": w, "distance": _distance(distance, place, v, w), "R": norms[v, w]}
        row |= _ranks(singular[v, w], norms[v, w], scale, total[v, w].dtype)
        if gauss_newton is not None and tensor is not None:
            row["frob_gn"], row["frob_tensor"] = resonance(gauss_newton[v, w]), resonance(tensor[v, w])
            row["gap"] = row["frob_tensor"] / row["frob_gn"] if row["frob_gn"] > 0 else math.nan
            if math.isnan(row["gap"]):
                row["status"] = row["status"] or "Gauss-Newton block is zero"
        for name, column in columns.items():
            column.append(row.get(name, math.nan))
    return columns


COLUMNS = ("v", "w", "distance", "R", "C", "D", "d_eff", "sigma1", "frob_gn", "frob_tensor", "gap", "status")


def gap_by_distance(columns: Columns) -> dict[int, float]:
    """The tables' GN-gap at each distance: ratio of the sums of frob_tensor and frob_gn over the pairs.

    columns: as `block_metrics` gives them. NaN where the sum of frob_gn is 0. Raises KeyError for other columns.
    """
    rows: dict[int, list[int]] = {}
    for i, d in enumerate(columns["distance"]):
        rows.setdefault(d, []).append(i)
    return {
        d: gn_gap_of_sums([columns["frob_tensor"][i] for i in at], [columns["frob_gn"][i] for i in at])
        for d, at in sorted(rows.items())
    }


def _ranks(s: Tensor, norm: float, scale: float, dtype: torch.dtype) -> dict[str, Any]:
    """C, D, d_eff, sigma1 and status from the singular values. Zero means below rounding of the blocks it is made
    of."""
    if not math.isfinite(norm) or not math.isfinite(scale):
        nothing = dict.fromkeys(("C", "D", "d_eff", "sigma1"), math.nan)
        return {**nothing, "status": "block is not finite"}
    if scale == 0:
        return {
            "C": math.nan,
            "D": math.nan,
            "d_eff": math.nan,
            "sigma1": float(s[0]),
            "status": "diagonal block is zero",
        }
    if norm <= torch.finfo(dtype).eps * scale:
        return {
            "C": norm / scale,
            "D": math.nan,
            "d_eff": math.nan,
            "sigma1": float(s[0]),
            "status": "block is numerically zero",
        }
    unit = s / s[0]
    return {
        "C": norm / scale,
        "D": float(unit.square().sum()),
        "d_eff": float(unit.sum()),
        "sigma1": float(s[0]),
        "status": "",
    }


def _singular_values(blocks: list[Tensor]) -> list[Tensor]:
    """Singular values of each block in float64, blocks of equal shape together."""
    shapes: dict[torch.Size, list[int]] = {}
    for i, block in enumerate(blocks):
        shapes.setdefault(block.shape, []).append(i)
    found: dict[int, Tensor] = {}
    for at in shapes.values():
        stacked = torch.stack([blocks[i] for i in at]).double()
        found |= dict(zip(at, _svdvals(stacked), strict=True))
    return [found[i] for i in range(len(blocks))]


def _svdvals(blocks: Tensor) -> Tensor:
    """Singular values, NaN for a block that is not finite (LAPACK would fail on all of them)."""
    finite = blocks.isfinite().flatten(-2).all(-1)
    if bool(finite.all()):
        return torch.linalg.svdvals(blocks)
    values = torch.linalg.svdvals(torch.where(finite[..., None, None], blocks, 0))
    return torch.where(finite[..., None], values, math.nan)


def _parts(
    blocks: BlockSplit | Mapping[Pair, Tensor], gn_blocks: Mapping[Pair, Tensor] | None
) -> tuple[Mapping[Pair, Tensor], Mapping[Pair, Tensor] | None, Mapping[Pair, Tensor] | None]:
    if isinstance(blocks, BlockSplit):
        return blocks.total, blocks.gauss_newton, blocks.tensor
    if gn_blocks is None:
        return blocks, None, None
    return blocks, gn_blocks, {pair: blocks[pair] - gn for pair, gn in gn_blocks.items()}


def _order(blocks: BlockSplit | Mapping[Pair, Tensor], order: Sequence[str] | None) -> list[str]:
    known = list(blocks.nodes) if isinstance(blocks, BlockSplit) else list(dict.fromkeys(v for v, _ in blocks))
    unknown = [v for v in order or () if v not in known]
    if unknown:
        raise ValueError(f"order names {unknown}, which have no blocks: there are {known}")
    return list(order) if order is not None else known


def _distance(
    distance: Callable[[str, str], int] | Mapping[tuple[str, str], int] | None, place: dict[str, int], v: str, w: str
) -> int:
    if distance is None:
        return abs(place[v] - place[w])
    return distance(v, w) if callable(distance) else distance[v, w]
