"""Statements about training: the outlier pairs along it, and the edge of stability, held to the
tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from experiments.scalar_spectrum.settings import ScalarSpectrum
from experiments.scalar_spectrum.wedge_scale import LAST, WIGGLES, changes, seen, wedge_name
from runner.contract import Claim, Statement, Tables
from runner.stats import judge
from runner.stats.judge import by_seed
from runner.stats.tables import chosen

TAIL = 20
"""Last steps of an edge run that tell whether it has settled."""
SOLVED = 1e-11
"""Relative distance of ⟨w,v⟩ from θ* at which a step counts as at the solution."""
RUN = ["network", "width", "start", "factor", "seed"]
Says = Mapping[str, Statement]
Made = Iterator[tuple[str, Claim]]
"""(variant, claim)."""
Tests = dict[str, Callable[[np.ndarray], bool]]


def _voted(setup: ScalarSpectrum, says: Statement, votes: pd.DataFrame) -> Claim:
    """A statement about random starts: a seed shows it when at least `share` of their runs show it.

    votes: columns seed and shown.
    """
    shares = by_seed(votes, lambda rows: float(rows["shown"].mean()))
    findings = {}
    for seed, share in shares.items():
        findings[seed] = "yes" if share >= setup.share else "no"
    shown = votes["shown"]
    share = math.nan
    if len(votes):
        share = float(shown.mean())
    rule = judge.DataSetRule(setup.share, setup.runs)
    verdict, text = judge.verdict_of_data_sets(findings, rule)
    seeds = text.replace("data sets", "seeds")
    detail = f"{int(shown.sum())} of {len(votes)} runs; {seeds}"
    threshold = f">= {setup.share:g} of the runs of a seed"
    statement = replace(says, chosen=True)
    return judge.claim(statement, verdict, share, detail, threshold=threshold)


def closed_form(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    for network, part in tables["pairs"].groupby("network"):
        variant = str(network)
        steps = f"{len(part)} steps"
        errors = part["dense_error"].dropna()
        error = float(errors.max())
        compared = f"{len(errors)} of {steps}"
        yield variant, judge.exact(says["closed_form_in_training"], error, compared)
        below = part["bound"] - part["smallest"]
        violation = below / part["trace"]
        largest = float(violation.max())
        yield variant, judge.exact(says["smallest_bound"], largest, steps)


def _phase_violation(part: pd.DataFrame, printed: bool) -> float:
    """How far λ1 − tr H or λ2 lies on the wrong side for its phase, relative to tr H; −inf without
    rows."""
    if part.empty:
        return -math.inf
    target = part["target"]
    slope = part["slope"]
    trace = part["trace"]
    late = part["phase"] == "late"
    if printed:
        late = (slope >= target / 3) & (slope <= target)
    side = np.where(late, -1.0, 1.0)
    first_wrong = side * (trace - part["first"])
    second_wrong = side * part["second"]
    wrong = np.maximum(first_wrong, second_wrong)
    return float((wrong / trace).max())


def phases(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    frame = chosen(tables["pairs"], status="ok")
    target = frame["target"]
    positive = frame[target > 0]
    negative = frame[target < 0]
    signs = {"θ* > 0": positive, "θ* < 0": negative}
    for name, part in signs.items():
        if len(part):
            violation = _phase_violation(part, True)
            yield name, judge.exact(says["phases"], violation, f"{len(part)} steps")
    violation = _phase_violation(frame, False)
    yield "any θ*", judge.exact(says["phases_corrected"], violation, f"{len(frame)} steps")
    distance = (frame["slope"] - target).abs()
    solved = frame[distance <= SOLVED * target.abs()]
    if len(solved):
        trace = solved["trace"]
        first_error = (solved["first"] - trace).abs()
        second_error = solved["second"].abs()
        error = np.maximum(first_error, second_error) / trace
        steps = f"{len(solved)} steps at the solution"
        largest = float(error.max())
        yield "", judge.exact(says["rank_one"], largest, steps)


def pairs(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    """What Section 2 says of Fig. 3, run by run: the linear net, and the positive cell of the ReLU
    net."""
    frame = paired_steps(tables)
    frame = frame[frame["cell"] != "-"].sort_values("step")
    rates = frame["rate"]
    lowest = rates.min()
    tests = {lowest: LOW}
    tests.setdefault(rates.max(), HIGH)
    by_network = frame.groupby(["network", "left"])
    for (network, left), part in by_network:
        for rate, tests_at_rate in tests.items():
            at_rate = chosen(part, rate=rate)
            runs = at_rate.groupby("seed")["second"]
            variant = f"{network} on {wedge_name(left)} at rate {rate:g}"
            for name, test in tests_at_rate.items():
                votes = [(seed, test(second.to_numpy())) for seed, second in runs]
                yield variant, _voted(setup, says[name], _ballot(votes))
    slow = chosen(frame, rate=lowest)
    yield "", _damping(setup, slow, says["damping"])


def paired_steps(tables: Tables) -> pd.DataFrame:
    """The recorded steps of the runs that did not diverge; cell: "" for linear networks."""
    cells = tables["pairs"]["cell"].fillna("")
    frame = tables["pairs"].assign(cell=cells)
    return chosen(frame, status="ok")


def _ballot(votes: Sequence[tuple[object, bool]]) -> pd.DataFrame:
    return pd.DataFrame(votes, columns=["seed", "shown"])


def _damping(setup: ScalarSpectrum, frame: pd.DataFrame, says: Statement) -> Claim:
    """When a low rate is low enough for the second outlier to reach zero from above: an overdamped
    heavy ball."""
    votes = []
    by_run = frame.groupby(["network", "left", "seed"])
    for (_, _, seed), run in by_run:
        if run["phase"].iloc[0] == "early":
            end = run.iloc[-1]
            damping = (1 - setup.momentum**0.5) ** 2
            limit = damping / end["rate"]
            overdamped = end["trace"] < limit
            turns = LOW["turns_positive"](run["second"].to_numpy())
            votes.append((seed, turns == overdamped))
    return _voted(setup, says, _ballot(votes))


LOW: Tests = {
    "starts_negative": lambda s: bool(s[0] < 0),
    "turns_positive": lambda s: bool(s[0] < 0 and changes(s) == 1 and seen(s)[-1] > 0),
}
HIGH: Tests = {
    "drops_first": lambda s: bool(s.min() < s[0] < s.max()),
    "wiggles": lambda s: changes(s) >= WIGGLES,
    "ends_negative": lambda s: bool((seen(s)[-LAST:] < 0).all()),
}
"""Name of a statement of Section 2 -> whether a run shows it, at a low and at a high rate."""


def edge_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per edge run: first, highest and last loss, range of sharpness·rate/2 over the last
    steps, settled."""
    ratio = frame["sharpness"] * frame["rate"] / 2
    frame = frame.sort_values("step").assign(ratio=ratio)
    rows = []
    for key, run in frame.groupby(RUN):
        tail = run.tail(TAIL)
        last_losses = tail["loss"]
        still = np.ptp(last_losses) <= 1e-6 * last_losses.mean()
        loss = run["loss"].to_numpy()
        diverged = bool((run["status"] == "diverged").any())
        row = dict(zip(RUN, key, strict=True))
        row["rose"] = bool(loss.max() > 1.01 * loss[0])
        row["low"] = tail["ratio"].min()
        row["high"] = tail["ratio"].max()
        row["diverged"] = diverged
        row["settled"] = not diverged and still
        rows.append(row)
    return pd.DataFrame(rows)


