"""Identifiability: rank and smallest singular value of J against what shapes them, the noise that
protects X, and the trained layer of the DAG paper's Experiment 5. `measure` measures any study.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from experiments.attention import contest, theorem
from experiments.attention.contest import Round, followed, in_rounds
from experiments.attention.layer import Heads
from experiments.attention.levenberg_marquardt import LeastSquares, levenberg_marquardt
from experiments.attention.problem import distinct, ended, equations, invariances
from experiments.attention.settings import AttentionNewton
from runner.contract import Cell, Context, Table
from runner.curvature.closed_form import attention as att

Row = dict[str, Any]
ESTIMATORS = ("least squares", "with prior")


def measure(experiment: AttentionNewton, cell: Cell, ctx: Context) -> dict[str, Table]:
    """All tables of one cell."""
    study = str(cell.params["study"])
    if study == "identify":
        return _tables(identify_rows(experiment, ctx))
    if study == "layer":
        return _tables({"targets": layer_rows(experiment, ctx)})
    n, d = experiment.sizes(str(cell.params["size"]))
    if study == "contest":
        return _tables(contest.contest_rows(experiment, n, d, ctx))
    if study == "price":
        return _tables({"prices": contest.price_rows(experiment, n, d, ctx)})
    if study == "certify":
        return _tables({"balls": theorem.certificate_rows(experiment, n, d, ctx)})
    return _tables(theorem.theorem_tables(experiment, n, d, ctx))


def _tables(rows: dict[str, list[dict[str, Any]]]) -> dict[str, Table]:
    return {
        name: {key: [row[key] for row in found] for key in found[0]}
        for name, found in rows.items()
        if found
    }


def draw_layer(about: Mapping[str, float], generator: torch.Generator) -> tuple[Tensor, Heads]:
    """X (d, n) and one head. W = scale A B^T / sqrt(rank d), A, B (d, rank): entries of variance
    scale^2 / d at every rank; V likewise of `value_rank`, and normal where that is full.
    similarity: the correlation of any two tokens."""
    n, d, rank, seen = (int(about[name]) for name in ("tokens", "width", "rank", "value_rank"))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    common, own = normal(d, 1), normal(d, n)
    x = about["similarity"] ** 0.5 * common + (1 - about["similarity"]) ** 0.5 * own
    w = normal(d, d) if rank == d else normal(d, rank) @ normal(rank, d) / max(rank, 1) ** 0.5
    v = normal(d, d) if seen == d else normal(d, seen) @ normal(seen, d) / max(seen, 1) ** 0.5
    w, v = about["score_scale"] * w / d**0.5, v / d**0.5
    return x, Heads(w.unsqueeze(0), v.unsqueeze(0), causal=bool(about["causal"]))


def identify_rows(setup: AttentionNewton, ctx: Context) -> dict[str, list[Row]]:
    """Tables `identify`, a row per configuration and problem, and `noise`, a row per level and
    estimator of those."""
    identify, noise = [], []
    base = setup.identify_base
    plan = [(axis, value) for axis, values in setup.identify.items() for value in values]
    for number, (axis, value) in enumerate(plan):
        about = dict(base) | {axis: value}
        if axis == "width":  # the ranks stay full
            about |= {"rank": value, "value_rank": value}
        for index in range(setup.problems):
            ctx.progress(number, len(plan), f"{axis} {value:g}")
            key = {"axis": axis, "value": float(value), "problem": index}
            # one stream for all values: neighbours on an axis share what they can
            x, layer = draw_layer(about, ctx.torch_generator(f"attention_newton identify {index}"))
            spectrum = singular_values(layer, x)
            identify.append(key | identify_row(layer, x, spectrum))
            if axis in setup.noisy_axes and identify[-1]["rank"] == identify[-1]["variables"]:
                generator = ctx.torch_generator(f"attention_newton noise {index}")
                noise += [key | row for row in noise_rows(setup, layer, x, spectrum, generator)]
    return {"identify": identify, "noise": noise}


def singular_values(layer: Heads, x: Tensor) -> Tensor:
    """Of J at X, falling."""
    return torch.linalg.svdvals(layer.jacobian(x).flatten(0, 1))


def rank_of(spectrum: Tensor) -> int:
    """Singular values above rounding, len * eps of the largest."""
    return int((spectrum > len(spectrum) * torch.finfo(spectrum.dtype).eps * spectrum[0]).sum())


def identify_row(layer: Heads, x: Tensor, spectrum: Tensor) -> Row:
    """Rank and ends of the spectrum of J; sigma_min of F, whose inverse un-mixes the tokens; the
    exact invariances."""
    d, n = x.shape
    rank = rank_of(spectrum)
    return {
        "variables": n * d,
        "rank": rank,
        "sigma_max": float(spectrum[0]),
        "sigma_min": float(spectrum[-1]) if len(spectrum) == n * d else 0.0,
        "inverse_norm": float((1 / spectrum).norm()) if rank == n * d else float("inf"),
        "sigma_min_mixing": float(torch.linalg.svdvals(layer.attention(x))[..., -1].min()),
        "invariances": invariances(layer, n).shape[1],
        # relative to the spread of B: the noise at which the error is 1 % of the data
        "protecting_noise": protecting_noise(layer, x, spectrum, 1e-2),
    }


def protecting_noise(layer: Heads, x: Tensor, spectrum: Tensor, error: float) -> float:
    """Noise in B, over the standard deviation of its entries, at which the first-order error is
    `error` of |X|."""
    if rank_of(spectrum) < x.numel():
        return 0.0
    return float(error * x.norm() / (1 / spectrum).norm() / layer.outputs(x).std())


def noise_rows(
    setup: AttentionNewton, layer: Heads, x: Tensor, spectrum: Tensor, generator: torch.Generator
) -> list[Row]:
    """Error of the solution next to the data under noise in B, against three predictions from J at
    the data.

    predicted: s |J^-1|_F / |X|, first order in the noise s of an entry; flattest: s / (sigma_min
    |X|), its one largest term; with_prior: sqrt(mean s^2 / (s^2 + sigma_i^2)), the posterior spread
    of a linear model whose data are standard normal, to compare with the estimator with gamma =
    s^2.
    """
    data, clean = att.vec(x), layer.outputs(x)
    rows = []
    for level in setup.noise:
        s = level * float(clean.std())
        errors = {name: [] for name in ESTIMATORS}  # type: dict[str, list[float]]
        for _ in range(setup.noise_draws):
            b = clean + s * torch.randn(clean.shape, generator=generator, dtype=clean.dtype)
            least = equations(layer, b)
            for name, gamma in (("least squares", 0.0), ("with prior", s**2)):
                errors[name].append(_local_error(least, data, gamma))
        predicted = {
            "predicted": s * float((1 / spectrum).norm() / data.norm()),
            "flattest": s / float(spectrum[-1] * data.norm()),
            "with_prior": float((s**2 / (s**2 + spectrum.square())).mean().sqrt()),
        }
        for name, found in errors.items():
            square = torch.tensor(found).square()
            rows.append(
                {"noise": level, "estimator": name, "error": float(square.mean().sqrt())}
                | predicted
            )
    return rows


def _local_error(least: LeastSquares, data: Tensor, gamma: float) -> float:
    """|X - X_true| / |X_true| of the minimiser that Levenberg-Marquardt reaches from the data."""
    ends = levenberg_marquardt(least, data.unsqueeze(0), gamma=gamma, max_steps=100, decrease=1e-6)
    return float((ends.points[0] - data).norm() / data.norm())


# ------------------------------------------------------------------ a trained layer


def attack(setup: AttentionNewton, layer: Heads, x: Tensor, start: Tensor) -> Row:
    """Levenberg–Marquardt from blind starts on one input x (d, n), in rounds of `target_steps`
    trials (contest.py).

    late: starts given up that recover when followed; best_error: of the polished end of least
    residual.
    """
    data, b = att.vec(x), layer.outputs(x)
    least = equations(layer, b)

    def once(points: Tensor, rounds: int) -> Round:
        ends = levenberg_marquardt(least, points, max_steps=rounds * setup.target_steps)
        return Round(ends.points, ends.square, ends.steps, ends.capped)

    run = in_rounds(once, start, least.value(start).square().sum(-1), setup.progress, anew=True)
    beyond = followed(once, run, start, setup.further_rounds, anew=True)
    late = ended(least, beyond, data, b).error <= setup.recovered if len(beyond) else torch.zeros(0)
    found = ended(least, run.points, data, b)
    right = found.error <= setup.recovered
    residual = least.value(found.points).norm(dim=-1).nan_to_num(torch.inf)
    best = found.points[int(residual.argmin())]
    spectrum = singular_values(layer, x)
    solutions = distinct(found.points[found.exact])
    wrong = int(((solutions - data).norm(dim=-1) / data.norm() > setup.recovered).sum())
    return {
        "starts": len(start),
        "recovered": int(right.sum()),
        "exact": int(found.exact.sum()),
        "wrong": int((found.exact & ~right).sum()),
        "distinct_wrong": wrong,
        "given_up": int(run.given_up.sum()),
        "late": int(late.sum()),
        "rounds": int(run.rounds.max()),
        "best_error": float((best - data).norm() / data.norm()),
        "unknowns": data.numel(),
        "equations": b.numel(),
        "rank": rank_of(spectrum),
        "sigma_min": float(spectrum[-1]) if b.numel() >= data.numel() else 0.0,
        "protecting_noise": protecting_noise(layer, x, spectrum, 1e-2),
    }


def layer_rows(setup: AttentionNewton, ctx: Context) -> list[Row]:
    """Rows of `targets` for Experiment 5's regression network: first validation sequences, at init
    and at the end."""
    from runner.training.trained import train_regression

    settings = setup.model.network()
    trained = train_regression(settings, setup.dataset, setup.training, ctx)
    rows = []
    for checkpoint in ("init", "final"):
        stages: Any = trained.at(checkpoint).stages
        query, key, value = (stages[name].weight.detach().double() for name in "qkv")
        layer = Heads((key.mT @ query / len(query) ** 0.5).unsqueeze(0), value.mT.unsqueeze(0))
        for index in range(setup.sequences):
            x = trained.data.test.inputs[index].double().mT
            generator = ctx.torch_generator(f"attention_newton layer starts {index}")
            start = torch.randn(setup.target_starts, x.numel(), generator=generator, dtype=x.dtype)
            row = attack(setup, layer, x, start)
            about = {
                "target": "regression layer",
                "view": checkpoint,
                "input": index,
                "characters": math.nan,
                "loss": math.nan,
            }
            rows.append(about | row)
            ctx.progress(len(rows), 2 * setup.sequences)
    return rows
