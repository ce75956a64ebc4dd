"""What the DAG paper says of depths 16 and 32 (Section 5.1, Appendices N.2 and N.6), decided from the tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from experiments.dag.exp1.claims import ENDS, VARIANT, Networks, Parts, decades, largest_step, logs, text, values_at
from experiments.dag.protocol.scores import fit_of_means, jackknife, paired
from experiments.dag.protocol.summary import first, groups, long_format
from runner.contract.claim import Claim, Statement
from runner.stats import judge

if TYPE_CHECKING:
    import pandas as pd

DEEPEST = 32


def claims(tables: Mapping[str, pd.DataFrame], says: Mapping[str, Statement]) -> list[Claim]:
    """One claim per statement; depths and checkpoints are its parts."""
    found = {k: p for k, p in groups(first(tables["distances"]), VARIANT) if k[2] in ENDS}
    plain = {k: p for k, p in found.items() if k[1] == "plain"}
    residual = {k: p for k, p in found.items() if k[1] == "residual"}
    return [
        *decay(plain, says),
        *u_shape(plain, says),
        judge.bound(says["self-curvature near the output"], self_curvature(tables)),
        *coupling(plain, says),
        judge.bound(says["residual C of the ends"], {text(k): at_end(p, "C", k[0]) for k, p in residual.items()}),
        judge.bound(says["residual R is stable"], {text(k): kept(p, k[0]) for k, p in residual.items()}),
        judge.bound(says["D below 1"], smallest_stable_ranks(tables["estimates"])),
    ]


def decay(plain: Networks, says: Mapping[str, Statement]) -> list[Claim]:
    """How far R and C fall in plain networks."""
    deepest = {k: p for k, p in plain.items() if k[0] == DEEPEST}
    start = {text(k): p for k, p in deepest.items() if k[2] == "init"}
    tails: Parts = {text(k): logs(values_at(p, "R", DEEPEST - 1)) for k, p in deepest.items()}
    return [
        judge.bound(says["norms at L=32"], tails),
        judge.bound(says["R² of log R"], {text(k): fit_of_means(p, "R") for k, p in plain.items() if k[2] == "init"}),
        judge.number(says["fall of R"], {k: [10**v for v in decades(p, DEEPEST)] for k, p in start.items()}),
        judge.number(says["coupling of the ends"], {k: at_end(p, "C", DEEPEST) for k, p in start.items()}),
    ]


def u_shape(plain: Networks, says: Mapping[str, Statement]) -> list[Claim]:
    """R(d) rises again beyond L/2, after training (init is a mark); at L = 32 the four points that are printed.

    Bottom and its place are those of the mean over seeds, as in the paper; their errors are by the jackknife.
    """
    rises = {
        checkpoint: judge.bound(
            says["rise of R"], {text(k): rise(p, k[0]) for k, p in plain.items() if k[2] == checkpoint}
        )
        for checkpoint in ("final", "init")
    }
    final = {text(k): p for k, p in plain.items() if k[0] == DEEPEST and k[2] == "final"}
    curves = {k: p.pivot(index="seed", columns="distance", values="R").dropna() for k, p in final.items()}
    least = {k: jackknife(w, lambda t: float(t.mean().min())) for k, w in curves.items()}
    place = {k: jackknife(w, lambda t: float(t.mean().idxmin())) for k, w in curves.items()}
    return [
        judge.together(rises, main="final"),
        judge.number(says["start of the U"], {k: list(values_at(p, "R", 0).values()) for k, p in final.items()}),
        judge.number(says["bottom of the U"], least),
        judge.number(says["place of the bottom"], place),
        judge.number(says["end of the U"], {k: at_end(p, "R", DEEPEST) for k, p in final.items()}),
    ]


def coupling(plain: Networks, says: Mapping[str, Statement]) -> list[Claim]:
    """How C(d) falls, of means over seeds as in the paper."""
    steps = {text(k): largest_step(p, "C") for k, p in plain.items()}
    fits = {k: fit_of_means(p, "C") for k, p in plain.items()}
    deepest = {text(k): v for k, v in fits.items() if k[0] == DEEPEST and k[2] == "final"}
    return [
        judge.bound(says["C monotone"], steps),
        judge.bound(says["R² of log C"], {text(k): v for k, v in fits.items()}),
        judge.bound(says["R² of log C at L=32"], deepest),
    ]


def at_end(part: pd.DataFrame, value: str, depth: int) -> list[float]:
    """value at the largest distance, by seed."""
    return list(values_at(part, value, depth - 1).values())


def rise(part: pd.DataFrame, depth: int) -> list[float]:
    """log10 R(L−1)/R(L/2) of each seed."""
    middle, end = values_at(part, "R", depth // 2), values_at(part, "R", depth - 1)
    return logs({s: end[s] / middle[s] for s in middle if s in end})


def kept(part: pd.DataFrame, depth: int) -> list[float]:
    """R(L−1)/R(0) of each seed."""
    return [10**-v for v in decades(part, depth)]


def self_curvature(tables: Mapping[str, pd.DataFrame]) -> Parts:
    """R(v,v) of the last measured block over that of the middle one, by seed, at L = 32, plain, final."""
    if "pairs" not in tables:
        return {}
    pairs = tables["pairs"]
    own = pairs[(pairs["v"] == pairs["w"]) & (pairs["arch"] == "plain") & (pairs["checkpoint"] == "final")]
    found: Parts = {}
    for (depth,), part in groups(own[own["depth"] == DEEPEST], ["depth"]):
        wide = part.pivot(index="seed", columns="v", values="R")[list(dict.fromkeys(part["v"]))]
        found[f"L={depth} final"] = list(wide.iloc[:, -1] / wide.iloc[:, wide.shape[1] // 2])
    return found


def smallest_stable_ranks(estimates: pd.DataFrame) -> Parts:
    """The smallest estimate of D at d > L/2 in plain networks, by seed: exact values are at least 1."""
    found: Parts = {}
    for (depth, checkpoint), part in groups(estimates[estimates["arch"] == "plain"], ["depth", "checkpoint"]):
        far = part[part["distance"] > depth // 2]
        if checkpoint in ENDS and len(far):
            found[f"L={depth} {checkpoint}"] = list(far.groupby("seed")["D_smallest"].min())
    return found


def measured(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Values of Table N.3, one row per seed; R and C from 100 probes, as the paper's, ρ exact as there.

    Only ρ can be the published number to the digit: the probes are others.
    """
    import pandas as pd

    exact = long_format(first(tables["networks"]), VARIANT, {"rho_max": "rho"})
    parts = [paired(exact, tables, ["depth", "arch"])]
    estimates = tables["estimates"]
    start = estimates[estimates["distance"] == 0]
    end = estimates[estimates["distance"] == estimates["depth"] - 1]
    parts.append(long_format(start, VARIANT, {"R_d0": "R"}))
    parts.append(long_format(end, VARIANT, {"R_dLminus1": "R", "C_dLminus1": "C"}))
    found = pd.concat(parts, ignore_index=True)
    return found.assign(paired=found["paired"].eq(True))


def notes(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Findings in plain words."""
    distances, estimates = first(tables["distances"]), tables["estimates"]
    keys = [*VARIANT, "seed", "distance"]
    both = distances.merge(estimates, on=keys, suffixes=("", "_estimate"))
    found = []
    for (depth, arch, checkpoint), part in groups(both, VARIANT):
        if checkpoint in ENDS:
            shift = (part["R_estimate"] / part["R"] - 1).abs().mean()
            rank = (part["D_estimate"] / part["D"] - 1).mean()
            found.append(
                f"L = {depth} {arch} {checkpoint}: estimated R(d) differs from the exact one by {100 * shift:.1f} % on "
                f"average, estimated D(d) by {100 * rank:+.1f} %; smallest estimated D {part['D_smallest'].min():.3f}, "
                f"smallest exact mean {part['D'].min():.3f} (exact D is never below 1)."
            )
    return found
