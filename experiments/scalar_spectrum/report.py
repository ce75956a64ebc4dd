"""The report of the scalar networks' spectra."""

from __future__ import annotations

from functools import partial

import pandas as pd

from experiments.printed import unchecked
from experiments.scalar_spectrum import claims, figures as draw, wedge_scale
from experiments.scalar_spectrum.alternatives import ALTERNATIVES
from experiments.scalar_spectrum.settings import ScalarSpectrum
from runner.contract import Analysis, Claim, Figures


class ScalarSpectrumAnalysis(Analysis):
    """Readings of the parts of the study that are stored."""

    experiment: ScalarSpectrum
    alternatives = ALTERNATIVES

    def figures(self) -> Figures:
        makers = {
            "fig1_data_scaling": ("scaling", draw.data_scaling),
            "fig2_relu_cells": ("relu_cells", draw.relu_cells),
            "phases": ("pairs", draw.phases),
            "bias_outliers": ("bias", draw.bias_outliers),
            "fig3_scale_of_the_data": ("wedge_scale", wedge_scale.figure),
            "edge_of_stability": ("edge", draw.edge_of_stability),
        }
        found = {
            name: partial(make, self.tables)
            for name, (table, make) in makers.items()
            if len(self.tables.get(table, ()))
        }
        for left in (
            sorted(self.tables["pairs"]["left"].unique())
            if len(self.tables.get("pairs", ()))
            else ()
        ):
            if left == 1:
                name = "fig3_outlier_pairs"
            else:
                name = f"fig3_outlier_pairs_left_{-left:g}".replace(".", "p")
            found[name] = partial(draw.outlier_pairs, self.tables, left)
        return dict(sorted(found.items()))

    def claims(self) -> list[Claim]:
        return wedge_scale.with_fit(
            claims.claims(self.experiment, self.tables), self.tables.get("wedge_scale")
        )

    def measured(self) -> pd.DataFrame | None:
        return claims.measured(self.experiment, self.tables)

    def notes(self) -> list[str]:
        fitted = self.tables.get("wedge_scale")
        said = [] if fitted is None or not len(fitted) else list(wedge_scale.notes(fitted))
        return [*said, *(unchecked("scalar_spectrum") if self.tables else ())]
