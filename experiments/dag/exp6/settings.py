"""DAG, Exp. 6: R, C, D and the Gauss–Newton gap in ResNet-18 and its plain twin, on CIFAR-10."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.dag.protocol.inter_layer import ACTIVATIONS, InterLayer
from runner import contract as c
from runner.kinds.model import INITIAL, initial_setting

ARCHITECTURES = ("resnet18", "plain_resnet18")
CHECKPOINTS = ("init", "mid", "final")


@dataclass(frozen=True, kw_only=True)
class Exp6ResNet18(InterLayer):
    """DAG, Exp. 6 (Section 5.6, Appendix N.8): ResNet-18 and its plain twin on CIFAR-10; Fig. 7,
    Tables 8, 9, N.7, N.8. Untrained networks in minutes: -m experiment=exp6_resnet18
    checkpoint=init seed=range(42,47). Training one takes hours on a core; `make checkpoints` trains
    what is missing. Cells of another device are kept apart: after device=cuda, the same command
    without it measures the networks on the processor.

    The checkpoint is part of the grid: a cell at init needs no training, those at mid and final
    share one.
    """

    version = 2
    title = "Resonance, coupling and Gauss–Newton gap in ResNet-18"
    paper = "DAG"
    reproduces = "Fig. 7; Tables 8, 9, N.7, N.8"
    claimed = "exp6_resnet18"
    retired: ClassVar[dict[str, Any]] = {"folder": ""}
    """Of trained networks in files, which are no longer read: ids of stored cells contain it."""
    measure = "experiments.dag.exp6.measure:measure"
    analysis = "experiments.dag.exp6.report:ResNetAnalysis"

    activation: list[str] = c.grid(choices=ACTIVATIONS)
    arch: list[str] = c.grid(choices=ARCHITECTURES, help="plain: without any shortcut")
    checkpoint: list[str] = c.grid(choices=CHECKPOINTS)
    initial: str = c.free(
        "published",
        choices=INITIAL,
        help=("seeds 42-46 start from the paper's networks, any other seed from named streams"),
    )
    probes: int = c.setting(
        30, above=0, help="of the published estimates; the exact values have columns of their own"
    )
    power_steps: int = c.setting(20, above=0, help="likewise; Appendix N.8 says 50")
    relative_error: float = c.free(
        0.02,
        above=0,
        help="asked of what the engine has to estimate (tensor part of smooth networks)",
    )
    calibration: int = c.free(
        512,
        above=0,
        help=("training images for BatchNorm's statistics at init; the published ones are 0 and 1"),
    )
    negligible: float = c.report_only(1e-11, above=0)

    def cells(self) -> list[c.Cell]:
        """An epoch of 50,000 images takes about 65 s of a core; a training stops at mid, and
        continues for final."""
        cells = []
        for params in self.combinations():
            smooth = params["activation"] not in ("relu", "leaky_relu")
            seconds = (35.0 + 20.0 * smooth) * self.metric.examples / 32
            if params["checkpoint"] != "init":
                share = 1.0
                if "mid" in self.checkpoint:
                    share = 0.5
                seconds += 65.0 * share * self.training.epochs * self.dataset.train / 50000
            memory = 1.4 + min(self.metric.memory_gib, self.metric.examples / 16)
            cells.append(c.Cell(params, round(seconds, 1), memory))
        return cells

    def network_settings(self, cell: c.Cell) -> Mapping[str, Any]:
        activation = str(cell.params["activation"])
        return {
            **initial_setting(self.initial),
            "builder": "resnet18",
            "outputs": self.dataset.classes,
            "activation": activation,
            "skip": cell.params["arch"] == "resnet18",
        }
