"""What products of an operator are taken from: a graph for each piece of a batch, kept where all fit the memory.

How many examples go through a product at once is predicted from what fewer examples take. The peak of a product is a
convex function of its number of examples (the largest of several sums of parameters' gradients, which do not depend on
it, and activations, which grow with it): a line through two sizes is too low beyond them. Sizes are therefore measured
in steps of STEP as far as the room allows, and an example never counts for less than what it adds to the graph.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor

from runner.curvature.graph.errors import MeasurementError, batch_failure, explained
from runner.curvature.graph.state import refuse_draws
from runner.curvature.graph.tensors import tree_leaves
from runner.curvature.matrix_free.peak import allocations
from runner.curvature.parameters.batches import Batch, Batches, Place, Rows, first_look
from runner.curvature.parameters.likelihood import ExactFisher, Likelihood, SampledFisher, natural
from runner.curvature.parameters.model import Model, Named
from runner.curvature.parameters.products import (
    BatchFactored,
    BatchHessian,
    LossHessian,
    OuterProducts,
    Output,
    OutputCurvature,
    example_gradients,
)

Part = Literal["hessian", "gauss_newton", "fisher", "empirical_fisher"]
Graph = BatchHessian | BatchFactored


class Graphs:
    """Graphs of `part` over the parameters `leaves`, by their place in the data.

    keep: whether they stay for the next product. samples, seed: of a Fisher matrix whose targets are drawn.
    likelihood: the distribution of the targets, where the user names it.
    """

    def __init__(
        self,
        model: Model,
        leaves: Named,
        rows: Rows,
        part: Part,
        samples: int | None = None,
        seed: int = 0,
        likelihood: Likelihood | None = None,
    ) -> None:
        self.model, self.leaves, self.rows = model, leaves, rows
        self.part, self.samples, self.seed, self.likelihood = part, samples, seed, likelihood
        self.keep, self.before = False, 0
        self._forwards: bool | None = None
        self.skew = 0.0
        """How far two products with few examples are from those of one symmetric matrix, relative to their size."""
        self._kept: dict[Place, Graph] = {}

    def views(self, v: Tensor) -> Named:
        """The part of a flat vector (n,) that belongs to each parameter, in its shape."""
        pieces = v.split([p.numel() for p in self.leaves.values()])
        return {
            k: piece.view_as(p) for (k, p), piece in zip(self.leaves.items(), pieces, strict=True)
        }

    def split(self, v: Tensor) -> Named:
        """A flat vector (n,) as one tensor for each parameter, in its dtype."""
        return {k: piece.to(self.leaves[k].dtype) for k, piece in self.views(v).items()}

    def loss_of(self, batch: Batch) -> Tensor:
        """The loss of a batch, without a graph."""
        return self.model.loss_alone(self.leaves, batch)

    def of(self, place: Place, batch: Batch) -> Graph:
        """The graph of the piece `batch` at that place, made when it is asked for the first time."""
        if place in self._kept:
            return self._kept[place]
        graph = self.new(place, batch, self.keep)
        if self.keep:
            self._kept[place] = graph
        elif isinstance(graph, BatchFactored):
            graph.forward = self._forward(batch)
        return graph

    def _forward(self, batch: Batch) -> bool:
        """Whether tangents are taken forwards where no graph is kept, found with few examples of this batch when it is
        asked for the first time: it has to see the same function, and does not stop where torch.no_grad does."""
        if self._forwards is None:
            few = few_examples(self.rows, batch, self.loss_of)
            v, self._forwards = self._directions()[0], True
            with contextlib.suppress(
                RuntimeError, MeasurementError
            ):  # no second derivative: it is the only way
                one, two = self.new((0, 0), few, False), self.new((0, 0), few, True)
                images = [self.product(graph, v) for graph in (one, two)]
                self._forwards = cast(BatchFactored, one).forward and not _differ(
                    images[0], images[1], 1e-2
                )
        return self._forwards

    def product(self, graph: Graph, v: Tensor) -> Named:
        """The product of v with the matrix of a graph."""
        found: Named = {}
        graph.product(self.split(v), list(self.leaves), found.__setitem__)
        return found

    def image(self, batch: Batch, v: Tensor) -> Named:
        """The product of v with the matrix of one batch."""
        return self.product(self.new((0, 0), batch, True), v)

    def random(self) -> bool:
        """Whether two products with the same vector differ."""
        one, two = (self.image(self.few, self._directions()[0]) for _ in range(2))
        return _differ(two, one, 1e-3)

    def _directions(self) -> tuple[Tensor, Tensor]:
        """Two random flat vectors, the same at every call; long ones repeat themselves, which is quicker."""
        like, size = next(iter(self.leaves.values())), sum(p.numel() for p in self.leaves.values())
        generator, period = torch.Generator().manual_seed(0), min(size, PERIOD)
        one, two = (
            torch.randn(period, generator=generator, device="cpu").to(like) for _ in range(2)
        )
        return one.repeat(-(-size // period))[:size], two.repeat(-(-size // period))[:size]

    def new(self, place: Place, batch: Batch, keep: bool) -> Graph:
        """A graph of its own."""
        if self.part == "hessian":
            return BatchHessian(self.model, batch, self.leaves, keep)

        def curvature(output: Any, tensor: Tensor) -> OutputCurvature:
            if self.part == "empirical_fisher":
                return OuterProducts(
                    example_gradients(output.value, tensor, batch[1], self.rows.count(batch))
                )
            if self.part == "gauss_newton":
                return LossHessian(output.value, tensor, batch[1])
            if self.samples is None:
                return ExactFisher(output, tensor)
            generator = torch.Generator().manual_seed(
                hash((self.seed, self.before + place[0], place[1])) % 2**63
            )
            return SampledFisher(output, tensor, self.samples, generator)

        def read(whole: Any) -> Output:
            return self.output(self.model, self.leaves, whole, batch)

        return BatchFactored(self.model, batch, self.leaves, keep, read, curvature)

    def output(self, model: Model, parameters: Named, whole: Any, batch: Batch) -> Output:
        """The tensor of the module's output that a factored matrix is taken of."""
        if self.part == "fisher":
            return natural(
                model, parameters, whole, batch[1], self.rows.count(batch), self.likelihood
            )
        return Output(model, parameters, whole, batch[1], self.rows.count(batch))

    def planned(self, batches: Batches, budget: int, check: bool) -> Plan:
        """What goes through the network at once, from products with few examples of the first batch."""
        first = next(iter(batches.data))
        rows, counts = self.rows, batches.counts
        with refuse_draws("the module or the loss"):
            few = few_examples(rows, first, self.loss_of)
        with explained(
            lambda error: batch_failure(tree_leaves(few[0]), tree_leaves(few[1]), error)
        ):
            self.first_loss = first_look(self.model, self.leaves, few)
        directions = self._directions()
        images: dict[bool, Named] = {}
        kept: list[Need] = []
        graphs: list[Graph] = []
        self.few = few

        def needs(keep: bool, room: float) -> Need:
            def measure(piece: Batch) -> Course:
                graph = self.new((0, 0), piece, keep)
                held: list[Named] = []
                make = graph.graph if keep else lambda: None
                found = course(make, lambda: held.append(self.product(graph, directions[not keep])))
                if keep not in images:
                    images[keep] = held[0]
                    graphs.append(graph)
                return found

            graphs.clear()
            whole = rows.count(few) == counts[0]  # it cannot be cut
            kept.append(
                Need(
                    lambda size: few if whole else rows.cut(first, size)[0],
                    measure,
                    counts[0],
                    room,
                )
            )
            return kept[-1]

        vectors = VECTORS * len(directions[0]) * directions[0].dtype.itemsize
        chosen = plan(needs, counts, vectors, budget)
        if check or not chosen.keep:
            self._compare(images, graphs[0], *directions)
        return chosen._replace(chunk=None) if rows.whole else chosen

    def _compare(self, images: dict[bool, Named], graph: Graph, one: Tensor, two: Tensor) -> None:
        """Finds `skew` from the products that `planned` has made of few examples. graph: that of the last one."""
        if False not in images:
            images[False] = self.product(graph, two)
        self.skew = self._skew(one, two, images[True], images[False])
        if self.skew > skewed(one.dtype):  # one forwards, perhaps
            self.skew = self.skew_of(self.few)

    def skew_of(self, batch: Batch) -> float:
        """`skew` of a batch."""
        one, two = self._directions()
        return self._skew(one, two, self.image(batch, one), self.image(batch, two))

    def _skew(self, one: Tensor, two: Tensor, first: Named, second: Named) -> float:
        """Of the images of two vectors."""
        return abs(_dot(self.split(two), first) - _dot(self.split(one), second)) / max(
            _norm(first), 1e-300
        )


