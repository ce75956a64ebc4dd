"""Curvature routing: per-example inter-layer blocks of one batch, from the output back to the
input.

Per example, with T the tensor part of H (T[out,out] = 0), J_qw = df_q/de_w and D, C of
derivatives.py:

    T[v,w] = sum_{u in Ch(v)} D_uv^T T[u,w] + sum_{u in Ch(v)} sum_{q in Pa(u)} C_u;v,q J_qw
    GN[v,w] = J_out,v^T (d2 loss/df_out^2) J_out,w,    H = GN + T.

Routing T and adding the low-rank GN costs no more than routing H, is exactly zero where T is, and
leaves T free of the cancellation of H - GN. Only pairs with w at or after v are routed; the others
are transposes. A node's row is kept as one matrix (B, sum of d_w, d_v) with blocks T[w,v] stacked
from the output down to v, so that a chain needs one batched product per node for all w: 2 B d^3
operations per pair of layers of width d, plus 2 B K d^2 for Gauss-Newton with K outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.curvature.basics.errors import MeasurementError
from runner.curvature.basics.trees import slices_of
from runner.curvature.graphs.dag import INPUT, Dag
from runner.curvature.graphs.derivatives import Derivatives, Evaluation, node_derivatives


@dataclass
class Row:
    """T[w,v] for the nodes w of `spans` stacked along dimension 1: matrix (B, n, d_v). An absent
    node is a zero block."""

    spans: dict[str, slice]
    matrix: Tensor

    def block(self, w: str) -> Tensor | None:
        """T[w,v] of each example, (B, d_w, d_v)."""
        if w in self.spans:
            return self.matrix[:, self.spans[w]]
        return None


class Reach:
    """Which nodes and columns routing must visit to get every pair of the measured nodes."""

    def __init__(self, dag: Dag, measured: tuple[str, ...]) -> None:
        self.index = {name: i for i, name in enumerate((INPUT, *dag.order))}
        self.measured = measured
        needed = {*measured, *dag.descendants(measured)}
        self.backwards = tuple(name for name in (*reversed(dag.order), INPUT) if name in needed)
        self.parents: dict[str, tuple[str, ...]] = {INPUT: ()}
        self.edges = []
        for u in self.backwards:
            if u == INPUT:
                continue
            parents = tuple(dict.fromkeys(p for p in dag.nodes[u].parents if p in needed))
            self.parents[u] = parents
            self.edges += [(self.index[p], self.index[u]) for p in parents]

    def columns(self, v: str) -> list[str]:
        """Nodes w after v whose block T[w,v] is wanted, or needed by the rows of earlier nodes;
        output first.

        A node with a needed parent at or before v is needed: that parent's row is a sum over it.
        """
        i = self.index[v]
        wanted = []
        for w in self.backwards:
            earliest = min((self.index[p] for p in self.parents[w]), default=i + 1)
            if self.index[w] > i and (w in self.measured or earliest <= i):
                wanted.append(w)
        return wanted

    def last_use(self, w: str) -> int:
        """Index of the earliest node whose row reads w's row: the edges that pass over or end at
        w."""
        place = self.index[w]
        return min((p for p, u in self.edges if p < place <= u), default=place)

    def places(self, sizes: dict[str, int]) -> dict[str, tuple[int, int]]:
        """Node -> (place, numbers per example that the place holds): rows that are never there
        together share one."""
        free_from: list[int] = []
        largest: list[int] = []
        place: dict[str, int] = {}
        for v in self.backwards:
            free = (i for i, last in enumerate(free_from) if last > self.index[v])
            i = next(free, len(free_from))
            if i == len(free_from):
                free_from.append(0)
                largest.append(0)
            place[v] = i
            free_from[i] = self.last_use(v)
            columns = sum(sizes[w] for w in self.columns(v))
            largest[i] = max(largest[i], sizes[v] * (sizes[v] + columns))
        return {v: (i, largest[i]) for v, i in place.items()}


class Router:
    """Routes one batch. `rows`, and `delta` and `factor` of a node derived before, give the
    per-example results."""

    # second=False leaves second derivatives out: Gauss-Newton needs none.
    def __init__(
        self, dag: Dag, evaluation: Evaluation, y: Tensor, reach: Reach, second: bool = True
    ) -> None:
        self.dag = dag
        self.reach = reach
        self.second = second
        self.evaluation = evaluation
        output = evaluation.values[dag.output]
        self.loss_hessian = dag.loss.hessian(output, y)
        gradient = dag.loss.gradient(output, y).unsqueeze(1)
        eye = torch.eye(gradient.shape[2], dtype=gradient.dtype, device=gradient.device)
        eye = eye.expand(len(gradient), -1, -1)
        if len(kinds := {str(evaluation.values[v].dtype) for v in dag.order}) > 1:
            raise MeasurementError(
                f"nodes have several types ({', '.join(sorted(kinds))}): measure a copy in one type"
            )
        self._pulled: dict[str, Tensor] = {dag.output: torch.cat([gradient, eye], 1)}
        self.local: dict[str, Derivatives] = {}
        self._jacobians: dict[tuple[str, str], Tensor | None] = {}
        self._joins = any(len(parents) > 1 for parents in reach.parents.values())
        self._places: dict[str, tuple[int, int]] = {}
        self._memory: dict[int, Tensor] = {}

    def derive(self, v: str) -> None:
        """Gradient and factor of v from its children, then v's local derivatives."""
        if v not in self._pulled:
            pulled = []
            for u in self._children(v):
                pulled.append(torch.bmm(self._pulled[u], self.local[u].jacobians[v]))
            self._pulled[v] = sum(pulled[1:], pulled[0])
        parents = self.reach.parents[v]
        if parents:
            self.local[v] = node_derivatives(
                self.dag.nodes[v], self.evaluation, self.delta(v), parents, self.second
            )

    def delta(self, v: str) -> Tensor:
        """Gradient of each example's loss at v, (B, d_v)."""
        return self._pulled[v][:, 0]

    def factor(self, v: str) -> Tensor:
        """J_out,v of each example, (B, K, d_v)."""
        return self._pulled[v][:, 1:]

    def derive_all(self) -> None:
        """Local derivatives of every needed node, without routing."""
        for v in self.reach.backwards:
            self.derive(v)

    def rows(self, passing: bool = False) -> Iterator[tuple[str, Row | None]]:
        """(v, row of the tensor part) from the output to the first needed node; None is a zero row.
        Frees what is not needed again.

        passing=True: the caller is done with a row when it asks for the next, and rows take each
        other's memory. In new memory, which comes page by page, a third of the time goes into
        fetching pages."""
        self._places = {}
        if passing:
            sizes = {v: self.evaluation.size(v) for v in self.reach.backwards}
            self._places = self.reach.places(sizes)
        kept: dict[str, Row] = {}
        last_use = {w: self.reach.last_use(w) for w in self.reach.backwards}
        for v in self.reach.backwards:
            self.derive(v)
            row = self._row(v, kept)
            if not self._joins:  # else total Jacobians read them until the end
                # the derivatives of the next nodes find their memory in the cache
                for u in self._children(v):
                    del self.local[u]
            if row is not None:
                kept[v] = row
            yield v, row
            for w in [w for w in kept if last_use[w] >= self.reach.index[v]]:
                del kept[w]
        self._places = {}
        self._memory = {}

    def _children(self, v: str) -> list[str]:
        return [u for u in self.dag.children[v] if u in self.reach.index]

    def _row(self, v: str, kept: dict[str, Row]) -> Row | None:
        columns = self.reach.columns(v)
        children = self._children(v)
        sources = {u: self._pieces(u, columns, kept) for u in children}
        added = list(self._curvature_terms(v, columns))
        present = {w for pieces in sources.values() for w in pieces} | {w for w, _ in added}
        row = self._allocate(v, [w for w in columns if w in present])
        if len(sources) == 1 and not added and present:
            (u,) = children
            matrix = self._gather(sources[u], kept.get(u))
            torch.bmm(matrix, self.local[u].jacobians[v], out=row.matrix[:, : matrix.shape[1]])
        else:
            row.matrix.zero_()
            for u, pieces in sources.items():
                for w, piece in pieces.items():
                    row.matrix[:, row.spans[w]] += torch.bmm(piece, self.local[u].jacobians[v])
            for w, term in added:
                row.matrix[:, row.spans[w]] += term
        return self._with_diagonal(v, row)

    def _pieces(self, u: str, columns: list[str], kept: dict[str, Row]) -> dict[str, Tensor]:
        """T[w,u] for the columns w of an earlier row, from row u, or from row w (transposed) when w
        lies before u."""
        pieces: dict[str, Tensor] = {}
        for w in columns:
            if self.reach.index[w] >= self.reach.index[u]:
                block = None
                if u in kept:
                    block = kept[u].block(w)
            else:
                found = None
                if w in kept:
                    found = kept[w].block(u)
                block = None if found is None else found.mT
            if block is not None:
                pieces[w] = block
        return pieces

    @staticmethod
    def _gather(pieces: dict[str, Tensor], row: Row | None) -> Tensor:
        """The pieces stacked in order; the row's own matrix when they are exactly its blocks
        (always so in a chain)."""
        if row is not None and list(pieces) == list(row.spans):
            return row.matrix
        return torch.cat(list(pieces.values()), 1)

    def _allocate(self, v: str, columns: list[str]) -> Row:
        """An uninitialised row with room for its diagonal block at the end."""
        sizes = {w: self.evaluation.size(w) for w in columns}
        d = self.evaluation.size(v)
        spans = slices_of(sizes)
        shape = (len(self.loss_hessian), sum(sizes.values()) + d, d)
        if v not in self._places:
            return Row(spans, self.loss_hessian.new_empty(shape))
        place, largest = self._places[v]
        if place not in self._memory:
            self._memory[place] = self.loss_hessian.new_empty(shape[0] * largest)
        return Row(spans, self._memory[place][: math.prod(shape)].view(shape))

    def _curvature_terms(self, v: str, columns: list[str]) -> Iterator[tuple[str, Tensor]]:
        """(C_u;v,q J_qw)^T for w after v: only where a child of v has another parent q at or below
        w."""
        for u in self._children(v):
            for (p, q), c in self.local[u].curvature.items():
                if p == v and q != v:
                    for w in columns:
                        j = self.jacobian(q, w)
                        if j is not None:
                            yield w, torch.bmm(j.mT, c.mT)
                        elif q == w:
                            yield w, c.mT

    def _with_diagonal(self, v: str, row: Row) -> Row | None:
        n = row.matrix.shape[1] - self.evaluation.size(v)
        diagonal = row.matrix[:, n:]
        empty = True
        for left, right in self._diagonal_terms(v, row):
            if not empty:
                diagonal.add_(right if left is None else torch.bmm(left, right))
            elif left is None:
                diagonal.copy_(right)
            else:
                torch.bmm(left, right, out=diagonal)
            empty = False
        if empty:
            if n:
                return Row(row.spans, row.matrix[:, :n])
            return None
        row.spans[v] = slice(n, n + self.evaluation.size(v))
        return row

    def _diagonal_terms(self, v: str, row: Row) -> Iterator[tuple[Tensor | None, Tensor]]:
        """Factors of the terms of T[v,v]; None stands for the identity."""
        for u in self._children(v):
            block = row.block(u)
            if block is not None:
                yield self.local[u].jacobians[v].mT, block
            for (p, q), c in self.local[u].curvature.items():
                if p != v:
                    continue
                j = self.jacobian(q, v)
                if q == v:
                    yield None, c
                elif j is not None:
                    yield c, j

    def jacobian(self, q: str, w: str) -> Tensor | None:
        """Total Jacobian J_qw = df_q/de_w over all paths, (B, d_q, d_w); None when q = w (identity)
        or w is no ancestor of q."""
        if self.reach.index[w] >= self.reach.index[q] or q not in self.reach.parents:
            return None
        if (q, w) not in self._jacobians:
            total: Tensor | None = None
            for r in self.reach.parents[q]:
                term = self.local[q].jacobians[r]
                if r != w:
                    through = self.jacobian(r, w)
                    if through is None:
                        continue
                    term = torch.bmm(term, through)
                total = term if total is None else total + term
            self._jacobians[q, w] = total
        return self._jacobians[q, w]


