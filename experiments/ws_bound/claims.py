"""The paper's statements as claims: those about data, decided data set by data set, then the exact ones.

One row for each statement. The fitted protocol with the paper's activation decides, except on critical points; the
printed stop rule, whose learning rate the paper does not give, and further activations are variants.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from experiments.printed import statements
from experiments.ws_bound.analysis import (
    PAPER_ACTIVATION,
    Tables,
    polished_variants,
    split_low_high,
    unique_points,
    variants,
    where_led,
)
from experiments.ws_bound.case import Case, Made, mark
from experiments.ws_bound.draws import over_draws
from experiments.ws_bound.exact_claims import exact_claims, inequalities
from experiments.ws_bound.text_claims import form, views
from runner.contract import Claim, Statement
from runner.stats import Statistic, judge
from runner.stats.evidence import Evidence, by_seed

if TYPE_CHECKING:
    import pandas as pd

    from experiments.ws_bound.settings import WsBound


def claims(experiment: WsBound, tables: Tables, tests: Mapping[tuple[str, str], Statistic]) -> list[Claim]:
    """One claim per statement, with what became of it under every variant; tests: Holm-corrected, by (name, group)."""
    says = statements("ws_bound")
    rule = judge.DataSetRule(experiment.share, experiment.data_sets)
    found: list[tuple[str, Claim]] = []
    exact: list[tuple[str, Claim]] = []
    for variant in variants(experiment, tables):
        evidence = Evidence(rule, experiment.level, variant.group, tests)
        case = Case(experiment, variant, unique_points(tables, variant), evidence, says)
        if not case.narrow.empty:
            found += [*_sharpness(case), *_generalisation(case), *_norms(case), *_widths(case), *_paths(case, tables)]
            found += [*views(case, tables), *form(case)]
        exact += [(case.mark, claim) for claim in exact_claims(tables, variant, says)]
    for variant in polished_variants(experiment, tables):
        evidence = Evidence(rule, experiment.level, variant.group, tests)
        case = Case(experiment, variant, unique_points(tables, variant), evidence, says)
        if not case.narrow.empty:
            found += [*_critical(case, tables), *_sharpness(case), *_generalisation(case), *_widths(case)]
        exact += [(case.mark, claim) for claim in inequalities(tables["theorems_polished"], variant, says)]
    found = _decided_by_draws(experiment, tables, says, found)
    rows = judge.gathered(found, main="fitted")
    printed = judge.gathered([(m, made) for m, made in found if made.name == "critical points"], main="printed")
    rows = [next((p for p in printed if p.name == row.name), row) for row in rows]
    return [*rows, *_counts(experiment, tables, says), *judge.gathered(exact)]


def _sharpness(c: Case) -> Made:
    ratio = by_seed(c.narrow, lambda rows: float((rows["lambda_sup"] / rows["lambda_max"]).median()))
    yield c.mark, c.evidence.compared(replace(c.says["tightness"], high=c.experiment.tight), ratio)
    skew = by_seed(c.narrow, lambda rows: float(rows["lambda_sup"].skew()))
    yield c.mark, c.evidence.compared(c.says["right skew"], skew)


def _sizes(c: Case) -> list[tuple[str, int]]:
    """(mark, test samples), the paper's number first."""
    sizes = sorted(c.experiment.dataset.test)
    return [(c.mark if i == 0 else f"{c.mark}, {size} test samples", size) for i, size in enumerate(sizes)]


def _generalisation(c: Case) -> Made:
    for name, size in _sizes(c):
        yield name, c.evidence.tested(c.says["low bound generalises better"], f"F1 on {size}, low - high", sign=1)

        def spread(rows: pd.DataFrame, size: int = size) -> float:
            low, high = split_low_high(rows, c.experiment.low_share)
            below = float(low[f"f1_test{size}"].std())
            return float(high[f"f1_test{size}"].std()) / below if below > 0 else math.nan

        yield name, c.evidence.compared(c.says["sharp points vary more"], by_seed(c.narrow, spread))

        def middle(rows: pd.DataFrame, size: int = size) -> float:
            low, high = split_low_high(rows, c.experiment.low_share)
            return float(low[f"f1_test{size}"].median() - high[f"f1_test{size}"].median()) or math.nan  # a tie is mute

        yield name, c.evidence.compared(c.says["lower median score"], by_seed(c.narrow, middle))


def _critical(c: Case, tables: Tables) -> Made:
    """Whether the ends are critical points: what polishing makes of them, downhill or to the nearest one.

    The printed stop ratio decides; degenerate points count, since their gradient is zero too.
    """
    rows = c.variant.rows(where_led(tables), c.experiment.portrait_hidden)
    critical = ("minimum", "saddle", "degenerate")

    def share(of: pd.DataFrame) -> float:
        return float((of["kind"].isin(critical) | of["nearest_kind"].isin(critical)).mean())

    says = replace(c.says["critical points"], low=c.experiment.share)
    found = c.evidence.compared(says, by_seed(rows, share), f"share of the ends >= {c.experiment.share:g}")
    kinds = ", ".join(f"{n} {k}" for k, n in rows["kind"].value_counts().items())
    near = ", ".join(f"{n} {k}" for k, n in rows["nearest_kind"].value_counts().items())
    left = c.variant.rows(tables["gradients"], c.experiment.portrait_hidden)
    keys = ["seed", "start"]
    left = left.merge(rows[keys], on=keys)
    detail = f"downhill: {kinds}; nearest point without gradient: {near}; the stop rule leaves a gradient of "
    detail += f"{left['gradient'].median():.2g} in the median, {left['gradient_ratio'].median():.2g} of the first"
    yield mark(replace(c.variant, polished=False)), replace(found, detail=f"{found.detail}; {detail}")


