"""Settings of the data sets. `load` of a class names the function that reads or makes its data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from runner.contract import SettingError, kind, one_of, report_only, setting, since
from runner.contract.schema import imported

RECORDS = {"cifar10": (50_000, 10_000, 10), "cifar100": (50_000, 10_000, 100)}
"""Training and test records and classes of the official archives."""


@dataclass(frozen=True)
class ImageSettings:
    """Settings that every data set of 32×32 colour images has; an experiment on images takes all of
    its kinds.

    A kind is a subclass that names its `load(settings, ctx) -> ImageData`. mean, std: per channel,
    of pixels in [0, 1]. train, test: examples of each part that are used. seeded: whether the
    pixels depend on the run's seed.
    """

    kind: str = kind("images")
    classes: int = setting(10, above=0)
    mean: list[float] = setting(
        [0.5, 0.5, 0.5], length=3, help="of pixels in [0, 1], for each channel"
    )
    std: list[float] = setting(
        [0.5, 0.5, 0.5], length=3, above=0, help="of pixels in [0, 1], for each channel"
    )
    train: int = setting(50000, above=0, help="training examples that are used")
    test: int = setting(10000, above=0, help="test examples that are used")
    seeded: ClassVar[bool] = True

    def missing(self) -> str:
        """What must be brought before a run can start, and how; "" when nothing is missing."""
        return ""


@dataclass(frozen=True)
class CifarData(ImageSettings):
    """CIFAR-10 or CIFAR-100 from the official binary archive; the first `train` and `test` records.

    url, mirrors: addresses of the archive, tried in this order.
    """

    load: ClassVar[str] = "runner.data.cifar:load"
    kind: str = kind("cifar10", choices=tuple(RECORDS))
    url: str = report_only("", help="address of the archive")
    mirrors: list[str] = report_only(
        [], help="tried in order after url; whatever the address, the published MD5 decides"
    )
    seeded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        one_of("dataset.kind", self.kind, RECORDS)
        train, test, classes = RECORDS[self.kind]
        for name, there in (("train", train), ("test", test)):
            if getattr(self, name) > there:
                raise SettingError(
                    f"dataset.{name}: expected at most {there}, found {getattr(self, name)}"
                )
        if self.classes != classes:
            raise SettingError(
                f"dataset.classes: expected {classes} for {self.kind}, found {self.classes}"
            )

    def missing(self) -> str:
        """The first file that is missing or of the wrong size, and how to get it."""
        text: str = imported("runner.data.cifar:missing", "dataset")(self.kind)
        return text


@dataclass(frozen=True)
class SurrogateData(ImageSettings):
    """Random fields of CIFAR's shape in `classes` classes, made from the stream "images" of the
    seed."""

    load: ClassVar[str] = "runner.data.synthetic:load_surrogate"
    kind: str = kind("surrogate")
    classes: int = setting(10, at_least=2)
    train: int = setting(2000, above=0, help="training examples that are made")
    test: int = setting(500, above=0, help="test examples that are made")


@dataclass(frozen=True)
class DigitsData:
    """1,797 digits of 8 × 8 pixels in ten classes, in the order of the library."""

    load: ClassVar[str] = "runner.data.synthetic:load_digits"
    kind: str = kind("digits")
    size: ClassVar[int] = 1797
    inputs: ClassVar[int] = 64
    classes: ClassVar[int] = 10


@dataclass(frozen=True)
class GaussianData:
    """Two classes of normal vectors: class 0 around +`mean` in every coordinate, class 1 around
    -`mean`.

    WS bound, Appendix C, and HSR, Section VI. inputs: M. variance: of every coordinate. train: I,
    half of them in each class. test: sizes of the test sets.
    """

    load: ClassVar[str] = "runner.data.synthetic:load_gaussian"
    kind: str = kind("gaussian")
    inputs: int = setting(2, above=0, help="M")
    mean: float = setting(1.0, help="of every coordinate in class 0; minus it in class 1")
    variance: float = setting(2.0, above=0, help="along both axes, no covariance")
    train: int = setting(50, above=0, help="I, half of them in each class")
    test: list[int] = setting(
        [10, 1000], above=0, filled=True, help="the paper's 10, and 1,000 for power"
    )


STREAMS = ("named", "published")
RESPONSES = ("tanh", "norm")
"""What the targets are made of: a position-wise tanh teacher, or the norm of the input."""


@dataclass(frozen=True)
class AttentionData:
    """Token sequences X (S, d) with one target each (DAG, Exp. 5).

    tokens: S. width: d. noise: standard deviation of ε. teacher_seed: seed of W and w. response:
    "tanh", the position-wise teacher that the paper describes, or "norm", y = ‖X‖_F/√(S d) + ε, the
    targets of its Table 7. standardised: targets are standardised by the training split, then
    multiplied by `spread` and shifted by `offset`; otherwise they stay as they are. streams:
    "named", or "published", the generator of the seed itself as in the paper.
    """

    load: ClassVar[str] = "runner.data.synthetic:load_attention"
    kind: str = kind("attention")
    train: int = setting(2048, above=0, help="training sequences")
    validation: int = setting(512, above=0, help="validation sequences")
    tokens: int = setting(8, above=0, help="S")
    width: int = setting(16, above=0, help="d")
    noise: float = setting(0.1, at_least=0, help="standard deviation; the paper writes N(0, 0.01)")
    teacher_seed: int = setting(0, help="seed of the teacher's W and w")
    response: str = setting(
        "tanh",
        choices=RESPONSES,
        help=("position-wise teacher, as described; norm: ‖X‖_F/√(S d), the targets of Table 7"),
    )
    spread: float = setting(1.0, above=0, help="standard deviation of standardised targets")
    offset: float = setting(0.0, help="mean of standardised targets")
    standardised: bool = since(True, help="by mean and standard deviation of the training targets")
    streams: str = since(
        "named",
        choices=STREAMS,
        help="published: inputs and noise from torch's generator of the seed",
    )
