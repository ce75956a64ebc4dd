"""DAG, Exp. 1b: the same under spectral normalisation, where every block Jacobian contracts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.dag.exp1.resonance import Exp1Resonance
from runner.contract.experiment import Analysis, Tables


@dataclass(frozen=True, kw_only=True)
class Exp1bSpectralNorm(Exp1Resonance):
    """Settings, each explained in conf/experiment/exp1b_spectral_norm.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Resonance under spectral normalisation"
    reproduces: ClassVar[str] = "Fig. N.1; Table N.2"
    claimed: ClassVar[str] = "exp1b_spectral_norm"

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.dag.exp1.report import SpectralNormAnalysis

        return SpectralNormAnalysis(self, tables)
