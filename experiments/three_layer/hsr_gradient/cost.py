"""Fig. 2: what ∇λ_sup costs, by the paper's double sum, its matrix form, this project's form, and
automatic differentiation; and what three-point differences of the paper's own value cost.

Multiply-adds for I samples, N hidden units, D = M N + 2 N + 1 parameters, and numbers in memory:

    double sum    I² (8 N + M), a row i at a time      I N
    matrix        the same, as I × I matrices          5 I²
    own           3 I D²                               I D
    autodiff      about 4 times the value's I D²       4 I D
    numerical     2 D values of the double sum         5 I²

The double sum is that of Theorems 4 and 5, the gradient of tr H² (`double_sum`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from experiments.three_layer.hsr_gradient.double_sum import upper_bound_gradient
from experiments.three_layer.hsr_gradient.settings import HsrGradient
from runner.closed_form import three_layer as tl
from runner.contract import Context, Table
from runner.curvature.spectra.bounds import wolkowicz_styan_upper
from runner.data.synthetic import sample

Gradient = Callable[[Tensor, Tensor, Tensor], Tensor]
FORMS = ("double sum", "matrix", "own", "autodiff", "numerical")
PAIRWISE = ("double sum", "matrix", "numerical")
"""Forms whose work, and, except for the first, whose memory, grows with the pairs of samples."""


def three_point(function: Callable[..., Tensor], theta: Tensor, *args: Any, step: float) -> Tensor:
    """Central differences of a function of theta (D,), one coordinate after the other:

    2 D evaluations.
    """
    slopes = torch.empty_like(theta)
    for k in range(len(theta)):
        shift = torch.zeros_like(theta)
        shift[k] = step
        rise = function(theta + shift, *args) - function(theta - shift, *args)
        slopes[k] = rise / (2 * step)
    return slopes


def paper_value(theta: Tensor, x: Tensor, q: Tensor) -> Tensor:
    """λ_sup with tr H² as the double sum, in its matrix form (WS bound, Eq. 25)."""
    trace = tl.trace(theta, x, q)
    square = tl.trace_of_square_double_sum(theta, x, q)
    return wolkowicz_styan_upper(theta.shape[-1], trace, square)


def cheapest_value(theta: Tensor, x: Tensor, q: Tensor) -> Tensor:
    """λ_sup with tr H² in the cheaper of its two exact forms."""
    return wolkowicz_styan_upper(theta.shape[-1], *tl.traces(theta, x, q))


def by_autodiff(theta: Tensor, x: Tensor, q: Tensor) -> Tensor:
    """Reverse mode through the cheapest exact value."""
    leaf = theta.detach().requires_grad_()
    return torch.autograd.grad(cheapest_value(leaf, x, q), leaf)[0]


def forms(step: float) -> dict[str, Gradient]:
    """Name -> ∇λ_sup of one theta (D,)."""
    return {
        "double sum": lambda t, x, q: upper_bound_gradient(t, x, q, block=1),
        "matrix": upper_bound_gradient,
        "own": tl.upper_bound_gradient,
        "autodiff": by_autodiff,
        "numerical": lambda t, x, q: three_point(paper_value, t, x, q, step=step),
    }


def cost(experiment: HsrGradient, ctx: Context) -> dict[str, Table]:
    """Table `cost`: processor seconds of one gradient, the least of the repeats, with the forms
    taking turns.

    These numbers are no two times the same and belong to the machine. A size that a form's limit
    leaves out has a row with the reason. error: against this project's form, relative, to show that
    all compute the same.
    """
    inputs = experiment.dataset.inputs
    cases = [("dimension", experiment.timed_samples, units) for units in experiment.cost_units]
    cases += [("samples", samples, experiment.timed_hidden) for samples in experiment.cost_sizes]
    rows: list[dict[str, Any]] = []
    for number, (varied, samples, units) in enumerate(cases):
        ctx.progress(number, len(cases), f"cost at I = {samples}, N = {units}")
        x, q = sample(experiment.dataset, samples, ctx, f"timing/{samples}")
        generator = ctx.torch_generator(f"timing/{units}")
        dimension = tl.parameter_count(inputs, units)
        theta = 2 * torch.rand(dimension, dtype=x.dtype, generator=generator) - 1
        about = {"varied": varied, "samples": samples, "dimension": dimension}
        args = (theta, x, q)
        reasons = {name: _left_out(experiment, name, samples, units) for name in FORMS}
        functions = forms(experiment.difference_step)
        chosen = {name: functions[name] for name, reason in reasons.items() if not reason}
        times = processor_seconds(chosen, args, experiment.cost_repeats, experiment.cost_budget)
        exact = tl.upper_bound_gradient(*args)
        for name, reason in reasons.items():
            row: dict[str, Any] = about | {"form": name, "seconds": math.nan, "repeats": 0}
            if reason:
                rows.append(row | {"status": reason})
                continue
            seconds = times[name]
            row["seconds"] = min(seconds)
            row["repeats"] = len(seconds)
            row["error"] = math.nan
            if samples <= 1600:
                row["error"] = float((chosen[name](*args) - exact).norm() / exact.norm())
            rows.append(row | {"status": "ok"})
    return {"cost": rows}


def _left_out(experiment: HsrGradient, form: str, samples: int, units: int) -> str:
    """Why a form is not timed at a size, "" where it is."""
    most = experiment.pairwise_samples
    if form == "numerical":
        most = experiment.numerical_samples
    if form in PAIRWISE and samples > most:
        return f"more than {most} samples: I² pairs"
    if form == "numerical" and units > experiment.numerical_units:
        return f"more than {experiment.numerical_units} hidden units: 2 D values"
    return ""


def processor_seconds(
    chosen: dict[str, Gradient], args: tuple[Tensor, Tensor, Tensor], repeats: int, budget: float
) -> dict[str, list[float]]:
    """Processor seconds of every repeat of every form, the forms taking turns so that what else the
    machine does falls on all of them; a form that has used its budget of seconds sits out after the
    third turn.
    """
    times: dict[str, list[float]] = {name: [] for name in chosen}
    for turn in range(repeats + 1):
        for name, function in chosen.items():
            if turn > 1 and sum(times[name]) > budget:
                continue
            begin = time.process_time()
            function(*args)
            elapsed = time.process_time() - begin
            if turn or elapsed > budget:  # the first turn warms up, where it costs little
                times[name].append(elapsed)
    return times
