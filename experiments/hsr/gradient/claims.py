"""The paper's statements of Sections IV and V as claims, decided data set by data set."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from experiments.hsr.gradient.tests_and_fits import SIZES, Tables, Tests, by_seed
from experiments.ws_bound.analysis import over_data_sets
from runner.contract.experiment import Claim, decide
from runner.stats import Statistic

if TYPE_CHECKING:
    import pandas as pd

    from experiments.hsr.gradient import HsrGradient

CLOSE = 1e-8
""""On the order of 1e-9" is read as below this."""
CONSISTENT = 1e-6
"""Three-point differences lose half of the digits of a number, so no better agreement can be asked for."""
LINEAR = 0.1
"""A contribution vanishes with |delta| when its exponent over the last decades is at least 1 less this."""
STRENGTHS = ("trace", "pair", "bound")


def claims(experiment: HsrGradient, tables: Tables, tests: Tests) -> list[Claim]:
    """The claims whose part of the study is stored."""
    makers: dict[str, Callable[[HsrGradient, Tables, Tests], Iterator[Claim]]] = {
        "timing": _timing,
        "difference_norms": _agreement,
        "influence": _influence,
        "vanishing_error": _vanishing,
        "covariance": _covariance,
        "terms": _terms,
        "bound_descent": _descent,
        "narrowed": _narrowed,
    }
    return [claim for name, make in makers.items() if name in tables for claim in make(experiment, tables, tests)]


def _each(
    experiment: HsrGradient,
    name: str,
    statement: str,
    where: str,
    table: pd.DataFrame,
    of: Callable[[pd.DataFrame], float],
    holds: Callable[[float], bool],
    threshold: str,
    group: str = "",
) -> Claim:
    """Decided by one number of every data set."""
    values = {seed: of(rows) for seed, rows in by_seed(table)}
    found = {seed: "mute" if math.isnan(v) else "yes" if holds(v) else "no" for seed, v in values.items()}
    verdict, text = over_data_sets(experiment, found)
    listed = ", ".join(f"{v:.3g}" for v in values.values())
    middle = sorted(values.values())[len(values) // 2] if values else math.nan
    return Claim(name, statement, where, decide(verdict), middle, threshold, f"{text}; values {listed}", group)


def _timing(experiment: HsrGradient, tables: Tables, tests: Tests) -> Iterator[Claim]:
    def slowest(rows: pd.DataFrame) -> float:
        pairs = rows.pivot_table(index=["varied", "samples", "dimension"], columns="form", values="seconds")
        return float((pairs["numerical"] / pairs["analytic"]).min())

    yield _each(
        experiment,
        "analytic faster",
        "the analytic gradient takes less time than the numerical one at every size",
        "Fig. 2",
        tables["timing"],
        slowest,
        lambda v: v > 1,
        "smallest ratio of times, numerical / analytic > 1",
    )
    margin = experiment.exponent_margin
    for varied, form, stated, words in (
        ("dimension", "analytic", 1.0, "increases linearly with D"),
        ("samples", "analytic", 2.0, "is proportional to I²"),
    ):
        name = f"exponent in {SIZES[varied]}, {form}"
        slopes = {int(g.removeprefix("seed=")): s.slope for (n, g), s in tests.items() if n == name}
        found = {seed: "yes" if abs(v - stated) <= margin else "no" for seed, v in slopes.items()}
        verdict, text = over_data_sets(experiment, found)
        listed = ", ".join(f"{v:.2f}" for v in slopes.values())
        yield Claim(
            f"{form} time {words}",
            f"the time of the {form} gradient {words}",
            "Fig. 2, Section IV-A",
            decide(verdict),
            sorted(slopes.values())[len(slopes) // 2] if slopes else math.nan,
            f"fitted exponent within {margin:g} of {stated:g}",
            f"{text}; exponents {listed}; this project's form of "
            "the gradient costs O(I D²), not a double sum over samples",
        )


def _agreement(experiment: HsrGradient, tables: Tables, tests: Tests) -> Iterator[Claim]:
    table = tables["difference_norms"]
    yield _each(
        experiment,
        "analytic gradient agrees",
        "analytic and numerical gradients are consistent",
        "Fig. 3",
        table,
        lambda rows: float((rows["difference_norm"] / rows["gradient_norm"]).max()),
        lambda v: v < CONSISTENT,
        f"largest norm of the difference, relative to the gradient's, < {CONSISTENT:g}",
    )
    for name, text in (("trace", "tr H"), ("trace_of_square", "tr H²")):
        yield _each(
            experiment,
            f"difference of about 1e-9, {text}",
            f"the gradients of {text} differ by about 1e-9 in norm",
            "Fig. 3",
            table[table["of"] == name],
            lambda rows: float(rows["difference_norm"].median()),
            lambda v: v < CLOSE,
            f"median norm of the difference < {CLOSE:g}",
        )


def _influence(experiment: HsrGradient, tables: Tables, tests: Tests) -> Iterator[Claim]:
    level = experiment.level
    for name in STRENGTHS:
        for block in ("w", "v"):
            rows = [(g, s) for (n, g), s in tests.items() if n == f"|delta| and {name} {block}"]
            by_data: dict[int, list[Statistic]] = {}
            for group, test in rows:
                by_data.setdefault(int(group.split()[0].removeprefix("seed=")), []).append(test)
            found = {}
            for seed, row in by_data.items():
                shares = sum(t.p < level and t.effect > 0 for t in row) / len(row)
                against = sum(t.p < level and t.effect < 0 for t in row) / len(row)
                found[seed] = "yes" if shares >= experiment.share else "opposite" if against > 0.5 else "no"
            verdict, text = over_data_sets(experiment, found)
            effects = sorted(t.effect for _, t in rows)
            yield Claim(
                f"small |delta|, small gradient: {name} {block}",
                "the closer p is to q, the smaller the sample's part of the gradient",
                "Fig. 4",
                decide(verdict),
                effects[len(effects) // 2] if effects else math.nan,
                f"Spearman's ρ > 0 with p < {level:g} in {experiment.share:.0%} of the networks of a data set",
                f"{text}; ρ from {effects[0]:.2f} to {effects[-1]:.2f}" if effects else text,
                f"part={name} {block}",
            )


def _vanishing(experiment: HsrGradient, tables: Tables, tests: Tests) -> Iterator[Claim]:
    """Proposition 1 is about a limit: the exponent of the norm in |delta| over the last recorded decades."""

    def exponent(rows: pd.DataFrame) -> float:
        slopes = []
        for _, part in rows.groupby(["start", "of"]):
            part = part.sort_values("error")
            first, last = part.iloc[0], part.iloc[2]
            if first["norm"] > 0 and last["norm"] > 0:
                slopes.append(math.log(last["norm"] / first["norm"]) / math.log(last["error"] / first["error"]))
        return min(slopes) if slopes else math.nan

    yield _each(
        experiment,
        "Proposition 1",
        "the contributions of sample i vanish as p_i goes to q_i",
        "Proposition 1",
        tables["vanishing_error"],
        exponent,
        lambda v: v >= 1 - LINEAR,
        f"smallest exponent of the norm in |delta| >= {1 - LINEAR:g}",
    )


def _covariance(experiment: HsrGradient, tables: Tables, tests: Tests) -> Iterator[Claim]:
    table = tables["covariance"]

    def rise(rows: pd.DataFrame) -> float:
        ends = rows.set_index("covariance")["q50"]
        largest = ends[ends.index.to_series().abs() == ends.index.to_series().abs().max()].mean()
        smallest = ends[ends.index.to_series().abs() == ends.index.to_series().abs().min()].mean()
        return float(largest / smallest)

    for half_range in dict.fromkeys(table["half_range"]):
        group = f"range={half_range:g}"
        part = table[table["half_range"] == half_range]
        for activation in dict.fromkeys(part["activation"]):
            yield _each(
                experiment,
                f"similar samples, larger gradient: {activation}",
                "inputs with larger inner products give a larger gradient of the squared trace",
                "Fig. 5",
                part[part["activation"] == activation],
                rise,
                lambda v: v > 1,
                "median norm at the largest / at the smallest |covariance| > 1",
                group,
            )
        if set(part["activation"]) == {"linear", "sigmoid"}:

            def stronger(rows: pd.DataFrame) -> float:
                both = {str(name): rise(p) for name, p in rows.groupby("activation")}
                return both["linear"] / both["sigmoid"]

            yield _each(
                experiment,
                "weaker under saturation",
                "the effect of inner products is larger for linear activation than for sigmoid",
                "Fig. 5",
                part,
                stronger,
                lambda v: v > 1,
                "ratio of the two rises > 1",
                group,
            )


def _terms(experiment: HsrGradient, tables: Tables, tests: Tests) -> Iterator[Claim]:
    for half_range in dict.fromkeys(tables["terms"]["half_range"]):
        name = f"std term - mean term, range {half_range:g}"
        rows = {int(g.removeprefix("seed=")): s for (n, g), s in tests.items() if n == name}
        found = {}
        for seed, s in rows.items():
            mute = math.isnan(s.p) or s.p_min >= experiment.level
            found[seed] = "mute" if mute else "no" if s.p >= experiment.level else "yes" if s.effect > 0 else "opposite"
        verdict, text = over_data_sets(experiment, found)
        effects = [s.effect for s in rows.values()]
        yield Claim(
            "std term dominates",
            "√(D−1) ∇σ is larger than ∇μ at random networks",
            "Fig. 6",
            decide(verdict),
            sorted(effects)[len(effects) // 2] if effects else math.nan,
            f"p < {experiment.level:g}, effect > 0",
            f"{text}; effects {', '.join(f'{e:+.2f}' for e in effects)}",
            f"range={half_range:g}",
        )


def _descent(experiment: HsrGradient, tables: Tables, tests: Tests) -> Iterator[Claim]:
    """Fig. 7: shares of starts, since the paper shows one."""
    table, share = tables["bound_descent"], experiment.share

    def part(condition: Callable[[pd.Series, pd.Series], bool]) -> Callable[[pd.DataFrame], float]:
        def of(rows: pd.DataFrame) -> float:
            ends = [(p.sort_values("step").iloc[0], p.sort_values("step").iloc[-1]) for _, p in rows.groupby("start")]
            return sum(condition(a, b) for a, b in ends) / len(ends)

        return of

    dimension = sum(c.startswith("lambda_") and c[7:].isdigit() for c in table.columns)
    last = f"lambda_{dimension}"
    for name, statement, condition in (
        ("bound falls", "descent on the bound lowers it", lambda a, b: b["lambda_sup"] < a["lambda_sup"]),
        (
            "largest eigenvalue falls",
            "the largest eigenvalue falls with the bound",
            lambda a, b: b["lambda_1"] < a["lambda_1"],
        ),
        (
            "lower bound rises",
            "the lower bound rises while the upper bound falls",
            lambda a, b: b["lambda_inf"] > a["lambda_inf"],
        ),
        (
            "smallest eigenvalue rises to 0",
            "the smallest eigenvalue approaches 0 from the negative side",
            lambda a, b: a[last] <= 0 and abs(b[last]) < abs(a[last]),
        ),
        (
            "spectrum narrows",
            "the range of the eigenvalues narrows",
            lambda a, b: b["lambda_1"] - b[last] < a["lambda_1"] - a[last],
        ),
    ):
        yield _each(
            experiment,
            name,
            statement,
            "Fig. 7",
            table,
            part(condition),
            lambda v: v >= share,
            f"share of starts, first against last point >= {share:g}",
        )


def _narrowed(experiment: HsrGradient, tables: Tables, tests: Tests) -> Iterator[Claim]:
    rows = tables["narrowed"]
    least = float(rows[["upper_falls_by", "lower_rises_by"]].min().min())
    yield Claim(
        "Proposition 2",
        "a smaller σ at the same μ lowers the upper and raises the lower bound",
        "Proposition 2",
        decide(least > 0),
        least,
        "smallest move of either bound > 0",
        f"{len(rows)} random spectra",
    )
