"""DAG, Exp. 3: what Gauss–Newton leaves out of the inter-layer blocks, by activation, without
LayerNorm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.dag.protocol.inter_layer import ACTIVATIONS, InterLayer, companions
from runner import contract as c
from runner.kinds.model import BlockChain, MlpModel


@dataclass(frozen=True, kw_only=True)
class ByActivation(InterLayer):
    """Chains of one depth, a cell for each activation."""

    activation: list[str] = c.grid(
        choices=ACTIVATIONS, help="of all blocks; of networks linear in pieces the gap is exactly 0"
    )
    depth: int = c.setting(6, above=0, help="L")
    model: BlockChain

    def network_settings(self, cell: c.Cell) -> Mapping[str, Any]:
        activation = str(cell.params["activation"])
        arch = self.model.archs[0]
        return self.model.network(
            outputs=self.dataset.classes, depth=self.depth, arch=arch, activation=activation
        )


@dataclass(frozen=True, kw_only=True)
class Exp3GnGap(ByActivation):
    """DAG, Exp. 3 (Section 5.3, isolation protocol): plain networks without LayerNorm; Fig. 5,
    Tables 5, N.5, N.6."""

    title = "Gauss–Newton gap by activation, without LayerNorm"
    paper = "DAG"
    reproduces = "Fig. 5; Tables 5, N.5, N.6"
    claimed = "exp3_gn_gap"
    measure = "experiments.dag.exp3.measure:measure"
    analysis = "experiments.dag.exp3.report:GapAnalysis"

    probes: list[int] = c.setting(
        above=0,
        help=(
            "of Table N.6: the text says 30, the published values come from 100; 0: "
            "no stochastic estimates"
        ),
    )
    probe_draws: int = c.free(10, at_least=0, help="independent estimates of each")

    def cells(self) -> list[c.Cell]:
        estimates = 0.0015 * 3 * sum(self.probes) * self.probe_draws
        return [
            self.priced(c.Cell(params), self.depth, fixed=2 + estimates)
            for params in self.combinations()
        ]

    def companions(self) -> Mapping[str, c.Companion]:
        return companions(self)


@dataclass(frozen=True, kw_only=True)
class Exp3bLayerNorm(Exp3GnGap):
    """DAG, Exp. 3b (Section 5.3, standard conditions): plain networks with LayerNorm; Table 4.

    Standard training, with LayerNorm.
    """

    title = "Gauss–Newton gap by activation, with LayerNorm"
    paper = "DAG"
    reproduces = "Table 4"
    claimed = "exp3b_layernorm"
    analysis = "experiments.dag.exp3.report:LayerNormAnalysis"


@dataclass(frozen=True, kw_only=True)
class Exp3Stochastic(ByActivation):
    """DAG, Appendix N.6: stochastic against exact Gauss-Newton gap on the networks of Exp. 3; Table
    N.6.

    Stochastic against exact gap (Appendix N.6).
    """

    title = "Stochastic against exact Gauss–Newton gap"
    paper = "DAG"
    reproduces = "Table N.6"
    claimed = "exp3_stochastic"
    measure = "experiments.dag.exp3.measure:measure_stochastic"
    analysis = "experiments.dag.exp3.report:StochasticGapAnalysis"

    probes: list[int] = c.setting(
        at_least=2, filled=True, help="the text says 30, the published values come from 100"
    )
    draws: int = c.free(
        20, above=0, help="independent estimates of each: so many repetitions of Table N.6"
    )
    model: MlpModel

    def cells(self) -> list[c.Cell]:
        return [self.priced(c.Cell(params), self.depth, fixed=5) for params in self.combinations()]
