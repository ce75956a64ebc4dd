"""Blocks, their metrics and their averages, of a trained network at init, mid and final on several
sets of images.

Tables (long format; cell parameters and seed are added by the runner):

- `networks`: one row per checkpoint and set of images: rho and both Lyapunov exponents, mean
  squared second derivative of the activations, loss and accuracy on the whole test set.
- `distances`: one row per checkpoint, set of images and distance: averages over the pairs at that
  distance.
- `pairs`: one row per checkpoint and pair of nodes, on the first set of images.
- `history`: one row per epoch.
- `certificate`: one row per checkpoint: the blocks on the papers' images against finite differences
  of gradients, and at the last checkpoint those of the Gauss-Newton part.
- `origin`: which streams made network and data order, and in what order the records are
  (`Trained.origin_table`).

Set 0 is the papers': the first B test images. Sets 1 … k are random, the same for every training
seed, so that the variance between seeds and between images can be told apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments.certificates import of_blocks
from experiments.dag.protocol.dynamics import (
    lyapunov_exponents,
    lyapunov_log_norm,
    mean_spectral_norms,
)
from experiments.dag.protocol.inter_layer import InterLayer
from experiments.dag.protocol.training import Trained, on_images
from runner.contract import Cell, Context, Table
from runner.contract.experiment import torch_generator
from runner.curvature import BlockSplit, Dag, exact_blocks, split_blocks
from runner.curvature.metrics.blocks import (
    COLUMNS,
    Columns,
    block_jacobians,
    block_metrics,
)
from runner.data.images import Split
from runner.kinds.metric import InterLayerMetric
from runner.models.network import Block, Network
from runner.training import CHECKPOINTS

Row = dict[str, Any]
Distance = Callable[[str, str], int | None]
"""Distance of two nodes, None for pairs that stay out of the averages."""
EXAMPLES_AT_ONCE = 8
"""Examples whose own blocks are held at the same time."""
IMAGE_SEED = 0
"""Seed of the random sets of images: one for all trainings."""


def image_sets(
    test: Split, metric: InterLayerMetric, device: str = "cpu"
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(number, inputs, targets) of every set of `metric.examples` test images, on `device`."""
    for number in range(metric.subsamples + 1):
        if number == 0 and metric.subsample == "first":
            x, y = test.first(metric.examples)
        else:
            x, y = test.random(metric.examples, torch_generator(IMAGE_SEED, f"images/{number}"))
        yield number, x.to(device), y.to(device)


@dataclass(frozen=True)
class Point:
    """A trained network at one checkpoint, on one set of images; in float64 where the metric asks
    for it."""

    trained: Trained
    checkpoint: str
    images: int
    network: Network
    dag: Dag
    x: Tensor
    y: Tensor

    @property
    def where(self) -> dict[str, Any]:
        """The columns that name the point."""
        return {"checkpoint": self.checkpoint, "images": self.images}

    @property
    def first(self) -> bool:
        """Whether these are the papers' images."""
        return self.images == 0


def point(
    trained: Trained, metric: InterLayerMetric, checkpoint: str, images: int, x: Tensor, y: Tensor
) -> Point:
    """The network of a training at a checkpoint, on one set of images."""
    network = trained.at(checkpoint)
    dag = network.to_dag(trained.loss)
    if metric.double:
        dag, x = dag.to(torch.float64), x.double()
    return Point(trained, checkpoint, images, network, dag, x, y)


def on_papers_images(trained: Trained, metric: InterLayerMetric) -> Iterator[Point]:
    """The network of a training at every checkpoint that it reached, on the papers' images."""
    _, x, y = next(image_sets(trained.data.test, metric, trained.device))
    return (point(trained, metric, c, 0, x, y) for c in CHECKPOINTS if c in trained.training.states)


def at_every_point(
    trained: Trained,
    metric: InterLayerMetric,
    ctx: Context,
    read: Callable[[Point], Mapping[str, list[Row]]],
    checkpoints: Sequence[str] = CHECKPOINTS,
) -> dict[str, Table]:
    """Tables of one training: the rows that `read` makes at every checkpoint and set of images, and
    `history`.

    A checkpoint that the training did not reach gives one row with the reason in `networks`; init
    alone has no `history`.
    """
    if trained.training.status == "ok":  # untrained networks have init alone
        checkpoints = [c for c in checkpoints if c in trained.training.states]
    tables: dict[str, list[Row]] = {}
    sets = list(image_sets(trained.data.test, metric, trained.device))
    steps = [(checkpoint, *images) for checkpoint in checkpoints for images in sets]
    for done, (checkpoint, number, x, y) in enumerate(steps):
        if checkpoint not in trained.training.states:
            if number == 0:
                lost = {
                    "checkpoint": checkpoint,
                    "images": number,
                    "status": trained.training.status,
                }
                tables.setdefault("networks", []).append(lost)
            continue
        for name, rows in read(point(trained, metric, checkpoint, number, x, y)).items():
            tables.setdefault(name, []).extend(rows)
        ctx.progress(done + 1, len(steps), f"{checkpoint}, image set {number}")
    if set(checkpoints) == {"init"}:
        return {**tables, **trained.origin_table()}
    return {**tables, "history": trained.training.history, **trained.origin_table()}


