"""One cell of the scalar spectrum: the part that it names."""

from __future__ import annotations

from experiments.scalar_spectrum import spectra, training, wedge_scale
from experiments.scalar_spectrum.settings import ScalarSpectrum
from runner.contract import Cell, Context, Table

PARTS = {
    "scaling": spectra.scaling,
    "cells": spectra.cells,
    "bias": spectra.bias,
    "pairs": training.pairs,
    "wedge_scale": wedge_scale.measure,
    "edge": training.edge,
}


def measure(experiment: ScalarSpectrum, cell: Cell, ctx: Context) -> dict[str, Table]:
    """All tables of one cell."""
    return PARTS[str(cell.params["part"])](experiment, cell, ctx)
