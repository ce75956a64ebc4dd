"""The Hessian, Gauss-Newton or Fisher matrix of a module's mean loss with respect to its parameters, as an operator."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor, nn

from runner.curvature.exact.checks import MEMORY_BUDGET
from runner.curvature.graph.errors import MeasurementError, first_line
from runner.curvature.graph.precision import full_precision
from runner.curvature.graph.reachable import Fingerprint
from runner.curvature.graph.state import (
    ONE_AT_A_TIME,
    devices_of,
    differentiable_copy,
    reachable,
    refuse_autocast,
)
from runner.curvature.graph.tensors import tree_leaves, tree_map
from runner.curvature.graph.tracing.batches import names_of
from runner.curvature.graph.tracing.calls import Pick, check_evaluation, unwrapped
from runner.curvature.graph.tracing.criterion import TORCH, refuse_broadcast
from runner.curvature.matrix_free.base import SymmetricOperator, columns_of
from runner.curvature.matrix_free.peak import allocations
from runner.curvature.matrix_free.reference import Widened, widen
from runner.curvature.operators.processes import Processes, gathered, together
from runner.curvature.parameters.batches import SUM, Batch, Batches, Rows, check_loss
from runner.curvature.parameters.differences import ParameterDifferences, widen_tree
from runner.curvature.parameters.graphs import UNSEEN, Graphs, Part, few_examples, skewed
from runner.curvature.parameters.likelihood import Likelihood
from runner.curvature.parameters.model import GroupSpec, Layout, Loss, Model, Named, layout


class ParameterOperator(SymmetricOperator):
    """The curvature matrix of a module's mean loss over `data` with respect to its parameters, shape (n, n).

    Parameters
    ----------
    module
        Unmodified. It is called as module(*input) for a tuple, module(**input) for a dict, and with both for
        (tuple, dict). What a call changes of it (buffers, counters, kept activations) is put back.
    loss
        loss(output, target), a scalar: the mean over the examples of the batch, as torch's losses; or the name
        "cross_entropy" or "mse".
    data
        One batch (x, y), a list of batches (input, target), or a DataLoader that gives the same batches whenever it is
        read. Batches are weighted by their number of examples, the rows of the first tensor of their input; where
        torch's cross-entropy ignores labels or has weights of classes, by what it divides by, as in one batch of all.
        Another mean over a part of the labels (of your own, with a mask) needs one batch.
    groups
        {name: pattern or patterns}, or patterns, of modules or parameters; default: one group for each module with
        parameters. `groups[name]` of the operator is the slice of the flat vector, in which every parameter is
        flattened row by row.
    part
        "hessian"; "gauss_newton", J^T (d2 L / df2) J; "fisher", the expectation of g g^T over targets drawn from the
        model's own distribution; "empirical_fisher", the mean of g g^T of the examples' gradients g.
    samples, seed
        For "fisher": the number of targets drawn for each row of the output (default: the exact expectation), and the
        seed of the draws.
    likelihood
        For "fisher": "categorical", "bernoulli" or "normal" (variance 1/2), the distribution of the targets. Default:
        recognised from torch's cross_entropy, nll_loss, binary_cross_entropy_with_logits or mse_loss, also inside a
        function of yours. Needed for other losses and with class weights.
    output
        Which tensor of a structured output the loss gets ("logits", "0"); default: all of it.
    batch_dim
        The dimension of the examples. A target may also have several consecutive rows for each, (B * S,).
    shared
        Names of inputs that belong to no example.
    memory_budget
        Bytes that products may use in addition to the network and its data. The graphs of all batches are kept where
        they fit (a product then costs about two gradients, else three). Batches that do not fit are split by examples.
        `planned` has the choice and the predicted peak; a RuntimeWarning tells when not even one example fits.
    check
        Whether the loss, the symmetry of products, and the first product for NaN are checked.
    progress
        progress(done, pieces), called after every piece of a product.
    process_group
        Of torch.distributed, as torch.distributed.group.WORLD: `data` are the share of this process, and the matrix is
        that of the data of all, in every process. All processes call the same methods in the same order; random
        vectors are those of the first one. Default: this process alone, also where torch.distributed is initialised.

    Raises
    ------
    ValueError
        For BatchNorm or dropout in training mode, a loss that is not a mean, data that differ from one reading to the
        next, a pattern that matches nothing, a Fisher matrix of an unknown distribution, and weights or data that have
        changed since.

    Notes
    -----
    `products` counts products with one vector. `runner.curvature.verify(operator)` compares them with finite
    differences of gradients in float64, group by group and batch by batch.

    Examples
    --------
    >>> operator = ParameterOperator(nn.Linear(3, 2), nn.MSELoss(), [(torch.ones(4, 3), torch.zeros(4, 2))])
    >>> operator.shape, (operator @ torch.ones(8)).shape
    ((8, 8), torch.Size([8]))
    """

    noun = "group"
    piece = "batch"

    @together
    @full_precision()
    def __init__(
        self,
        module: nn.Module,
        loss: Loss | str,
        data: Iterable[Batch] | Batch,
        groups: GroupSpec | None = None,
        part: Part = "hessian",
        *,
        samples: int | None = None,
        seed: int = 0,
        likelihood: Likelihood | None = None,
        output: Pick = None,
        batch_dim: int = 0,
        shared: Sequence[str] = (),
        memory_budget: int = MEMORY_BUDGET,
        check: bool = True,
        progress: Callable[[int, int], None] | None = None,
        process_group: Any = None,
    ) -> None:
        self.processes = Processes(process_group)
        _check_part(part, samples, likelihood)
        if not isinstance(module, nn.Module):
            raise MeasurementError(f"expected an nn.Module, found {type(module).__name__}")
        self._given = module
        self.module, shares = gathered(unwrapped(module))
        devices_of(reachable(self.module))
        check_evaluation(self.module, mixing=False)
        for name, m in self.module.named_modules():
            if getattr(m, "max_norm", None) is not None:
                raise MeasurementError(
                    f"module {name!r} rescales its weights when it is called: set max_norm=None"
                )
        self.loss: Any = TORCH.get(loss, loss) if isinstance(loss, str) else loss
        if not callable(self.loss) or isinstance(self.loss, type):
            raise MeasurementError(
                f"expected a loss(output, target) or one of {list(TORCH)}, found {loss!r}"
            )
        self.model = Model(self.module, self.loss, output)
        self.part, self.samples, self.seed, self.likelihood = part, samples, seed, likelihood
        self.layout: Layout = layout(self.module, groups)
        self.groups, self.nodes = self.layout.groups, tuple(self.layout.groups)
        self.sizes = {g: s.stop - s.start for g, s in self.groups.items()}
        tensors = list(self.layout.parameters.values())
        self.dtype, self.device = tensors[0].dtype, tensors[0].device
        for t in tensors:
            if t.device != self.device:
                raise MeasurementError(
                    f"parameters are on {self.device} and {t.device}: move the module to one device"
                )
            self.dtype = torch.promote_types(self.dtype, t.dtype)
        self.progress = progress
        self._leaves: Named = {
            k: p.detach().requires_grad_() for k, p in self.layout.parameters.items()
        }
        self._fingerprint = Fingerprint(self.module, self.loss, **shares)
        self._fingerprint.volatile = self.model.volatile
        self._budget, self._unchecked = memory_budget, False
        self.batches = Batches(data, Rows(batch_dim, names_of(shared)), memory_budget // 4)
        self.batches.rows = self._masks_apart(self._indices_in_range(self.batches.rows))
        self.data, self.examples = self.batches.data, self.batches.examples
        self.graphs = Graphs(
            self.model, self._leaves, self.batches.rows, part, samples, seed, likelihood
        )
        refuse_autocast((self.device.type,))
        self.planned = self.graphs.planned(self.batches, memory_budget, check)
        self.batches.chunk, self.graphs.keep = self.planned.chunk, self.planned.keep
        self._weigh()
        if check:
            self._check()
        self._join()

    # ------------------------------------------------------------------ products

    def apply(self, directions: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The products with k directions, (k, n_g) for each group; absent groups are zero."""
        return self.rows(directions, self.nodes)

    def rows(self, directions: Mapping[str, Tensor], nodes: Sequence[str]) -> dict[str, Tensor]:
        """What `apply` gives, for these groups alone."""
        self.require(nodes)
        count = self.direction_count(directions)
        rows = torch.zeros(count, self.shape[0], dtype=self.dtype, device=self.device)
        for g, r in directions.items():
            rows[:, self.groups[g]] = r.to(rows)
        images = self._products(rows, tuple(directions), tuple(nodes))
        return {g: images[:, self.groups[g]] for g in nodes}

    def matvec(self, z: Tensor) -> Tensor:
        """H z of z (n,) or k columns (n, k), one column after the other. Raises ValueError for another shape."""
        rows = columns_of(z, self.shape[0]).mT
        images = self._products(rows.detach().to(self.device, self.dtype), self.nodes, self.nodes)
        return images.mT if z.dim() == 2 else images[0]

    rmatvec = matvec

    def column(
        self, group: str, z: Tensor, groups: Sequence[str] | None = None
    ) -> dict[str, Tensor]:
        """H[g, group] z for every group g (or `groups`) from one product; z: (n_group,)."""
        self.require([group])
        found = self.rows({group: z.unsqueeze(0)}, self.nodes if groups is None else tuple(groups))
        return {g: rows[0] for g, rows in found.items()}

    def with_part(self, part: Part) -> ParameterOperator:
        """The same module, loss, data and groups with another part; not checked again."""
        groups = {g: list(names) for g, names in self.layout.members.items()}
        rows = self.batches.rows
        return ParameterOperator(
            self._given, self.loss, self.data, groups, part, samples=self.samples if part == "fisher" else None,
            seed=self.seed, likelihood=self.likelihood if part == "fisher" else None, output=self.model.pick,
            batch_dim=rows.batch_dim, shared=rows.shared, memory_budget=self._budget, check=False,
            progress=self.progress, process_group=self.processes.group,
        )  # fmt: skip

    def single(self, example: int) -> ParameterOperator:
        """The operator of one batch of this process alone."""
        return self._twin([self.batches.batch(example)], self.model, self._leaves, None)

    def in_float64(self) -> ParameterOperator:
        """The operator of the same module in float64."""
        return self._wide(self.processes.group)

    def _wide(self, process_group: Any) -> ParameterOperator:
        model = self.model.double()
        leaves: Named = {k: widen(p.detach()).requires_grad_() for k, p in self._leaves.items()}
        data = [widen_tree((batch[0], batch[1])) for batch in self.data]
        twin = self._twin(data, model, leaves, process_group)
        twin.dtype = torch.float64
        return twin

    def reference(self) -> ParameterDifferences:
        """What the products must agree with: gradients of a float64 copy of the module, batch by batch."""
        if self.processes.size > 1:
            raise MeasurementError(
                "batches of other processes cannot be compared here: verify an operator without process_group in each"
            )
        return ParameterDifferences(self)

    def _twin(
        self, data: Iterable[Batch], model: Model, leaves: Named, process_group: Any
    ) -> ParameterOperator:
        """The same operator of other data, or in another precision: neither planned nor checked again."""
        twin = copy.copy(self)
        twin.processes = Processes(process_group)
        rows, chunk = self.batches.rows, self.batches.chunk
        twin.model, twin._leaves, twin.batches = model, leaves, Batches(data, rows, self._budget)
        twin.data, twin.examples, twin.batches.chunk = (
            twin.batches.data,
            twin.batches.examples,
            chunk,
        )
        twin.graphs = Graphs(
            model, leaves, rows, self.part, self.samples, self.seed, self.likelihood
        )
        twin.progress, twin.products = None, 0
        twin._weigh()
        twin._join()
        return twin

    def _weigh(self) -> None:
        """Labels that are ignored, and weights of classes, make the mean of all batches one over their labels."""
        rowwise = self.part == "empirical_fisher"
        if self._several() or rowwise:
            classes = self.part != "fisher" or self.likelihood is None  # else rows count equally
            self.batches.count_labels(lambda piece: self.model.labels(self._leaves, piece, classes))
        if self.batches.own.uneven and math.isnan(self.batches.own.labels):
            raise MeasurementError(
                "the loss is several means over labels, some ignored or with weights of classes, of different numbers "
                f"in batch {self.batches.uneven}: use one batch that fits memory_budget"
            )
        if rowwise and self.batches.own.uneven:
            raise MeasurementError(
                "an empirical Fisher matrix is a mean over the examples, and this loss ignores labels or weighs "
                "classes: use a plain mean, or part='fisher'"
            )
        self.batches.weigh([self.batches.own])

    def _several(self) -> bool:
        """Whether the matrix is a mean over several batches, here or in other processes."""
        return len(self.batches) > 1 or self.processes.size > 1

    def _join(self) -> None:
        """The shares of batches among those of all processes."""
        same = {"part": self.part, "groups": str(self.groups), **self._fingerprint.sums}
        self.batches.weigh(self.processes.gather(self.batches.own, same), self.processes.rank)
        self.examples, self.graphs.before = self.batches.examples, self.batches.before

    def drawn(self, vectors: Tensor) -> Tensor:
        """Random vectors: those of the first process."""
        return self.processes.first(vectors.to(self.device))

    def gradient(self) -> Tensor:
        """The gradient of the mean loss, (n,)."""
        return self.processes.sum(
            self._gradient, torch.zeros(self.shape[0], dtype=self.dtype, device=self.device)
        )

    def _gradient(self) -> Tensor:
        self._refuse_changes()
        total = torch.zeros(self.shape[0], dtype=self.dtype, device=self.device)
        for _, batch, weight in self.batches.pieces():
            with self.model.differentiable():
                value = self.model.value(self._leaves, batch)
                grads = torch.autograd.grad(
                    value, list(self._leaves.values()), materialize_grads=True
                )
            total += weight * torch.cat([g.flatten() for g in grads])
        if self._unchecked:
            _refuse_infinite(total)
        return total

    def _refuse_changes(self) -> None:
        self._fingerprint.refuse_changes()
        self.batches.refuse_changes_in_place()

    def _products(self, rows: Tensor, sources: tuple[str, ...], targets: tuple[str, ...]) -> Tensor:
        """H restricted to the rows of `targets` and the columns of `sources`, times each of the vectors, (k, n)."""

        def products() -> Tensor:
            with ONE_AT_A_TIME, full_precision():
                self._refuse_changes()
                refuse_autocast((self.device.type,))
                images = [self._product(row, sources, targets) for row in rows]
                if self._unchecked:
                    _refuse_infinite(images[0])
                    self._unchecked = False
            return torch.stack(images) if len(images) > 1 else images[0].unsqueeze(0)

        return self.processes.sum(products, rows)

    def _product(self, v: Tensor, sources: tuple[str, ...], targets: tuple[str, ...]) -> Tensor:
        """What the batches of this process add to one product."""
        with torch.inference_mode(False):
            pieces = self.graphs.split(differentiable_copy(v))
            total = torch.empty(0, dtype=self.dtype, device=self.device)
        directions = {name: pieces[name] for g in sources for name in self.layout.members[g]}
        wanted = [name for g in targets for name in self.layout.members[g]]
        parts: Named = {}
        new = set(self._leaves)

        def take(weight: float, name: str, image: Tensor) -> None:
            if not parts:  # no earlier: making the first graph takes the most memory
                parts.update(self.graphs.views(total.resize_(self.shape[0])))
            if name in new:
                new.remove(name)
                torch.mul(image, weight, out=parts[name])
            else:
                parts[name].add_(image, alpha=weight)

        for done, (place, batch, weight) in enumerate(self.batches.pieces()):
            self.graphs.of(place, batch).product(directions, wanted, partial(take, weight))
            if self.progress is not None:
                self.progress(done + 1, len(self.batches))
        self.products += 1
        if not parts:
            return total.new_zeros(self.shape[0])
        for name in new:
            parts[name].zero_()
        return total

    # ------------------------------------------------------------------ checks

    def _indices_in_range(self, rows: Rows) -> Rows:
        """The rows, as a whole where the last example alone has an index out of range. On a GPU such an index ends the
        process, so that the example is tried on the processor."""
        batch: Any = next(iter(self.batches.data)) if self.device.type == "cuda" else ()
        if all(not isinstance(t, Tensor) or t.is_floating_point() for t in tree_leaves(batch)):
            return rows
        try:
            last = tree_map(
                lambda t: t.cpu() if isinstance(t, Tensor) else t,
                rows.cut(rows.spread(batch, 2), 1)[-1],
            )
            Model(self.module, self.loss, self.model.pick, to=Tensor.cpu).loss_alone({}, last)
        except Exception as error:  # of the user's code
            if re.search(r"(?<!imension )out of (range|bounds)|num_classes|indices in", str(error)):
                return replace(rows, whole=first_line(error))
        return rows

    def _masks_apart(self, rows: Rows) -> Rows:
        """The rows, where a square input with as many rows as there are examples is a mask for all of them: where the
        module does not run on a part of the batch otherwise."""
        batch = next(iter(self.batches.data))
        square = rows.ambiguous(batch)
        if not square:
            return rows
        try:
            self.model.loss_alone(self._leaves, rows.cut(batch, max(1, rows.count(batch) // 2))[0])
        except Exception:  # of the user's code
            return replace(rows, shared=(*rows.shared, *square))
        return rows

    def _check(self) -> None:
        """A loss that is a mean, finite values, the same data and products twice, and symmetry."""
        if self.processes.size > 1 and self.batches.own.uneven and self.batches.own.labels == 0:
            return  # all labels here are ignored: the loss is NaN, and has no share
        if (
            self.examples > 1 and getattr(self.loss, "reduction", "") == "sum"
        ):  # a sum of zeros is their mean
            raise MeasurementError(SUM)
        rowwise = self.part == "empirical_fisher"
        needs = ""
        if self._several():
            needs = "use one batch that fits memory_budget and part='hessian', or a plain mean over the examples"
        elif self.part == "empirical_fisher":
            needs = "an empirical Fisher matrix is a mean over the examples: use a plain mean, or part='hessian'"
        few = self.batches.rows.count(self.graphs.few) == self.batches.counts[0]
        rows, chunk, before = self.batches.rows, self.batches.chunk, None
        for i, batch in enumerate(self.data):
            if not any(self.batches.pieces_of(i, batch)):
                continue  # all labels are ignored, the loss is NaN, and has no share
            sample = self._checked((batch[0], batch[1]))
            if needs:
                rows.refuse_one_row(sample)
            known = (
                self.graphs.first_loss
                if few and i == 0 and isinstance(self.data, Sequence)
                else None
            )
            if before is None or chunk is not None or i == self.batches.uneven:
                check_loss(self.model, self._leaves, rows, sample, chunk, needs, rowwise, known)
            if before is not None:
                pair, value = self._two(before, sample)
                check_loss(self.model, self._leaves, rows, pair, None, needs, rowwise, value)
            before = sample
        skew = self.graphs.skew
        if skew > skewed(self.dtype):  # of a few that a network fits: rounding, perhaps
            skew = min(skew, self.graphs.skew_of(next(self.batches.pieces())[1]))
        _refuse_infinite(torch.tensor(skew, device="cpu"))
        self._unchecked = not (few and len(self.batches) == 1)
        if skew > skewed(self.dtype) and self.graphs.random():
            raise MeasurementError(
                "two products with the same vector differ: the module is random. Put it in evaluation mode"
            )
        if skew > (1e-6 if self.dtype == torch.float64 else 1e-2) and not self._rounding():
            raise MeasurementError(
                "the products are not those of a symmetric matrix: some operation of the module has a wrong second "
                "derivative. verify(ParameterOperator(..., check=False)) names the group of parameters"
            )
        self.batches.refuse_changes()

    def _two(self, before: Batch, sample: Batch) -> tuple[Batch, float | None]:
        """Half of each batch as one, and its loss; where they do not go together, the second, an only example twice."""
        rows = self.batches.rows
        halves = [rows.spread(b, (rows.count(b) + 1) // 2) for b in (before, sample)]
        for make in (
            lambda: rows.joined(*halves),
            lambda: rows.spread(sample, max(2, rows.count(sample))),
        ):
            with suppress(Exception), self.model.differentiable(graph=False):
                pair = make()
                output, value = self.model.output_and_loss(self._leaves, pair)
                refuse_broadcast(self.loss, output, pair[1])
                return pair, float(value)
        return sample, None

    def _rounding(self) -> bool:
        """Whether the products of few examples are symmetric in float64: those of examples that a network fits up to
        the rounding of its loss are rounding themselves."""
        if self.dtype == torch.float64:
            return False
        try:
            with Widened():
                return self._wide(None).graphs.skew_of(widen_tree(self.graphs.few)) <= 1e-6
        except (RuntimeError, ValueError):  # it does not run in float64
            return False

    def _checked(self, batch: Batch) -> Batch:
        """What the loss is checked on: the batch where one evaluation of it fits the budget, else as many examples as
        do, spread over all of it, since a batch may be ordered by its classes."""
        rows, chunk = self.batches.rows, self.batches.chunk
        if chunk is None:
            return batch
        few, count = few_examples(rows, batch, self.graphs.loss_of, 8), rows.count(batch)
        each = max(allocations(lambda: self.graphs.loss_of(few)), default=0) / rows.count(few)
        most = max(2 * chunk, 8, int(self._budget / (UNSEEN * max(1.0, each))))
        if most >= count or rows.count(few) == count:
            return batch
        return rows.spread(batch, most)


def _refuse_infinite(t: Tensor) -> None:
    if not (t.sum().isfinite() or t.isfinite().all()):  # a sum is quicker, and may be too large
        raise MeasurementError(
            "a product is not finite: check the weights and the data for NaN and infinity"
        )


def _check_part(part: str, samples: int | None, likelihood: str | None) -> None:
    if part not in get_args(Part):
        raise MeasurementError(f"part must be one of {', '.join(get_args(Part))}, got {part!r}")
    if samples is not None and (part != "fisher" or samples < 1):
        raise MeasurementError(
            f'samples is for part="fisher" and at least 1, got {samples} with part={part!r}'
        )
    if likelihood is not None and (part != "fisher" or likelihood not in get_args(Likelihood)):
        raise MeasurementError(
            f'likelihood is for part="fisher" and one of {get_args(Likelihood)}, got {likelihood!r} with part={part!r}'
        )
