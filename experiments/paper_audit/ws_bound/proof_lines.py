"""WS-bound paper, Appendix B: lines of the proofs, and facts that Sections II to V state in
passing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.func import jacrev

from experiments.paper_audit import three_layer_pairs as t
from experiments.paper_audit.checks import Check, Checks, Errors, excess, relative_error
from experiments.paper_audit.formulas import Formula, lifted, outer
from experiments.paper_audit.radicals import general_quintic
from experiments.paper_audit.tensors import gauss, kron as product, ones, seeded, unit, zeros
from experiments.paper_audit.three_layer import (
    Instance,
    Sample,
    derivative,
    equality,
    instances,
)
from experiments.paper_audit.three_layer_terms import (
    F01,
    delta,
    hr,
    hx,
    on_pair,
    p,
    q,
    s1,
    slope,
)
from experiments.paper_audit.ws_bound.squares import PAIRED, dense_square, gram, pairwise
from experiments.paper_audit.ws_bound.traces import (
    block_vv,
    block_vw,
    block_wv,
    block_ww,
    hidden_ww,
    stacked,
    total,
    trace,
    vv,
    ww,
)

CHECKS = Checks()


def by_theta(instance: Instance, quantity: Callable[[Sample], Tensor]) -> Tensor:
    """d quantity / dθ of the first sample in denominator layout, by automatic differentiation."""
    return instance.jacobian(lambda i, j: quantity(i), 0, 0)


def of_first(
    part: Callable[[Instance], slice], quantity: Callable[[Sample], Tensor], printed: Formula
) -> Check:
    """d quantity / d part = printed, on the first sample."""
    return equality(lambda c: printed(c.samples[0]), lambda c: by_theta(c, quantity)[part(c)])


def of_w(instance: Instance) -> slice:
    return instance.w


def of_v(instance: Instance) -> slice:
    return instance.v


def chain(instance: Instance) -> Tensor:
    """Jacobians of Eq. 51 in one vector: ∂y/∂W = h(x) ⊗ E, ∂r/∂y, ∂h(r)/∂r, ∂z/∂h(r)."""
    i = instance.samples[0]
    eye = unit(len(i.y))
    by_column = product(i.hx[:, None], eye)
    padded = torch.cat([zeros(len(i.y), 1), eye], 1)
    parts = (by_column, i.F(1), padded, i.full)
    return torch.cat([part.flatten() for part in parts])


def dense_chain(instance: Instance) -> Tensor:
    """The same by automatic differentiation."""
    i = instance.samples[0]
    by_y = jacrev(derivative(i.name, 0))(i.y).T
    by_r = jacrev(lambda r: torch.cat([ones(1), r]))(i.f).T
    by_hr = jacrev(lambda extended: i.full @ extended)(i.hr)
    by_w = by_theta(instance, lambda sample: sample.y)[instance.w]
    parts = (by_w, by_y, by_r, by_hr)
    return torch.cat([part.flatten() for part in parts])


CHECKS["ws.eq51"] = equality(chain, dense_chain)


def loss_of_output(output: Tensor, label: Tensor) -> Tensor:
    """Eq. 4 as a function of p."""
    return -label * output.log() - (1 - label) * (1 - output).log()


stack = lifted(torch.stack)
by_output = stack([p * (1 - p), (p - q) / (p * (1 - p))])
"""Eq. 52: ∂p/∂z and ∂l/∂p."""


def dense_by_output(instance: Instance) -> Tensor:
    i = instance.samples[0]
    slope_of_output = jacrev(torch.sigmoid)(i.z)
    slope_of_loss = jacrev(loss_of_output)(i.p, i.q)
    return torch.stack([slope_of_output, slope_of_loss])


CHECKS["ws.eq52"] = equality(lambda c: by_output(c.samples[0]), dense_by_output)


def sample_loss(i: Sample) -> Tensor:
    return loss_of_output(i.p, i.q)


def dense_loss(instance: Instance) -> Tensor:
    return torch.stack([sample_loss(i) for i in instance.samples]).sum()


kron = lifted(product)
CHECKS["ws.eq54"] = of_first(of_w, sample_loss, kron(hx, delta * slope))
CHECKS["ws.eq55"] = of_first(of_v, lambda i: i.z, hr)
CHECKS["ws.eq56"] = of_first(of_v, sample_loss, delta * hr)
CHECKS["ws.eq62"] = of_first(of_v, lambda i: i.delta, s1 * hr)


def column_rule(instance: Instance) -> Tensor:
    """Eq. 58: x_m ∂/∂y of p and of the network's loss, column by column of W."""
    i = instance.samples[0]

    def of_preactivation(y: Tensor) -> Tensor:
        z = i.full[0] + i.V @ derivative(i.name, 0)(y)
        output = torch.sigmoid(z)
        return torch.stack([output, loss_of_output(output, i.q)])

    return product(i.hx[:, None], jacrev(of_preactivation)(i.y).T)


def dense_columns(instance: Instance) -> Tensor:
    return by_theta(instance, lambda i: torch.stack([i.p, sample_loss(i)]))[instance.w]


