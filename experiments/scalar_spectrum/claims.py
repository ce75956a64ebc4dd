"""The statements of the scalar-spectrum paper, and those made here about the edge of stability,
held to the tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from experiments.printed import statements
from experiments.scalar_spectrum.settings import ScalarSpectrum
from experiments.scalar_spectrum.wedge_scale import (
    FIG3,
    LAST,
    WIGGLES,
    changes,
    seen,
    wedge_name,
)
from runner.contract import Claim, Statement, Tables
from runner.stats import judge
from runner.stats.judge import by_seed
from runner.stats.tables import chosen

TAIL = 20
"""Last steps of an edge run that tell whether it has settled."""
SOLVED = 1e-11
"""Relative distance of ⟨w,v⟩ from θ* at which a step counts as at the solution."""
MINOR_ERRORS = {"phases": ("θ* > 0", "scalar.phases, class B")}
"""Statements that fail as published, with the case in which they hold and the root cause in the
errata: nothing rests on the rest, so that their one verdict is *minor error*."""
RUN = ["network", "width", "start", "factor", "seed"]
OPEN = (
    "the scale of the wedge data is not printed and decides this: at a small one the second "
    "outlier changes sign once, at a large one it wiggles"
)
TARGETS = "the text does not say whether the targets are scaled with the inputs"

Says = Mapping[str, Statement]
Made = Iterator[tuple[str, Claim]]
"""(variant, claim)."""


def claims(setup: ScalarSpectrum, tables: Tables) -> list[Claim]:
    """One claim per statement that the tables at hand can speak to."""
    says = statements("scalar_spectrum")
    makers = [
        ("scaling", _scaling),
        ("relu_cells", _cells),
        ("pairs", _closed_form),
        ("pairs", _phases),
        ("pairs", _pairs),
        ("bias", _bias),
        ("edge", _edge),
    ]
    made: list[tuple[str, Claim]] = []
    for table, make in makers:
        if len(tables.get(table, ())):
            made += make(setup, tables, says)
    holds = {(claim.name, variant) for variant, claim in made if claim.verdict == "confirmed"}
    return [_protocol_unknown(_minor_error(claim, holds)) for claim in judge.gathered(made)]


def _minor_error(claim: Claim, holds: set[tuple[str, str]]) -> Claim:
    case, where = MINOR_ERRORS.get(claim.name, ("", ""))
    if (claim.name, case) in holds:
        return judge.minor_error(claim, where)
    return claim


def _protocol_unknown(claim: Claim) -> Claim:
    """Fig. 3's sentences are not refuted by runs on data of another scale than the paper's, which
    is not printed, nor confirmed by what only a large scale shows.

    Proportionality is not refuted by targets that are kept: it holds where they are scaled with the
    inputs.
    """
    refuted = claim.verdict == "refuted"
    if claim.name == "proportional" and refuted and "confirmed" in claim.variants.values():
        return _not_comparable(claim, TARGETS)
    wiggles = (claim.name, claim.verdict) == ("wiggles", "confirmed")
    if claim.where == FIG3 and (refuted or wiggles):
        return _not_comparable(claim, OPEN)
    return claim


def _not_comparable(claim: Claim, why: str) -> Claim:
    return replace(claim, verdict="not comparable", detail=f"{claim.detail}; {why}")


def _voted(setup: ScalarSpectrum, says: Statement, votes: pd.DataFrame) -> Claim:
    """A statement about random starts: a seed shows it when at least `share` of their runs show it.

    votes: columns seed and shown.
    """
    findings = {}
    for seed, shares in by_seed(votes, lambda rows: float(rows["shown"].mean())).items():
        findings[seed] = "yes" if shares >= setup.share else "no"
    share = math.nan
    if len(votes):
        share = float(votes["shown"].mean())
    rule = judge.DataSetRule(setup.share, setup.runs)
    verdict, text = judge.verdict_of_data_sets(findings, rule)
    seeds = text.replace("data sets", "seeds")
    detail = f"{int(votes['shown'].sum())} of {len(votes)} runs; {seeds}"
    threshold = f">= {setup.share:g} of the runs of a seed"
    return judge.claim(says, verdict, share, detail, threshold=threshold)


def _relative_range(values: pd.Series[float]) -> float:
    """Largest less smallest value, over the largest size."""
    return np.ptp(values) / np.abs(values).max()


def _scaling(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    frame = tables["scaling"]
    networks = ["scaled_width", "seed"]
    fixed = chosen(frame, targets="fixed")
    top = fixed.groupby([*networks, "sigma"])["eigenvalue"].max().unstack()
    low = top.columns.min()
    if 1.0 in top.columns and low < 1:
        detail = f"sharpness at sigma = 1 over sigma = {low:g}, smallest over {len(top)} networks"
        smallest = float((top[1.0] / top[low]).min())
        yield "", judge.exact(says["normalising_sharpens"], smallest, detail)
    for targets, part in frame.groupby("targets"):
        scaled = part.assign(unit=part["eigenvalue"] / part["sigma"] ** 2)
        extremes = scaled.groupby([*networks, "sigma"])["unit"].agg(["max", "min"])
        spread = float(extremes.groupby(networks).agg(_relative_range).to_numpy().max())
        detail = "relative spread of (largest, smallest eigenvalue)/sigma^2 over sigma"
        yield f"targets {targets}", judge.exact(says["proportional"], spread, detail)


def _cells(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    frame = tables["relu_cells"]
    density = tables["density"]
    largest = frame.groupby("seed")["dense"].transform(lambda s: s.abs().max())
    error = float(((frame["eigenvalue"] - frame["dense"]).abs() / largest).max())
    unit = density.assign(unit=density["eigenvalue"] / density["share"])
    unit["rank"] = unit.groupby(["seed", "cell", "copies"])["unit"].rank(method="first")
    spread = float(unit.groupby(["seed", "cell", "rank"])["unit"].agg(_relative_range).max())
    yield "", judge.exact(says["relu_closed_form"], error, "relative to a dense eigensolver")
    detail = "relative spread of eigenvalue/density when samples x <= 0 are repeated"
    yield "", judge.exact(says["density"], spread, detail)


def _closed_form(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    for network, part in tables["pairs"].groupby("network"):
        steps = f"{len(part)} steps"
        errors = part["dense_error"].dropna()
        error = float(errors.max())
        compared = f"{len(errors)} of {steps}"
        yield str(network), judge.exact(says["closed_form_in_training"], error, compared)
        slack = ((part["bound"] - part["smallest"]) / part["trace"]).max()
        yield str(network), judge.exact(says["smallest_bound"], float(slack), steps)


def _phase_violation(part: pd.DataFrame, printed: bool) -> float:
    """How far λ1 − tr H or λ2 lies on the wrong side for its phase, relative to tr H; −inf without
    rows."""
    if part.empty:
        return -math.inf
    target = part["target"]
    slope = part["slope"]
    trace = part["trace"]
    late = (slope >= target / 3) & (slope <= target) if printed else part["phase"] == "late"
    side = np.where(late, -1.0, 1.0)
    wrong = np.maximum(side * (trace - part["first"]), side * part["second"])
    return float((wrong / trace).max())


def _phases(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    frame = tables["pairs"]
    frame = chosen(frame, status="ok")
    signs = {"θ* > 0": frame[frame["target"] > 0], "θ* < 0": frame[frame["target"] < 0]}
    for name, part in signs.items():
        if len(part):
            violation = _phase_violation(part, True)
            yield name, judge.exact(says["phases"], violation, f"{len(part)} steps")
    violation = _phase_violation(frame, False)
    yield "any θ*", judge.exact(says["phases_corrected"], violation, f"{len(frame)} steps")
    solved = frame[(frame["slope"] - frame["target"]).abs() <= SOLVED * frame["target"].abs()]
    if len(solved):
        trace = solved["trace"]
        off = np.maximum((solved["first"] - trace).abs(), solved["second"].abs()) / trace
        steps = f"{len(solved)} steps at the solution"
        yield "", judge.exact(says["rank_one"], float(off.max()), steps)


def _pairs(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    """What Section 2 says of Fig. 3, run by run: the linear net, and the positive cell of the ReLU
    net."""
    frame = tables["pairs"].assign(cell=tables["pairs"]["cell"].fillna(""))
    frame = frame[(frame["cell"] != "-") & (frame["status"] == "ok")].sort_values("step")
    rates = sorted(frame["rate"].unique())
    for (network, left), part in frame.groupby(["network", "left"]):
        for rate in dict.fromkeys((rates[0], rates[-1])):
            runs = chosen(part, rate=rate).groupby("seed")["second"]
            variant = f"{network} on {wedge_name(left)} at rate {rate:g}"
            for name, test in (LOW if rate == rates[0] else HIGH).items():
                votes = [(seed, test(second.to_numpy())) for seed, second in runs]
                yield variant, _voted(setup, says[name], _ballot(votes))
    yield "", _damping(setup, chosen(frame, rate=rates[0]), says["damping"])


def _ballot(votes: Sequence[tuple[object, bool]]) -> pd.DataFrame:
    return pd.DataFrame(votes, columns=["seed", "shown"])


def _damping(setup: ScalarSpectrum, frame: pd.DataFrame, says: Statement) -> Claim:
    """When a low rate is low enough for the second outlier to reach zero from above: an overdamped
    heavy ball."""
    votes = []
    for (_, _, seed), run in frame.groupby(["network", "left", "seed"]):
        if run["phase"].iloc[0] == "early":
            limit = (1 - setup.momentum**0.5) ** 2 / run["rate"].iloc[-1]
            overdamped = run["trace"].iloc[-1] < limit
            turns = LOW["turns_positive"](run["second"].to_numpy())
            votes.append((seed, turns == overdamped))
    return _voted(setup, says, _ballot(votes))


LOW: dict[str, Callable[[np.ndarray], bool]] = {
    "starts_negative": lambda s: bool(s[0] < 0),
    "turns_positive": lambda s: bool(s[0] < 0 and changes(s) == 1 and seen(s)[-1] > 0),
}
HIGH: dict[str, Callable[[np.ndarray], bool]] = {
    "drops_first": lambda s: bool(s.min() < s[0] < s.max()),
    "wiggles": lambda s: changes(s) >= WIGGLES,
    "ends_negative": lambda s: bool((seen(s)[-LAST:] < 0).all()),
}
"""Name of a statement of Section 2 -> whether a run shows it, at a low and at a high rate."""


def _bias(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    frame = tables["bias"]
    width = setup.bias_width
    inside = chosen(frame, mix=0)
    wrong = inside["zeros"] != width - 1
    wrong |= (inside["plus"] != width - 2) | (inside["minus"] != width - 2)
    triple = chosen(inside, member="triple")
    below = triple["lower"] - triple["theorem"]
    above = triple["theorem"] - triple["upper"]
    networks = f"{inside['seed'].nunique()} networks, m = {width}"
    error = float(frame["dense_error"].max())
    yield "", judge.exact(says["theorem6"], float(inside["gap"].max()), networks)
    yield "", judge.exact(says["theorem6_multiplicities"], float(wrong.sum()), networks)
    yield "", judge.exact(says["triple_bounds"], float(np.maximum(below, above).max()), networks)
    yield "", judge.exact(says["bias_closed_form"], error, f"{len(frame)} rows")


def edge_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per edge run: first, highest and last loss, range of sharpness·rate/2 over the last
    steps, settled."""
    frame = frame.sort_values("step").assign(ratio=frame["sharpness"] * frame["rate"] / 2)
    rows = []
    for key, run in frame.groupby(RUN):
        tail = run.tail(TAIL)
        loss = run["loss"].to_numpy()
        row = dict(zip(RUN, key, strict=True))
        row["rose"] = bool(loss.max() > 1.01 * loss[0])
        row["low"] = tail["ratio"].min()
        row["high"] = tail["ratio"].max()
        row["diverged"] = bool((run["status"] == "diverged").any())
        still = np.ptp(tail["loss"]) <= 1e-6 * tail["loss"].mean()
        row["settled"] = not row["diverged"] and still
        rows.append(row)
    return pd.DataFrame(rows)


