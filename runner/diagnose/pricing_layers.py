"""What the parts between layers will cost: curvature routing, factors and probes, and their certificate.

Operations alone do not tell a price: the gradient of a small network waits for its calls, while curvature routing is a
few large matrix products, tens of times faster for each operation. So what the parts are made of is run once, small: a
matrix product, the derivatives of each node for some rows, products with the tensor part, the certificate of one
example.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch

from runner.curvature import CurvatureOperator, check_before_measuring, verify
from runner.curvature.certificate.verify import EXACT_SIZE
from runner.curvature.exact.derivatives import evaluate
from runner.curvature.graph.checks import exact_elements, plan_chunk
from runner.curvature.metrics.by_factors import PROBES
from runner.curvature.metrics.factors import Perturbed
from runner.curvature.metrics.measure import SWEPT, WITHOUT_FACTORS, exact_price
from runner.curvature.metrics.tensor_part import TensorPart
from runner.diagnose.problem import Problem

ROWS, ELEMENTS = 512, 1 << 21
"""Examples at once when the derivatives of a node are timed, and numbers that they may take."""
CALLS, DIRECTIONS, PAIR_SECONDS = 5, 8, 3e-3
"""Calls for each node, and directions in each, of products with the tensor part; small matrices of each pair."""
PER_EXAMPLE = 0.45
"""An example of a certificate over the first one, which looks for the step."""
SECOND = 3
"""Row of a second derivative over one of a first."""
BIDIAGONAL, DIFFERENCES = 16, 50
"""Products for sigma_1 of a pair, and for a certificate, where there is no graph."""


@dataclass(frozen=True)
class Price:
    """What a part will cost: gradients of all batches, bytes at once, and how it will be done."""

    gradients: float
    bytes: float
    how: str


def impossible(error: Exception) -> Price:
    """Of what cannot be measured; its row says so."""
    return Price(0, 0, f"cannot be measured: {' '.join(str(error).split())}")


class Layers:
    """Seconds of the ways between layers, of the first batch."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.dag = problem, problem.dag
        self.sizes = problem.sizes
        self.examples, self.outputs = len(self.dag.x), self.sizes[self.dag.output]

    @cached_property
    def routing(self) -> tuple[float, float, float]:
        """(operations as the engine counts them when it chooses, seconds, bytes) of exact blocks; infinite where they
        do not fit into the memory."""
        dag, sizes = self.dag, self.sizes
        evaluation = evaluate(dag, dag.x)
        itemsize = evaluation.values[dag.output].element_size()
        operations = exact_price(dag, evaluation, dag.order, self.problem.options.memory)
        if math.isinf(operations):
            return math.inf, math.inf, math.inf
        chunk = plan_chunk(dag, sizes, dag.order, self.examples, itemsize, self.problem.options.memory, kept=2)
        working, result = exact_elements(dag, sizes, dag.order)
        held, rate = float(working * chunk + result) * itemsize, self._matmul_rate()
        place = {name: i for i, name in enumerate(dag.order)}
        seconds = 0.0
        for u in dag.order:
            parents = [p for p in dict.fromkeys(dag.nodes[u].parents) if p in place]
            for p in parents:
                later = sum(sizes[w] for w in dag.order if place[w] >= place[p])
                seconds += 2.0 * self.examples * sizes[u] * sizes[p] * later / rate
            if parents and u not in evaluation.structures:
                first, second = sizes[u], SECOND * sum(sizes[p] for p in parents)
                values = {p: evaluation.values[p] for p in dag.nodes[u].parents}
                seconds += self.examples * (first + second) * self._row_seconds(u, values, self.examples * first)
        return operations, seconds, held

    @cached_property
    def _checks(self) -> float:
        """Seconds of what is checked before, and of the two parts being told apart."""
        return 2 * self.problem.seconds(lambda: check_before_measuring(self.dag, self.dag.x, self.dag.y), 2)

    def _matmul_rate(self) -> float:
        """Operations a second of a large matrix product in the network's precision."""
        first = next(iter(self.problem.parameters.values()))
        a = torch.randn(8, 128, 128, device=first.device, dtype=torch.float32).to(first.dtype)
        torch.bmm(a, a)
        return 2.0 * 8 * 128**3 / self.problem.seconds(lambda: torch.bmm(a, a))

    def _row_seconds(self, u: str, values: dict[str, torch.Tensor], together: int) -> float:
        """Of a forward and a backward pass of one node for one example, so many at once."""
        node, widest = self.dag.nodes[u], max(t[0].numel() for t in values.values())
        count = max(1, min(ROWS, together, ELEMENTS // max(widest, self.sizes[u])))
        rows = torch.arange(count, device=self.dag.x.device) % self.examples

        def once() -> None:
            with torch.enable_grad():
                given = [values[p][rows].detach() for p in node.parents]
                floating = [t.requires_grad_() for t in given if t.is_floating_point()]
                found = node(*(t.clone() for t in given))
                if floating and found.requires_grad:
                    torch.autograd.grad(found, floating, torch.ones_like(found), allow_unused=True)

        return self.problem.seconds(once, 2) / count

    @cached_property
    def whole(self) -> tuple[float, int]:
        """Seconds of a product on the whole batch, of a network without a graph, and how many of them there will be."""
        dag, operator = self.dag, CurvatureOperator(self.dag, self.dag.x, self.dag.y)
        middle = dag.order[len(dag.order) // 2]
        one = torch.ones(1, operator.sizes[middle], dtype=operator.dtype, device=operator.device)
        squares = sum(2 * min(WITHOUT_FACTORS, d) for d in operator.sizes.values())
        count = squares + BIDIAGONAL * len(dag.order) * (len(dag.order) + 1) // 2
        return self.problem.seconds(lambda: operator.apply({middle: one})), count

    def price(self) -> Price:
        """Of the way that `inter_layer_metrics` will choose."""
        problem, dag = self.problem, self.dag
        if dag.no_graph:
            return self._price_without_graph()
        network = Perturbed.of(dag, dag.x, dag.order)
        tensor = TensorPart(dag, dag.x, dag.y, network, network.moving, problem.options.memory)
        curved = tensor.curved_nodes(problem.generator("price"))
        count, total = len(dag.order), sum(self.sizes[v] for v in dag.order)
        each = PROBES + SWEPT
        by_factors = 2 * self.outputs * network.moving + (3 * network.moving * count * each if curved else 0)
        operations, seconds, exact_bytes = self.routing
        if curved and operations <= by_factors:
            return self._price(self._checks + seconds, exact_bytes, "exact blocks")
        middle = dag.order[count // 2]
        one = torch.ones(DIRECTIONS, self.sizes[middle]).to(tensor.device, tensor.dtype)
        products = CALLS * count * problem.seconds(lambda: tensor.apply({middle: one}), 2) if curved else 0.0
        passes = 2 / 3 * self.outputs * problem.gradient.seconds * self.examples / sum(problem.examples)
        held = self.examples * self.outputs * total * tensor.dtype.itemsize
        passes += self._checks + PAIR_SECONDS * count * (count + 1) / 2
        if not curved:
            return self._price(passes, held, "Gauss-Newton factors: the network is piecewise linear after its nodes")
        return self._price(passes + products, held, f"Gauss-Newton factors, about {count * each} products")

    def _price_without_graph(self) -> Price:
        one, count = self.whole
        how = f"about {count} products on the whole batch: there is no graph"
        return self._price(one * count, 3 * self.problem.gradient.bytes, how)

    def _price(self, seconds: float, held: float, how: str) -> Price:
        return Price(seconds / self.problem.gradient.seconds, held, how)


def _layers(problem: Problem) -> Layers:
    """Kept for the next price. Raises ValueError for a network that mixes examples."""
    if "layers" not in problem.told:
        problem.told["layers"] = Layers(problem)
    found: Layers = problem.told["layers"]
    return found


def price_of_layers(problem: Problem) -> Price:
    """Of R, C, D and gap between the named outputs."""
    try:
        return _layers(problem).price()
    except ValueError as error:
        return impossible(error)


def price_of_certificate(problem: Problem) -> Price:
    """From the certificate of the first example alone, and the exact blocks where they are small (verify.py)."""
    try:
        dag = problem.dag
        if dag.no_graph:
            seconds = DIFFERENCES * _layers(problem).whole[0]
            how = "finite differences of gradients of the whole batch"
            return Price(seconds / problem.gradient.seconds, 3 * problem.gradient.bytes, how)
        operator = CurvatureOperator(dag, dag.x[:1], dag.y[:1], check=False)
        one = problem.seconds(lambda: verify(operator, generator=problem.generator("price")), 2)
    except ValueError as error:
        return impossible(error)
    layers = _layers(problem)
    _, exact, held = layers.routing if sum(operator.sizes.values()) <= EXACT_SIZE else (0.0, 0.0, 0.0)
    exact, held = (exact, held) if math.isfinite(exact) else (0.0, 0.0)
    seconds = one * (1 + PER_EXAMPLE * (layers.examples - 1)) + exact
    how = "finite differences of gradients of each example" + (", and of exact blocks" if exact else "")
    return Price(seconds / problem.gradient.seconds, 3 * problem.gradient.bytes + held, how)
