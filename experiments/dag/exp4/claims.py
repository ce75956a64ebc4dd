"""What the DAG paper says of Exp. 4 (Section 5.4, Appendix N.3, Fig. N.2), decided from the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import pandas as pd

from experiments.dag.protocol.scores import facts, jackknife, published_start, scored
from experiments.dag.protocol.summary import first, groups, label, seed_values
from runner.contract import Claim, Statement
from runner.stats import judge
from runner.stats.intervals import Pseudovalues

PAIRS, DEPTHS = 48, 3
"""Pairs (configuration, distance) that H4.1 counts, and depths k that Appendix N.3 compares."""
ENDS = ("init", "final")
VARIANT = ["branch_depth", "merge", "activation"]
CURVED = ("cat", "silu")
COUNTED = "dag.steps, class B"
"""Root cause in the errata of the printed count, of which the public results have more."""
CAT_RELU = "dag.cat_relu, class B"
"""Root cause in the errata of a tensor of cat + ReLU that is not zero."""
GROWING = (("sum", "relu"), ("cat", "relu"))
"""Configurations for which H4.2b is printed; the caption of Fig. N.2 has all four, at k = 2."""
Parts = dict[str, list[float]]


def claims(
    tables: Mapping[str, pd.DataFrame],
    says: Mapping[str, Statement],
    without_norm: pd.DataFrame | None = None,
) -> list[Claim]:
    """One claim per statement; configurations and checkpoints are its parts.

    without_norm: `distances` of untrained networks without LayerNorm, if any.
    """
    distances, merge, networks = (
        first(tables[name]) for name in ("distances", "merge", "networks")
    )
    final = networks[networks["checkpoint"] == "final"]
    percent = {
        name(k): [100 * v for v in seed_values(p, "test_accuracy").values()]
        for k, p in groups(final, VARIANT)
    }
    same = published_start(tables)
    return [
        *within_branches(tables["distances"], says),
        *across_branches(distances, says, same),
        printed_ratio(distances, without_norm, says["H4.2a ratio"], same),
        *jacobians(networks, says, same),
        *at_the_merge(tables["merge"], says, same),
        *over_depths(merge, says, same),
        judge.number(says["accuracy"], percent),
    ]


def name(keys: Sequence[Any]) -> str:
    """'k=2 sum+relu'."""
    return f"k={keys[0]} {keys[1]}+{keys[2]}"


def steps(distances: pd.DataFrame) -> dict[str, float]:
    """Change in percent of R within a branch for every step d -> d + 1, init and final, of means over seeds."""
    part = distances[(distances["relation"] != "cross") & distances["checkpoint"].isin(ENDS)]
    found = {}
    for values, rows in groups(part, [*VARIANT, "relation", "checkpoint"]):
        means = rows.groupby("distance")["R"].mean()
        for low, high in zip(means.index[:-1], means.index[1:], strict=True):
            where = f"{label([*VARIANT, 'branch', 'checkpoint'], values)} d={low}->{high}"
            found[where] = 100 * (means[high] / means[low] - 1)
    return found


def within_branches(distances: pd.DataFrame, says: Mapping[str, Statement]) -> Iterator[Claim]:
    """H4.1, on the papers' images and on every random set."""
    sets = {int(str(i)): steps(rows) for i, rows in distances.groupby("images")}
    complete = {i: changes for i, changes in sets.items() if len(changes) == PAIRS}
    if distances["seed"].nunique() < judge.FEWEST_SEEDS or 0 not in complete:
        yield judge.claim(
            says["H4.1"],
            "inconclusive",
            detail=f"{len(sets.get(0, ()))} of {PAIRS} pairs, too few seeds",
        )
        yield judge.claim(says["H4.1 deviations"], "inconclusive")
        return
    falling = {i: sum(v < 0 for v in changes.values()) for i, changes in complete.items()}
    rising = {where: v for where, v in complete[0].items() if v >= 0}
    counts = ", ".join(str(n) for i, n in falling.items() if i != 0)
    detail = f"{falling[0]} of {PAIRS} on the papers' images; {counts or 'none'} on random sets"
    made = judge.exact(says["H4.1"], {"": float(falling[0])}, detail)
    yield judge.minor_error(made, COUNTED) if falling[0] == PAIRS else made
    if not rising:
        yield judge.claim(says["H4.1 deviations"], "not run", detail="no pair rises")
        return
    listed = "; ".join(f"{where} {v:+.1f} %" for where, v in rising.items())
    yield judge.exact(says["H4.1 deviations"], {"": max(rising.values())}, listed)


