"""What the DAG paper says of depths 16 and 32 (Section 5.1, Appendices N.2 and N.6), decided from
the tables.

Printed numbers are compared with the paper's own kind of estimate (100 probes), as in the
scorecard; statements on shapes against the exact blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from experiments.dag.exp1.claims import (
    ENDS,
    TABLES,
    VARIANT,
    Networks,
    Parts,
    decades,
    largest_step,
    logs,
    text,
    values_at,
)
from experiments.dag.protocol.scores import fit_of_means, jackknife, paired, probes, published_start
from experiments.dag.protocol.summary import first, groups, long_format
from runner.contract import Claim, Statement
from runner.stats import judge, linear

DEEPEST = 32
SHALLOWEST = 12
"""Stable ranks below 1 are reported of deeper networks."""


def claims(tables: Mapping[str, pd.DataFrame], says: Mapping[str, Statement]) -> list[Claim]:
    """One claim per statement; depths and checkpoints are its parts."""
    found = {k: p for k, p in groups(first(tables["distances"]), VARIANT) if k[2] in ENDS}
    plain = {k: p for k, p in found.items() if k[1] == "plain"}
    residual = {k: p for k, p in found.items() if k[1] == "residual"}
    deepest = {
        k[2]: p for k, p in groups(tables["estimates"], VARIANT) if k[:2] == (DEEPEST, "plain")
    }
    exact = plain if published_start(tables, depth=DEEPEST, arch="plain") else {}
    return [
        *decay(plain, deepest, exact, says),
        *u_shape(plain, deepest, says),
        near_output(tables, says["self-curvature near the output"]),
        *coupling(plain, says),
        judge.contradicted(
            judge.bound(
                says["residual C of the ends"],
                {text(k): at_end(p, "C", k[0]) for k, p in residual.items()},
            ),
            TABLES,
        ),
        judge.bound(
            says["residual R is stable"], {text(k): kept(p, k[0]) for k, p in residual.items()}
        ),
        seen_below_one(says["D below 1"], smallest_stable_ranks(tables["estimates"])),
    ]


def decay(
    plain: Networks,
    deepest: Mapping[str, pd.DataFrame],
    exact: Networks,
    says: Mapping[str, Statement],
) -> list[Claim]:
    """How far R and C fall in plain networks.

    deepest: checkpoint -> estimates at L = 32; exact: values without probes of the paper's own
    networks, if they are.
    """
    name = f"L={DEEPEST} init"
    start = {name: deepest["init"]} if "init" in deepest else {}
    own = {text(k): p for k, p in exact.items() if text(k) in start}
    tails: Parts = {
        text(k): logs(values_at(p, "R", DEEPEST - 1)) for k, p in plain.items() if k[0] == DEEPEST
    }
    return [
        judge.contradicted(judge.bound(says["norms at L=32"], tails), TABLES),
        judge.bound(
            says["R² of log R"],
            {text(k): fit_of_means(p, "R") for k, p in plain.items() if k[2] == "init"},
        ),
        judge.number(says["fall of R"], falls(start), without_probes=falls(own)),
        judge.number(
            says["coupling of the ends"],
            {k: at_end(p, "C", DEEPEST) for k, p in start.items()},
            without_probes={k: at_end(p, "C", DEEPEST) for k, p in own.items()},
        ),
    ]


def falls(networks: Mapping[str, pd.DataFrame]) -> Parts:
    """R(0)/R(L−1) of each seed."""
    return {k: [10**v for v in decades(p, DEEPEST)] for k, p in networks.items()}


def u_shape(
    plain: Networks, deepest: Mapping[str, pd.DataFrame], says: Mapping[str, Statement]
) -> list[Claim]:
    """R(d) rises beyond L/2, after training (before it is a variant); at L = 32 the four published
    points.

    The bottom is that of the mean over seeds, as in the paper, its error by the jackknife. Its
    place is taken from each seed's curve: the place of a smallest value moves in jumps, or for no
    seed that is left out, and the jackknife then has no error to give.
    """
    rises = {
        checkpoint: judge.bound(
            says["rise of R"],
            {text(k): rise(p, k[0]) for k, p in plain.items() if k[2] == checkpoint},
        )
        for checkpoint in ("final", "init")
    }
    final = {f"L={DEEPEST} final": deepest["final"]} if "final" in deepest else {}
    curves = {k: p.pivot(index="seed", columns="distance", values="R") for k, p in final.items()}
    least = {k: jackknife(w, lambda t: float(t.mean().min())) for k, w in curves.items()}
    place = {k: [place_of(row) for _, row in w.iterrows()] for k, w in curves.items()}
    return [
        judge.together(rises, main="final"),
        judge.number(
            says["start of the U"],
            {k: list(values_at(p, "R", 0).values()) for k, p in final.items()},
        ),
        judge.number(says["bottom of the U"], least),
        judge.number(says["place of the bottom"], place),
        judge.number(says["end of the U"], {k: at_end(p, "R", DEEPEST) for k, p in final.items()}),
    ]


def place_of(curve: pd.Series[float]) -> float:
    """The distance at which a curve is smallest; NaN where it has an infinite or missing value."""
    return float(curve.idxmin()) if np.isfinite(curve).all() else math.nan  # type: ignore[arg-type]


def coupling(plain: Networks, says: Mapping[str, Statement]) -> list[Claim]:
    """How C(d) falls, of means over seeds as in the paper."""
    steps = {text(k): largest_step(p, "C") for k, p in plain.items()}
    fits = {k: fit_of_means(p, "C", either=True) for k, p in plain.items()}
    deepest = {text(k): v for k, v in fits.items() if k[0] == DEEPEST and k[2] == "final"}
    return [
        judge.bound(says["C monotone"], steps),
        judge.bound(says["R² of C"], {text(k): v for k, v in fits.items()}),
        judge.bound(says["R² of C at L=32"], deepest),
    ]


def at_end(part: pd.DataFrame, value: str, depth: int) -> list[float]:
    """value at the largest distance, by seed."""
    return list(values_at(part, value, depth - 1).values())


def rise(part: pd.DataFrame, depth: int) -> list[float]:
    """Slope of log10 R(d) on d beyond L/2, of each seed."""
    wide = part[part["distance"] > depth // 2].pivot(index="seed", columns="distance", values="R")
    d = wide.columns.to_numpy(float)
    return [linear(d, np.log10(row.to_numpy()), name="").slope for _, row in wide.iterrows()]


def kept(part: pd.DataFrame, depth: int) -> list[float]:
    """R(L−1)/R(0) of each seed."""
    return [10**-v for v in decades(part, depth)]


def near_output(tables: Mapping[str, pd.DataFrame], says: Statement) -> Claim:
    """R(v,v) of the last third of the blocks against all others; a variant: its largest against the
    middle block."""
    readings = {
        "last third": self_curvature(tables),
        "largest against the middle": self_curvature(tables, peak=True),
    }
    return judge.together(
        {k: judge.bound(says, parts) for k, parts in readings.items()}, main="last third"
    )


def self_curvature(tables: Mapping[str, pd.DataFrame], *, peak: bool = False) -> Parts:
    """Mean R(v,v) of the last third of the blocks over that of the others, by seed, at L = 32,
    plain, final.

    peak: their largest over the middle block instead, which shows a rise that the input side would
    hide.
    """
    wide = self_curvatures(tables)
    if wide is None:
        return {}
    cut = wide.shape[1] - wide.shape[1] // 3
    last, rest = wide.iloc[:, cut:], wide.iloc[:, :cut]
    ratio = (
        last.max(axis=1) / wide.iloc[:, wide.shape[1] // 2]
        if peak
        else last.mean(axis=1) / rest.mean(axis=1)
    )
    return {f"L={DEEPEST} final": list(ratio)}


def self_curvatures(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
    """R(v,v) at L = 32, plain, final: a row a seed, a column a block in the order of the network;
    None without any."""
    if "pairs" not in tables:
        return None
    pairs = tables["pairs"]
    own = pairs[
        (pairs["v"] == pairs["w"]) & (pairs["arch"] == "plain") & (pairs["checkpoint"] == "final")
    ]
    own = own[own["depth"] == DEEPEST]
    return (
        own.pivot(index="seed", columns="v", values="R")[list(dict.fromkeys(own["v"]))]
        if len(own)
        else None
    )


def smallest_stable_ranks(estimates: pd.DataFrame) -> Parts:
    """The smallest estimate of D at d > L/2 in plain networks, by seed: exact values are at least
    1."""
    found: Parts = {}
    for (depth, checkpoint), part in groups(
        estimates[estimates["arch"] == "plain"], ["depth", "checkpoint"]
    ):
        far = part[part["distance"] > depth // 2]
        if checkpoint in ENDS and depth > SHALLOWEST and len(far):
            found[f"L={depth} {checkpoint}"] = list(far.groupby("seed")["D_smallest"].min())
    return found


def seen_below_one(says: Statement, smallest: Parts) -> Claim:
    """Holds where a network shows it; not to have met it refutes nothing, in however many
    networks."""
    if not smallest:
        return judge.claim(says, "not run", detail="no pair is far enough apart")
    seen = {part: sum(v < 1 for v in values) for part, values in smallest.items()}
    counts = ", ".join(
        f"{part}: {seen[part]} of {len(values)}" for part, values in smallest.items()
    )
    found = {
        part: judge.claim(
            says,
            "confirmed" if seen[part] else "inconclusive",
            min(min(v) for v in smallest.values()),
            f"networks in which it occurs: {counts}",
            seeds_needed=math.nan if seen[part] else math.inf,
        )
        for part in smallest
    }
    return judge.together(found)


def measured(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Values of Table N.3, one row per seed; R and C from 100 probes, as the paper's, ρ exact as
    there.

    Only ρ can be the published number to the digit: the probes are others.
    """
    cell = ["depth", "arch"]
    exact = long_format(first(tables["networks"]), VARIANT, {"rho_max": "rho"})
    estimates = probes(ends(tables["estimates"]), ends(first(tables["distances"])), tables, cell)
    found = pd.concat([paired(exact, tables, cell), estimates], ignore_index=True)
    return found.assign(paired=found["paired"].eq(True))


