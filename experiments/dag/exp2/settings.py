"""DAG, Exp. 2: stable rank, coupling and resonance across a narrow layer, by its width, on
CIFAR-100."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from experiments.dag.protocol.inter_layer import ACTIVATIONS, InterLayer, companion
from runner import contract as c
from runner.kinds.model import MlpModel, initial_setting
from runner.training.streams import PUBLISHED_SEEDS

PHASES = ("init", "trained")
DESCRIBED = "as described"
DESCRIBED_WIDTH = 256
PUBLISHED_WIDTH = 512
"""Base widths of the text (Section 5.2) and of the published values."""


@dataclass(frozen=True, kw_only=True)
class Exp2Bottleneck(InterLayer):
    """DAG, Exp. 2 (Section 5.2): one narrow layer in the middle of a plain network on CIFAR-100;
    Fig. 4, Tables 3, N.1.

    The phase is part of the grid: a cell at init needs no training, the trained one holds mid and
    final.
    """

    title = "Stable rank and coupling across a narrow layer"
    paper = "DAG"
    reproduces = "Fig. 4; Tables 3, N.1"
    claimed = "exp2_bottleneck"
    measure = "experiments.dag.exp2.measure:measure"
    analysis = "experiments.dag.exp2.report:BottleneckAnalysis"

    depth: list[int] = c.grid(
        at_least=3, help="L; the narrow layer is block L/2, far pairs lie on both sides of it"
    )
    d_u: list[int] = c.grid(above=0)
    phase: list[str] = c.grid(
        choices=PHASES, help="untrained networks in minutes: phase=init; trained: mid and final"
    )
    activation: str = c.setting("relu", choices=ACTIVATIONS)
    probes: int = c.setting(
        100,
        above=0,
        help="the published values are estimates; the exact ones have columns of their own",
    )
    rank_examples: int = c.free(
        8, above=0, help="examples whose own blocks have their rank taken, in float64"
    )
    model: MlpModel

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank_examples > self.metric.examples:
            raise c.SettingError(
                "experiment.rank_examples: expected at most "
                f"metric.examples={self.metric.examples}, found {self.rank_examples}"
            )

    def cells(self) -> list[c.Cell]:
        """Combinations whose narrow layer is not wider than the others."""
        cells = []
        for params in self.combinations():
            if int(params["d_u"]) <= self.model.width:
                depth = int(params["depth"])
                scale = (self.model.width / 512) ** 2
                size = (0.5 + depth * scale) * self.metric.examples / 64
                metrics = (self.metric.subsamples + 2) * size
                training = self.training.epochs * self.epoch_seconds(depth)
                seconds = 5 + (metrics if params["phase"] == "init" else training + 2 * metrics)
                cells.append(c.Cell(params, round(seconds, 1), self.peak_gib(depth)))
        return cells

    def network_settings(self, cell: c.Cell) -> Mapping[str, Any]:
        shape = {
            "depth": int(cell.params["depth"]),
            "narrow": int(cell.params["d_u"]),
            "width": self.model.width,
        }
        ends = {"outputs": self.dataset.classes, "activation": self.activation}
        return {**initial_setting(self.model.initial), "builder": "bottleneck_mlp", **shape, **ends}

    def companions(self) -> Mapping[str, c.Companion]:
        """The networks of the base width that the text has, where these are the published ones."""
        if self.model.width != PUBLISHED_WIDTH:
            return {}
        model = replace(self.model, width=DESCRIBED_WIDTH)
        return {DESCRIBED: companion(self, PUBLISHED_SEEDS, model=model)}
