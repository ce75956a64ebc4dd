"""WS bound: the Wolkowicz–Styan bound of the largest Hessian eigenvalue at the critical points of a
small network.

A cell is one search for critical points: all starts of one protocol, activation, width and learning
rate descend together, and every point they reach is measured. The heavy parts are in the sibling
modules, imported when needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from experiments.three_layer.settings import ACTIVATIONS, PROTOCOLS, ThreeLayerStudy
from runner import contract as c

PARTS = ("search", "polish", "draws", "penalty")
PORTRAITS = ("Fig. 3", "Fig. 4", "Fig. 5", "Fig. 8")
"""Figures of single points, followed in detail."""
COST = {"sigmoid": 0.8, "tanh": 0.3, "softplus": 1.0, "gelu": 1.4, "linear": 0.1}
"""Seconds a hidden unit for the descent of 500 starts, 10,000 steps and 50 samples, as soon as most
have stopped.
"""


@dataclass(frozen=True, kw_only=True)
class WsBound(ThreeLayerStudy):
    """WS bound, Appendix C and every figure: critical points of a small network, their sharpness
    and its closed-form bound.

    The paper gives no learning rate, and by its printed stop rule the counts depend strongly on
    rate and data. Two protocols therefore stand side by side: `fitted` is the pair of rate and stop
    ratio that is closest to the published counts (a fit, not knowledge), `printed` is the stop rule
    as printed with the rate scanned. Every claim is decided under both.
    """

    title = "Closed-form upper bound of the largest Hessian eigenvalue at critical points"
    paper = "WS bound"
    claimed = "ws_bound"
    replication_seeds = tuple(range(42, 55))
    reproduces = (
        "Figs. 2-13, Appendix C; scan of the rate; four more activations; end points; penalty on V"
    )
    measure = "experiments.three_layer.ws_bound.measure:measure"
    analysis = "experiments.three_layer.ws_bound.report:WsBoundAnalysis"

    part: list[str] = c.grid(
        PARTS,
        choices=PARTS,
        help=(
            "polish: where the ends of a search lead; draws: Fig. 7 on new data; "
            "penalty: the calibrated search with a penalty on V (Section VI)"
        ),
    )
    protocol: list[str] = c.grid(choices=PROTOCOLS)
    activation: list[str] = c.grid(
        choices=ACTIVATIONS, help="sigmoid is the paper's; the others go beyond it"
    )
    hidden: list[int] = c.grid(above=0, help="N")
    rate: list[float] = c.grid(above=0, help="eta of the printed protocol; not in the paper")
    scanned: list[str] = c.grid(
        choices=ACTIVATIONS, help="activations that the printed protocol covers"
    )
    fitted_rate: float = c.setting(above=0)
    fitted_ratio: float = c.setting(above=0)
    printed_ratio: float = c.setting(
        above=0, help="epsilon: stop below 0.1 % of the initial gradient norm"
    )
    difference_step: float = c.setting(
        above=0,
        figures=("Fig. 8",),
        help="h of the numerical Hessian (Fig. 8): not in the paper, gives its error",
    )
    error_points: int = c.free(
        above=0, help="of wider networks: points whose numerical Hessian is taken"
    )
    polish_tolerance: float = c.since(
        1e-9, above=0, help="gradient norm of a critical point; L is a sum of 50 terms of order 1"
    )
    polish_steps: int = c.since(200, above=0, help="of the trust region; most ends need 40 to 80")
    # Parameters of the cells that polish; searches do not depend on them.
    further_steps: int = c.report_only(
        400,
        above=0,
        help=(
            "of what is left, in asinh theta, where valleys to infinity are straight, "
            "and as many again in theta"
        ),
    )
    to_rounding: dict[str, int] = c.report_only(
        {"softplus": 3000, "gelu": 3000},
        keys=ACTIVATIONS,
        above=0,
        help=(
            "further steps of what is unfinished even then, toward a gradient that is "
            "the rounding of its point: far out in the long valleys of nearly "
            "homogeneous activations float64 holds no smaller one"
        ),
    )
    far: float = c.since(
        25.0,
        above=0,
        help=(
            "times the largest norm of a start: who gets there and still descends "
            "runs off. The ends lie at about once that norm"
        ),
    )
    draws: int = c.since(
        6,
        free=True,
        above=0,
        figures=("Fig. 7",),
        help="further draws of data and starts for each seed: 30 with five seeds",
    )
    penalty: list[float] = c.grid(
        (0.0, 0.01, 0.1, 1.0),
        at_least=0,
        help=(
            "beta of beta ||V||^2 / 2: the paper proposes L2 regularisation of V and "
            "prints no weight. Of a mean loss over 50 samples, 10^-4 to 10^-2, the "
            "usual weight decay, is 0.005 to 0.5 here"
        ),
    )
    portrait_hidden: int = c.setting(
        above=0,
        of="hidden",
        figures=PORTRAITS,
        help="N whose sharpest and flattest points are drawn (Figs. 3-5, 8)",
    )
    portrait_rate: float = c.setting(
        above=0,
        of="rate",
        figures=PORTRAITS,
        help="and one of the scanned rates near the published counts",
    )
    line_points: int = c.free(
        above=0, figures=("Fig. 3", "Fig. 4"), help="loss along an eigenvector (Figs. 3, 4)"
    )
    line_half_range: float = c.free(above=0, figures=("Fig. 3", "Fig. 4"))
    boundary_step: float = c.free(
        above=0, figures=("Fig. 3", "Fig. 4"), help="of the decision boundary's grid (Figs. 3, 4)"
    )
    path_points: int = c.free(
        above=0, figures=("Fig. 5",), help="recorded points of a descent (Fig. 5)"
    )
    entry_points: int = c.free(
        above=0,
        figures=("Fig. 8",),
        help="critical points whose Hessian is kept entry by entry (Fig. 8)",
    )
    compared_hidden: int = c.report_only(
        10, above=0, figures=("Fig. 11",), help="the wider network of Fig. 11"
    )
    low_share: float = c.report_only(
        0.9,
        above=0,
        below=1,
        figures=("Fig. 6", "Fig. 7"),
        help='"Low" group of Figs. 6, 7: the 90 % with the smallest bound',
    )
    trace_axis: float = c.report_only(
        150.0,
        above=0,
        help=(
            "last tick of the trace in Fig. 9: matplotlib ends an axis at most 5 % "
            "beyond the data, so that the largest trace is at least 95 % of it"
        ),
    )
    square_axis: float = c.report_only(
        7500.0, above=0, help="as trace_axis, of the trace of the squared Hessian"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        portraits = (("hidden", self.hidden, 3), ("rate", self.rate, 0.1))
        for name, measured, of_the_paper in portraits:
            asked = getattr(self, f"portrait_{name}")
            if asked not in (*measured, of_the_paper):
                raise c.SettingError(
                    f"portrait_{name}: expected one of {name}={measured}, found {asked}; add it to "
                    f"{name}, or no cell is drawn in detail (Figs. 3-5, 8)"
                )
        if not self.cells():
            raise c.SettingError(
                "experiment: expected at least one cell, found none; protocol=printed covers the "
                f"activations in experiment.scanned ({', '.join(self.scanned)}) only"
            )

    def cells(self) -> list[c.Cell]:
        """Searches; the same ones polished, where the claims look at them; further draws of the
        data; the calibrated search with a penalty on V.
        """
        searches = self._searches()
        cells = list(searches) if "search" in self.part else []
        if "polish" in self.part:
            for search in filter(self._polished, searches):
                about: dict[str, c.Scalar] = {"part": "polish", "further": self.further_steps}
                factor = 2.5
                steps = self.to_rounding.get(str(search.params["activation"]), 0)
                if steps:
                    about["to_rounding"] = steps
                    factor = 4
                params = about | dict(search.params)
                cells.append(c.Cell(params, round(factor * search.seconds, 2), 0.35))
        if "draws" in self.part and "fitted" in self.protocol and "sigmoid" in self.activation:
            about = {"part": "draws", "further": self.further_steps}
            seconds = self.draws * (1.5 + self._seconds("sigmoid", self.portrait_hidden))
            cells.append(c.Cell(about, round(seconds, 2), 0.35))
        if "penalty" in self.part and "fitted" in self.protocol and "sigmoid" in self.activation:
            seconds = self._seconds("sigmoid", self.portrait_hidden)
            for weight in self.penalty:
                cells.append(c.Cell({"part": "penalty", "penalty": weight}, seconds, 0.35))
        return cells

    def _polished(self, cell: c.Cell) -> bool:
        """All widths of the paper's activation, at the rate that stands for the printed protocol;
        else the paper's.
        """
        params = cell.params
        if params["activation"] != "sigmoid":
            return params["hidden"] == self.portrait_hidden
        return params["protocol"] == "fitted" or params["rate"] == self.portrait_rate

    def _searches(self) -> list[c.Cell]:
        """Every activation and width under the fitted protocol, then the scan of the printed
        one."""
        cells = []
        searches = product(self.protocol, self.activation)
        for protocol, activation in searches:
            rates = self.rate
            if protocol == "fitted":
                rates = [self.fitted_rate]
            elif activation not in self.scanned:
                continue
            for hidden, rate in product(self.hidden, rates):
                params: dict[str, c.Scalar] = {"protocol": protocol, "activation": activation}
                params |= {"hidden": hidden, "rate": rate}
                cells.append(c.Cell(params, self._seconds(activation, hidden), 0.35))
        return cells

    def _seconds(self, activation: str, hidden: int) -> float:
        starts = self.training.starts / 500 * self.dataset.train / 50
        of_start = 1.5 + self.training.steps / 10_000 * COST[activation] * hidden
        return round(0.3 + starts * of_start, 2)

    def ratio(self, cell: c.Cell) -> float:
        """Stop ratio epsilon of the cell's protocol."""
        if cell.params["protocol"] == "fitted":
            return self.fitted_ratio
        return self.printed_ratio

    def has_portraits(self, cell: c.Cell) -> bool:
        """Whether the cell's sharpest and flattest points are followed in detail."""
        params = cell.params
        return params["hidden"] == self.portrait_hidden and (
            params["protocol"] == "fitted" or params["rate"] == self.portrait_rate
        )
