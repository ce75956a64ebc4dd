"""Trainings of one method with some of its settings, and what they came to at each budget.

At equal steps a training ends after the same number of epochs as every other method's, at equal cost when it has spent
the gradients that `price` allows. A training asked for both is measured at each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from experiments.hsr.flat_training.data import Data, Part, accuracies, load, losses, network
from experiments.hsr.flat_training.methods import Settings, columns, trial
from experiments.hsr.flat_training.names import BUDGETS, SCHEDULED
from experiments.hsr.flat_training.stepper import Stepper
from runner.contract import Cell, Context, Table
from runner.curvature.matrix_free.estimators import lanczos_extremes
from runner.curvature.spectra.eigenpairs import top_eigenpairs
from runner.curvature.spectra.traces import upper_bound_estimate
from runner.training.flatness.stochastic import ParameterHessian

if TYPE_CHECKING:
    from experiments.hsr.flat_training.settings import FlatContest

Row = dict[str, Any]
CURVATURE = ("lambda_max", "lambda_residual", "lambda_sup", "lambda_sup_low", "lambda_sup_high")
MEASURED = ("train_loss", "validation_accuracy", "test_accuracy", *CURVATURE)


def marks(experiment: FlatContest, settings: Settings, budgets: Sequence[str] = BUDGETS) -> dict[str, int]:
    """Budget -> epochs. Equal steps: the same for all. Equal cost: what `experiment.price` gradients a step buy.

    A method whose schedule spans the whole training has equal cost alone.
    """
    price = settings.mean_price(len(experiment.widths) + 1)
    found = {"steps": experiment.epochs, "cost": max(1, round(experiment.epochs * experiment.price / price))}
    kept = ("cost",) if settings.method in SCHEDULED else BUDGETS
    return {budget: found[budget] for budget in budgets if budget in kept}


def run(
    experiment: FlatContest, settings: Sequence[Settings], budgets: Sequence[str], ctx: Context
) -> tuple[list[Row], list[Row]]:
    """Rows of `ends`, one for each of the settings and budgets, and of `curves`; `place`: which of the settings."""
    data = load(experiment, ctx)
    parameters = network(experiment, data.train[0].shape[1], ctx, len(settings))
    stepper = Stepper(settings, parameters, ctx.torch_generator("probes"), experiment.memory)
    record = _Record(experiment, settings, budgets, parameters, data, ctx)
    batches, seconds = ctx.torch_generator("batches"), 0.0
    record.look(0, stepper.price, 0.0)
    for epoch in range(1, record.total + 1):
        began = time.process_time()
        _epoch(experiment, stepper, data.train, batches, (epoch - 1) / record.total)
        seconds += time.process_time() - began
        record.look(epoch, stepper.price, seconds / len(settings))
        ctx.progress(epoch, record.total, settings[0].method)
    return record.ends, record.curve


def _epoch(experiment: FlatContest, stepper: Stepper, data: Part, batches: torch.Generator, progress: float) -> None:
    """One pass over the training part."""
    x, y = data
    for rows in torch.randperm(len(y), generator=batches).split(experiment.batch):
        part = (x[rows], y[rows])
        stepper.step(lambda part=part: losses(stepper.parameters, part), progress)  # type: ignore[misc]


def look_epochs(total: int, count: int) -> set[int]:
    """`count` epochs evenly spaced on the scale of logarithms, and the beginning."""
    return {0, *(round(total ** (i / count)) for i in range(count + 1))} if count else set()


class _Record:
    """What is looked at during trainings and at the end of each budget."""

    def __init__(
        self,
        experiment: FlatContest,
        settings: Sequence[Settings],
        budgets: Sequence[str],
        parameters: Sequence[Tensor],
        data: Data,
        ctx: Context,
    ) -> None:
        self.experiment, self.settings, self.parameters = experiment, settings, parameters
        self.data, self.ctx = data, ctx
        self.marks = marks(experiment, settings[0], budgets)
        self.total = max(self.marks.values(), default=0)
        self.looks = look_epochs(self.total, experiment.looks)
        self.accuracy: dict[int, tuple[Tensor, Tensor]] = {}
        self.curve: list[Row] = []
        self.ends: list[Row] = []

    def look(self, epoch: int, price: float, seconds: float) -> None:
        """Accuracies before the end of a budget, rows of the curve at some epochs, rows of the ends at its end."""
        last = self.experiment.last_epochs
        if epoch in self.looks or any(0 <= mark - epoch < last for mark in self.marks.values()):
            parts = (self.data.validation, self.data.test)
            self.accuracy[epoch] = tuple(accuracies(self.parameters, part) for part in parts)  # type: ignore[assignment]
        spent = {"epoch": epoch, "gradients": price, "cpu_seconds": seconds}
        for place, settings in enumerate(self.settings):
            if epoch in self.looks:
                self.curve.append({"place": place, **spent, **self._look(place, epoch)})
            for budget in (b for b, mark in self.marks.items() if mark == epoch):
                self.ends.append(
                    {"place": place, "budget": budget, **columns(settings), **spent, **self._end(place, epoch)}
                )

    def _own(self, place: int) -> tuple[list[Tensor], Tensor]:
        """Parameters of one trial and its training loss with graph."""
        own = [p[place : place + 1].detach().clone().requires_grad_() for p in self.parameters]
        return own, losses(own, self.data.train)[0]

    def _look(self, place: int, epoch: int) -> Row:
        """A row of the curve; λ₁ from a few steps of Lanczos, near for an eigenvalue that stands apart."""
        own, loss = self._own(place)
        generator, largest = self.ctx.torch_generator(f"look/{epoch}"), math.nan
        if torch.isfinite(loss):
            operator: Any = ParameterHessian(loss, own)
            largest = lanczos_extremes(operator, steps=self.experiment.look_steps, generator=generator).largest.value
        validation, test = (float(values[place]) for values in self.accuracy[epoch])
        found = {"validation_accuracy": validation, "test_accuracy": test, "lambda_max": largest}
        return {"train_loss": float(loss.detach()), **found}

    def _end(self, place: int, epoch: int) -> Row:
        """Accuracies are means over the last epochs of the budget, loss and curvature are those of its last point."""
        own, loss = self._own(place)
        if not (torch.isfinite(loss) and all(bool(torch.isfinite(p).all()) for p in own)):
            return {**dict.fromkeys(MEASURED, math.nan), "status": "diverged"}
        operator, generator = ParameterHessian(loss, own), self.ctx.torch_generator("end")
        top = top_eigenpairs(operator, 1, tolerance=self.experiment.tolerance, generator=generator)
        bound = upper_bound_estimate(operator, self.experiment.bound_probes, generator=generator)
        near = range(max(0, epoch - self.experiment.last_epochs + 1), epoch + 1)
        sums = [math.fsum(float(self.accuracy[e][part][place]) for e in near) for part in (0, 1)]
        curvature = (float(top.values[0]), float(top.residuals[0]), bound.value, bound.low, bound.high)
        measured = (float(loss.detach()), *(s / len(near) for s in sums), *curvature)
        status = "ok" if bool(top.converged.all()) else "λ₁ has not converged"
        return {**dict(zip(MEASURED, measured, strict=True)), "status": status}


def measure_contest(experiment: FlatContest, cell: Cell, ctx: Context) -> dict[str, Table]:
    """One chosen setting of a method at one budget."""
    settings = trial(str(cell.params["method"]), int(cell.params["trial"]))
    ends, curves = run(experiment, [settings], [str(cell.params["budget"])], ctx)
    return {"ends": ends, "curves": curves}
