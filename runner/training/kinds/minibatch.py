"""Settings of minibatch training."""

from __future__ import annotations

from dataclasses import dataclass

from runner.contract.schema import kind, non_negative, one_of, positive, since


@dataclass(frozen=True)
class MinibatchTraining:
    """Minibatch training (DAG, Sections 5 and N); see runner.training.minibatch.

    order: "published" takes the permutations of the paper's own trainings for its seeds 42 to 46 (any other seed:
    the project's named streams), "named" the named streams for all.
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

    def __post_init__(self) -> None:
        one_of("training.order", self.order, ("named", "published"))
        one_of("training.kind", self.kind, ("minibatch",))
        one_of("training.optimizer", self.optimizer, ("sgd", "adam"))
        one_of("training.schedule", self.schedule, ("cosine", "constant"))
        for name in ("rate", "clip", "batch", "epochs"):
            positive(f"training.{name}", getattr(self, name))
        for name in ("momentum", "weight_decay"):
            non_negative(f"training.{name}", getattr(self, name))
