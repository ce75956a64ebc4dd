"""What the DAG paper says of Exp. 4 (Section 5.4, Appendix N.3, Fig. N.2), decided from the tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experiments.dag.protocol.summary import (
    first,
    groups,
    label,
    long_format,
    seed_values,
    variance_components,
)
from runner.contract.experiment import Claim, decide
from runner.stats import judge

if TYPE_CHECKING:
    import pandas as pd

PLACE = "Section 5.4"
ENDS = ("init", "final")
VARIANT = ["branch_depth", "merge", "activation"]
KIND = ["merge", "activation"]
FLAT = 5.0
"""Percent by which the paper lets R rise and still calls it noise (H4.1)."""


def claims(tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
    """One claim per statement and variant."""
    distances, merge, networks = (first(tables[name]) for name in ("distances", "merge", "networks"))
    return [
        *within_branches(distances),
        *across_branches(distances),
        *jacobians(networks),
        *at_the_merge(merge),
        *over_depths(merge),
        *accuracy(networks),
    ]


def within_branches(distances: pd.DataFrame) -> Iterator[Claim]:
    """H4.1: steps d -> d + 1 of R within a branch at init and final, by variant and branch, of means over seeds."""
    part = distances[(distances["relation"] != "cross") & distances["checkpoint"].isin(ENDS)]
    enough = part["seed"].nunique() >= judge.FEWEST_SEEDS
    falling: list[str] = []
    rising: list[tuple[float, str]] = []
    for values, rows in groups(part, [*VARIANT, "relation", "checkpoint"]):
        means = rows.groupby("distance")["R"].mean()
        for low, high in zip(means.index[:-1], means.index[1:], strict=True):
            change = 100 * (means[high] / means[low] - 1)
            name = f"{label([*VARIANT, 'branch', 'checkpoint'], values)} d={low}->{high} {change:+.1f} %"
            falling.append(name) if change < 0 else rising.append((change, name))
    count = len(falling) + len(rising)
    if count:
        statement = "R within a branch falls with distance in 45 of 48 steps"
        holds = (len(falling) >= 45 if count == 48 else len(falling) / count >= 45 / 48) if enough else None
        detail = "rising: " + "; ".join(name for _, name in rising) if rising else "none rises"
        yield Claim("H4.1", statement, PLACE, decide(holds), len(falling), f">= 45 of 48 ({count} measured)", detail)
        worst = max((change for change, _ in rising), default=0.0)
        small = decide(worst <= FLAT if enough else None)
        statement = "the steps that do not fall are within 5 %"
        yield Claim("H4.1 deviations", statement, PLACE, small, worst, f"<= {FLAT:g}", f"{len(rising)} steps rise")


def across_branches(distances: pd.DataFrame) -> Iterator[Claim]:
    """H4.2a and H4.2b: R across the branches against the graph distance."""
    cross = distances[distances["relation"] == "cross"]
    for (depth, merge, activation, checkpoint), part in groups(cross, [*VARIANT, "checkpoint"]):
        wide = part.pivot(index="seed", columns="distance", values="R").dropna()
        if depth < 2 or checkpoint not in ENDS:
            continue
        group = f"k={depth} {merge}+{activation}"
        if checkpoint == "init":
            ratio = list(wide[4] / wide[2])
            yield judge.bound(
                "H4.2a decay",
                ratio,
                high=1.0,
                group=group,
                where=PLACE,
                statement="R across the branches decays at init: R(4)/R(2) below 1",
            )
            own = part.pivot(index="seed", columns="distance", values="R_examples").dropna()
            yield judge.bound(
                "H4.2a cancellation",
                list(own[4] / own[2]),
                low=1.0,
                group=group,
                where=PLACE,
                statement="the decay comes from cancellation between examples: the norms of single "
                "examples' blocks do not decay (ratio of their means, d = 4 to 2)",
            )
            yield judge.bound(
                "H4.2a ratio",
                ratio,
                low=0.275,
                high=0.395,
                group=group,
                where=PLACE,
                statement="R(d+2)/R(d) is 0.28 to 0.39 at init (d = 2)",
            )
        else:
            growth = list(wide[wide.columns.max()] / wide[2])
            yield judge.bound(
                "H4.2b",
                growth,
                low=1.0,
                group=group,
                where=PLACE,
                statement="R across the branches grows with distance after training",
            )
            if depth == 2:
                yield judge.bound(
                    "H4.2b growth",
                    list(wide[4] / wide[2]),
                    low=3.45,
                    high=5.75,
                    group=group,
                    where="Fig. N.2",
                    statement="R grows 3.5 to 5.7 times from d = 2 to d = 4 (the caption's % sign is read as ×)",
                )


def jacobians(networks: pd.DataFrame) -> Iterator[Claim]:
    """The spectral norms that H4.2 is explained by."""
    for (depth, merge, activation), part in groups(networks, VARIANT):
        init, final = (seed_values(part[part["checkpoint"] == c], "rho") for c in ENDS)
        group = f"k={depth} {merge}+{activation}"
        yield judge.bound(
            "rho above 1", init.values(), low=1.0, group=group, where=PLACE, statement="rho_max > 1 at init"
        )
        grown = [final[s] - init[s] for s in sorted(set(init) & set(final))]
        yield judge.bound(
            "rho grows", grown, low=0.0, group=group, where=PLACE, statement="rho_max increases in training"
        )


def at_the_merge(merge: pd.DataFrame) -> Iterator[Claim]:
    """H4.3: the tensor part between the branches needs a curved merge."""
    ends = merge[merge["checkpoint"].isin(ENDS)]
    for (depth, kind, activation, checkpoint), part in groups(ends, [*VARIANT, "checkpoint"]):
        gaps, group = seed_values(part, "gap"), f"k={depth} {kind}+{activation} {checkpoint}"
        if (kind, activation) == ("cat", "silu"):
            yield judge.bound(
                "H4.3 curved merge",
                gaps.values(),
                low=0.01,
                group=group,
                where=PLACE,
                statement="a curved merge gives a gap above rounding (read as: above 0.01)",
            )
        else:
            yield judge.bound(
                "H4.3 flat merge",
                gaps.values(),
                high=1e-6,
                known=1,
                group=group,
                where=PLACE,
                statement="a linear or piecewise linear merge gives no gap but rounding",
            )
        if kind == "cat" and activation == "relu":
            norm = seed_values(part, "tensor")
            yield judge.bound(
                "tensor part of cat+ReLU",
                norm.values(),
                low=1e-12,
                group=group,
                where=PLACE,
                statement="‖T‖ > 0 for cat+ReLU although its gap is zero",
            )
    for (depth,), part in groups(merge[merge["checkpoint"] == "init"], ["branch_depth"]):
        curved = part[(part["merge"] == "cat") & (part["activation"] == "silu")]
        flat = part.drop(curved.index).groupby("seed")["gap"].max()
        shares = [flat[s] / gap for s, gap in seed_values(curved, "gap").items() if s in flat.index]
        yield judge.bound(
            "separation",
            shares,
            high=1 / 2e7,
            group=f"k={depth} init",
            where=PLACE,
            statement="the gap of cat+SiLU is 2e7 times that of the others (largest of the others over "
            "it; theirs can be exactly 0)",
        )


def over_depths(merge: pd.DataFrame) -> Iterator[Claim]:
    """Appendix N.3: how much the gap of cat+SiLU depends on the branch depth."""
    curved = merge[(merge["merge"] == "cat") & (merge["activation"] == "silu")]
    for checkpoint, limit, text in (("init", 3.0, "< 3 %"), ("final", 20.0, "about 15 %, read as below 20 %")):
        wide = curved[curved["checkpoint"] == checkpoint].pivot(index="seed", columns="branch_depth", values="gap")
        wide = wide.dropna()
        if wide.shape[1] < 3:
            continue
        values = jackknife(wide, lambda t: 100 * (t.mean().max() / t.mean().min() - 1))
        yield judge.bound(
            "gap over branch depths",
            values,
            high=limit,
            group=checkpoint,
            where="Appendix N.3",
            statement=f"the gap of cat+SiLU varies {text} over k (extreme means)",
        )


def jackknife(wide: pd.DataFrame, statistic: Callable[[pd.DataFrame], float]) -> list[float]:
    """Pseudovalues n θ − (n − 1) θ_(−i) of a statistic of all seeds; their mean and scatter give it and its error."""
    n, whole = len(wide), float(statistic(wide)) if len(wide) else math.nan
    if n < 2:
        return [whole]
    return [n * whole - (n - 1) * float(statistic(wide.drop(seed))) for seed in wide.index]


def accuracy(networks: pd.DataFrame) -> Iterator[Claim]:
    """The networks learn."""
    final = networks[networks["checkpoint"] == "final"]
    for (depth, merge, activation), part in groups(final, VARIANT):
        percent = [100 * v for v in seed_values(part, "test_accuracy").values()]
        yield judge.bound(
            "accuracy",
            percent,
            low=48,
            high=52,
            group=f"k={depth} {merge}+{activation}",
            where=PLACE,
            statement="test accuracy is about 50 % (48 to 52)",
        )


def measured(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Values of Tables 6 and N.4, one row per seed."""
    return long_format(
        first(tables["merge"]), [*VARIANT, "checkpoint"], {"gap_merge": "gap", "frob_tensor_merge": "tensor"}
    )