CHECKS["ws.eq58"] = equality(column_rule, dense_columns)


def by_preactivation(instance: Instance) -> Tensor:
    """∂p/∂y by automatic differentiation."""
    i = instance.samples[0]

    def output(y: Tensor) -> Tensor:
        return torch.sigmoid(i.full[0] + i.V @ derivative(i.name, 0)(y))

    return jacrev(output)(i.y)


CHECKS["ws.eq60"] = equality(lambda c: (s1 * slope)(c.samples[0]), by_preactivation)


def of_columns(instance: Instance) -> Tensor:
    """Eq. 61: blocks x_m x_n (s' F'ṼᵀṼF' + δ diag(Ṽᵀ) F'') of the columns of W, first sample."""
    i = instance.samples[0]
    return torch.kron(torch.outer(i.hx, i.hx), hidden_ww(i))


def first_ww(instance: Instance) -> Tensor:
    return ww(replace(instance, x=instance.x[:1], q=instance.q[:1]))


CHECKS["ws.eq61"] = equality(of_columns, first_ww)


def sums_of_traces(instance: Instance) -> Tensor:
    """Eq. 66: Σ_i tr H_i of the blocks (w, w) and (v, v)."""
    return total(stack([trace(block_ww), trace(block_vv)]))(instance)


def dense_traces(instance: Instance) -> Tensor:
    return torch.stack([ww(instance).trace(), vv(instance).trace()])


CHECKS["ws.eq66"] = equality(sums_of_traces, dense_traces)


wv_i, wv_j = on_pair(block_wv)
vw_i, vw_j = on_pair(block_vw)
ww_i, ww_j = on_pair(block_ww)
vv_i, vv_j = on_pair(block_vv)
first_block = ww_i @ ww_j + wv_i @ vw_j
second_block = vw_i @ wv_j + vv_i @ vv_j


def square_by_blocks(instance: Instance) -> Tensor:
    """Eq. 69 with the blocks that follow it."""
    return gram(instance, trace(first_block) + trace(second_block)).sum()


CHECKS["ws.eq69"] = equality(square_by_blocks, dense_square, PAIRED)

curved_i, curved_j = on_pair(hidden_ww)
"""A_2 and B_2 of Lemma 4."""
inputs_i, inputs_j = on_pair(outer(hx, hx))
CHECKS["ws.eq75"] = pairwise(
    trace(ww_i @ ww_j), trace(inputs_i @ inputs_j) * trace(curved_i @ curved_j)
)
CHECKS["ws.eq76"] = pairwise(trace(inputs_i @ inputs_j), t.inputs**2)

deltai, deltaj = on_pair(delta)
diag = lifted(torch.diag)
bent_i = diag(t.V) @ t.F2i
bent_j = diag(t.V) @ t.F2j
steep_i = outer(t.F1i @ t.V, t.F1i @ t.V)
steep_j = outer(t.F1j @ t.V, t.F1j @ t.V)
traces_of_four = stack(
    [
        trace(t.s1i * t.s1j * (steep_i @ steep_j)),
        trace(t.s1i * deltaj * (steep_i @ bent_j)),
        trace(t.s1j * deltai * (bent_i @ steep_j)),
        trace(deltai * deltaj * (bent_i @ bent_j)),
    ]
)
printed_four = stack(
    [
        t.s1i * t.s1j * t.signed**2,
        t.s1i * deltaj * t.phi_12,
        t.s1j * deltai * t.phi_21,
        deltai * deltaj * (t.V @ t.F2i @ t.F2j @ t.V),
    ]
)
"""Eqs. 77, 78, 79 and 81."""
CHECKS["ws.eq77"] = pairwise(traces_of_four, printed_four)

row = lifted(lambda values: values[None])
column = lifted(lambda values: values[:, None])
CHECKS["ws.eq84"] = pairwise(trace(column(t.hxi) @ row(t.hxj)), t.inputs)

hr_i, hr_j = on_pair(hr)
F01_i, F01_j = on_pair(F01)
from_output_i = outer(t.F1i @ t.V, hr_i)
to_output_j = outer(hr_j, t.F1j @ t.V)
traces_of_five = stack(
    [
        trace(t.s1i * t.s1j * (from_output_i @ to_output_j)),
        trace(t.s1i * deltaj * (from_output_i @ F01_j)),
        trace(t.s1j * deltai * (F01_i.T @ to_output_j)),
        trace(deltai * deltaj * (F01_i.T @ F01_j)),
    ]
)
printed_five = stack(
    [
        t.s1i * t.s1j * t.hidden * t.signed,
        t.s1i * deltaj * t.psi_12,
        t.s1j * deltai * t.psi_21,
        deltai * deltaj * (t.d1i @ t.d1j),
    ]
)
"""Eqs. 85 to 88."""
CHECKS["ws.eq85"] = pairwise(traces_of_five, printed_five)