def edge(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    runs = edge_runs(tables["edge"])
    residual = tables["edge_runs"]["residual"]
    settled = runs[runs["settled"]]
    highest = float(settled["high"].max())
    count = f"{len(settled)} settled runs"
    yield "", judge.exact(says["settled_below_threshold"], highest, count)
    widest = f"widths up to {int(runs['width'].max()):,}"
    largest = float(residual.max())
    yield "", judge.exact(says["live_meter"], largest, widest)
    for network, part in runs.groupby("network"):
        yield from _edge_of(setup, str(network), part, says)


def _edge_of(setup: ScalarSpectrum, network: str, runs: pd.DataFrame, says: Says) -> Made:
    """The statements on runs of one network, whose factors are within a statement's limits."""

    def within(start: str, name: str) -> pd.DataFrame:
        limits = says[name]
        part = chosen(runs, start=start)
        above = part["factor"] > limits.low
        below = part["factor"] < limits.high
        return part[above & below]

    for width, part in within("large", "catapult").groupby("width"):
        raised = part["rose"] & part["settled"]
        shown = part.assign(shown=raised)
        yield f"{network} m={width:,}", _voted(setup, says["catapult"], shown)
    lost = within("large", "divergence")
    shown = lost.assign(shown=lost["diverged"])
    yield network, _voted(setup, says["divergence"], shown)
    small = runs["start"] == "small"
    climbed = runs[small & (runs["factor"] < 1)]
    quotient = climbed["high"] / climbed["factor"]
    distance = (quotient - 1).abs()
    near = distance < says["climbs"].high
    shown = climbed.assign(shown=climbed["settled"] & near)
    yield network, _voted(setup, says["climbs"], shown)
    beyond = within("small", "oscillates")
    crossing = (beyond["low"] < 1) & (beyond["high"] > 1)
    goes_on = ~beyond["diverged"] & ~beyond["settled"]
    shown = beyond.assign(shown=goes_on & crossing)
    yield network, _voted(setup, says["oscillates"], shown)
