"""The Hessian, Gauss-Newton or Fisher matrix of a module's mean loss with respect to its parameters, as an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from runner.curvature.graph.checks import MEMORY_BUDGET
from runner.curvature.parameters.groups import GroupSpec, Layout, layout
from runner.curvature.parameters.output import (
    LossHessian,
    OuterProducts,
    OutputCurvature,
    example_gradients,
    known_loss,
    sampled_gradients,
)
from runner.curvature.parameters.products import BatchFactored, BatchHessian, Named, call, differentiable

Part = Literal["hessian", "gauss_newton", "fisher", "empirical_fisher"]
Batch = tuple[Any, Any]
Loss = Callable[[Any, Any], Tensor]

_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


class ParameterOperator:
    """The symmetric matrix of `part` over the parameters of `groups`, shape (n, n), of the mean loss over `data`.

    module: unmodified; module(input) is called as module(*input) for a tuple and module(**input) for a dict.
    loss(output, target): a scalar, the mean over the examples of the batch, as torch's losses. data: a list of (input,
    target), or a DataLoader that gives the same batches whenever it is read; batches weigh by their number of examples.
    groups: {name: pattern or patterns} or patterns of modules or parameters (default: one group for each module with
    parameters); `groups[name]` is the slice of the flat vector, in which every parameter lies row by row.

    part: "hessian"; "gauss_newton" J^T (d2 L / df2) J; "fisher", exact for the losses of torch for which it is the
    Gauss-Newton matrix (cross-entropy, binary cross-entropy with logits, mean squared error), or with `samples` drawn
    targets for each example, fixed by `seed`; "empirical_fisher", the mean of g g^T of the examples' gradients g.

    memory_budget: bytes that graphs kept between products may take: all batches' graphs are kept where they fit (a
    product then costs about two gradients, else three), and batches whose own graph does not fit are split.
    progress(done, batches) is called after every batch of a product. `products` counts products with one vector.

    Raises ValueError for BatchNorm or dropout in training mode, a loss that is not a mean, data that differ from one
    reading to the next, a pattern that matches nothing, an unknown Fisher matrix, and when weights have changed since.

    >>> operator = ParameterOperator(nn.Linear(3, 2), nn.MSELoss(), [(torch.ones(4, 3), torch.zeros(4, 2))])
    >>> operator.shape, (operator @ torch.ones(8)).shape
    ((8, 8), torch.Size([8]))
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        data: Iterable[Batch],
        groups: GroupSpec | None = None,
        part: Part = "hessian",
        *,
        samples: int | None = None,
        seed: int = 0,
        memory_budget: int = MEMORY_BUDGET,
        check: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        if part not in get_args(Part):
            raise ValueError(f"part must be one of {', '.join(get_args(Part))}, got {part!r}")
        if samples is not None and (part != "fisher" or samples < 1):
            raise ValueError(f'samples is for part="fisher" and at least 1, got {samples} with part={part!r}')
        if part == "fisher" and known_loss(loss) is None:
            raise ValueError(
                "the Fisher matrix is known for torch's cross_entropy, binary_cross_entropy_with_logits and mse_loss "
                f"(mean, no weights), not for {loss!r}: ask for gauss_newton or empirical_fisher"
            )
        check_modes(module)
        self.module, self.loss, self.part, self.samples, self.seed = module, loss, part, samples, seed
        self.layout: Layout = layout(module, groups)
        self.groups, self.shape = self.layout.groups, (self.layout.size, self.layout.size)
        first = next(iter(self.layout.parameters.values()))
        self.dtype, self.device = first.dtype, first.device
        self.products, self.progress = 0, progress
        self._leaves: Named = {k: p.detach().requires_grad_() for k, p in self.layout.parameters.items()}
        self._stamps = self._state()
        self._budget = memory_budget
        self.data = data if isinstance(data, Sequence) else _kept(data, memory_budget // 4)
        self.examples, self._batches, self._chunk, self._keep = self._plan(memory_budget)
        self._graphs: dict[tuple[int, int], BatchHessian | BatchFactored] = {}
        if check:
            self._check()

    # ------------------------------------------------------------------ products

    def matvec(self, v: Tensor) -> Tensor:
        """H v of v (n,) or k columns (n, k), one column after the other. Raises ValueError for another shape."""
        if v.dim() not in (1, 2) or len(v) != self.shape[0]:
            raise ValueError(
                f"expected a vector ({self.shape[0]},) or columns ({self.shape[0]}, k), got {tuple(v.shape)}"
            )
        names = tuple(self.groups)
        if v.dim() == 1:
            return self._product(v, names, names)
        return torch.stack([self._product(column, names, names) for column in v.mT], 1)

    def __matmul__(self, v: Tensor) -> Tensor:
        return self.matvec(v)

    rmatvec = matvec

    def column(self, group: str, z: Tensor, groups: Sequence[str] | None = None) -> dict[str, Tensor]:
        """H[g, group] z for every group g (or `groups`) from one product; z: (n_group,)."""
        wanted = tuple(self.groups if groups is None else groups)
        full = torch.zeros(self.shape[0], dtype=self.dtype, device=self.device)
        full[self.groups[self._known(group)]] = z.to(full)
        image = self._product(full, (group,), tuple(self._known(g) for g in wanted))
        return {g: image[self.groups[g]] for g in wanted}

    def block(self, g: str, h: str) -> ParameterBlock:
        """The block H[g, h]."""
        return ParameterBlock(self, self._known(g), self._known(h))

    def with_part(self, part: Part) -> ParameterOperator:
        """The same module, loss, data and groups with another part; not checked again."""
        groups = {g: list(names) for g, names in self.layout.members.items()}
        return ParameterOperator(
            self.module, self.loss, self.data, groups, part, memory_budget=self._budget, check=False,
            progress=self.progress,
        )  # fmt: skip

    def dense(self) -> Tensor:
        """The matrix, (n, n), from n products."""
        return self.matvec(torch.eye(self.shape[0], dtype=self.dtype, device=self.device))

    def gradient(self) -> Tensor:
        """The gradient of the mean loss, (n,)."""
        self._check_weights()
        total = torch.zeros(self.shape[0], dtype=self.dtype, device=self.device)
        for _, batch, weight in self._pieces():
            with differentiable():
                value = self.loss(call(self.module, self._leaves, batch[0]), batch[1])
                grads = torch.autograd.grad(value, list(self._leaves.values()), allow_unused=True)
            flat = [torch.zeros_like(p) if g is None else g for g, p in zip(grads, self._leaves.values(), strict=True)]
            total += weight * torch.cat([g.flatten() for g in flat])
        return total

    def _product(self, v: Tensor, sources: tuple[str, ...], targets: tuple[str, ...]) -> Tensor:
        """H restricted to the rows of `targets` and the columns of `sources`, times v."""
        self._check_weights()
        directions = self._split(v.to(self.device, self.dtype), sources)
        wanted = [name for g in targets for name in self.layout.members[g]]
        total: Named = {}
        for done, (place, batch, weight) in enumerate(self._pieces()):
            for k, image in self._graph(place, batch).product(directions, wanted).items():
                if k in total:
                    total[k].add_(image, alpha=weight)
                else:
                    total[k] = image if weight == 1 else weight * image
            if self.progress is not None:
                self.progress(done + 1, self._batches)
        self.products += 1
        return torch.cat([
            total[k].flatten() if k in total else torch.zeros(p.numel(), dtype=p.dtype, device=p.device)
            for k, p in self._leaves.items()
        ])  # fmt: skip

    def _split(self, v: Tensor, groups: tuple[str, ...]) -> Named:
        names = {name for g in groups for name in self.layout.members[g]}
        sizes = [p.numel() for p in self._leaves.values()]
        pieces = zip(self._leaves.items(), v.split(sizes), strict=True)
        return {k: piece.view_as(p) for (k, p), piece in pieces if k in names}

    def _known(self, group: str) -> str:
        if group not in self.groups:
            raise ValueError(f"no group {group!r}: there are {list(self.groups)}")
        return group

    # ------------------------------------------------------------------ batches

    def _pieces(self) -> Iterator[tuple[tuple[int, int], Batch, float]]:
        """((batch, chunk), input and target, weight) of every piece of the data."""
        for i, batch in enumerate(self.data):
            for j, piece in enumerate(_chunks(batch, self._chunk)):
                yield (i, j), piece, _examples(piece) / self.examples

    def _graph(self, place: tuple[int, int], batch: Batch) -> BatchHessian | BatchFactored:
        if place in self._graphs:
            return self._graphs[place]
        graph = self._new_graph(place, batch, self._keep)
        if self._keep:
            self._graphs[place] = graph
        return graph

    def _new_graph(self, place: tuple[int, int], batch: Batch, keep: bool) -> BatchHessian | BatchFactored:
        if self.part == "hessian":
            return BatchHessian(self.module, self.loss, batch, self._leaves, keep)

        def curvature(output: Tensor, target: Any) -> OutputCurvature:
            if self.part == "empirical_fisher":
                return OuterProducts(example_gradients(self.loss, output, target).unsqueeze(0))
            kind = known_loss(self.loss)
            if self.part == "fisher" and self.samples is not None and kind is not None:
                generator = torch.Generator().manual_seed(hash((self.seed, *place)) % 2**63)
                return OuterProducts(sampled_gradients(kind, output, self.samples, generator))
            return LossHessian(self.loss, output, target)

        return BatchFactored(self.module, batch, self._leaves, keep, curvature)

    def _plan(self, budget: int) -> tuple[int, int, int | None, bool]:
        """Number of examples, of pieces, the largest piece (None: whole batches), and whether graphs are kept."""
        counts = [_examples(batch) for batch in self.data]
        if not counts or min(counts) == 0:
            raise ValueError("the data are empty: expected at least one batch with at least one example")
        first = next(iter(self.data))
        with torch.no_grad():
            value = self._loss(first)
        if not isinstance(value, Tensor) or value.dim() != 0:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"the loss returned {shape}: expected a scalar tensor, the mean of the batch")
        need = max(1, self._saved_bytes(first) * max(counts) // counts[0])
        chunk = None if need <= budget else max(1, max(counts) * budget // need)
        pieces = sum(len(_chunks(batch, chunk)) for batch in self.data)
        return sum(counts), pieces, chunk, need * sum(counts) // max(counts) <= budget

    def _saved_bytes(self, batch: Batch) -> int:
        """Bytes that one piece's graph keeps; each storage counts once, parameters not at all."""
        seen = {p.untyped_storage().data_ptr() for p in self.module.parameters()}
        total = 0

        def pack(t: Tensor) -> Tensor:
            nonlocal total
            if t.untyped_storage().data_ptr() not in seen:
                seen.add(t.untyped_storage().data_ptr())
                total += t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            graph = self._new_graph((0, 0), batch, True)
            graph.graph()
        return total

    # ------------------------------------------------------------------ checks

    def _check(self) -> None:
        """A loss that is a mean, and the same product twice."""
        batch = next(iter(self.data))
        count = _examples(batch)
        with torch.no_grad():
            whole, again = self._loss(batch), self._loss(batch)
            if abs(float(whole - again)) > 1e-4 * abs(float(whole)):
                raise ValueError("the loss is random: two evaluations differ. Call .eval() and remove the randomness")
            halves = _chunks(batch, max(1, (count + 1) // 2))
            if len(halves) == 2:
                sizes = [_examples(half) for half in halves]
                parts = [float(self._loss(half)) for half in halves]
                mean = sum(n * p for n, p in zip(sizes, parts, strict=True)) / count
                tolerance = 1e-4 if self.dtype != torch.float64 else 1e-8
                scale = max(map(abs, [*parts, float(whole)]))
                if abs(float(whole) - sum(parts)) <= tolerance * scale and abs(mean - float(whole)) > tolerance * scale:
                    raise ValueError("the loss is a sum over the examples: use reduction='mean'")
                if abs(mean - float(whole)) > tolerance * scale and (self._batches > 1 or self.part != "hessian"):
                    raise ValueError(
                        "the loss of the batch is not the mean of its parts' losses (weights, or examples that depend "
                        "on each other): use one batch and part='hessian', or a plain mean"
                    )
        generator = torch.Generator().manual_seed(0)
        v = torch.randn(self.shape[0], generator=generator).to(self.device, self.dtype)
        one, two = self.matvec(v), self.matvec(v)
        self.products = 0
        if not torch.isfinite(one).all():
            raise ValueError("a product is not finite: check the weights and the data for NaN and infinity")
        if float((one - two).norm()) > 1e-3 * float(one.norm()):
            raise ValueError(
                "two products with the same vector differ: the data or the module are random. Give a list of batches "
                "or a DataLoader without augmentation, and put the module in evaluation mode"
            )

    def _loss(self, batch: Batch) -> Tensor:
        return self.loss(call(self.module, self._leaves, batch[0]), batch[1])

    def _state(self) -> list[tuple[int, int]]:
        tensors = [*self.module.parameters(), *self.module.buffers()]
        return [(t.data_ptr(), t._version) for t in tensors]

    def _check_weights(self) -> None:
        if self._state() != self._stamps:
            raise ValueError(
                "the module's parameters or buffers changed since this operator was built: build a new one from the "
                "module as it is now"
            )


@dataclass(frozen=True)
class ParameterBlock:
    """One block H[g, h], shape (n_g, n_h), as products."""

    operator: ParameterOperator
    g: str
    h: str

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = (self.operator.groups[name] for name in (self.g, self.h))
        return rows.stop - rows.start, columns.stop - columns.start

    @property
    def dtype(self) -> torch.dtype:
        return self.operator.dtype

    @property
    def device(self) -> torch.device:
        return self.operator.device

    @property
    def adjoint(self) -> ParameterBlock:
        """H[g, h]^T = H[h, g]."""
        return ParameterBlock(self.operator, self.h, self.g)

    def matvec(self, z: Tensor) -> Tensor:
        """H[g, h] z: z (n_h,) or columns (n_h, k)."""
        columns = z.unsqueeze(1) if z.dim() == 1 else z
        found = torch.stack([self.operator.column(self.h, c, [self.g])[self.g] for c in columns.mT], 1)
        return found.squeeze(1) if z.dim() == 1 else found

    def __matmul__(self, z: Tensor) -> Tensor:
        return self.matvec(z)

    def dense(self) -> Tensor:
        """The block from min(n_g, n_h) products."""
        rows, columns = self.shape
        if rows < columns:
            return self.adjoint.dense().mT
        return self.matvec(torch.eye(columns, dtype=self.dtype, device=self.device))


def check_modes(module: nn.Module) -> None:
    """Raises ValueError for BatchNorm and dropout in training mode: products would move statistics, or be random."""
    for path, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.training:
            raise ValueError(f"module {path!r}: {type(part).__name__} is in training mode; call .eval() on the module")
        if isinstance(part, _DROPOUT) and part.training and part.p > 0:
            raise ValueError(f"module {path!r}: {type(part).__name__} is in training mode; call .eval() on the module")


def _examples(batch: Batch) -> int:
    """Examples of a batch: the length of its target, or of the first tensor of its input."""
    target, given = batch[1], batch[0]
    if isinstance(target, Tensor) and target.dim() > 0:
        return len(target)
    tensors = given.values() if isinstance(given, Mapping) else given if isinstance(given, tuple | list) else [given]
    found = next((t for t in tensors if isinstance(t, Tensor) and t.dim() > 0), None)
    if found is None:
        raise ValueError("a batch is (input, target) with tensors whose first dimension counts the examples")
    return len(found)


def _chunks(batch: Batch, size: int | None) -> list[Batch]:
    """The batch cut along the first dimension of every tensor that has one entry for each example."""
    count = _examples(batch)
    if size is None or size >= count:
        return [batch]

    def cut(value: Any, part: slice) -> Any:
        if isinstance(value, Tensor):
            return value[part] if value.dim() > 0 and len(value) == count else value
        if isinstance(value, Mapping):
            return {k: cut(v, part) for k, v in value.items()}
        return type(value)(cut(v, part) for v in value) if isinstance(value, tuple | list) else value

    parts = [slice(start, start + size) for start in range(0, count, size)]
    return [(cut(batch[0], part), cut(batch[1], part)) for part in parts]


def _kept(data: Iterable[Batch], budget: int) -> Iterable[Batch]:
    """The batches as a list where they fit the budget, which reads a DataLoader once; else the loader itself."""
    found, used = [], 0
    for batch in data:
        found.append((batch[0], batch[1]))
        used += sum(t.numel() * t.element_size() for t in (batch[0], batch[1]) if isinstance(t, Tensor))
        if used > budget:
            if iter(data) is data:
                raise ValueError("data can be read only once and is too large to keep: give a list or a DataLoader")
            return data
    return found
