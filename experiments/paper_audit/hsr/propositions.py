"""HSR paper, Sections IV and V: the two propositions, and sentences on what a step of the method
does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from experiments.paper_audit.checks import Checks, Errors, Outcome, Worked, worked
from experiments.paper_audit.hsr import gradients
from experiments.paper_audit.hsr.derivatives import outer
from experiments.paper_audit.tensors import (
    gauss,
    norm_of,
    real,
    seeded,
    total,
    uniform,
    unit,
    zeros,
)
from experiments.paper_audit.three_layer import NAMES, Instance, instances

CHECKS = Checks()
PATH = (1e2, 1e5, 1e8)
"""Values of K."""


def shares(instance: Instance, k: int) -> Tensor:
    """Sample k's share of the four gradients (Eqs. 20, 24; 28, 46 with every other sample), in one
    vector."""
    samples = instance.samples
    i = samples[k]
    by_w = total(gradients.square_by_w(i, j) for j in samples)
    by_v = total(gradients.square_by_v(i, j) for j in samples)
    trace_by_w = outer(i.hx, gradients.trace_by_w(i))
    of_trace = [trace_by_w, gradients.trace_by_v(i)]
    square_by_w = 2 * outer(i.hx, by_w)
    return torch.cat([*of_trace, square_by_w, 2 * by_v])


def polynomial(instance: Instance) -> float:
    """60 I N (1 + max |x|²)^{5/2} (1 + |Ṽ|)⁵ (1 + max |r_j|)⁵, which times |δ_i| bounds the share
    of sample i.

    With labels 0 and 1, s' and |s''| are at most |δ|, every entry of o_j is at most 1, and |f'|,
    |f''| and the third derivative are at most 2; each term of the four gradients has at most five
    factors |Ṽ| and five factors |r|.
    """
    samples = instance.samples
    inputs = max(float(i.norm) for i in samples)
    hidden = max(norm_of(i.f) for i in samples)
    size = 60 * len(samples) * instance.units * inputs**2.5
    weights = (1 + norm_of(samples[0].V)) ** 5
    return size * weights * (1 + hidden) ** 5


def excess_share(instance: Instance) -> float:
    """Share of the first sample over |δ_1| times the polynomial, less 1."""
    error = abs(float(instance.samples[0].delta))
    if not error:
        return -1.0
    size = norm_of(shares(instance, 0))
    bound = error * polynomial(instance)
    return size / bound - 1


def cancelling(name: str, k: float, grows: bool) -> Instance:
    """Two equal units whose weights ±V cancel in z, c = log K takes p_1 to q_1 = 1; grows: V = K,
    else b = K."""
    unit, weight = (0.3, k) if grows else (k, 1.0)
    theta = real([unit, unit, 0.7, 0.7, math.log(k), weight, -weight])
    x = real([[0.5], [-0.3]])
    return Instance(name, theta, x, real([1.0, 0.0]))


def walk(name: str, grows: bool) -> list[Instance]:
    return [cancelling(name, k, grows) for k in PATH]


@CHECKS.clause("hsr.proposition1")
def proposition_one() -> Outcome:
    """p_1 → q_1 while the share of sample 1 grows: output weights that cancel (all activations),
    and fixed output weights with a growing bias (unbounded activations). Corrected: |δ_i| times the
    polynomial."""
    walks = [walk(name, True) for name in NAMES]
    bounded = ("linear", "softplus", "gelu")
    walks += [walk(name, False) for name in bounded]
    growth = []
    for path in walks:
        first = shares(path[0], 0)
        last = shares(path[-1], 0)
        growth.append(norm_of(last) / norm_of(first))
    cases = list(itertools.chain(*walks))
    for scale in (0.1, 1.0, 5.0):
        cases += instances(sizes=gradients.SMALL, scale=scale)
    excess = max(excess_share(case) for case in cases)
    least = min(growth)
    printed = least if least > 1 else 0.0
    witness = _witness_of_walk(walk("tanh", True))
    return Outcome(printed, excess, len(cases), witness)


def _witness_of_walk(path: list[Instance]) -> Worked:
    errors = [abs(float(case.samples[0].delta)) for case in path]
    sizes = [norm_of(shares(case, 0)) for case in path]
    return worked(
        "two equal tanh units (b = 0.3, W = 0.7), Ṽ = (K, −K), c = log K, x = (1/2, −0.3), "
        "q = (1, 0): p_1 = K/(1 + K)",
        "share of sample 1 → 0 as K → ∞",
        "at most |δ_1| times the polynomial",
        f"|δ_1| = {errors[0]:.2g}, {errors[-1]:.2g}; "
        f"share {sizes[0]:.3g}, {sizes[-1]:.3g} at K = 1e2, 1e8",
    )


Ends = tuple[float, float]
"""(λ_sup, λ_inf)."""


def ends(hessian: Tensor) -> Ends:
    """(λ_sup, λ_inf) of Eqs. 1, 2 and 61, from the traces of H and H²."""
    dimension = len(hessian)
    mean = float(hessian.trace()) / dimension
    variance = float(hessian.square().sum()) / dimension - mean**2
    reach = math.sqrt((dimension - 1) * max(variance, 0.0))
    return mean + reach, mean - reach


def ends_after(theta: Tensor, x: Tensor, q: Tensor, step: float = 0.0) -> Ends:
    """(λ_sup, λ_inf) of a sigmoid network after a step of this length against the gradient of
    λ_sup."""
    gradient = gradients.gradient_of(Instance("sigmoid", theta, x, q), gradients.bound)
    return ends(Instance("sigmoid", theta - step * gradient, x, q).hessian)


def gradient_parts(instance: Instance) -> tuple[Tensor, Tensor]:
    """∇μ and ∇λ_sup."""
    by_mean = gradients.gradient_of(instance, torch.trace) / len(instance.theta)
    return by_mean, gradients.gradient_of(instance, gradients.bound)


def descents(theta: Tensor, x: Tensor, q: Tensor) -> Iterator[tuple[Tensor, Tensor, float, float]]:
    """∇μ and √(D−1) ∇σ of sigmoid networks near theta, with the slopes of λ_sup and λ_inf along
    −∇λ_sup, measured."""
    generator = seeded(0)
    step = 1e-6
    for k in range(40):
        at = theta
        if k:
            at = theta + 2 * gauss(generator, 4)
        by_mean, whole = gradient_parts(Instance("sigmoid", at, x, q))
        before = ends_after(at, x, q)
        changes = zip(before, ends_after(at, x, q, step), strict=True)
        high, low = ((b - a) / step for a, b in changes)
        yield by_mean, whole - by_mean, high, low


@CHECKS.clause("hsr.section5e")
def lower_bound_rises() -> Outcome:
    """A step that lowers λ_sup, where λ_inf falls; corrected: it rises exactly where √(D−1) |∇σ| >
    |∇μ|."""
    theta = real([-0.447, 1.737, 2.01, 2.772])
    x = real([[0.361], [0.295]])
    q = zeros(2)
    high, low = ends_after(theta, x, q)
    new_high, new_low = ends_after(theta, x, q, 0.01)
    wrong = 0
    slopes = descents(theta, x, q)
    for by_mean, by_std, _, slope in slopes:
        expected = float(by_std @ by_std - by_mean @ by_mean)
        scale = float(by_std @ by_std + by_mean @ by_mean)
        wrong += abs(slope - expected) > 1e-3 * scale
    witness = worked(
        "sigmoid, M = N = 1, θ = (b, W, c, Ṽ) = (−0.447, 1.737, 2.01, 2.772), x = 0.361, 0.295, "
        "q = 0, 0, step 0.01",
        f"λ_sup {high:.4f} → {new_high:.4f}, so λ_inf rises",
        "rises where √(D−1) |∇σ| > |∇μ|",
        f"λ_inf {low:.4f} → {new_low:.4f}",
    )
    printed = (low - new_low) / abs(low) if new_high < high else 0.0
    return Outcome(printed, float(wrong), 41, witness)


NETWORKS = 40


def papers_network(generator: torch.Generator) -> Instance:
    """A network of Section VI: M = 2, N = 3, sigmoid, 50 samples of two Gaussians, θ uniform in
    (−10, 10)."""
    theta = 20 * uniform(generator, 13) - 10
    points = 2**0.5 * gauss(generator, 50, 2)
    labels = torch.arange(50).double() % 2
    return Instance("sigmoid", theta, points + 1 - 2 * labels[:, None], labels)


def rising_networks() -> tuple[int, int]:
    """In how many of 40 networks of the paper's size μ, and σ, rises along −∇λ_sup."""
    generator = seeded(0)
    rising_mean = rising_std = 0
    for _ in range(NETWORKS):
        by_mean, whole = gradient_parts(papers_network(generator))
        rising_mean += float(by_mean @ whole) < 0
        rising_std += float((whole - by_mean) @ whole) < 0
    return rising_mean, rising_std


