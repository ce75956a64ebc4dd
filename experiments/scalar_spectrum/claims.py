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
    confirmed = {(claim.name, variant) for variant, claim in made if claim.verdict == "confirmed"}
    judged = []
    for claim in judge.gathered(made):
        claim = _minor_error(claim, confirmed)
        judged.append(_protocol_unknown(claim))
    return judged


def _minor_error(claim: Claim, confirmed: set[tuple[str, str]]) -> Claim:
    case, where = MINOR_ERRORS.get(claim.name, ("", ""))
    if (claim.name, case) in confirmed:
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
    return judge.claim(says, verdict, share, detail, threshold=threshold)


def _relative_range(values: pd.Series[float]) -> float:
    """Largest less smallest value, over the largest size."""
    return np.ptp(values) / np.abs(values).max()


def _scaling(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    frame = tables["scaling"]
    networks = ["scaled_width", "seed"]
    spectra = [*networks, "sigma"]
    fixed = chosen(frame, targets="fixed")
    sharpness = fixed.groupby(spectra)["eigenvalue"].max().unstack()
    low = sharpness.columns.min()
    if 1.0 in sharpness.columns and low < 1:
        ratio = sharpness[1.0] / sharpness[low]
        count = f"smallest over {len(sharpness)} networks"
        detail = f"sharpness at sigma = 1 over sigma = {low:g}, {count}"
        yield "", judge.exact(says["normalising_sharpens"], float(ratio.min()), detail)
    detail = "relative spread of (largest, smallest eigenvalue)/sigma^2 over sigma"
    for targets, part in frame.groupby("targets"):
        scaled = part.assign(unit=part["eigenvalue"] / part["sigma"] ** 2)
        extremes = scaled.groupby(spectra)["unit"].agg(["max", "min"])
        spreads = extremes.groupby(networks).agg(_relative_range)
        spread = float(spreads.to_numpy().max())
        yield f"targets {targets}", judge.exact(says["proportional"], spread, detail)


def _cells(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    frame = tables["relu_cells"]
    largest = frame.groupby("seed")["dense"].transform(lambda s: s.abs().max())
    errors = (frame["eigenvalue"] - frame["dense"]).abs() / largest
    error = float(errors.max())
    yield "", judge.exact(says["relu_closed_form"], error, "relative to a dense eigensolver")
    density = tables["density"]
    unit = density.assign(unit=density["eigenvalue"] / density["share"])
    unit["rank"] = unit.groupby(["seed", "cell", "copies"])["unit"].rank(method="first")
    spreads = unit.groupby(["seed", "cell", "rank"])["unit"].agg(_relative_range)
    detail = "relative spread of eigenvalue/density when samples x <= 0 are repeated"
    yield "", judge.exact(says["density"], float(spreads.max()), detail)


def _closed_form(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    for network, part in tables["pairs"].groupby("network"):
        variant = str(network)
        steps = f"{len(part)} steps"
        errors = part["dense_error"].dropna()
        error = float(errors.max())
        compared = f"{len(errors)} of {steps}"
        yield variant, judge.exact(says["closed_form_in_training"], error, compared)
        violation = (part["bound"] - part["smallest"]) / part["trace"]
        yield variant, judge.exact(says["smallest_bound"], float(violation.max()), steps)


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


def _phases(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    frame = chosen(tables["pairs"], status="ok")
    target = frame["target"]
    signs = {"θ* > 0": frame[target > 0], "θ* < 0": frame[target < 0]}
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
        error = np.maximum(first_error, solved["second"].abs()) / trace
        steps = f"{len(solved)} steps at the solution"
        yield "", judge.exact(says["rank_one"], float(error.max()), steps)


def _pairs(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    """What Section 2 says of Fig. 3, run by run: the linear net, and the positive cell of the ReLU
    net."""
    frame = paired_steps(tables)
    frame = frame[frame["cell"] != "-"].sort_values("step")
    rates = frame["rate"]
    lowest = rates.min()
    tests = {lowest: LOW}
    tests.setdefault(rates.max(), HIGH)
    for (network, left), part in frame.groupby(["network", "left"]):
        for rate, tests_at_rate in tests.items():
            runs = chosen(part, rate=rate).groupby("seed")["second"]
            variant = f"{network} on {wedge_name(left)} at rate {rate:g}"
            for name, test in tests_at_rate.items():
                votes = [(seed, test(second.to_numpy())) for seed, second in runs]
                yield variant, _voted(setup, says[name], _ballot(votes))
    yield "", _damping(setup, chosen(frame, rate=lowest), says["damping"])


def paired_steps(tables: Tables) -> pd.DataFrame:
    """The recorded steps of the runs that did not diverge; cell: "" for linear networks."""
    frame = tables["pairs"].assign(cell=tables["pairs"]["cell"].fillna(""))
    return chosen(frame, status="ok")


def _ballot(votes: Sequence[tuple[object, bool]]) -> pd.DataFrame:
    return pd.DataFrame(votes, columns=["seed", "shown"])


def _damping(setup: ScalarSpectrum, frame: pd.DataFrame, says: Statement) -> Claim:
    """When a low rate is low enough for the second outlier to reach zero from above: an overdamped
    heavy ball."""
    votes = []
    for (_, _, seed), run in frame.groupby(["network", "left", "seed"]):
        if run["phase"].iloc[0] == "early":
            end = run.iloc[-1]
            limit = (1 - setup.momentum**0.5) ** 2 / end["rate"]
            overdamped = end["trace"] < limit
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
    networks = f"{inside['seed'].nunique()} networks, m = {width}"
    gap = float(inside["gap"].max())
    yield "", judge.exact(says["theorem6"], gap, networks)
    wrong = inside["zeros"] != width - 1
    wrong |= inside["plus"] != width - 2
    wrong |= inside["minus"] != width - 2
    yield "", judge.exact(says["theorem6_multiplicities"], float(wrong.sum()), networks)
    triple = chosen(inside, member="triple")
    below = triple["lower"] - triple["theorem"]
    above = triple["theorem"] - triple["upper"]
    outside = float(np.maximum(below, above).max())
    yield "", judge.exact(says["triple_bounds"], outside, networks)
    error = float(frame["dense_error"].max())
    yield "", judge.exact(says["bias_closed_form"], error, f"{len(frame)} rows")


def edge_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per edge run: first, highest and last loss, range of sharpness·rate/2 over the last
    steps, settled."""
    frame = frame.sort_values("step").assign(ratio=frame["sharpness"] * frame["rate"] / 2)
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
    shown = lost.assign(shown=lost["diverged"])
    yield network, _voted(setup, says["divergence"], shown)
    climbed = runs[(runs["start"] == "small") & (runs["factor"] < 1)]
    distance = (climbed["high"] / climbed["factor"] - 1).abs()
    near = distance < says["climbs"].high
    shown = climbed.assign(shown=climbed["settled"] & near)
    yield network, _voted(setup, says["climbs"], shown)
    beyond = within("small", "oscillates")
    crossing = (beyond["low"] < 1) & (beyond["high"] > 1)
    goes_on = ~beyond["diverged"] & ~beyond["settled"]
    shown = beyond.assign(shown=goes_on & crossing)
    yield network, _voted(setup, says["oscillates"], shown)


def measured(setup: ScalarSpectrum, tables: Tables) -> pd.DataFrame | None:
    """The counts that the paper's corollary and theorem state, counted among dense eigenvalues."""
    rows = []
    nothing = pd.DataFrame({"seed": []})
    for seed, frame in tables.get("relu_cells", nothing).groupby("seed"):
        sizes = frame["dense"].abs()
        near = 1e-9 * sizes.max()
        for cell, part in frame.groupby("cell"):
            bulk = chosen(part, kind="bulk")["eigenvalue"].abs()
            if len(bulk):
                distance = (sizes - bulk.iloc[0]).abs()
                count = int((distance <= near).sum())
                rows.append(("bulk_multiplicity", cell, seed, count / 2))
                rows.append(("outliers", cell, seed, len(part) - count))
    for seed, frame in tables.get("bias", nothing).groupby("seed"):
        first = chosen(frame, mix=0).iloc[0]
        in_bulk = int(first["zeros"] + first["plus"] + first["minus"])
        rows.append(("outliers", "bias", seed, 3 * setup.bias_width - in_bulk))
    if not rows:
        return None
    return pd.DataFrame(rows, columns=["metric", "cell", "seed", "value"])
