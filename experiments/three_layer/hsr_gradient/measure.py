"""The parts of the study, one function each: settings and context in, tables out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from experiments.certificates import of_hessian
from experiments.three_layer.ends import columns, uniform
from experiments.three_layer.flatness import Regularised
from experiments.three_layer.hsr_gradient.cost import cost, three_point
from experiments.three_layer.hsr_gradient.settings import HsrGradient
from experiments.three_layer.network import Network, distinct
from runner.closed_form import three_layer as tl
from runner.contract import Cell, Context, Table
from runner.curvature.spectra.bounds import wolkowicz_styan_lower, wolkowicz_styan_upper
from runner.data.synthetic import sample
from runner.training.descent.descent import descend

DTYPE = torch.float64
FORMS = {
    "trace": (tl.trace, tl.trace_gradient),
    "trace_of_square": (tl.trace_of_square, tl.trace_of_square_gradient),
}
"""Quantity of the Hessian -> its closed form and that of its gradient."""
LIMIT_EXPONENTS = range(0, 13, 2)  # |delta| down to 1e-12 (Proposition 1)


@dataclass(frozen=True)
class _Problem(Network):
    """Training data of the seed, and random networks on them with so many hidden units."""

    experiment: HsrGradient
    ctx: Context
    units: int

    @classmethod
    def of(cls, experiment: HsrGradient, ctx: Context, units: int) -> _Problem:
        data = experiment.dataset
        x, q = sample(data, data.train, ctx, "data/train")
        return cls(x, q, experiment, ctx, units, activation="sigmoid")

    @property
    def dimension(self) -> int:
        """D."""
        return tl.parameter_count(self.x.shape[1], self.units)

    @property
    def split(self) -> int:
        """How many of the D parameters are W; the output bias is the next."""
        return self.units * (self.x.shape[1] + 1)

    @property
    def blocks(self) -> dict[str, slice]:
        """Where w and v stand among the parameters."""
        return {"w": slice(self.split), "v": slice(self.split, None)}

    def thetas(self, role: str, count: int, half_range: float) -> Tensor:
        """Parameters (count, D), uniform within ± half_range."""
        return uniform(count, self.dimension, half_range, self.ctx.torch_generator(role))

    def starts(self, count: int) -> Tensor:
        """Starts of a descent (count, D)."""
        return self.thetas("starts", count, self.experiment.training.half_range)


def certificate(experiment: HsrGradient, ctx: Context) -> dict[str, Any]:
    """Row of `certificate`: the closed-form Hessian that every part is made of, at one random
    network.
    """
    p = _Problem.of(experiment, ctx, experiment.hidden)
    theta = p.starts(1)[0]
    return of_hessian("Hessian", p.hessian(theta), p.loss, theta, ctx)


def agreement(experiment: HsrGradient, ctx: Context) -> dict[str, Table]:
    """Fig. 3: every entry of the four gradients for one network, and the norm of the difference for
    many.
    """
    p = _Problem.of(experiment, ctx, experiment.compared_hidden)
    thetas = p.thetas("agreement", experiment.draws, experiment.compared_range)
    entries = []
    norms = []
    for (draw, theta), name in product(enumerate(thetas), FORMS):
        value, gradient = FORMS[name]
        exact = gradient(theta, p.x, p.q)
        numerical = three_point(value, theta, p.x, p.q, step=experiment.difference_step)
        for block, part in p.blocks.items():
            analytic = exact[part]
            difference = analytic - numerical[part]
            norms.append((name, block, draw, float(difference.norm()), float(analytic.norm())))
            if draw == 0:
                pairs = zip(analytic.tolist(), numerical[part].tolist(), strict=True)
                entries += [(name, block, k, *pair) for k, pair in enumerate(pairs)]
    of_entries = ("of", "block", "entry", "analytic", "numerical")
    of_norms = ("of", "block", "draw", "difference_norm", "gradient_norm")
    return {
        "agreement": columns(of_entries, entries),
        "difference_norms": columns(of_norms, norms),
    }


def _bound_matrix(theta: Tensor, x: Tensor, q: Tensor) -> Tensor:
    """G with ∇λ_sup = ∇⟨G, H⟩ for constant G: 1/D + √((D−1)/D) (H − μ 1)/||H − μ 1||_F."""
    hessian = tl.hessian(theta, x, q)
    dimension = theta.shape[-1]
    unit = torch.eye(dimension, dtype=theta.dtype)
    deviation = hessian - unit * hessian.diagonal().mean()
    share = math.sqrt((dimension - 1) / dimension)
    return unit / dimension + share * deviation / deviation.norm()


def sample_gradients(theta: Tensor, x: Tensor, q: Tensor, fixed: int) -> dict[str, Tensor]:
    """What each sample i contributes, (I, D) each: to ∇ tr H, to ∇ tr H² in the pair (i, fixed),
    and to ∇λ_sup.

    tr H² = Σ_ij ⟨H_i, H_j⟩, and by symmetry the pair's term is 2 ∇⟨H_i, H_j⟩ with H_j held constant
    (the factor h(x_i) of Theorem 4). The contributions to ∇λ_sup sum to it.
    """
    samples = list(zip(x.split(1), q.split(1), strict=True))
    partner = tl.hessian(theta, *samples[fixed])
    matrix = _bound_matrix(theta, x, q)
    traces = []
    pairs = []
    bounds = []
    for example in samples:
        traces.append(tl.trace_gradient(theta, *example))
        pairs.append(tl.contraction_gradient(theta, *example, partner))
        bounds.append(tl.contraction_gradient(theta, *example, matrix))
    return {
        "trace": torch.stack(traces),
        "pair": 2 * torch.stack(pairs),
        "bound": torch.stack(bounds),
    }


def influence(experiment: HsrGradient, ctx: Context) -> dict[str, Table]:
    """Fig. 4 at trained networks, and Proposition 1: the contributions of a sample whose |delta| is
    made to vanish.
    """
    p = _Problem.of(experiment, ctx, experiment.hidden)
    fixed = experiment.fixed_sample
    starts = p.starts(experiment.influence_starts)
    ends = p.descended(starts, experiment.rate, experiment.training.steps, experiment.stop_ratio)
    unique = distinct(ends)[: experiment.networks].tolist()
    rows = []
    limit = []
    for start in unique:
        theta = ends.theta[start]
        errors = (tl.predict(theta, p.x) - p.q).abs().tolist()
        gradients = sample_gradients(theta, p.x, p.q, fixed)
        for name, (block, part) in product(gradients, p.blocks.items()):
            norms = gradients[name][:, part].norm(dim=1).tolist()
            for i, (error, norm) in enumerate(zip(errors, norms, strict=True)):
                rows.append((start, i, error, name, block, norm))
        for exponent in LIMIT_EXPONENTS:
            size = 10.0**-exponent / 2
            moved = _with_error(theta, p.x, p.q, p.split, size)
            vanishing = sample_gradients(moved, p.x[:2], p.q[:2], 1)
            for name in ("trace", "pair"):
                norm = vanishing[name][0].norm()
                limit.append((start, name, size, float(norm)))
    return {
        "influence": columns(("start", "sample", "error", "of", "block", "norm"), rows),
        "vanishing_error": columns(("start", "of", "error", "norm"), limit),
    }


def _with_error(theta: Tensor, x: Tensor, q: Tensor, bias: int, error: float) -> Tensor:
    """theta with the output bias moved so that |delta| of sample 0 is `error`."""
    p = tl.predict(theta, x[:1])[0].clamp(1e-300, 1 - 1e-16)
    present = float(torch.logit(p))
    wanted = math.log(error / (1 - error)) * (1 - 2 * float(q[0]))
    moved = theta.clone()
    moved[bias] += wanted - present
    return moved


def covariance(experiment: HsrGradient, ctx: Context) -> dict[str, Table]:
    """Fig. 5: quantiles of ||∇ tr H²|| over networks and data, by covariance of the inputs; class 1
    is x₁ >= 0.
    """
    draws = experiment.covariance_draws
    shape = (draws, experiment.covariance_samples, 2)
    generator = ctx.torch_generator("covariance/data")
    noise = torch.randn(shape, dtype=DTYPE, generator=generator)
    first = noise[..., 0]
    second = noise[..., 1]
    q = (first >= 0).to(DTYPE)
    levels = torch.tensor([0.25, 0.5, 0.75], dtype=DTYPE)
    dimension = tl.parameter_count(2, experiment.hidden)
    rows = []
    for half_range in experiment.half_range:
        generator = ctx.torch_generator(f"covariance/{half_range:g}")
        thetas = uniform(draws, dimension, half_range, generator)
        for activation, value in product(experiment.covariance_activation, experiment.covariance):
            mixed = value * first + math.sqrt(1 - value**2) * second
            x = torch.stack([first, mixed], dim=-1)
            norms = []
            for triple in zip(thetas, x, q, strict=True):
                norms.append(tl.trace_of_square_gradient(*triple, activation).norm())
            quartiles = torch.stack(norms).quantile(levels).tolist()
            rows.append((activation, half_range, value, *quartiles))
    names = ("activation", "half_range", "covariance", "q25", "q50", "q75")
    return {"covariance": columns(names, rows)}


def terms(experiment: HsrGradient, ctx: Context) -> dict[str, Table]:
    """Fig. 6: norms of ∇μ and √(D−1) ∇σ at random networks."""
    p = _Problem.of(experiment, ctx, experiment.hidden)
    rows = []
    for half_range in experiment.half_range:
        thetas = p.thetas(f"terms/{half_range:g}", experiment.term_draws, half_range)
        mean = tl.mean_gradient(thetas, p.x, p.q).norm(dim=1)
        std = tl.std_gradient(thetas, p.x, p.q).norm(dim=1)
        std_term = math.sqrt(p.dimension - 1) * std
        pairs = zip(mean.tolist(), std_term.tolist(), strict=True)
        rows += [(half_range, k, *pair) for k, pair in enumerate(pairs)]
    return {"terms": columns(("half_range", "network", "mean_term", "std_term"), rows)}


def bound_descent(experiment: HsrGradient, ctx: Context) -> dict[str, Table]:
    """Fig. 7: descent on the bound alone (γ₁ = 0), and Proposition 2 on random spectra."""
    p = _Problem.of(experiment, ctx, experiment.hidden)
    result = descend(
        p.starts(experiment.bound_starts),
        Regularised(p.x, p.q, "bound", loss_weight=0.0),
        rate=experiment.bound_rate,
        max_steps=experiment.training.steps,
        stop_ratios=(1e-12,),
        record=range(experiment.bound_starts),
        record_every=experiment.record_every,
    )
    rows = []
    for start, path in result.trajectories.items():
        args = (path.theta, *p.args)
        mean, std = tl.mean_and_std(*args)
        bounds = torch.stack([tl.upper_bound(*args), tl.lower_bound(*args), mean, std], dim=1)
        values = torch.cat([bounds, p.spectrum(path.theta).flip(-1)], dim=1)
        for step, row in zip(path.steps.tolist(), values.tolist(), strict=True):
            rows.append((start, step, *row))
    names = ["start", "step", "lambda_sup", "lambda_inf", "mean", "std"]
    names += [f"lambda_{k + 1}" for k in range(p.dimension)]
    return {"bound_descent": columns(names, rows), "narrowed": _narrowed(ctx, p.dimension)}


def _narrowed(ctx: Context, dimension: int) -> dict[str, Any]:
    """Proposition 2: random spectra, and the same drawn toward their mean; how far both bounds move
    inward.
    """
    generator = ctx.torch_generator("narrowed")
    draws = 200
    spectra = torch.randn(draws, dimension, dtype=DTYPE, generator=generator) * 10
    share = torch.rand(draws, 1, dtype=DTYPE, generator=generator) * 0.99
    mean = spectra.mean(1, keepdim=True)
    narrow = mean + share * (spectra - mean)
    upper = []
    lower = []
    for values in (spectra, narrow):
        sums = (values.sum(1), values.square().sum(1))
        upper.append(wolkowicz_styan_upper(dimension, *sums))
        lower.append(wolkowicz_styan_lower(dimension, *sums))
    return {
        "draw": range(draws),
        "upper_falls_by": upper[0] - upper[1],
        "lower_rises_by": lower[1] - lower[0],
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
