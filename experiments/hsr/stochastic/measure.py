"""One training with one method, and the estimate against the closed form."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from experiments.certificates import STREAM, of_hessian
from runner.contract import Cell, Context, Table
from runner.contract.certificate import certificate_row
from runner.curvature import ParameterOperator, verify
from runner.curvature.closed_form import three_layer as tl
from runner.curvature.matrix_free.estimators import lanczos_extremes
from runner.data.gaussian import gaussian_classes
from runner.kinds.dataset import GaussianData
from runner.training.flatness.stochastic import (
    ParameterHessian,
    combine,
    sharpness_aware_gradients,
    stochastic_bound,
)

if TYPE_CHECKING:
    from experiments.hsr.stochastic.settings import HsrStochastic

BOUND_PROBES = 32  # of λ_sup at the end


def digits(experiment: HsrStochastic, ctx: Context) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """scikit-learn's 1,797 digits of 8 × 8 pixels, scaled to [0, 1], split at random: (train, test)."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    x = torch.tensor(raw.data, dtype=torch.float32) / 16
    y = torch.tensor(raw.target)
    order = torch.randperm(len(y), generator=ctx.torch_generator("split"))
    train, test = order.split([round(experiment.train_share * len(y)), len(y) - round(experiment.train_share * len(y))])
    return (x[train], y[train]), (x[test], y[test])