def _dot(v: Named, images: Named) -> float:
    terms = [(t.flatten(), images[k].flatten()) for k, t in v.items()]
    wide = torch.promote_types(terms[0][0].dtype, torch.float32)
    return float(torch.stack([a.to(wide).dot(b.to(wide)) for a, b in terms]).double().sum())


def _norm(images: Named) -> float:
    return float(
        torch.stack(
            [torch.linalg.vector_norm(t, dtype=torch.float64) for t in images.values()]
        ).norm()
    )


def _differ(one: Named, two: Named, share: float) -> bool:
    return _norm({k: one[k] - t for k, t in two.items()}) > share * _norm(two)


PERIOD = 1_000_003
"""Random numbers that are drawn for a direction."""
FEW, STEP = 2, 4
"""Examples of the smallest product that is measured, and by how many times the next ones are larger."""
FAR = 3
"""Memory of a process over that of its tensors while they are watched: records lie between freed blocks."""
UNSEEN = 2.5
"""Memory of a process over that of its tensors: convolutions keep copies of their own, and freed blocks between others
are not given back (measured for products of a convnet: 1.6 to 3.3 in twenty processes, 2.4 in the middle)."""
VECTORS = 4
"""Vectors of all parameters next to a product's own, of which one is its result: the direction, and three that checks
and iterations hold."""


