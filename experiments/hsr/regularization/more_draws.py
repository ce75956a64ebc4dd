"""Beside the five data sets: the search as it is printed at several rates, and further draws of the data for Fig. 14.

Both are smaller than the paper's experiment, since starts of one draw share its data: what decides a statement about
data is their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from experiments.hsr.regularization.analysis import PAIRS
from experiments.hsr.regularization.contest import critical_points, direction_of, search, train
from experiments.hsr.regularization.methods import METHODS
from experiments.hsr.regularization.problem import DTYPE, Problem
from experiments.ws_bound.search import macro_f1
from runner.contract import Cell, Context, Table
from runner.curvature.closed_form import three_layer as tl
from runner.data.gaussian import sample
from runner.training.descent.descent import Endpoints

if TYPE_CHECKING:
    from experiments.hsr.regularization.settings import HsrRegularization

GROUPS = ("sharp", "flat")


def drawn(experiment: HsrRegularization, ctx: Context, role: str, ratio: float) -> Problem:
    """A problem with data and starts of its own."""
    data = experiment.dataset
    shape = (experiment.draw_starts, tl.parameter_count(data.inputs, experiment.hidden))
    uniform = torch.rand(shape, dtype=DTYPE, generator=ctx.torch_generator(f"{role}/starts"))
    x, q = sample(data, data.train, ctx, f"{role}/train")
    test = sample(data, max(data.test), ctx, f"{role}/test")
    starts = (2 * uniform - 1) * experiment.training.half_range
    return Problem(x, q, *test, starts, experiment.activation, ratio)


class Ends:
    """Where every method ends from the sharp and the flat starts of one problem, the stop rule judged from the first
    step. lambda_max, f1: method -> (S,); reached: method -> (S,) bool; group: S names."""

    def __init__(self, experiment: HsrRegularization, problem: Problem, rate: float) -> None:
        self.search = search(experiment, problem, rate)
        points, group = critical_points(experiment, problem, self.search)
        self.unique = len(group)
        pairs = zip(torch.as_tensor(points["start"]).tolist(), group, strict=True)
        chosen = [(start, name) for start, name in pairs if name]
        self.group = [name for _, name in chosen]
        index = torch.tensor([start for start, _ in chosen], dtype=torch.long)
        self.lambda_max: dict[str, Tensor] = {}
        self.f1: dict[str, Tensor] = {}
        self.reached: dict[str, Tensor] = {}
        for method in METHODS:
            ends = train(experiment, problem, index, direction_of(experiment, problem, method)).final
            self._measure(method, problem, ends)

    def _measure(self, method: str, problem: Problem, ends: Endpoints) -> None:
        finite = ~ends.diverged
        hessian = tl.hessian(ends.theta, *problem.args).nan_to_num()
        self.lambda_max[method] = torch.linalg.eigvalsh(hessian)[..., -1].where(finite, torch.nan)
        predicted = tl.predict(ends.theta, problem.test_x, problem.activation) > 0.5
        self.f1[method] = macro_f1(predicted, problem.test_q > 0.5).where(finite, torch.nan)
        self.reached[method] = ends.converged

    def of(self, name: str) -> Tensor:
        """Mask (S,) of a group."""
        return torch.tensor([g == name for g in self.group], dtype=torch.bool)


def measure_scan(experiment: HsrRegularization, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Table `scan`: the printed stop rule, the search at one rate, the methods at the printed γ₁.

    reached: starts of a group from which the method meets the stop rule; pairs: those from which plain descent does
    too, which is what the paper's tests compare. lambda_max, f1: medians over all finite ends.
    """
    rate = float(cell.params["search_rate"])
    ctx.progress(0, 1, f"search at rate {rate:g} and {len(METHODS)} methods")
    ends = Ends(experiment, drawn(experiment, ctx, "scan", experiment.printed_ratio), rate)
    about = {
        "starts": experiment.draw_starts,
        "converged": int(ends.search.converged.sum()),
        "unique": ends.unique,
    }
    rows = []
    for method in METHODS:
        for name in GROUPS:
            of, met = ends.of(name), ends.reached[method]
            row: dict[str, Any] = {
                "method": method,
                "group": name,
                "chosen": int(of.sum()),
                "reached": int((of & met).sum()),
            }
            row["pairs"] = int((of & met & ends.reached["gd"]).sum())
            row["lambda_max"] = float(ends.lambda_max[method][of].nanmedian()) if of.any() else float("nan")
            row["f1"] = float(ends.f1[method][of].nanmedian()) if of.any() else float("nan")
            rows.append(about | row)
    return {"scan": rows}


def measure_draws(experiment: HsrRegularization, ctx: Context) -> dict[str, Table]:
    """Table `draws`: for every draw, group and pair of methods the mean difference of F1 and of log λ₁ over the starts
    from which both reach a critical point."""
    rows: list[Mapping[str, Any]] = []
    for draw in range(experiment.draws):
        ctx.progress(draw, experiment.draws, f"draw {draw + 1}")
        problem = drawn(experiment, ctx, f"draw/{draw}", experiment.fitted_ratio)
        ends = Ends(experiment, problem, experiment.rate)
        for name in GROUPS:
            rows += [{"draw": draw, "group": name} | _difference(ends, ends.of(name), a, b) for a, b in PAIRS]
    return {"draws": rows}


def _difference(ends: Ends, of: Tensor, a: str, b: str) -> dict[str, Any]:
    both = of & ends.reached[a] & ends.reached[b]
    gain, ratio = ends.f1[a] - ends.f1[b], (ends.lambda_max[a] / ends.lambda_max[b]).log()
    return {
        "a": a,
        "b": b,
        "pairs": int(both.sum()),
        "f1": float(gain[both].mean()),
        "log_ratio": float(ratio[both].mean()),
    }