def measure(experiment: InterLayer, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Train the network of a cell and measure it."""
    trained = on_images(experiment, cell, ctx)
    return measure_trained(trained, experiment.metric, ctx)


def measure_trained(
    trained: Trained, metric: InterLayerMetric, ctx: Context, distance: Distance | None = None
) -> dict[str, Table]:
    """All tables of one training. distance: default |i − j| in the order of the measured nodes."""

    def read(at: Point) -> dict[str, list[Row]]:
        blocks = blocks_of(at.dag, at.network.measured, at.x, at.y, metric)
        columns = metrics_of(blocks, at.network.measured, metric, distance)
        return {
            "networks": [{**at.where, **network_row(at), "status": "ok"}],
            "certificate": certificate_rows(at, blocks, ctx),
            "pairs": first_pairs(at, columns, metric),
            "distances": [{**at.where, **row} for row in by_distance(columns)],
        }

    return at_every_point(trained, metric, ctx, read)


def first_pairs(at: Point, columns: Columns, metric: InterLayerMetric) -> list[Row]:
    """Rows of `pairs` on the papers' images, where the columns also get R_examples; none on other
    images."""
    if not at.first:
        return []
    columns["R_examples"] = example_norms(at.dag, at.network.measured, at.x, at.y, metric)
    return [{"checkpoint": at.checkpoint, **row} for row in pair_rows(columns)]


def certificate_rows(at: Point, blocks: BlockSplit, ctx: Context) -> list[Row]:
    """Rows of `certificate` on the papers' images: of the blocks, and of their Gauss-Newton part
    where training ended; none on other images."""
    if not at.first:
        return []
    ended = at.checkpoint == [c for c in CHECKPOINTS if c in at.trained.training.states][-1]
    return of_blocks(
        at.dag, at.x, at.y, blocks if ended else dict(blocks.total), ctx, checkpoint=at.checkpoint
    )


def blocks_of(
    dag: Dag, nodes: tuple[str, ...], x: Tensor, y: Tensor, metric: InterLayerMetric
) -> BlockSplit:
    """The batch-mean blocks of every pair of nodes, within the metric's memory."""
    return split_blocks(dag, x, y, nodes, memory_budget=int(metric.memory_gib * 2**30))


def metrics_of(
    blocks: BlockSplit,
    nodes: tuple[str, ...],
    metric: InterLayerMetric,
    distance: Distance | None = None,
) -> Columns:
    """Metrics of the blocks of every pair (metrics.inter_layer.block_metrics); distance −1 for
    None."""

    def number(v: str, w: str) -> int:
        assert distance is not None
        found = distance(v, w)
        return -1 if found is None else found

    columns = block_metrics(blocks, order=nodes, distance=None if distance is None else number)
    return columns | metric.columns(blocks, list(zip(columns["v"], columns["w"], strict=True)))


def own(columns: Columns) -> list[str]:
    """Names of the columns that the metric's kind added to those of block_metrics."""
    return [name for name in columns if name not in (*COLUMNS, "R_examples")]


def by_distance(columns: Columns) -> list[dict[str, Any]]:
    """Averages over the pairs at each distance.

    R, C, D: means over the pairs (D over those that have one). gn, tensor: sums of ‖H^GN‖_F and
    ‖H^T‖_F over the pairs, whose ratio is the GN-gap of the papers' tables. On the papers' images
    (where the columns have R_examples) also gap_of_pairs: mean of Eq. 4 over the pairs; R_examples:
    mean over pairs and examples of the norm of one example's block, as Remark 38 writes R (the
    tables hold the norm of the mean block).
    """
    rows = []
    for d in sorted({d for d in columns["distance"] if d >= 0}):
        at = [i for i, found in enumerate(columns["distance"]) if found == d]
        row: dict[str, Any] = {"distance": d, "pairs": len(at)}
        row |= {
            name: mean_of(columns[name][i] for i in at) for name in ("R", "C", "D", *own(columns))
        }
        row |= {"gn": math.fsum(columns["frob_gn"][i] for i in at)}
        row |= {"tensor": math.fsum(columns["frob_tensor"][i] for i in at)}
        if "R_examples" in columns:
            row["gap_of_pairs"] = mean_of(columns["gap"][i] for i in at)
            row["R_examples"] = mean_of(columns["R_examples"][i] for i in at)
        lacking = sum(math.isnan(columns["D"][i]) for i in at)
        rows.append(
            {
                **row,
                "status": "ok" if lacking == 0 else f"no D for {lacking} pairs: numerically zero",
            }
        )
    return rows


def pair_rows(columns: Columns) -> list[dict[str, Any]]:
    """The columns of block_metrics that cannot be had from the others, one row per pair."""
    names = ("v", "w", "distance", "R", "C", "D", "d_eff", "frob_gn", "frob_tensor", *own(columns))
    return [
        {**{name: columns[name][i] for name in names}, "status": columns["status"][i] or "ok"}
        for i in range(len(columns["v"]))
    ]


def example_norms(
    dag: Dag, nodes: tuple[str, ...], x: Tensor, y: Tensor, metric: InterLayerMetric
) -> list[float]:
    """Mean over the examples of ‖H[v,w]‖_F of each example's own block, in the order of the rows of
    block_metrics."""
    pairs = [(v, w) for i, v in enumerate(nodes) for w in nodes[i:]]
    sums = dict.fromkeys(pairs, 0.0)
    budget = int(metric.memory_gib * 2**30)
    for start in range(0, len(x), EXAMPLES_AT_ONCE):
        part = slice(start, start + EXAMPLES_AT_ONCE)
        blocks = exact_blocks(
            dag, x[part], y[part], nodes, per_example=True, memory_budget=budget, check=False
        )
        for pair in pairs:
            sums[pair] += float(torch.linalg.matrix_norm(blocks[pair]).sum())
    return [total / len(x) for total in sums.values()]


def network_row(at: Point) -> dict[str, float]:
    """rho, lyapunov_1 (QR), lyapunov_log_norm (Eq. 8) over the chain of measured nodes; curvature
    of the activations; test_loss and test_accuracy on the whole test set at the checkpoint."""
    return {
        **chain_dynamics(at.dag, at.network.measured, at.x),
        "sigma_pp_squared": activation_curvature(at.network, at.x),
        **scores_at(at.trained, at.checkpoint),
    }


def spectral_norms_of(jacobians: dict[tuple[str, str], Tensor]) -> dict[str, float]:
    """rho (Table 2) and rho_mean: the largest and the mean over the blocks of the batch mean of
    σ_max(J). As published, the edges are those into the blocks, projection and head left out.

    The authors store both. Cells measured before this column existed lack rho_mean.
    """
    norms = mean_spectral_norms(jacobians)
    return {"rho": max(norms.values()), "rho_mean": math.fsum(norms.values()) / len(norms)}


def scores_at(
    trained: Trained, checkpoint: str, names: Sequence[str] = ("test_loss", "test_accuracy")
) -> dict[str, float]:
    """Columns of the history at a checkpoint (init, half of the epochs, the last), of the whole
    test set."""
    history = trained.training.history
    epoch = {"init": 0, "mid": int(history["epoch"][-1]) // 2, "final": -1}[checkpoint]
    return {name: history[name][epoch] for name in names}


def chain_dynamics(dag: Dag, nodes: tuple[str, ...], x: Tensor) -> dict[str, float]:
    """rho and the largest Lyapunov exponents of consecutive nodes; NaN where the nodes are no
    chain."""
    chain = [dag.nodes[name].parents for name in nodes]
    if any(len(parents) != 1 for parents in chain) or any(
        p[0] != v for p, v in zip(chain[1:], nodes, strict=False)
    ):
        return {
            "rho": math.nan,
            "rho_mean": math.nan,
            "lyapunov_1": math.nan,
            "lyapunov_log_norm": math.nan,
        }
    found = block_jacobians(dag, x, nodes)
    steps = [found[name, parents[0]] for name, parents in zip(nodes, chain, strict=True)]
    return {
        **spectral_norms_of(found),
        "lyapunov_1": float(lyapunov_exponents(steps)[0]),
        "lyapunov_log_norm": lyapunov_log_norm(steps),
    }


def activation_curvature(network: Network, x: Tensor) -> float:
    """E[σ''(z)²] over the pre-activations of projection and blocks and over the examples (DAG
    paper, Section 5.3).

    Without the projection the printed values are missed (GELU 0.627 instead of 0.618). 0 for
    piecewise-linear activations; NaN when no node is a Block with an activation.
    """
    values = {"input": x.to(next(network.parameters()).dtype)}
    with torch.no_grad():
        values |= network.activations(values["input"])
    means = []
    for stage in network.graph():
        if isinstance(stage.module, Block) and stage.module.activation_name != "linear":
            with torch.no_grad():
                z = stage.module.pre_activation(*(values[p] for p in stage.parents))
            means.append(float(second_derivative(stage.module.act, z).square().mean()))
    return mean_of(means)


def second_derivative(act: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """σ''(z), elementwise, by differentiating twice; zero where σ is piecewise linear."""
    z = z.detach().requires_grad_()
    with torch.enable_grad():
        (first,) = torch.autograd.grad(act(z).sum(), z, create_graph=True)
        if not first.requires_grad:
            return torch.zeros_like(z)
        (second,) = torch.autograd.grad(first.sum(), z, allow_unused=True)
    return torch.zeros_like(z) if second is None else second


def mean_of(values: Iterable[float]) -> float:
    """Mean of the values that are not NaN; NaN where there are none."""
    finite = [v for v in values if not math.isnan(v)]
    return math.fsum(finite) / len(finite) if finite else math.nan
