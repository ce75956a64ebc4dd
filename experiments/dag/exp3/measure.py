"""The exact Gauss–Newton gap of a trained network, its estimates from common probes, and the error
of these in theory.

`measure` draws the estimates through products with the network, `measure_stochastic` on exact
blocks, which costs less and does the same arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations_with_replacement, product

import torch
from torch import Tensor

from experiments.certificates import of_blocks
from experiments.dag.exp3.settings import Exp3GnGap, Exp3Stochastic
from experiments.dag.protocol.estimates import rademacher
from experiments.dag.protocol.measure import blocks_of, measure_trained
from experiments.dag.protocol.points import on_images, on_papers_images, stream_of
from experiments.dag.protocol.probes import PartNorms, part_norms
from runner.contract import Cell, Context, Table
from runner.curvature import BlockSplit
from runner.curvature.graphs.block_metrics import resonance
from runner.kinds.metric import InterLayerMetric
from runner.training import CHECKPOINTS
from runner.training.trained import Trained

Pair = tuple[str, str]
PARTS = {"tensor": 1.0, "gauss_newton": -1.0}
"""Parts of a block, with the sign of their norm in the logarithm of the gap."""
ZERO = "no discrepancy: the exact gap is 0"


def gn_gap_of_sums(tensor_norms: Iterable[float], gauss_newton_norms: Iterable[float]) -> float:
    """sum ||H^T||_F / sum ||H^GN||_F over pairs: what the tables of the DAG paper report, from
    norms as `resonance` gives them. NaN when the denominator is 0; nothing is raised."""
    total = math.fsum(gauss_newton_norms)
    if total > 0:
        return math.fsum(tensor_norms) / total
    return math.nan


def measure(experiment: Exp3GnGap, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Train the network of a cell and measure it; table `stochastic` where probes are drawn."""
    trained = on_images(experiment, cell, ctx)
    tables = measure_trained(trained, experiment.metric, ctx)
    if experiment.probes and experiment.probe_draws:
        counts = experiment.probes, experiment.probe_draws
        tables["stochastic"] = compare_gaps(trained, experiment.metric, *counts, ctx)
    return tables


def compare_gaps(
    trained: Trained, metric: InterLayerMetric, probes: Sequence[int], draws: int, ctx: Context
) -> Table:
    """Columns checkpoint, probes, draw, gap_exact, gap_stochastic, discrepancy_percent, status, on
    the first images.

    Both gaps are ratios of sums over all pairs. Each draw takes new Rademacher probes, the same
    ones for H, H^GN and H^T. discrepancy_percent = 100 (stochastic/exact − 1); NaN where the exact
    gap is 0.
    """
    rows = []
    for at in on_papers_images(trained, metric):
        nodes = at.network.measured
        exact = exact_gap(blocks_of(at.dag, nodes, at.x, at.y, metric), nodes)
        generator = ctx.torch_generator(stream_of(at))
        for count, draw in product(probes, range(draws)):
            pairs = _pairs(nodes)
            norms = part_norms(at.dag, at.x, at.y, nodes, pairs, count, generator, stream="shared")
            gap = gap_of_norms(norms.values())
            row = {
                "checkpoint": at.checkpoint,
                "probes": count,
                "draw": draw,
                "gap_exact": exact,
                "gap_stochastic": gap,
                "discrepancy_percent": math.nan,
                "status": ZERO,
            }
            if exact > 0:
                row |= {"discrepancy_percent": 100 * (gap / exact - 1), "status": "ok"}
            rows.append(row)
    return rows


def gap_of_norms(norms: Iterable[PartNorms]) -> float:
    """The gap of estimated norms of the parts of all pairs."""
    pairs = list(norms)
    tensor = [pair.tensor.value for pair in pairs]
    gauss_newton = [pair.gauss_newton.value for pair in pairs]
    return gn_gap_of_sums(tensor, gauss_newton)


