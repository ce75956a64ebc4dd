"""The paper's statements as claims, each decided data set by data set under every protocol and reading."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from experiments.hsr.regularization.analysis import NAMES, Tables, Variant, by_seed, variants
from experiments.ws_bound.analysis import over_data_sets
from runner.contract.experiment import Claim, decide
from runner.stats import Statistic

if TYPE_CHECKING:
    import pandas as pd

    from experiments.hsr.regularization import HsrRegularization

SKEWED = 1.0
"""Sample skewness beyond which a distribution has a long tail, the usual reading."""
NEAR_ZERO = 0.01
"""λ_D is "close to 0" when its median size is below this part of λ₁."""
PUBLISHED = {"converged": 2799, "unique": 1124, "sharp": 113}
REGULARISED = ("trace", "asam", "asam_wide", "hsr")
SAMS = ("asam", "asam_wide")


@dataclass(frozen=True)
class Evidence:
    """What the claims of one variant look at; tests: Holm-corrected, by (name, group)."""

    experiment: HsrRegularization
    variant: Variant
    tables: Tables
    tests: Mapping[tuple[str, str], Statistic]

    def rows(self, table: str, **where: str) -> pd.DataFrame:
        found = self.variant.rows(self.tables[table])
        for column, value in where.items():
            found = found[found[column] == value]
        return found

    def claim(
        self,
        name: str,
        statement: str,
        where: str,
        found: Mapping[int, str],
        values: list[float],
        threshold: str,
        detail: str,
    ) -> Claim:
        """What each data set shows, and the median over them of the quantity looked at."""
        import numpy as np

        holds, text = over_data_sets(self.experiment, found)
        finite = [v for v in values if math.isfinite(v)]
        statistic = float(np.median(finite)) if finite else math.nan
        return Claim(
            name, statement, where, decide(holds), statistic, threshold, f"{text}; {detail}", self.variant.group
        )

    def of_seeds(self, test: str) -> dict[int, Statistic]:
        seeds = sorted(set(self.rows("endpoints")["seed"]))
        found = {int(seed): self.tests.get((test, f"{self.variant.group} seed={seed}")) for seed in seeds}
        return {seed: row for seed, row in found.items() if row is not None}

    def tested(self, name: str, statement: str, where: str, test: str, *, sign: int) -> Claim:
        """Decided by one test in every data set, at the paper's level and unadjusted as in the paper.

        Chance is kept out by asking for agreement of data sets; how many stay below the level after Holm's correction
        within the figure is added.
        """
        level, found, rows = self.experiment.level, {}, self.of_seeds(test)
        for seed, row in rows.items():
            if math.isnan(row.p) or row.p_min >= level:
                found[seed] = "mute"
            else:
                found[seed] = "no" if row.p >= level else "yes" if sign * row.effect > 0 else "opposite"
        strict = sum(row.p_holm < level for row in rows.values())
        detail = f"{_effects(rows)}; {strict} below {level:g} after Holm"
        threshold = f"p < {level:g} in a data set, effect {'> 0' if sign > 0 else '< 0'}"
        return self.claim(name, statement, where, found, [row.effect for row in rows.values()], threshold, detail)

    def within(self, name: str, statement: str, where: str, test: str, low: float, high: float, text: str) -> Claim:
        """Decided by the 95 % interval of the Hodges–Lehmann shift: shown when it lies within [low, high], the
        opposite when it lies wholly outside, no decision when it straddles a margin."""
        found, rows = {}, self.of_seeds(test)
        for seed, row in rows.items():
            if not (math.isfinite(row.shift_low) and math.isfinite(row.shift_high)):
                found[seed] = "mute"
            elif low <= row.shift_low and row.shift_high <= high:
                found[seed] = "yes"
            else:
                found[seed] = "opposite" if row.shift_high < low or row.shift_low > high else "no"
        listed = ", ".join(f"{r.shift:.2g} [{r.shift_low:.2g}, {r.shift_high:.2g}]" for r in rows.values())
        shifts = [row.shift for row in rows.values()]
        return self.claim(name, statement, where, found, shifts, text, f"shifts {listed}; {_effects(rows)}")

    def compared(
        self,
        name: str,
        statement: str,
        where: str,
        rows: pd.DataFrame,
        of: Callable[[pd.DataFrame], float],
        holds: Callable[[float], bool],
        threshold: str,
    ) -> Claim:
        """Decided by one number of every data set."""
        values = {seed: of(part) for seed, part in by_seed(rows)}
        found = {seed: "mute" if math.isnan(v) else "yes" if holds(v) else "no" for seed, v in values.items()}
        listed = "values " + ", ".join(f"{v:.3g}" for v in values.values())
        return self.claim(name, statement, where, found, list(values.values()), threshold, listed)


def _effects(rows: Mapping[int, Statistic]) -> str:
    return "effects " + ", ".join(f"{row.effect:+.2f}" for row in rows.values())


def claims(experiment: HsrRegularization, tables: Tables, tests: Mapping[tuple[str, str], Statistic]) -> list[Claim]:
    """Every claim under every variant; tests: Holm-corrected, by (name, group)."""
    found: list[Claim] = []
    for variant in variants(experiment, tables):
        evidence = Evidence(experiment, variant, tables, tests)
        if variant.reading == experiment.reading[0]:
            found += _about_search(evidence)
            found += _about_views(evidence)
        found += _about_sharpness(evidence)
        found += _about_minimum(evidence)
        found += _about_generalisation(evidence)
    return found


def _about_search(e: Evidence) -> Iterator[Claim]:
    points, limit = e.rows("critical_points"), e.experiment.tight
    yield e.compared(
        "tightness",
        "the bound is tight with respect to the largest eigenvalue",
        "Fig. 9",
        points,
        lambda rows: float((rows["lambda_sup"] / rows["lambda_max"]).median()),
        lambda v: v <= limit,
        f"median of bound / eigenvalue <= {limit:g}",
    )
    yield e.compared(
        "right skew",
        "the bounds of the critical points are right-skewed with a long tail",
        "Fig. 9",
        points,
        lambda rows: float(rows["lambda_sup"].skew()),
        lambda v: v > SKEWED,
        f"sample skewness > {SKEWED:g}",
    )
    search = e.rows("search")
    inside = [search[c].min() <= v <= search[c].max() for c, v in PUBLISHED.items()]
    enough = search["seed"].nunique() >= e.experiment.data_sets and set(search["starts"]) == {3000}
    detail = "; ".join(f"{c}: {search[c].min()}-{search[c].max()}, published {v}" for c, v in PUBLISHED.items())
    yield Claim(
        "published counts",
        "2,799 of 3,000 starts converge, 1,124 points are unique, 113 of them sharp",
        "Section VI-A",
        decide(all(inside) if enough else None),
        float(search["unique"].mean()),
        "all three within the range over data sets",
        detail,
        f"protocol={e.variant.protocol}",
    )


def _about_views(e: Evidence) -> Iterator[Claim]:
    """Figs. 10 and 11."""
    flat = e.rows("dynamics", group="flat")
    factor = e.experiment.eigenvalue_margin
    for quantity, name in (("loss", "loss"), ("lambda_max", "λ₁")):
        yield e.compared(
            f"dynamics from flat seeds, {name}",
            f"from flat seeds the {name} evolves almost alike under all methods",
            "Fig. 10",
            flat[flat["quantity"] == quantity],
            _largest_ratio,
            lambda v: v <= factor,
            f"largest ratio of the methods' medians at any step <= {factor:g}",
        )
    sharp = e.rows("profiles", kind="sharp group")
    yield e.compared(
        "HSR consistently flat",
        "along u₁ HSR has the flattest loss of all methods from sharp seeds",
        "Fig. 11",
        sharp,
        _steepest_of_hsr,
        lambda v: v <= 1,
        "its 90 % quantile at the end of the line / the smallest of the other methods' <= 1",
    )


def _largest_ratio(rows: pd.DataFrame) -> float:
    table = rows.pivot_table(index="step", columns="method", values="q50")
    return float((table.max(axis=1) / table.min(axis=1)).max())


def _steepest_of_hsr(rows: pd.DataFrame) -> float:
    ends = rows[rows["offset"].abs() == rows["offset"].abs().max()].groupby("method")["q90"].max()
    return float(ends["hsr"] / ends.drop("hsr").min()) if "hsr" in ends and len(ends) > 1 else math.nan


def _about_sharpness(e: Evidence) -> Iterator[Claim]:
    """Fig. 12 A-C."""
    log_margin, factor = math.log(e.experiment.eigenvalue_margin), e.experiment.eigenvalue_margin
    for quantity, name, where in (
        ("lambda_max", "λ₁", "Fig. 12A"),
        ("mean", "mean of the spectrum", "Fig. 12B"),
        ("std", "std of the spectrum", "Fig. 12C"),
    ):
        for method in REGULARISED:
            yield e.tested(
                f"{NAMES[method]} lowers {name} from sharp seeds",
                f"{NAMES[method]} ends at a smaller {name} than plain descent from sharp seeds",
                where,
                f"{quantity}, {method} - gd, sharp seeds",
                sign=-1,
            )
        for method in ("hsr", *SAMS):
            yield e.tested(
                f"{NAMES[method]} beats trace regularisation on {name}",
                f"from sharp seeds {NAMES[method]} ends at a smaller {name} than trace regularisation",
                where,
                f"{quantity}, {method} - trace, sharp seeds",
                sign=-1,
            )
    for sam in SAMS:
        test = f"log_lambda_max, hsr - {sam}, sharp seeds"
        yield e.within(
            f"HSR comparable to {NAMES[sam]} on λ₁",
            f"from sharp seeds HSR and {NAMES[sam]} end at comparable λ₁",
            "Fig. 12A",
            test,
            -log_margin,
            log_margin,
            f"interval of the ratio within 1/{factor:g} and {factor:g}",
        )
        yield e.within(
            f"HSR not worse than {NAMES[sam]} on λ₁",
            f"from sharp seeds HSR ends at no larger λ₁ than {NAMES[sam]}",
            "Fig. 12A",
            test,
            -math.inf,
            log_margin,
            f"interval of the ratio below {factor:g}",
        )
    for method in REGULARISED:
        yield e.within(
            f"{NAMES[method]} does no harm to λ₁ from flat seeds",
            f"from flat seeds {NAMES[method]} ends at no larger λ₁ than plain descent",
            "Fig. 12A",
            f"log_lambda_max, {method} - gd, flat seeds",
            -math.inf,
            log_margin,
            f"interval of the ratio below {factor:g}",
        )


def _about_minimum(e: Evidence) -> Iterator[Claim]:
    """Figs. 12 D and 13."""
    ends = e.rows("endpoints", status="ok")
    yield e.compared(
        "smallest eigenvalue close to 0",
        "λ_D is close to 0 in most cases",
        "Fig. 12D",
        ends,
        lambda rows: float((rows["lambda_min"].abs() / rows["lambda_max"]).median()),
        lambda v: v < NEAR_ZERO,
        f"median of |λ_D| / λ₁ < {NEAR_ZERO:g}",
    )
    for group in ("sharp", "flat"):
        yield _not_lowered(e, group)
    flat, limit = ends[ends["group"] == "flat"], e.experiment.saddle_ratio
    for sam in SAMS:
        yield e.compared(
            f"{NAMES[sam]}: λ_D left-skewed",
            f"from flat seeds λ_D under {NAMES[sam]} has a long tail to the negative side",
            "Fig. 12D",
            flat[flat["method"] == sam],
            lambda rows: float(rows["lambda_min"].skew()),
            lambda v: v < -SKEWED,
            f"sample skewness < -{SKEWED:g}",
        )
        yield e.tested(
            f"λ_D smaller under {NAMES[sam]} than under HSR",
            f"from flat seeds {NAMES[sam]} ends at smaller λ_D than HSR",
            "Fig. 12D",
            f"lambda_min, hsr - {sam}, flat seeds",
            sign=1,
        )
        yield e.compared(
            f"{NAMES[sam]} ends at more saddles than HSR",
            f"from flat seeds {NAMES[sam]} ends at saddles, HSR does not",
            "Fig. 13",
            flat,
            partial(_more_saddles, method=sam, limit=limit),
            lambda v: v > 0,
            f"share of points with -λ_D / λ₁ >= {limit:g}, {NAMES[sam]} - HSR > 0",
        )
    for method, expected in (*((sam, True) for sam in SAMS), ("hsr", False)):
        yield e.compared(
            f"{'saddle' if expected else 'no saddle'} at the whisker of {NAMES[method]}",
            f"the point at the tip of λ_D's whisker is {'a clear' if expected else 'no clear'} saddle",
            "Fig. 13",
            flat[flat["method"] == method],
            _whisker_ratio,
            partial(_reaches, limit, expected),
            f"-λ_D / λ₁ {'>=' if expected else '<'} {limit:g}",
        )


def _more_saddles(rows: pd.DataFrame, method: str, limit: float) -> float:
    """Share of a method's points that are clear saddles, less that of HSR's."""
    return _saddles(rows, method, limit) - _saddles(rows, "hsr", limit)


def _reaches(limit: float, expected: bool, value: float) -> bool:
    return (value >= limit) is expected


def _not_lowered(e: Evidence, group: str) -> Claim:
    """A claim of absence: refuted in a data set where λ_D is significantly smaller than under plain descent."""
    rows, level, found = e.of_seeds(f"lambda_min, hsr - gd, {group} seeds"), e.experiment.level, {}
    for seed, row in rows.items():
        mute = math.isnan(row.p) or row.p_min >= level
        found[seed] = "mute" if mute else "opposite" if row.p < level and row.effect < 0 else "yes"
    return e.claim(
        f"HSR does not push λ_D down, {group} seeds",
        f"from {group} seeds λ_D under HSR is not below that under plain descent",
        "Fig. 12D",
        found,
        [row.effect for row in rows.values()],
        f"no effect < 0 with p < {level:g}",
        _effects(rows),
    )


def whisker_tip(values: pd.Series) -> float:
    """Smallest value within 1.5 interquartile ranges of the lower quartile."""
    low, high = values.quantile(0.25), values.quantile(0.75)
    return float(values[values >= low - 1.5 * (high - low)].min())


def _whisker_ratio(rows: pd.DataFrame) -> float:
    tip = rows[rows["lambda_min"] == whisker_tip(rows["lambda_min"])]
    return float(-tip["lambda_min"].iloc[0] / tip["lambda_max"].iloc[0]) if len(tip) else math.nan


def _saddles(rows: pd.DataFrame, method: str, limit: float) -> float:
    part = rows[rows["method"] == method]
    return float((-part["lambda_min"] >= limit * part["lambda_max"]).mean())


def _about_generalisation(e: Evidence) -> Iterator[Claim]:
    """Figs. 14 and 15."""
    margin = e.experiment.f1_margin
    for method in REGULARISED:
        yield e.tested(
            f"{NAMES[method]} raises F1 from sharp seeds",
            f"from sharp seeds {NAMES[method]} has a higher macro F1 on test data than plain descent",
            "Fig. 14",
            f"f1, {method} - gd, sharp seeds",
            sign=1,
        )
    for method in ("hsr", *SAMS):
        yield e.tested(
            f"{NAMES[method]} raises F1 more than trace regularisation",
            f"from sharp seeds {NAMES[method]} has a higher macro F1 than trace regularisation",
            "Fig. 14",
            f"f1, {method} - trace, sharp seeds",
            sign=1,
        )
    for sam in SAMS:
        test = f"f1, hsr - {sam}, sharp seeds"
        yield e.within(
            f"HSR comparable to {NAMES[sam]} on F1",
            f"from sharp seeds HSR and {NAMES[sam]} reach comparable macro F1",
            "Fig. 14",
            test,
            -margin,
            margin,
            f"interval of the difference within ±{margin:g}",
        )
        yield e.within(
            f"HSR not worse than {NAMES[sam]} on F1",
            f"from sharp seeds HSR reaches at least the macro F1 of {NAMES[sam]}",
            "Fig. 14",
            test,
            -margin,
            math.inf,
            f"interval of the difference above -{margin:g}",
        )
    yield e.within(
        "HSR does no harm to F1 from flat seeds",
        "from flat seeds macro F1 under HSR is not below that under plain descent",
        "Fig. 14",
        "f1, hsr - gd, flat seeds",
        -margin,
        math.inf,
        f"interval of the difference above -{margin:g}",
    )
    yield e.tested(
        "HSR simplifies decision boundaries",
        "from sharp seeds decision boundaries under HSR are simpler, read as shorter",
        "Fig. 15",
        "boundary_length, hsr - gd, sharp seeds",
        sign=-1,
    )
