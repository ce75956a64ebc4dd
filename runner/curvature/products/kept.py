"""Graphs of all pieces of the data: planned for the memory, made, kept where they fit, and
multiplied with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple, cast

import torch
from torch import Tensor

from runner.curvature.basics.errors import second_derivatives
from runner.curvature.basics.interrupts import INTERRUPTS
from runner.curvature.basics.peak import allocations, free_memory
from runner.curvature.basics.vectors import Flat, Values
from runner.curvature.function.context import counted
from runner.curvature.function.data import Data, Piece
from runner.curvature.function.function import NETWORK, Function, Point, leaves_of
from runner.curvature.function.variables import Perturbations
from runner.curvature.products.of_batch import FactoredGraph, HessianGraph, Part
from runner.curvature.products.planning import (
    FAST,
    FAST_STEP,
    FEW,
    MORE,
    SECOND,
    UNSEEN,
    VECTORS,
    Line,
    Need,
    Plan,
    measured,
    plan,
    small,
    warn_of_free,
)

Graph = HessianGraph | FactoredGraph


MOST_COPIES = 64
"""Of a batch, at once."""


class Made(NamedTuple):
    """Graphs by the place of their piece, and what they are graphs of."""

    function: Function
    leaves: Values
    graphs: dict[tuple[int, int], Graph]


class Graphs:
    """Of one part of the curvature of a function.

    Several directions between layers go through graphs of as many copies of each batch, each with
    perturbations of its own; of parameters, which all copies share, they are batched by torch.
    kept: by the number of copies, 0 of the batch alone; of others, the last. steps: of autograd, of
    the largest graph that was made.
    """

    def __init__(self, function: Function, data: Data, part: Part, flat: Flat) -> None:
        self.function = function
        self.data = data
        self.part = part
        self.flat = flat
        self.kept: dict[int, Made] = {}
        self.steps = 0
        self.planned = self.plan()

    @property
    def repeats(self) -> bool:
        """Whether the batch is repeated for several directions."""
        whole = self.data.whole or self.data.layout is None
        return isinstance(self.function.variables, Perturbations) and not whole

    @property
    def width(self) -> int:
        """Directions that go through the network at once."""
        if not self.repeats:
            return self.planned.width if self._is_fast() else 1
        of_one = max(1, self.planned.bytes - self._vectors)
        room = self.data.settings.memory_budget - self._vectors
        return max(1, min(MOST_COPIES, int(room / of_one) - 1))  # one copy is kept besides

    def _is_fast(self) -> bool:
        """Whether several directions of parameters go faster together than one after the other."""
        touched = self.planned.touched
        if touched <= FAST or self.planned.width == 1 or self.flat.device.type != "cpu":
            return True
        if not self.steps:
            for _ in self._of_pieces(0):  # they are kept for the products
                pass
        return touched <= FAST_STEP * self.steps

    def apply(self, rows: Tensor, batched: bool, out: Tensor | None = None) -> Tensor:
        """Products of all pieces with one direction (n,), written to `out` where there is one, or
        with k at once (k, n)."""
        copies = len(rows) if batched and self.repeats else 0
        total: Tensor | None = None
        INTERRUPTS.deliver()
        for graph in self._of_pieces(copies):
            images = graph.apply(self.flat.split(rows), batched and not copies)
            if total is None:
                total = self.flat.join(images, rows.shape[:-1], out)
            else:
                total.add_(self.flat.join(images, rows.shape[:-1]))
            del graph, images  # before the next one is made
        assert total is not None  # all data together weigh something
        return total

    def _of_pieces(self, copies: int) -> Iterator[Graph]:
        """The graph of every piece; products are taken inside of the context that it needs."""
        if copies in self.kept:
            made = self.kept[copies]
            for graph in made.graphs.values():
                if graph.python:
                    with self._inside(made):
                        yield graph
                else:
                    yield graph
            return
        self.kept = {0: self.kept[0]} if 0 in self.kept else {}  # before others are made
        made = self._nothing(copies)
        losses = []
        for piece in self.data.pieces(self.planned.chunk):
            with self._inside(made), second_derivatives(NETWORK):
                graph = self._graph(made, self._repeated(piece, copies))
                self.steps = max(self.steps, graph.steps)
                losses.append(piece.weight * float(graph.loss))
                if self.planned.keep:
                    made.graphs[piece.place] = graph
                yield graph
            del graph
        self.data.compare_pass(self.part, losses, self.flat.eps)
        if self.planned.keep:
            self.kept[copies] = made  # all or none: a product may be interrupted

    def _nothing(self, copies: int) -> Made:
        function = self.function.of_copies(copies) if copies else self.function
        return Made(function, leaves_of(function.variables.values), {})

    def _repeated(self, piece: Piece, copies: int) -> Piece:
        """As many copies of a piece as go through the network at once. Each weighs what the piece
        does: the loss is the mean over all of them."""
        if not copies:
            return piece
        batch = self.data.require_layout(piece.batch).repeated(piece.batch, copies)
        return piece._replace(batch=batch, weight=piece.weight * copies)

    def _inside(self, made: Made) -> AbstractContextManager[None]:
        return made.function.at(Point(made.leaves))

    def _graph(self, made: Made, piece: Piece) -> Graph:
        """Made inside of `_inside`."""
        kind = HessianGraph if self.part == "hessian" else FactoredGraph
        return kind(made.function, made.leaves, piece.batch, piece.weight)

    # ------------------------------------------------------------------ memory

    @property
    def _vectors(self) -> int:
        """Bytes of the vectors next to a product's own."""
        return VECTORS * self.flat.size * self.flat.dtype.itemsize

    def plan(self) -> Plan:
        """What goes through the network at once."""
        data = self.data
        layout = self.data.layout
        budget = data.settings.memory_budget
        widest = 1 if layout is None else layout.examples
        sizes = [widest] if widest <= FEW or layout is None else [FEW, min(MORE, widest)]
        counts = [widest]
        if data.listed:
            counts = [1 if layout is None else data.count(batch) for batch in data]
        vectors = self._vectors
        chosen = None
        saved = SECOND * self.function.saved / data.tried
        if math.isnan(saved):
            made = self._nothing(0)
            graph_of_few = partial(self._made, made, self._piece(sizes[0]))
            saved = counted(graph_of_few, made.leaves.values())[1] / sizes[0]
        if not math.isnan(saved):
            chosen = small(saved, counts, vectors, budget)
        if chosen is None:
            line = Line(sizes, [self._need(size) for size in sizes])
            divisible = layout is not None and not data.whole
            chosen = plan(line, counts, vectors, budget, divisible)
        warn_of_free(chosen.bytes, free_memory(self.flat.device))
        if chosen.chunk is not None:
            chosen = chosen._replace(evaluated=self._evaluated(chosen.chunk, budget - vectors))
        return chosen if data.listed else chosen._replace(keep=False)

    def _piece(self, size: int) -> Piece:
        return Piece((0, 0), self.data.few(size), 1.0)

    def _made(self, made: Made, piece: Piece) -> Graph:
        """The graph of some examples."""
        with self._inside(made):
            return self._graph(made, piece)

    def _evaluated(self, chunk: int, room: int) -> int:
        """Examples whose loss alone fits the memory: at least those of a product."""
        point = Point(self.function.variables.values)
        batch = self.data.few(MORE)
        live = max(allocations(lambda: self.function.value(point, batch)), default=1)
        each = UNSEEN * max(1, live) / self.data.count(batch)
        return max(chunk, MORE, int(room / each))

    def _need(self, size: int) -> Need:
        piece = self._piece(size)
        ones = torch.ones(self.flat.size, dtype=self.flat.dtype, device=self.flat.device)
        made = self._nothing(0)
        with self._inside(made), second_derivatives(NETWORK):
            return measured(
                lambda: self._graph(made, piece),
                lambda graph: cast(Graph, graph).apply(self.flat.split(ones), False),
            )
