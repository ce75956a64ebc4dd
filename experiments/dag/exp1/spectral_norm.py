"""DAG, Exp. 1b: the same under spectral normalisation, where every block Jacobian contracts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from experiments.dag.exp1.resonance import Exp1Resonance
from runner.contract.experiment import Claim

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Exp1bSpectralNorm(Exp1Resonance):
    """Settings, each explained in conf/experiment/exp1b_spectral_norm.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Resonance under spectral normalisation"
    reproduces: ClassVar[str] = "Fig. N.1; Table N.2"
    plain: ClassVar[str] = "plain_sn"
    resonance_figure: ClassVar[str] = "figN1_resonance"
    coupling_figure: ClassVar[str] = "coupling"
    dynamics_figure: ClassVar[str] = "tableN2_dynamics"

    def claims(self, tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
        from experiments.dag.exp1.spectral_norm_claims import claims

        return claims(tables)
