"""The share of parameter curvature between the blocks of a block-diagonal approximation, from exact
Hessians.

One cell for each network: it is trained, and at each checkpoint the dense Hessian and Gauss-Newton
matrix of its loss are measured, in float64, and partitioned by layer, by output neuron and by
parameter.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.printed import Judged
from runner import contract as c

ARCHITECTURES = ("mlp", "convnet", "transformer")


@dataclass(frozen=True, kw_only=True)
class PhiBlockDiagonal(Judged):
    """What a block-diagonal approximation of parameter curvature discards, Phi = 1 - sum_v
    |H_vv|_F^2 / |H|_F^2, exactly: dense float64 Hessians of small networks. The literature
    disputes it: an order-one error of block-diagonal curvature (layers), or near-block-diagonality
    as the number of classes grows (output neurons). Nothing here is printed anywhere."""

    title = "Curvature that a block-diagonal approximation discards, exactly"
    paper = "DAG"
    claimed = "phi_block_diagonal"
    reproduces = "nothing printed: couplings between layers, in parameter space"
    measure = "experiments.phi_block_diagonal.measure:measure"
    analysis = "experiments.phi_block_diagonal.report:PhiBlockDiagonalAnalysis"

    architecture: list[str] = c.grid(choices=ARCHITECTURES)
    residual: list[bool] = c.grid()
    classes: list[int] = c.grid(at_least=2)
    width: int = c.setting(
        at_least=3, help="of every hidden layer; channels, or size of a token, are two thirds of it"
    )
    examples: int = c.setting(
        above=0,
        help=(
            "of a mixture of normal distributions in 16 dimensions, one for each "
            "class; two of a class where there are 100, which is what five seeds can "
            "be paid for"
        ),
    )
    spread: float = c.setting(
        above=0,
        help=(
            "standard deviation of an example around its class, the centres having unit variance"
        ),
    )
    steps: list[int] = c.setting(
        at_least=0,
        filled=True,
        help="checkpoints of full-batch Adam, from the initial network to the final one",
    )
    rate: float = c.setting(above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps != sorted(set(self.steps)):
            raise c.SettingError(
                f"experiment.steps: expected increasing numbers, found {self.steps}"
            )

    def cells(self) -> list[c.Cell]:
        cells = []
        for params in self.combinations():
            cells.append(c.Cell(params, round(self._seconds(int(params["classes"])), 1), 0.5))
        return cells

    def _seconds(self, classes: int) -> float:
        """Training, then at each checkpoint the products of dense.py, of which those with all
        classes grow."""
        size = self.examples / 200 * (self.width / 12) ** 2
        of_state = 2 + 0.01 * classes
        return 2 + len(self.steps) * of_state * size
