"""HSR paper, abstract and Sections IV to VI: sentences that argue from a formula or name a method."""

from __future__ import annotations

import math

import torch
from scipy.stats import f as f_distribution

from experiments.paper_audit import effects
from experiments.paper_audit.checks import Entry, Outcome, Witness, apart
from experiments.paper_audit.hsr.gradients import gradient_of, squared
from experiments.paper_audit.tensors import gauss, seeded
from experiments.paper_audit.three_layer import Instance

NETWORKS, RADIUS = 20, 0.1


def papers_network(seed: int) -> Instance:
    """A network of Section VI: M = 2, N = 3, sigmoid, 50 samples of two Gaussians, θ uniform in (−10, 10)."""
    generator = seeded(seed)
    theta = 20 * torch.rand(13, generator=generator, dtype=torch.float64) - 10
    points = 2**0.5 * gauss(generator, 50, 2)
    labels = torch.arange(50).double() % 2
    return Instance("sigmoid", theta, points + 1 - 2 * labels[:, None], labels)


def perturbations() -> Outcome:
    """Abstract, Section I: solutions as flat as those of SAM; run is A-SAM. Length of A-SAM's perturbation at the
    printed radius over SAM's, less 1; corrected: A-SAM's has the radius in the coordinates θ / |θ|."""
    ratios, errors = [], []
    for seed in range(NETWORKS):
        network = papers_network(seed)
        scale = network.theta.abs()
        step = RADIUS * scale**2 * network.gradient / (scale * network.gradient).norm()
        ratios.append(float(step.norm()) / RADIUS)
        errors.append(apart(float((step / scale).norm()), RADIUS))
    witness = Witness(
        "M = 2, N = 3, I = 50, θ uniform in ±10, radius 0.1: length of the perturbation",
        "0.1 (SAM)",
        "0.1 in the coordinates θ/|θ| (A-SAM)",
        f"{RADIUS * min(ratios):.2f} to {RADIUS * max(ratios):.2f} (A-SAM) in {NETWORKS} networks",
    )
    return Outcome(max(ratios) - 1, max(errors), NETWORKS, witness)


def _sizes(network: Instance) -> float:
    """√(D−1) ‖∇σ‖ / ‖∇μ‖."""
    hessian, count = network.hessian, len(network.theta)
    mean = hessian.trace() / count
    std = (squared(hessian) / count - mean**2).sqrt()
    by_mean = gradient_of(network, torch.trace) / count
    by_std = gradient_of(network, squared) / (2 * std * count) - mean / std * by_mean
    return float((count - 1) ** 0.5 * by_std.norm() / by_mean.norm())


def double_sum() -> Outcome:
    """Section V-C: ∂σ outweighs ∂μ because it is a double sum over the I samples; with every sample three times the
    ratio of the norms would be three times as large; corrected: it stays, σ and μ are of degree one in H."""
    printed, right = [], []
    for seed in range(3):
        network = papers_network(seed)
        x, q = network.x[:6], network.q[:6]
        once = _sizes(Instance("sigmoid", network.theta, x, q))
        thrice = _sizes(Instance("sigmoid", network.theta, x.repeat(3, 1), q.repeat(3)))
        printed.append(apart(thrice, 3 * once))
        right.append(apart(thrice, once))
        shown = f"{once:.4g}, {thrice:.4g}"
    witness = Witness(
        "M = 2, N = 3, six samples, then each of them three times: √(D−1)‖∇σ‖ / ‖∇μ‖",
        "grows with I",
        "stays",
        shown,
    )
    return Outcome(max(printed), max(right), 3, witness)


def _ratio_of_variances(groups: list[list[float]]) -> float:
    """One-way F over its 99 % quantile, less 1."""
    count, values = len(groups), [value for group in groups for value in group]
    grand = math.fsum(values) / len(values)
    means = [math.fsum(group) / len(group) for group in groups]
    between = math.fsum(len(g) * (m - grand) ** 2 for g, m in zip(groups, means, strict=True))
    within = math.fsum((v - m) ** 2 for g, m in zip(groups, means, strict=True) for v in g)
    degrees = len(values) - count
    ratio = (between / (count - 1)) / (within / degrees)
    return float(ratio / f_distribution.ppf(0.99, count - 1, degrees)) - 1


def one_data_set() -> Outcome:
    """Section VI-A: the 226 critical points are independent. log λ_sup of points of five data sets, each from the same
    search: F between the data sets over its 99 % quantile, less 1; corrected: independent given the data set, F between
    odd and even starts of each."""
    groups, halves, geometric = [], [], []
    for seed in effects.PUBLISHED_SEEDS:
        split: tuple[list[float], list[float]] = ([], [])
        for row in effects.critical_points("fitted", seed):
            split[int(row["start"]) % 2].append(math.log(float(row["lambda_sup"])))
        groups.append([*split[0], *split[1]])
        halves.append(_ratio_of_variances(list(split)))
        geometric.append(math.exp(math.fsum(groups[-1]) / len(groups[-1])))
    between = _ratio_of_variances(groups)
    witness = Witness(
        "ws_bound, calibrated search, N = 3: geometric mean of λ_sup of the points of five data sets",
        "equal up to chance",
        "independent given the data set",
        ", ".join(f"{value:.1f}" for value in geometric),
    )
    return Outcome(between, max(halves), sum(map(len, groups)), witness)


CHECKS: dict[str, Entry] = {
    "hsr.abstract.sam": perturbations,
    "hsr.section5c": double_sum,
    "hsr.section6a.independent": one_data_set,
}
