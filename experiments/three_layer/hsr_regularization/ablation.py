"""Where the parts of the bound lead as penalties of their own, and how well the ends fit training
and test data.
"""

from __future__ import annotations

from typing import Any

from experiments.three_layer.ends import stack
from experiments.three_layer.hsr_regularization.problem import Problem, Seeds, draw
from experiments.three_layer.hsr_regularization.settings import ABLATION, HsrRegularization
from runner.closed_form import three_layer as tl
from runner.contract import Context, Table
from runner.training.descent.descent import Endpoints


def measure_ablation(experiment: HsrRegularization, ctx: Context) -> dict[str, Table]:
    """Table `ablation`: one row for each sharp start of the seed's search and method, the stop rule
    judged from the first step.
    """
    problem = draw(experiment, ctx)
    count = 1 + len(ABLATION)
    ctx.progress(0, count, f"search from {len(problem.starts)} starts")
    seeds = Seeds.of(problem.critical_points(problem.search(experiment.rate)))
    sharp = seeds.start[seeds.within("sharp")]
    parts = []
    for number, method in enumerate(ABLATION):
        ctx.progress(1 + number, count, f"{method} from {len(sharp)} starts")
        ends = problem.train(sharp, problem.direction_of(method)).final
        about = {"method": method, "start": sharp, "status": _status(ends), "steps": ends.steps}
        parts.append(about | _measured(problem, ends))
    return {"ablation": stack(parts)}


def _status(ends: Endpoints) -> list[str]:
    return ["ok" if status == "converged" else status for status in ends.status]


def _measured(problem: Problem, ends: Endpoints) -> dict[str, Any]:
    """λ₁, macro F1 and mean loss on training and test data; NaN where a descent diverged."""
    theta = ends.theta
    columns = {"lambda_max": problem.spectrum(theta)[..., -1]}
    data = {"train": (problem.x, problem.q), "test": problem.test}
    for name, (x, q) in data.items():
        columns[f"f1_{name}"] = problem.f1(theta, x, q)
        columns[f"mean_loss_{name}"] = tl.loss(theta, x, q, problem.activation) / len(q)
    return {name: values.where(~ends.diverged, float("nan")) for name, values in columns.items()}
