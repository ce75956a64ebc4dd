"""What a product must agree with, by first derivatives alone: differences of gradients in a float64
copy.

One direction r on all nodes and a few steps t give (g(t r) - g(-t r)) / 2t for each piece (an
example, or a batch), and the turn (g(t r) - 2 g(0) + g(-t r)) / t, by which the slopes ahead and
behind differ: it falls with the step where the function is smooth, and does not where a kink lies
within the step."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runner.curvature.function.context import Widened, widen
from runner.curvature.graphs.dag import Dag
from runner.curvature.graphs.state import untouched

Vectors = dict[str, Tensor]
ELEMENTS = 1 << 22
"""Numbers of node outputs that displaced copies of examples may hold at once, beyond one batch."""


@dataclass(frozen=True)
class Slopes:
    """Of every step and piece, (steps, pieces, d_v): the central difference, and the turn at its
    middle. noise: size of a rounding in the field that was differenced, (pieces, d_v)."""

    value: Vectors
    turn: Vectors
    noise: Vectors

    @classmethod
    def of(cls, fields: Vectors, steps: Sequence[float]) -> Slopes:
        """From the field at the middle, then ahead and behind at every step: (1 + 2 steps, pieces,
        d_v)."""
        value, turn, noise = {}, {}, {}
        for v, field in fields.items():
            size = torch.tensor(steps, dtype=field.dtype, device=field.device)[:, None, None]
            ahead, behind = field[1::2], field[2::2]
            value[v] = (ahead - behind) / (2 * size)
            turn[v] = (ahead - 2 * field[0] + behind) / size
            noise[v] = torch.finfo(field.dtype).eps * field[0]
        return cls(value, turn, noise)

    def mapped(self, linear: Callable[[Vectors], Vectors]) -> Slopes:
        """A linear map of all of them, rows (n, pieces, d), in one call."""
        count = len(next(iter(self.value.values())))
        rows = {
            v: torch.cat([self.value[v], self.turn[v], self.noise[v][None]]) for v in self.value
        }
        images = linear(rows)
        value = {v: image[:count] for v, image in images.items()}
        turn = {v: image[count:-1] for v, image in images.items()}
        return Slopes(value, turn, {v: image[-1] for v, image in images.items()})

    def minus(self, other: Slopes) -> Slopes:
        value = {v: self.value[v] - other.value[v] for v in self.value}
        turn = {v: self.turn[v] - other.turn[v] for v in self.turn}
        noise = {v: self.noise[v].abs() + other.noise[v].abs() for v in self.noise}
        return Slopes(value, turn, noise)


class Reference:
    """First derivatives that products must agree with: the gradients of `examples` pieces.
    `gradient` alone is needed.

    double: whether they are in float64. weights: shares of the pieces, None for equal ones.
    scales[v]: natural size of a step at a node."""

    examples = 1
    double = True
    weights: Sequence[float] | None = None
    scales: Mapping[str, Any] = {}

    @classmethod
    def of(cls, target: Any) -> Reference:
        """The target itself, or what it states of a reference."""
        if isinstance(target, Reference):
            return target
        stated = cls()
        for name in ("examples", "double", "weights", "scales", "gradient", "difference"):
            if hasattr(target, name):
                setattr(stated, name, getattr(target, name))
        return stated

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Gradients on, the user's model untouched, mixed precisions widened when a float64 copy is
        used."""
        yield

    def value(self, shift: Mapping[str, Tensor], example: int) -> float:
        """The loss of a piece at the displaced point; NaN where it is not known."""
        return math.nan

    def gradient(self, shift: Mapping[str, Tensor], example: int) -> Vectors:
        """Gradient of a piece's loss at the displaced point, (d_v,) each."""
        raise NotImplementedError

    def difference(
        self, direction: Mapping[str, Tensor], example: int, step: float
    ) -> Vectors | None:
        """The product with the direction, for one piece; None: from its gradients."""
        return None

    def slopes(
        self, direction: Vectors, pieces: Sequence[int], steps: Sequence[float], centre: float = 0.0
    ) -> Slopes:
        """Differences around the point displaced by `centre` directions."""
        slopes = [self._slopes_of(direction, piece, steps, centre) for piece in pieces]
        pieces_second = functools.partial(torch.stack, dim=1)
        value = over_nodes(pieces_second, [one.value for one in slopes])
        turn = over_nodes(pieces_second, [one.turn for one in slopes])
        return Slopes(value, turn, over_nodes(torch.stack, [one.noise for one in slopes]))

    def _slopes_of(
        self, direction: Vectors, piece: int, steps: Sequence[float], centre: float
    ) -> Slopes:
        given = [self.difference(direction, piece, step) for step in steps]
        products = [one for one in given if one is not None]
        if products:
            value = over_nodes(torch.stack, products, direction)
            zero = {v: torch.zeros_like(rows) for v, rows in value.items()}
            return Slopes(value, zero, {v: rows[0] for v, rows in zero.items()})
        fields = []
        for place in places_of(steps, centre):
            shift = {v: place * r for v, r in direction.items()}
            fields.append(self.gradient(shift, piece))
        rows = over_nodes(torch.stack, fields, direction)
        slopes = Slopes.of({v: row[:, None] for v, row in rows.items()}, steps)
        value = {v: row[:, 0] for v, row in slopes.value.items()}
        turn = {v: row[:, 0] for v, row in slopes.turn.items()}
        return Slopes(value, turn, {v: row[0] for v, row in slopes.noise.items()})

    def mixed(self, direction: Vectors, pieces: Sequence[int]) -> int | None:
        """The first of these pieces whose gradient is another one when it is evaluated alone; from
        then on all are."""
        return None

    def slope_error(self, direction: Mapping[str, Tensor], example: int, step: float) -> float:
        """|g . r - difference of the loss along r|, relative: whether the gradient is one."""
        at = {v: 0.0 * r for v, r in direction.items()}
        ahead = {v: step * r for v, r in direction.items()}
        behind = {v: -step * r for v, r in direction.items()}
        with self.quiet():
            gradient = self.gradient(at, example)
        slope = sum(float((g * direction[v]).sum()) for v, g in gradient.items())
        expected = (self.value(ahead, example) - self.value(behind, example)) / (2 * step)
        return abs(slope - expected) / max(abs(slope), abs(expected), 1e-300)

    def wrong_node(self, example: int, tolerance: float) -> str:
        """The first node, from the output back, whose own second derivative is not that of its
        gradient; "" if none."""
        return ""


