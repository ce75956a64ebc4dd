"""Scalar spectrum: every Hessian eigenvalue of one-hidden-layer scalar networks in closed form, at
work.

Five parts, each a kind of cell: the spectrum under scaling of the data (Fig. 1), by ReLU cell (Fig.
2), of the network with bias inside and outside Theorem 6, the outlier pairs through training (Fig.
3), and, beyond the paper, the edge of stability with the closed form as sharpness meter at widths
that no eigensolver reaches.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from experiments.printed import Judged
from runner import contract as c
from runner.kinds.metric import SpectrumMetric
from runner.kinds.model import ScalarModel

PARTS = ("scaling", "cells", "bias", "pairs", "wedge_scale", "edge")
NETWORKS = ("linear", "relu")
STARTS = ("small", "large")


@dataclass(frozen=True, kw_only=True)
class ScalarSpectrum(Judged):
    """Scalar spectrum: Hessian eigenvalues of one-hidden-layer scalar networks in closed form.
    Figs. 1-3, the phases of training, Theorem 6; beyond the paper, the edge of stability at widths
    up to 10^6. The paper gives few of its settings: those marked "not in the paper" are ours."""

    title = "Closed-form Hessian spectra of scalar networks"
    paper = "Scalar spectrum"
    claimed = "scalar_spectrum"
    reproduces = "Figs. 1-3, Theorem 6; phases of training; edge of stability (extension)"
    measure = "experiments.scalar_spectrum.measure:measure"
    analysis = "experiments.scalar_spectrum.report:ScalarSpectrumAnalysis"

    part: list[str] = c.grid(choices=PARTS)
    network: list[str] = c.grid(choices=NETWORKS, help="of the parts pairs and edge")
    scaled_width: list[int] = c.grid(above=0, figures=("Fig. 1",), help="m; not in the paper")
    rate: list[float] = c.grid(above=0, help="low (not in the paper) and high")
    left: list[float] = c.grid(
        figures=("Fig. 3",),
        help="|x|; and a bent line, on which the linear net has something to learn",
    )
    width: list[int] = c.grid(above=0, help="m")
    start: list[str] = c.grid(
        choices=STARTS,
        help="small: climbs to the flattest solution's sharpness; large: starts above it",
    )
    factor: list[float] = c.grid(above=0)
    wide_factor: list[float] = c.grid(above=0)
    wide: int = c.report_only(
        100_000,
        above=0,
        help="above this width, where a run takes seconds, wide_factor stands for factor",
    )
    samples: int = c.free(at_least=4, help="n; not in the paper")
    scales: list[float] = c.free(
        above=0, filled=True, figures=("Fig. 1",), help="sigma of the inputs; not in the paper"
    )
    positive_neurons: int = c.setting(above=0, figures=("Fig. 2",), help="q")
    negative_neurons: int = c.setting(above=0, figures=("Fig. 2",), help="m - q")
    copies: list[int] = c.free(
        above=0,
        filled=True,
        figures=("Fig. 2",),
        help="times that each sample x <= 0 occurs, to vary n-/n alone",
    )
    bias_width: int = c.setting(at_least=3, help="m")
    mix_points: int = c.free(at_least=2)
    pair_width: int = c.free(above=0, figures=("Fig. 3",), help="m")
    momentum: float = c.setting(at_least=0, figures=("Fig. 3",))
    pair_steps: int = c.free(above=0, figures=("Fig. 3",), help="not in the paper")
    dense_every: int = c.free(above=0, help="steps between checks against a dense eigensolver")
    wedge_noise: float = c.setting(
        at_least=0,
        figures=("Fig. 3",),
        help="standard deviation of the noise on y; not in the paper",
    )
    wedge_scales: list[float] = c.since(
        [0.03, 0.05, 0.1, 0.2, 0.5, 1.0],
        free=True,
        above=0,
        filled=True,
        help="standard deviation of x; not in the paper",
    )
    wedge_starts: int = c.since(2, free=True, above=0, help="data and networks a seed")
    edge_steps: int = c.free(above=0, help="at most; a run ends once its loss stands still")
    edge_slope: float = c.setting(help="of the targets, |x| for ReLU")
    edge_noise: float = c.setting(at_least=0)
    small_scale: float = c.setting(above=0, help="weights ~ N(0, scale^2 / m)")
    large_scale: float = c.setting(above=0)
    diverged: float = c.setting(
        above=0, help="loss over its initial value at which a run is given up"
    )
    model: ScalarModel = c.since(ScalarModel())
    metric: SpectrumMetric = c.since(SpectrumMetric())

    def cells(self) -> list[c.Cell]:
        """The cells of each part; a part knows only its own parameters."""
        cells = []
        if "scaling" in self.part:
            for m in self.scaled_width:
                cells.append(c.Cell({"part": "scaling", "scaled_width": m}, 0.1))
        if "cells" in self.part:
            cells.append(c.Cell({"part": "cells"}, 0.1))
        if "bias" in self.part:
            cells.append(c.Cell({"part": "bias"}, 0.5))
        about: dict[str, c.Scalar]
        if "pairs" in self.part:
            seconds = 2.5 * self.pair_steps / 600
            runs = product(self.network, self.rate, self.left)
            for network, rate, left in runs:
                about = {"part": "pairs", "network": network, "rate": rate, "left": left}
                cells.append(c.Cell(about, seconds))
        if "wedge_scale" in self.part:
            seconds = 0.4 * len(self.wedge_scales) * self.wedge_starts
            for network, left in product(self.network, self.left):
                about = {"part": "wedge_scale", "network": network, "left": left}
                cells.append(c.Cell(about, seconds))
        if "edge" in self.part:
            cells += self._edge_cells()
        return cells

    def _edge_cells(self) -> list[c.Cell]:
        cells = []
        networks = product(self.network, self.width, self.start)
        for network, m, start in networks:
            of_neuron = 1e-8 if network == "relu" else 4e-9
            seconds = self.edge_steps * (3e-4 + m * of_neuron)
            about: dict[str, c.Scalar] = {"part": "edge", "network": network, "width": m}
            about["start"] = start
            memory = 0.3 + 1.5e-7 * m
            factors = self.factor if m <= self.wide else self.wide_factor
            for factor in factors:
                cells.append(c.Cell(about | {"factor": factor}, seconds, memory))
        return cells
