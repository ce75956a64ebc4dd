"""DAG, Exp. 3b: the Gauss–Newton gap by activation under standard training, with LayerNorm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.dag.exp3.gn_gap import Exp3GnGap
from runner.contract.experiment import Analysis, Tables


@dataclass(frozen=True, kw_only=True)
class Exp3bLayerNorm(Exp3GnGap):
    """Settings, each explained in conf/experiment/exp3b_layernorm.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Gauss–Newton gap by activation, with LayerNorm"
    reproduces: ClassVar[str] = "Table 4"
    claimed: ClassVar[str] = "exp3b_layernorm"

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.dag.exp3.report import LayerNormAnalysis

        return LayerNormAnalysis(self, tables)
