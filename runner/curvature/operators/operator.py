"""The curvature matrix of a network's mean loss, as products: what ParameterOperator and
LayerOperator share."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from runner.curvature.basics.errors import EvaluationError
from runner.curvature.basics.interrupts import INTERRUPTS
from runner.curvature.basics.precision import full_precision, needs_settings
from runner.curvature.basics.symmetric import SymmetricOperator, columns_of
from runner.curvature.basics.vectors import Flat, Values
from runner.curvature.function.batch import Batch
from runner.curvature.function.changes import Changes
from runner.curvature.function.context import ONE_AT_A_TIME, unwritten
from runner.curvature.function.data import CHECKED, Data, Settings, as_batches
from runner.curvature.function.function import Function, Point
from runner.curvature.function.layers import Pick, unwrapped
from runner.curvature.function.variables import Parameters, Perturbations
from runner.curvature.identities.derivatives import (
    LOWER_PRECISION,
    NOT_REACHED,
    Outcome,
    Own,
    displaced,
    own_parameters,
    same_function,
)
from runner.curvature.identities.verdicts import Verdicts, second_order
from runner.curvature.operators.building import (
    find_sample,
    loss_of,
    record_layers,
    require_dimension,
    require_options,
    require_part,
    require_weights,
)
from runner.curvature.operators.weighing import Weigher
from runner.curvature.products.kept import Graphs
from runner.curvature.products.of_batch import Part
from runner.curvature.products.planning import Plan
from runner.curvature.products.together import Multiplication

MEMORY_BUDGET = 4 << 30
TWINS = 2
"""Examples with which identities 2 and 3 are compared; twice as many where these have no loss or
slope."""
T = TypeVar("T", bound="FunctionOperator")


class _Differentiable(torch.autograd.Function):
    """Products with vectors that require a gradient: its transpose is the matrix itself."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.product = product
        return product(rows.detach())

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return ctx.product(slopes), None


