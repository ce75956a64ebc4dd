"""One training of one method with one choice of settings, and what it came to."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.hsr.flat_training.methods import Settings, Stepper, columns, trial
from runner.contract.experiment import Context, Table
from runner.curvature.matrix_free.estimators import lanczos_extremes
from runner.training.flatness.stochastic import ParameterHessian, stochastic_bound

if TYPE_CHECKING:
    from experiments.hsr.flat_training import FlatTraining

BOUND_PROBES = 32  # of λ_sup at the end
POOL = 4  # images of 32 × 32 are averaged over squares of this side

Part = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Data:
    """Inputs (N, d) and classes (N,) of three disjoint parts."""

    train: Part
    validation: Part
    test: Part


def load(experiment: FlatTraining, ctx: Context) -> Data:
    """The data set, split at random by the seed."""
    x, y = _digits() if experiment.data == "digits" else _pooled_images()
    sizes = (experiment.train, experiment.validation, experiment.test)
    order = torch.randperm(len(y), generator=ctx.torch_generator("split"))[: sum(sizes)]
    train, validation, test = order.split(sizes)
    return Data((x[train], y[train]), (x[validation], y[validation]), (x[test], y[test]))


def _digits() -> Part:
    """scikit-learn's 1,797 digits of 8 × 8 pixels in [0, 1]."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    return torch.tensor(raw.data, dtype=torch.float32) / 16, torch.tensor(raw.target)


def _pooled_images() -> Part:
    """CIFAR-10's training images, averaged to 8 × 8 pixels of three colours, in [−1, 1]."""
    from runner.data import cifar

    part = cifar.load(cifar.CifarData(test=1)).train
    train = part.as_images(part.mean, part.std, flat=False)
    pooled = [F.avg_pool2d(train.normalised(part), POOL).flatten(1) for part in train.inputs.split(5000)]
    return torch.cat(pooled), train.targets


