"""Settings of the two experiments on softmax attention.

AttentionHessian (Sections G to I): the bounds against measured values. A cell is a size, a radius
and a kind of instance: random, aligned, or found by gradient ascent on the ratio of the measured
value to the bound.

AttentionNewton (Theorem J.1): recovery of the input X from the output. A cell is a study at a size:
`theorem`, the theorem itself, the minimiser over gamma and the order of Newton's method;
`recovery`, least squares without the regulariser, from starts with and without access to X.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from experiments.printed import Judged
from runner import contract as c

SEARCHES = ("gaussian", "rank one", "ascent")
SECONDS = {"theorem": 0.5, "recovery": 1.5}
"""Studies, with their cost for each problem."""


@dataclass(frozen=True, kw_only=True)
class AttentionHessian(Judged):
    """Attention, Sections G, H, I: how far the bounds are from what they bound, over random X, W,
    V of spectral norm R and |b| <= R^2 (Assumption G.1). The paper has no experiment; sizes, radii
    and searches are this project's."""

    title = "Bounds on the Hessian of softmax attention against measured values"
    paper = "Attention"
    claimed = "attention_hessian"
    reproduces = "Lemmas G.2-G.4, H.3-H.10, I.1-I.3; sharper constants"
    measure = "experiments.attention.measure:measure"
    analysis = "experiments.attention.hessian_report:AttentionHessianAnalysis"

    search: list[str] = c.grid(
        choices=SEARCHES,
        help="random directions; aligned rank-one matrices; gradient ascent on the ratio",
    )
    tokens: list[int] = c.grid(above=0, help="n")
    width: list[int] = c.grid(above=0, help="d")
    radius: list[float] = c.grid(above=1, help="R > 1")
    instances: int = c.free(above=0, help="of each random search")
    near: float = c.free(
        above=0,
        below=0.5,
        help="|X - Y| of half of the pairs, relative to R; the other pairs lie far apart",
    )
    checked: int = c.free(
        above=0,
        help=("instances whose closed-form Hessian is compared with automatic differentiation"),
    )
    ascent_entries: int = c.report_only(8, at_least=0, help="the ascent covers n d up to this")
    ascent_radius: list[float] = c.grid(above=1)
    ascent_starts: int = c.free(above=0)
    ascent_steps: int = c.free(above=0)
    ascent_rate: float = c.free(above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.cells():
            raise c.SettingError(
                "experiment: expected at least one cell, found none; the ascent covers n d <= "
                f"{self.ascent_entries} (experiment.ascent_entries) only"
            )

    def cells(self) -> list[c.Cell]:
        """Random searches over every size and radius, the ascent over small sizes and its own
        radii."""
        cells = []
        searches = product(self.search, self.tokens, self.width)
        for search, tokens, width in searches:
            ascent = search == "ascent"
            if ascent and tokens * width > self.ascent_entries:
                continue
            seconds = self._seconds(tokens * width, ascent)
            for radius in self.ascent_radius if ascent else self.radius:
                params: dict[str, c.Scalar] = {"search": search, "tokens": tokens, "width": width}
                cells.append(c.Cell(params | {"radius": radius}, seconds, 0.4))
        return cells

    def _seconds(self, entries: int, ascent: bool) -> float:
        if ascent:
            return round(0.2 + 0.035 * self.ascent_steps, 2)
        return round(0.2 + 1.5e-6 * self.instances * entries**2.5, 2)


@dataclass(frozen=True, kw_only=True)
class AttentionNewton(Judged):
    """Attention, Theorem J.1: recovery of the input X of softmax attention from its output B. The
    paper has no experiment; all settings are this project's. Success is an X within 1 % of the
    data."""

    version = 3
    title = "Recovery of the attention input"
    paper = "Attention"
    claimed = "attention_newton"
    reproduces = "Theorem J.1; recovery without regularisation"
    uncertified = "they step with the closed forms that the cells of attention_hessian certify"
    measure = "experiments.attention.newton_measure:measure"
    analysis = "experiments.attention.newton_report:AttentionNewtonAnalysis"

    study: list[str] = c.grid(choices=tuple(SECONDS))
    size: list[str] = c.grid(help="n x d")
    score_scale: float = c.setting(above=0, help="standard deviation of W's entries times sqrt(d)")
    problems: int = c.free(above=0, help="draws of X, W, V per seed")
    recovered: float = c.setting(
        above=0, help="|X - X_true| / |X_true| that counts as having recovered the data"
    )
    scan: list[float] = c.free(above=0, filled=True, help="gammas of the minimiser, rising")
    order_distance: float = c.setting(
        above=0, help="|X0 - X_true| / |X_true| of the starts of full Newton steps at gamma = 0"
    )
    order_starts: int = c.free(above=0, help="per problem")
    order_steps: int = c.setting(above=0)
    blind_starts: int = c.free(
        above=0, help="per problem: standard normal, independent of the data"
    )
    distance: list[float] = c.setting(
        above=0, filled=True, help="|X0 - X_true| / |X_true| of the near starts"
    )
    near_starts: int = c.free(above=0, help="per problem and distance")
    decrease: float = c.setting(
        at_least=0, below=1, help="a step that lowers |r|^2 by less of it ends a start"
    )
    max_steps: int = c.setting(
        above=0, help="far more than a start takes; the table counts those that reach it"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scan != sorted(self.scan):
            raise c.SettingError(f"experiment.scan: expected rising values, found {self.scan}")
        for size in self.size:
            self.sizes(size)

    def sizes(self, size: str) -> tuple[int, int]:
        """n and d of a size written "4x3". Raises SettingError for another form."""
        n, _, d = size.partition("x")
        if not (n.isdigit() and d.isdigit() and int(n) > 0 and int(d) > 0):
            raise c.SettingError(
                f"experiment.size: expected tokens x width such as '4x3', found {size!r}"
            )
        return int(n), int(d)

    def cells(self) -> list[c.Cell]:
        """Every study at every size."""
        cells = []
        for study, size in product(self.study, self.size):
            params: dict[str, c.Scalar] = {"study": study, "size": size}
            cells.append(c.Cell(params, round(SECONDS[study] * self.problems, 1), 0.5))
        return cells
