"""What Exp. 4 measured, as the judge reads it: tables with further columns, and the values that the
paper prints (Tables 6 and N.4)."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pandas as pd

from experiments.dag.protocol.scores import with_own, with_scores
from experiments.dag.protocol.summary import at_ends, complete_means, first, in_percent
from runner.contract import Claim, Statement, Tables
from runner.stats.claims import claim, minor_error
from runner.stats.intervals import FEWEST_SEEDS
from runner.stats.over_seeds import exact
from runner.stats.quantities import Functions, groups_of, rows_of
from runner.stats.tables import chosen

PAIRS = 48
"""Pairs (configuration, distance) that H4.1 counts."""
VARIANT = ["branch_depth", "merge", "activation"]
KEYS = [*VARIANT, "checkpoint"]
TEXT = "k={branch_depth} {merge}+{activation}"
COUNTED = "dag.steps, class B"
"""Root cause in the errata of the printed count, of which the public results have more."""
FUNCTIONS = Functions()


@FUNCTIONS.decision(
    "it counts pairs, on each set of images, and only all of them are a minor error"
)
def falling_pairs(says: Statement, tables: Tables) -> Claim:
    """The number of pairs whose R falls, on the papers' images; on random sets in the detail."""
    by_images = rows_of(says, tables).groupby("images")
    known = by_images["change"].count()
    if known.get(0) != PAIRS:
        detail = f"{PAIRS - known.get(0, 0)} of {PAIRS} pairs infinite, missing or of too few seeds"
        return claim(says, "inconclusive", detail=detail)
    on_papers, *random = by_images["falls"].sum()[known == PAIRS]
    counts = ", ".join(map(str, random)) or "none"
    detail = f"{on_papers} of {PAIRS} on the papers' images; {counts} on random sets"
    made = exact(says, float(on_papers), detail)
    return minor_error(made, COUNTED) if on_papers == PAIRS else made


def judged(tables: Tables, without_norm: pd.DataFrame | None = None) -> Tables:
    """The tables with the columns that statements read.

    distances: survival, the norm of the mean block over the mean norm of the images' own, and
    `grows`. networks: accuracy in percent, `twins`. merge: whether the merge has a curvature.
    Further tables: `steps`; and of `without_norm`, `distances` of untrained networks without
    LayerNorm, R(d + 1)/R(d).
    """
    distances = tables["distances"]
    distances = growing(distances.assign(survival=distances["R"] / distances["R_examples"]))
    networks = twins(in_percent(first(tables["networks"])))
    merge = tables["merge"]
    curved = merge["merge"].eq("cat") & merge["activation"].eq("silu")
    found = {"distances": distances, "networks": networks, "merge": merge.assign(curved=curved)}
    own = {name: with_own(table, tables, VARIANT) for name, table in found.items()}
    further = {"steps": steps(distances)}
    if without_norm is not None:
        further["without_norm"] = kept(without_norm, 1)
    return {**tables, **own, **further}


def steps(distances: pd.DataFrame) -> pd.DataFrame:
    """change: in percent of R within a branch from d − 1 to d, before and after training, of means
    over seeds; missing where one is infinite or missing, or seeds are too few."""
    part = at_ends(distances[distances["relation"] != "cross"])
    keys = [*KEYS, "relation", "images"]
    of_seeds = part.groupby([*keys, "distance"])["R"]
    means = complete_means(of_seeds)
    known = np.isfinite(means) & (of_seeds.size() >= FEWEST_SEEDS)
    changes = means.where(known).groupby(level=keys).pct_change(fill_method=None)
    table = (100 * changes).rename("change").reset_index()
    return table[table["distance"] > 0].assign(falls=table["change"] < 0)


def growing(distances: pd.DataFrame) -> pd.DataFrame:
    """grows: whether the mean over seeds of R across the branches is as large at d = 4 as at 2."""
    cross = chosen(first(distances), relation="cross")
    means = cross.groupby([*KEYS, "distance"])["R"].mean().unstack().reindex(columns=[2, 4])
    ratio = means[4] / means[2]
    return distances.join(ratio.between(1, np.inf, inclusive="left").rename("grows"), on=KEYS)


def twins(networks: pd.DataFrame) -> pd.DataFrame:
    """twins: names of the configurations whose untrained networks have the same ρ."""
    names = pd.Series("", networks.index)
    same: dict[tuple[float, ...], dict[str, pd.Index[int]]] = defaultdict(dict)
    for name, rows in groups_of(chosen(networks, checkpoint="init"), TEXT):
        same[tuple(rows["rho"])][name] = rows.index
    for group in same.values():
        for index in group.values():
            names[index] = " = ".join(group)
    return networks.assign(twins=names)


def across(distances: pd.DataFrame) -> pd.DataFrame:
    """The pairs between branches of more than one block."""
    cross = chosen(distances, relation="cross")
    return cross[cross["branch_depth"] > 1]


def kept(distances: pd.DataFrame, step: int) -> pd.DataFrame:
    """kept: R(d + step)/R(d) across the branches at init, of means over seeds."""
    cross = chosen(first(distances), relation="cross", checkpoint="init")
    means = complete_means(cross.groupby([*VARIANT, "distance"])["R"])
    ahead = means.rename(lambda distance: distance - step, level="distance")
    both = ahead.index.intersection(means.index)
    return (ahead / means)[both].rename("kept").reset_index()


def compared(tables: Tables, judged_tables: Tables) -> Tables:
    """The tables that Tables 6 and N.4 are read from."""
    merge = with_scores(judged_tables["merge"], ["gap", "tensor"], KEYS, tables, VARIANT)
    return {**judged_tables, "merge": merge}
