"""What Exp. 2 measured, as the judge reads it: tables with further columns, and the values that the
paper prints (Tables 3 and N.1).

R, C and D are the paper's own estimates (100 probes, 20 power steps) on the papers' images; ranks
are numerical ranks in float64.
"""

from __future__ import annotations

import pandas as pd

from experiments.dag.exp2.settings import PUBLISHED_WIDTH
from experiments.dag.protocol.scores import (
    described,
    paired,
    printed,
    probes,
    with_columns,
)
from experiments.dag.protocol.summary import first, in_percent, long_format
from runner.contract import Tables
from runner.stats.quantities import Functions
from runner.stats.tables import chosen

NAME = "exp2_bottleneck"
KEYS = ["depth", "d_u", "checkpoint"]
SHALLOW = 6
DEEP = 8
"""The depths of Tables 3 and N.1."""
FUNCTIONS = Functions()


@FUNCTIONS.quantity("D_estimate", "C_estimate")
def range_of_ranks(rows: pd.DataFrame) -> float:
    """Range of D_far over that of C_far."""
    ranks, couplings = (
        rows[name].max() / rows[name].min() for name in ("D_estimate", "C_estimate")
    )
    return float(ranks / couplings)


@FUNCTIONS.quantity("shallow", "deep")
def percent_below(rows: pd.DataFrame) -> float:
    """How many percent the deeper network lies below the other, mean over the widths."""
    return float((100 * (1 - rows["deep"] / rows["shallow"])).mean())


def judged(tables: Tables, classes: int) -> Tables:
    """The tables with the columns that statements read.

    far: D_share, the estimate of D_far over min(d_u, K − 1); C_cut. deeper: D_far of both depths at
    one width. ranks: excess, the rank less what Proposition 31 allows; widest, the largest width.
    """
    found = dict(tables)
    if "far" in tables:
        far = tables["far"]
        share = far["D_estimate"] / far["d_u"].clip(upper=classes - 1)
        found["far"] = far.assign(D_share=share, C_cut=cut_coupling(far))
        keys = ["d_u", "checkpoint", "seed", "images"]
        sides = []
        for name, depth in (("shallow", SHALLOW), ("deep", DEEP)):
            rows = chosen(far, depth=depth)[[*keys, "D_estimate"]]
            sides.append(rows.rename(columns={"D_estimate": name}))
        found["deeper"] = sides[0].merge(sides[1], on=keys)
    if "networks" in tables:
        found["networks"] = in_percent(tables["networks"])
    if "ranks" in tables:
        ranks = tables["ranks"]
        excess = ranks["rank"] - ranks["d_u"].clip(upper=classes - 1)
        found["ranks"] = ranks.assign(excess=excess, widest=ranks["d_u"].max())
    return found


def printed_values() -> pd.DataFrame:
    """The printed numbers, once."""
    return chosen(printed(NAME), base_width=str(PUBLISHED_WIDTH))


def cut_coupling(far: pd.DataFrame) -> pd.Series[float]:
    """The estimate of C_far with that of each pair cut at 1, as the authors have it; of cells
    measured before this was stored, uncut."""
    if "C_cut_estimate" in far:
        return far["C_cut_estimate"].fillna(far["C_estimate"])
    return far["C_estimate"]


def compared(tables: Tables, classes: int, described_tables: Tables) -> Tables:
    """The tables that Tables 3 and N.1 are read from: D_far and C_far by the paper's estimates;
    and the same numbers from exact blocks of networks of the base width that the text has."""
    found = dict(judged(tables, classes))
    far = first(found["far"])
    exact = long_format(far, KEYS, {"D_estimate": "D", "C_cut": "C"})
    estimates = long_format(far, KEYS, {"D_estimate": "D_estimate", "C_cut": "C_cut"})
    of_probes = probes(estimates, exact, tables, KEYS[:2]).assign(paired=False)
    found["far"] = with_columns(found["far"], of_probes, KEYS)
    known = paired(long_format(found["networks"], KEYS, {"percent": "percent"}), tables, KEYS[:2])
    found["networks"] = with_columns(found["networks"], known, KEYS)
    if described_tables:
        found["far as described"] = described(described_tables["far"], KEYS)
        found["networks as described"] = described(in_percent(described_tables["networks"]), KEYS)
    return found
