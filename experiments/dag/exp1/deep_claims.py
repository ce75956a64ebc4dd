"""What the DAG paper says of depths 16 and 32 (Section 5.1, Appendices N.2 and N.6), decided from
the tables.

Printed numbers are compared with the paper's own kind of estimate (100 probes), as in the
scorecard; statements on shapes against the exact blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from experiments.dag.exp1.claims import (
    TEXT,
    VARIANT,
    at_end,
    depth_of,
    largest_step,
    log_end,
    log_fall,
    values_at,
)
from experiments.dag.protocol.scores import fit_of_means, jackknife, paired, probes, published_start
from experiments.dag.protocol.statements import TABLES, Groups, Judge, Parts
from experiments.dag.protocol.summary import at_ends, first, long_format, per_seed
from runner.contract import Claim, Statement, Tables
from runner.stats import judge, linear
from runner.stats.tables import chosen

DEEPEST = 32
SHALLOWEST = 12
"""Stable ranks below 1 are reported of deeper networks."""


def claims(tables: Tables, says: Mapping[str, Statement]) -> Iterator[Claim]:
    """One claim per statement; depths and checkpoints are its parts."""
    decide = Judge(says)
    distances = at_ends(first(tables["distances"]))
    curves = Groups(distances, VARIANT, TEXT)
    plain = curves.only(arch="plain")
    residual = curves.only(arch="residual")
    every = Groups(tables["estimates"], VARIANT, TEXT)
    estimates = every.only(depth=DEEPEST, arch="plain")
    own = published_start(tables, depth=DEEPEST, arch="plain")
    deepest = plain.only(depth=DEEPEST, checkpoint="init")
    exact = deepest if own else None
    far = decide.bound("residual C of the ends", residual.each(at_end, "C"))
    start = estimates.only(checkpoint="init")
    yield from decay(plain, start, exact, decide)
    yield from u_shape(plain, estimates.only(checkpoint="final"), decide)
    yield near_output(tables, decide)
    yield from coupling(plain, decide)
    yield judge.contradicted(far, TABLES)
    yield decide.bound("residual R is stable", residual.each(kept))
    yield seen_below_one(says["D below 1"], smallest_stable_ranks(tables["estimates"]))


def decay(plain: Groups, start: Groups, exact: Groups | None, decide: Judge) -> Iterator[Claim]:
    """How far R and C fall in plain networks.

    start: estimates at L = 32 before training; exact: values without probes of the paper's own
    networks, if they are.
    """
    log_ends = plain.only(depth=DEEPEST).each(log_end)
    tails = decide.bound("norms at L=32", log_ends)
    straight = plain.only(checkpoint="init").each(fit_of_means, "R")
    own_falls = {}
    own_ends = {}
    pairs = start.pairs(exact) if exact else ()
    for name, _, rows in pairs:
        own_falls[name] = falls(rows)
        own_ends[name] = at_end(rows, "C")
    yield judge.contradicted(tails, TABLES)
    yield decide.bound("R² of log R", straight)
    measured_falls = start.each(falls)
    yield decide.number("fall of R", measured_falls, without_probes=own_falls)
    measured_ends = start.each(at_end, "C")
    yield decide.number("coupling of the ends", measured_ends, without_probes=own_ends)


def falls(rows: pd.DataFrame) -> list[float]:
    """R(0)/R(L−1) of each seed."""
    return [10**value for value in log_fall(rows)]


def kept(rows: pd.DataFrame) -> list[float]:
    """R(L−1)/R(0) of each seed."""
    return [10**-value for value in log_fall(rows)]


def u_shape(plain: Groups, final: Groups, decide: Judge) -> Iterator[Claim]:
    """R(d) rises beyond L/2, after training (before it is a variant); at L = 32 the four published
    points, of the estimates after training.

    The bottom is that of the mean over seeds, as in the paper, its error by the jackknife. Its
    place is taken from each seed's curve: the place of a smallest value moves in jumps, or for no
    seed that is left out, and the jackknife then has no error to give.
    """
    rises = {}
    for checkpoint in ("final", "init"):
        slopes = plain.only(checkpoint=checkpoint).each(rise)
        rises[checkpoint] = decide.bound("rise of R", slopes)
    yield judge.together(rises, main="final")
    starts = final.each(values_at, "R", 0)
    yield decide.number("start of the U", starts)
    yield decide.number("bottom of the U", final.each(bottom))
    yield decide.number("place of the bottom", final.each(places))
    yield decide.number("end of the U", final.each(at_end, "R"))


def bottom(rows: pd.DataFrame) -> list[float]:
    """Pseudovalues of the smallest mean over seeds."""
    wide = per_seed(rows, "R")
    return jackknife(wide, lambda sample: float(sample.mean().min()))


def places(rows: pd.DataFrame) -> list[float]:
    """The distance at which R is smallest, by seed."""
    wide = per_seed(rows, "R")
    return [place_of(curve) for _, curve in wide.iterrows()]


def place_of(curve: pd.Series[float]) -> float:
    """The distance at which a curve is smallest; NaN where it has an infinite or missing value."""
    if np.isfinite(curve).all():
        return float(curve.idxmin())  # type: ignore[arg-type]
    return math.nan


def coupling(plain: Groups, decide: Judge) -> Iterator[Claim]:
    """How C(d) falls, of means over seeds as in the paper."""
    deepest = plain.only(depth=DEEPEST, checkpoint="final")
    yield decide.bound("C monotone", plain.each(largest_step, "C"))
    yield decide.bound("R² of C", plain.each(best_fit))
    yield decide.bound("R² of C at L=32", deepest.each(best_fit))


def best_fit(rows: pd.DataFrame) -> list[float]:
    """R² of C or of log C on d, whichever is larger."""
    return fit_of_means(rows, "C", either=True)


def rise(rows: pd.DataFrame) -> list[float]:
    """Slope of log10 R(d) on d beyond L/2, of each seed."""
    far = rows[rows["distance"] > depth_of(rows) // 2]
    wide = per_seed(far, "R")
    d = wide.columns.to_numpy(float)
    slopes = []
    for _, curve in wide.iterrows():
        logarithms = np.log10(curve.to_numpy())
        fit = linear(d, logarithms, name="")
        slopes.append(fit.slope)
    return slopes


def near_output(tables: Tables, decide: Judge) -> Claim:
    """R(v,v) of the last third of the blocks against all others; a variant: its largest against the
    middle block."""
    name = "self-curvature near the output"
    ratios = self_curvature(tables)
    peaks = self_curvature(tables, peak=True)
    last_third = decide.bound(name, ratios)
    largest = decide.bound(name, peaks)
    readings = {
        "last third": last_third,
        "largest against the middle": largest,
    }
    return judge.together(readings, main="last third")


def self_curvature(tables: Tables, *, peak: bool = False) -> Parts:
    """Mean R(v,v) of the last third of the blocks over that of the others, by seed, at L = 32,
    plain, final.

    peak: their largest over the middle block instead, which shows a rise that the input side would
    hide.
    """
    wide = self_curvatures(tables)
    if wide is None:
        return {}
    depth = wide.shape[1]
    cut = depth - depth // 3
    last = wide.iloc[:, cut:]
    rest = wide.iloc[:, :cut]
    mean_of_rest = rest.mean(axis=1)
    ratio = last.mean(axis=1) / mean_of_rest
    if peak:
        middle = wide.iloc[:, depth // 2]
        ratio = last.max(axis=1) / middle
    return {f"L={DEEPEST} final": list(ratio)}


def self_curvatures(tables: Tables) -> pd.DataFrame | None:
    """R(v,v) at L = 32, plain, final: a row a seed, a column a block in the order of the network;
    None without any."""
    if "pairs" not in tables:
        return None
    pairs = chosen(tables["pairs"], arch="plain", checkpoint="final", depth=DEEPEST)
    own = chosen(pairs, v=pairs["w"])
    if own.empty:
        return None
    nodes = list(dict.fromkeys(own["v"]))
    return per_seed(own, "R", "v")[nodes]


def smallest_stable_ranks(estimates: pd.DataFrame) -> Parts:
    """The smallest estimate of D at d > L/2 in plain networks, by seed: exact values are at least
    1."""
    plain = at_ends(chosen(estimates, arch="plain"))
    deep = plain[plain["depth"] > SHALLOWEST]
    far = deep[deep["distance"] > deep["depth"] // 2]
    of_networks = Groups(far, ["depth", "checkpoint"], TEXT)
    return of_networks.values("D_smallest", "min")


def seen_below_one(says: Statement, smallest: Parts) -> Claim:
    """Holds where a network shows it; not to have met it refutes nothing, in however many
    networks."""
    if not smallest:
        return judge.claim(says, "not run", detail="no pair is far enough apart")
    seen = {}
    listed = []
    for part, values in smallest.items():
        below = np.asarray(values) < 1
        seen[part] = int(below.sum())
        listed.append(f"{part}: {seen[part]} of {len(values)}")
    detail = f"networks in which it occurs: {', '.join(listed)}"
    least = min(map(min, smallest.values()))
    found = {}
    for part, count in seen.items():
        made = judge.claim(says, "confirmed", least, detail, seeds_needed=math.nan)
        if not count:
            made = judge.claim(says, "inconclusive", least, detail, seeds_needed=math.inf)
        found[part] = made
    return judge.together(found)


def measured(tables: Tables) -> pd.DataFrame:
    """Values of Table N.3, one row per seed; R and C from 100 probes, as the paper's, ρ exact as
    there.

    Only ρ can be the published number to the digit: the probes are others.
    """
    cell = ["depth", "arch"]
    networks = first(tables["networks"])
    exact = long_format(networks, VARIANT, {"rho_max": "rho"})
    estimated = ends(tables["estimates"])
    own = ends(first(tables["distances"]))
    estimates = probes(estimated, own, tables, cell)
    found = pd.concat([paired(exact, tables, cell), estimates], ignore_index=True)
    return found.assign(paired=found["paired"].eq(True))


def ends(distances: pd.DataFrame) -> pd.DataFrame:
    """R at both ends of the distances and C at the largest, in long format.

    The authors cut estimated couplings at 1, pair by pair; at distance L − 1 there is one pair.
    """
    start = chosen(distances, distance=0)
    end = chosen(distances, distance=distances["depth"] - 1)
    clipped = end["C"].clip(upper=1.0)
    end = end.assign(C=clipped)
    at_start = long_format(start, VARIANT, {"R_d0": "R"})
    parts = [
        at_start,
        long_format(end, VARIANT, {"R_dLminus1": "R", "C_dLminus1": "C"}),
    ]
    return pd.concat(parts, ignore_index=True)
