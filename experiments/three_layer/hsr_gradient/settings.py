"""HSR: what the closed-form gradient of the bound costs, whether it is right, and what drives it
(Figs. 2-7).

A cell is one part of the study; the parts share nothing but the seed. The heavy code is in sibling
modules.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.three_layer.settings import ThreeLayerStudy
from runner import contract as c

SECONDS = {
    "cost": 45.0,
    "agreement": 1.0,
    "influence": 3.0,
    "covariance": 2.0,
    "terms": 0.5,
    "descent": 4.0,
}
SIZES = {"dimension": "D", "samples": "I"}
FORMS = {
    "double sum": "double sum",
    "matrix": "double sum as matrices",
    "own": "this project's form",
    "autodiff": "automatic differentiation",
    "numerical": "three-point differences",
}
"""Form of the gradient -> its name in figures and notes."""


@dataclass(frozen=True, kw_only=True)
class HsrGradient(ThreeLayerStudy):
    """HSR, Figs. 2-7: the closed-form gradient of the bound of the largest Hessian eigenvalue.
    What it costs, whether it agrees with differences, which samples and which term drive it, and
    what following it alone does to the spectrum."""

    title = "Closed-form gradient of the bound: cost, correctness, and what drives it"
    paper = "HSR"
    claimed = "hsr_gradient"
    reproduces = "Figs. 2-7, Propositions 1 and 2"
    measure = "experiments.three_layer.hsr_gradient.measure:measure"
    analysis = "experiments.three_layer.hsr_gradient.report:HsrGradientAnalysis"

    part: list[str] = c.grid(choices=tuple(SECONDS))
    hidden: int = c.setting(above=0, help="N, captions of Figs. 5, 6 and Section VI")
    timed_samples: int = c.setting(
        above=0, figures=("Fig. 2",), help="I while D grows, Fig. 2 left"
    )
    timed_units: list[int] = c.free(
        above=0,
        figures=("Fig. 2",),
        help="of the timing that `cost` has replaced; part of the other cells' identity",
    )
    timed_sizes: list[int] = c.free(above=0, figures=("Fig. 2",), help="as timed_units")
    cost_units: list[int] = c.since([5, 10, 20, 40, 80, 160, 320], free=True, above=0, filled=True)
    cost_sizes: list[int] = c.since(
        [100 * 2**k for k in range(11)], free=True, above=0, filled=True, help="I, as above"
    )
    pairwise_samples: int = c.since(
        6400,
        free=True,
        above=0,
        help="largest I of the double sum and its matrix form: 5 I² numbers are 1.6 GB",
    )
    numerical_samples: int = c.since(
        800, free=True, above=0, help="largest I of the differences, 42 double sums each"
    )
    numerical_units: int = c.since(
        320, free=True, above=0, help="largest N of the differences, 2 D double sums each"
    )
    cost_repeats: int = c.since(
        5, free=True, above=0, help="turns of the forms; the least processor time counts"
    )
    cost_budget: float = c.since(
        0.3, free=True, above=0, help="seconds of a form and size, after which it sits out"
    )
    octaves: int = c.report_only(
        3, above=0, help="exponents are fitted to the last doublings, where calls no longer cost"
    )
    timed_hidden: int = c.setting(
        above=0, figures=("Fig. 2",), help="D = 21 while I grows, Fig. 2 right"
    )
    repeats: int = c.free(above=0, help="as timed_units")
    difference_step: float = c.setting(
        above=0, help="h of the three-point differences, near the least error: not in the paper"
    )
    compared_hidden: int = c.setting(
        above=0, figures=("Fig. 3",), help="Fig. 3: size not in the paper"
    )
    compared_range: float = c.setting(
        above=0, figures=("Fig. 3",), help="of its uniform parameters: not in the paper"
    )
    draws: int = c.free(above=0, help='"different random seeds"')
    networks: int = c.free(above=0, figures=("Fig. 3",))
    influence_starts: int = c.free(
        above=0,
        figures=("Fig. 4",),
        help="Fig. 4 takes one network trained as in Section VI; here several",
    )
    rate: float = c.setting(above=0)
    stop_ratio: float = c.setting(above=0, help="as protocol=fitted of hsr_regularization")
    fixed_sample: int = c.setting(at_least=0, help="j of the lower panels: not in the paper")
    covariance: list[float] = c.free(
        above=-1, below=1, filled=True, figures=("Fig. 5",), help="Fig. 5; unit variances"
    )
    covariance_samples: int = c.setting(above=0, figures=("Fig. 5",), help="I, Fig. 5")
    covariance_activation: list[str] = c.setting(choices=("linear", "sigmoid"))
    covariance_draws: int = c.free(above=0, figures=("Fig. 5",), help="networks and data per value")
    half_range: list[float] = c.setting(
        above=0,
        figures=("Fig. 5", "Fig. 6"),
        help="of random networks, Figs. 5, 6: that of Section VI, and a narrow one",
    )
    term_draws: int = c.setting(above=0, figures=("Fig. 6",), help="Fig. 6")
    bound_rate: float = c.setting(
        above=0, figures=("Fig. 7",), help="gamma_2, Fig. 7 (gamma_1 = 0)"
    )
    bound_starts: int = c.free(above=0, figures=("Fig. 7",), help="the paper shows one")
    record_every: int = c.free(above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fixed_sample >= self.dataset.train:
            found = f"0 to {self.dataset.train - 1}, found {self.fixed_sample}"
            raise c.SettingError(f"experiment.fixed_sample: expected {found}")

    def cells(self) -> list[c.Cell]:
        cells = []
        for part in self.part:
            cells.append(c.Cell({"part": part}, SECONDS[part] * self._work(part), 0.35))
        return cells

    def _work(self, part: str) -> float:
        """Against the paper profile."""
        if part == "cost":
            return self.cost_repeats / 5 * (self.pairwise_samples / 6400) ** 2
        if part in ("influence", "descent"):
            return self.training.steps / 10_000
        return 1.0
