"""What the tables say in words, the numbers of Theorem J.1 that a reference row holds, and the statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from experiments.attention.newton import readings
from experiments.attention.newton.prices import ALONE, TOGETHER
from runner.stats import spearman

if TYPE_CHECKING:
    from experiments.attention.newton.settings import AttentionNewton
    from runner.stats import Statistic

Tables = Mapping[str, pd.DataFrame]
FEWEST = 10  # values below which a correlation says nothing


def measured(tables: Tables) -> pd.DataFrame | None:
    """The number of Theorem J.1 that a reference row holds, one value per seed (the worst problem).

    Its ε bounds the distance to X*; how far X* is from the data is a statement (`claims`), not a printed number.
    """
    if "theorem" not in tables:
        return None
    good = tables["theorem"][tables["theorem"]["status"] == "ok"]
    worst = good.groupby("seed")["excess"].max().reset_index(name="value")
    return worst.assign(metric="error_over_epsilon", extreme=True)


def statistics(tables: Tables) -> list[Statistic]:
    """Rank correlation of sigma_min with each axis that has an order."""
    if "identify" not in tables:
        return []
    found = []
    for axis, rows in tables["identify"].groupby("axis", sort=False):
        x, y = rows["value"].to_numpy(), rows["sigma_min"].to_numpy()
        if len(rows) >= FEWEST and len(np.unique(x)) > 2:
            about = {"figure": "identifiability", "label_a": str(axis), "label_b": "sigma_min(J)"}
            found.append(spearman(x, y, name=f"sigma_min against {axis}", **about))  # type: ignore[arg-type]
    return found


def notes(setup: AttentionNewton, tables: Tables) -> list[str]:
    """One or two sentences for each study."""
    found = []
    if "contest" in tables:
        found += _contest(setup, tables)
    if {"contest", "prices"} <= set(tables):
        found += _equal_time(tables)
    if "balls" in tables:
        found += _certificate(tables)
    if "scan" in tables:
        found.append(_scan(setup, tables["scan"]))
    if "identify" in tables:
        found += _identify(setup, tables["identify"])
    if "targets" in tables:
        found += _targets(setup, tables)
    return found


def _contest(setup: AttentionNewton, tables: Tables) -> list[str]:
    blind = tables["contest"][tables["contest"]["origin"].astype(str) == "blind"]
    texts = []
    for size in readings.sizes(blind):
        sums = blind[blind["size"] == size].groupby("method")[["recovered", "exact", "wrong", "starts"]].sum()
        best = (sums["recovered"] / sums["starts"]).sort_values(ascending=False)
        wrong = sums["wrong"].sum() / max(1, sums["exact"].sum())
        texts.append(
            f"{size}: {best.index[0]} {best.iloc[0]:.0%}, levenberg-marquardt {best.get(readings.OURS, np.nan):.0%}, "
            f"l-bfgs {best.get('l-bfgs', np.nan):.0%} of the starts recovered; {wrong:.0%} of all exact ends are wrong"
        )
    sums = tables["contest"].groupby("method")[["given_up", "late", "starts"]].sum()
    share = (sums["given_up"] / sums["starts"]).sort_values(ascending=False)
    solutions = tables["solutions"]
    return [
        "Blind starts, n x d = " + "; ".join(texts) + ".",
        f"No start is stopped by a cap: 0 of {sums['starts'].sum()}. Given up after a round that did not bring |r|² to "
        f"{setup.progress:g} of what it was: {', '.join(f'{m} {s:.1%}' for m, s in share.items() if s > 0) or 'none'}; "
        f"{sums['late'].sum()} of these {sums['given_up'].sum()} recover the data in {setup.further_rounds} further "
        "rounds.",
        f"All methods together found {solutions['distinct'].sum()} distinct exact solutions in {len(solutions)} "
        f"problems, {solutions['wrong'].sum()} of them not the data; Newton-Kantorovich certifies "
        f"{solutions['wrong_certified'].sum()} of those, and {solutions['wrong_by_symmetry'].sum()} are the data up to "
        "the order of the tokens or a move that changes no output. With W and V regular the equations have no such "
        "move, and rows of B name their token: what is wrong is wrong. B alone does not determine X.",
    ]


def _equal_time(tables: Tables) -> list[str]:
    """Who recovers most in the processor time that Levenberg-Marquardt's blind starts take, both ways of running."""
    blind = tables["contest"][tables["contest"]["origin"].astype(str) == "blind"]
    lines = []
    for how in (ALONE, TOGETHER):
        timed = readings.in_seconds(blind, tables["prices"], how)
        if timed.empty:
            continue
        ahead = {method: float(np.mean(values)) for method, values in readings.lead(timed, "seconds").items()}
        text = ", ".join(f"{method} {value:+.2f}" for method, value in sorted(ahead.items(), key=lambda v: v[1]))
        lines.append(
            f"Equal processor time, starts {how}: share of problems that Levenberg-Marquardt's blind starts recover, "
            f"less that of another method in the same time, mean over sizes and seeds: {text}."
        )
    return lines


