"""The parts of the study, one function each: settings and context in, tables out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from experiments.certificates import of_hessian
from experiments.hsr.gradient.cost import cost, three_point
from runner.contract import Cell, Context, Table
from runner.curvature.closed_form import three_layer as tl
from runner.data.gaussian import sample
from runner.training.descent.descent import LossGradient, descend, duplicates
from runner.training.flatness.flatness import Regularised

if TYPE_CHECKING:
    from experiments.hsr.gradient.settings import HsrGradient

DTYPE = torch.float64
LIMIT_EXPONENTS = range(0, 13, 2)  # |delta| down to 1e-12 (Proposition 1)


def _uniform(ctx: Context, role: str, count: int, dimension: int, half_range: float) -> Tensor:
    return (2 * torch.rand(count, dimension, dtype=DTYPE, generator=ctx.torch_generator(role)) - 1) * half_range


def certificate(experiment: HsrGradient, ctx: Context) -> dict[str, Any]:
    """Row of `certificate`: the closed-form Hessian that every part is made of, at one random network."""
    x, q = sample(experiment.dataset, experiment.dataset.train, ctx, "data/train")
    dimension = tl.parameter_count(experiment.dataset.inputs, experiment.hidden)
    theta = _uniform(ctx, "starts", 1, dimension, experiment.training.half_range)[0]
    return of_hessian("Hessian", tl.hessian(theta, x, q), lambda t: tl.loss(t, x, q), theta, ctx)


def agreement(experiment: HsrGradient, ctx: Context) -> dict[str, Table]:
    """Fig. 3: every entry of the four gradients for one network, and the norm of the difference for many."""
    inputs, units = experiment.dataset.inputs, experiment.compared_hidden
    x, q = sample(experiment.dataset, experiment.dataset.train, ctx, "data/train")
    dimension, split = tl.parameter_count(inputs, units), units * (inputs + 1)
    thetas = _uniform(ctx, "agreement", experiment.draws, dimension, experiment.compared_range)
    entries: dict[str, list[Any]] = {key: [] for key in ("of", "block", "entry", "analytic", "numerical")}
    norms: dict[str, list[Any]] = {key: [] for key in ("of", "block", "draw", "difference_norm", "gradient_norm")}
    forms = {
        "trace": (tl.trace, tl.trace_gradient),
        "trace_of_square": (tl.trace_of_square, tl.trace_of_square_gradient),
    }
    for draw, theta in enumerate(thetas):
        for name, (value, gradient) in forms.items():
            exact = gradient(theta, x, q)
            numerical = three_point(value, theta, x, q, step=experiment.difference_step)
            for block, part in (("w", slice(0, split)), ("v", slice(split, None))):
                norms["of"].append(name)
                norms["block"].append(block)
                norms["draw"].append(draw)
                norms["difference_norm"].append(float((exact[part] - numerical[part]).norm()))
                norms["gradient_norm"].append(float(exact[part].norm()))
                if draw == 0:
                    count = len(exact[part])
                    entries["of"] += [name] * count
                    entries["block"] += [block] * count
                    entries["entry"] += range(count)
                    entries["analytic"] += exact[part].tolist()
                    entries["numerical"] += numerical[part].tolist()
    return {"agreement": entries, "difference_norms": norms}


def _bound_matrix(theta: Tensor, x: Tensor, q: Tensor) -> Tensor:
    """G with ∇λ_sup = ∇⟨G, H⟩ for constant G: 1/D + √((D−1)/D) (H − μ 1)/||H − μ 1||_F."""
    hessian, dimension = tl.hessian(theta, x, q), theta.shape[-1]
    unit = torch.eye(dimension, dtype=theta.dtype)
    deviation = hessian - unit * hessian.diagonal().mean()
    return unit / dimension + math.sqrt((dimension - 1) / dimension) * deviation / deviation.norm()


def sample_gradients(theta: Tensor, x: Tensor, q: Tensor, fixed: int) -> dict[str, Tensor]:
    """What each sample i contributes, (I, D) each: to ∇ tr H, to ∇ tr H² in the pair (i, fixed), and to ∇λ_sup.

    tr H² = Σ_ij ⟨H_i, H_j⟩, and by symmetry the pair's term is 2 ∇⟨H_i, H_j⟩ with H_j held constant (the factor h(x_i)
    of Theorem 4). The contributions to ∇λ_sup sum to it.
    """
    rows = range(len(q))
    partner = tl.hessian(theta, x[fixed : fixed + 1], q[fixed : fixed + 1])
    matrix = _bound_matrix(theta, x, q)

    def each(function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        return torch.stack([function(x[i : i + 1], q[i : i + 1]) for i in rows])

    return {
        "trace": each(lambda a, b: tl.trace_gradient(theta, a, b)),
        "pair": 2 * each(lambda a, b: tl.contraction_gradient(theta, a, b, partner)),
        "bound": each(lambda a, b: tl.contraction_gradient(theta, a, b, matrix)),
    }


def influence(experiment: HsrGradient, ctx: Context) -> dict[str, Table]:
    """Fig. 4 at trained networks, and Proposition 1: the contributions of a sample whose |delta| is made to vanish."""
    inputs, units = experiment.dataset.inputs, experiment.hidden
    x, q = sample(experiment.dataset, experiment.dataset.train, ctx, "data/train")
    dimension, split = tl.parameter_count(inputs, units), units * (inputs + 1)
    starts = _uniform(ctx, "starts", experiment.influence_starts, dimension, experiment.training.half_range)
    ends = descend(
        starts,
        LossGradient(x, q),
        rate=experiment.rate,
        max_steps=experiment.training.steps,
        stop_ratios=(experiment.stop_ratio,),
    ).final
    met = ends.converged.nonzero()[:, 0]
    unique = met[~duplicates(ends.theta[met])][: experiment.networks]
    fixed = experiment.fixed_sample
    rows: dict[str, list[Any]] = {key: [] for key in ("start", "sample", "error", "of", "block", "norm")}
    for start in unique.tolist():
        theta = ends.theta[start]
        error = (tl.predict(theta, x) - q).abs().tolist()
        for name, gradients in sample_gradients(theta, x, q, fixed).items():
            for block, part in (("w", slice(0, split)), ("v", slice(split, None))):
                rows["start"] += [start] * len(q)
                rows["sample"] += range(len(q))
                rows["error"] += error
                rows["of"] += [name] * len(q)
                rows["block"] += [block] * len(q)
                rows["norm"] += gradients[:, part].norm(dim=1).tolist()
    limit: dict[str, list[Any]] = {key: [] for key in ("start", "of", "error", "norm")}
    for start in unique.tolist():
        for exponent in LIMIT_EXPONENTS:
            moved = _with_error(ends.theta[start], x, q, split, 10.0**-exponent / 2)
            own = sample_gradients(moved, x[:2], q[:2], 1)
            for name in ("trace", "pair"):
                limit["start"].append(start)
                limit["of"].append(name)
                limit["error"].append(10.0**-exponent / 2)
                limit["norm"].append(float(own[name][0].norm()))
    return {"influence": rows, "vanishing_error": limit}


def _with_error(theta: Tensor, x: Tensor, q: Tensor, bias: int, error: float) -> Tensor:
    """theta with the output bias moved so that |delta| of sample 0 is `error`."""
    p = tl.predict(theta, x[:1])[0].clamp(1e-300, 1 - 1e-16)
    wanted = math.log(error / (1 - error)) * (1 - 2 * float(q[0]))
    moved = theta.clone()
    moved[bias] += wanted - float(torch.logit(p))
    return moved


def covariance(experiment: HsrGradient, ctx: Context) -> dict[str, Table]:
    """Fig. 5: quantiles of ||∇ tr H²|| over networks and data, by covariance of the inputs; class 1 is x₁ >= 0."""
    count, draws, units = experiment.covariance_samples, experiment.covariance_draws, experiment.hidden
    generator = ctx.torch_generator("covariance/data")
    noise = torch.randn(draws, count, 2, dtype=DTYPE, generator=generator)
    columns = ("activation", "half_range", "covariance", "q25", "q50", "q75")
    rows: dict[str, list[Any]] = {key: [] for key in columns}
    levels = torch.tensor([0.25, 0.5, 0.75], dtype=DTYPE)
    for half_range in experiment.half_range:
        thetas = _uniform(ctx, f"covariance/{half_range:g}", draws, tl.parameter_count(2, units), half_range)
        for activation in experiment.covariance_activation:
            for value in experiment.covariance:
                second = value * noise[..., 0] + math.sqrt(1 - value**2) * noise[..., 1]
                x = torch.stack([noise[..., 0], second], dim=-1)
                q = (noise[..., 0] >= 0).to(DTYPE)
                norms = torch.stack(
                    [
                        tl.trace_of_square_gradient(t, a, b, activation).norm()
                        for t, a, b in zip(thetas, x, q, strict=True)
                    ]
                )
                found = norms.quantile(levels).tolist()
                for key, entry in zip(columns, (activation, half_range, value, *found), strict=True):
                    rows[key].append(entry)
    return {"covariance": rows}


def terms(experiment: HsrGradient, ctx: Context) -> dict[str, Table]:
    """Fig. 6: norms of ∇μ and √(D−1) ∇σ at random networks."""
    x, q = sample(experiment.dataset, experiment.dataset.train, ctx, "data/train")
    dimension = tl.parameter_count(experiment.dataset.inputs, experiment.hidden)
    rows: dict[str, list[Any]] = {key: [] for key in ("half_range", "network", "mean_term", "std_term")}
    for half_range in experiment.half_range:
        thetas = _uniform(ctx, f"terms/{half_range:g}", experiment.term_draws, dimension, half_range)
        rows["half_range"] += [half_range] * len(thetas)
        rows["network"] += range(len(thetas))
        rows["mean_term"] += tl.mean_gradient(thetas, x, q).norm(dim=1).tolist()
        spread = math.sqrt(dimension - 1) * tl.std_gradient(thetas, x, q).norm(dim=1)
        rows["std_term"] += spread.tolist()
    return {"terms": rows}


def bound_descent(experiment: HsrGradient, ctx: Context) -> dict[str, Table]:
    """Fig. 7: descent on the bound alone (γ₁ = 0), and Proposition 2 on random spectra."""
    x, q = sample(experiment.dataset, experiment.dataset.train, ctx, "data/train")
    dimension = tl.parameter_count(experiment.dataset.inputs, experiment.hidden)
    starts = _uniform(ctx, "starts", experiment.bound_starts, dimension, experiment.training.half_range)
    direction = Regularised(x, q, "bound", loss_weight=0.0)
    result = descend(
        starts,
        direction,
        rate=experiment.bound_rate,
        max_steps=experiment.training.steps,
        stop_ratios=(1e-12,),
        record=range(len(starts)),
        record_every=experiment.record_every,
    )
    paths: dict[str, list[Any]] = {key: [] for key in ("start", "step", "lambda_sup", "lambda_inf", "mean", "std")}
    paths |= {f"lambda_{k}": [] for k in range(1, dimension + 1)}
    for start, path in result.trajectories.items():
        mean, std = tl.mean_and_std(path.theta, x, q)
        spectrum = torch.linalg.eigvalsh(tl.hessian(path.theta, x, q)).flip(-1)
        paths["start"] += [start] * len(path.steps)
        paths["step"] += path.steps.tolist()
        paths["lambda_sup"] += tl.upper_bound(path.theta, x, q).tolist()
        paths["lambda_inf"] += tl.lower_bound(path.theta, x, q).tolist()
        paths["mean"] += mean.tolist()
        paths["std"] += std.tolist()
        for k in range(dimension):
            paths[f"lambda_{k + 1}"] += spectrum[:, k].tolist()
    return {"bound_descent": paths, "narrowed": _narrowed(ctx, dimension)}


def _narrowed(ctx: Context, dimension: int) -> dict[str, Any]:
    """Proposition 2: random spectra, and the same drawn toward their mean; how far both bounds move inward."""
    from runner.curvature.spectra.bounds import wolkowicz_styan_lower, wolkowicz_styan_upper

    generator = ctx.torch_generator("narrowed")
    spectra = torch.randn(200, dimension, dtype=DTYPE, generator=generator) * 10
    share = torch.rand(200, 1, dtype=DTYPE, generator=generator) * 0.99
    narrow = spectra.mean(1, keepdim=True) + share * (spectra - spectra.mean(1, keepdim=True))
    before, after = ((s.sum(1), s.square().sum(1)) for s in (spectra, narrow))
    return {
        "draw": range(200),
        "upper_falls_by": wolkowicz_styan_upper(dimension, *before) - wolkowicz_styan_upper(dimension, *after),
        "lower_rises_by": wolkowicz_styan_lower(dimension, *after) - wolkowicz_styan_lower(dimension, *before),
    }


PARTS: dict[str, Callable[[HsrGradient, Context], dict[str, Table]]] = {
    "cost": cost,
    "agreement": agreement,
    "influence": influence,
    "covariance": covariance,
    "terms": terms,
    "descent": bound_descent,
}


def measure(experiment: HsrGradient, cell: Cell, ctx: Context) -> dict[str, Table]:
    """The tables of one part, and the certificate."""
    tables = PARTS[str(cell.params["part"])](experiment, ctx)
    return {**tables, "certificate": [certificate(experiment, ctx)]}
