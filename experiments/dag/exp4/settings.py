"""DAG, Exp. 4: the tensor term at the merge of two branches, by merge and activation, and blocks
across branches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.dag.protocol.inter_layer import (
    ACTIVATIONS,
    WITHOUT_NORM,
    InterLayer,
    without_norm,
)
from runner import contract as c
from runner.kinds.model import DiamondModel

MERGES = ("sum", "cat")


@dataclass(frozen=True, kw_only=True)
class Exp4Diamond(InterLayer):
    """DAG, Exp. 4 (Section 5.4, Appendix N.3): two branches and a merge; Tables 6, N.4, Figs. 6,
    N.2."""

    title = "Tensor term at the merge of two branches"
    paper = "DAG"
    reproduces = "Figs. 6, N.2; Tables 6, N.4"
    claimed = "exp4_diamond"
    replication_seeds = tuple(range(42, 51))
    architecture: ClassVar[str] = "diamond"
    measure = "experiments.dag.exp4.measure:measure"
    analysis = "experiments.dag.exp4.report:DiamondAnalysis"

    branch_depth: list[int] = c.grid(above=0, help="k: blocks of each branch")
    merge: list[str] = c.grid(
        choices=MERGES,
        help="sum: (a + b)/sqrt 2; cat: act(Linear(2 width -> width)), without LayerNorm",
    )
    activation: list[str] = c.grid(choices=ACTIVATIONS)
    untrained: bool = c.since(False, help="networks at initialisation alone")
    model: DiamondModel

    def cells(self) -> list[c.Cell]:
        return [
            self.priced(c.Cell(params), 2 * int(params["branch_depth"]))
            for params in self.combinations()
        ]

    def network_settings(self, cell: c.Cell) -> Mapping[str, Any]:
        depth = int(cell.params["branch_depth"])
        activation = str(cell.params["activation"])
        merge = str(cell.params["merge"])
        return self.model.network(
            outputs=self.dataset.classes,
            branch_depth=depth,
            merge=merge,
            activation=activation,
        )

    def companions(self) -> Mapping[str, c.Companion]:
        """Untrained networks without LayerNorm, for the printed ratio R(d+2)/R(d)."""
        depths = [depth for depth in self.branch_depth if depth > 1]
        if not depths or not self.model.norm:
            return {}
        return {WITHOUT_NORM: without_norm(self, self.model, branch_depth=depths)}
