"""The studies of the recovery experiment: `measure` of any of them, and the trained layer of the
DAG paper's Experiment 5."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from experiments.attention import contest, theorem
from experiments.attention.layer import Heads
from experiments.attention.levenberg_marquardt import levenberg_marquardt
from experiments.attention.problem import distinct, ended, equations, relative_error
from experiments.attention.rounds import Round, followed, in_rounds
from experiments.attention.settings import AttentionNewton
from runner.contract import Cell, Context, Table
from runner.curvature.closed_form import attention as att
from runner.training.trained import train_regression

Row = dict[str, Any]
ERROR = 1e-2
"""Relative error of X at which noise in B counts as protecting it."""


def measure(experiment: AttentionNewton, cell: Cell, ctx: Context) -> dict[str, Table]:
    """All tables of one cell."""
    study = str(cell.params["study"])
    if study == "layer":
        return {"targets": layer_rows(experiment, ctx)}
    n, d = experiment.sizes(str(cell.params["size"]))
    studies = {
        "contest": contest.contest_rows,
        "certify": theorem.certificate_tables,
        "theorem": theorem.theorem_tables,
    }
    return {**studies[study](experiment, n, d, ctx)}


def layer_rows(setup: AttentionNewton, ctx: Context) -> list[Row]:
    """Rows of `targets` for Experiment 5's regression network: first validation sequences, at init
    and at the end."""
    trained = train_regression(setup.model.network(), setup.dataset, setup.training, ctx)
    rows = []
    for checkpoint in ("init", "final"):
        layer = trained_layer(trained.at(checkpoint).stages)
        for index in range(setup.sequences):
            x = trained.data.test.inputs[index].double().mT
            generator = ctx.torch_generator(f"attention_newton layer starts {index}")
            start = torch.randn(setup.target_starts, x.numel(), generator=generator, dtype=x.dtype)
            row: Row = {
                "target": "regression layer",
                "view": checkpoint,
                "input": index,
                "characters": math.nan,
                "loss": math.nan,
            }
            rows.append(row | attack(setup, layer, x, start))
            ctx.progress(len(rows), 2 * setup.sequences)
    return rows


def trained_layer(stages: Any) -> Heads:
    """One head from the query, key and value layers of a network."""
    query, key, value = (stages[name].weight.detach().double() for name in "qkv")
    scores = key.mT @ query / len(query) ** 0.5
    return Heads(scores.unsqueeze(0), value.mT.unsqueeze(0))


def attack(setup: AttentionNewton, layer: Heads, x: Tensor, start: Tensor) -> Row:
    """Levenberg–Marquardt from blind starts on one input x (d, n), in rounds of `target_steps`
    trials (`rounds`).

    late: starts given up that recover when followed; best_error: of the polished end of least
    residual.
    """
    data = att.vec(x)
    b = layer.outputs(x)
    least = equations(layer, b)

    def once(points: Tensor, rounds: int) -> Round:
        ends = levenberg_marquardt(least, points, max_steps=rounds * setup.target_steps)
        return Round(ends.points, ends.square, ends.steps, ends.capped)

    objective = least.value(start).square().sum(-1)
    run = in_rounds(once, start, objective, setup.progress, anew=True)
    late = 0
    beyond = followed(once, run, start, setup.further_rounds, anew=True)
    if len(beyond):
        late = int((ended(least, beyond, data, b).error <= setup.recovered).sum())
    polished = ended(least, run.points, data, b)
    right = polished.error <= setup.recovered
    residual = least.value(polished.points).norm(dim=-1).nan_to_num(torch.inf)
    best = polished.points[int(residual.argmin())]
    solutions = distinct(polished.points[polished.exact])
    errors = relative_error(solutions, data)
    spectrum = singular_values(layer, x)
    return {
        "starts": len(start),
        "recovered": int(right.sum()),
        "exact": int(polished.exact.sum()),
        "wrong": int((polished.exact & ~right).sum()),
        "distinct_wrong": int((errors > setup.recovered).sum()),
        "given_up": int(run.given_up.sum()),
        "late": late,
        "rounds": int(run.rounds.max()),
        "best_error": float(relative_error(best, data)),
        "unknowns": data.numel(),
        "equations": b.numel(),
        "rank": rank_of(spectrum),
        "sigma_min": float(spectrum[-1]) if b.numel() >= data.numel() else 0.0,
        "protecting_noise": protecting_noise(layer, x, spectrum),
    }


def singular_values(layer: Heads, x: Tensor) -> Tensor:
    """Of J at X, falling."""
    return torch.linalg.svdvals(layer.jacobian(x).flatten(0, 1))


def rank_of(spectrum: Tensor) -> int:
    """Singular values above rounding, len * eps of the largest."""
    rounding = len(spectrum) * torch.finfo(spectrum.dtype).eps * spectrum[0]
    return int((spectrum > rounding).sum())


def protecting_noise(layer: Heads, x: Tensor, spectrum: Tensor) -> float:
    """Noise in B, over the standard deviation of its entries, at which the first-order error is
    `ERROR` of |X|."""
    if rank_of(spectrum) < x.numel():
        return 0.0
    return float(ERROR * x.norm() / (1 / spectrum).norm() / layer.outputs(x).std())
