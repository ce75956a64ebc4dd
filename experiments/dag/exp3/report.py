"""The reports of Exp. 3 and 3b: the gap by activation, beside the activation's curvature."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from experiments.dag.exp3 import claims, notes
from experiments.dag.exp3 import figures as draw
from experiments.dag.protocol import comparisons, figures
from experiments.dag.protocol.printed import printed
from experiments.dag.protocol.spread import SpreadAnalysis
from experiments.dag.protocol.summary import global_gaps

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.dag.exp3.settings import Exp3GnGap
    from runner.contract import Claim, Tables
    from runner.stats import Statistic


class GapAnalysis(SpreadAnalysis):
    """Exp. 3: networks without LayerNorm."""

    experiment: Exp3GnGap

    reference: ClassVar[str] = "exp3_gn_gap"

    @cached_property
    def gaps(self) -> pd.DataFrame:
        """GN-gap over all pairs by activation, seed, checkpoint and set of images."""
        return global_gaps(self.tables["distances"], ["activation"])

    @cached_property
    def paper(self) -> pd.DataFrame:
        """The printed values."""
        return printed(self.experiment.claimed)

    def figures(self) -> dict[str, Callable[[], Figure]]:
        tables = self.tables
        found: dict[str, Callable[[], Figure]] = {
            "fig5_gap_and_curvature": lambda: draw.gap_and_curvature(self.gaps, tables["networks"], self.paper),
            "tableN5_parts": lambda: draw.parts(tables["distances"], self.paper),
            "image_sets": lambda: draw.image_sets(self.gaps),
            "training": lambda: figures.learning_curves(tables["history"], panel=None, variant="activation"),
        }
        if "stochastic" in tables:
            found["tableN6_stochastic"] = lambda: draw.stochastic(tables["stochastic"])
        return {**found, **self.spread_figures()}

    def quantities(self, tables: Tables) -> pd.DataFrame:
        """Gap over all pairs and test accuracy, by activation, checkpoint, seed and set of images."""
        import pandas as pd

        gaps = global_gaps(tables["distances"], ["activation"]).assign(metric="gap", value=lambda t: t["gap"])
        networks = tables["networks"].assign(metric="test_accuracy", value=lambda t: t["test_accuracy"])
        columns = ["activation", "metric", "checkpoint", "seed", "images", "value"]
        return pd.concat([gaps[columns], networks[columns]], ignore_index=True)

    def statistics(self) -> list[Statistic]:
        where, parts = ["activation", "checkpoint"], "tableN5_parts"
        rows = claims.correlations(self.gaps, self.tables["networks"])
        rows += comparisons.through_training(self.gaps, "gap", keys=["activation"], figure="tables 4, 5")
        rows += comparisons.variance_rows(self.gaps, "gap", keys=where, figure="image_sets")
        for value in ("gn", "tensor"):
            rows += comparisons.decay_fits(self.tables["distances"], value, keys=where, figure=parts)
        return rows + self.spread_statistics()

    def claims(self) -> list[Claim]:
        return claims.without_norm(self.gaps, self.tables, self.experiment.says)

    def measured(self) -> pd.DataFrame:
        return self.rounded(claims.measured(self.gaps, self.tables))

    def notes(self) -> list[str]:
        return notes.notes(self.gaps, self.tables) + self.spread_notes()


class LayerNormAnalysis(GapAnalysis):
    """Exp. 3b: networks with LayerNorm."""

    reference: ClassVar[str] = "exp3b_layernorm"

    def claims(self) -> list[Claim]:
        return claims.with_norm(self.gaps, self.tables, self.experiment.says)
