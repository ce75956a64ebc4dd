"""What the DAG paper says of Exp. 2 (Section 5.2, Appendix N, Proposition 31), decided from the tables.

R, C and D are the paper's own estimates (100 probes, 20 power steps) on the papers' images wherever a printed number is
compared; ranks are numerical ranks in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from experiments.dag.protocol.summary import first, groups, long_format, variance_components
from runner import stats
from runner.contract.experiment import Claim
from runner.stats import judge

if TYPE_CHECKING:
    import pandas as pd

TEXT = "Section 5.2"
APPENDIX = "Appendix N"
ENDS = ("init", "final")
KEYS = ["depth", "d_u", "checkpoint"]


def claims(tables: Mapping[str, pd.DataFrame], classes: int, constant: float) -> list[Claim]:
    """One claim per statement, depth and checkpoint. constant: largest over smallest that still counts as constant."""
    far = first(tables["far"])
    far = far[far["checkpoint"].isin(ENDS)]
    found: list[Claim] = []
    for (depth, checkpoint), part in groups(far, ["depth", "checkpoint"]):
        found += list(by_width(part, classes, f"L={depth} {checkpoint}"))
        found += list(resonance(part, checkpoint, constant, f"L={depth} {checkpoint}"))
        if (depth, checkpoint) == (6, "init"):
            found += list(suppression(part))
    found += list(depths(far))
    found += list(ranks(tables["ranks"], classes))
    return found


def wide(part: pd.DataFrame, column: str) -> pd.DataFrame:
    """Rows seed, columns d_u in order; seeds that lack a width are left out."""
    return part.pivot(index="seed", columns="d_u", values=column).sort_index(axis=1).dropna()


def suppression(part: pd.DataFrame) -> Iterator[Claim]:
    """D_far of the widest narrow layer against the narrowest, L = 6, init."""
    table = wide(part, "D_estimate")
    if {4, 256} <= set(table.columns):
        yield judge.number(
            "suppression of D_far",
            table[256] / table[4],
            6.5,
            0.05,
            group="L=6 init",
            where=TEXT,
            statement="D_far falls about 6.5 times from d_u = 256 to d_u = 4",
        )


def by_width(part: pd.DataFrame, classes: int, group: str) -> Iterator[Claim]:
    """D_far and C_far over the widths, at one depth and checkpoint."""
    table, coupling = wide(part, "D_estimate"), wide(part, "C_estimate")
    if len(table.columns) < 2:
        return
    if group.endswith("init"):
        statement = "D_far rises monotonically with d_u at init: the smallest step between widths is above 0"
        steps = table.diff(axis=1).iloc[:, 1:].min(axis=1)
        yield judge.bound("D_far monotone", steps, low=0.0, group=group, where=TEXT, statement=statement)
    shares = [table[d] / min(d, classes - 1) for d in table.columns]
    largest = [max(float(s[seed]) for s in shares) for seed in table.index]
    statement = "D_far <= min(d_u, K−1) in every configuration: the largest D_far/min(d_u, K−1) is at most 1"
    yield judge.bound("D_far below the bound", largest, high=1.0, group=group, where=TEXT, statement=statement)
    ratio = coupling.max(axis=1) / coupling.min(axis=1)
    statement = "C_far varies about twofold over d_u: largest over smallest rounds to 2"
    yield judge.bound("range of C_far", ratio, 1.5, 2.5, group=group, where=TEXT, statement=statement)


def resonance(part: pd.DataFrame, checkpoint: str, constant: float, group: str) -> Iterator[Claim]:
    """R_far over the widths: constant at init, falling after training."""
    import numpy as np

    table = wide(part, "R_estimate")
    if len(table.columns) < 2 or table.empty:
        return
    if checkpoint == "init":
        statement = "R_far is about constant over d_u at init: largest over smallest"
        ratio = table.max(axis=1) / table.min(axis=1)
        yield judge.bound("R_far constant", ratio, high=constant, group=group, where=TEXT, statement=statement)
    else:
        slopes = [stats.linear(np.log(table.columns), np.log(row), name="").slope for _, row in table.iterrows()]
        statement = "R_far falls with growing d_u after training: slope of log R_far on log d_u below 0"
        yield judge.bound("R_far falls", slopes, high=0.0, group=group, where=TEXT, statement=statement)


def depths(far: pd.DataFrame) -> Iterator[Claim]:
    """D_far at L = 8 against L = 6, width by width, on means over the seeds as printed; values are seeds."""
    both = far.pivot_table(index=["checkpoint", "d_u", "seed"], columns="depth", values="D_estimate").dropna()
    if not {6, 8} <= set(both.columns):
        return
    lower = (100 * (1 - both[8] / both[6])).reset_index(name="percent")
    for (checkpoint, d_u), part in groups(lower, ["checkpoint", "d_u"]):
        about: dict[str, Any] = {"group": f"d_u={d_u} {checkpoint}", "where": f"{TEXT}, {APPENDIX}"}
        if checkpoint == "init" and d_u >= 64:
            statement = "D_far at L = 8 is 8 to 20 % below L = 6 at init for d_u >= 64"
            yield judge.bound("D_far of the deeper net", part["percent"], 8.0, 20.0, statement=statement, **about)
        elif checkpoint == "final":
            statement = "D_far at L = 8 differs by less than 10 % from L = 6 after training, in percent below"
            yield judge.bound("D_far after training", part["percent"], -10.0, 10.0, statement=statement, **about)


def ranks(table: pd.DataFrame, classes: int) -> Iterator[Claim]:
    """Proposition 31: the rank of a block across the narrow layer, by example and for the batch mean."""
    part = table[table["part"] == "gauss_newton"]
    own = part[part["d_u"] < part["d_u"].max()]  # in the widest network nothing is narrow
    texts = {
        "example": "rank of H^GN of one example is at most min(d_u, K−1): largest rank minus the bound",
        "mean": "the same for the mean over the batch, which the reported D_far is of",
    }
    for block, text in texts.items():
        rows = own[own["block"] == block]
        excess = rows.assign(excess=rows["rank"] - rows["d_u"].clip(upper=classes - 1))
        for (depth, checkpoint), at in groups(excess, ["depth", "checkpoint"]):
            yield judge.bound(
                f"rank bound, {block}",
                list(at.groupby("seed")["excess"].max()),
                high=0.0,
                known=1,
                group=f"L={depth} {checkpoint}",
                where="Proposition 31",
                statement=text,
            )


def measured(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Values of Tables 3 and N.1, one row per seed: D_far and C_far by the paper's estimates."""
    import pandas as pd

    networks = tables["networks"].assign(percent=100 * tables["networks"]["test_accuracy"])
    far = long_format(first(tables["far"]), KEYS, {"D_far": "D_estimate", "C_far": "C_estimate"})
    return pd.concat([far, long_format(networks, KEYS, {"test_acc_percent": "percent"})], ignore_index=True)


