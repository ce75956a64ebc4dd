"""DAG, Exp. 1b: the same under spectral normalisation, where every block Jacobian contracts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.dag.exp1.resonance import Exp1Resonance
from experiments.dag.protocol.companions import DEEPER, PUBLISHED_SEEDS
from runner.contract.experiment import Analysis, Companion, Tables


@dataclass(frozen=True, kw_only=True)
class Exp1bSpectralNorm(Exp1Resonance):
    """Settings, each explained in conf/experiment/exp1b_spectral_norm.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Resonance under spectral normalisation"
    reproduces: ClassVar[str] = "Fig. N.1; Table N.2"
    claimed: ClassVar[str] = "exp1b_spectral_norm"

    def companions(self) -> Mapping[str, Companion]:
        """Those of Exp. 1, and plain networks of 32 blocks on the paper's images alone (metric.subsamples=0)."""
        found = super().companions()
        if not found or not self.metric.subsamples:
            return found
        deeper = replace(self, depth=[32], arch=["plain_sn"], metric=replace(self.metric, subsamples=0))
        return {**found, DEEPER: Companion(deeper, PUBLISHED_SEEDS)}

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.dag.exp1.report import SpectralNormAnalysis

        return SpectralNormAnalysis(self, tables)