def ends(distances: pd.DataFrame) -> pd.DataFrame:
    """R at both ends of the distances and C at the largest, in long format.

    The authors cut estimated couplings at 1, pair by pair; at distance L − 1 there is one pair.
    """
    start = distances[distances["distance"] == 0]
    end = distances[distances["distance"] == distances["depth"] - 1]
    end = end.assign(C=end["C"].clip(upper=1.0))
    parts = [
        long_format(start, VARIANT, {"R_d0": "R"}),
        long_format(end, VARIANT, {"R_dLminus1": "R", "C_dLminus1": "C"}),
    ]
    return pd.concat(parts, ignore_index=True)


def notes(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Findings in plain words."""
    distances, estimates = first(tables["distances"]), tables["estimates"]
    keys = [*VARIANT, "seed", "distance"]
    both = distances.merge(estimates, on=keys, suffixes=("", "_estimate"))
    if len(start := both[both["checkpoint"] == "init"]):
        moved = 100 * (start["R_estimate"] / start["R"] - 1).abs().mean()
        return [
            "R and C of Table N.3 are estimates from 100 probes, and its probes are not published. "
            "Ours are others: at init, where networks and images are the paper's, they alone move "
            f"R(d) by {moved:.1f} % on average, so that ρ can be the printed number to the digit, "
            "R and C cannot be expected to."
        ]
    return []
