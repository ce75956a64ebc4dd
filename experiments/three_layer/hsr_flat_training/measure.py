"""Inputs in three disjoint parts, and the networks that learn them, several trials at once."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.three_layer.hsr_flat_training.methods import Settings, Stepper, columns, trial
from experiments.three_layer.hsr_flat_training.settings import FlatContest
from experiments.three_layer.lanczos import (
    bound_from_probes,
    largest_after,
    largest_eigenvalue,
)
from experiments.three_layer.stochastic_bound import ParameterHessian
from runner.contract import Cell, Context, Table
from runner.data.images import load as load_kind, load_images
from runner.kinds.dataset import DigitsData

Part = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Data:
    """Inputs (N, d) and classes (N,) of three disjoint parts."""

    train: Part
    validation: Part
    test: Part


def load(experiment: FlatContest, ctx: Context) -> Data:
    """Three parts drawn by the seed from the digits, or from the training images of a set of
    images.
    """
    sizes = (experiment.train, experiment.validation, experiment.test)
    generator = ctx.torch_generator("split")
    if isinstance(experiment.dataset, DigitsData):
        x, y = load_kind(experiment.dataset, ctx)
        return Data(*((x[rows], y[rows]) for rows in _parts(len(y), sizes, generator)))
    images = load_images(experiment.dataset, ctx, flat=False).train
    parts = []
    for rows in _parts(len(images), sizes, generator):
        pixels, y = images.batch(rows)
        pooled = F.avg_pool2d(pixels, experiment.pool)
        parts.append((pooled.flatten(1), y))
    return Data(*parts)


def _parts(
    count: int, sizes: tuple[int, int, int], generator: torch.Generator
) -> tuple[Tensor, ...]:
    order = torch.randperm(count, generator=generator)
    return order[: sum(sizes)].split(sizes)


def network(experiment: FlatContest, inputs: int, ctx: Context) -> list[Tensor]:
    """Weight (1, out, in) and bias (1, out) of every layer; Glorot's initial values."""
    generator = ctx.torch_generator("network")
    sizes = [inputs, *experiment.widths, experiment.dataset.classes]
    parameters = []
    for a, b in itertools.pairwise(sizes):
        limit = math.sqrt(6 / (a + b))
        share = torch.rand(1, b, a, generator=generator)
        weight = (2 * share - 1) * limit
        parameters += [weight, torch.zeros(1, b)]
    return [p.requires_grad_() for p in parameters]


def logits(parameters: Sequence[Tensor], x: Tensor) -> Tensor:
    """(K, B, classes) of K networks: linear layers with tanh between, smooth for curvature.

    x: (B, d) for all of them.
    """
    h = x.expand(len(parameters[0]), *x.shape)
    for i in range(0, len(parameters), 2):
        weight = parameters[i].mT
        bias = parameters[i + 1].unsqueeze(1)
        if i:
            h = torch.tanh(h)
        h = torch.baddbmm(bias, h, weight)
    return h


def losses(parameters: Sequence[Tensor], part: Part) -> Tensor:
    """Mean cross-entropy of each network, (K,)."""
    x, y = part
    z = logits(parameters, x)
    count = len(z)
    each = F.cross_entropy(z.flatten(0, 1), y.repeat(count), reduction="none")
    return each.view(count, -1).mean(1)


@torch.no_grad()
def accuracies(parameters: Sequence[Tensor], part: Part) -> Tensor:
    """Share of right classes of each network, (K,)."""
    x, y = part
    right = logits(parameters, x).argmax(2) == y
    return right.double().mean(1)


Row = dict[str, Any]
CURVATURE = ("lambda_max", "lambda_residual", "lambda_sup", "lambda_sup_low", "lambda_sup_high")
MEASURED = ("train_loss", "validation_accuracy", "test_accuracy", *CURVATURE)


def epochs_of(experiment: FlatContest, settings: Settings, budget: str) -> int:
    """Equal steps: the same for all. Equal cost: what `experiment.price` gradients a step buy."""
    if budget == "steps":
        return experiment.epochs
    return max(1, round(experiment.epochs * experiment.price / settings.mean_price))


def look_epochs(total: int, count: int) -> set[int]:
    """`count` epochs evenly spaced on the scale of logarithms, and the beginning."""
    if count:
        return {0, *(round(total ** (i / count)) for i in range(count + 1))}
    return set()


