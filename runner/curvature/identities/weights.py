"""Identity 4: what a batch, and a part of a batch, weighs in the mean over all data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from runner.curvature.basics.errors import EvaluationError, MeasurementError, first_line
from runner.curvature.basics.vectors import dot
from runner.curvature.function.batch import (
    Batch,
    Layout,
    Rule,
    count_examples,
    count_labels,
    count_shifted,
)
from runner.curvature.function.data import Weights
from runner.curvature.function.function import Evaluated, Function, Point
from runner.curvature.identities.causes import cause_of_mixing
from runner.curvature.identities.derivatives import Outcome

GIVEN = "weights="
"""The name of a rule of the user's own."""


@dataclass(frozen=True)
class Weighing:
    """rule: the weight of a batch or a piece. name: of the rule, for people."""

    rule: Rule
    name: str


def rules(batch_dim: int, weights: Weights) -> list[Weighing]:
    """The rules to try, in their order."""
    if callable(weights):
        given = weights

        def own(batch: Batch) -> float:
            try:
                return float(given(batch.input, batch.target))
            except Exception as error:
                raise MeasurementError(
                    "expected weights(input, target) as a number, of parts of a batch as well, and "
                    f"it failed: {type(error).__name__}: {first_line(error)}"
                ) from error

        return [Weighing(own, GIVEN)]
    examples = Weighing(lambda b: float(count_examples(b, batch_dim)), "examples")
    return [examples, Weighing(lambda b: float(count_labels(b)), "labels that are not ignored")]


@dataclass(frozen=True)
class Additivity:
    """The loss of a batch, `whole`, next to the weighted sum over its parts."""

    function: Function
    point: Point
    batch: Batch
    whole: float
    parts: list[Batch]
    losses: list[float]

    def error(self, rule: Rule) -> float:
        """Relative; parts of no weight count nothing."""
        sizes = [rule(part) for part in self.parts]
        total = math.fsum(sizes)
        if not total > 0:
            return math.inf
        pairs = [(s / total, loss) for s, loss in zip(sizes, self.losses, strict=True) if s > 0]
        mean = math.fsum(s * loss for s, loss in pairs)
        scale = max(abs(self.whole), *(abs(loss) for _, loss in pairs))
        if mean == mean:
            return abs(mean - self.whole) / max(scale, 1e-300)
        return math.inf

    def shares(self, rule: Rule) -> str:
        """What the parts weigh by a rule, for people."""
        sizes = [rule(part) for part in self.parts]
        total = math.fsum(sizes) or 1.0
        return " and ".join(f"{size / total:.4g}" for size in sizes)

    def fitted(self) -> tuple[list[float], float]:
        """Weights with which the gradients of the parts add up to that of the batch, and the
        relative residual."""
        whole, one, two = (self.function.gradient(self.point, b) for b in (self.batch, *self.parts))
        return _fit(whole, one, two)


