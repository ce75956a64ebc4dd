"""Scalar spectrum: every Hessian eigenvalue of one-hidden-layer scalar networks in closed form, at work.

Five parts, each a kind of cell: the spectrum under scaling of the data (Fig. 1), by ReLU cell (Fig. 2), of the network
with bias inside and outside Theorem 6, the outlier pairs through training (Fig. 3), and, beyond the paper, the edge of
stability with the closed form as sharpness meter at widths that no eigensolver reaches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from runner.contract.experiment import (
    Analysis,
    Cell,
    Context,
    Experiment,
    SettingError,
    Table,
    Tables,
    free,
    grid,
    non_negative,
    not_empty,
    one_of,
    positive,
    report_only,
    since,
)
from runner.metrics.closed_form import SpectrumMetric
from runner.models.kinds.closed_form import ScalarModel

PARTS = ("scaling", "cells", "bias", "pairs", "wedge_scale", "edge")
NETWORKS = ("linear", "relu")
STARTS = ("small", "large")


@dataclass(frozen=True, kw_only=True)
class ScalarSpectrum(Experiment):
    """Settings, each explained in conf/experiment/scalar_spectrum.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Closed-form Hessian spectra of scalar networks"
    paper: ClassVar[str] = "scalar spectrum"
    reproduces: ClassVar[str] = "Figs. 1-3; phases of training; Theorem 6; beyond: edge of stability up to 10^6 neurons"

    part: list[str] = grid()
    network: list[str] = grid()
    scaled_width: list[int] = grid()
    rate: list[float] = grid()
    left: list[float] = grid()
    width: list[int] = grid()
    start: list[str] = grid()
    factor: list[float] = grid()
    wide_factor: list[float] = grid()
    wide: int = report_only(100_000)
    samples: int = free()
    scales: list[float] = free()
    positive_neurons: int
    negative_neurons: int
    copies: list[int] = free()
    bias_width: int
    mix_points: int = free()
    pair_width: int = free()
    momentum: float
    pair_steps: int = free()
    dense_every: int = free()
    wedge_noise: float
    wedge_scales: list[float] = since([0.03, 0.05, 0.1, 0.2, 0.5, 1.0], free=True)
    wedge_starts: int = since(2, free=True)
    edge_steps: int = free()
    edge_slope: float
    edge_noise: float
    small_scale: float
    large_scale: float
    diverged: float
    share: float = report_only(0.8)
    runs: int = report_only(3)
    model: ScalarModel = since(ScalarModel())
    metric: SpectrumMetric = since(SpectrumMetric())

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.part", self.part, PARTS)
        one_of("experiment.network", self.network, NETWORKS)
        one_of("experiment.start", self.start, STARTS)
        for name in (
            "scaled_width",
            "rate",
            "width",
            "factor",
            "wide_factor",
            "wide",
            "samples",
            "scales",
            "positive_neurons",
            "negative_neurons",
            "copies",
            "pair_width",
            "pair_steps",
            "wedge_scales",
            "wedge_starts",
            "dense_every",
            "edge_steps",
            "small_scale",
            "large_scale",
            "diverged",
            "runs",
        ):
            positive(f"experiment.{name}", getattr(self, name))
        for name in ("momentum", "wedge_noise", "edge_noise"):
            non_negative(f"experiment.{name}", getattr(self, name))
        for name in ("scales", "copies", "wedge_scales"):
            not_empty(f"experiment.{name}", getattr(self, name))
        for name, least in (("samples", 4), ("bias_width", 3), ("mix_points", 2)):
            if getattr(self, name) < least:
                raise SettingError(f"experiment.{name}: expected at least {least}, found {getattr(self, name)}")
        if not 0 < self.share <= 1:
            raise SettingError(f"experiment.share: expected a value above 0 and at most 1, found {self.share}")

    def cells(self) -> list[Cell]:
        """The cells of each part; a part knows only its own parameters."""
        found = []
        if "scaling" in self.part:
            found += [Cell({"part": "scaling", "scaled_width": m}, 0.1) for m in self.scaled_width]
        if "cells" in self.part:
            found.append(Cell({"part": "cells"}, 0.1))
        if "bias" in self.part:
            found.append(Cell({"part": "bias"}, 0.5))
        if "pairs" in self.part:
            found += [
                Cell({"part": "pairs", "network": network, "rate": rate, "left": left}, 2.5 * self.pair_steps / 600)
                for network in self.network
                for rate in self.rate
                for left in self.left
            ]
        if "wedge_scale" in self.part:
            runs = len(self.wedge_scales) * self.wedge_starts
            found += [
                Cell({"part": "wedge_scale", "network": network, "left": left}, 0.4 * runs)
                for network in self.network
                for left in self.left
            ]
        if "edge" in self.part:
            found += [
                Cell(
                    {"part": "edge", "network": network, "width": m, "start": start, "factor": factor},
                    self.edge_steps * (3e-4 + m * (1e-8 if network == "relu" else 4e-9)),
                    0.3 + 1.5e-7 * m,
                )
                for network in self.network
                for m in self.width
                for start in self.start
                for factor in (self.factor if m <= self.wide else self.wide_factor)
            ]
        return found

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.scalar_spectrum import spectra, training, wedge_scale

        parts: dict[str, Callable[[ScalarSpectrum, Cell, Context], dict[str, Table]]] = {
            "scaling": spectra.scaling,
            "cells": spectra.cells,
            "bias": spectra.bias,
            "pairs": training.pairs,
            "wedge_scale": wedge_scale.measure,
            "edge": training.edge,
        }
        return parts[str(cell.params["part"])](self, cell, ctx)

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.scalar_spectrum.report import ScalarSpectrumAnalysis

        return ScalarSpectrumAnalysis(self, tables)
