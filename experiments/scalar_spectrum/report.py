"""The report of the scalar networks' spectra."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from experiments.printed import unchecked
from experiments.scalar_spectrum import claims, figures as draw, training_figures, wedge_scale
from experiments.scalar_spectrum.alternatives import ALTERNATIVES
from experiments.scalar_spectrum.settings import ScalarSpectrum
from runner.contract import Analysis, Claim, Figures


class ScalarSpectrumAnalysis(Analysis):
    """Readings of the parts of the study that are stored."""

    experiment: ScalarSpectrum
    alternatives = ALTERNATIVES

    def _stored(self, table: str) -> bool:
        return len(self.tables.get(table, ())) > 0

    def figures(self) -> Figures:
        makers = {
            "fig1_data_scaling": ("scaling", draw.data_scaling),
            "fig2_relu_cells": ("relu_cells", draw.relu_cells),
            "fig3_scale_of_the_data": ("wedge_scale", wedge_scale.figure),
            "edge_of_stability": ("edge", training_figures.edge_of_stability),
        }
        made: dict[str, Any] = {}
        for name, (table, make) in makers.items():
            if self._stored(table):
                made[name] = partial(make, self.tables)
        if self._stored("pairs"):
            lefts = self.tables["pairs"]["left"]
            for left in sorted(lefts.unique()):
                name = "fig3_outlier_pairs"
                if left != 1:
                    name += f"_left_{-left:g}".replace(".", "p")
                made[name] = partial(training_figures.outlier_pairs, self.tables, left)
        return dict(sorted(made.items()))

    def claims(self) -> list[Claim]:
        made = claims.claims(self.experiment, self.tables)
        return wedge_scale.with_fit(made, self.tables.get("wedge_scale"))

    def measured(self) -> pd.DataFrame | None:
        return claims.measured(self.experiment, self.tables)

    def notes(self) -> list[str]:
        return unchecked("scalar_spectrum") if self.tables else []
