"""Metrics of all pairs of measured outputs of a ResNet-18: exact where they can be, and as the
paper estimates them.

Tables: `pairs`, one row per statistics, estimator and pair; `distances`, their averages by
distance; `networks`, loss, accuracy and parameters; `certificate`, one row per statistics;
`history` and `origin` of the training, where there is one.

statistics: of BatchNorm, "running" (as the network has them: at init mean 0 and variance 1, as
published) or "calibrated" (estimated from training images; at init only). estimator: "engine"
(Gauss–Newton part exact by factors, tensor part exact where it is zero, else from probes to a
stated error) or "published" (30 common probes, 20 power steps). The images are the first ones of
the test set.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from typing import Any

import torch
from torch import Tensor, nn

from experiments.certificates import STREAM
from experiments.dag.exp6.settings import Exp6ResNet18
from experiments.dag.protocol.averages import Row, by_column, means, sums
from experiments.dag.protocol.estimates import row_of
from experiments.dag.protocol.points import image_sets, memory_of
from experiments.dag.protocol.probes import part_norms, spectral_norms
from runner.contract import Cell, Context, Table
from runner.contract.records import certificate_row
from runner.curvature import Dag, LayerOperator, graph_metrics, verify
from runner.data.images import ImageData, Split, load_images
from runner.models.network import Network
from runner.training.initial import build
from runner.training.minibatch import evaluate
from runner.training.trained import origin_of, train_images

CERTIFIED = 2
"""Images of the certificate, which takes four gradients of each, one after the other."""
TOGETHER = 10
"""Directions that go through the network at once."""
MEMORY_BUDGET = 4 << 30
"""Bytes that the products with these may take."""


def measure(experiment: Exp6ResNet18, cell: Cell, ctx: Context) -> dict[str, Table]:
    """The network of a cell at its checkpoint, measured."""
    return measure_at(network_at(experiment, cell, ctx), experiment, ctx)


def measure_at(at: AtCheckpoint, experiment: Exp6ResNet18, ctx: Context) -> dict[str, Table]:
    """All tables of one cell."""
    extra: dict[str, Table] = {}
    if at.history:
        extra["history"] = at.history
    if at.origin:
        extra["origin"] = [dict(at.origin)]
    if at.network is None:
        return {"networks": [{"statistics": "running", "status": at.status}], **extra}
    tables: dict[str, list[Row]] = {"networks": [], "pairs": [], "distances": [], "certificate": []}
    for statistics, network in variants(at, experiment.calibration):
        tables["networks"].append({"statistics": statistics, **network_row(network, at, ctx)})
        estimates = by_estimator(network, statistics, at, experiment, ctx)
        for estimator, rows in estimates:
            where = {"statistics": statistics, "estimator": estimator}
            tables["pairs"] += [{**where, **row} for row in rows]
            tables["distances"] += [{**where, **row} for row in by_distance(rows)]
        tables["certificate"].append(certified(network, statistics, at, experiment, ctx))
        ctx.progress(len(tables["networks"]), 2, f"BatchNorm statistics: {statistics}")
    return {**tables, **extra}


def network_row(network: Network, at: AtCheckpoint, ctx: Context) -> Row:
    """Loss and accuracy on the test set of a trained network, and the number of parameters."""
    row: Row = {"test_loss": math.nan, "test_accuracy": math.nan}
    if at.trained:
        evaluation = evaluate(network, at.data.test.to(ctx.device), "cross_entropy")
        row["test_loss"], row["test_accuracy"] = evaluation
    row["parameters"] = network.parameter_count
    row["status"] = "ok" if at.trained else "untrained: no accuracy"
    return row


def certified(
    network: Network, statistics: str, at: AtCheckpoint, experiment: Exp6ResNet18, ctx: Context
) -> Row:
    """The row of `certificate`: products between the measured outputs on the first images. There
    are no blocks."""
    _, x, y = next(image_sets(at.data.test, experiment.metric, ctx.device))
    dag = network.to_dag()
    images = x[:CERTIFIED], y[:CERTIFIED]
    generator = ctx.torch_generator(STREAM)
    certificate = verify(dag, *images, nodes=network.measured, generator=generator)
    return certificate_row(f"products on {CERTIFIED} images", certificate, statistics=statistics)


def variants(at: AtCheckpoint, images: int) -> Iterator[tuple[str, Network]]:
    """(statistics, network): as it is, and calibrated where its BatchNorm has seen no image."""
    assert at.network is not None
    yield "running", at.network
    if identity_of_statistics(at.network):
        yield "calibrated", calibrated(at.network, at.data.train, images)


def by_estimator(
    network: Network, statistics: str, at: AtCheckpoint, experiment: Exp6ResNet18, ctx: Context
) -> Iterator[tuple[str, list[Row]]]:
    """(estimator, rows of `pairs`); the published estimates only with the published statistics."""
    _, x, y = next(image_sets(at.data.test, experiment.metric, ctx.device))
    dag = network.to_dag()
    if experiment.metric.double:
        dag = dag.to(torch.float64)
        x = x.double()
    images = dag, x, y, network.measured
    generator = ctx.torch_generator(f"probes/engine/{statistics}")
    budget = memory_of(experiment.metric)
    yield "engine", engine_rows(*images, experiment.relative_error, budget, generator)
    if statistics == "running":
        generator = ctx.torch_generator("probes/published")
        steps = 0
        if at.trained:
            steps = experiment.power_steps
        yield "published", published_rows(*images, experiment.probes, steps, generator)


def engine_rows(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    nodes: Sequence[str],
    error: float,
    budget: int,
    generator: torch.Generator,
) -> list[Row]:
    """v, w, distance, R, C, D, gn, tensor, R_error, D_error, tensor_error, method, status of every
    pair."""
    metrics = graph_metrics(
        dag, x, y, nodes, relative_error=error, generator=generator, memory_budget=budget
    )
    rows = []
    for (v, w), m in metrics.items():
        row = {
            "v": v,
            "w": w,
            "distance": nodes.index(w) - nodes.index(v),
            "R": m.R.value,
            "C": m.C.value,
            "D": m.D.value,
            "gn": m.gauss_newton.value,
            "tensor": m.tensor.value,
            "R_error": m.R.error,
            "D_error": m.D.error,
            "tensor_error": m.tensor.error,
            "method": m.method,
            "status": m.D.reason or "ok",
        }
        rows.append(row)
    return rows


def published_rows(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    nodes: Sequence[str],
    probes: int,
    steps: int,
    generator: torch.Generator,
) -> list[Row]:
    """The same from common Rademacher probes for H, H^GN and H^T, and power iteration for ‖H‖₂.

    steps: 0 leaves D out, which the paper does not print for untrained networks and which is most
    of the cost.
    """
    pairs = list(combinations_with_replacement(nodes, 2))
    parts = part_norms(dag, x, y, nodes, pairs, probes, generator, together=TOGETHER)
    norms = {pair: part.total.value for pair, part in parts.items()}
    tops = dict.fromkeys(pairs, 0.0)
    zero = "D not estimated"
    if steps:
        module = dag.as_module()
        operator = LayerOperator(
            module, dag.loss, (x, y), nodes, memory_budget=MEMORY_BUDGET, check=False
        )
        tops = spectral_norms(operator, pairs, steps, generator, TOGETHER)
        zero = "zero block"
    rows = []
    for pair, part in parts.items():
        top = tops[pair]
        estimated = {
            "gn": part.gauss_newton.value,
            "tensor": part.tensor.value,
            "R_error": part.total.error,
            "D_error": math.nan,
            "tensor_error": part.tensor.error,
            "method": "probes",
            "status": "ok" if top > 0 else zero,
        }
        rows.append(row_of(pair, nodes, norms, top) | estimated)
    return rows


def by_distance(rows: Sequence[Row]) -> list[Row]:
    """distance, pairs, means of R, C and D over the pairs (of those that have one), sums of gn and
    tensor."""
    found = []
    for d, alike in by_column(rows, "distance"):
        row = {"distance": d, "pairs": len(alike)}
        row |= means(alike, ("R", "C", "D")) | sums(alike, ("gn", "tensor"))
        found.append(row | {"status": "ok"})
    return found


@dataclass(frozen=True)
class AtCheckpoint:
    """A network in evaluation mode with its data. status: "ok", or why there is no network at this
    checkpoint.

    origin, history: columns of the tables of that name. trained: whether it has seen any image.
    """

    network: Network | None
    data: ImageData
    status: str = "ok"
    origin: Mapping[str, str] = field(default_factory=dict)
    history: Mapping[str, list[float]] = field(default_factory=dict)
    trained: bool = True


def network_at(experiment: Exp6ResNet18, cell: Cell, ctx: Context) -> AtCheckpoint:
    """The network of a cell. At init nothing is trained."""
    checkpoint = str(cell.params["checkpoint"])
    settings = experiment.network_settings(cell)
    training = experiment.training
    if checkpoint == "init":
        data = load_images(experiment.dataset, ctx, flat=False)
        origin = origin_of(settings, training, data, ctx.seed)
        network = build(settings, ctx.seed).to(ctx.device).eval()
        return AtCheckpoint(network, data, origin=origin, trained=False)
    trained = train_images(
        settings,
        experiment.dataset,
        training,
        ctx,
        flat=False,
        save_every=1,
        until=checkpoint,
    )
    epochs = training.epochs // 2 if checkpoint == "mid" else training.epochs
    history = {name: column[: epochs + 1] for name, column in trained.training.history.items()}
    data = load_images(experiment.dataset, ctx, flat=False)
    about: dict[str, Any] = {"origin": trained.origin, "history": history}
    if checkpoint not in trained.training.states:
        return AtCheckpoint(None, data, trained.training.status, **about)
    return AtCheckpoint(trained.at(checkpoint), data, **about)


@torch.no_grad()
def calibrated(network: Network, split: Split, images: int) -> Network:
    """A copy whose BatchNorm statistics are those of the first `images` training images, layer by
    layer."""
    copied = copy.deepcopy(network)
    for norm in batch_norms(copied):
        norm.reset_running_stats()
        norm.momentum = None  # the statistics of one batch as they are
    x, _ = split.first(min(images, len(split)))
    copied.train()
    copied(x.to(next(copied.parameters()).device))
    return copied.eval()


def batch_norms(network: Network) -> list[nn.BatchNorm2d]:
    """The BatchNorm layers."""
    return [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]


def identity_of_statistics(network: Network) -> bool:
    """Whether every BatchNorm still has the running mean 0 and variance 1 that it was made with."""
    for norm in batch_norms(network):
        mean = norm.running_mean
        variance = norm.running_var
        if mean is None or variance is None:
            return False
        if not bool((mean == 0).all() and (variance == 1).all()):
            return False
    return True