def network(experiment: FlatTraining, inputs: int, ctx: Context) -> torch.nn.Sequential:
    """Linear layers with tanh between, smooth so that curvature is defined everywhere; Glorot's initial values."""
    generator = ctx.torch_generator("network")
    sizes, layers = [inputs, *experiment.widths, 10], []
    for a, b in itertools.pairwise(sizes):
        linear = torch.nn.Linear(a, b)
        with torch.no_grad():
            limit = math.sqrt(6 / (a + b))
            linear.weight.copy_((2 * torch.rand(b, a, generator=generator) - 1) * limit)
            linear.bias.zero_()
        layers += [linear, torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


def epochs_of(experiment: FlatTraining, settings: Settings, budget: str) -> int:
    """Equal steps: the same epochs for all. Equal cost: as many as `experiment.price` gradients a step buy."""
    if budget == "steps":
        return experiment.epochs
    return max(1, round(experiment.epochs * experiment.price / settings.mean_price))


def measure(experiment: FlatTraining, method: str, number: int, budget: str, ctx: Context) -> dict[str, Table]:
    """Train, then say where it ended; the curve is kept for comparisons at equal training loss."""
    settings = trial(method, number)
    data = load(experiment, ctx)
    model = network(experiment, data.train[0].shape[1], ctx)
    stepper = Stepper(settings, model, ctx.torch_generator("probes"), experiment.memory)
    epochs = epochs_of(experiment, settings, budget)
    record = _Record(experiment, model, data, ctx)
    seconds, status = 0.0, "ok"
    every = max(1, epochs // experiment.looks)
    batches = ctx.torch_generator("batches")
    record.look(0, stepper.price, 0.0)
    for epoch in range(1, epochs + 1):
        began = time.process_time()
        finite = _epoch(experiment, stepper, data.train, batches, (epoch - 1) / epochs)
        seconds += time.process_time() - began
        if not finite:
            status = f"diverged in epoch {epoch}"
            break
        if epoch % every == 0 or epoch == epochs:
            record.look(epoch, stepper.price, seconds)
        ctx.progress(epoch, epochs, f"{method} {number}")
    constants = {**columns(settings), "epochs": epochs}
    end = record.end(status, stepper.price, seconds) if status == "ok" else record.lost(status, stepper.price, seconds)
    return {"curves": record.curve, "ends": {k: [v] for k, v in (constants | end).items()}}


def _epoch(experiment: FlatTraining, stepper: Stepper, data: Part, batches: torch.Generator, progress: float) -> bool:
    """One pass over the training part; False when a parameter is no longer finite."""
    x, y = data
    for rows in torch.randperm(len(y), generator=batches).split(experiment.batch):

        def loss(rows: Tensor = rows) -> Tensor:
            return F.cross_entropy(stepper.model(x[rows]), y[rows])

        gradients = stepper.gradients(loss, progress)
        with torch.no_grad():
            for p, g in zip(stepper.parameters, gradients, strict=True):
                p.add_(g, alpha=-stepper.settings.rate)
    return all(bool(torch.isfinite(p).all()) for p in stepper.parameters)


class _Record:
    """What is looked at during a training and at its end."""

    def __init__(self, experiment: FlatTraining, model: torch.nn.Module, data: Data, ctx: Context) -> None:
        self.experiment, self.model, self.data, self.ctx = experiment, model, data, ctx
        names = (
            "epoch",
            "gradients",
            "train_loss",
            "validation_accuracy",
            "test_accuracy",
            "lambda_max",
            "cpu_seconds",
        )
        self.curve: dict[str, list[Any]] = {name: [] for name in names}

    def look(self, epoch: int, price: int, seconds: float) -> None:
        """One row of the curve."""
        row = (epoch, price, self.loss(), *self.accuracies(), self.largest(f"look/{epoch}"), seconds)
        for name, value in zip(self.curve, row, strict=True):
            self.curve[name].append(value)

    @torch.no_grad()
    def loss(self) -> float:
        x, y = self.data.train
        return float(F.cross_entropy(self.model(x), y))

    @torch.no_grad()
    def accuracies(self) -> tuple[float, float]:
        parts = (self.data.validation, self.data.test)
        validation, test = (float((self.model(x).argmax(1) == y).double().mean()) for x, y in parts)
        return validation, test

    def _training_loss(self) -> Tensor:
        x, y = self.data.train
        return F.cross_entropy(self.model(x), y)

    def largest(self, role: str) -> float:
        """λ₁ of the Hessian of the training loss, by Lanczos."""
        operator: Any = ParameterHessian(self._training_loss(), list(self.model.parameters()))
        steps = self.experiment.lanczos_steps
        return float(lanczos_extremes(operator, steps=steps, generator=self.ctx.torch_generator(role)).largest.value)

    def end(self, status: str, price: int, seconds: float) -> dict[str, Any]:
        """Where the training came to: accuracies are means over the last looks, curvature is that of the last point."""
        generator = self.ctx.torch_generator("bound")
        bound = stochastic_bound(self._training_loss(), list(self.model.parameters()), BOUND_PROBES, generator)
        last = self.experiment.last_looks
        return {
            "train_loss": self.curve["train_loss"][-1],
            "validation_accuracy": math.fsum(self.curve["validation_accuracy"][-last:]) / last,
            "test_accuracy": math.fsum(self.curve["test_accuracy"][-last:]) / last,
            "lambda_max": self.curve["lambda_max"][-1],
            "lambda_sup": float(bound.bound.detach()),
            "gradients": price,
            "cpu_seconds": seconds,
            "status": status,
        }

    def lost(self, status: str, price: int, seconds: float) -> dict[str, Any]:
        """A training that diverged has no end to look at."""
        names = ("train_loss", "validation_accuracy", "test_accuracy", "lambda_max", "lambda_sup")
        nothing = dict.fromkeys(names, math.nan)
        return {**nothing, "gradients": price, "cpu_seconds": seconds, "status": status}
