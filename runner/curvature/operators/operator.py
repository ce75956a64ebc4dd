"""The curvature matrix of a network's mean loss, as products: what ParameterOperator and LayerOperator share."""

from __future__ import annotations

import copy
import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn

from runner.curvature.function.causes import WrongFunction, message
from runner.curvature.function.data import (
    Batch,
    Layout,
    as_batch,
    as_batches,
    count_examples,
    layouts,
    size_in_bytes,
)
from runner.curvature.function.function import NETWORK, Function, NotScalar, Point, Tensors
from runner.curvature.function.identities import (
    Outcome,
    Own,
    displaced,
    own_parameters,
    same_function,
)
from runner.curvature.function.layers import Pick, unwrapped
from runner.curvature.function.likelihood import Likelihood, likelihood
from runner.curvature.function.variables import Parameters, Perturbations, Values
from runner.curvature.function.weights import (
    Additivity,
    Weighing,
    Weights,
    additive,
    explain,
    rules,
    verdict,
)
from runner.curvature.graph.errors import MeasurementError, first_line, second_derivatives
from runner.curvature.matrix_free.base import SymmetricOperator, columns_of
from runner.curvature.operators.checked import second_order
from runner.curvature.operators.planning import (
    FEW,
    MORE,
    VECTORS,
    Line,
    Need,
    Plan,
    measured,
    plan,
    saved,
    small,
)
from runner.curvature.operators.processes import Processes, gathered
from runner.curvature.operators.products import (
    PARTS,
    FactoredGraph,
    HessianGraph,
    Images,
    Part,
    linearized,
)

MEMORY_BUDGET = 1 << 30
CHECKED = 16
"""Examples of the first batch with which identities 0 and 1 are compared."""
TWINS = 4
"""Examples with which identities 2, 3 and 5 are compared."""
TOGETHER = 4
"""Directions from which on they may go through the graph together."""
LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross_entropy": nn.functional.cross_entropy,
    "mse": nn.functional.mse_loss,
}
Graph = HessianGraph | FactoredGraph
T = TypeVar("T", bound="FunctionOperator")


class Settings(NamedTuple):
    """What the user asked for, besides module, loss and data."""

    weights: Weights
    likelihood: Likelihood | None
    memory_budget: int
    check: bool | str
    batch_dim: int


class Piece(NamedTuple):
    """A batch, or a part of one: its place, its data, its weight in the mean, and its examples."""

    place: tuple[int, int]
    batch: Batch
    weight: float
    examples: int


