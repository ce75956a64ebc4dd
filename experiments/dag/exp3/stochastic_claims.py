"""What the DAG paper says of its stochastic gap (Appendix N.6, Section 5.7), decided from repeated draws.

The paper's discrepancies are of means over five seeds. So one draw of every seed is one repetition of Table N.6, and
the draws say how far such a table scatters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from experiments.dag.protocol.scores import paired
from experiments.dag.protocol.summary import groups, long_format
from runner import stats
from runner.contract import Claim, Statement
from runner.stats import judge

if TYPE_CHECKING:
    import pandas as pd

ENDS = ("init", "final")
PAPER_PROBES = 100
"""Probes behind the published Table N.6; its text says TEXT_PROBES."""
TEXT_PROBES = 30
KEYS = ["activation", "checkpoint", "probes"]
Parts = dict[str, list[float]]


def of_means(draws: pd.DataFrame) -> pd.DataFrame:
    """KEYS, draw, percent: 100 (mean stochastic / mean exact gap − 1), means over the seeds of one draw each."""
    kept = draws[draws["status"] == "ok"]
    means = kept.groupby([*KEYS, "draw"], sort=False)[["gap_exact", "gap_stochastic"]].mean().reset_index()
    return means.assign(percent=100 * (means["gap_stochastic"] / means["gap_exact"] - 1))


def claims(draws: pd.DataFrame, says: Mapping[str, Statement]) -> list[Claim]:
    """One claim per statement. What the paper saw in its table is decided with the probes of the published one, what it
    says of 30 probes with 30; the other number is a mark. The values are repetitions of the table."""
    means = of_means(draws)
    enough = draws["seed"].nunique() >= judge.FEWEST_SEEDS
    known = set(means["probes"]) if enough else set()
    found = []
    for name, rule, main in (
        ("discrepancy at init", partial(in_one_table, checkpoint="init"), PAPER_PROBES),
        ("discrepancy at the end", partial(in_one_table, checkpoint="final"), PAPER_PROBES),
        ("below 1 %", partial(over_draws, reading=typical), TEXT_PROBES),
        ("overestimation", partial(over_draws, reading=signed), PAPER_PROBES),
    ):
        by = {f"{n} probes": rule(says[name], means, n) for n in (PAPER_PROBES, TEXT_PROBES) if n in known}
        found.append(judge.together(by, main=f"{main} probes") if by else judge.claim(says[name], "inconclusive"))
    few = {c: sizes(draws, c) for c in ENDS}
    found.append(judge.bound(says["stochastic estimates agree"], few if enough else {}, over="draws"))
    found.append(judge.number(says["rate of the error"], exponents(draws) if enough else {}))
    return found


def in_one_table(says: Statement, means: pd.DataFrame, probes: int, checkpoint: str) -> Claim:
    """A printed maximum of one table: how many draws keep it.

    A draw is that of one activation: the paper's share their probes, so that its largest of three is nearly that of a
    single one. Of three activations with probes of their own fewer tables keep it; their number stands beside.
    """
    part = means[(means["probes"] == probes) & (means["checkpoint"] == checkpoint)]
    sizes = part["percent"].abs()
    kept = sizes <= says.high
    verdict, text = judge.one_draw(int(kept.sum()), len(kept))
    tables = kept.groupby(part["draw"]).all()
    detail = f"{text}; {tables.sum()} of {len(tables)} tables of activations with probes of their own"
    needed = math.inf if verdict == "inconclusive" else math.nan  # it is one table of the paper that is asked about
    return judge.claim(says, verdict, float(sizes.mean()), detail, seeds_needed=needed)


def over_draws(
    says: Statement, means: pd.DataFrame, probes: int, reading: Callable[[pd.DataFrame, int, tuple[str, ...]], Parts]
) -> Claim:
    """A property of the estimator: its mean over the draws."""
    return judge.bound(says, reading(means, probes, ENDS), over="draws")


def typical(means: pd.DataFrame, probes: int, ends: tuple[str, ...]) -> Parts:
    """The mean size of the discrepancy of one activation, by draw."""
    part = means[means["probes"] == probes].assign(size=lambda t: t["percent"].abs())
    return {c: list(part[part["checkpoint"] == c].groupby("draw")["size"].mean()) for c in ends}


def signed(means: pd.DataFrame, probes: int, ends: tuple[str, ...]) -> Parts:
    """The mean discrepancy of the activations, by draw."""
    part = means[means["probes"] == probes]
    return {c: list(part[part["checkpoint"] == c].groupby("draw")["percent"].mean()) for c in ends}


def sizes(draws: pd.DataFrame, checkpoint: str) -> list[float]:
    """Mean size of the discrepancy of one network from the text's number of probes in percent, by draw."""
    part = draws[(draws["status"] == "ok") & (draws["checkpoint"] == checkpoint) & (draws["probes"] == TEXT_PROBES)]
    percent = (100 * (part["gap_stochastic"] / part["gap_exact"] - 1)).abs()
    return list(percent.groupby(part["draw"]).mean())


