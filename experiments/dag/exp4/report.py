"""The report of Exp. 4: the merge, the blocks within and across the branches, and what training does to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

from experiments.dag.exp4 import claims
from experiments.dag.exp4 import figures as draw
from experiments.dag.protocol import comparisons, figures
from experiments.dag.protocol.companions import WITHOUT_NORM
from experiments.dag.protocol.printed import printed
from runner.contract import Analysis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.dag.exp4.settings import Exp4Diamond
    from runner.contract import Claim
    from runner.stats import Statistic

VARIANT = ("branch_depth", "merge", "activation")


class DiamondAnalysis(Analysis):
    """Readings of `merge`, `distances` and `networks`."""

    experiment: Exp4Diamond
    bars: ClassVar[str] = "± sample standard deviation over seeds"

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        tables = self.tables
        history = draw.variant(tables["history"])
        return {
            "fig6_merge_gap": lambda: draw.merge_gap(tables["merge"], printed(self.experiment.claimed)),
            "figN2_across_branches": lambda: draw.cross(tables["distances"]),
            "within_branches": lambda: draw.within(tables["distances"]),
            "rho": lambda: draw.jacobians(tables["networks"]),
            "image_sets": lambda: draw.image_sets(tables["merge"]),
            "training": lambda: figures.learning_curves(history, panel="branch_depth", variant="kind"),
        }

    def statistics(self) -> list[Statistic]:
        distances, merge, networks = self.tables["distances"], self.tables["merge"], self.tables["networks"]
        variant, where = list(VARIANT), [*VARIANT, "checkpoint"]
        cross, curved = distances[distances["relation"] == "cross"], merge[merge["tensor"] > 0]
        deep = cross[cross["branch_depth"] > 1]
        rows = comparisons.decay_fits(deep, "R", keys=where, figure="figN2_across_branches")
        rows += comparisons.through_training(deep, "R", keys=[*variant, "distance"], figure="figN2_across_branches")
        rows += comparisons.through_training(curved, "gap", keys=variant, figure="fig6_merge_gap")
        rows += comparisons.through_training(networks, "rho", keys=variant, figure="rho")
        rows += self._between()
        rows += comparisons.variance_rows(curved, "gap", keys=where, figure="image_sets")
        rows += comparisons.variance_rows(cross, "R", keys=[*where, "distance"], figure="figN2_across_branches")
        return rows

    def _between(self) -> list[Statistic]:
        """R at the merge between merges; the gap of concatenation with ReLU is an exact zero and not tested."""
        merge = self.tables["merge"]
        keys = ["branch_depth", "activation", "checkpoint"]
        return comparisons.between(merge, "R", column="merge", a="cat", b="sum", keys=keys, figure="R at the merge")

    def claims(self) -> list[Claim]:
        return claims.claims(self.tables, self.experiment.says, self._without_norm)

    def measured(self) -> pd.DataFrame:
        return claims.measured(self.tables)

    def notes(self) -> list[str]:
        return claims.notes(self.tables, self._without_norm)

    @property
    def _without_norm(self) -> pd.DataFrame | None:
        return self.beside.get(WITHOUT_NORM, {}).get("distances")
