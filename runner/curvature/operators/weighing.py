"""What each batch weighs in the mean: the rule that the losses of parts of batches agree with
(identity 4)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from runner.curvature.basics.errors import MeasurementError, first_line
from runner.curvature.function.batch import Batch, Layout
from runner.curvature.function.data import Data
from runner.curvature.function.function import Function, NotScalar, Point
from runner.curvature.identities.derivatives import displaced
from runner.curvature.identities.verdicts import Verdicts
from runner.curvature.identities.weights import (
    GIVEN,
    Additivity,
    Weighing,
    explain,
    in_parts,
    rules as rules_of,
    verdict,
)
from runner.curvature.operators.building import accept_rows, require_dimension

ASK = (
    "batches differ in labels for each example, or differ in size and cannot be cut, and their "
    "losses tell no more: weigh them by examples, weights=lambda input, target: len(target), or by "
    "labels, weights=lambda input, target: target.numel()?"
)


def _shares(weights: Sequence[float]) -> list[float]:
    total = sum(weights)
    return [w / total for w in weights]


class WholeBatch(NamedTuple):
    """A batch, or a piece of one, its loss, and the calls of the layers."""

    batch: Batch
    layout: Layout | None
    loss: float
    calls: Mapping[str, int]


class Weigher:
    """Goes once through the data, and compares the rules for weights with the losses of parts."""

    def __init__(self, function: Function, data: Data, verdicts: Verdicts) -> None:
        self.function = function
        self.data = data
        self.verdicts = verdicts
        self.candidates = rules_of(data.settings.batch_dim, data.settings.weights)
        self.numbers: dict[str, list[float]] = {w.name: [] for w in self.candidates}
        self.errors = dict.fromkeys(self.numbers, 0.0)
        weights = data.settings.weights
        self.by_batch = weights is not None and not callable(weights)
        """Whether the user says what each batch weighs."""
        self.uncut = ""
        """Why a part of a batch cannot be measured alone."""
        self.misfit: Additivity | None = None
        self.largest = 0.0
        """The comparison that the rules are furthest from, where none of them fits all."""
        self.last: Additivity | None = None
        """Of the batch before."""
        eps = max(torch.finfo(t.dtype).eps for t in function.variables.values.values())
        self.allowed = max(1e-9, 100 * eps)
        self.losses: list[float] = []

    def weigh(self, cut: bool) -> Weighing:
        """Sets the weights of `data`. cut: the plan is to cut batches."""
        self._read(cut)
        data = self.data
        fitting = self._fitting(cut)
        own = self._given_numbers()
        chosen = self._chosen(fitting, own)
        totals = {name: math.fsum(own[name]) for name in fitting}
        data.totals = {name: total for name, total in totals.items() if total > 0}
        data.total = data.totals[chosen.name]
        data.rule = chosen.rule
        self.chosen = own[chosen.name]
        data.numbers = self.chosen if self.by_batch or data.listed else []
        return replace(chosen, name=GIVEN) if self.by_batch else chosen

    def loss(self) -> float:
        """The mean of the losses of whole batches."""
        pairs = zip(self.losses, self.chosen, strict=True)
        return math.fsum(loss * (w / self.data.total) for loss, w in pairs if w > 0)

    def _given_numbers(self) -> dict[str, list[float]]:
        """The weights of the batches, by rule."""
        weights: Any = self.data.settings.weights
        if not self.by_batch:
            return self.numbers
        try:
            own = [float(w) for w in weights]
        except (TypeError, ValueError) as error:
            raise MeasurementError(
                "expected weights as a function (input, target) -> number, or one number a batch, "
                f"found {weights!r}"
            ) from error
        if len(own) != len(self.data.counts):
            raise MeasurementError(
                f"expected one weight a batch, {len(self.data.counts)}, found {len(own)}"
            )
        return dict.fromkeys(self.numbers, own)

    def _read(self, cut: bool) -> None:
        self.data.counts = []
        point: Point | None = None
        waiting: list[WholeBatch] = []
        for batch in self.data:
            self.data.counts.append(self.data.count(batch))
            for weighing in self.candidates:
                self.numbers[weighing.name].append(weighing.rule(batch))
            if not self.verdicts.check:
                continue
            if point is None:
                point = Point(displaced(self.function, self.function.variables.values))
            for piece, layout in self._evaluated(batch):
                self.losses.append(self._value(point, piece))
                calls = self.function.variables.calls
                if len(self.data.counts) == 1:  # its pieces are evaluated where it is large
                    calls = self.function.variables.first_calls
                waiting.append(WholeBatch(piece, layout, self.losses[-1], calls))
                if cut or (len(self.losses) > 1 and not self.by_batch):
                    for one in waiting:
                        self._compare(one, point)
                    waiting.clear()

    def _value(self, point: Point, piece: Batch) -> float:
        try:
            return float(self.function.value(point, piece))
        except NotScalar:  # the first batch had one example
            accept_rows(self.function, self.data, piece)
            return float(self.function.value(point, piece))

    def _evaluated(self, batch: Batch) -> Iterable[tuple[Batch, Layout | None]]:
        """A batch, or pieces of it that fit the memory."""
        layout = self.data.layout_of(batch)
        size = self.data.evaluated
        if layout is None or size is None or size >= layout.examples:
            return [(batch, layout)]
        return layout.mixed(batch, size)

    def _compare(self, whole: WholeBatch, point: Point) -> None:
        """Adds the errors of the rules on one batch."""
        batch, layout, loss, calls = whole
        if not math.isfinite(loss):  # also where all labels are ignored
            without = [w.name for w in self.candidates if w.rule(batch) == 0]
            if not without:
                raise MeasurementError(
                    f"the loss of a batch is not finite ({loss}): look at its data"
                )
            for name in self.errors.keys() - set(without):
                self.errors[name] = math.inf
            return
        if layout is None or layout.examples < 2:
            return
        try:
            found = in_parts(self.function, point, batch, layout, loss, calls)
        except MeasurementError as error:
            self.uncut = first_line(error)
            self.errors = dict.fromkeys(self.errors, math.inf)
            return
        compared = [found]
        if self.data.settings.weights is None:
            compared += self._across(found, layout)
        for one in compared:
            self._add(one)

    def _add(self, found: Additivity) -> None:
        """The errors of the rules in one comparison."""
        for weighing in self.candidates:
            error = found.error(weighing.rule)
            self.errors[weighing.name] = max(self.errors[weighing.name], error)
        fits = min(self.errors[w.name] for w in self.candidates) <= self.allowed
        error = min(found.error(w.rule) for w in self.candidates)
        if not fits and error >= self.largest:
            self.misfit = found
            self.largest = error

    def _across(self, found: Additivity, layout: Layout) -> list[Additivity]:
        """The first parts of the last batch and of this one as one batch, where they fit
        together: batches may differ in what parts of each have alike."""
        before = self.last
        self.last = found
        if before is None:
            return []
        batch = layout.joined(before.parts[0], found.parts[0])
        if batch is None:
            return []
        try:
            whole = self._value(found.point, batch)
        except MeasurementError:  # a network of one example at a time
            return []
        if not math.isfinite(whole):
            return []
        parts = [before.parts[0], found.parts[0]]
        losses = [before.losses[0], found.losses[0]]
        return [Additivity(self.function, found.point, batch, whole, parts, losses)]

    def _fitting(self, cut: bool) -> list[str]:
        """Names of the rules that agree with the losses of parts. Where none does, what single
        batches weigh may be known: they are then not cut."""
        names = list(self.numbers)
        if not self.verdicts.check:
            return names[:1]
        several = len(self.data.counts) > 1 and not self.by_batch
        if not (cut or several):
            return names
        fitting = [name for name in names if self.errors[name] <= self.allowed]
        if fitting or several:
            error = min(self.errors[name] for name in names)
            self.verdicts.outcomes.append(verdict(error, math.inf if fitting else 0.0))
        if not fitting:
            self.data.whole = True
        if several and not fitting:
            self._fail()
        return fitting or names[:1]

    def _fail(self) -> None:
        """No rule says what each of several batches weighs."""
        if self.uncut:
            raise MeasurementError(
                f"a part of a batch cannot be measured alone ({self.uncut}): use one batch, or "
                "give weights= as one number a batch"
            )
        require_dimension(self.function, self.data, self.verdicts)
        text = "the loss is not a mean that parts of it add up to"
        if self.misfit is not None:
            text = explain(self.misfit, self.candidates)
        self.verdicts.fail(text)

    def _chosen(self, names: Sequence[str], numbers: Mapping[str, list[float]]) -> Weighing:
        """The first of the rules that fit."""
        for found in numbers.values():
            if not all(math.isfinite(w) and w >= 0 for w in found):
                raise MeasurementError(f"expected weights of at least 0, found {found[:6]}")
        names = [name for name in names if sum(numbers[name]) > 0]
        if not names:
            raise MeasurementError("expected weights that are not all 0: no example counts")
        if self.verdicts.check and self.data.settings.weights is None:
            shares = [_shares(numbers[name]) for name in names]
            if self.data.layout is None:  # then nothing was compared: all batches must be alike
                count = len(shares[0])
                shares.append([1 / count] * count)
            for share in shares[1:]:
                if max(abs(a - b) for a, b in zip(shares[0], share, strict=True)) > 1e-9:
                    raise MeasurementError(ASK)
        return next(w for w in self.candidates if w.name == names[0])