def network(experiment: HsrStochastic, ctx: Context) -> torch.nn.Sequential:
    """Linear layers with tanh between, smooth so that curvature is defined everywhere; Glorot's initial values."""
    generator = ctx.torch_generator("network")
    sizes, layers = [64, *experiment.widths, 10], []
    for inputs, outputs in itertools.pairwise(sizes):
        linear = torch.nn.Linear(inputs, outputs)
        with torch.no_grad():
            limit = math.sqrt(6 / (inputs + outputs))
            linear.weight.copy_((2 * torch.rand(outputs, inputs, generator=generator) - 1) * limit)
            linear.bias.zero_()
        layers += [linear, torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


def train(experiment: HsrStochastic, method: str, ctx: Context) -> dict[str, Table]:
    """Minibatch descent from the same network and in the same order for every method."""
    (x, y), test = digits(experiment, ctx)
    model = network(experiment, ctx)
    parameters = list(model.parameters())
    batches, probes = ctx.torch_generator("batches"), ctx.torch_generator("probes")
    history: dict[str, list[Any]] = {key: [] for key in ("epoch", "train_loss", "test_accuracy", "bound", "lambda_max")}
    state = _Spread(experiment.memory)
    spent, steps = 0.0, 0
    for epoch in range(experiment.epochs + 1):
        _record(experiment, ctx, history, epoch, model, (x, y), test)
        if epoch == experiment.epochs:
            break
        begin = time.process_time()
        for rows in torch.randperm(len(y), generator=batches).split(experiment.batch):
            _step(experiment, method, model, parameters, x[rows], y[rows], state, probes)
            steps += 1
        spent += time.process_time() - begin
        ctx.progress(epoch + 1, experiment.epochs, method)
    certificate = certificate_row(
        "products, training loss",
        verify(
            ParameterOperator(model, torch.nn.functional.cross_entropy, [(x, y)]),
            generator=ctx.torch_generator(STREAM),
            gradients=1000,
        ),
    )
    timing: dict[str, list[float]] = {"steps": [steps], "seconds_per_step": [spent / steps]}
    return {"history": history, "timing": timing, "certificate": [certificate]}


class _Spread:
    """Running mean of σ̂² over steps: a σ for the gradient that hardly depends on a step's own probes."""

    def __init__(self, memory: float) -> None:
        self.memory, self.weight, self.value = memory, 0.0, 0.0

    def update(self, variance: float) -> None:
        self.value = self.memory * self.value + (1 - self.memory) * variance
        self.weight = self.memory * self.weight + (1 - self.memory)

    @property
    def std(self) -> float | None:
        """None before the first step or while the mean is not positive."""
        mean = self.value / self.weight if self.weight else 0.0
        return math.sqrt(mean) if mean > 0 else None


def _step(
    experiment: HsrStochastic,
    method: str,
    model: torch.nn.Module,
    parameters: Sequence[Tensor],
    x: Tensor,
    y: Tensor,
    spread: _Spread,
    probes: torch.Generator,
) -> None:
    def loss() -> Tensor:
        return torch.nn.functional.cross_entropy(model(x), y)

    if method == "sam":
        gradients = sharpness_aware_gradients(loss, parameters, experiment.radius)
    elif method == "hsr":
        value = loss()
        found = stochastic_bound(value, parameters, experiment.probes, probes, spread.std)
        spread.update(float(found.variance.detach()))
        gradients = torch.autograd.grad(value + experiment.bound_weight * found.bound, parameters)
    else:
        gradients = torch.autograd.grad(loss(), parameters)
    with torch.no_grad():
        for p, g in zip(parameters, gradients, strict=True):
            p.add_(g, alpha=-experiment.rate)


def _record(
    experiment: HsrStochastic,
    ctx: Context,
    history: dict[str, list[Any]],
    epoch: int,
    model: torch.nn.Module,
    data: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
) -> None:
    """Loss and accuracy after every epoch; curvature of the training loss at the start and at the end."""
    x, y = data
    with torch.no_grad():
        accuracy = float((model(test[0]).argmax(1) == test[1]).double().mean())
    parameters = list(model.parameters())
    value = torch.nn.functional.cross_entropy(model(x), y)
    bound = largest = math.nan
    if epoch in (0, experiment.epochs):
        generator = ctx.torch_generator(f"curvature/{epoch}")
        found = stochastic_bound(value, parameters, BOUND_PROBES, generator)
        bound = float(found.bound.detach())
        operator: Any = ParameterHessian(torch.nn.functional.cross_entropy(model(x), y), parameters)
        largest = lanczos_extremes(operator, steps=experiment.lanczos_steps, generator=generator).largest.value
    row = (epoch, float(value.detach()), accuracy, bound, largest)
    for key, entry in zip(history, row, strict=True):
        history[key].append(entry)


def estimate(experiment: HsrStochastic, ctx: Context) -> dict[str, Table]:
    """Mean and spread of the estimated bound of a three-layer network against its closed form, by number of probes.

    Probes multiply the closed-form Hessian, which gives the same numbers as products by differentiation.
    """
    data = GaussianData()
    x, q = gaussian_classes(data.train, data.inputs, data.mean, data.variance, ctx.torch_generator("data/train"))
    dimension = tl.parameter_count(data.inputs, experiment.hidden)
    theta = 4 * torch.rand(dimension, dtype=torch.float64, generator=ctx.torch_generator("theta")) - 2
    hessian, exact = tl.hessian(theta, x, q), float(tl.upper_bound(theta, x, q))
    rows: dict[str, list[Any]] = {key: [] for key in ("probes", "exact", "mean", "rms_error", "standard_error")}
    for count in experiment.probe_counts:
        generator = ctx.torch_generator(f"estimate/{count}")
        z = torch.randint(0, 2, (experiment.repeats, count, dimension), generator=generator).double() * 2 - 1
        image = z @ hessian
        forms, squares = (z * image).sum(-1), image.square().sum(-1)
        bounds = combine(forms, squares, dimension).bound
        entries = (
            count,
            exact,
            float(bounds.mean()),
            float((bounds - exact).square().mean().sqrt()),
            float(bounds.std()) / math.sqrt(experiment.repeats),
        )
        for key, entry in zip(rows, entries, strict=True):
            rows[key].append(entry)
    return {"estimate": rows, "certificate": [of_hessian("Hessian", hessian, lambda t: tl.loss(t, x, q), theta, ctx)]}


def measure(experiment: HsrStochastic, cell: Cell, ctx: Context) -> dict[str, Table]:
    """The estimate against the closed form, or one training by the method that the part names."""
    part = str(cell.params["part"])
    return estimate(experiment, ctx) if part == "estimate" else train(experiment, part, ctx)