class FunctionOperator(SymmetricOperator):
    """The second derivative, Gauss-Newton or Fisher matrix of a `Function` of named variables."""

    piece = "batch"

    def _build(
        self,
        module: nn.Module,
        loss: Any,
        data: Any,
        make: Callable[[nn.Module], Parameters | Perturbations],
        part: Part,
        output: Pick,
        settings: Settings,
        process_group: Any,
        seed: int | None,
    ) -> None:
        if part not in PARTS:
            raise MeasurementError(f"expected part as one of {list(PARTS)}, found {part!r}")
        if settings.check not in (True, False, "report"):
            raise MeasurementError(
                f"expected check as True, 'report' or False, found {settings.check!r}"
            )
        if not isinstance(module, nn.Module):
            raise MeasurementError(f"expected an nn.Module, found {type(module).__name__}")
        self.processes = Processes(process_group)
        self.module, _ = gathered(unwrapped(module))
        _require_weights(self.module)
        loss = LOSSES.get(loss, loss) if isinstance(loss, str) else loss
        if loss is not None and (not callable(loss) or isinstance(loss, type)):
            raise MeasurementError(
                f"expected a loss(output, target) or one of {list(LOSSES)}, found {loss!r}"
            )
        self.loss, self.part, self.settings = loss, part, settings
        self.function = Function(self.module, loss, make(self.module), output, seed)
        self.outcomes: list[Outcome] = []
        self.failures: list[str] = []
        self._read(data)
        self._own = self._plain_call()
        self.layout_of_first = self._layout(self.first)
        if isinstance(self.function.variables, Perturbations):
            self._record()
        self._name_variables()
        self._accept_rows()
        self._check_second_order()
        self.planned = self._plan()
        self._check_first_batch()
        self._weigh()
        self._remember()

    # ------------------------------------------------------------------ data

    def _read(self, data: Any) -> None:
        alone = self.loss is None
        found, used, batches = as_batches(data, alone), 0, []
        for given in found:
            batches.append(as_batch(given, alone))
            used += size_in_bytes(given)
            if used > self.settings.memory_budget // 4 and not isinstance(found, list):
                break
        else:
            found = batches
        if not batches:
            raise MeasurementError("the data have no batches")
        if found is not batches and iter(found) is found:
            raise MeasurementError(
                "data can be read only once and is too large to keep: give a list or a DataLoader"
            )
        self.data = found
        self.first = batches[0]

    def batches(self) -> Iterator[Batch]:
        """All batches, in order."""
        for given in self.data:
            yield as_batch(given, self.loss is None)

    def _layout(self, batch: Batch) -> Layout | None:
        """How the batch is cut; None where a run with one example fewer fails."""
        self._uncut = ""
        for layout in layouts(batch, self.settings.batch_dim):
            if layout.examples == 1:
                return layout
            try:
                self._run(layout.cut(batch, 0, layout.examples - 1))
            except NotScalar:
                return layout
            except Exception as error:  # of the user's code
                self._uncut = first_line(error)
                continue
            return layout
        return None

    def _run(self, batch: Batch) -> Any:
        function = self.function
        return function.value(
            Point({} if isinstance(function.variables, Perturbations) else self.values), batch
        )

    @property
    def values(self) -> Values:
        """The variables at u."""
        return self.function.variables.values

    def _record(self) -> None:
        """The outputs of the layers, with all examples and with fewer."""
        variables, batch, layout = self.function.variables, self.first, self.layout_of_first
        assert isinstance(variables, Perturbations)
        if layout is not None and layout.examples == 1:
            batch, layout = _doubled(batch, layout)

        def look(piece: Batch) -> Any:
            def run() -> None:
                with self.function.at(Point({})):
                    self.function.evaluate(piece)

            try:
                return variables.record(run)
            except NotScalar:
                return variables.record(lambda: self._forward(piece))

        def fewer() -> Iterator[Any]:
            if layout is None or layout.examples < 2:
                return
            n = layout.examples
            for start, stop in ((0, n - 1), (0, 1), (n - 1, n), (0, (n + 1) // 2)):
                yield look(layout.cut(batch, start, stop)), stop - start

        variables.settle(look(batch), 1 if layout is None else layout.examples, fewer)
        for name in variables.uncalled:
            if name in variables.asked:
                raise MeasurementError(
                    f"layer {name!r} is never called (a fused function may read its weights)"
                )

    def _forward(self, piece: Batch) -> None:
        with self.function.at(Point({})):
            self.function.output(piece.input)

    def _name_variables(self) -> None:
        variables = self.function.variables
        self.noun = variables.noun
        self.groups, self.nodes = variables.groups, tuple(variables.groups)
        self.sizes = {g: s.stop - s.start for g, s in self.groups.items()}
        values = list(self.values.values())
        self.dtype, self.device = values[0].dtype, values[0].device
        for t in values:
            if t.device != self.device:
                raise MeasurementError(
                    f"variables are on {self.device} and {t.device}: use one device"
                )
            self.dtype = torch.promote_types(self.dtype, t.dtype)
        self._shapes = [t.shape for t in values]
        self._numbers = [t.numel() for t in values]
        self._dtypes = [t.dtype for t in values]
        self._mixed = any(t.dtype != self.dtype for t in values)
        self._kept: dict[tuple[int, int], Graph] = {}
        self._each: Tensor | None = None
        self._batched: bool | None = None
        self._why_loop, self._seconds, self._linear = "", math.inf, ""
        self._spent = 0.0

    def _accept_rows(self) -> None:
        """A loss of several values: they must be one, or a few, for each example."""
        layout = self.layout_of_first
        try:
            self.function.value(Point(self.values), self.first)
            return
        except NotScalar as error:
            shape = error.shape
        refused = MeasurementError(
            f"the loss returned values of shape {shape}: expected a scalar, or one value for each example in the order "
            "of the examples"
        )
        if layout is None or layout.examples < 2:
            raise refused
        try:
            self.function.value(Point(self.values), layout.cut(self.first, 0, layout.examples - 1))
            raise refused
        except NotScalar as error:
            fewer = error.shape
        rows, rest = divmod(shape[0], layout.examples)
        if rest or fewer != (rows * (layout.examples - 1), *shape[1:]):
            raise refused
        self.function.rows_checked[tuple(shape[1:])] = True

    # ------------------------------------------------------------------ identities

    def _plain_call(self) -> tuple[Batch, Own] | None:
        """The module as it is, before anything of it is replaced: what it keeps of its first call belongs to its own
        parameters. None where it fails on a part of the batch, or the loss is no scalar."""
        layout = next(layouts(self.first, self.settings.batch_dim), None)
        if not self.settings.check or layout is None:
            return None
        batch = layout.cut(self.first, 0, min(CHECKED, layout.examples))
        with suppress(MeasurementError):
            return batch, own_parameters(self.function, batch)
        return None

    def _take(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            self.outcomes.append(outcome)
            if outcome.status == "wrong":
                self._fail(message(self.function, outcome))

    def _fail(self, text: str) -> None:
        if self.settings.check is True:
            raise WrongFunction(text)
        self.failures.append(text)
        warnings.warn(text, RuntimeWarning, stacklevel=6)

    def _few(self, count: int) -> Batch:
        layout = self.layout_of_first
        if layout is None or layout.examples <= count:
            return self.first
        return layout.cut(self.first, 0, count)

    def _check_second_order(self) -> None:
        if not self.settings.check:
            if self.part == "fisher":
                self._check_likelihood()
            return
        batch, layout = self._few(TWINS), self.layout_of_first
        if layout is not None:
            layout = layout._replace(examples=min(TWINS, layout.examples))
        value = float(self.function.value(Point(self.values), batch))
        if not math.isfinite(value):
            raise MeasurementError(
                f"the loss is not finite ({value}): look at the weights and the data"
            )
        wide = 8 * 8 * self.shape[0] <= self.settings.memory_budget
        self._take(second_order(self.function, self.values, batch, self.part, layout, wide))
        if self.part == "fisher":
            self._check_likelihood()

    def _check_likelihood(self) -> None:
        """Identity 5: without it, a Fisher matrix is not defined, whatever is checked."""
        batch = self._few(TWINS)
        leaves = self._leaves(displaced(self.function, self.values))
        with self.function.at(Point(leaves)):
            graph = FactoredGraph(self.function, leaves, batch, 1.0)
        outcome = likelihood(graph.outputs, graph.slopes, batch.target, self.settings.likelihood)
        self.outcomes.append(outcome)
        if outcome.status == "wrong":
            raise WrongFunction(message(self.function, outcome))
        self.likelihood = outcome.what[0]

    def _check_first_batch(self) -> None:
        if self.settings.check:
            batch = self._few(CHECKED)
            batch, own = self._own or (batch, own_parameters(self.function, batch))
            self._take(same_function(self.function, self.values, batch, own))
        self._own = None

    def _weigh(self) -> None:
        """The weight of every batch, and how pieces of one are weighed."""
        budget, given = self.settings, self.settings.weights
        candidates = rules(budget.batch_dim, given)
        listed = None if given is None or callable(given) else [float(w) for w in given]
        numbers: dict[str, list[float]] = {w.name: [] for w in candidates}
        errors = dict.fromkeys(numbers, 0.0)
        several = (
            self.processes.size > 1
            or self.part == "empirical_fisher"
            or self.planned.chunk is not None
        )
        self.counts: list[int] = []
        worst: Additivity | None = None
        eps = max(torch.finfo(t.dtype).eps for t in self.values.values())
        allowed = max(1e-9, 100 * eps)
        point: Point | None = None
        for i, batch in enumerate(self.batches()):
            layout = self.layout_of_first if i == 0 else self._layout(batch)
            self.counts.append(
                count_examples(batch, budget.batch_dim) if layout is None else layout.examples
            )
            for weighing in candidates:
                numbers[weighing.name].append(weighing.rule(batch))
            several = several or i > 0
            if several and point is None:
                point = Point(displaced(self.function, self.values))
            if point is not None and budget.check and layout is not None:
                for seen, cut in ((self.first, self.layout_of_first),) if i == 1 else ():
                    worst = self._additive(seen, cut, candidates, errors, point, allowed) or worst
                worst = self._additive(batch, layout, candidates, errors, point, allowed) or worst
        self.examples = sum(self.counts)
        fitting = [w for w in candidates if errors[w.name] <= allowed]
        self.weighing = self._chosen(
            fitting, candidates, numbers, worst, min(errors.values()), several
        )
        own = numbers[self.weighing.name] if listed is None else listed
        if len(own) != len(self.counts):
            raise MeasurementError(
                f"expected one weight a batch, {len(self.counts)}, found {len(own)}"
            )
        if not all(math.isfinite(w) and w >= 0 for w in own) or not sum(own) > 0:
            raise MeasurementError(f"expected weights of at least 0, not all 0, found {own[:6]}")
        shares = self.processes.gather(
            (sum(own), self.examples), {"part": self.part, "groups": str(self.groups)}
        )
        total = math.fsum(share for share, _ in shares)
        self.examples = sum(count for _, count in shares)
        self.shares = [w / total for w in own]

    def _additive(
        self,
        batch: Batch,
        layout: Layout | None,
        candidates: Sequence[Weighing],
        errors: dict[str, float],
        point: Point,
        allowed: float,
    ) -> Additivity | None:
        """Adds the errors of the rules on one batch; the comparison where none fits."""
        if layout is None:
            return None
        try:
            found = additive(self.function, point, batch, layout)
        except MeasurementError as error:
            raise MeasurementError(
                f"a part of a batch cannot be measured alone ({first_line(error)}): use one batch that fits "
                "memory_budget, or check=False"
            ) from error
        if found is None:
            return None
        for weighing in candidates:
            errors[weighing.name] = max(errors[weighing.name], found.error(weighing.rule))
        return found if min(errors.values()) > allowed else None

    def _chosen(
        self,
        fitting: Sequence[Weighing],
        candidates: Sequence[Weighing],
        numbers: Mapping[str, list[float]],
        worst: Additivity | None,
        error: float,
        several: bool,
    ) -> Weighing:
        if not several or not self.settings.check:
            return candidates[0]
        self.outcomes.append(verdict(error, math.inf if fitting else 0.0))
        if not fitting:
            name = candidates[0].name
            text = (
                "the loss is not a mean that parts of it add up to"
                if worst is None
                else explain(worst, name)
            )
            self._fail(text)
            return candidates[0]
        if len(fitting) > 1 and self.settings.weights is None:
            one, two = ([w / sum(numbers[f.name]) for w in numbers[f.name]] for f in fitting[:2])
            if max(abs(a - b) for a, b in zip(one, two, strict=True)) > 1e-9:
                raise MeasurementError(
                    "batches differ in labels for each example, and their losses tell no more: weigh them by examples, "
                    "weights=lambda input, target: len(target), or by labels, weights=lambda input, target: "
                    "target.numel()?"
                )
        return fitting[0]

    # ------------------------------------------------------------------ changes

    def _remember(self) -> None:
        tensors = [*self.module.parameters(), *self.module.buffers()]
        self._watched = [t for t in tensors if not t.is_inference()]
        self._versions = self._marks()
        self._loss_there: float | None = None
        if self.settings.check:
            start = self._clock()
            self._loss_there = self._displaced_loss()
            self._forward_seconds = self._clock() - start

    def _displaced_loss(self) -> float:
        point = Point(displaced(self.function, self.values))
        losses = [
            float(self.function.value(point, b)) * s
            for b, s in zip(self.batches(), self.shares, strict=True)
        ]
        return math.fsum(w for w, s in zip(losses, self.shares, strict=True) if s > 0)

    def _marks(self) -> list[int]:
        """What tells cheaply that weights may have changed: how often each tensor was written to."""
        return [t._version for t in self._watched]

    def refuse_changes(self) -> None:
        """Raises ValueError where the loss near the weights is not what it was when the operator was built: weights,
        data, modes or numbers that the loss reads have changed."""
        if self._loss_there is None:
            return
        now, eps = self._displaced_loss(), float(torch.finfo(self.dtype).eps)
        if not abs(now - self._loss_there) <= 64 * eps * abs(self._loss_there):
            raise MeasurementError(
                f"the loss has changed since this operator was built ({self._loss_there:.6g}, now {now:.6g} near the "
                "weights): weights, data, modes, or numbers that it reads; build a new one"
            )
        self._versions = self._marks()

    def _refuse_new_weights(self) -> None:
        if self._loss_there is not None and self._marks() != self._versions:
            self.refuse_changes()

    # ------------------------------------------------------------------ memory

    def _leaves(self, values: Values | None = None) -> Values:
        return {
            k: t.detach().requires_grad_()
            for k, t in (self.values if values is None else values).items()
        }

    def _graph(self, batch: Batch, weight: float, examples: int) -> Graph:
        """The graph of one piece, made inside of `function.at`."""
        if self.part == "hessian":
            return HessianGraph(self.function, self._inside, batch, weight)
        rows = examples if self.part == "empirical_fisher" else None
        return FactoredGraph(self.function, self._inside, batch, weight, rows)

    def _inside_of(self, leaves: Values) -> AbstractContextManager[None]:
        self._inside = leaves
        return self.function.at(Point(leaves))

    def _plan(self) -> Plan:
        layout = self.layout_of_first
        widest = 1 if layout is None else layout.examples
        sizes = [widest] if widest <= FEW or layout is None else [FEW, min(MORE, widest)]
        listed = isinstance(self.data, list)
        counts = [widest]
        if listed:
            counts = [
                1 if layout is None else count_examples(b, self.settings.batch_dim)
                for b in self.batches()
            ]
        vectors = VECTORS * self.shape[0] * self.dtype.itemsize
        chosen = None
        with (
            suppress(MeasurementError),
            self._inside_of(self._leaves()),
        ):  # torch.func allows no hooks of saved tensors
            bytes_of_few = saved(lambda: self._graph(self._few(sizes[0]), 1.0, sizes[0]))
            chosen = small(bytes_of_few, sizes[0], counts, vectors, self.settings.memory_budget)
        if chosen is None:
            line = Line(sizes, [self._need(size) for size in sizes])
            chosen = plan(line, counts, vectors, self.settings.memory_budget, layout is not None)
        return chosen if listed else chosen._replace(keep=False)

    def _need(self, size: int) -> Need:
        direction, piece = [torch.ones_like(t) for t in self.values.values()], self._few(size)
        with self._inside_of(self._leaves()), second_derivatives(NETWORK):
            return measured(
                lambda: self._graph(piece, 1.0, size),
                lambda graph: cast(Graph, graph).apply(direction, False),
            )

    def pieces(self) -> Iterator[Piece]:
        """All pieces with their weights."""
        chunk = self.planned.chunk
        for i, (batch, share) in enumerate(zip(self.batches(), self.shares, strict=True)):
            layout = self.layout_of_first if i == 0 else None
            if share == 0:
                continue
            if chunk is None or chunk >= self.counts[i]:
                yield Piece((i, 0), batch, share, self.counts[i])
                continue
            layout = layout or next(layouts(batch, self.settings.batch_dim))
            parts = list(layout.pieces(batch, chunk))
            sizes = [self.weighing.rule(p) for p in parts]
            for k, (p, size) in enumerate(zip(parts, sizes, strict=True)):
                if size > 0:
                    examples = min(chunk, layout.examples - k * chunk)
                    yield Piece((i, k), p, share * size / sum(sizes), examples)

    # ------------------------------------------------------------------ products

    def _graphs(self) -> Iterator[Graph]:
        """The graph of every piece; products are taken inside of the context that it needs."""
        if self.planned.keep and self._kept:
            for graph in self._kept.values():
                if graph.python:
                    with self.function.at(Point(self._inside)):
                        yield graph
                else:
                    yield graph
            return
        for piece in self.pieces():
            with (
                self._inside_of(self._inside if self._kept else self._leaves()),
                second_derivatives(NETWORK),
            ):
                graph = self._graph(piece.batch, piece.weight, piece.examples)
                if self.planned.keep:
                    self._kept[piece.place] = graph
                yield graph
            del graph

    def _split(self, rows: Tensor) -> Tensors:
        """Directions (n,) or (k, n) as one tensor for each variable."""
        lead = rows.shape[:-1]
        parts = rows.split(self._numbers, -1)
        found = [
            part.view((*lead, *shape)) for part, shape in zip(parts, self._shapes, strict=True)
        ]
        if self._mixed:
            found = [part.to(dtype) for part, dtype in zip(found, self._dtypes, strict=True)]
        return found

    def _join(self, images: Images, lead: Sequence[int]) -> Tensor:
        flat = []
        for image, number in zip(images, self._numbers, strict=True):
            if image is None:
                flat.append(torch.zeros(*lead, number, dtype=self.dtype, device=self.device))
            else:
                flat.append(image.reshape(*lead, number))
        return torch.cat(flat, -1).to(self.dtype)

    def _apply(self, rows: Tensor, batched: bool) -> Tensor:
        """Products of all pieces with one direction (n,), or with k at once (k, n)."""
        directions, lead = self._split(rows), rows.shape[:-1]
        total: Tensor | None = None
        for graph in self._graphs():
            image = self._join(graph.apply(directions, batched), lead)
            total = image if total is None else total.add_(image)
        return torch.zeros_like(rows) if total is None else total

    def _products(self, rows: Tensor) -> Tensor:
        """H z for rows z (k, n)."""
        self.products += len(rows)
        self._refuse_new_weights()
        with torch.inference_mode(False):
            return self.processes.sum(lambda: self._of_rows(rows.detach()), rows)

    def _of_rows(self, rows: Tensor) -> Tensor:
        if self.part == "empirical_fisher" and self._stores_gradients():
            each = self._gradients_of_examples()
            return (rows @ each.mT) @ each
        if self.part in ("gauss_newton", "fisher"):
            self._linearize()
        if len(rows) == 1:
            return self._timed(rows[0]).unsqueeze(0)
        if len(rows) >= TOGETHER and self._batched is None:
            self._batched = self._pays(rows)
        if len(rows) < TOGETHER or not self._batched:  # the same bits for the same rows
            return torch.stack([self._timed(row) for row in rows])
        return torch.cat([self._apply(some, True) for some in rows.split(self.planned.width)])

    def _clock(self) -> float:
        """Seconds of this process, which others do not change; of the wall for other devices."""
        return time.process_time() if self.device.type == "cpu" else time.perf_counter()

    def _timed(self, row: Tensor) -> Tensor:
        start = self._clock()
        image = self._apply(row, False)
        spent = self._clock() - start
        self._seconds = min(self._seconds, spent)
        self._spent += spent
        return image

    def _pays(self, rows: Tensor) -> bool:
        """Whether one timing shows that directions should go through the graph together."""
        width = min(self.planned.width, len(rows), 16)
        if width < 2:
            self._why_loop = "memory"
            return False
        one = torch.stack([self._timed(row) for row in rows[:2]])
        try:
            with warnings.catch_warnings():  # torch's about operations without a batching rule
                warnings.simplefilter("ignore")
                self._apply(rows[:width], True)
            spent = math.inf
            for _ in range(2):
                start = self._clock()
                together = self._apply(rows[:width], True)[:2]
                spent = min(spent, (self._clock() - start) / width)
        except (RuntimeError, NotImplementedError, MeasurementError) as error:
            self._why_loop = first_line(error)
            return False
        allowed = 1e-3 * float(one.abs().nan_to_num().max())
        self._why_loop = "quicker"
        return spent < self._seconds and torch.allclose(
            together, one, 1e-3, allowed, equal_nan=True
        )

    def _linearize(self) -> None:
        """J v by `linearize` after as much time in products as it takes to make."""
        if (
            self._linear
            or self._spent < (1.0 if _WARM else 4.0)
            or not self.planned.keep
            or len(self._kept) != 1
        ):
            return
        (graph,) = self._kept.values()
        assert isinstance(graph, FactoredGraph)
        before, row = (
            graph.jacobian,
            torch.ones(self.shape[0], dtype=self.dtype, device=self.device),
        )
        try:
            self._linear = "two backward passes"
            graph.jacobian = linearized(
                self.function, self._inside, graph, next(self.pieces()).batch
            )
            _WARM.append(True)
            expected, best = self._apply(row, False), math.inf
            for _ in range(3):
                start = self._clock()
                image = self._apply(row, False)
                best = min(best, self._clock() - start)
            if not torch.allclose(image, expected, rtol=1e-4) or best > self._seconds:
                raise RuntimeError("slower")
            graph.jacobian, other = before, graph.jacobian
            true = self._apply(row, False)
            if not torch.allclose(image, true, rtol=1e-3, atol=1e-4 * float(true.abs().max())):
                raise RuntimeError("different")
            graph.jacobian, self._linear = other, "linearize"
            self._seconds, self._batched = best, None
        except Exception:  # torch.func does not support every network
            graph.jacobian = before

    def _stores_gradients(self) -> bool:
        room = self.settings.memory_budget // 4
        return sum(self.counts) * self.shape[0] * self.dtype.itemsize <= room

    def _gradients_of_examples(self) -> Tensor:
        """sqrt(weight) g of every example, (B, n)."""
        if self._each is None:
            rows = []
            for i, (batch, share) in enumerate(zip(self.batches(), self.shares, strict=True)):
                layout = (
                    self.layout_of_first
                    if i == 0
                    else next(layouts(batch, self.settings.batch_dim))
                )
                if layout is None:
                    raise MeasurementError(
                        f"the batch cannot be cut into its examples ({self._uncut})"
                    )
                for k in range(layout.examples):
                    found = self.function.gradient(Point(self.values), layout.cut(batch, k, k + 1))
                    rows.append(self._join(found.gradient, ()) * math.sqrt(share / layout.examples))
            self._each = torch.stack(rows)
        return self._each

    # ------------------------------------------------------------------ what users and estimators call

    def apply(self, directions: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The products with k directions, (k, n_g) for each group; absent groups are zero."""
        count = self.direction_count(directions)
        rows = torch.zeros(count, self.shape[0], dtype=self.dtype, device=self.device)
        for g, r in directions.items():
            rows[:, self.groups[g]] = r.to(rows)
        images = self._products(rows)
        return {g: images[:, s] for g, s in self.groups.items()}

    def matvec(self, z: Tensor) -> Tensor:
        """H z of z (n,) or k columns (n, k). Raises ValueError for another shape."""
        rows = columns_of(z, self.shape[0]).mT.to(self.device, self.dtype).contiguous()
        images = self._products(rows)
        return images.mT if z.dim() == 2 else images[0]

    rmatvec = matvec

    def column(
        self, group: str, z: Tensor, groups: Sequence[str] | None = None
    ) -> dict[str, Tensor]:
        """H[g, group] z for every group g (or `groups`) from one product; z: (n_group,)."""
        self.require([group, *(groups or ())])
        found = self.apply({group: z.unsqueeze(0)})
        return {g: found[g][0] for g in groups or self.nodes}

    def blocks(self) -> dict[tuple[str, str], Tensor]:
        """Every block H[v, w], (n_v, n_w), from n products."""
        dense = self.dense()
        return {(v, w): dense[a, b] for v, a in self.groups.items() for w, b in self.groups.items()}

    def gradient(self) -> Tensor:
        """The gradient of the mean loss, (n,)."""
        self._refuse_new_weights()
        total = torch.zeros(self.shape[0], dtype=self.dtype, device=self.device)
        zero = total.clone()

        def of_all() -> Tensor:
            for piece in self.pieces():
                found = self.function.gradient(Point(self.values), piece.batch).gradient
                total.add_(self._join(found, ()), alpha=piece.weight)
            return total

        return self.processes.sum(of_all, zero)

    def batch_gradients(self) -> Iterator[tuple[int, float, Tensor]]:
        """(place, loss, gradient of shape (n,)) of each batch that weighs anything."""
        for place, pieces in itertools.groupby(self.pieces(), key=lambda piece: piece.place[0]):
            loss = 0.0
            total = torch.zeros(self.shape[0], dtype=self.dtype, device=self.device)
            for piece in pieces:
                weight = piece.weight / self.shares[place]
                found = self.function.gradient(Point(self.values), piece.batch)
                loss += weight * float(found.loss)
                total.add_(self._join(found.gradient, ()), alpha=weight)
            yield place, loss, total

    def with_part(self: T, part: Part) -> T:
        """The same function, data and weights with another part, whose own identities are checked."""
        twin = copy.copy(self)
        twin.part, twin.products = part, 0
        twin.outcomes = [o for o in self.outcomes if o.identity[0] in "014"]
        twin._name_variables()
        twin._check_second_order()
        twin.planned = twin._plan()
        return twin

    def drawn(self, vectors: Tensor) -> Tensor:
        """Random vectors: those of the first process."""
        return self.processes.first(vectors)

    @property
    def layout(self) -> Parameters | Perturbations:
        """The variables: `parameters` by name and `members` of each group."""
        return self.function.variables

    @property
    def cost(self) -> float:
        """A product with one vector, in gradients of all data: measured once one was taken, else as planned."""
        forward = getattr(self, "_forward_seconds", 0.0)
        if math.isfinite(self._seconds) and forward > 0:
            return self._seconds / (3 * forward)
        return 2.0 if self.planned.keep else 3.0

    @property
    def checks(self) -> dict[str, str]:
        """The identities that were compared, with their outcome and relative error."""
        return {o.identity: f"{o.status} {o.error:.0e}" for o in self.outcomes}

    @property
    def method(self) -> str:
        """How products are taken."""
        words = ["graph kept" if self.planned.keep else "graph made for each product"]
        if self._each is not None:
            words = ["gradients of all examples stored"]
        if self.planned.chunk is not None:
            words.append(f"pieces of {self.planned.chunk} examples")
        if self._linear == "linearize":
            words.append("linearize")
        if self._batched is not None:
            words.append(
                "vectors together" if self._batched else f"one vector at a time ({self._why_loop})"
            )
        return ", ".join(words)

    def __repr__(self) -> str:
        right = [o.identity.split()[0] for o in self.outcomes if o.status == "right"]
        open_ones = [o for o in self.outcomes if o.status == "inconclusive"]
        counts = f"{len(self.counts)} batch(es), {self.examples} examples, weighed by {self.weighing.name}"
        words = [f"{self.shape[0]} x {self.shape[0]}", f"part={self.part!r}", counts, self.method]
        words.append(f"a product costs about {self.cost:.1f} gradients")
        words.append(f"identities {' '.join(right)} right" if right else "not checked")
        words += [
            f"{o.identity} inconclusive ({o.error:.0e})"
            for o in open_ones
            if o.identity != "reached"
        ]
        words += [f"not reached: {', '.join(o.what)}" for o in open_ones if o.identity == "reached"]
        words += [f"FAILED: {text}" for text in self.failures]
        return f"{type(self).__name__}({'; '.join(words)})"


_WARM: list[bool] = []
"""Whether torch.func.linearize has run in this process: it takes seconds at first."""


def _doubled(batch: Batch, layout: Layout) -> tuple[Batch, Layout]:
    """One example twice, so that one can be left out."""
    from runner.curvature.function.trees import tree_flatten, tree_unflatten

    leaves, spec = tree_flatten((batch.input, batch.target))
    for i, place in enumerate(layout.places):
        if place is not None:
            leaves[i] = torch.cat([leaves[i], leaves[i]], place[0])
    return Batch(*tree_unflatten(leaves, spec)), layout._replace(examples=2)


def _require_weights(module: nn.Module) -> None:
    for name, m in module.named_modules():
        if getattr(m, "max_norm", None) is not None:
            raise MeasurementError(
                f"module {name!r} rescales its weights when it is called: set max_norm=None"
            )
        for p in m._parameters.values():
            if isinstance(p, nn.parameter.UninitializedParameter):
                raise MeasurementError(
                    f"module {name!r} has no weights yet (a lazy module): call the network once"
                )
            if p is not None and p.device.type == "meta":
                raise MeasurementError(
                    f"module {name!r} has weights on the meta device: load them before measuring"
                )
    for device in {"cpu", *(p.device.type for p in module.parameters())}:
        if torch.is_autocast_enabled(device):
            raise MeasurementError(
                f"autocast is on ({device}): half-precision products have errors of about 1e-2; measure outside of it"
            )
