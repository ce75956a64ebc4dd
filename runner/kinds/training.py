"""Settings of the trainings."""

from __future__ import annotations

from dataclasses import dataclass

from runner.contract import kind, setting, since

SMALLEST = 6e-8
"""Relative change below which a float32 may stay as it is."""


@dataclass(frozen=True)
class MinibatchTraining:
    """Minibatch training (DAG, Sections 5 and N); see runner.training.minibatch.

    order: "published" takes the permutations of the paper's own trainings for its seeds 42 to 46
    (any other seed: the project's named streams), "named" the named streams for all. order_seed:
    the seed whose order is taken, so that initial network and order can be crossed; -1 is the run's
    own. perturbation: relative change of every input by ± so much, the sign drawn once per input
    (`runner.training.perturbed`): what another device's rounding does.
    """

    kind: str = kind("minibatch")
    optimizer: str = setting("sgd", choices=("sgd", "adam"))
    rate: float = setting(0.01, above=0)
    momentum: float = setting(0.9, at_least=0)
    weight_decay: float = setting(1e-4, at_least=0)
    clip: float = setting(1.0, above=0)
    batch: int = setting(128, above=0, help="the last, smaller batch is kept")
    epochs: int = setting(50, above=0)
    schedule: str = setting("cosine", choices=("cosine", "constant"))
    augment: bool = False
    order: str = since(
        "named",
        free=True,
        choices=("named", "published"),
        help=(
            "published: the paper's order of the examples, seeds 42 to 46 (other "
            "seeds: named streams)"
        ),
    )
    order_seed: int = since(
        -1,
        at_least=0,
        off=-1,
        help=("the seed whose order is taken, to cross networks with orders; -1: the run's own"),
    )
    perturbation: float = since(
        0.0,
        at_least=SMALLEST,
        below=1,
        off=0,
        help="relative change of every input by +- so much, to see how far rounding grows",
    )


@dataclass(frozen=True)
class DescentTraining:
    """Full-batch gradient descent from many starts (WS bound, Appendix C; HSR, Section VI)."""

    kind: str = kind("descent")
    starts: int = setting(500, above=0, help="initial points")
    steps: int = setting(10000, above=0, help="T")
    half_range: float = setting(10.0, above=0, help="theta_0 uniform on (-10, 10)^D")