def measure_stochastic(experiment: Exp3Stochastic, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Train the network of a cell and compare estimates of its gap with the exact one."""
    trained = on_images(experiment, cell, ctx)
    tables = compare(trained, experiment, str(cell.params["activation"]), ctx)
    return {**tables, **trained.origin_table()}


def compare(
    trained: Trained, experiment: Exp3Stochastic, activation: str, ctx: Context
) -> dict[str, Table]:
    """Tables `draws` (checkpoint, probes, draw, gap_exact, gap_stochastic, status) and `predicted`
    (checkpoint, probes, percent: relative standard deviation of one estimate by `predicted_error`),
    on the papers' images, and `certificate` of the exact blocks.

    Every draw has probes of its own, independent of those of other activations, checkpoints and
    numbers of probes.
    """
    rows = []
    predicted = []
    certificate = []
    for at in on_papers_images(trained, experiment.metric):
        checkpoint = at.checkpoint
        nodes = at.network.measured
        blocks = blocks_of(at.dag, nodes, at.x, at.y, experiment.metric)
        certificate += of_blocks(at.dag, at.x, at.y, blocks, ctx, checkpoint=checkpoint)
        exact = exact_gap(blocks, nodes)
        status = "ok" if exact > 0 else ZERO
        for count in experiment.probes:
            generator = ctx.torch_generator(f"probes/{activation}/{checkpoint}/{count}")
            where = {"checkpoint": checkpoint, "probes": count}
            for draw in range(experiment.draws):
                row = {**where, "draw": draw, "gap_exact": exact}
                row["gap_stochastic"] = estimate(blocks, nodes, count, generator)
                rows.append(row | {"status": status})
            percent = math.nan
            if exact > 0:
                percent = 100 * predicted_error(blocks, nodes, count)
            predicted.append({**where, "percent": percent, "status": status})
        ctx.progress(CHECKPOINTS.index(checkpoint) + 1, len(CHECKPOINTS), checkpoint)
    return {"draws": rows, "predicted": predicted, "certificate": certificate}


def part_of(blocks: BlockSplit, part: str) -> Mapping[Pair, Tensor]:
    """The blocks of one of `PARTS`."""
    if part == "tensor":
        return blocks.tensor
    return blocks.gauss_newton


def norms_of(blocks: BlockSplit, nodes: Sequence[str], part: str) -> list[float]:
    """Frobenius norms of a part of all pairs v <= w."""
    return [resonance(part_of(blocks, part)[pair]) for pair in _pairs(nodes)]


def exact_gap(blocks: BlockSplit, nodes: Sequence[str]) -> float:
    """Σ‖H^T‖_F / Σ‖H^GN‖_F over all pairs v <= w."""
    tensor = norms_of(blocks, nodes, "tensor")
    return gn_gap_of_sums(tensor, norms_of(blocks, nodes, "gauss_newton"))


def estimate(
    blocks: BlockSplit, nodes: Sequence[str], probes: int, generator: torch.Generator
) -> float:
    """Σ‖H^T‖_F / Σ‖H^GN‖_F over all pairs v <= w with ‖A‖_F² = mean |A z_k|², one set of z_k on
    each w for both parts.

    The same sums as `experiments.dag.protocol.probes.part_norms` has from products through the
    network.
    """
    sums = dict.fromkeys(PARTS, 0.0)
    for w, sources in _targets(nodes):
        last = blocks.tensor[w, w]
        z = rademacher((probes, last.shape[1]), last.dtype, generator).to(last.device)
        for part in sums:
            pairs = [part_of(blocks, part)[v, w] for v in sources]
            products = z @ torch.cat(pairs).mT
            images = products.double().square().split([len(pair) for pair in pairs], 1)
            means = [float(image.sum(1).mean()) for image in images]
            sums[part] += math.fsum(math.sqrt(mean) for mean in means)
    return gn_gap_of_sums([sums["tensor"]], [sums["gauss_newton"]])


def predicted_error(blocks: BlockSplit, nodes: Sequence[str], probes: int) -> float:
    """Relative standard deviation of `estimate`, to first order in 1/√probes.

    zᵀAz has variance 2(‖A‖_F² − Σ A_ii²) for symmetric A and Rademacher z. The logarithm of the gap
    is, to first order, Σ_w zᵀM_w z with M_w = Σ_v TᵀT/(2 ‖T‖ Σ‖T‖) − GᵀG/(2 ‖G‖ Σ‖G‖), T and G the
    parts of H[v,w], the inner sums over all pairs: so the variance is Σ_w 2(‖M_w‖_F² − Σ_i
    (M_w)_ii²)/probes.
    """
    totals = {part: math.fsum(norms_of(blocks, nodes, part)) for part in PARTS}
    variance = 0.0
    for w, sources in _targets(nodes):
        last = blocks.tensor[w, w]
        size = last.shape[1]
        m = torch.zeros(size, size, dtype=torch.float64, device=last.device)
        terms = product(sources, PARTS.items())
        for v, (part, sign) in terms:
            block = part_of(blocks, part)[v, w].double()
            norm = resonance(block)
            if norm > 0:
                scale = 2 * norm * totals[part]
                m += sign * (block.mT @ block) / scale
        off_diagonal = m.square().sum() - m.diagonal().square().sum()
        variance += 2 * float(off_diagonal) / probes
    return math.sqrt(variance)


def _pairs(nodes: Sequence[str]) -> list[Pair]:
    return list(combinations_with_replacement(nodes, 2))


def _targets(nodes: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """(w, all v of the pairs (v, w)), in order."""
    for i, w in enumerate(nodes):
        yield w, nodes[: i + 1]