class FunctionOperator(SymmetricOperator):
    """The second derivative or Gauss-Newton matrix of a `Function` of named variables."""

    @torch.inference_mode(False)
    def _build(
        self,
        module: nn.Module,
        loss: Any,
        data: Any,
        make: Callable[[nn.Module], Parameters | Perturbations],
        part: Part,
        output: Pick,
        settings: Settings,
        seed: int | None,
    ) -> None:
        require_options(module, part, settings)
        as_batches(data, loss is None)  # before groups are read: (net, loss, x, y) is a mistake
        self.module = unwrapped(module)
        require_weights(dict(self.module.named_modules()))
        self.loss = loss_of(loss)
        self.part = part
        self.settings = settings
        self.function = Function(self.module, self.loss, make(self.module), output, seed)
        self.verdicts = Verdicts(self.function, part, settings.check)
        self.compared = 0
        self.data = Data(data, loss is None, settings)
        self.sampled: tuple[Batch, int] | None = self.data.first, 0
        self.searched = False
        with self.function.prepared():
            own = self._plain_call()
            if isinstance(self.function.variables, Perturbations):
                if settings.check:
                    require_dimension(self.function, self.data, self.verdicts)
                record_layers(self.function, self.data)
            if own is not None and not bool(own[1][0].isfinite()):
                own = None
            if own is None or self.data.tried == 1:  # one value may be a scalar or one for each
                self._find_sample()
            if settings.check and self.sampled is not None:
                self._check_first_batch(own)
            self._prepare()
            if self.data.listed:
                first = self._weigh()
        if not self.data.listed:  # a loader may draw at random, as it does for its user
            first = self._weigh()
        modules = [*self.module.modules()]
        tables = [t for m in modules for t in (m._parameters, m._buffers)]
        self._tables = [table for table in tables if table]
        self._of_data = self.data.tensors()
        self.changes = Changes(self._displaced_loss, self._tensors, first, self.flat.eps, modules)

    def _weigh(self) -> float | None:
        """Sets the weights of the data; the loss near the weights, None where nothing is
        compared."""
        cut = self.planned.chunk is not None
        self.data.evaluated = self.planned.evaluated
        weigher = Weigher(self.function, self.data, self.verdicts)
        self.weighing = weigher.weigh(cut)
        if cut and self.data.whole:
            self.multiplication.graphs.planned = self.multiplication.graphs.plan()
            self.data.evaluated = None
        if not self.settings.check:
            return None
        return self._displaced_loss() if cut else weigher.loss()

    def _prepare(self) -> None:
        """What belongs to a part: its groups, identities 2 and 3, its plan and its products."""
        variables = self.function.variables
        self.noun = variables.noun
        self.groups = variables.groups
        self.nodes = tuple(variables.groups)
        self.sizes = {g: s.stop - s.start for g, s in self.groups.items()}
        self.flat = Flat(self.values)
        self.dtype = self.flat.dtype
        self.device = self.flat.device
        self.vector_shape = torch.Size([self.flat.size])
        if self.sampled is not None and self.settings.check:
            self._check_second_order()
        self.multiplication = Multiplication(Graphs(self.function, self.data, self.part, self.flat))

    @property
    def values(self) -> Values:
        """The variables at u."""
        return self.function.variables.values

    @property
    def planned(self) -> Plan:
        """What goes through the network at once, and the expected peak of memory."""
        return self.multiplication.graphs.planned

    @property
    def failures(self) -> list[str]:
        """What check="report" has found to be wrong."""
        return self.verdicts.failures

    @property
    def examples(self) -> int:
        """The number of examples."""
        return self.data.examples

    @property
    def counts(self) -> list[int]:
        """The number of examples of each batch."""
        return self.data.counts

    @property
    def shares(self) -> list[float]:
        """What each batch weighs in the mean."""
        return [share for _, share in self.data.weighed()]

    @property
    def totals(self) -> dict[str, float]:
        """What all data weigh, by each rule for weights that fits."""
        return self.data.totals

    def batches(self) -> Iterator[Batch]:
        """All batches, in order."""
        return iter(self.data)

    # ------------------------------------------------------------------ identities

    def _plain_call(self) -> tuple[Batch, Own] | None:
        """The module as it is, before anything of it is replaced: what it keeps of its first call
        belongs to its own parameters. None where the loss is no scalar, or nothing is checked."""
        with unwritten(self.module):
            if self.settings.check:
                return self.data.find_layout(lambda batch: own_parameters(self.function, batch))
            self.data.find_layout(lambda batch: self.function.value(Point({}, own=True), batch))
            return None

    def _find_sample(self) -> None:
        """Looks for examples with a finite loss, on which the identities are then compared."""
        self.searched = True
        self.sampled = find_sample(self.function, self.data, TWINS, bool(self.settings.check))

    def _sample(self, most: int) -> Batch:
        """At most so many examples whose loss is finite."""
        assert self.sampled is not None
        return self.data.some(*self.sampled, most)

    def _check_second_order(self) -> None:
        outcomes = self._second_order(TWINS)
        if any(o.identity == NOT_REACHED or not math.isfinite(o.error) for o in outcomes):
            # two may have no loss or slope: labels that are ignored, margins that are kept, experts
            # that get no example, a contrastive loss of one pair
            self._find_sample()
            outcomes = []
            if self.sampled is not None:
                outcomes = self._second_order(2 * TWINS)
        self.verdicts.take(outcomes)

    def _second_order(self, few: int) -> list[Outcome]:
        try:
            return self._compared(self._sample(few) if self.searched else self.data.spread(few))
        except EvaluationError:  # a few alone have no loss: labels that number the whole batch
            return self._compared(self.data.first)

    def _compared(self, batch: Batch) -> list[Outcome]:
        self.compared = self.data.count(batch)
        wide = 8 * 8 * self.flat.size <= self.settings.memory_budget
        return second_order(self.function, self.values, batch, self.part, wide)

    def _check_first_batch(self, plain: tuple[Batch, Own] | None) -> None:
        if plain is None:
            batch = self._sample(CHECKED)
            plain = batch, own_parameters(self.function, batch)
        self.verdicts.take(same_function(self.function, self.values, *plain))

    @torch.inference_mode(False)
    def refuse_changes(self) -> None:
        """Raises ValueError where the loss near the weights is not what it was when the operator
        was built: weights, data, modes or numbers that the loss reads have changed."""
        with ONE_AT_A_TIME:
            self.changes.refuse()

    def _displaced_loss(self) -> float:
        """Near the weights, where no term of it is zero."""
        point = Point(displaced(self.function, self.values))
        pieces = self.data.pieces(self.data.evaluated)
        return math.fsum(p.weight * float(self.function.value(point, p.batch)) for p in pieces)

    def _tensors(self) -> list[Tensor | None]:
        """Parameters and buffers, as they are in their places now, and data."""
        return [t for table in self._tables for t in table.values()] + self._of_data

    # ------------------------------------------------------------------ products

    def _products(self, rows: Tensor) -> Tensor:
        """H z for z (n,), or rows z (k, n)."""
        if rows.requires_grad:
            differentiable: Tensor = _Differentiable.apply(rows, self._products)
            return differentiable
        self.products += 1 if rows.dim() == 1 else len(rows)
        with ONE_AT_A_TIME:
            if torch.is_inference_mode_enabled() or needs_settings(self.dtype, self.device):
                with INTERRUPTS, torch.inference_mode(False), full_precision():
                    return self._of_rows(rows)
            return self._of_rows(rows)

    def _of_rows(self, rows: Tensor) -> Tensor:
        self.changes.refuse(always=False)
        if self.multiplication.writes != self.changes.writes:
            self.multiplication.forget(self.changes.writes)
        return self.multiplication(rows)

    # ------------------------------------------------------- what users and estimators call

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
        if not isinstance(z, Tensor) or z.shape != self.vector_shape or z.is_complex():
            columns = columns_of(z, self.flat.size).to(self.device, self.dtype)
            return self._products(columns.mT.contiguous()).mT
        same = z.dtype is self.dtype and z.device == self.device
        return self._products(z if same else z.to(self.device, self.dtype))

    rmatvec = matvec

    def dense(self) -> Tensor:
        """The matrix, (n, n), from n products. Raises ValueError where the network has changed."""
        self.refuse_changes()
        return super().dense()

    def blocks(self) -> dict[tuple[str, str], Tensor]:
        """Every block H[v, w], (n_v, n_w), from n products."""
        dense = self.dense()
        places = itertools.product(self.groups.items(), repeat=2)
        return {(v, w): dense[a, b] for (v, a), (w, b) in places}

    @torch.inference_mode(False)
    def gradient(self) -> Tensor:
        """The gradient of the mean loss, (n,)."""
        total = torch.zeros(self.shape[0], dtype=self.dtype, device=self.device)
        with ONE_AT_A_TIME:
            self.changes.refuse(always=False)
            losses = []
            for piece in self.data.pieces(self.planned.chunk):
                found = self.function.gradient(Point(self.values), piece.batch)
                losses.append(piece.weight * float(found.loss))
                total.add_(found.gradient, alpha=piece.weight)
            self.data.compare_pass("gradient", losses, self.flat.eps)
        return total

    def batch_gradients(self) -> Iterator[tuple[int, float, Tensor]]:
        """(place, loss, gradient of shape (n,)) of each batch that weighs anything."""
        shares = self.shares
        pieces = self.data.pieces(self.planned.chunk)
        for place, of_batch in itertools.groupby(pieces, key=lambda piece: piece.place[0]):
            loss = 0.0
            total = torch.zeros(self.shape[0], dtype=self.dtype, device=self.device)
            for piece in of_batch:
                weight = piece.weight / shares[place]
                found = self.function.gradient(Point(self.values), piece.batch)
                loss += weight * float(found.loss)
                total.add_(found.gradient, alpha=weight)
            yield place, loss, total

    @torch.inference_mode(False)
    def with_part(self: T, part: Part) -> T:
        """The same function, data and weights with another part, whose own identities are
        checked."""
        require_part(part)
        twin = copy.copy(self)
        twin.part = part
        twin.products = 0
        kept = [o for o in self.verdicts.outcomes if o.identity[0] in "014"]
        twin.verdicts = Verdicts(self.function, part, self.settings.check, kept)
        twin.data = copy.copy(self.data)
        with self.function.prepared():
            twin._prepare()
        return twin

    @property
    def layout(self) -> Parameters | Perturbations:
        """The variables: `parameters` by name and `members` of each group."""
        return self.function.variables

    @property
    def cost(self) -> float:
        """A product with one vector, in gradients of all data."""
        return 2.0 if self.planned.keep else 3.0

    @property
    def checks(self) -> dict[str, str]:
        """The identities that were compared, with their outcome and relative error."""
        return {o.identity: f"{o.status} {o.error:.0e}" for o in self.verdicts.outcomes}

    @property
    def method(self) -> str:
        """How products are taken."""
        return ", ".join(self.multiplication.words())

    def __copy__(self: T) -> T:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied with its graphs: build it again "
            "from module, loss and data, or save its results"
        )

    def __repr__(self) -> str:
        right = [o.identity.split()[0] for o in self.verdicts.outcomes if o.status == "right"]
        open_ones = [o for o in self.verdicts.outcomes if o.status == "inconclusive"]
        number = len(self.data.counts)
        batches = "1 batch" if number == 1 else f"{number} batches"
        counts = f"{batches}, {self.examples} examples"
        counts += f", weighed by {self.weighing.name}"
        words = [f"{self.shape[0]} x {self.shape[0]}", f"part={self.part!r}", counts, self.method]
        words.append(f"a product costs about {self.cost:.1f} gradients")
        right = list(dict.fromkeys(right))
        said = "not checked"
        if right:
            said = f"identities {' '.join(right)} right"
        if self.compared:
            said += f", derivatives compared on {self.compared} of {self.examples} examples"
        words.append(said)
        for outcome in open_ones:
            words.append(_inconclusive(outcome))
        words += [f"FAILED: {text}" for text in self.failures]
        return f"{type(self).__name__}({'; '.join(words)})"


def _inconclusive(outcome: Outcome) -> str:
    """For people."""
    names = ", ".join(outcome.what)
    if outcome.identity == NOT_REACHED:
        return f"not reached by the examples compared: {names}"
    if outcome.identity == LOWER_PRECISION:
        return f"compared with large steps, since these give less than float64: {names}"
    return f"{outcome.identity} inconclusive ({outcome.error:.0e})"