def _decided_by_draws(
    experiment: WsBound, tables: Tables, says: Mapping[str, Statement], found: list[tuple[str, Claim]]
) -> list[tuple[str, Claim]]:
    """The statements of Fig. 7 with further draws of the data in the place of the fitted protocol's few data sets."""
    if "draws" not in tables:
        return found
    names = ("low bound generalises better", "sharp points vary more")
    kept = [(f"{m} seed by seed" if m == "fitted" and c.name in names else m, c) for m, c in found]
    for (stage, size), rows in tables["draws"].groupby(["stage", "test_samples"], sort=True):
        first = stage == "stopped" and size == min(experiment.dataset.test)
        name = "fitted" if first else f"fitted draws {stage} {size} test samples"
        gain = (rows["f1_low"] - rows["f1_high"]).dropna().tolist()
        unit = f"mean F1 on {size} test samples, low less high"
        kept.append((name, over_draws(says[names[0]], gain, unit)))
        spread = (rows["spread_high"] - rows["spread_low"]).dropna().tolist()
        unit = f"std of F1 on {size} test samples, high less low"
        kept.append((name, over_draws(says[names[1]], spread, unit)))
    return kept


def _norms(c: Case) -> Made:
    yield c.mark, c.evidence.tested(c.says["V norm"], "V_norm_sq and bound", sign=1)
    yield c.mark, _unrelated(c)
    yield c.mark, c.evidence.tested(c.says["hidden Gram norm"], "lower edge of bound over RtR_norm_sq", sign=1)


def _unrelated(c: Case) -> Claim:
    """||W||² and the bound: the interval of Spearman's ρ of every data set, by Fisher's transformation."""
    says, found, values, listed = c.says["W norm"], {}, {}, []
    for seed, rows in c.narrow.groupby("seed", sort=True):
        rho, n = float(rows["W_norm_sq"].corr(rows["lambda_sup"], method="spearman")), len(rows)
        key = int(str(seed))
        values[key] = rho
        if n < 10 or math.isnan(rho) or abs(rho) == 1:
            found[key] = "inconclusive"
            continue
        half = 1.96 * math.sqrt((1 + rho**2 / 2) / (n - 3))  # of Spearman's ρ on Fisher's scale (Bonett and Wright)
        low, high = math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half)
        inside, outside = says.holds(low) and says.holds(high), high < says.low or low > says.high
        found[key] = "yes" if inside else "opposite" if outside else "inconclusive"
        listed.append(f"{rho:+.2f} [{low:+.2f}, {high:+.2f}]")
    return c.evidence.claim(says, found, values, f"interval of ρ {says.threshold}", "ρ " + ", ".join(listed))


def _widths(c: Case) -> Made:
    wide, narrow = c.experiment.compared_hidden, c.experiment.portrait_hidden
    if wide in set(c.points["hidden"]):
        test = f"bound, N={wide} - N={narrow}"
        yield c.mark, c.evidence.tested(c.says["width matters"], test, sign=0)
        yield c.mark, c.evidence.tested(c.says["width sharpens"], test, sign=1)


def _paths(c: Case, tables: Tables) -> Made:
    paths = c.variant.rows(tables["trajectories"]) if "trajectories" in tables else None
    if paths is None or paths.empty:
        return

    def over_start(rows: pd.DataFrame) -> pd.Series:
        """The bound along the way over that at the start."""
        bound = rows.sort_values("step")["lambda_sup"]
        return bound / bound.iloc[0]

    yield c.mark, c.evidence.compared(c.says["bound follows eigenvalue"], by_seed(paths, _following))
    for name, point in (
        ("bound rises on the way to the sharpest point", "sharpest_1"),
        ("bound does not rise on the way to the flattest point", "flattest_1"),
    ):
        own = paths[paths["point"] == point]
        ends = by_seed(own, lambda rows: float(over_start(rows).iloc[-1]))
        tops = by_seed(own, lambda rows: float(over_start(rows).max()))
        if point == "sharpest_1":
            why = "the path is the one of some 330 with the largest bound at its end; bound at the end over the start "
            yield c.mark, judge.constructed(c.says[name], why + ", ".join(f"{v:.3g}" for v in ends.values()))
        else:  # the paper says that the loss falls without a rise of the bound: no step may rise
            yield c.mark, c.evidence.compared(c.says[name], tops)
            yield f"{c.mark} at the end", c.evidence.compared(c.says[name], ends)


def _following(rows: pd.DataFrame) -> float:
    """Median over the paths of the correlation of log λ_sup and log λ₁ along a path."""
    import numpy as np
    import pandas as pd

    kept = rows[(rows["lambda_sup"] > 0) & (rows["lambda_max"] > 0)]
    found = [
        float(np.corrcoef(np.log(part["lambda_sup"]), np.log(part["lambda_max"]))[0, 1])
        for _, part in kept.groupby("point")
        if len(part) > 2
    ]
    return float(pd.Series(found, dtype=float).median())


def _counts(experiment: WsBound, tables: Tables, says: Mapping[str, Statement]) -> Iterator[Claim]:
    """The published counts are rows of the scorecard; no learning rate is printed, and one was fitted to them."""
    if "search" not in tables:
        return
    rows = tables["search"]
    fitted = rows[(rows["protocol"] == "fitted") & (rows["activation"] == PAPER_ACTIVATION)]
    if fitted.empty:
        return
    means = fitted.groupby("hidden")[["converged", "unique"]].mean()
    listed = "; ".join(f"N = {n}: {r['converged']:.0f} converge, {r['unique']:.0f} unique" for n, r in means.iterrows())
    detail = f"fitted, mean over data sets: {listed}; no learning rate is printed and this protocol's was chosen by "
    yield judge.claim(says["published counts"], "not comparable", detail=detail + "these counts: see the scorecard")
