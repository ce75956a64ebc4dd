"""Flat training compared: HSR from probes against SGD, SAM, A-SAM and trace regularisation.

A search (docs/archive/hsr_flat_tuning.md) tried the same number of settings for each
parameter of each method and named, by validation data alone, the most accurate setting and the
flattest that is still accurate, at equal steps and at equal cost. This experiment compares these
choices at seeds that the search never saw, on the digits or, averaged to 8 × 8 pixels, on images.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from runner import contract as c
from runner.kinds.dataset import DigitsData, ImageSettings

BASELINES = ("sgd", "sam", "asam", "asam_all", "trace")
RADII = ("sam", "asam", "asam_all")
"""Methods that evaluate the gradient elsewhere: their strength is a radius."""
HALF = "_half"
"""Ends the name of a method whose radius or weight is dropped after half of the training."""
REGULARISED = (*RADII, "trace", "hsr")
METHODS = (*BASELINES, "hsr", *(f"{method}{HALF}" for method in REGULARISED))
BUDGETS = ("steps", "cost")
RULES = ("accurate", "flat")
ENTRIES = tuple((budget, rule) for budget in BUDGETS for rule in RULES)
"""What the four numbers of a method in `chosen` are, in order."""

NAMES = {
    "sgd": "SGD",
    "sam": "SAM",
    "asam": "A-SAM",
    "asam_all": "A-SAM, biases too",
    "trace": "Hessian trace",
    "hsr": "HSR",
}


GRADIENT_SECONDS = 0.0009


@dataclass(frozen=True, kw_only=True)
class FlatContest(c.Experiment):
    """The chosen settings of every method at fresh seeds. chosen: method -> settings number of each
    of `ENTRIES`.

    Each setting is explained in conf/experiment/hsr_flat_training.yaml.
    """

    title = "Flat training on the digits: HSR against tuned baselines at equal steps and equal cost"
    paper = "HSR"
    paper_seeds = tuple(range(200, 210))
    reproduces = "nothing printed: what Section VII leaves as future work"
    uncertified = "λ₁ comes from Hessian products that the tests compare with dense Hessians"
    measure = "experiments.three_layer.hsr_flat_training.measure:measure_contest"
    analysis = "experiments.three_layer.hsr_flat_training.report:ContestAnalysis"

    dataset: DigitsData | ImageSettings
    method: list[str] = c.grid(choices=METHODS)
    train: int = c.setting(above=0)
    validation: int = c.setting(above=0)
    test: int = c.setting(above=0)
    pool: int = c.setting(above=0)
    widths: list[int] = c.setting(above=0)
    batch: int = c.setting(above=0)
    epochs: int = c.setting(above=0)
    price: float = c.setting(above=0)
    memory: float = c.setting(at_least=0, below=1)
    tolerance: float = c.setting(above=0)
    bound_probes: int = c.setting(at_least=4)
    looks: int = c.setting(at_least=0)
    look_steps: int = c.setting(above=0)
    last_epochs: int = c.setting(above=0)
    chosen: dict[str, list[int]] = c.report_only()  # which cells there are, not what one means
    level: float = c.report_only(0.01, above=0, below=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        there = self.dataset.size if isinstance(self.dataset, DigitsData) else self.dataset.train
        asked = self.train + self.validation + self.test
        if asked > there:
            raise c.SettingError(
                f"experiment.train + validation + test: expected at most the {there} examples of "
                f"dataset={self.dataset.kind}, found {asked}"
            )
        for method in self.method:
            found = self.chosen.get(method, [])
            if len(found) != len(ENTRIES):
                raise c.SettingError(
                    f"experiment.chosen.{method}: expected {len(ENTRIES)} settings numbers "
                    f"({', '.join(' '.join(entry) for entry in ENTRIES)}), found {found}"
                )

    def cells(self) -> Iterable[c.Cell]:
        made = []
        for method in self.method:
            for budget in BUDGETS:
                pairs = zip(self.chosen[method], ENTRIES, strict=True)
                numbers = {number for number, (wanted, _) in pairs if wanted == budget}
                for number in sorted(numbers - {-1}):
                    params: dict[str, c.Scalar] = {
                        "method": method,
                        "budget": budget,
                        "trial": number,
                    }
                    made.append(c.Cell(params, self._seconds(method, budget), 0.6))
        return made

    def _seconds(self, method: str, budget: str) -> float:
        """Of one training."""
        steps = self.epochs * self.train / self.batch
        price = self.price
        if budget == "steps":
            prices = {"sgd": 1.0, **dict.fromkeys(RADII, 2.0)}
            price = prices.get(method.removesuffix(HALF), 10.0)
        return round(1 + GRADIENT_SECONDS * steps * price, 1)


class ImageContest(FlatContest):
    """The same on images of CIFAR-10."""

    title = "Flat training on CIFAR-10: HSR against tuned baselines at equal steps and equal cost"
