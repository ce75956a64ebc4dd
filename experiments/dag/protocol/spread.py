"""What trainings of the same settings on another device would say of a result: companions of an
experiment (`protocol.inter_layer`).

Two trainings of one network, data and order differ by the rounding of another device. The same
trainings from inputs changed in their last digit show how far, seed by seed; the root mean square
difference over the seeds is the spread that a paired comparison has to allow for (`rounding_std` of
the scorecard).
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from experiments.dag.protocol.inter_layer import ROUNDING
from experiments.dag.protocol.summary import complete_means
from runner.contract import Analysis


class SpreadAnalysis(Analysis):
    """Readings that compare an experiment's cells with those of its companions.

    A subclass gives `measured`.
    """

    def rounded(self, measured: pd.DataFrame) -> pd.DataFrame:
        """Measured values with the columns `rounding_std` and `rounding_df`, where trainings were
        repeated."""
        if ROUNDING not in self.beside:
            return measured
        variant = replace(self, tables=self.beside[ROUNDING], beside={})
        perturbed = variant.measured()
        return with_rounding(measured, perturbed)


FEWEST = 3
"""Pairs of trainings below which no spread is given."""
ABOUT = (
    "value",
    "image_variance",
    "image_df",
    "paired",
    "rounding_std",
    "rounding_df",
    "comparable",
    "calibrated",
    "constructed",
)
"""Columns of measured values that name no value."""


def with_rounding(own: pd.DataFrame, perturbed: pd.DataFrame) -> pd.DataFrame:
    """Measured values with `rounding_std` (root mean square difference from `perturbed`) and
    `rounding_df`, the number of pairs; blank with fewer than `FEWEST` pairs."""
    keys = [c for c in own.columns if c not in (*ABOUT, "seed")]
    other = perturbed[[*keys, "seed", "value"]].rename(columns={"value": "other"})
    compared = own[[*keys, "seed", "value"]]
    both = compared.merge(other, on=[*keys, "seed"])
    difference = both["other"] - both["value"]
    both = both.assign(square=difference**2)
    by_keys = both.groupby(keys, dropna=False, sort=False)
    squares = by_keys["square"]
    deviation = complete_means(squares) ** 0.5
    spread = {"rounding_std": deviation, "rounding_df": squares.size()}
    found = pd.DataFrame(spread).reset_index()
    found = found[found["rounding_df"] >= FEWEST]
    if "rounding_std" not in own:
        return own.merge(found, on=keys, how="left")
    merged = own.merge(found, on=keys, how="left", suffixes=("_known", ""))
    known = merged["rounding_std_known"]
    filled = merged["rounding_std"].fillna(known)
    return merged.assign(rounding_std=filled).drop(columns="rounding_std_known")