def across_branches(
    distances: pd.DataFrame, says: Mapping[str, Statement], same: bool
) -> list[Claim]:
    """H4.2a and H4.2b: R across the branches against the graph distance.

    At init R is the paper's own quantity on its own networks: of the pair at d = 2 Tables 6 and N.4 print ‖H^T‖ and the
    gap, every digit of which is found, and ‖H^T‖/gap of the flat merges, their ‖H^GN‖ = R(2), is ours (report.shares).
    """
    cross = distances[(distances["relation"] == "cross") & (distances["branch_depth"] > 1)]
    parts = {k: rows for k, rows in groups(cross, [*VARIANT, "checkpoint"]) if k[-1] in ENDS}
    init = {k: rows for k, rows in parts.items() if k[-1] == "init"}
    final = {k: rows for k, rows in parts.items() if k[-1] == "final"}
    ratio = {name(k): ratios(p, "R", 4) for k, p in init.items()}
    falling = {
        k: p for k, p in init.items() if fmean(ratio[name(k)] or [math.inf]) < 1
    }  # elsewhere nothing decays
    cancelled = {name(k): cancellation(p) for k, p in falling.items()}
    readings = {
        reading: judge.bound(
            says["weakened cancellation"], weakened(init, final, growth=reading == "growth")
        )
        for reading in ("growth", "level")
    }
    growing = {name(k): ratios(rows, "R") for k, rows in final.items() if k[1:3] in GROWING}
    shown = {name(k): ratios(rows, "R", 4) for k, rows in final.items() if k[0] == 2}
    return [
        judge.bound(says["H4.2a decay"], ratio, same=facts(ratio, same)),
        judge.bound(says["H4.2a cancellation"], cancelled, same=facts(cancelled, same)),
        judge.bound(says["H4.2b"], growing),
        judge.bound(says["H4.2b growth"], shown),
        judge.together(readings, main="growth"),
    ]


def printed_ratio(
    distances: pd.DataFrame, without_norm: pd.DataFrame | None, says: Statement, same: bool
) -> Claim:
    """R(d+2)/R(d) at init at d = 2; as a variant, R(d+1)/R(d) of networks without LayerNorm at every d."""
    cross = distances[(distances["relation"] == "cross") & (distances["branch_depth"] > 1)]
    init = cross[cross["checkpoint"] == "init"]
    ratio = {name(k): ratios(p, "R", 4) for k, p in groups(init, VARIANT)}
    found = {"as published": judge.bound(says, ratio, same=facts(ratio, same))}
    steps = [] if without_norm is None else [v.whole for v in one_block(without_norm).values()]
    if steps:
        found["one block, without LayerNorm,"] = judge.exact(
            says, {"smallest": min(steps), "largest": max(steps)}
        )
    return judge.together(found, main="as published")


def _ratio_of_means(columns: pd.DataFrame) -> float:
    """Mean of the second column over the mean of the first."""
    return float(columns.iloc[:, 1].mean() / columns.iloc[:, 0].mean())


def one_block(distances: pd.DataFrame) -> dict[tuple[Any, ...], Pseudovalues]:
    """(branch depth, merge, activation, d) -> pseudovalues of R(d+1)/R(d) of the means over seeds at init."""
    cross = first(distances)[lambda t: (t["relation"] == "cross") & (t["checkpoint"] == "init")]
    found: dict[tuple[Any, ...], Pseudovalues] = {}
    for keys, part in groups(cross, VARIANT):
        wide = part.pivot(index="seed", columns="distance", values="R")
        for d in (d for d in wide.columns if d + 1 in wide.columns):
            found[*keys, int(d)] = jackknife(wide[[d, d + 1]], _ratio_of_means)
    return found


def cancellation(part: pd.DataFrame) -> list[float]:
    """log10 of how much more the mean block's norm falls from d = 2 to 4 than the mean norm of the images' own."""
    means, own = ratios(part, "R", 4), ratios(part, "R_examples", 4)
    return [math.log10(b / a) for a, b in zip(means, own, strict=True)]


def weakened(
    init: Mapping[Any, pd.DataFrame], final: Mapping[Any, pd.DataFrame], *, growth: bool
) -> Parts:
    """How much more of the images' own norm survives averaging, R over its mean, after training than before.

    By seed, in the configurations of which H4.2b speaks. growth: of the largest distance over d = 2, for it is growth
    with distance that the sentence explains; otherwise the share at the largest distance itself.
    """
    found: Parts = {}
    for keys, before in init.items():
        after = final.get((*keys[:-1], "final"))
        if after is not None and keys[1:3] in GROWING:
            start, end = (survivals(part, growth=growth) for part in (before, after))
            found[name(keys)] = [end[s] / start[s] for s in sorted(set(start) & set(end))]
    return found