def notes(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Findings in plain words."""
    merge, found = tables["merge"], []
    flat = merge[~((merge["merge"] == "cat") & (merge["activation"] == "silu"))]
    if len(flat):
        found.append(
            f"Merges without curvature: the largest ‖H^T‖ over {len(flat)} measurements is {flat['tensor'].max():.2g}. "
            "The engine routes the second derivative of the merge itself, which is zero there; the paper's 1e-8 to "
            "1e-10 are what is left of subtracting two float32 matrices."
        )
    curved = merge.drop(flat.index)
    for (depth, checkpoint), part in groups(curved, ["branch_depth", "checkpoint"]):
        c, own = variance_components(part, "gap"), first(part)["gap"]
        if checkpoint in ENDS and not math.isnan(c.images):
            random = part[part["images"] != 0].groupby("images")["gap"].mean()
            found.append(
                f"cat+SiLU, k={depth}, {checkpoint}: gap {own.mean():.3g} on the paper's images, {random.min():.3g} to "
                f"{random.max():.3g} on {len(random)} random sets (means over seeds); std {math.sqrt(c.images):.2g} "
                f"between sets, {math.sqrt(c.seeds):.2g} between seeds."
            )
    return found + conventions(first(tables["distances"]))


def conventions(distances: pd.DataFrame) -> list[str]:
    """Ratio of sums beside mean of Eq. 4 over the pairs across the branches."""
    found = []
    cross = distances[(distances["relation"] == "cross") & distances["checkpoint"].isin(ENDS)]
    for values, part in groups(cross[cross["tensor"] > 0], [*VARIANT, "checkpoint"]):
        by: Sequence[Any] = ["seed"]
        sums = (
            part.assign(pair_sum=part["gap_of_pairs"] * part["pairs"])
            .groupby(by)[["tensor", "gn", "pair_sum", "pairs"]]
            .sum()
        )
        ratio, mean = (sums["tensor"] / sums["gn"]).mean(), (sums["pair_sum"] / sums["pairs"]).mean()
        if values[0] > 1:
            text = label([*VARIANT, "checkpoint"], values)
            found.append(
                f"{text}: over all pairs across the branches, ratio of sums {ratio:.3g}, mean of Eq. 4 {mean:.3g}."
            )
    return found
