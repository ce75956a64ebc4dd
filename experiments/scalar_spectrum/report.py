"""The report of the scalar networks' spectra."""

from __future__ import annotations

from typing import Any

from experiments.judged import JudgedAnalysis
from experiments.printed import unchecked
from experiments.scalar_spectrum import figures as draw, training_figures, values, wedge_scale
from experiments.scalar_spectrum.alternatives import CHANGES
from experiments.scalar_spectrum.settings import ScalarSpectrum
from runner.contract import Figures, Tables, redraws
from runner.stats.tables import chosen


class ScalarSpectrumAnalysis(JudgedAnalysis):
    """Figures and statements of the parts of the study that are stored."""

    experiment: ScalarSpectrum
    functions = values.FUNCTIONS
    changes = CHANGES

    def _stored(self, table: str) -> bool:
        return len(self.tables.get(table, ())) > 0

    def figures(self) -> Figures:
        makers = {
            "fig1_data_scaling": ("scaling", "Fig. 1", draw.data_scaling),
            "fig2_relu_cells": ("relu_cells", "Fig. 2", draw.relu_cells),
            "fig3_scale_of_the_data": ("wedge_scale", "Fig. 3", wedge_scale.figure),
        }
        made: dict[str, Any] = {}
        for name, (table, place, make) in makers.items():
            if self._stored(table):
                made[name] = redraws(place, make, self.tables).of(self.tables[table], "part")
        if self._stored("edge"):
            edge = redraws("", training_figures.edge_of_stability, self.tables)
            made["edge_of_stability"] = edge.of(self.tables["edge"], "part")
        if self._stored("pairs"):
            lefts = self.tables["pairs"]["left"]
            for left in sorted(lefts.unique()):
                name = "fig3_outlier_pairs"
                if left != 1:
                    name += f"_left_{-left:g}".replace(".", "p")
                pairs = redraws("Fig. 3", training_figures.outlier_pairs, self.tables, left)
                made[name] = pairs.of(chosen(self.tables["pairs"], left=left), "part", "left")
        return dict(sorted(made.items()))

    def judged(self) -> Tables:
        return values.judged(self.experiment, self.tables)

    def compared(self) -> Tables:
        return {**self.judged(), "counts": values.counts(self.experiment, self.tables)}

    def notes(self) -> list[str]:
        return unchecked("scalar_spectrum") if self.tables else []
