"""The estimated bound of a three-layer network against its closed form."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from experiments.certificates import of_hessian
from runner.contract import Cell, Context, Table
from runner.curvature.closed_form import three_layer as tl
from runner.data.gaussian import gaussian_classes
from runner.kinds.dataset import GaussianData
from runner.training.flatness.stochastic import combine

if TYPE_CHECKING:
    from experiments.hsr.stochastic.settings import HsrStochastic


def measure(experiment: HsrStochastic, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Mean and spread of the estimated bound of a three-layer network against its closed form, by number of probes.

    Probes multiply the closed-form Hessian, which gives the same numbers as products by differentiation.
    """
    data = GaussianData()
    x, q = gaussian_classes(data.train, data.inputs, data.mean, data.variance, ctx.torch_generator("data/train"))
    dimension = tl.parameter_count(data.inputs, experiment.hidden)
    theta = 4 * torch.rand(dimension, dtype=torch.float64, generator=ctx.torch_generator("theta")) - 2
    hessian, exact = tl.hessian(theta, x, q), float(tl.upper_bound(theta, x, q))
    rows: dict[str, list[Any]] = {key: [] for key in ("probes", "exact", "mean", "rms_error", "standard_error")}
    for count in experiment.probe_counts:
        generator = ctx.torch_generator(f"estimate/{count}")
        z = torch.randint(0, 2, (experiment.repeats, count, dimension), generator=generator).double() * 2 - 1
        image = z @ hessian
        forms, squares = (z * image).sum(-1), image.square().sum(-1)
        bounds = combine(forms, squares, dimension).bound
        entries = (
            count,
            exact,
            float(bounds.mean()),
            float((bounds - exact).square().mean().sqrt()),
            float(bounds.std()) / math.sqrt(experiment.repeats),
        )
        for key, entry in zip(rows, entries, strict=True):
            rows[key].append(entry)
    return {"estimate": rows, "certificate": [of_hessian("Hessian", hessian, lambda t: tl.loss(t, x, q), theta, ctx)]}
