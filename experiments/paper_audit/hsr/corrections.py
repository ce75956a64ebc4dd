"""Corrections of the errata of the HSR paper on the family of simplest networks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from experiments.paper_audit.checks import apart, relative_error
from experiments.paper_audit.corrections import Corrections
from experiments.paper_audit.family import linear, three_layer
from experiments.paper_audit.hsr import gradients
from experiments.paper_audit.hsr.gradients import moments
from experiments.paper_audit.hsr.propositions import excess_share
from experiments.paper_audit.scalar.linear import spectrum
from experiments.paper_audit.scalar.networks import Linear
from experiments.paper_audit.tensors import norm_of
from experiments.paper_audit.three_layer import Instance

CORRECTIONS = Corrections()
Errors = Iterator[float]


@CORRECTIONS.on(three_layer, "hsr.proposition1")
def share_of_a_sample(case: Instance) -> Errors:
    yield excess_share(case)


def ends_of(hessian: Tensor) -> tuple[Tensor, Tensor]:
    """(λ_sup, λ_inf) from the traces of H and H²."""
    dimension = len(hessian)
    mean = hessian.trace() / dimension
    variance = (hessian @ hessian).trace() / dimension - mean**2
    reach = ((dimension - 1) * variance).sqrt()
    return mean + reach, mean - reach


def slopes(case: Instance) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """∇λ_sup, ∇λ_inf, ∇μ and ∇σ by automatic differentiation, each of its own formula."""
    upper = gradients.gradient_of(case, lambda h: ends_of(h)[0])
    lower = gradients.gradient_of(case, lambda h: ends_of(h)[1])
    by_mean = gradients.gradient_of(case, lambda h: h.trace() / len(h))
    by_std = gradients.gradient_of(case, lambda h: moments(h)[1])
    return upper, lower, by_mean, by_std


@CORRECTIONS.on(three_layer, "hsr.section5e", tolerance=1e-6)
def slope_of_the_lower_bound(case: Instance) -> Errors:
    """dλ_inf/dt = (D − 1) |∇σ|² − |∇μ|² along −∇λ_sup."""
    upper, lower, by_mean, by_std = slopes(case)
    size = len(case.theta) - 1
    formula = size * by_std @ by_std - by_mean @ by_mean
    scale = size * by_std @ by_std + by_mean @ by_mean
    yield abs(float((-lower @ upper - formula) / scale))


@CORRECTIONS.on(three_layer, "hsr.section4a", tolerance=1e-6)
def slopes_of_both(case: Instance) -> Errors:
    """dμ/dt + √(D − 1) dσ/dt = −|∇λ_sup|², each by its own scalar product."""
    upper, _, by_mean, by_std = slopes(case)
    factor = math.sqrt(len(case.theta) - 1)
    falls = -(by_mean @ upper) - factor * by_std @ upper
    scale = upper @ upper
    yield abs(float((falls + scale) / scale))


@CORRECTIONS.on(three_layer, "hsr.sam")
def perturbation(case: Instance) -> Errors:
    """A-SAM's perturbation has the radius in the coordinates θ/|θ|."""
    scale = case.theta.abs()
    scaled = scale * case.gradient
    if norm_of(scaled):
        step = scale * scaled / scaled.norm()
        nonzero = scale > 0
        yield abs(norm_of(step[nonzero] / scale[nonzero]) - 1)


@CORRECTIONS.on(three_layer, "hsr.section5c")
def repeated_samples(case: Instance) -> Errors:
    """μ and σ are of degree one in H: with every sample twice both are twice as large."""
    twice = Instance(case.name, case.theta, case.x.repeat(2, 1), case.q.repeat(2))
    of_once = moments(case.hessian)[:2]
    of_twice = moments(twice.hessian)[:2]
    for once, doubled in zip(of_once, of_twice, strict=True):
        yield abs(float(doubled - 2 * once)) / max(abs(float(once)), 1e-12)


@CORRECTIONS.on(three_layer, "hsr.saddles")
def lower_bound(case: Instance) -> Errors:
    """λ_inf = 2 μ − λ_sup <= λ_D."""
    upper, lower = ends_of(case.hessian)
    mean = case.hessian.trace() / len(case.theta)
    values = torch.linalg.eigvalsh(case.hessian)
    scale = max(float(values.abs().max()), 1e-12)
    yield abs(float(lower - 2 * mean + upper)) / scale
    yield float(lower - values[0]) / scale


@CORRECTIONS.on(three_layer, "hsr.root")
def symbol(case: Instance) -> Errors:
    """(Φ_ij)_11^{1/2} = Σ_n v_n² f'(y_jn) f'(y_in)."""
    for i in case.samples:
        for j in case.samples:
            product = i.V @ j.F(1) @ i.F(1) @ i.V
            formula = (i.V**2 * j.d(1) * i.d(1)).sum()
            yield abs(float(product - formula))


@CORRECTIONS.on(three_layer, "hsr.cost")
def squares_of_entries(case: Instance) -> Errors:
    """tr H² = Σ_ij H_ij²."""
    square = float((case.hessian @ case.hessian).trace())
    yield apart(float(case.hessian.square().sum()), square)


@CORRECTIONS.on(linear, "hsr.degree_five")
def closed_form(case: Linear) -> Errors:
    """Linear networks of one input have closed-form eigenvalues at D >= 5."""
    if len(case.eigenvalues) >= 5:
        yield relative_error(spectrum(case), case.eigenvalues)
