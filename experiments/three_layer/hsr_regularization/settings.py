"""HSR regularisation against Hessian-trace regularisation, adaptive SAM and plain gradient descent
(HSR, Section VI).

A cell is one data set under one protocol: the search for critical points, the choice of the starts
that lead to the sharpest and the flattest of them, and the four methods from these starts. The
heavy parts are in sibling modules.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.three_layer.settings import ACTIVATIONS, PROTOCOLS, ThreeLayerStudy
from runner import contract as c

READINGS = ("every_step", "second_half")
PARTS = ("methods", "draws", "ablation")
GROUPS = ("sharp", "flat")
NAMES = {
    "gd": "plain descent",
    "trace": "Hessian trace",
    "asam": "A-SAM",
    "asam_wide": "A-SAM, wide radius",
    "hsr": "HSR",
}
METHODS = tuple(NAMES)
"""The methods that are compared, in the order of the tables."""
ABLATION = ("gd", "trace", "hsr", "mean", "spread", "square")
"""What the ablation compares: three of the methods, and the bound with one of its parts alone."""
PAIRS = (
    ("trace", "gd"),
    ("asam", "gd"),
    ("asam_wide", "gd"),
    ("hsr", "gd"),
    ("asam", "trace"),
    ("asam_wide", "trace"),
    ("hsr", "trace"),
    ("hsr", "asam"),
    ("hsr", "asam_wide"),
)
SECONDS = 60.0
"""Of 3,000 starts and 10,000 steps on one thread."""


@dataclass(frozen=True, kw_only=True)
class HsrRegularization(ThreeLayerStudy):
    """Settings, each explained in conf/experiment/hsr_regularization.yaml."""

    version = 2
    title = (
        "Regularisation by the bound of the largest Hessian eigenvalue against three other methods"
    )
    paper = "HSR"
    paper_seeds = tuple(range(42, 47))
    reproduces = (
        "Figs. 8-15, Section VI; A-SAM at ten times its radius; end points; 30 draws; parts of the "
        "bound"
    )
    measure = "experiments.three_layer.hsr_regularization.measure:measure"
    analysis = "experiments.three_layer.hsr_regularization.report:HsrRegularizationAnalysis"

    part: list[str] = c.grid(choices=PARTS)
    protocol: list[str] = c.grid(choices=PROTOCOLS)
    search_rate: list[float] = c.grid(above=0)
    reading: list[str] = c.setting(choices=READINGS, filled=True)
    activation: str = c.setting(choices=ACTIVATIONS)
    hidden: int = c.setting(above=0)
    rate: float = c.setting(above=0)
    fitted_ratio: float = c.setting(above=0)
    printed_ratio: float = c.setting(above=0)
    polish_tolerance: float = c.setting(above=0)
    polish_steps: int = c.setting(above=0)
    far: float = c.setting(above=0)
    draws: int = c.free(above=0, figures=("Fig. 14",))
    draw_starts: int = c.free(above=0, figures=("Fig. 14",))
    group_share: float = c.setting(above=0, below=1)
    switch: int = c.setting(above=0)
    trace_weight: float = c.setting(above=0)
    bound_weight: float = c.setting(above=0)
    radius: float = c.setting(above=0)
    wide_radius: float = c.free(above=0)
    record_every: int = c.free(above=0, figures=("Fig. 10",))
    line_points: int = c.free(above=0, figures=("Fig. 11", "Fig. 13"))
    line_half_range: float = c.free(above=0, figures=("Fig. 11", "Fig. 13"))
    plane_half_range: float = c.setting(above=0, figures=("Fig. 15",))
    plane_points: int = c.free(above=0, figures=("Fig. 15",))
    boundary_starts: int = c.free(above=0, figures=("Fig. 15",))
    # Parameters of the cells that train with methods.
    further_steps: int = c.report_only(400, above=0)
    rounding_steps: int = c.report_only(3000, above=0)
    saddle_ratio: float = c.report_only(0.01, above=0)
    tight: float = c.report_only(1.1, above=0)
    eigenvalue_margin: float = c.report_only(1.25, above=0)
    f1_margin: float = c.report_only(0.01, above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dataset.inputs != 2:
            raise c.SettingError(
                f"dataset.inputs: expected 2 (decision boundaries), found {self.dataset.inputs}"
            )

    def cells(self) -> list[c.Cell]:
        """The experiment under the fitted protocol, its printed search at several rates, further
        draws of the data, the parts of the bound.
        """
        work = self.training.steps / 10_000 * SECONDS / 3000
        cells = []
        if "methods" in self.part and "fitted" in self.protocol:
            about: dict[str, c.Scalar] = {"protocol": "fitted", "further": self.further_steps}
            about["to_rounding"] = self.rounding_steps
            cells.append(c.Cell(about, round(3 + 1.3 * work * self.training.starts, 1), 0.6))
        if "methods" in self.part and "printed" in self.protocol:
            seconds = round(1 + work * self.draw_starts, 1)
            for rate in self.search_rate:
                cells.append(c.Cell({"protocol": "printed", "search_rate": rate}, seconds, 0.4))
        if "draws" in self.part and "fitted" in self.protocol:
            seconds = round(1 + work * self.draws * self.draw_starts, 1)
            cells.append(c.Cell({"part": "draws"}, seconds, 0.4))
        if "ablation" in self.part and "fitted" in self.protocol:
            seconds = round(1 + 1.1 * work * self.training.starts, 1)
            cells.append(c.Cell({"part": "ablation"}, seconds, 0.4))
        return cells

    def strength(self, method: str) -> float:
        """γ₂/γ₁ of a method."""
        weight = self.trace_weight if method == "trace" else self.bound_weight
        return weight / self.rate