traces_of_blocks = stack([trace(ww_i @ ww_j), trace(wv_i @ vw_j), trace(vv_i @ vv_j)])
by_products = stack([t.phi * t.inputs**2, t.psi * t.inputs, t.omega * t.hidden**2])
CHECKS["ws.eq91"] = pairwise(traces_of_blocks, by_products)


@CHECKS.clause("ws.eq6.extremes")
def directions() -> Errors:
    """Section IV-B: u_1 is the direction of the largest second derivative, and with λ_D > 0 every
    direction has a positive one."""
    generator = seeded(0)
    for instance in instances():
        values, vectors = torch.linalg.eigh(instance.hessian)
        scale = float(values.abs().max())
        others = gauss(generator, 20, len(values))
        squares = ((others @ instance.hessian) * others).sum(1) / others.square().sum(1)
        first = vectors[:, -1]
        along = float(first @ instance.hessian @ first)
        yield float(squares.max() - along) / scale
        lifted_hessian = instance.hessian - (values[0] - 0.1 * scale) * unit(len(values))
        curved = ((others @ lifted_hessian) * others).sum(1) / others.square().sum(1)
        yield float(0.1 * scale - curved.min()) / scale


@CHECKS.clause("ws.taylor", tolerance=0.3)
def remainder() -> Errors:
    """Section IV-A: exponent of |L − its second-order expansion| in the length of the step, from
    3."""
    generator = seeded(0)
    for instance in instances(sizes=((2, 3, 5),)):
        step = gauss(generator, len(instance.theta))
        step = step / step.norm()
        sizes = [remainder_at(instance, length * step) for length in (4e-2, 1e-2)]
        yield abs(math.log(sizes[0] / sizes[1], 4) - 3)


def remainder_at(instance: Instance, step: Tensor) -> float:
    """|L(θ + step) − L − ∇L·step − ½ step·H·step|."""

    def value(theta: Tensor) -> Tensor:
        return dense_loss(Instance(instance.name, theta, instance.x, instance.q))

    linear = instance.gradient @ step
    quadratic = 0.5 * step @ instance.hessian @ step
    moved = value(instance.theta + step) - value(instance.theta)
    return abs(float(moved - linear - quadratic))


def from_traces(instance: Instance) -> Tensor:
    """(μ, σ²) of Eqs. 8 and 9."""
    hessian = instance.hessian
    mean = hessian.trace() / len(hessian)
    return torch.stack([mean, hessian.square().sum() / len(hessian) - mean**2])


def naive(instance: Instance) -> Tensor:
    """Mean and variance of the eigenvalues."""
    values = torch.linalg.eigvalsh(instance.hessian)
    return torch.stack([values.mean(), (values - values.mean()).square().mean()])


CHECKS["ws.eq8"] = equality(from_traces, naive)


def samuelson(values: Tensor) -> Tensor:
    """Largest value that Samuelson's inequality admits: mean + √(n − 1) standard deviations."""
    return values.mean() + math.sqrt(len(values) - 1) * values.std(correction=0)


@CHECKS.clause("ws.samuelson")
def samuelsons_inequality() -> Errors:
    """Section IV-B: Eqs. 7 to 9 against Samuelson's inequality for the eigenvalues; the inequality
    on random numbers, and its equality where all but one are equal."""
    for instance in instances():
        mean, variance = from_traces(instance)
        bound = mean + ((len(instance.theta) - 1) * variance).sqrt()
        values = torch.linalg.eigvalsh(instance.hessian)
        yield relative_error(bound, samuelson(values))
    generator = seeded(0)
    for size in (2, 5, 13):
        for values in gauss(generator, 20, size):
            yield float(values.max() - samuelson(values))
        alone = zeros(size)
        alone[0] = 1.0
        yield relative_error(alone.max(), samuelson(alone))


CHECKS.clause("ws.degree_five")(general_quintic)


@CHECKS.clause("ws.section2.trace")
def trace_as_indicator() -> Errors:
    """Section II: tr H is the sum of the eigenvalues, and tr H / D <= λ_1 <= tr H where they are
    positive."""
    for instance in instances():
        values = torch.linalg.eigvalsh(instance.hessian)
        yield relative_error(values.sum(), instance.hessian.trace())
        positive = values - values[0] + 0.1 * values.abs().max()
        largest = float(positive.max())
        yield excess(largest, float(positive.sum()))
        yield excess(float(positive.mean()), largest)


@CHECKS.clause("ws.squares")
def sum_of_squares() -> Errors:
    """Section V-D: tr H² = Σ λ_d² >= 0, tr H = Σ λ_d."""
    for instance in instances():
        values = torch.linalg.eigvalsh(instance.hessian)
        squared = (instance.hessian @ instance.hessian).trace()
        yield relative_error(values.square().sum(), squared)
        yield -float(squared)


def loss_from_errors(instance: Instance) -> Tensor:
    """−Σ log(1 − |δ_i|)."""
    return -(1 - stacked(instance, delta).abs()).log().sum()


CHECKS["ws.section5e"] = equality(loss_from_errors, dense_loss)