@CHECKS.clause("hsr.section4a")
def both_fall() -> Outcome:
    """A step that lowers λ_sup, where μ rises; corrected: μ and √(D−1) σ change by −⟨∇μ, ∇λ_sup⟩,
    −√(D−1)⟨∇σ, ∇λ_sup⟩.

    The reference counts networks of the paper's size in which μ, or σ, rises.
    """
    theta = real([-0.7, -1.4, 1.2, 5.3])
    x = real([[0.6], [-2.5]])
    q = zeros(2)
    before = ends_after(theta, x, q)
    after = ends_after(theta, x, q, 0.01)
    mean = sum(before) / 2
    new_mean = sum(after) / 2
    wrong = 0
    slopes = descents(theta, x, q)
    for by_mean, by_std, high, low in slopes:
        whole = by_mean + by_std
        of_mean = (high + low) / 2
        of_std = (high - low) / 2
        for slope, part in ((of_mean, by_mean), (of_std, by_std)):
            scale = float(whole @ whole + part @ part)
            error = abs(slope + float(part @ whole))
            wrong += error > 1e-3 * scale
    rising_mean, rising_std = rising_networks()
    witness = worked(
        "sigmoid, M = N = 1, θ = (b, W, c, Ṽ) = (−0.7, −1.4, 1.2, 5.3), x = 0.6, −2.5, q = 0, 0, "
        "step 0.01",
        f"λ_sup {before[0]:.4f} → {after[0]:.4f}, so μ falls",
        "falls where ⟨∇μ, ∇λ_sup⟩ > 0",
        f"μ {mean:.4f} → {new_mean:.4f}; μ rises in {rising_mean} and σ in {rising_std} "
        f"of {NETWORKS} random networks with M = 2, N = 3, I = 50, θ uniform in ±10",
    )
    printed = (new_mean - mean) / abs(mean) if after[0] < before[0] else 0.0
    return Outcome(printed, float(wrong), 41 + NETWORKS, witness)


@CHECKS.clause("hsr.proposition2")
def proposition_two() -> Errors:
    """The move of λ_sup and λ_inf between random symmetric matrices of equal mean, the one with
    smaller σ second."""
    generator = seeded(0)
    draws = itertools.product((2, 5, 13), range(60))
    for dimension, _ in draws:
        raw = gauss(generator, 2, dimension, dimension)
        symmetric = raw + raw.mT
        level = gauss(generator, ())
        centre = symmetric.diagonal(dim1=-2, dim2=-1).mean(-1) - level
        shift = centre[:, None, None] * unit(dimension)
        centred = symmetric - shift
        wide, narrow = sorted(centred, key=lambda m: -float(torch.linalg.eigvalsh(m).std()))
        high, low = ends(wide)
        new_high, new_low = ends(narrow)
        yield max(new_high - high, low - new_low)