def skewed(dtype: torch.dtype) -> float:
    """The skew above which products are looked at more closely."""
    return 1e-6 if dtype == torch.float64 else 1e-3


class Course(NamedTuple):
    """Bytes of a product: at its peak, and between the making of its graph and the product."""

    peak: int
    kept: int


def course(graph: Callable[[], object], product: Callable[[], object]) -> Course:
    """Of one product, its graph made first (`graph` gives what holds it)."""
    held: list[object] = []
    made = allocations(lambda: held.append(graph()))
    kept = made[-1] if made else 0
    return Course(max([*made, *(kept + live for live in allocations(product))], default=0), kept)


class Need:
    """Bytes of a product by its number of examples. measure(piece) gives the course of a product with that piece.

    least: bytes that an example takes at least. room: bytes that measuring may take, except for FEW + 1 examples.
    """

    def __init__(
        self,
        pieces: Callable[[int], Batch],
        measure: Callable[[Batch], Course],
        widest: int,
        room: float = math.inf,
    ) -> None:
        self._pieces, self._measure, self.widest, self.least = pieces, measure, widest, 0.0
        self._found: dict[int, Course] = {}
        self._room = room
        self._add(min(FEW, widest))

    def refine(self) -> None:
        """Measures a second size. Before, bytes are those of the first one in proportion, which is never too little: a
        sum of parts that grow with the examples and parts that do not."""
        room, widest = self._room, self.widest
        fitting = FEW * room / max(1, self._found[min(FEW, widest)].peak)
        self._add(min(max(FEW + 1, int(min(STEP * FEW, fitting))), widest))

    def _add(self, size: int) -> None:
        if size not in self._found:
            self._found[size] = self._measure(self._pieces(size))

    def _line(self, kept: bool) -> tuple[float, float]:
        """(fixed, each) through the two largest sizes; in proportion where there is only one."""
        *before, (size, last) = sorted(self._found.items())
        if not before:
            return 0.0, last[kept] / size
        each = max(0.0, (last[kept] - before[-1][1][kept]) / (size - before[-1][0]))
        return max(0.0, last[kept] - each * size), each if kept else max(each, self.least)

    def kept(self, examples: int, pieces: int = 1) -> float:
        """What stays between two products of `examples` examples in so many pieces."""
        fixed, each = self._line(True)
        return fixed * pieces + each * examples

    def peak(self, examples: int) -> float:
        """Of a product of so many examples."""
        fixed, each = self._line(False)
        return fixed + each * examples

    def explore(self, examples: int, room: float) -> None:
        """Measures larger sizes up to `examples` while the next one is far from filling the room."""
        while (size := STEP * max(self._found)) < examples and FAR * self.peak(size) <= room:
            self._add(size)

    def most(self, room: float) -> int:
        """Examples whose product takes at most `room`, at least one, at most the widest batch."""
        fixed, each = self._line(False)
        if each == 0:
            return self.widest if fixed <= room else 1
        return max(1, min(self.widest, math.floor((room - fixed) / each)))


