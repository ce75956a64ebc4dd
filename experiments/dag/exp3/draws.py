"""Stochastic estimates of the DAG paper's gap (Section 5.3, Appendix N.6) from many draws of
probes, as the judge reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from experiments.dag.protocol.summary import complete, complete_means, label
from runner import stats
from runner.contract import Tables
from runner.stats.intervals import FEWEST_SEEDS
from runner.stats.quantities import Functions
from runner.stats.tables import chosen, groups

PAPER_PROBES = 100
"""Probes behind the published Table N.6; its text says TEXT_PROBES."""
TEXT_PROBES = 30
KEYS = ["activation", "checkpoint", "probes"]
FUNCTIONS = Functions()


@FUNCTIONS.quantity("percent", "probes")
def exponent_of_error(rows: pd.DataFrame) -> float:
    """Slope of log error on log m, the mean over the activations, which share no probes."""
    slopes = [fit.slope for _, fit in _fits(rows, ["activation"])]
    return sum(slopes) / len(slopes)


@FUNCTIONS.remark
def tables_kept(rows: pd.DataFrame) -> str:
    """How many tables keep a limit in every activation, each with probes of its own; the paper's
    share theirs, so that its largest of three is nearly that of a single one."""
    kept = (rows["size"] <= rows["limit"]).groupby(rows["draw"]).all()
    return f"{kept.sum()} of {len(kept)} tables of activations with probes of their own"


def judged(draws: pd.DataFrame, limits: Mapping[str, float]) -> Tables:
    """The tables that statements read; none below `FEWEST_SEEDS` seeds.

    means: discrepancies of the means over seeds, of which one draw of every seed is one repetition
    of Table N.6; table: activation and draw; limit: the printed maximum of its checkpoint. draws:
    the size of the discrepancy of one network. spreads: relative std of the estimate of one network
    over its draws.
    """
    kept = chosen(draws, status="ok")
    if draws["seed"].nunique() < FEWEST_SEEDS:
        kept = kept.iloc[:0]
    means = of_means(kept)
    names = means["activation"].astype(str) + " " + means["draw"].astype(str)
    ratio = kept["gap_stochastic"] / finite(kept["gap_exact"])
    return {
        "means": means.assign(
            table=names,
            size=means["percent"].abs(),
            limit=means["checkpoint"].map(dict(limits)),
        ),
        "draws": kept.assign(size=(100 * (ratio - 1)).abs()),
        "spreads": spreads(kept),
    }


def finite(values: pd.Series[Any]) -> pd.Series[Any]:
    """The values, NaN where one is infinite: a ratio to it would be zero, and look measured."""
    return values.where(np.isfinite(values))


def of_means(draws: pd.DataFrame) -> pd.DataFrame:
    """KEYS, draw, percent: 100 (mean stochastic / mean exact gap − 1), means over the seeds of one
    draw each."""
    by_draw = chosen(draws, status="ok").groupby([*KEYS, "draw"], sort=False)
    means = complete_means(by_draw[["gap_exact", "gap_stochastic"]]).reset_index()
    ratio = means["gap_stochastic"] / finite(means["gap_exact"])
    return means.assign(percent=100 * (ratio - 1))


def sizes_of(means: pd.DataFrame) -> pd.DataFrame:
    """The discrepancies without their sign."""
    return means.assign(percent=means["percent"].abs())


def rates(draws: pd.DataFrame) -> list[stats.Statistic]:
    """Fits of log(relative std of one estimate over the draws) on log(probes), by activation and
    checkpoint."""
    spread = spreads(chosen(draws, status="ok"))
    return [fit for _, fit in _fits(spread, ["activation", "checkpoint"])]


def _fits(
    spread: pd.DataFrame, keys: list[str]
) -> list[tuple[tuple[object, ...], stats.Statistic]]:
    found = []
    for values, rows in groups(spread, keys):
        means = complete_means(rows.groupby("probes")["percent"])
        means = means[~(means <= 0)]
        if len(means) > 1:
            about = {"name": "error against probes", "group": label(keys, values)}
            found.append((values, stats.linear(np.log(means.index), np.log(means), **about)))
    return found


def spreads(draws: pd.DataFrame) -> pd.DataFrame:
    """activation, checkpoint, seed, probes, percent: relative std of the estimate over the draws of
    one network."""
    by = draws.groupby(["activation", "checkpoint", "seed", "probes"], sort=False)
    stochastic = by["gap_stochastic"]
    std = complete(stochastic, stochastic.std())
    exact_gaps = by["gap_exact"]
    exact = complete(exact_gaps, exact_gaps.max())  # the same in every draw
    return (100 * std / finite(exact)).to_frame("percent").reset_index()
