"""The share of parameter curvature between the blocks of a block-diagonal approximation, from exact
Hessians.

One cell for each network: it is trained, and at each checkpoint the dense Hessian and Gauss-Newton
matrix of its loss are measured, in float64, and partitioned by layer, by output neuron and by
parameter.
"""

from __future__ import annotations

from dataclasses import dataclass

from runner import contract as c

ARCHITECTURES = ("mlp", "convnet", "transformer")


@dataclass(frozen=True, kw_only=True)
class PhiBlockDiagonal(c.Experiment):
    """Settings, each explained in conf/experiment/phi_block_diagonal.yaml."""

    title = "Curvature that a block-diagonal approximation discards, exactly"
    paper = "DAG"
    paper_seeds = tuple(range(42, 47))
    reproduces = "nothing printed: couplings between layers, in parameter space"
    measure = "experiments.phi_block_diagonal.measure:measure"
    analysis = "experiments.phi_block_diagonal.report:PhiBlockDiagonalAnalysis"

    architecture: list[str] = c.grid(choices=ARCHITECTURES)
    residual: list[bool] = c.grid()
    classes: list[int] = c.grid(at_least=2)
    width: int = c.setting(at_least=3)
    examples: int = c.setting(above=0)
    spread: float = c.setting(above=0)
    steps: list[int] = c.setting(at_least=0, filled=True)
    rate: float = c.setting(above=0)
    order_one: float = c.report_only(0.1, above=0)
    near: float = c.report_only(0.1, above=0)
    data_sets: int = c.report_only(3, above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps != sorted(set(self.steps)):
            raise c.SettingError(
                f"experiment.steps: expected increasing numbers, found {self.steps}"
            )

    def cells(self) -> list[c.Cell]:
        cells = []
        for params in self.combinations():
            seconds = self._seconds(int(params["classes"]))
            cells.append(c.Cell(params, round(seconds, 1), 0.5))
        return cells

    def _seconds(self, classes: int) -> float:
        """Training, then at each checkpoint the products of dense.py, of which those with all
        classes grow."""
        size = self.examples / 200 * (self.width / 12) ** 2
        of_state = 2 + 0.01 * classes
        return 2 + len(self.steps) * of_state * size