def in_parts(
    function: Function,
    point: Point,
    batch: Batch,
    layout: Layout,
    whole: float,
    calls: Mapping[str, int] | None = None,
) -> Additivity:
    """Of two uneven parts. calls: of the layers in the whole batch. Raises ValueError where a part
    cannot be evaluated."""
    count = layout.examples

    def value(part: Batch) -> float:
        found = float(function.value(point, part))
        _require_calls(calls or {}, function.variables.calls)
        return found

    def cut(first: int) -> Additivity:
        parts = [layout.cut(batch, 0, first), layout.cut(batch, first, count)]
        return Additivity(function, point, batch, whole, parts, [*map(value, parts)])

    try:
        return cut(max(1, count // 3))
    except MeasurementError:  # a single example, where a network normalises by the batch
        return cut(count // 2)


def _require_calls(whole: Mapping[str, int], part: Mapping[str, int]) -> None:
    """Raises ValueError where a call of a layer is another one in a part: its perturbation is then
    added to other examples. A layer that is not called, as an expert may be, adds none."""
    for layer, count in whole.items():
        if part[layer] not in (0, count):
            raise EvaluationError(
                f"layer {layer!r} has {count} calls for a batch and {part[layer]} for a part of "
                "it, each with a perturbation of its own"
            )


def adds_up(
    function: Function, batch: Batch, layout: Layout | None, batch_dim: int, most: int
) -> bool:
    """Whether the loss of some examples, at the module's weights, is the mean over their parts, or
    the sum, to rounding."""
    if layout is None:
        return False
    point = Point({}, own=True)
    function.averages = True
    try:
        some = layout._replace(examples=min(most, layout.examples))
        batch = layout.cut(batch, 0, some.examples)
        if some.examples == 1:
            batch, some = some.doubled(batch)
        whole = function.value(point, batch)
        parts = in_parts(function, point, batch, some, float(whole))
    except (MeasurementError, RuntimeError):
        return False
    finally:
        function.averages = False
    of_sum = abs(math.fsum(parts.losses) - parts.whole) / max(abs(parts.whole), 1e-300)
    errors = [of_sum, *(parts.error(weighing.rule) for weighing in rules(batch_dim, None))]
    return min(errors) <= 100 * torch.finfo(whole.dtype).eps


def _fit(whole: Evaluated, one: Evaluated, two: Evaluated) -> tuple[list[float], float]:
    g = whole.gradient
    a = one.gradient
    b = two.gradient
    ab = dot(a, b)
    products = [[dot(a, a), ab], [ab, dot(b, b)]]
    gram = torch.tensor(products, dtype=torch.float64, device="cpu")
    right = torch.tensor([dot(a, g), dot(b, g)], dtype=torch.float64, device="cpu")
    if not bool(gram.isfinite().all()):
        return [math.nan, math.nan], math.inf
    found = torch.linalg.lstsq(gram, right.unsqueeze(1), driver="gelsd").solution.squeeze(1)
    rest = dot(g, g) - 2 * float(found @ right) + float(found @ gram @ found)
    return found.tolist(), math.sqrt(max(0.0, rest) / max(dot(g, g), 1e-300))


def explain(found: Additivity, tried: Sequence[Weighing]) -> str:
    """What the gradients of the parts say about weights that do not fit. tried: the rules."""
    try:
        weights, residual = found.fitted()
    except (MeasurementError, RuntimeError) as error:
        why = first_line(error)
        return f"its parts cannot be differentiated ({why}): use one batch"
    if residual > 1e-3 or (not abs(sum(weights) - 1) < 1e-3 and not _ones(weights)):
        cause = cause_of_mixing(found.function, found.point, found.batch)
        return f"the loss of a batch is not a weighted mean over its parts {cause}"
    if _ones(weights):
        return (
            "the loss is a sum over the examples: expected a mean (reduction='mean'), or one batch"
        )
    if found.error(count_shifted) <= 1e-6:
        return (
            "the loss leaves out the first label of each row, as those of causal language models "
            "do: parts of a batch weigh as many labels as are left, give weights=lambda input, "
            "target: (labels[:, 1:] != -100).sum() of its labels, or one batch"
        )
    shown = " and ".join(f"{w:.4g}" for w in weights)
    if tried[0].name == GIVEN:
        wanted = (
            "weights= says: expected what parts of a batch weigh as well, or one number a batch"
        )
    else:
        rules = [f"{weighing.name} ({found.shares(weighing.rule)})" for weighing in tried]
        wanted = f"their numbers of {' or '.join(rules)}: give weights=lambda input, target: number"
    return f"the parts of a batch weigh {shown} in its loss, other than {wanted}, or one batch"


def _ones(weights: Sequence[float]) -> bool:
    return all(abs(w - 1) < 1e-3 for w in weights)


def verdict(error: float, allowed: float) -> Outcome:
    """Of identity 4."""
    return Outcome("4 weights", "right" if error <= allowed else "wrong", error)
