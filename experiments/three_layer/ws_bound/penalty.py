"""The calibrated search with an L2 penalty on the output weights V, which Section VI proposes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from experiments.three_layer.ends import uniform
from experiments.three_layer.network import Network
from experiments.three_layer.ws_bound.settings import WsBound
from runner.closed_form import three_layer as tl
from runner.contract import Cell, Context, Table
from runner.data.synthetic import load_gaussian
from runner.training.descent.descent import descend
from runner.training.descent.directions import LossGradient, Step


@dataclass(frozen=True)
class PenalisedGradient:
    """The gradient of L + weight ||V||²/2, which the stop rule watches.

    V: with its bias c, as in the ||V||² of Fig. 10. first: place of c in theta, before the other
    output weights.
    """

    loss: LossGradient
    weight: float
    first: int

    def bind(self, width: int) -> Step:
        plain = self.loss.bind(width)

        def step(theta: Tensor, number: int) -> tuple[Tensor, Tensor]:
            gradient, _ = plain(theta, number)
            gradient[self.first :].add_(theta[self.first :], alpha=self.weight)
            return gradient, gradient

        return step


def measure_penalised(experiment: WsBound, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Table `penalised`: where every start of the calibrated search ends with a penalty; L, its
    Hessian and the bound without it."""
    training = experiment.training
    hidden = experiment.portrait_hidden
    x, q = load_gaussian(experiment.dataset, ctx).train
    network = Network(x, q, activation="sigmoid")
    inputs = x.shape[1]
    dimension = tl.parameter_count(inputs, hidden)
    generator = ctx.torch_generator(f"starts/hidden={hidden}")
    starts = uniform(training.starts, dimension, training.half_range, generator)
    weight = float(cell.params["penalty"])
    first = hidden * (inputs + 1)
    ctx.progress(0, 1, f"descent of {training.starts} starts")
    ends = descend(
        starts,
        PenalisedGradient(network.direction, weight, first),
        rate=experiment.fitted_rate,
        max_steps=training.steps,
        stop_ratios=(experiment.fitted_ratio,),
    ).final
    theta = ends.theta
    W, V = tl.split(theta, inputs)
    measured = network.curvature(theta)
    measured["V_norm_sq"] = V.square().sum(-1)
    measured["W_norm_sq"] = W.square().sum((-2, -1))
    table: dict[str, Any] = {
        "start": range(len(starts)),
        "status": ["ok" if status == "converged" else status for status in ends.status],
        "steps": ends.steps,
    }
    for name, values in measured.items():
        table[name] = values.where(~ends.diverged, float("nan"))
    return {"penalised": table}
