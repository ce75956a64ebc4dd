"""Beyond the paper: which protocol of Exp. 5 comes nearest to Table 7, once its networks are trained under it?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from runner.contract.experiment import (
    Analysis,
    Cell,
    Context,
    Experiment,
    SettingError,
    Table,
    Tables,
    grid,
    non_negative,
    not_empty,
    one_of,
    positive,
    report_only,
)
from runner.data.attention import RESPONSES, AttentionData
from runner.training.kinds.minibatch import MinibatchTraining

NETWORKS = ("attention", "relu_mlp")


@dataclass(frozen=True, kw_only=True)
class Exp5ProtocolGrid(Experiment):
    """Settings, each explained in conf/experiment/exp5_protocol_grid.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Trained search for the protocol of Exp. 5: target scale, noise, steps and pair of blocks"
    paper: ClassVar[str] = "DAG"
    reproduces: ClassVar[str] = "Table 7 and the losses of Section 5.5, init, mid and final together"
    uncertified: ClassVar[str] = "closed forms, held against the engine's blocks in the tests"

    network: list[str] = grid()
    response: list[str] = grid()
    train: list[int] = grid()
    noise: list[float]
    spread: list[float]
    offset: list[float]
    examples: int
    margin: float = report_only(0.25)
    other_steps: dict[str, list[float]] = report_only({"rate": [3e-4, 3e-3], "epochs": [15, 60]})
    """Parameters of further cells, and so are the targets (noise, spread, offset) that they train on, by response."""
    other_targets: dict[str, list[float]] = report_only({"tanh": [0.1, 1.0, 0.0], "tanh_squared": [0.1, 0.25, 1.0]})
    dataset: AttentionData
    training: MinibatchTraining

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.network", self.network, NETWORKS)
        one_of("experiment.response", self.response, RESPONSES)
        for name in ("train", "spread", "examples", "margin"):
            positive(f"experiment.{name}", getattr(self, name))
        non_negative("experiment.noise", self.noise)
        for name in ("noise", "spread", "offset"):
            not_empty(f"experiment.{name}", getattr(self, name))
        one_of("experiment.other_steps", list(self.other_steps), ("rate", "epochs"))
        one_of("experiment.other_targets", list(self.other_targets), RESPONSES)
        for values in self.other_steps.values():
            positive("experiment.other_steps", values)
        if any(len(target) != 3 for target in self.other_targets.values()):
            raise SettingError(
                f"experiment.other_targets: expected noise, spread and offset of each, found {self.other_targets}"
            )
        if self.examples > self.dataset.validation:
            found = f"{self.dataset.validation} validation samples, found {self.examples}"
            raise SettingError(f"experiment.examples: expected at most the {found}")
        if self.training.optimizer != "adam":
            raise SettingError(f"training.optimizer: expected adam, found {self.training.optimizer!r}")

    @property
    def targets(self) -> int:
        """Targets that every cell trains on."""
        return len(self.noise) * len(self.spread) * len(self.offset)

    def cells(self) -> list[Cell]:
        """The grid; then its printed and its nearest target with another rate or number of epochs."""
        steps = self.training.epochs / self.training.batch
        found = [
            Cell(params, round(1 + 4e-4 * self.targets * steps * int(params["train"]), 1), 0.6)
            for params in self.combinations()
        ]
        for params in self.combinations():
            if params["response"] in self.other_targets:
                for name, values in self.other_steps.items():
                    own = {"rate": self.training.rate, "epochs": self.training.epochs}
                    found += [Cell(params | own | {name: type(own[name])(value)}, 2.0, 0.4) for value in values]
        return found

    def network_settings(self, network: str) -> dict[str, Any]:
        """Builder of `runner.models` and its arguments; the paper's own initial networks at its five seeds."""
        name = {"attention": "attention_regressor", "relu_mlp": "positionwise_mlp"}[network]
        return {"builder": name, "width": self.dataset.width, "initial": "published"}

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.dag.exp5.grid.measure import measure

        return measure(self, dict(cell.params), ctx)

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.dag.exp5.grid.report import GridAnalysis

        return GridAnalysis(self, tables)
