"""Settings of every configuration group, as plain dataclasses, and the checks that they share.

This module knows neither Hydra nor torch: experiments name these types in their fields, `runner.run.config` fills them
from the YAML files and turns unknown keys and wrong types into one-line errors. A group option states its `kind`;
`GROUPS[group][kind]` is the dataclass that types it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, field
from difflib import get_close_matches
from typing import Any


class SettingError(ValueError):
    """A setting that cannot be used; the text says what was expected, what was found and what to do."""


def positive(name: str, value: float | int | Sequence[float]) -> None:
    """Refuse values at or below zero; `value` may be a sequence."""
    for item in value if isinstance(value, list | tuple) else (value,):
        if not item > 0:
            raise SettingError(f"{name}: expected a value above zero, found {item}")


def non_negative(name: str, value: float | int | Sequence[float]) -> None:
    """Refuse values below zero; `value` may be a sequence."""
    for item in value if isinstance(value, list | tuple) else (value,):
        if not item >= 0:
            raise SettingError(f"{name}: expected zero or more, found {item}")


def one_of(name: str, value: Any, choices: Iterable[Any]) -> None:
    """Refuse values outside `choices`, offering the nearest; `value` may be a sequence."""
    known = list(choices)
    for item in value if isinstance(value, list | tuple) else (value,):
        if item not in known:
            near = get_close_matches(str(item), [str(k) for k in known], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SettingError(f"{name}: expected one of {', '.join(map(str, known))}, found {item}{hint}")


def not_empty(name: str, value: Sequence[Any]) -> None:
    """Refuse an empty grid."""
    if len(value) == 0:
        raise SettingError(f"{name}: expected at least one value, found an empty list")


def grid(default: Sequence[Any] | None = None) -> Any:
    """Field of an experiment that lists values of a cell parameter.

    A grid field says which cells there are, not what a cell means, so it stays out of the cell's identity. It bears
    the name of the cell parameter (singular), and a single value given for it counts as a list of one.
    """
    if default is None:
        return field(metadata={"grid": True})
    return field(default_factory=lambda: list(default), metadata={"grid": True})


def report_only(default: Any = None) -> Any:
    """Field that changes figures or claims but no measured number; it stays out of the cell's identity."""
    return field(default=default, metadata={"report": True})


def free(default: Any = MISSING) -> Any:
    """Field that may differ from the paper's protocol without making a run incomparable with its numbers.

    It changes tables, and so the identity of cells: the number of random subsets beside the paper's own, the fineness
    of a drawing, a number of repetitions. Without a default the YAML file must give it.
    """
    if isinstance(default, list | dict | set):
        return field(default_factory=lambda: type(default)(default), metadata={"free": True})
    return field(default=default, metadata={"free": True})


def since(default: Any, *, free: bool = False) -> Any:
    """Field added to a settings class that already has stored cells.

    While it holds its default it stays out of the identity, so that every cell measured before the field existed keeps
    its id; any other value enters the identity like that of an ordinary field. The default must therefore mean what
    the code did before. free: it may also differ from the paper's protocol, as fields made with `free()`.
    """
    marks = {"since": default} | ({"free": True} if free else {})
    if isinstance(default, list | dict | set):
        return field(default_factory=lambda: type(default)(default), metadata=marks)
    return field(default=default, metadata=marks)


@dataclass(frozen=True)
class GaussianData:
    """Two classes of normal vectors (WS bound, Appendix C): class 0 about +`mean` in every coordinate, class 1 about
    −`mean`."""

    kind: str = "gaussian"
    inputs: int = 2
    mean: float = 1.0
    variance: float = 2.0
    train: int = 50
    test: list[int] = field(default_factory=lambda: [10, 1000])

    def __post_init__(self) -> None:
        positive("dataset.inputs", self.inputs)
        positive("dataset.variance", self.variance)
        positive("dataset.train", self.train)
        not_empty("dataset.test", self.test)
        positive("dataset.test", self.test)


