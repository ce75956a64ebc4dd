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
STUDIES = {
    "contest": contest.contest_rows,
    "certify": theorem.certificate_tables,
    "theorem": theorem.theorem_tables,
}


def measure(experiment: AttentionNewton, cell: Cell, ctx: Context) -> dict[str, Table]:
    """All tables of one cell."""
    study = str(cell.params["study"])
    if study == "layer":
        return {"targets": layer_rows(experiment, ctx)}
    size = str(cell.params["size"])
    n, d = experiment.sizes(size)
    tables = STUDIES[study](experiment, n, d, ctx)
    return {**tables}


def layer_rows(setup: AttentionNewton, ctx: Context) -> list[Row]:
    """Rows of `targets` for Experiment 5's regression network: first validation sequences, at init
    and at the end."""
    settings = setup.model.network()
    trained = train_regression(settings, setup.dataset, setup.training, ctx)
    rows = []
    for checkpoint in ("init", "final"):
        network = trained.at(checkpoint)
        layer = trained_layer(network.stages)
        for index in range(setup.sequences):
            sequence = trained.data.test.inputs[index]
            x = sequence.double().mT
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
    w = key.mT @ query / len(query) ** 0.5
    v = value.mT
    return Heads(w.unsqueeze(0), v.unsqueeze(0))


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
        polished_late = ended(least, beyond, data, b)
        recovered_late = polished_late.error <= setup.recovered
        late = int(recovered_late.sum())
    polished = ended(least, run.points, data, b)
    recovered = polished.error <= setup.recovered
    wrong = polished.exact & ~recovered
    residuals = least.value(polished.points)
    residual = residuals.norm(dim=-1)
    least_residual = int(residual.nan_to_num(torch.inf).argmin())
    best = polished.points[least_residual]
    solutions = distinct(polished.points[polished.exact])
    wrong_solutions = relative_error(solutions, data) > setup.recovered
    spectrum = layer.singular_values(x)
    return {
        "starts": len(start),
        "recovered": int(recovered.sum()),
        "exact": int(polished.exact.sum()),
        "wrong": int(wrong.sum()),
        "distinct_wrong": int(wrong_solutions.sum()),
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


def rank_of(spectrum: Tensor) -> int:
    """Singular values above rounding, len * eps of the largest."""
    eps = torch.finfo(spectrum.dtype).eps
    rounding = len(spectrum) * eps * spectrum[0]
    return int((spectrum > rounding).sum())


def protecting_noise(layer: Heads, x: Tensor, spectrum: Tensor) -> float:
    """Noise in B, over the standard deviation of its entries, at which the first-order error is
    `ERROR` of |X|."""
    if rank_of(spectrum) < x.numel():
        return 0.0
    amplification = (1 / spectrum).norm()
    noise = ERROR * x.norm() / amplification
    return float(noise / layer.outputs(x).std())
