"""DAG, Exp. 3b: the Gauss–Newton gap by activation under standard training, with LayerNorm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from experiments.dag.exp3.gn_gap import Exp3GnGap
from runner.contract.experiment import Claim

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Exp3bLayerNorm(Exp3GnGap):
    """Settings, each explained in conf/experiment/exp3b_layernorm.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Gauss–Newton gap by activation, with LayerNorm"
    reproduces: ClassVar[str] = "Table 4"
    norm: ClassVar[bool] = True

    def claims(self, tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
        from experiments.dag.exp3 import claims as exp3_claims

        return exp3_claims.with_norm(self.gaps(tables), tables)
