"""What the DAG paper says of its stochastic gap (Appendix N.6, Section 5.7), decided from repeated draws.

The paper's discrepancies are of means over five seeds. So one draw of every seed is one repetition of Table N.6, and
the draws say how far such a table scatters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from experiments.dag.protocol.summary import groups, long_format
from runner import stats
from runner.contract.experiment import Claim
from runner.stats import judge

if TYPE_CHECKING:
    import pandas as pd

PLACE = "Appendix N.6"
LIMITS = {"init": 0.82, "final": 0.33}
"""Largest printed discrepancy of five-seed means, in percent."""
PAPER_PROBES = 100
"""Probes behind the published Table N.6; its text says 30."""
KEYS = ["activation", "checkpoint", "probes"]


def of_means(draws: pd.DataFrame) -> pd.DataFrame:
    """KEYS, draw, percent: 100 (mean stochastic / mean exact gap − 1), means over the seeds of one draw each."""
    kept = draws[draws["status"] == "ok"]
    means = kept.groupby([*KEYS, "draw"], sort=False)[["gap_exact", "gap_stochastic"]].mean().reset_index()
    return means.assign(percent=100 * (means["gap_stochastic"] / means["gap_exact"] - 1))


def claims(draws: pd.DataFrame) -> list[Claim]:
    """One claim per statement, checkpoint and number of probes; the values are repetitions of the table."""
    if draws["seed"].nunique() < judge.FEWEST_SEEDS:
        return []
    found: list[Claim] = []
    for (probes, checkpoint), part in groups(of_means(draws), ["probes", "checkpoint"]):
        if checkpoint not in LIMITS or probes not in (30, PAPER_PROBES):
            continue
        group = f"{probes} probes, {checkpoint}"
        largest = part.assign(size=part["percent"].abs()).groupby("draw")["size"].max()
        limit = LIMITS[checkpoint]
        statement = f"the discrepancy does not exceed {limit} % at {checkpoint}: the largest of the activations"
        found.append(
            judge.bound("discrepancy", list(largest), high=limit, group=group, where=PLACE, statement=statement)
        )
        statement = "exact and stochastic gap differ by less than 1 % for all smooth activations: the largest of them"
        found.append(
            judge.bound("below 1 %", list(largest), high=1.0, group=group, where="Section 5.7", statement=statement)
        )
        signed = list(part.groupby("draw")["percent"].mean())
        statement = "the stochastic estimator systematically overestimates the gap: mean discrepancy above 0"
        found.append(judge.bound("overestimation", signed, low=0.0, group=group, where=PLACE, statement=statement))
    return [*found, *rate_claims(draws)]


def rate_claims(draws: pd.DataFrame) -> list[Claim]:
    """The error falls as one over the root of the number of probes."""
    found = []
    for (checkpoint,), part in groups(draws[draws["status"] == "ok"], ["checkpoint"]):
        slopes = [fit.slope for (_, _), fit in _fits(part, ["activation", "seed"])]
        if slopes and checkpoint in LIMITS:
            found.append(
                judge.number(
                    "rate of the error",
                    slopes,
                    -0.5,
                    0.05,
                    group=checkpoint,
                    where="Section 5.7",
                    statement="the relative error scales as m^(−1/2) with m probes: slope of log error on log m",
                )
            )
    return found


def rates(draws: pd.DataFrame) -> list[stats.Statistic]:
    """Fits of log(relative std of one estimate over the draws) on log(probes), by activation and checkpoint."""
    return [fit for _, fit in _fits(draws[draws["status"] == "ok"], ["activation", "checkpoint"])]


def _fits(part: pd.DataFrame, keys: list[str]) -> list[tuple[tuple[object, ...], stats.Statistic]]:
    import numpy as np

    found = []
    for values, rows in groups(part, keys):
        spread = spreads(rows).groupby("probes")["percent"].mean()
        spread = spread[spread > 0]
        if len(spread) > 1:
            group = " ".join(f"{k}={v}" for k, v in zip(keys, values, strict=True))
            fit = stats.linear(np.log(spread.index), np.log(spread), name="error against probes", group=group)
            found.append((values, fit))
    return found


def spreads(draws: pd.DataFrame) -> pd.DataFrame:
    """activation, checkpoint, seed, probes, percent: relative std of the estimate over the draws of one network."""
    kept = draws[draws["status"] == "ok"]
    by = kept.groupby(["activation", "checkpoint", "seed", "probes"], sort=False)
    found = by.agg(std=("gap_stochastic", "std"), exact=("gap_exact", "first")).reset_index()
    return found.assign(percent=100 * found["std"] / found["exact"]).drop(columns=["std", "exact"])


def measured(draws: pd.DataFrame) -> pd.DataFrame:
    """Table N.6 from the first draw of 100 probes; discrepancies are of the means over seeds, without sign."""
    part = draws[(draws["probes"] == PAPER_PROBES) & (draws["draw"] == 0)]
    mean = part.groupby(["activation", "checkpoint"])[["gap_exact", "gap_stochastic"]].transform("mean")
    sign = (mean["gap_stochastic"] >= mean["gap_exact"]).map({True: 1.0, False: -1.0})
    shift = (part["gap_stochastic"] - part["gap_exact"]) / mean["gap_exact"].where(mean["gap_exact"] > 0)
    names = {"gap_exact": "gap_exact", "gap_stochastic": "gap_stochastic", "abs_rel_discrepancy_percent": "percent"}
    return long_format(part.assign(percent=100 * sign * shift), ["activation", "checkpoint"], names)


def notes(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Findings in plain words."""
    draws, predicted = tables["draws"], tables["predicted"]
    found = []
    both = spreads(draws).merge(predicted, on=["activation", "checkpoint", "seed", "probes"], suffixes=("", "_theory"))
    for (checkpoint, probes), part in groups(both, ["checkpoint", "probes"]):
        if checkpoint in LIMITS and probes in (30, PAPER_PROBES):
            found.append(
                f"{checkpoint}, {probes} probes: one estimate scatters by {part['percent'].mean():.1f} % over the "
                f"draws, {part['percent_theory'].mean():.1f} % predicted from the blocks (means over networks)."
            )
    means = of_means(draws)
    for (checkpoint, probes), part in groups(means, ["checkpoint", "probes"]):
        if checkpoint in LIMITS and probes in (30, PAPER_PROBES):
            below = part.assign(size=part["percent"].abs()).groupby("draw")["size"].max() <= LIMITS[checkpoint]
            found.append(
                f"{checkpoint}, {probes} probes: {int(below.sum())} of {len(below)} repetitions of Table N.6 stay "
                f"within the printed {LIMITS[checkpoint]} % for every activation."
            )
    return found
