"""Fitted exponents, tests, values beside the paper's, and findings in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from runner import stats
from runner.stats import Statistic

if TYPE_CHECKING:
    import pandas as pd

    from experiments.hsr.gradient.settings import HsrGradient

Tables = Mapping[str, "pd.DataFrame"]
Tests = Mapping[tuple[str, str], Statistic]
"""Rows of stats.csv by (name, group), with Holm's correction within a figure."""
UNPRINTED = "network, scale and step of the differences are not printed"
SIZES = {"dimension": "D", "samples": "I"}
FORMS = {
    "double sum": "double sum",
    "matrix": "double sum as matrices",
    "own": "this project's form",
    "autodiff": "automatic differentiation",
    "numerical": "three-point differences",
}
"""Form of the gradient -> its name in figures and findings."""


def by_seed(table: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    """(seed, rows) of each data set, in order."""
    for seed, rows in table.groupby("seed", sort=True):
        yield int(str(seed)), rows


def statistics(experiment: HsrGradient, tables: Tables) -> list[Statistic]:
    """Every row of stats.csv, without Holm's correction."""
    parts = {"influence": _influence, "terms": _terms, "covariance": _covariance}
    exponents = list(_exponents(experiment, tables["cost"])) if "cost" in tables else []
    return exponents + [row for name, make in parts.items() if name in tables for row in make(tables[name])]


def _exponents(experiment: HsrGradient, table: pd.DataFrame) -> Iterator[Statistic]:
    """Slope of log seconds against log size over the last doublings, where calls no longer cost: the exponent."""
    import numpy as np

    known = table[table["status"] == "ok"]
    for seed, rows in by_seed(known):
        for (varied, form), whole in rows.groupby(["varied", "form"], sort=False):
            part = whole.sort_values(varied).iloc[-(experiment.octaves + 1) :]
            yield stats.linear(
                np.log(part[varied]),
                np.log(part["seconds"]),
                name=f"exponent in {SIZES[str(varied)]}, {form}",
                figure="fig02",
                where="Fig. 2",
                group=f"seed={seed}",
            )


def _influence(table: pd.DataFrame) -> Iterator[Statistic]:
    """Rank correlation of |delta_i| and the norm of the sample's contribution, over the samples of each network.

    Networks of a data set share its samples, so each gives one row, and a data set one row of their medians.
    """
    for seed, rows in by_seed(table):
        for (name, block), part in rows.groupby(["of", "block"], sort=False):
            found = [
                stats.spearman(
                    p["error"],
                    p["norm"],
                    name=f"|delta| and {name} {block}",
                    figure="fig04",
                    where="Fig. 4",
                    group=f"seed={seed} start={start}",
                )
                for start, p in part.groupby("start")
            ]
            yield from found
            yield stats.summary(
                [s.effect for s in found],
                name=f"ρ of |delta| and {name} {block}",
                figure="fig04",
                where="Fig. 4",
                group=f"seed={seed}",
            )


def _terms(table: pd.DataFrame) -> Iterator[Statistic]:
    for seed, rows in by_seed(table):
        for half_range, part in rows.groupby("half_range", sort=False):
            yield stats.wilcoxon(
                part["std_term"],
                part["mean_term"],
                name=f"std term - mean term, range {half_range:g}",
                figure="fig06",
                where="Fig. 6",
                group=f"seed={seed}",
                label_a="std term",
                label_b="mean term",
            )


def _covariance(table: pd.DataFrame) -> Iterator[Statistic]:
    """Rank correlation of |covariance| and the median norm: inner products grow with either sign."""
    for seed, rows in by_seed(table):
        for (activation, half_range), part in rows.groupby(["activation", "half_range"], sort=False):
            name = f"|covariance| and gradient norm, {activation}, range {half_range:g}"
            yield stats.spearman(
                part["covariance"].abs(), part["q50"], name=name, figure="fig05", where="Fig. 5", group=f"seed={seed}"
            )


def measured(experiment: HsrGradient, tables: Tables) -> pd.DataFrame:
    """Values for experiments/reference/hsr_gradient.csv: metric, of, block, seed, value."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    if "difference_norms" in tables:
        keys = ["seed", "of", "block"]
        for (seed, name, block), value in tables["difference_norms"].groupby(keys)["difference_norm"].median().items():
            rows.append({"metric": "difference_norm", "of": name, "block": block, "seed": seed, "value": value})
    found = pd.DataFrame(rows, columns=["metric", "of", "block", "seed", "value"])
    return found.assign(comparable=UNPRINTED)


def notes(experiment: HsrGradient, tables: Tables, tests: Tests) -> list[str]:
    """Findings for the report."""
    found = []
    if "cost" in tables:
        found.append(
            "Times are processor seconds of this machine, the least of several turns: the one table that does not "
            "repeat byte for byte."
        )
        for varied, symbol in SIZES.items():
            fits = {f: [s.slope for (n, _), s in tests.items() if n == f"exponent in {symbol}, {f}"] for f in FORMS}
            listed = "; ".join(f"{FORMS[f]} {', '.join(f'{v:.2f}' for v in v_)}" for f, v_ in fits.items() if v_)
            found.append(f"Exponents of the time in {symbol} over the last {experiment.octaves} doublings: {listed}.")
            found += break_even(tables["cost"], varied, symbol)
    if "difference_norms" in tables:
        norms = tables["difference_norms"]
        relative = (norms["difference_norm"] / norms["gradient_norm"]).max()
        found.append(
            f"Analytic and three-point gradients differ by at most {norms['difference_norm'].max():.2g} in norm, "
            f"{relative:.2g} relative, with h = {experiment.difference_step:g}: the error of the differences."
        )
    return found


def break_even(cost: pd.DataFrame, varied: str, symbol: str) -> Iterator[str]:
    """Where this project's form becomes the faster or the slower one of two, from the medians over data sets."""
    import numpy as np

    rows = cost[(cost["varied"] == varied) & (cost["status"] == "ok")]
    times = rows.pivot_table(index=varied, columns="form", values="seconds", aggfunc="median")
    for other in ("double sum", "matrix", "autodiff", "numerical"):
        if other not in times or "own" not in times:
            continue
        log = np.log((times[other] / times["own"]).dropna())
        sizes = np.log(log.index.to_numpy(dtype=float))
        turns = [
            float(np.exp(sizes[k] - log.iloc[k] * (sizes[k + 1] - sizes[k]) / (log.iloc[k + 1] - log.iloc[k])))
            for k in range(len(log) - 1)
            if log.iloc[k] * log.iloc[k + 1] < 0
        ]
        ends = f"{np.exp(log.iloc[0]):.2g} at {symbol} = {log.index[0]}, {np.exp(log.iloc[-1]):.2g} at {log.index[-1]}"
        even = f"break-even at {symbol} = {', '.join(f'{t:.0f}' for t in turns)}" if turns else "no break-even"
        yield f"Time of {FORMS[other]} over that of this project's form: {ends}; {even}."
