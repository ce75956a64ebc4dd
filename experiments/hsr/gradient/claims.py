"""The paper's statements of Sections IV and V as claims, decided data set by data set."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from experiments.hsr.gradient.sizes import resnet18, vgg16
from experiments.hsr.gradient.tests_and_fits import SIZES, Tables, Tests
from experiments.printed import statements
from runner.contract import Claim, Statement
from runner.stats import Statistic, judge
from runner.stats.evidence import Evidence, by_seed, median

if TYPE_CHECKING:
    import pandas as pd

    from experiments.hsr.gradient.settings import HsrGradient

STRENGTHS = ("trace", "pair", "bound")
LINEAR, QUADRATIC = 1.0, 2.0
"""Exponents that the paper states."""
LAST_DECADES = 2
"""Steps of the recorded path, from its end, over which an exponent in |delta| is taken."""
CONFIDENT = 0.01
"""|delta| below which a sample counts as estimated with high confidence (Section V-A)."""
PAPER_FORM = "matrix"
"""The paper's double sum as matrices, where calls cost least; row by row and this project's form are marks."""
UNPRINTED = "network, scale and step of the differences are not printed, and the difference is that of the step"
OPEN_RANGE = "the range of the random networks is not printed, and the answer depends on it"
Maker = Callable[["Study"], Iterator[Claim]]


@dataclass(frozen=True)
class Study:
    """What the claims look at."""

    experiment: HsrGradient
    tables: Tables
    tests: Tests
    says: Mapping[str, Statement]

    @property
    def evidence(self) -> Evidence:
        e = self.experiment
        return Evidence(judge.DataSetRule(e.share, e.data_sets), e.level, "", self.tests)


def claims(experiment: HsrGradient, tables: Tables, tests: Tests) -> list[Claim]:
    """The claims whose part of the study is stored."""
    study = Study(experiment, tables, tests, statements("hsr_gradient"))
    makers: dict[str, Maker] = {
        "cost": _cost,
        "difference_norms": _agreement,
        "influence": _influence,
        "vanishing_error": _vanishing,
        "covariance": _covariance,
        "terms": _terms,
        "bound_descent": _descent,
        "narrowed": _narrowed,
    }
    return [claim for name, make in makers.items() if name in tables for claim in make(study)]


def _cost(s: Study) -> Iterator[Claim]:
    """Fig. 2, judged on the paper's algorithm; this project's form is a statement of its own."""
    known = s.tables["cost"][s.tables["cost"]["status"] == "ok"]

    def slowest(form: str, rows: pd.DataFrame) -> float:
        pairs = rows.pivot_table(index=["varied", "samples", "dimension"], columns="form", values="seconds")
        return float((pairs["numerical"] / pairs[form]).min())

    faster = {
        form: s.evidence.compared(s.says["analytic faster"], by_seed(known, partial(slowest, form)))
        for form in ("double sum", "matrix", "own")
    }
    yield judge.together(faster, main=PAPER_FORM)  # the differences are of the value in its matrix form
    for name, varied, stated in (
        ("analytic time linear in D", "dimension", LINEAR),
        ("analytic time quadratic in I", "samples", QUADRATIC),
    ):
        forms = ("double sum", "matrix", "own")
        yield judge.together({form: _exponent(s, name, varied, stated, form) for form in forms}, main=PAPER_FORM)
    yield _exponent(s, "own form linear in I", "samples", LINEAR, "own")


def _exponent(s: Study, name: str, varied: str, stated: float, form: str) -> Claim:
    """The interval over data sets of an exponent against the stated one and its margin."""
    margin = s.experiment.exponent_margin
    slopes = {seed: t.slope for seed, t in s.evidence.of_seeds(f"exponent in {SIZES[varied]}, {form}").items()}
    says = replace(s.says[name], low=stated - margin, high=stated + margin)
    found = judge.bound(says, list(slopes.values()))
    return replace(found, detail=f"{form}, exponent over the last {s.experiment.octaves} doublings; {found.detail}")


def _agreement(s: Study) -> Iterator[Claim]:
    table = s.tables["difference_norms"]
    relative = by_seed(table, lambda rows: float((rows["difference_norm"] / rows["gradient_norm"]).max()))
    yield s.evidence.compared(s.says["analytic gradient agrees"], relative)
    for name, text in (("trace", "tr H"), ("trace_of_square", "tr H²")):
        norms = by_seed(table[table["of"] == name], lambda rows: float(rows["difference_norm"].median()))
        listed = ", ".join(f"{v:.2g}" for v in norms.values())
        says = s.says[f"difference of about 1e-9, {text}"]
        detail = f"here, at h = {s.experiment.difference_step:g}: {listed}; {UNPRINTED}"
        yield judge.claim(says, "not comparable", median(norms), detail)


def _influence(s: Study) -> Iterator[Claim]:
    """One statement for the six parts of the gradient that the figure shows; and how much confident samples carry."""
    carried = by_seed(s.tables["influence"], _carried)
    yield s.evidence.compared(s.says["confident samples can be left out"], carried)
    parts = {f"{name} {block}": _of_part(s, f"{name} {block}") for name in STRENGTHS for block in ("w", "v")}
    yield judge.together(parts)


def _carried(rows: pd.DataFrame) -> float:
    """Share of the samples with |delta| < `CONFIDENT` in the sum of the norms of all contributions to ∇λ_sup: the
    median over networks, of those that have such samples."""
    bound = rows[rows["of"] == "bound"]
    norm = (bound["norm"] ** 2).groupby([bound["start"], bound["sample"], bound["error"]]).sum() ** 0.5
    found = norm.reset_index()
    sure = found[found["error"] < CONFIDENT].groupby("start")["norm"].sum()
    return float((sure / found.groupby("start")["norm"].sum()).dropna().median())


def _of_part(s: Study, part: str) -> Claim:
    rows = [(g, t) for (n, g), t in s.tests.items() if n == f"|delta| and {part}"]
    by_data: dict[int, list[Statistic]] = {}
    for group, test in rows:
        by_data.setdefault(int(group.split()[0].removeprefix("seed=")), []).append(test)
    found = {}
    for seed, row in by_data.items():
        positive, negative = (sum(sign * t.effect > 0 for t in row) / len(row) for sign in (1, -1))
        share = s.experiment.share
        found[seed] = "yes" if positive >= share else "opposite" if negative >= share else "no"
    effects = {i: t.effect for i, (_, t) in enumerate(rows)}
    span = f"ρ from {min(effects.values()):.2f} to {max(effects.values()):.2f}" if effects else ""
    threshold = f"ρ > 0 in {s.experiment.share:.0%} of the networks"
    return s.evidence.claim(s.says["small |delta|, small gradient"], found, effects, threshold, f"{part}: {span}")


def _vanishing(s: Study) -> Iterator[Claim]:
    """Proposition 1 is about a limit: the exponent of the norm in |delta| over the last recorded decades."""

    def exponent(rows: pd.DataFrame) -> float:
        slopes = []
        for _, part in rows.groupby(["start", "of"]):
            part = part.sort_values("error")
            first, last = part.iloc[0], part.iloc[LAST_DECADES]
            if first["norm"] > 0 and last["norm"] > 0:
                slopes.append(math.log(last["norm"] / first["norm"]) / math.log(last["error"] / first["error"]))
        return min(slopes) if slopes else math.nan

    yield s.evidence.compared(s.says["Proposition 1"], by_seed(s.tables["vanishing_error"], exponent))


def _covariance(s: Study) -> Iterator[Claim]:
    """Fig. 5, at every range of the random networks: not comparable where they disagree."""
    table = s.tables["covariance"]
    found: list[tuple[str, Claim]] = []
    for half_range in sorted(set(table["half_range"]), reverse=True):
        part, mark = table[table["half_range"] == half_range], f"±{half_range:g}"
        rises = {str(a): by_seed(rows, _rise) for a, rows in part.groupby("activation", sort=False)}
        says = s.says["similar samples, larger gradient"]
        own = judge.together({f"{mark} {a}": s.evidence.compared(says, values) for a, values in rises.items()})
        found.append((mark, own))
        if {"linear", "sigmoid"} <= set(rises):
            ratio = {seed: rises["linear"][seed] / v for seed, v in rises["sigmoid"].items()}
            found.append((mark, s.evidence.compared(s.says["weaker under saturation"], ratio)))
    for claim in judge.gathered(found):
        split = claim.verdict == "refuted" and "confirmed" in claim.variants
        yield replace(claim, verdict="not comparable", detail=f"{claim.detail}; {OPEN_RANGE}") if split else claim


def _rise(rows: pd.DataFrame) -> float:
    """Median norm at the largest over that at the smallest |covariance|."""
    size, middle = rows["covariance"].abs(), rows["q50"]
    return float(middle[size == size.max()].mean() / middle[size == size.min()].mean())


def _terms(s: Study) -> Iterator[Claim]:
    ranges = sorted(set(s.tables["terms"]["half_range"]), reverse=True)
    by = {
        f"±{r:g}": s.evidence.tested(s.says["std term dominates"], f"std term - mean term, range {r:g}", sign=1)
        for r in ranges
    }
    yield judge.together(by, main=f"±{ranges[0]:g}")


def _descent(s: Study) -> Iterator[Claim]:
    """Fig. 7: shares of starts, since the paper shows one."""
    table = s.tables["bound_descent"]
    last = f"lambda_{sum(c.startswith('lambda_') and c[7:].isdigit() for c in table.columns)}"

    def part(condition: Callable[[pd.Series, pd.Series], bool]) -> Callable[[pd.DataFrame], float]:
        def of(rows: pd.DataFrame) -> float:
            ends = [(p.sort_values("step").iloc[0], p.sort_values("step").iloc[-1]) for _, p in rows.groupby("start")]
            return sum(condition(a, b) for a, b in ends) / len(ends)

        return of

    conditions: dict[str, Callable[[pd.Series, pd.Series], bool]] = {
        "bound falls": lambda a, b: b["lambda_sup"] < a["lambda_sup"],
        "largest eigenvalue falls": lambda a, b: b["lambda_1"] < a["lambda_1"],
        "lower bound rises": lambda a, b: b["lambda_inf"] > a["lambda_inf"],
        "smallest eigenvalue rises to 0": lambda a, b: a[last] <= 0 and abs(b[last]) < abs(a[last]),
        "spectrum narrows": lambda a, b: b["lambda_1"] - b[last] < a["lambda_1"] - a[last],
    }
    for name, condition in conditions.items():
        says = replace(s.says[name], low=s.experiment.share)
        yield s.evidence.compared(says, by_seed(table, part(condition)))


def _narrowed(s: Study) -> Iterator[Claim]:
    rows = s.tables["narrowed"]
    least = float(rows[["upper_falls_by", "lower_rises_by"]].min().min())
    why = f"mean ± k std with a smaller std moves both bounds by k times the difference; {len(rows)} random spectra "
    yield judge.constructed(s.says["Proposition 2"], why + "repeat that identity", least)
    why = "∂λ_sup/∂λ_k = 1/D + √(D − 1) (λ_k − μ)/(D σ) rises with λ_k: it is largest for λ₁"
    yield judge.constructed(s.says["largest eigenvalue counts most"], why)
    for name, count in (("VGG16", vgg16()), ("ResNet18", resnet18())):
        detail = f"{count:,} weights and biases of the network as its authors give it, 1,000 classes"
        yield judge.exact(s.says[f"size of {name}"], {"": float(count)}, detail)