def _certificate(tables: Tables) -> list[str]:
    table = tables["balls"]
    first = table.groupby(["size", "seed", "problem"])["radius_share"].first()
    text = ", ".join(f"{size} {first.xs(size, level='size').median():.1e}" for size in readings.sizes(table))
    lines = [f"Certified radius over |X_true|, median: {text}."]
    if "theorem" in tables:
        theirs = tables["theorem"]["admitted_share"]
        lines[0] = (
            lines[0][:-1] + f"; Theorem J.1 admits {theirs.min():.0e} to {theirs.max():.0e} around another point."
        )
    return lines


def _scan(setup: AttentionNewton, scan: pd.DataFrame) -> str:
    limit = readings.recovering_gamma(scan, setup.recovered)
    works, admissible = limit[limit > 0], scan.loc[scan["admissible"], "scanned_gamma"]
    reach = f"up to gamma between {works.min():.0e} and {works.max():.0e}" if len(works) else "at no gamma"
    return (
        f"Without noise the minimiser is within {setup.recovered:.0%} of the data {reach} "
        f"({len(limit) - len(works)} of {len(limit)} problems at no scanned gamma); Theorem J.1 asks for "
        f"{admissible.min():.1e} to {admissible.max():.1e}, where the objective is nearly gamma |vec X|^2 and its "
        "minimiser close to zero. The theorem's convergence is to that point, not to the data."
    )


def _identify(setup: AttentionNewton, table: pd.DataFrame) -> list[str]:
    lines = []
    for axis, rows in table.groupby("axis", sort=False):
        median = rows.groupby("value")["protecting_noise"].median()
        ranks = rows.groupby("value")[["rank", "variables"]].first()
        lost = [f"{value:g}" for value, row in ranks.iterrows() if row["rank"] < row["variables"]]
        text = ", ".join(f"{value:g}: {noise:.1e}" for value, noise in median.items())
        lines.append(
            f"Noise (over the spread of B) that keeps X {1e-2:.0%} away, by {str(axis).replace('_', ' ')}: {text}"
            + (f"; J is singular at {', '.join(lost)}." if lost else ".")
        )
    return lines


def _targets(setup: AttentionNewton, tables: Tables) -> list[str]:
    table, lines = tables["targets"], []
    for (target, view), rows in table.groupby(["target", "view"], sort=False):
        lines.append(
            f"{target}, {view}: {rows['recovered'].sum()} of {rows['starts'].sum()} blind starts recover the input, "
            f"{rows['wrong'].sum()} find a wrong exact solution, {rows['given_up'].sum()} were given up; "
            f"rank {rows['rank'].min()} for {rows['unknowns'].max()} unknowns, median sigma_min "
            f"{rows['sigma_min'].median():.1e}, 1 % error at noise {rows['protecting_noise'].median():.1e}."
        )
    if "reading" in tables:
        read = tables["reading"].groupby(["view", "noise"])["read"].mean()
        for view in read.index.get_level_values("view").unique():
            text = ", ".join(f"{noise:g}: {share:.0%}" for noise, share in read[view].items())
            lines.append(f"Characters read from {view} by enumeration, by noise over the spread of B: {text}.")
    return lines
