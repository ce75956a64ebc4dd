"""Settings of minibatch training."""

from __future__ import annotations

from dataclasses import dataclass

from runner.contract.schema import SettingError, kind, non_negative, one_of, positive, since

SMALLEST = 6e-8
"""Relative change below which a float32 may stay as it is."""


@dataclass(frozen=True)
class MinibatchTraining:
    """Minibatch training (DAG, Sections 5 and N); see runner.training.minibatch.

    order: "published" takes the permutations of the paper's own trainings for its seeds 42 to 46 (any other seed:
    the project's named streams), "named" the named streams for all. order_seed: the seed whose order is taken, so that
    initial network and order can be crossed; -1 is the run's own. perturbation: relative change of every input by ± so
    much, the sign drawn once per input (`experiments.dag.protocol.perturbed`): what another device's rounding does.
    """

    kind: str = kind("minibatch")
    optimizer: str = "sgd"
    rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4
    clip: float = 1.0
    batch: int = 128
    epochs: int = 50
    schedule: str = "cosine"
    augment: bool = False
    order: str = since("named", free=True)
    order_seed: int = since(-1)
    perturbation: float = since(0.0)

    def __post_init__(self) -> None:
        one_of("training.order", self.order, ("named", "published"))
        one_of("training.kind", self.kind, ("minibatch",))
        one_of("training.optimizer", self.optimizer, ("sgd", "adam"))
        one_of("training.schedule", self.schedule, ("cosine", "constant"))
        for name in ("rate", "clip", "batch", "epochs"):
            positive(f"training.{name}", getattr(self, name))
        if self.order_seed < -1:
            raise SettingError(
                f"training.order_seed: expected a seed, or -1 for the run's own, found {self.order_seed}"
            )
        if self.perturbation and not SMALLEST <= self.perturbation < 1:
            raise SettingError(
                f"training.perturbation: expected 0, or {SMALLEST:g} (the rounding of float32) to 1, "
                f"found {self.perturbation:g}"
            )
        for name in ("momentum", "weight_decay"):
            non_negative(f"training.{name}", getattr(self, name))
