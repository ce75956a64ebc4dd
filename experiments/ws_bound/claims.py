"""The paper's statements as claims: those about data, decided data set by data set, then the exact ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.ws_bound.analysis import (
    PAPER_ACTIVATION,
    Tables,
    Variant,
    by_seed,
    over_data_sets,
    unique_points,
    variants,
)
from experiments.ws_bound.exact_claims import exact_claims
from runner.contract.experiment import Claim, decide
from runner.stats import Statistic

if TYPE_CHECKING:
    import pandas as pd

    from experiments.ws_bound import WsBound

SKEWED = 1.0
"""Sample skewness above which a distribution counts as heavily right-skewed, the usual reading."""
UNRELATED = 0.3
""""No clear relationship" is read as a rank correlation below this in size."""
PUBLISHED = {("converged", 3): 460, ("converged", 10): 453, ("unique", 3): 353, ("unique", 10): 420}


@dataclass(frozen=True)
class Evidence:
    """What the claims of one variant look at. points: unique critical points of both widths; tests: Holm-corrected."""

    experiment: WsBound
    variant: Variant
    points: pd.DataFrame
    tests: Mapping[tuple[str, str], Statistic]

    @property
    def narrow(self) -> pd.DataFrame:
        return self.points[self.points["hidden"] == self.experiment.portrait_hidden]

    def claim(
        self,
        name: str,
        statement: str,
        where: str,
        found: Mapping[int, str],
        values: list[float],
        threshold: str,
        detail: str = "",
    ) -> Claim:
        """A claim about data: what each data set shows, and the median over them of the quantity looked at."""
        import numpy as np

        holds, text = over_data_sets(self.experiment, found)
        finite = [v for v in values if math.isfinite(v)]
        statistic = float(np.median(finite)) if finite else math.nan
        detail = "; ".join(part for part in (text, detail) if part)
        return Claim(name, statement, where, decide(holds), statistic, threshold, detail, self.variant.group)

    def tested(self, name: str, statement: str, where: str, test: str, *, sign: int) -> Claim:
        """A claim that one test decides in every data set, at the paper's level and unadjusted as in the paper.

        sign: of the effect claimed, 0 for either. Chance is kept out by asking for agreement of data sets; how many
        stay below the level after Holm's correction within the figure is added.
        """
        level, found, rows = self.experiment.level, {}, []
        for seed, _ in by_seed(self.points):
            row = self.tests.get((test, f"{self.variant.group} seed={seed}"))
            if row is None:
                continue
            rows.append(row)
            if math.isnan(row.p) or row.p_min >= level:
                found[seed] = "mute"
            elif row.p >= level:
                found[seed] = "no"
            else:
                found[seed] = "yes" if sign * row.effect >= 0 else "opposite"
        effects = ", ".join(f"{r.effect:+.2f}" for r in rows)
        strict = sum(r.p_holm < level for r in rows)
        threshold = f"p < {level:g} in a data set" + (f", effect {'> 0' if sign > 0 else '< 0'}" if sign else "")
        return self.claim(
            name,
            statement,
            where,
            found,
            [r.effect for r in rows],
            threshold,
            f"effects {effects}; {strict} below {level:g} after Holm",
        )

    def compared(
        self,
        name: str,
        statement: str,
        where: str,
        of: Callable[[pd.DataFrame], float],
        holds: Callable[[float], bool],
        threshold: str,
        rows: pd.DataFrame | None = None,
    ) -> Claim:
        """A claim that one number of every data set decides."""
        table = self.narrow if rows is None else rows
        values = {seed: of(part) for seed, part in by_seed(table)}
        found = {seed: "mute" if math.isnan(v) else "yes" if holds(v) else "no" for seed, v in values.items()}
        listed = "values " + ", ".join(f"{v:.3g}" for v in values.values())
        return self.claim(name, statement, where, found, list(values.values()), threshold, listed)


def claims(experiment: WsBound, tables: Tables, tests: Mapping[tuple[str, str], Statistic]) -> list[Claim]:
    """Every claim under every variant; tests: Holm-corrected, by (name, group)."""
    found: list[Claim] = []
    for variant in variants(experiment, tables):
        evidence = Evidence(experiment, variant, unique_points(tables, variant), tests)
        if not evidence.narrow.empty:
            found += _about_sharpness(evidence)
            found += _about_generalisation(evidence)
            found += _about_norms(evidence)
            found += _about_widths(evidence)
            found += _about_paths(evidence, tables)
        if variant.activation == PAPER_ACTIVATION:
            found += _about_counts(evidence, tables)
        found += exact_claims(experiment, tables, variant)
    return found


def _about_sharpness(e: Evidence) -> Iterator[Claim]:
    limit = e.experiment.tight
    yield e.compared(
        "tightness",
        "the bound is close to the largest eigenvalue",
        "Fig. 2",
        lambda rows: float((rows["lambda_sup"] / rows["lambda_max"]).median()),
        lambda v: v <= limit,
        f"median of bound / eigenvalue <= {limit:g}",
    )
    yield e.compared(
        "right skew",
        "the bounds are heavily right-skewed: mostly small, a long tail of sharp points",
        "Fig. 6",
        lambda rows: float(rows["lambda_sup"].skew()),
        lambda v: v > SKEWED,
        f"sample skewness > {SKEWED:g}",
    )


def _about_generalisation(e: Evidence) -> Iterator[Claim]:
    for size in e.experiment.dataset.test:
        yield e.tested(
            f"low bound generalises better, {size} test samples",
            "points with a low bound have a higher macro F1 than points with a high one",
            "Fig. 7",
            f"F1 on {size}, low - high",
            sign=1,
        )
    size = max(e.experiment.dataset.test)

    def spread(rows: pd.DataFrame) -> float:
        from experiments.ws_bound.analysis import split_low_high

        low, high = split_low_high(rows, e.experiment.low_share)
        return float(high[f"f1_test{size}"].std() / low[f"f1_test{size}"].std())

    yield e.compared(
        "sharp points vary more",
        "macro F1 varies more among points with a high bound",
        "Fig. 7",
        spread,
        lambda v: v > 1,
        f"std of F1 on {size} samples, high / low > 1",
    )


def _about_norms(e: Evidence) -> Iterator[Claim]:
    yield e.tested("V norm", "the bound rises with ||V||²", "Fig. 10", "V_norm_sq and bound", sign=1)

    def unrelated(rows: pd.DataFrame) -> float:
        return float(rows["W_norm_sq"].corr(rows["lambda_sup"], method="spearman"))

    yield e.compared(
        "W norm",
        "no clear relationship between ||W||² and the bound",
        "Fig. 10",
        unrelated,
        lambda v: abs(v) < UNRELATED,
        f"|Spearman's ρ| < {UNRELATED:g}",
    )
    yield e.tested(
        "hidden Gram norm",
        "the lower edge of the bound rises with ||RᵀR||²",
        "Fig. 12",
        "lower edge of bound over RtR_norm_sq",
        sign=1,
    )


def _about_widths(e: Evidence) -> Iterator[Claim]:
    wide, narrow = e.experiment.compared_hidden, e.experiment.portrait_hidden
    if wide not in set(e.points["hidden"]):
        return
    test = f"bound, N={wide} - N={narrow}"
    yield e.tested("width matters", f"the bound differs between N = {narrow} and {wide}", "Fig. 11", test, sign=0)
    yield e.tested(
        "width sharpens", f"the bound is larger at N = {wide} than at N = {narrow}", "Fig. 11, Eq. 22", test, sign=1
    )


def _about_paths(e: Evidence, tables: Tables) -> Iterator[Claim]:
    paths = e.variant.rows(tables["trajectories"]) if "trajectories" in tables else None
    if paths is None or paths.empty:
        return

    def growth(rows: pd.DataFrame) -> float:
        ordered = rows.sort_values("step")
        return float(ordered["lambda_sup"].iloc[-1] / ordered["lambda_sup"].iloc[0])

    yield e.compared(
        "bound follows eigenvalue",
        "along the descent the bound closely follows the largest eigenvalue",
        "Fig. 5",
        lambda rows: float((rows["lambda_sup"] / rows["lambda_max"]).median()),
        lambda v: v <= e.experiment.tight,
        f"median of bound / eigenvalue <= {e.experiment.tight:g}",
        paths,
    )
    yield e.compared(
        "bound rises on the way to the sharpest point",
        "the loss falls while the bound rises",
        "Fig. 5",
        growth,
        lambda v: v > 1,
        "bound at the end / at the start > 1",
        paths[paths["point"] == "sharpest_1"],
    )
    yield e.compared(
        "bound does not rise on the way to the flattest point",
        "the loss falls without a rise of the bound",
        "Fig. 5",
        growth,
        lambda v: v <= 1,
        "bound at the end / at the start <= 1",
        paths[paths["point"] == "flattest_1"],
    )


def _about_counts(e: Evidence, tables: Tables) -> Iterator[Claim]:
    """Whether data sets of this protocol can give the published counts: they lie within the range over data sets."""
    rows = e.variant.rows(tables["search"])
    starts = set(rows["starts"])
    inside, parts, shares = [], [], []
    for (column, hidden), value in PUBLISHED.items():
        counts = rows.loc[rows["hidden"] == hidden, column]
        if len(counts):
            inside.append(counts.min() <= value <= counts.max())
            parts.append(f"{column} N={hidden}: {counts.min()}-{counts.max()}, published {value}")
            shares.append(float(counts.mean()))
    enough = len(inside) == len(PUBLISHED) and rows["seed"].nunique() >= e.experiment.data_sets and starts == {500}
    yield Claim(
        "published counts",
        "460 and 453 of 500 starts converge, 353 and 420 of them unique",
        "Appendix C",
        decide(all(inside) if enough else None),
        shares[0] if shares else math.nan,
        "all four within the range over data sets",
        "; ".join(parts) + f"; rate {e.variant.rate:g}",
        e.variant.group,
    )
