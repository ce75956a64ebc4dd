"""HSR paper, Sections V and VI: reasons and summaries against measured numbers."""

from __future__ import annotations

import math
from functools import cache
from statistics import median

from scipy.stats import spearmanr

from experiments.paper_audit import published
from experiments.paper_audit.checks import BothErrors, Checks, Outcome, apart, worked
from experiments.paper_audit.hsr.gradients import bound, gradient_of, gradients_of_moments
from experiments.paper_audit.hsr.propositions import papers_network
from experiments.paper_audit.tensors import seeded

CHECKS = Checks()
LEVEL = 0.01


def bounds_and_eigenvalues(group: str, seed: int) -> tuple[list[float], list[float]]:
    """λ_inf = 2 μ − λ_sup and λ_D where HSR, with the penalty throughout, ended from one kind of
    start."""
    low = []
    least = []
    endpoints = published.rows("hsr_regularization", "endpoints", seed=seed)
    for row in endpoints:
        kept = row["reading"] == "every_step" and row["status"] == "ok"
        if kept and (row["method"], row["group"]) == ("hsr", group):
            low.append(2 * float(row["mean"]) - float(row["lambda_sup"]))
            least.append(float(row["lambda_min"]))
    return low, least


@CHECKS.clause("hsr.section6b.saddles")
def lower_bound_and_saddles() -> Outcome:
    """Sections V-E, VI-B: HSR ends at few saddles because it raises λ_inf. Rank correlation of
    λ_inf and λ_D over its end points, five data sets, flat and sharp starts: the printed reason
    fails by the share of the ten in which it is not positive at 1 %; corrected: it is in none."""
    positive = []
    shown = []
    ratios = []
    for group in ("flat", "sharp"):
        for seed in published.PUBLISHED_SEEDS:
            low, least = bounds_and_eigenvalues(group, seed)
            ratios += [abs(a / b) for a, b in zip(low, least, strict=True)]
            test = spearmanr(low, least)
            positive.append(bool(test.pvalue < LEVEL and test.statistic > 0))
            shown.append(float(test.statistic))
    witness = worked(
        "hsr_regularization, end points of HSR, five data sets, flat and sharp starts: rank "
        "correlation of λ_inf and λ_D; median of |λ_inf / λ_D|",
        "positive",
        "none",
        f"{min(shown):.2f} to {max(shown):.2f}; {median(ratios):,.0f}".replace("-", "−"),
    )
    absent = 1 - sum(positive) / len(positive)
    return Outcome(absent, float(sum(positive)), len(positive), witness)


@cache
def falls() -> list[float]:
    """Share of the descents on λ_sup alone in which λ_1, ..., λ_D are lower at the end."""
    by_start: dict[tuple[str, str], list[published.Row]] = {}
    for row in published.rows("hsr_gradient", "bound_descent"):
        by_start.setdefault((row["seed"], row["start"]), []).append(row)
    shares = [0.0] * 13
    for steps in by_start.values():
        steps.sort(key=lambda row: int(row["step"]))
        for k in range(13):
            name = f"lambda_{k + 1}"
            fell = float(steps[-1][name]) < float(steps[0][name])
            shares[k] += fell / len(by_start)
    return shares


@CHECKS.clause("hsr.section5d.eigenvalues")
def eigenvalues_decrease() -> Outcome:
    """Section V-D, Fig. 7, top eigenvalues: the four largest decrease, in 95 % of the descents at
    least."""
    shares = falls()
    return Outcome(0.95 - min(shares[:4]), instances=4)


def exponents_of_differences() -> list[float]:
    """Growth of the time of the numerical gradient over the last doubling of D, data set by data
    set."""
    by_seed: dict[str, list[tuple[float, float]]] = {}
    for row in published.rows("hsr_gradient", "cost"):
        numerical = (row["form"], row["varied"]) == ("numerical", "dimension")
        if numerical and row["status"] == "ok":
            size = (float(row["dimension"]), float(row["seconds"]))
            by_seed.setdefault(row["seed"], []).append(size)
    exponents = []
    for sizes in by_seed.values():
        (smaller, before), (larger, after) = sorted(sizes)[-2:]
        exponents.append(math.log(after / before) / math.log(larger / smaller))
    return exponents


@CHECKS.clause("hsr.section4a.diagonal")
def entries_of_the_trace() -> BothErrors:
    """Section IV-A: the time is that of D diagonal components: share of tr H² that they leave out;
    corrected: tr H² is the sum of all D² squares."""
    for seed in range(3):
        hessian = papers_network(seeded(seed)).hessian
        exact = float((hessian @ hessian).trace())
        squares = hessian.square()
        yield apart(float(squares.diagonal().sum()), exact), apart(float(squares.sum()), exact)
    exponents = exponents_of_differences()
    return worked(
        "H = ((1, 2), (2, 1)): tr H²; hsr_gradient, Fig. 2: exponent in D of the numerical time, "
        "last doubling, five data sets",
        "1 + 1 = 2, linear",
        "1 + 4 + 4 + 1 = 10, D² entries",
        f"10; {min(exponents):.2f} to {max(exponents):.2f}",
    )


@CHECKS.clause("hsr.section5c.factor")
def factor_of_sigma() -> BothErrors:
    """Section V-C: ∂σ/∂θ enters ∇λ_sup times the number of parameters D; corrected: times √(D −
    1)."""
    for seed in range(3):
        network = papers_network(seeded(seed))
        count = len(network.theta)
        by_mean, by_std = gradients_of_moments(network)
        factor = (gradient_of(network, bound) - by_mean) @ by_std / by_std.square().sum()
        printed = apart(float(factor), count)
        yield printed, apart(float(factor), (count - 1) ** 0.5)
    return worked(
        "M = 2, N = 3, D = 13: factor of ∂σ/∂θ in ∂λ_sup/∂θ", "13", "√12 = 3.464", f"{factor:.4f}"
    )