def places_of(steps: Sequence[float], centre: float = 0.0) -> list[float]:
    """The middle, then ahead and behind at every step."""
    ends = [centre + sign * step for step in steps for sign in (1, -1)]
    return [centre, *ends]


class FiniteDifferences(Reference):
    """Products of one part of the Hessian of a Dag's examples. Displaced copies of the examples go
    through the network together, as many as ELEMENTS allow, at least one batch.

    double: whether a float64 copy could be made; else the network is evaluated as it is, and
    differences are coarse. scales[v]: root mean square of the node's outputs, the natural size of a
    step there."""

    _inside = False

    def __init__(
        self, dag: Dag, x: Tensor, y: Tensor, nodes: tuple[str, ...], part: str = "total"
    ) -> None:
        self.original, self.nodes, self.part = dag, nodes, part
        self.examples = len(x)
        values = self._evaluated(dag, x, y)
        self.shapes = {v: values[v].shape[1:] for v in nodes}
        sizes = {v: float(values[v].double().square().mean().sqrt()) for v in nodes}
        self.scales = {v: s if s > 0 else 1.0 for v, s in sizes.items()}
        self.at_once = max(len(x), ELEMENTS // sum(value[0].numel() for value in values.values()))

    def _evaluated(self, dag: Dag, x: Tensor, y: Tensor) -> Vectors:
        """Values of all nodes of the graph that is used from now on: of a float64 copy, with
        weights in closures widened where they must be, or else of the graph itself."""
        try:
            wide = dag.to(torch.float64), widen(x), widen(y)
        except Exception:  # modules that cannot be copied
            return self._values(dag, x, y, False)
        for closures in (False, True):
            try:
                return self._values(*wide, True, closures)
            except Exception:  # functions with weights or a dtype of their own
                continue
        return self._values(dag, x, y, False)

    def _values(
        self, dag: Dag, x: Tensor, y: Tensor, double: bool, closures: bool = False
    ) -> Vectors:
        self.dag, self.x, self.y, self.double, self.closures = dag, x, y, double, closures
        with self.quiet(), torch.no_grad():
            values = dag.forward(x)
            output = values[dag.output]
            dag.loss.per_example(output[:1], y[:1])
        self.output_shape = output.shape[1:]
        if double and output.dtype != torch.float64:
            raise TypeError("the output is not in float64")
        return values

    @contextmanager
    def quiet(self) -> Iterator[None]:
        if self._inside:
            yield
            return
        mixes = Widened() if self.closures else nullcontext()
        with torch.inference_mode(False), torch.enable_grad(), untouched(), mixes:
            self._inside = True
            try:
                yield
            finally:
                self._inside = False

    # ------------------------------------------------------------------ all examples in one batch

    def slopes(
        self, direction: Vectors, pieces: Sequence[int], steps: Sequence[float], centre: float = 0.0
    ) -> Slopes:
        places = places_of(steps, centre)
        with self.quiet():
            if self.part == "gauss_newton":
                return self._gauss_newton(direction, pieces, steps, centre)
            total = Slopes.of(self._rows(self._gradients, direction, pieces, places), steps)
            if self.part == "total":
                return total
            return total.minus(self._gauss_newton(direction, pieces, steps, centre))

    def _gauss_newton(
        self, direction: Vectors, pieces: Sequence[int], steps: Sequence[float], centre: float
    ) -> Slopes:
        """J^T A J r: J r from outputs, A u from gradients of the loss by the output, J^T by one
        backward pass."""
        outputs = self._rows(self._outputs, direction, pieces, places_of(steps, centre))
        here = outputs[""][0]

        def pulled(rows: Vectors) -> Vectors:
            places = [centre] * len(rows[""])
            curved = self._curved(here.expand_as(rows[""]), rows[""], pieces)
            return self._rows(self._pulled, direction, pieces, places, curved)

        return Slopes.of(outputs, steps).mapped(pulled)

    def _rows(
        self,
        function: Callable[..., Vectors],
        direction: Vectors,
        pieces: Sequence[int],
        places: Sequence[float],
        cotangents: Tensor | None = None,
    ) -> Vectors:
        """function(shift, pieces, cotangents) of rows, for every place and piece: (places, pieces,
        d)."""
        some = next(iter(direction.values()))
        place = torch.tensor(places, dtype=some.dtype, device=some.device)
        place = place.repeat_interleave(len(pieces))
        piece = torch.tensor(pieces, device=self.x.device).repeat(len(places))
        flat = None if cotangents is None else cotangents.flatten(0, 1)
        parts: list[Vectors] = []
        for start in range(0, len(piece), self.at_once):
            rows = slice(start, start + self.at_once)
            shift = {}
            for v, r in direction.items():
                shift[v] = (place[rows, None] * r).view(-1, *self.shapes[v])
            parts.append(function(shift, piece[rows], None if flat is None else flat[rows]))
        shape = len(places), len(pieces), -1
        return {v: whole.view(shape) for v, whole in over_nodes(torch.cat, parts).items()}

    def _output(self, shift: Mapping[str, Tensor], pieces: Tensor) -> Tensor:
        return self.dag.forward(self.x[pieces], shift)[self.dag.output]

    def _loss(self, output: Tensor, pieces: Tensor) -> Tensor:
        return self.dag.loss.summed(output, self.y[pieces])

    def _gradients(self, shift: Vectors, pieces: Tensor, _: None = None) -> Vectors:
        leaves = {v: s.detach().requires_grad_() for v, s in shift.items()}
        loss = self._loss(self._output(leaves, pieces), pieces)
        return {v: g.flatten(1) for v, g in gradients(loss, leaves).items()}

    def _outputs(self, shift: Vectors, pieces: Tensor, _: None = None) -> Vectors:
        with torch.no_grad():
            return {"": self._output(shift, pieces).flatten(1)}

    def _pulled(self, shift: Vectors, pieces: Tensor, cotangents: Tensor) -> Vectors:
        leaves = {v: s.detach().requires_grad_() for v, s in shift.items()}
        output = self._output(leaves, pieces)
        found = gradients(output, leaves, cotangents.view(output.shape))
        return {v: g.flatten(1) for v, g in found.items()}

    def _curved(self, at: Tensor, tangents: Tensor, pieces: Sequence[int]) -> Tensor:
        """The second derivative of each example's loss times the tangents, (n, pieces, K)."""
        shape = len(at) * len(pieces), *self.output_shape
        rows = torch.tensor(pieces, device=self.y.device).repeat(len(at))
        point, tangent = at.reshape(shape), tangents.reshape(shape)
        size = tangent.flatten(1).norm(dim=1).clamp_min(torch.finfo(at.dtype).tiny)
        reach = (1e-5 if self.double else 1e-2) * (1 + point.flatten(1).norm(dim=1))
        step = (reach / size).view(-1, *[1] * (point.dim() - 1))
        return bent(lambda output: self._loss(output, rows), point, tangent, step).view_as(at)

    def mixed(self, direction: Vectors, pieces: Sequence[int]) -> int | None:
        place = 1e-3 if self.double else 1e-2
        with self.quiet():
            whole = self._rows(self._gradients, direction, range(self.examples), [place])
            for piece in pieces:
                alone = self._rows(self._gradients, direction, [piece], [place])
                if any(_differ(alone[v][0, 0], whole[v][0, piece], self.double) for v in alone):
                    self.at_once = 1
                    return piece
        return None

    # ------------------------------------------------------------------ one example

    def value(self, shift: Mapping[str, Tensor], example: int) -> float:
        shaped = {v: s.reshape(1, *self.shapes[v]) for v, s in shift.items()}
        piece = torch.tensor([example], device=self.x.device)
        with self.quiet(), torch.no_grad():
            return float(self._loss(self._output(shaped, piece), piece))

    def gradient(self, shift: Mapping[str, Tensor], example: int) -> Vectors:
        shaped = {v: s.reshape(1, *self.shapes[v]) for v, s in shift.items()}
        piece = torch.tensor([example], device=self.x.device)
        return {v: g[0] for v, g in self._gradients(shaped, piece).items()}

    def wrong_node(self, example: int, tolerance: float) -> str:
        """The first node, from the output back, whose own second derivative is not that of its
        gradient; "" if none."""
        with self.quiet():
            with torch.no_grad():
                values = self.dag.forward(self.x[example : example + 1])
            for name in reversed(self.dag.order):
                if self._bends_wrongly(name, values, tolerance):
                    return name
        return ""

    def _bends_wrongly(self, name: str, values: Vectors, tolerance: float) -> bool:
        node = self.dag.nodes[name]
        parents = [p for p in dict.fromkeys(node.parents) if values[p].is_floating_point()]
        if not parents or not values[name].is_floating_point():
            return False  # tokens, or indices: no derivative on either side
        generator = torch.Generator().manual_seed(0)

        def drawn(like: Tensor) -> Tensor:
            noise = torch.randn(like.shape, generator=generator, dtype=torch.float64, device="cpu")
            return noise.to(like)

        weights = drawn(values[name])
        direction = {p: drawn(values[p]) for p in parents}

        def slope(shift: Vectors, twice: bool = False) -> tuple[Vectors, Vectors]:
            leaves = {p: (values[p] + shift[p]).detach().requires_grad_() for p in parents}
            output = node(*(leaves.get(p, values[p]).clone() for p in node.parents))
            return leaves, gradients(output, leaves, weights, create_graph=twice)

        step = 1e-5 if self.double else 1e-2
        _, ahead = slope({p: step * r for p, r in direction.items()})
        _, behind = slope({p: -step * r for p, r in direction.items()})
        differences = {p: (ahead[p] - behind[p]) / (2 * step) for p in parents}
        try:
            leaves, first = slope({p: torch.zeros_like(r) for p, r in direction.items()}, True)
            along = torch.stack([(first[p] * direction[p]).sum() for p in parents]).sum()
            second = gradients(along, leaves)
        except Exception:
            return True
        scale = max(float(d.norm()) for d in differences.values())
        scale = max(scale, max(float(f.norm()) for f in first.values()) * 1e-4)
        errors = [float((second[p] - differences[p]).norm()) for p in parents]
        return any(error > max(tolerance, 1e-4) * scale for error in errors)


def over_nodes(
    combine: Callable[[list[Tensor]], Tensor],
    rows: Sequence[Mapping[str, Tensor]],
    nodes: Iterable[str] | None = None,
) -> Vectors:
    """Node -> combine([row[node] for each of `rows`]); nodes: by default those of the first row."""
    combined = {}
    for node in rows[0] if nodes is None else nodes:
        combined[node] = combine([row[node] for row in rows])
    return combined


def gradients(
    value: Tensor, leaves: Vectors, cotangent: Tensor | None = None, *, create_graph: bool = False
) -> Vectors:
    """The gradient by each leaf, zeros where there is none."""
    if not value.requires_grad:
        return {v: torch.zeros_like(leaf) for v, leaf in leaves.items()}
    found = torch.autograd.grad(
        value, list(leaves.values()), cotangent, create_graph=create_graph, materialize_grads=True
    )
    return dict(zip(leaves, found, strict=True))


def bent(
    loss: Callable[[Tensor], Tensor], at: Tensor, tangent: Tensor, step: float | Tensor
) -> Tensor:
    """The second derivative of the loss at a point times the tangent, by central differences of its
    gradient."""

    def slope(point: Tensor) -> Tensor:
        leaf = point.detach().requires_grad_()
        return torch.autograd.grad(loss(leaf), leaf)[0]

    return (slope(at + step * tangent) - slope(at - step * tangent)) / (2 * step)


def _differ(one: Tensor, other: Tensor, double: bool) -> bool:
    """Whether two gradients differ by more than their rounding."""
    relative = 1e-8 if double else 1e-3
    allowed = relative * float(one.norm()) + torch.finfo(one.dtype).tiny
    return not float((one - other).norm()) <= allowed
