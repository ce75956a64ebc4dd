"""Beyond the HSR paper: its regulariser from random probes, on a deep ten-class network with real data.

The paper's form needs three layers and two classes and names wider use as future work (Section VII). Here λ_sup comes
from Hessian-vector products. Cells: the estimate against the closed form, and one training per method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from runner import contract as c

METHODS = ("sgd", "sam", "hsr")
STEP_SECONDS = {"sgd": 0.0012, "sam": 0.0024, "hsr": 0.008}


@dataclass(frozen=True, kw_only=True)
class HsrStochastic(c.Experiment):
    """Settings, each explained in conf/experiment/hsr_stochastic.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Regularisation by the bound from random probes, on a deep network and real data"
    paper: ClassVar[str] = "HSR"
    reproduces: ClassVar[str] = "nothing printed: what Section VII leaves as future work"
    measure = "experiments.hsr.stochastic.measure:measure"
    analysis = "experiments.hsr.stochastic.report:HsrStochasticAnalysis"

    part: list[str] = c.grid(choices=("estimate", *METHODS))
    widths: list[int] = c.setting(above=0)
    train_share: float = c.setting(above=0, below=1)
    batch: int = c.setting(above=0)
    epochs: int = c.setting(above=0)
    rate: float = c.setting(above=0)
    radius: float
    bound_weight: float
    probes: int = c.setting(at_least=2)
    memory: float = c.setting(at_least=0, below=1)
    lanczos_steps: int = c.setting(above=0)
    probe_counts: list[int] = c.setting(at_least=2)
    repeats: int = c.setting(above=0)
    hidden: int = c.setting(above=0)
    level: float = c.report_only(0.05, above=0)
    accuracy_margin: float = c.report_only(0.01, above=0)
    share: float = c.report_only(0.8, above=0)
    data_sets: int = c.report_only(3, above=0)

    def cells(self) -> list[c.Cell]:
        steps = self.epochs * 1797 * self.train_share / self.batch
        seconds = {"estimate": 3.0, **{m: 3 + steps * s * self.probes / 2 for m, s in STEP_SECONDS.items()}}
        return [c.Cell({"part": part}, round(seconds[part], 1), 0.4) for part in self.part]