@dataclass(frozen=True)
class CifarData:
    """CIFAR-10 or CIFAR-100 pixels from the official binary archive, or the surrogate of the same shape."""

    kind: str = "cifar10"
    classes: int = 10
    url: str = report_only("")
    mirrors: list[str] = field(default_factory=list, metadata={"report": True})
    mean: list[float] = field(default_factory=lambda: [0.5, 0.5, 0.5])
    std: list[float] = field(default_factory=lambda: [0.5, 0.5, 0.5])
    train: int = 50000
    test: int = 10000

    def __post_init__(self) -> None:
        one_of("dataset.kind", self.kind, ("cifar10", "cifar100", "surrogate"))
        positive("dataset.classes", self.classes)
        positive("dataset.train", self.train)
        positive("dataset.test", self.test)
        positive("dataset.std", self.std)


@dataclass(frozen=True)
class AttentionData:
    """Token sequences with the targets of a fixed position-wise teacher (DAG, Exp. 5): no attention in it.

    response: "tanh", the paper's, or "tanh_squared", a teacher without a linear part. The targets are standardised by
    the training split, then multiplied by `spread` and shifted by `offset` (the paper: 1 and 0).
    """

    kind: str = "attention"
    train: int = 2048
    validation: int = 512
    tokens: int = 8
    width: int = 16
    noise: float = 0.1
    teacher_seed: int = 0
    response: str = "tanh"
    spread: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        for name in ("train", "validation", "tokens", "width", "spread"):
            positive(f"dataset.{name}", getattr(self, name))
        non_negative("dataset.noise", self.noise)
        one_of("dataset.response", self.response, ("tanh", "tanh_squared"))


@dataclass(frozen=True)
class MinibatchTraining:
    """Minibatch training (DAG, Sections 5 and N).

    order: "published" takes the permutations of the paper's own trainings for its seeds 42 to 46 (any other seed:
    the project's named streams), "named" the named streams for all.
    """

    kind: str = "minibatch"
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
        one_of("training.optimizer", self.optimizer, ("sgd", "adam"))
        one_of("training.schedule", self.schedule, ("cosine", "constant"))
        for name in ("rate", "clip", "batch", "epochs"):
            positive(f"training.{name}", getattr(self, name))
        for name in ("momentum", "weight_decay"):
            non_negative(f"training.{name}", getattr(self, name))


@dataclass(frozen=True)
class DescentTraining:
    """Full-batch gradient descent from many starts (WS bound, Appendix C; HSR, Section VI)."""

    kind: str = "descent"
    starts: int = 500
    steps: int = 10000
    half_range: float = 10.0

    def __post_init__(self) -> None:
        for name in ("starts", "steps", "half_range"):
            positive(f"training.{name}", getattr(self, name))


@dataclass(frozen=True)
class MlpModel:
    """Fully connected network (DAG, Section 5); depth, architecture and activation are the experiments' grids.

    initial: "published" starts the paper's seeds 42 to 46 from the published initial networks (any other seed: the
    project's named streams), "named" starts all from the named streams.
    """

    kind: str = "mlp"
    width: int = 64
    norm: bool = True
    initial: str = since("named", free=True)

    def __post_init__(self) -> None:
        positive("model.width", self.width)
        one_of("model.initial", self.initial, ("named", "published"))


@dataclass(frozen=True)
class BlockMetric:
    """How inter-layer blocks are measured (DAG, Section 4)."""

    kind: str = "blocks"
    examples: int = 32
    subsample: str = "first"
    subsamples: int = free(10)
    double: bool = free(False)
    memory_gib: float = free(2.0)

    def __post_init__(self) -> None:
        positive("metric.examples", self.examples)
        one_of("metric.subsample", self.subsample, ("first", "random"))
        non_negative("metric.subsamples", self.subsamples)
        positive("metric.memory_gib", self.memory_gib)


GROUPS: dict[str, dict[str, type]] = {
    "dataset": {
        "gaussian": GaussianData,
        "cifar10": CifarData,
        "cifar100": CifarData,
        "surrogate": CifarData,
        "attention": AttentionData,
    },
    "model": {"mlp": MlpModel},
    "metric": {"blocks": BlockMetric},
    "training": {"minibatch": MinibatchTraining, "descent": DescentTraining},
}
"""Group -> kind -> dataclass; a new kind of data, model, metric or training is one entry here and one YAML file."""