def exponents(draws: pd.DataFrame) -> Parts:
    """Slope of log error on log m: a value for each seed, the mean over its activations, which share no probes."""
    found: Parts = {}
    for checkpoint in ENDS:
        fits = _fits(draws[(draws["status"] == "ok") & (draws["checkpoint"] == checkpoint)], ["activation", "seed"])
        by: dict[object, list[float]] = {}
        for (_, seed), fit in fits:
            by.setdefault(seed, []).append(fit.slope)
        found[checkpoint] = [sum(slopes) / len(slopes) for slopes in by.values()]
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


def measured(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Table N.6 from the first draw of 100 probes; discrepancies are of the means over seeds, without sign.

    Only the exact gaps can be the published numbers to the digit: the probes are others.
    """
    draws = tables["draws"]
    part = draws[(draws["probes"] == PAPER_PROBES) & (draws["draw"] == 0)]
    mean = part.groupby(["activation", "checkpoint"])[["gap_exact", "gap_stochastic"]].transform("mean")
    sign = (mean["gap_stochastic"] >= mean["gap_exact"]).map({True: 1.0, False: -1.0})
    shift = (part["gap_stochastic"] - part["gap_exact"]) / mean["gap_exact"].where(mean["gap_exact"] > 0)
    names = {"gap_exact": "gap_exact", "gap_stochastic": "gap_stochastic", "abs_rel_discrepancy_percent": "percent"}
    values = long_format(part.assign(percent=100 * sign * shift), ["activation", "checkpoint"], names)
    found = paired(values, tables, ["activation"])
    return found.assign(paired=found["paired"] & (found["metric"] == "gap_exact"))


def notes(tables: Mapping[str, pd.DataFrame], says: Mapping[str, Statement]) -> list[str]:
    """Findings in plain words."""
    draws, predicted = tables["draws"], tables["predicted"]
    found = []
    both = spreads(draws).merge(predicted, on=["activation", "checkpoint", "seed", "probes"], suffixes=("", "_theory"))
    for (checkpoint, probes), part in groups(both, ["checkpoint", "probes"]):
        if checkpoint in ENDS and probes in (TEXT_PROBES, PAPER_PROBES):
            found.append(
                f"{checkpoint}, {probes} probes: one estimate scatters by {part['percent'].mean():.1f} % over the "
                f"draws, {part['percent_theory'].mean():.1f} % predicted from the blocks (means over networks)."
            )
    means = of_means(draws)
    for (checkpoint, probes), part in groups(means, ["checkpoint", "probes"]):
        if checkpoint in ENDS and probes in (TEXT_PROBES, PAPER_PROBES):
            limit = says["discrepancy at init" if checkpoint == "init" else "discrepancy at the end"].high
            below = part.assign(size=part["percent"].abs()).groupby("draw")["size"].max() <= limit
            found.append(
                f"{checkpoint}, {probes} probes: {int(below.sum())} of {len(below)} repetitions of Table N.6 stay "
                f"within the printed {limit:g} % for every activation."
            )
    return found