class Plan(NamedTuple):
    """chunk: examples of the largest piece (None: whole batches); keep: whether graphs are kept; bytes: the peak that
    is expected."""

    chunk: int | None
    keep: bool
    bytes: int


def few_examples(
    rows: Rows, batch: Batch, run: Callable[[Batch], object], size: int = FEW
) -> Batch:
    """A piece of `size` examples if `run` takes it, else the whole batch."""
    if rows.count(batch) <= size:
        return batch
    try:
        piece = rows.cut(batch, size)[0]
        run(piece)
    except Exception:  # of the user's code
        return batch
    return piece


def plan(
    needs: Callable[[bool, float], Need], counts: Sequence[int], vectors: int, budget: int
) -> Plan:
    """The plan for batches of `counts` examples; needs(keep, room) measures products with and without a kept graph."""
    widest, examples = max(counts), sum(counts)
    room = (budget - vectors) / UNSEEN
    need = needs(True, room)
    bound = need.kept(examples) + need.peak(widest) - need.kept(widest)
    if bound <= room:
        return Plan(None, True, int(UNSEEN * bound) + vectors)
    hopeless = need.peak(1) > room
    if not hopeless:
        need.refine()
    size = 0 if hopeless else widest if need.kept(examples) <= room else 0
    if size:
        need.explore(size, room)
    while size >= 1:
        pieces = sum(-(-count // size) for count in counts)
        total = need.kept(examples, pieces) + need.peak(size) - need.kept(size)
        if total <= room:
            return Plan(None if size == widest else size, True, int(UNSEEN * total) + vectors)
        size //= 2
    least, need = 0.0 if hopeless else need.kept(2) - need.kept(1), needs(False, room)
    need.least = least
    need.refine()
    need.explore(widest, room)
    size = need.most(room)
    total = need.peak(size)
    if total > room:
        warnings.warn(
            f"memory_budget is {budget / 2**20:.3g} MiB, and a product with one example at a time takes about "
            f"{(UNSEEN * total + vectors) / 2**20:.3g} MiB: it is exceeded. Raise memory_budget, or use fewer groups "
            "of a network with fewer parameters",
            RuntimeWarning,
            stacklevel=6,
        )
    return Plan(None if size == widest else size, False, int(UNSEEN * total) + vectors)
