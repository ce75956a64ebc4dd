"""Beyond the HSR paper: λ_sup estimated from random probes, against its closed form (Section VII, future work)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from runner import contract as c


@dataclass(frozen=True, kw_only=True)
class HsrStochastic(c.Experiment):
    """Settings, each explained in conf/experiment/hsr_stochastic.yaml."""

    version: ClassVar[int] = 2
    title: ClassVar[str] = "Estimate of the bound from random probes against its closed form"
    paper: ClassVar[str] = "HSR"
    reproduces: ClassVar[str] = "nothing printed: what Section VII leaves as future work"
    measure = "experiments.hsr.stochastic.measure:measure"
    analysis = "experiments.hsr.stochastic.report:HsrStochasticAnalysis"

    probe_counts: list[int] = c.setting(at_least=2)
    repeats: int = c.setting(above=0)
    hidden: int = c.setting(above=0)

    def cells(self) -> list[c.Cell]:
        return [c.Cell({}, 3.0, 0.4)]
