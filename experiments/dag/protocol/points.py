"""A trained network at init, mid and final on several sets of images: what the inter-layer
experiments measure.

Set 0 is the papers': the first B test images. Sets 1 … k are random, the same for every training
seed, so that the variance between seeds and between images can be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.dag.protocol.averages import Row
from experiments.dag.protocol.inter_layer import InterLayer
from runner.contract import Cell, Context, Table
from runner.contract.experiment import torch_generator
from runner.curvature import Dag
from runner.data.images import Split
from runner.kinds.metric import InterLayerMetric
from runner.models.network import Network
from runner.training import CHECKPOINTS
from runner.training.trained import Trained, train_images, untrained_images

IMAGE_SEED = 0
"""Seed of the random sets of images: one for all trainings."""


def on_images(experiment: InterLayer, cell: Cell, ctx: Context) -> Trained:
    """The network of a cell, trained, or as it starts where the experiment's field `untrained` is
    true."""
    make = untrained_images if getattr(experiment, "untrained", False) else train_images
    return make(experiment.network_settings(cell), experiment.dataset, experiment.training, ctx)


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
    def where(self) -> Row:
        """The columns that name the point."""
        return {"checkpoint": self.checkpoint, "images": self.images}

    @property
    def first(self) -> bool:
        """Whether these are the papers' images."""
        return self.images == 0


def stream_of(at: Point) -> str:
    """Name of the random stream of the probes at a point."""
    return f"probes/{at.checkpoint}"


def point(
    trained: Trained, metric: InterLayerMetric, checkpoint: str, images: int, x: Tensor, y: Tensor
) -> Point:
    """The network of a training at a checkpoint, on one set of images."""
    network = trained.at(checkpoint)
    dag = network.to_dag(trained.loss)
    if metric.double:
        dag = dag.to(torch.float64)
        x = x.double()
    return Point(trained, checkpoint, images, network, dag, x, y)


def on_papers_images(trained: Trained, metric: InterLayerMetric) -> Iterator[Point]:
    """The network of a training at every checkpoint that it reached, on the papers' images."""
    _, x, y = next(image_sets(trained.data.test, metric, trained.device))
    for checkpoint in CHECKPOINTS:
        if checkpoint in trained.training.states:
            yield point(trained, metric, checkpoint, 0, x, y)


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
    reached = trained.training.states
    if trained.training.status == "ok":  # untrained networks have init alone
        checkpoints = [checkpoint for checkpoint in checkpoints if checkpoint in reached]
    tables: dict[str, list[Row]] = {}
    sets = list(image_sets(trained.data.test, metric, trained.device))
    steps = [(checkpoint, *images) for checkpoint in checkpoints for images in sets]
    numbered = enumerate(steps)
    for done, (checkpoint, number, x, y) in numbered:
        if checkpoint in reached:
            found = read(point(trained, metric, checkpoint, number, x, y))
            ctx.progress(done + 1, len(steps), f"{checkpoint}, image set {number}")
        elif number == 0:
            lost = {"checkpoint": checkpoint, "images": number, "status": trained.training.status}
            found = {"networks": [lost]}
        else:
            continue
        for name, rows in found.items():
            tables.setdefault(name, []).extend(rows)
    measured: dict[str, Table] = {**tables}
    if set(checkpoints) != {"init"}:
        measured["history"] = trained.training.history
    return measured | trained.origin_table()


def memory_of(metric: InterLayerMetric) -> int:
    """Bytes that blocks may take at a time."""
    return int(metric.memory_gib * 2**30)
