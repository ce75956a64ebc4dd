"""What the DAG paper says of the stochastic estimates of its gap (Section 5.3, Appendix N.6),
decided from many draws of probes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from experiments.dag.protocol.statements import Judge, Parts
from experiments.dag.protocol.summary import ENDS, complete, complete_means, label
from runner import stats
from runner.contract import Claim, Statement
from runner.stats import judge
from runner.stats.tables import chosen, groups

PAPER_PROBES = 100
"""Probes behind the published Table N.6; its text says TEXT_PROBES."""
TEXT_PROBES = 30
KEYS = ["activation", "checkpoint", "probes"]


def finite(values: pd.Series[Any]) -> pd.Series[Any]:
    """The values, NaN where one is infinite: a ratio to it would be zero, and look measured."""
    return values.where(np.isfinite(values))


def of_means(draws: pd.DataFrame) -> pd.DataFrame:
    """KEYS, draw, percent: 100 (mean stochastic / mean exact gap − 1), means over the seeds of one
    draw each."""
    kept = chosen(draws, status="ok")
    by_draw = kept.groupby([*KEYS, "draw"], sort=False)
    both = by_draw[["gap_exact", "gap_stochastic"]]
    means = complete_means(both).reset_index()
    ratio = means["gap_stochastic"] / finite(means["gap_exact"])
    return means.assign(percent=100 * (ratio - 1))


Rule = Callable[[Statement, pd.DataFrame], Claim]
"""How a statement is decided from the draws of one number of probes."""
RULES: dict[str, tuple[Rule, int]] = {
    "discrepancy at init": (lambda says, means: in_one_table(says, means, "init"), PAPER_PROBES),
    "discrepancy at the end": (
        lambda says, means: in_one_table(says, means, "final"),
        PAPER_PROBES,
    ),
    "below 1 %": (lambda says, means: over_draws(says, sizes_of(means)), PAPER_PROBES),
    "overestimation": (lambda says, means: over_draws(says, means), PAPER_PROBES),
}
"""Statement -> its rule, and the number of probes that decides."""


def claims(draws: pd.DataFrame, says: Mapping[str, Statement]) -> list[Claim]:
    """The claims of the stochastic estimates, one per statement.

    What the paper saw in its table is decided with the probes of the published one; the number that
    its text names is a variant. Its discrepancies are of means over five seeds, so that one draw of
    every seed is one repetition of Table N.6.
    """
    means = of_means(draws)
    judged = Judge(says)
    enough = draws["seed"].nunique() >= judge.FEWEST_SEEDS
    known = set(means["probes"]) if enough else set()
    found = []
    for name, (rule, main) in RULES.items():
        readings = {}
        for probes in (PAPER_PROBES, TEXT_PROBES):
            if probes in known:
                of_count = chosen(means, probes=probes)
                readings[f"{probes} probes"] = rule(says[name], of_count)
        if readings:
            found.append(judge.together(readings, main=f"{main} probes"))
        else:
            found.append(judge.claim(says[name], "inconclusive"))
    few = {c: sizes(draws, c) for c in ENDS} if enough else {}
    agreement = says["stochastic estimates agree"]
    found.append(judge.bound(agreement, few, over="draws"))
    fitted = exponents(draws) if enough else {}
    found.append(judged.number("rate of the error", fitted))
    return found


def sizes_of(means: pd.DataFrame) -> pd.DataFrame:
    """The discrepancies without their sign."""
    return means.assign(percent=means["percent"].abs())


def in_one_table(says: Statement, means: pd.DataFrame, checkpoint: str) -> Claim:
    """A printed maximum of one table: how many draws keep it.

    A draw is that of one activation: the paper's share their probes, so that its largest of three
    is nearly that of a single one. Of three activations with probes of their own fewer tables keep
    it; the claim gives their number.
    """
    part = sizes_of(chosen(means, checkpoint=checkpoint))
    kept = part["percent"] <= says.high
    count = int(kept.sum())
    verdict, text = judge.one_draw(count, len(kept))
    tables = kept.groupby(part["draw"]).all()
    detail = (
        f"{text}; {tables.sum()} of {len(tables)} tables of activations with probes of their own"
    )
    # it is one table of the paper that is asked about
    needed = math.nan
    if verdict == "inconclusive":
        needed = math.inf
    mean = float(part["percent"].mean())
    return judge.claim(says, verdict, mean, detail, seeds_needed=needed)


def over_draws(says: Statement, means: pd.DataFrame) -> Claim:
    """A property of the estimator: the mean discrepancy of the activations, over the draws."""
    parts = {}
    for checkpoint in ENDS:
        part = chosen(means, checkpoint=checkpoint)
        by_draw = part.groupby("draw")["percent"]
        parts[checkpoint] = list(complete_means(by_draw))
    return judge.bound(says, parts, over="draws")


def sizes(draws: pd.DataFrame, checkpoint: str) -> list[float]:
    """Mean size of the discrepancy of one network from the text's number of probes in percent, by
    draw."""
    part = chosen(draws, status="ok", checkpoint=checkpoint, probes=TEXT_PROBES)
    ratio = part["gap_stochastic"] / finite(part["gap_exact"])
    percent = (100 * (ratio - 1)).abs()
    return list(complete_means(percent.groupby(part["draw"])))


def exponents(draws: pd.DataFrame) -> Parts:
    """Slope of log error on log m: a value for each seed, the mean over its activations, which
    share no probes."""
    found = {}
    for checkpoint in ENDS:
        slopes: dict[object, list[float]] = {}
        kept = chosen(draws, status="ok", checkpoint=checkpoint)
        fits = _fits(kept, ["activation", "seed"])
        for (_, seed), fit in fits:
            slopes.setdefault(seed, []).append(fit.slope)
        found[checkpoint] = [sum(values) / len(values) for values in slopes.values()]
    return found


def rates(draws: pd.DataFrame) -> list[stats.Statistic]:
    """Fits of log(relative std of one estimate over the draws) on log(probes), by activation and
    checkpoint."""
    kept = chosen(draws, status="ok")
    return [fit for _, fit in _fits(kept, ["activation", "checkpoint"])]


def _fits(part: pd.DataFrame, keys: list[str]) -> list[tuple[tuple[object, ...], stats.Statistic]]:
    found = []
    for values, rows in groups(part, keys):
        spread = complete_means(spreads(rows).groupby("probes")["percent"])
        spread = spread[~(spread <= 0)]
        if len(spread) > 1:
            about = {"name": "error against probes", "group": label(keys, values)}
            fit = stats.linear(np.log(spread.index), np.log(spread), **about)
            found.append((values, fit))
    return found


def spreads(draws: pd.DataFrame) -> pd.DataFrame:
    """activation, checkpoint, seed, probes, percent: relative std of the estimate over the draws of
    one network."""
    kept = chosen(draws, status="ok")
    by = kept.groupby(["activation", "checkpoint", "seed", "probes"], sort=False)
    stochastic = by["gap_stochastic"]
    std = complete(stochastic, stochastic.std())
    exact_gaps = by["gap_exact"]
    exact = complete(exact_gaps, exact_gaps.max())  # the same in every draw
    percent = 100 * std / finite(exact)
    return percent.to_frame("percent").reset_index()