def _edge(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    runs = edge_runs(tables["edge"])
    residual = tables["edge_runs"]["residual"]
    settled = runs[runs["settled"]]
    highest = float(settled["high"].max())
    count = f"{len(settled)} settled runs"
    yield "", judge.exact(says["settled_below_threshold"], highest, count)
    widest = f"widths up to {int(runs['width'].max()):,}"
    yield "", judge.exact(says["live_meter"], float(residual.max()), widest)
    for network, part in runs.groupby("network"):
        yield from _edge_of(setup, str(network), part, says)


def _edge_of(setup: ScalarSpectrum, network: str, runs: pd.DataFrame, says: Says) -> Made:
    """The statements on runs of one network, whose factors are within a statement's limits."""

    def within(start: str, name: str) -> pd.DataFrame:
        limits = says[name]
        part = chosen(runs, start=start)
        return part[(part["factor"] > limits.low) & (part["factor"] < limits.high)]

    for width, part in within("large", "catapult").groupby("width"):
        shown = part.assign(shown=part["rose"] & part["settled"])
        yield f"{network} m={width:,}", _voted(setup, says["catapult"], shown)
    lost = within("large", "divergence")
    yield network, _voted(setup, says["divergence"], lost.assign(shown=lost["diverged"]))
    climbed = runs[(runs["start"] == "small") & (runs["factor"] < 1)]
    near = (climbed["high"] / climbed["factor"] - 1).abs() < says["climbs"].high
    climbs = climbed.assign(shown=climbed["settled"] & near)
    yield network, _voted(setup, says["climbs"], climbs)
    beyond = within("small", "oscillates")
    crossing = (beyond["low"] < 1) & (beyond["high"] > 1)
    goes_on = ~beyond["diverged"] & ~beyond["settled"]
    yield network, _voted(setup, says["oscillates"], beyond.assign(shown=goes_on & crossing))


def measured(setup: ScalarSpectrum, tables: Tables) -> pd.DataFrame | None:
    """The counts that the paper's corollary and theorem state, counted among dense eigenvalues."""
    rows = []
    nothing = pd.DataFrame({"seed": []})
    for seed, frame in tables.get("relu_cells", nothing).groupby("seed"):
        sizes = frame["dense"].abs()
        for cell, part in frame.groupby("cell"):
            bulk = chosen(part, kind="bulk")["eigenvalue"].abs()
            if len(bulk):
                equal = (sizes - bulk.iloc[0]).abs() <= 1e-9 * sizes.max()
                count = int(equal.sum())
                rows.append(("bulk_multiplicity", cell, seed, count / 2))
                rows.append(("outliers", cell, seed, len(part) - count))
    for seed, frame in tables.get("bias", nothing).groupby("seed"):
        first = chosen(frame, mix=0).iloc[0]
        in_bulk = int(first["zeros"] + first["plus"] + first["minus"])
        rows.append(("outliers", "bias", seed, 3 * setup.bias_width - in_bulk))
    if not rows:
        return None
    return pd.DataFrame(rows, columns=["metric", "cell", "seed", "value"])
