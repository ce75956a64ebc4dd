"""Beyond the paper: which protocol of Exp. 5 comes nearest to Table 7, once its networks are trained under it?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from runner import contract as c
from runner.data.attention import RESPONSES, AttentionData
from runner.training.kinds.minibatch import MinibatchTraining

NETWORKS = ("attention", "relu_mlp")


@dataclass(frozen=True, kw_only=True)
class Exp5ProtocolGrid(c.Experiment):
    """Settings, each explained in conf/experiment/exp5_protocol_grid.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Trained search for the protocol of Exp. 5: target scale, noise, steps and pair of blocks"
    paper: ClassVar[str] = "DAG"
    reproduces: ClassVar[str] = "Table 7 and the losses of Section 5.5, init, mid and final together"
    uncertified: ClassVar[str] = "closed forms, held against the engine's blocks in the tests"
    measure = "experiments.dag.exp5.grid.measure:measure"
    analysis = "experiments.dag.exp5.grid.report:GridAnalysis"

    network: list[str] = c.grid(choices=NETWORKS)
    response: list[str] = c.grid(choices=RESPONSES)
    train: list[int] = c.grid(above=0)
    noise: list[float] = c.setting(at_least=0, filled=True)
    spread: list[float] = c.setting(above=0, filled=True)
    offset: list[float] = c.setting(filled=True)
    examples: int = c.setting(above=0)
    margin: float = c.report_only(0.25, above=0)
    other_steps: dict[str, list[float]] = c.report_only(
        {"rate": [3e-4, 3e-3], "epochs": [15, 60]}, keys=("rate", "epochs"), above=0
    )
    """Parameters of further cells, and so are the targets (noise, spread, offset) that they train on, by response."""
    other_targets: dict[str, list[float]] = c.report_only(
        {"tanh": [0.1, 1.0, 0.0], "tanh_squared": [0.1, 0.25, 1.0]}, keys=RESPONSES
    )
    dataset: AttentionData
    training: MinibatchTraining

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(len(target) != 3 for target in self.other_targets.values()):
            raise c.SettingError(
                f"experiment.other_targets: expected noise, spread and offset of each, found {self.other_targets}"
            )
        if self.examples > self.dataset.validation:
            found = f"{self.dataset.validation} validation samples, found {self.examples}"
            raise c.SettingError(f"experiment.examples: expected at most the {found}")
        if self.training.optimizer != "adam":
            raise c.SettingError(f"training.optimizer: expected adam, found {self.training.optimizer!r}")

    @property
    def targets(self) -> int:
        """Targets that every cell trains on."""
        return len(self.noise) * len(self.spread) * len(self.offset)

    def cells(self) -> list[c.Cell]:
        """The grid; then its printed and its nearest target with another rate or number of epochs."""
        steps = self.training.epochs / self.training.batch
        found = [
            c.Cell(params, round(1 + 4e-4 * self.targets * steps * int(params["train"]), 1), 0.6)
            for params in self.combinations()
        ]
        for params in self.combinations():
            if params["response"] in self.other_targets:
                for name, values in self.other_steps.items():
                    own = {"rate": self.training.rate, "epochs": self.training.epochs}
                    found += [c.Cell(params | own | {name: type(own[name])(value)}, 2.0, 0.4) for value in values]
        return found

    def network_settings(self, network: str) -> dict[str, Any]:
        """Builder of `runner.models` and its arguments; the paper's own initial networks at its five seeds."""
        name = {"attention": "attention_regressor", "relu_mlp": "positionwise_mlp"}[network]
        return {"builder": name, "width": self.dataset.width, "initial": "published"}
