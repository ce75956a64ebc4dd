"""The report of Exp. 5: attention against the position-wise network, under every protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

from experiments.dag.exp5 import claims
from experiments.dag.exp5 import figures as draw
from experiments.dag.protocol import comparisons
from experiments.dag.protocol.printed import printed
from experiments.dag.protocol.spread import SpreadAnalysis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.dag.exp5.settings import Exp5Attention
    from runner.contract import Claim
    from runner.stats import Statistic

RECOVERED = claims.RECOVERED


class AttentionAnalysis(SpreadAnalysis):
    """Readings of `blocks`, `networks` and `history`."""

    experiment: Exp5Attention

    reference: ClassVar[str] = "exp5_attention"

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        blocks, networks = self.tables["blocks"], self.tables["networks"]
        paper = printed(self.experiment.claimed)
        return {
            "table7_norms": lambda: draw.norms(blocks[blocks["protocol"] == RECOVERED], paper),
            "gap_by_protocol": lambda: draw.by_protocol(blocks, paper),
            "loss_by_protocol": lambda: draw.losses(self.tables["history"]),
            "value_path": lambda: draw.value_path(blocks, networks),
            "sample_sets": lambda: draw.sample_sets(blocks[blocks["protocol"] == RECOVERED]),
            **self.spread_figures(),
        }

    def statistics(self) -> list[Statistic]:
        blocks, where = self.tables["blocks"], ["protocol", "checkpoint"]
        attention = blocks[blocks["network"] == "attention"]  # the gap of the ReLU network is an exact zero
        rows = comparisons.through_training(attention, "gap", keys=["protocol"], figure="gap_by_protocol")
        for value in ("full", "gn"):
            figure = f"{value} through training"
            rows += comparisons.through_training(blocks, value, keys=["protocol", "network"], figure=figure)
        again = blocks[blocks["protocol"].isin(self.experiment.resampled)]
        for value in ("gap", "full"):
            rows += comparisons.variance_rows(again, value, keys=["network", *where], figure="sample_sets")
        return rows + self.spread_statistics()

    def claims(self) -> list[Claim]:
        return claims.claims(self.tables, self.experiment.says)

    def measured(self) -> pd.DataFrame:
        return claims.measured(self.tables)

    def notes(self) -> list[str]:
        return [*claims.notes(self.tables), *self.spread_notes()]
