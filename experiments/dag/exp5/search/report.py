"""The report of the search: how many readings were tried, what the best gives, and what the data cannot change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from experiments.dag.exp5.search import figures as draw
from experiments.dag.exp5.search.search import printed_targets
from runner.contract import Analysis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.dag.exp5.search.settings import Exp5InitSearch

ALL = 7
"""Printed numbers of the untrained networks."""
PAIRS = ("block0-block1", "block0-block1 shared", "block0-block2", "block1-block2")


class SearchAnalysis(Analysis):
    """Readings of `counts`, `readings` and `best`."""

    experiment: Exp5InitSearch

    def pooled(self) -> pd.DataFrame:
        """`readings` over all sources: one row per network and norm, std within and between sources together."""
        import numpy as np

        table = self.tables["readings"]
        square = (table["variants"] - 1) * table["std"].fillna(0) ** 2 + table["variants"] * table["mean"] ** 2
        sums = table.assign(sum=table["variants"] * table["mean"], square=square)
        found = sums.groupby(["network", "norm"], sort=False).agg(
            {"variants": "sum", "sum": "sum", "square": "sum", "lowest": "min", "highest": "max", "met": "sum"}
        )
        found["mean"] = found["sum"] / found["variants"]
        found["std"] = np.sqrt((found["square"] - found["variants"] * found["mean"] ** 2) / (found["variants"] - 1))
        return found.drop(columns=["sum", "square"]).reset_index()

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        return {
            "norms_without_targets": lambda: draw.norms(self.pooled(), printed_targets()),
            "numbers_met": lambda: draw.numbers_met(self.tables["counts"]),
        }

    def notes(self) -> list[str]:
        counts = self.tables["counts"].groupby(["stage", "numbers_met"])["variants"].sum()
        inputs, targets = (int(counts[stage].sum()) if stage in counts else 0 for stage in ("inputs", "targets"))
        found = [f"{inputs} readings of inputs, samples and network; {targets} with targets, from those that fit."]
        best = self.tables["best"].sort_values(["digits", "off"], ascending=[False, True])
        if len(best):
            row = best.iloc[0]
            verdict = "an exact match" if row["digits"] == ALL else "no exact match"
            found.append(
                f"{verdict}: the best gives {row['digits']:.0f} of the {ALL} printed init numbers ({row['met']}), gap "
                f"{row['attention gap']:.1f} ± {row['attention gap std']:.1f} for 57.5 ± 16.4: {row['inputs']}, "
                f"{row['samples']} samples, network {row['network']}, {row['teacher']}, noise {row['noise']:g}. "
                f"With {targets} tried, some agreement is to be expected; no reading is called evidence."
            )
        return [*found, *self._about_pairs()]

    def _about_pairs(self) -> list[str]:
        """What the norms that know no targets say of the measured pair, for the published networks."""
        pooled = self.pooled()[lambda t: t["network"] == "of the seed"].set_index("norm")
        said = [
            f"{name} {row['mean']:.4f} ({row['lowest']:.4f} to {row['highest']:.4f}, printed digits in "
            f"{row['met']:.0f} of {row['variants']:.0f})"
            for name, row in pooled.loc[[n for n in PAIRS if n in pooled.index]].iterrows()
        ]
        start = "Untrained published ReLU networks on any of these inputs, mean norm of 5 seeds, printed 0.035: "
        return [start + "; ".join(said) + "."] if said else []