def survivals(part: pd.DataFrame, *, growth: bool) -> dict[int, float]:
    """seed -> norm of the mean block over the mean norm of the images' own blocks, at the largest distance.

    growth: over the same at d = 2.
    """
    share = part.assign(share=part["R"] / part["R_examples"]).pivot(
        index="seed", columns="distance", values="share"
    )
    far = share[share.columns.max()]
    found = far / share[2] if growth else far
    return {int(str(seed)): float(value) for seed, value in found.items()}


def ratios(part: pd.DataFrame, value: str, distance: int | None = None) -> list[float]:
    """value(distance)/value(2) of each seed; the largest distance where none is given."""
    wide = part.pivot(index="seed", columns="distance", values=value)
    return list(wide[wide.columns.max() if distance is None else distance] / wide[2])


def jacobians(networks: pd.DataFrame, says: Mapping[str, Statement], same: bool) -> list[Claim]:
    """The spectral norms that H4.2 is explained by; configurations that share their values are one part."""
    above: Parts = {}
    grown: Parts = {}
    for keys, part in groups(networks, VARIANT):
        init, final = (seed_values(part[part["checkpoint"] == c], "rho") for c in ENDS)
        grown[name(keys)] = [final[s] - init[s] for s in sorted(set(init) & set(final))]
        values = list(init.values())
        twin = next((k for k, v in above.items() if v == values), None)
        above[name(keys) if twin is None else f"{twin} = {name(keys)}"] = (
            above.pop(twin) if twin else values
        )
    return [
        judge.bound(says["rho above 1"], above, same=facts(above, same)),
        judge.bound(says["rho grows"], grown),
    ]


def at_the_merge(merge: pd.DataFrame, says: Mapping[str, Statement], same: bool) -> Iterator[Claim]:
    """H4.3: the tensor part between the branches needs a curved merge."""
    curved = (merge["merge"] == CURVED[0]) & (merge["activation"] == CURVED[1])
    flat = merge[~curved]
    relu = flat[(flat["merge"] == "cat")]
    zero = "the engine routes the second derivative of the merge itself, an exact zero of the code here; the printed "
    zero += "1e-8 to 1e-10 are what float32 leaves of H − H^GN; `hess-run audit dag.zeros.exp4` has the block by "
    zero += "automatic differentiation, the audit's table `zeros` for every cell"
    for which, rows in (
        ("H4.3 flat merge", flat),
        ("tensor part of cat+ReLU", relu),
        ("separation", flat),
    ):
        if (rows["tensor"] == 0).all():
            made = judge.constructed(says[which], zero)
            wrong = which == "tensor part of cat+ReLU"
            yield judge.contradicted(made, CAT_RELU) if wrong else made
        elif which == "separation":
            gaps = first(merge)[lambda t: t["checkpoint"] == "init"].groupby(
                ["seed", "merge", "activation"]
            )["gap"]
            largest = gaps.max().unstack(["merge", "activation"])
            yield judge.bound(
                says[which], list(largest.drop(columns=[CURVED]).max(axis=1) / largest[CURVED])
            )
        else:
            column = "gap" if which == "H4.3 flat merge" else "tensor"
            parts = {
                f"{name(k)} {k[3]}": list(p[column])
                for k, p in groups(first(rows), [*VARIANT, "checkpoint"])
            }
            yield judge.bound(says[which], parts)
    init = first(merge[curved])[lambda t: t["checkpoint"] == "init"]
    by_depth = {
        f"k={k[0]}": list(seed_values(p, "gap").values()) for k, p in groups(init, ["branch_depth"])
    }
    yield judge.bound(says["H4.3 curved merge"], by_depth, same=facts(by_depth, same))


def over_depths(merge: pd.DataFrame, says: Mapping[str, Statement], same: bool) -> list[Claim]:
    """Appendix N.3: how much the gap of cat+SiLU depends on the branch depth."""
    curved = merge[(merge["merge"] == CURVED[0]) & (merge["activation"] == CURVED[1])]
    values: Parts = {}
    for checkpoint in ENDS:
        wide = curved[curved["checkpoint"] == checkpoint].pivot(
            index="seed", columns="branch_depth", values="gap"
        )
        enough = wide.shape[1] >= DEPTHS
        values[checkpoint] = (
            jackknife(wide, lambda t: 100 * (t.mean().max() / t.mean().min() - 1)) if enough else []
        )
    init = {"": values["init"]}
    return [
        judge.bound(says["gap over branch depths, init"], init, same=facts(init, same)),
        judge.number(says["gap over branch depths, final"], values["final"]),
    ]


def measured(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Values of Tables 6 and N.4, one row per seed."""
    metrics = {"gap_merge": "gap", "frob_tensor_merge": "tensor"}
    return scored(tables["merge"], [*VARIANT, "checkpoint"], metrics, tables, VARIANT)