def run(
    experiment: FlatContest, settings: Settings, budget: str, ctx: Context
) -> tuple[list[Row], list[Row]]:
    """Rows of `ends` (one) and of `curves`."""
    data = load(experiment, ctx)
    parameters = network(experiment, data.train[0].shape[1], ctx)
    stepper = Stepper([settings], parameters, ctx.torch_generator("probes"), experiment.memory)
    record = _Record(experiment, epochs_of(experiment, settings, budget), parameters, data, ctx)
    batches = ctx.torch_generator("batches")
    seconds = 0.0
    record.look(0, stepper.price, 0.0)
    for epoch in range(1, record.total + 1):
        began = time.process_time()
        train_epoch(experiment, stepper, data.train, batches, (epoch - 1) / record.total)
        seconds += time.process_time() - began
        record.look(epoch, stepper.price, seconds)
        ctx.progress(epoch, record.total, settings.method)
    spent = {"epoch": record.total, "gradients": stepper.price, "cpu_seconds": seconds}
    end = {"place": 0, "budget": budget, **columns(settings), **spent, **record.end()}
    return [end], record.curve


def train_epoch(
    experiment: FlatContest, stepper: Stepper, data: Part, batches: torch.Generator, progress: float
) -> None:
    """One pass over the training part."""
    x, y = data
    for rows in torch.randperm(len(y), generator=batches).split(experiment.batch):
        part = (x[rows], y[rows])

        def loss(part: Part = part) -> Tensor:
            return losses(stepper.parameters, part)

        stepper.step(loss, progress)


class _Record:
    """What is looked at during a training of `total` epochs and at its end."""

    def __init__(
        self,
        experiment: FlatContest,
        total: int,
        parameters: Sequence[Tensor],
        data: Data,
        ctx: Context,
    ) -> None:
        self.experiment = experiment
        self.total = total
        self.parameters = parameters
        self.data = data
        self.ctx = ctx
        self.looks = look_epochs(total, experiment.looks)
        self.accuracy: dict[int, tuple[float, float]] = {}
        self.curve: list[Row] = []

    def look(self, epoch: int, price: float, seconds: float) -> None:
        """Accuracies in the last epochs, and rows of the curve at some."""
        if epoch in self.looks or self.total - epoch < self.experiment.last_epochs:
            validation = accuracies(self.parameters, self.data.validation)
            test = accuracies(self.parameters, self.data.test)
            self.accuracy[epoch] = (float(validation), float(test))
        if epoch in self.looks:
            spent = {"epoch": epoch, "gradients": price, "cpu_seconds": seconds}
            self.curve.append({"place": 0, **spent, **self._point(epoch)})

    def _differentiable(self) -> tuple[list[Tensor], Tensor]:
        """A copy of the parameters and its training loss with graph."""
        copies = [p.detach().clone().requires_grad_() for p in self.parameters]
        return copies, losses(copies, self.data.train)[0]

    def _point(self, epoch: int) -> Row:
        """Of the curve; λ₁ from a few steps of Lanczos, near for an eigenvalue that stands
        apart."""
        parameters, loss = self._differentiable()
        generator = self.ctx.torch_generator(f"look/{epoch}")
        largest = math.nan
        if torch.isfinite(loss):
            operator = ParameterHessian(loss, parameters)
            largest = largest_after(operator, self.experiment.look_steps, generator)
        validation, test = self.accuracy[epoch]
        measured = {"validation_accuracy": validation, "test_accuracy": test, "lambda_max": largest}
        return {"train_loss": float(loss.detach()), **measured}

    def end(self) -> Row:
        """Accuracies are means over the last epochs, loss and curvature are those of the last
        point.
        """
        parameters, loss = self._differentiable()
        finite = [bool(torch.isfinite(tensor).all()) for tensor in (loss, *parameters)]
        if not all(finite):
            return {**dict.fromkeys(MEASURED, math.nan), "status": "diverged"}
        experiment = self.experiment
        operator = ParameterHessian(loss, parameters)
        generator = self.ctx.torch_generator("end")
        top = largest_eigenvalue(operator, experiment.tolerance, generator)
        bound = bound_from_probes(operator, experiment.bound_probes, generator)
        first = max(0, self.total - experiment.last_epochs + 1)
        last = [self.accuracy[epoch] for epoch in range(first, self.total + 1)]
        validation, test = (math.fsum(shares) / len(last) for shares in zip(*last, strict=True))
        curvature = (top.value, top.residual, *bound)
        measured = (float(loss.detach()), validation, test, *curvature)
        row: Row = dict(zip(MEASURED, measured, strict=True))
        row["status"] = "λ₁ has not converged"
        if top.converged:
            row["status"] = "ok"
        return row


def measure_contest(experiment: FlatContest, cell: Cell, ctx: Context) -> dict[str, Table]:
    """One chosen setting of a method at one budget."""
    settings = trial(str(cell.params["method"]), int(cell.params["trial"]))
    ends, curves = run(experiment, settings, str(cell.params["budget"]), ctx)
    return {"ends": ends, "curves": curves}