def notes(tables: Mapping[str, pd.DataFrame], classes: int) -> list[str]:
    """Findings in plain words."""
    far, found = first(tables["far"]), []
    for (depth, checkpoint), part in groups(far[far["checkpoint"].isin(ENDS)], ["depth", "checkpoint"]):
        shift = part["D_estimate"] / part["D"] - 1
        found.append(
            f"L = {depth}, {checkpoint}: the estimated D_far is {100 * shift.mean():+.1f} % off the exact one on "
            f"average ({100 * shift.min():+.1f} to {100 * shift.max():+.1f} %)."
        )
    rows = tables["ranks"][tables["ranks"]["part"] == "gauss_newton"]
    narrow = rows[(rows["d_u"] == rows["d_u"].min()) & (rows["checkpoint"] == "init")]
    if len(narrow) and rows["d_u"].nunique() > 1:
        by = narrow.groupby("block")["rank"].max()
        found.append(
            f"d_u = {narrow['d_u'].iloc[0]}, init: H^GN of one example has rank {by['example']} at most (ReLU closes "
            f"some of the narrow units), the batch mean {by['mean']}: unless v is the block just before the narrow one "
            f"every example has a row space of its own, so that Proposition 31 does not bound the mean's rank, "
            f"and D_far <= min(d_u, K−1) does not follow from it."
        )
    for (depth, checkpoint), part in groups(tables["far"], ["depth", "checkpoint"]):
        c = [variance_components(p, "D") for _, p in groups(part, ["d_u"])]
        known = [v for v in c if v.seeds == v.seeds and v.mean]
        if checkpoint in ENDS and known:
            images = sum(v.within**0.5 / v.mean for v in known) / len(known)
            seeds = sum(v.seeds**0.5 / v.mean for v in known) / len(known)
            found.append(
                f"L = {depth}, {checkpoint}: relative std of D_far {100 * images:.1f} % between sets of images of one "
                f"network, {100 * seeds:.1f} % between seeds (means over d_u)."
            )
    return found
