"""The paper's statements of Sections IV and V as claims, decided data set by data set."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise, product

import numpy as np
import pandas as pd

from experiments.three_layer.hsr_gradient.cost_claims import cost
from experiments.three_layer.study import Case, Study, column
from runner.contract import Claim
from runner.stats import judge
from runner.stats.judge import by_seed, median
from runner.stats.tables import chosen, groups

STRENGTHS = ("trace", "pair", "bound")
LAST_DECADES = 2
"""Steps of the recorded path, from its end, over which an exponent in |delta| is taken."""
CONFIDENT = 0.01
"""|delta| below which a sample counts as estimated with high confidence (Section V-A)."""
WEIGHTS_HELD = "with the weights held, every contribution is a multiple of |delta| by its formula"
OWN_GRADIENT = "a small step against the gradient of the bound lowers it, whatever the network"
UNPRINTED = "network, scale and step of the differences are not printed"
OPEN_RANGE = "the range of the random networks is not printed, and the answer depends on it"


def claims(analysis: Study) -> list[Claim]:
    """The claims whose part of the study is stored."""
    case = Case(analysis)
    makers = {
        "cost": cost,
        "difference_norms": _agreement,
        "influence": _influence,
        "vanishing_error": _vanishing,
        "covariance": _covariance,
        "terms": _terms,
        "bound_descent": _descent,
        "narrowed": _narrowed,
    }
    made: list[Claim] = []
    for table, make in makers.items():
        if table in analysis.tables:
            made += make(case)
    return made


def _agreement(c: Case) -> Iterator[Claim]:
    """Fig. 3, relative to the gradient; and the printed difference, whose step is not printed."""
    table = c.tables["difference_norms"]
    table = table.assign(relative=table["difference_norm"] / table["gradient_norm"])
    yield c.compared("analytic gradient agrees", table, column("relative", "max"))
    for name, text in (("trace", "tr H"), ("trace_of_square", "tr H²")):
        norms = by_seed(chosen(table, of=name), column("difference_norm", "median"))
        listed = ", ".join(f"{value:.2g}" for value in norms.values())
        detail = (
            f"here, at h = {c.experiment.difference_step:g}: {listed}; {UNPRINTED}, and the "
            "difference is that of the step"
        )
        statement = c.statement(f"difference of about 1e-9, {text}")
        yield judge.claim(statement, "not comparable", median(norms), detail)


def _influence(c: Case) -> Iterator[Claim]:
    """One statement for the six parts of the gradient that the figure shows; and how much confident
    samples carry.
    """
    yield c.compared("confident samples can be left out", c.tables["influence"], _carried)
    names = [f"{name} {block}" for name, block in product(STRENGTHS, ("w", "v"))]
    yield judge.together({name: _of_part(c, name) for name in names})


def _carried(rows: pd.DataFrame) -> float:
    """Share of the samples with |delta| < `CONFIDENT` in the sum of the norms of all contributions
    to ∇λ_sup: the median over networks, of those that have such samples.
    """
    bound = chosen(rows, of="bound")
    squares = bound.assign(square=bound["norm"] ** 2)
    norms = squares.groupby(["start", "sample", "error"])["square"].sum() ** 0.5
    samples = norms.rename("norm").reset_index()
    sure = samples[samples["error"] < CONFIDENT].groupby("start")["norm"].sum()
    return float((sure / samples.groupby("start")["norm"].sum()).dropna().median())


def _of_part(c: Case, part: str) -> Claim:
    """Whether contributions to one part of the gradient grow with |delta|, network by network."""
    by_data: dict[int, list[float]] = {}
    for (name, group), test in c.study.tests.items():
        if name == f"|delta| and {part}":
            seed = int(group.split()[0].removeprefix("seed="))
            by_data.setdefault(seed, []).append(test.effect)
    findings = {}
    effects: list[float] = []
    share = c.experiment.share
    for seed, of_networks in by_data.items():
        effects += of_networks
        rising = sum(effect > 0 for effect in of_networks)
        falling = sum(effect < 0 for effect in of_networks)
        findings[seed] = "no"
        if falling / len(of_networks) >= share:
            findings[seed] = "opposite"
        if rising / len(of_networks) >= share:
            findings[seed] = "yes"
    span = ""
    if effects:
        span = f"ρ from {min(effects):.2f} to {max(effects):.2f}"
    statement = c.statement("small |delta|, small gradient", low=0.0)
    threshold = f"ρ > 0 in {share:.0%} of the networks"
    values = dict(enumerate(effects))
    return c.evidence.claim(statement, findings, values, threshold, f"{part}: {span}")


def _vanishing(c: Case) -> Iterator[Claim]:
    """Proposition 1 is about a limit: the exponent of the norm in |delta| over the last recorded
    decades.
    """
    exponents = by_seed(c.tables["vanishing_error"], _last_exponent)
    yield judge.constructed(c.statement("Proposition 1"), WEIGHTS_HELD, median(exponents))


def _last_exponent(rows: pd.DataFrame) -> float:
    slopes = []
    for _, path in rows.groupby(["start", "of"]):
        path = path.sort_values("error")
        first = path.iloc[0]
        last = path.iloc[LAST_DECADES]
        if first["norm"] > 0 and last["norm"] > 0:
            fall = math.log(last["norm"] / first["norm"])
            slopes.append(fall / math.log(last["error"] / first["error"]))
    return min(slopes) if slopes else math.nan


def _covariance(c: Case) -> Iterator[Claim]:
    """Fig. 5, at every range of the random networks: not comparable where they disagree."""
    table = c.tables["covariance"]
    of_ranges = []
    for half_range in sorted(set(table["half_range"]), reverse=True):
        mark = f"±{half_range:g}"
        similar = {}
        rises = {}
        for (activation,), rows in groups(chosen(table, half_range=half_range), ["activation"]):
            name = f"{mark} {activation}"
            similar[name] = c.compared("similar samples, larger gradient", rows, _rise)
            rises[activation] = by_seed(rows, _rise)
        of_ranges.append((mark, judge.together(similar)))
        if {"linear", "sigmoid"} <= set(rises):
            ratio = {seed: rises["linear"][seed] / v for seed, v in rises["sigmoid"].items()}
            weaker = c.statement("weaker under saturation")
            of_ranges.append((mark, c.evidence.compared(weaker, ratio)))
    for claim in judge.gathered(of_ranges):
        if claim.verdict == "refuted" and "confirmed" in claim.variants.values():
            detail = f"{claim.detail}; {OPEN_RANGE}"
            claim = replace(claim, verdict="not comparable", detail=detail)
        yield claim


def _rise(rows: pd.DataFrame) -> float:
    """Median norm at the largest over that at the smallest |covariance|."""
    size = rows["covariance"].abs()
    middle = rows["q50"]
    return float(middle[size == size.max()].mean() / middle[size == size.min()].mean())


def _terms(c: Case) -> Iterator[Claim]:
    ranges = sorted(set(c.tables["terms"]["half_range"]), reverse=True)
    by_range = {}
    for half_range in ranges:
        test = f"std term - mean term, range {half_range:g}"
        by_range[f"±{half_range:g}"] = c.tested("std term dominates", test, sign=1)
    yield judge.together(by_range, main=f"±{ranges[0]:g}")


def _descent(c: Case) -> Iterator[Claim]:
    """Fig. 7: shares of starts, since the paper shows one."""
    table = c.tables["bound_descent"]
    least = table[spectrum_columns(table)[-1]]
    table = table.assign(width=table["lambda_1"] - least, least=least, off_zero=least.abs())
    falls = median(by_seed(table, partial(_share_of_starts, falling="lambda_sup")))
    lowered = c.statement("bound falls", low=c.experiment.share)
    yield judge.constructed(lowered, OWN_GRADIENT, falls)
    for name, columns in {
        "largest eigenvalue falls": {"falling": "lambda_1"},
        "lower bound rises": {"rising": "lambda_inf"},
        "smallest eigenvalue rises to 0": {"falling": "off_zero", "negative": "least"},
        "spectrum narrows": {"falling": "width"},
    }.items():
        share = partial(_share_of_starts, **columns)
        yield c.compared(name, table, share, low=c.experiment.share)


def spectrum_columns(table: pd.DataFrame) -> list[str]:
    """The columns of the eigenvalues, largest first."""
    names = [name for name in table if re.fullmatch(r"lambda_[0-9]+", name)]
    return sorted(names, key=lambda name: int(name.removeprefix("lambda_")))


def _share_of_starts(
    rows: pd.DataFrame, falling: str = "", rising: str = "", negative: str = ""
) -> float:
    """Share of the descents in which a column falls or rises from the first to the last step, and
    another is not positive at the first."""
    columns = [name for name in (falling, rising, negative) if name]
    steps = rows.sort_values("step").set_index("start")[columns].groupby(level="start")
    first = steps.head(1).sort_index()
    last = steps.tail(1).sort_index()
    if not np.isfinite(first).all(axis=None) or not np.isfinite(last).all(axis=None):
        return math.nan
    shown = last[rising] > first[rising] if rising else last[falling] < first[falling]
    if negative:
        shown &= first[negative] <= 0
    return float(shown.mean())


def _narrowed(c: Case) -> Iterator[Claim]:
    rows = c.tables["narrowed"]
    least = float(rows[["upper_falls_by", "lower_rises_by"]].min().min())
    why = (
        f"mean ± k std with a smaller std moves both bounds by k times the difference; {len(rows)} "
        "random spectra "
    )
    yield judge.constructed(c.statement("Proposition 2"), why + "repeat that identity", least)
    why = "∂λ_sup/∂λ_k = 1/D + √(D − 1) (λ_k − μ)/(D σ) rises with λ_k: it is largest for λ₁"
    yield judge.constructed(c.statement("largest eigenvalue counts most"), why)
    for name, count in (("VGG16", vgg16()), ("ResNet18", resnet18())):
        detail = (
            f"{count:,} weights and biases of the network as its authors give it, 1,000 classes"
        )
        yield judge.exact(c.statement(f"size of {name}"), {"": float(count)}, detail)


CLASSES = 1000


def vgg16() -> int:
    """13 convolutions of 3 x 3 with biases, three full layers, after Simonyan and Zisserman.

    >>> vgg16()
    138357544
    """
    channels = (3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
    convolutions = sum((9 * a + 1) * b for a, b in pairwise(channels))
    full = (512 * 7 * 7, 4096, 4096, CLASSES)
    return convolutions + sum((a + 1) * b for a, b in pairwise(full))


def resnet18() -> int:
    """Stem, eight blocks of two 3 x 3 convolutions with batch norm, projections where the width
    changes, a head.

    >>> resnet18()
    11689512
    """

    def convolution(a: int, b: int, size: int) -> int:
        return size**2 * a * b + 2 * b  # no bias, but scale and shift of its batch norm

    count = convolution(3, 64, 7)
    width = 64
    for wider in (64, 128, 256, 512):
        for _ in range(2):
            count += convolution(width, wider, 3) + convolution(wider, wider, 3)
            count += convolution(width, wider, 1) if width != wider else 0
            width = wider
    return count + (width + 1) * CLASSES
