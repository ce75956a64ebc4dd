"""Graphs of all pieces of the data: planned for the memory, made, kept where they fit, and
multiplied with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import cast

import torch
from torch import Tensor

from runner.curvature.function.context import counted
from runner.curvature.function.data import Batch
from runner.curvature.function.errors import second_derivatives
from runner.curvature.function.function import NETWORK, Function, Point, leaves_of
from runner.curvature.function.vectors import Flat, Values
from runner.curvature.operators.data import Data, Piece
from runner.curvature.operators.peak import allocations
from runner.curvature.operators.planning import (
    FAST,
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
)
from runner.curvature.operators.products import FactoredGraph, HessianGraph, Part

Graph = HessianGraph | FactoredGraph


class Graphs:
    """Of one part of the curvature of a function."""

    def __init__(self, function: Function, data: Data, part: Part, flat: Flat) -> None:
        self.function = function
        self.data = data
        self.part = part
        self.flat = flat
        self.kept: dict[tuple[int, int], Graph] = {}
        self.leaves: Values = {}
        self.planned = self.plan()

    def apply(self, rows: Tensor, batched: bool) -> Tensor:
        """Products of all pieces with one direction (n,), or with k at once (k, n)."""
        total: Tensor | None = None
        for graph in self:
            image = self.flat.join(graph.apply(self.flat.split(rows), batched), rows.shape[:-1])
            total = image if total is None else total.add_(image)
            del graph, image  # before the next one is made
        return torch.zeros_like(rows) if total is None else total

    def __iter__(self) -> Iterator[Graph]:
        """The graph of every piece; products are taken inside of the context that it needs."""
        if self.planned.keep and self.kept:
            for graph in self.kept.values():
                if graph.python:
                    with self.function.at(Point(self.leaves)):
                        yield graph
                else:
                    yield graph
            return
        self.leaves = leaves_of(self.function.variables.values)
        made = {}
        for piece in self.data.pieces(self.planned.chunk):
            with self._inside(), second_derivatives(NETWORK):
                graph = self._graph(piece)
                if self.planned.keep:
                    made[piece.place] = graph
                yield graph
            del graph
        self.kept = made  # all or none: a product may be interrupted

    def _inside(self) -> AbstractContextManager[None]:
        return self.function.at(Point(self.leaves))

    def _graph(self, piece: Piece) -> Graph:
        """Made inside of `function.at`."""
        if self.part == "hessian":
            return HessianGraph(self.function, self.leaves, piece.batch, piece.weight)
        return FactoredGraph(self.function, self.leaves, piece.batch, piece.weight)

    # ------------------------------------------------------------------ memory

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
        vectors = VECTORS * self.flat.size * self.flat.dtype.itemsize
        fast = FAST if self.flat.device.type == "cpu" else math.inf
        self.leaves = leaves_of(self.function.variables.values)
        chosen = None
        saved = SECOND * self.function.saved / data.tried
        if math.isnan(saved):
            saved = counted(lambda: self._made(sizes[0]), self.leaves.values())[1] / sizes[0]
        if not math.isnan(saved):
            chosen = small(saved, counts, vectors, budget, fast)
        if chosen is None:
            line = Line(sizes, [self._need(size) for size in sizes])
            divisible = layout is not None and not data.whole
            chosen = plan(line, counts, vectors, budget, divisible, fast)
        if chosen.chunk is not None:
            chosen = chosen._replace(evaluated=self._evaluated(chosen.chunk, budget - vectors))
        return chosen if data.listed else chosen._replace(keep=False)

    def _piece(self, size: int) -> Piece:
        batch: Batch = self.data.few(size)
        return Piece((0, 0), batch, 1.0)

    def _made(self, size: int) -> Graph:
        """The graph of some examples."""
        with self._inside():
            return self._graph(self._piece(size))

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
        with self._inside(), second_derivatives(NETWORK):
            return measured(
                lambda: self._graph(piece),
                lambda graph: cast(Graph, graph).apply(self.flat.split(ones), False),
            )