Blocks = dict[tuple[str, str], Tensor]


def add_tensor_part(router: Router, blocks: Blocks, scale: float | None) -> None:
    """Adds T[w,v] to blocks[w, v] for measured pairs with w at or after v: the sum over the batch
    times scale, or per example when scale is None."""
    measured = set(router.reach.measured)
    for v, row in router.rows(passing=scale is not None):
        if row is None or v not in measured:
            continue
        matrix = row.matrix if scale is None else row.matrix.sum(0).mul_(scale)
        for w, span in row.spans.items():
            if w in measured:
                _add(blocks, (w, v), matrix[..., span, :])


def add_gauss_newton(router: Router, blocks: Blocks, scale: float | None) -> None:
    """The same for GN[w,v] = J_w^T A J_v, A the loss Hessian: products of the columns of A J and of
    J, all examples in one.

    Call after every local derivative is known (after `add_tensor_part`, or `Router.derive_all`).
    """
    factors = {v: router.factor(v) for v in router.reach.backwards if v in router.reach.measured}
    names = list(factors)
    right = torch.cat(list(factors.values()), 2)
    left = torch.bmm(router.loss_hessian, right)
    if scale is not None:
        left = left.mul_(scale).flatten(0, 1)
        right = right.flatten(0, 1)
    spans = slices_of({v: factors[v].shape[2] for v in names})
    for i, v in enumerate(names):
        product = left[..., : spans[v].stop].mT @ right[..., spans[v]]
        for w in names[: i + 1]:
            _add(blocks, (w, v), product[..., spans[w], :])


def _add(blocks: Blocks, pair: tuple[str, str], block: Tensor) -> None:
    if pair in blocks:
        blocks[pair] += block
    else:
        blocks[pair] = block
