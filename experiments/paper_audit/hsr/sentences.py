"""HSR paper, abstract and Sections IV to VI: sentences that argue from a formula or name a
method."""

from __future__ import annotations

import math

from scipy.stats import f as f_distribution

from experiments.paper_audit.checks import BothErrors, Checks, Outcome, apart, worked
from experiments.paper_audit.hsr.gradients import gradients_of_moments
from experiments.paper_audit.hsr.propositions import papers_network
from experiments.paper_audit.published import PUBLISHED_SEEDS, critical_points
from experiments.paper_audit.tensors import norm_of, seeded
from experiments.paper_audit.three_layer import Instance

CHECKS = Checks()
NETWORKS = 20
RADIUS = 0.1


@CHECKS.clause("hsr.abstract.sam")
def perturbations() -> Outcome:
    """Abstract, Section I: solutions as flat as those of SAM; run is A-SAM. Length of A-SAM's
    perturbation at the printed radius over SAM's, less 1; corrected: A-SAM's has the radius in the
    coordinates θ / |θ|."""
    ratios = []
    errors = []
    for seed in range(NETWORKS):
        network = papers_network(seeded(seed))
        scale = network.theta.abs()
        step = RADIUS * scale**2 * network.gradient / (scale * network.gradient).norm()
        ratios.append(norm_of(step) / RADIUS)
        length = norm_of(step / scale)
        errors.append(apart(length, RADIUS))
    shortest = RADIUS * min(ratios)
    longest = RADIUS * max(ratios)
    witness = worked(
        "M = 2, N = 3, I = 50, θ uniform in ±10, radius 0.1: length of the perturbation",
        "0.1 (SAM)",
        "0.1 in the coordinates θ/|θ| (A-SAM)",
        f"{shortest:.2f} to {longest:.2f} (A-SAM) in {NETWORKS} networks",
    )
    return Outcome(max(ratios) - 1, max(errors), NETWORKS, witness)


def ratio_of_gradients(network: Instance) -> float:
    """√(D−1) ‖∇σ‖ / ‖∇μ‖."""
    by_mean, by_std = gradients_of_moments(network)
    factor = (len(network.theta) - 1) ** 0.5
    return float(factor * by_std.norm() / by_mean.norm())


@CHECKS.clause("hsr.section5c")
def double_sum() -> BothErrors:
    """Section V-C: ∂σ outweighs ∂μ because it is a double sum over the I samples; with every sample
    three times the ratio of the norms would be three times as large; corrected: it stays, σ and μ
    are of degree one in H."""
    for seed in range(3):
        network = papers_network(seeded(seed))
        x = network.x[:6]
        q = network.q[:6]
        network_of_six = Instance("sigmoid", network.theta, x, q)
        once = ratio_of_gradients(network_of_six)
        inputs = x.repeat(3, 1)
        repeated = Instance("sigmoid", network.theta, inputs, q.repeat(3))
        thrice = ratio_of_gradients(repeated)
        printed = apart(thrice, 3 * once)
        yield printed, apart(thrice, once)
    return worked(
        "M = 2, N = 3, six samples, then each of them three times: √(D−1)‖∇σ‖ / ‖∇μ‖",
        "grows with I",
        "stays",
        f"{once:.4g}, {thrice:.4g}",
    )


def ratio_of_variances(groups: list[list[float]]) -> float:
    """One-way F over its 99 % quantile, less 1."""
    values = [value for group in groups for value in group]
    grand = math.fsum(values) / len(values)
    between = []
    within = []
    for group in groups:
        mean = math.fsum(group) / len(group)
        squared = (mean - grand) ** 2
        between.append(len(group) * squared)
        within += [(value - mean) ** 2 for value in group]
    free = len(groups) - 1
    left = len(values) - len(groups)
    variance_between = math.fsum(between) / free
    variance_within = math.fsum(within) / left
    ratio = variance_between / variance_within
    quantile = f_distribution.ppf(0.99, free, left)
    return float(ratio / quantile) - 1


@CHECKS.clause("hsr.section6a.independent")
def one_data_set() -> Outcome:
    """Section VI-A: the 226 critical points are independent. log λ_sup of points of five data sets,
    each from the same search: F between the data sets over its 99 % quantile, less 1; corrected:
    independent given the data set, F between odd and even starts of each."""
    groups = []
    within = []
    means = []
    for seed in PUBLISHED_SEEDS:
        even: list[float] = []
        odd: list[float] = []
        for row in critical_points("fitted", seed):
            half = odd if int(row["start"]) % 2 else even
            logarithm = math.log(float(row["lambda_sup"]))
            half.append(logarithm)
        groups.append(even + odd)
        within.append(ratio_of_variances([even, odd]))
        logarithms = groups[-1]
        means.append(math.exp(math.fsum(logarithms) / len(logarithms)))
    shown = ", ".join(f"{value:.1f}" for value in means)
    witness = worked(
        "ws_bound, calibrated search, N = 3: geometric mean of λ_sup of the points of five data "
        "sets",
        "equal up to chance",
        "independent given the data set",
        shown,
    )
    count = sum(len(group) for group in groups)
    ratio = ratio_of_variances(groups)
    return Outcome(ratio, max(within), count, witness)
