"""Predicted cost of each part, in gradients of all batches.

Counting operations does not predict a cost: the gradient of a small network consists of many small calls, curvature
routing of a few large matrix products, tens of times faster for each operation. So short runs on this network and
machine are timed: a matrix product, the derivatives of each node for some rows, products with the tensor part, the
certificate of one example, one product with the Hessian over the parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch

from runner.curvature import CurvatureOperator, verify
from runner.curvature.exact.checks import check_before_measuring, exact_elements, plan_chunk
from runner.curvature.exact.derivatives import evaluate
from runner.curvature.metrics.by_factors import PROBES
from runner.curvature.metrics.factors import Perturbed, TensorPart
from runner.curvature.metrics.pairs import SWEPT, WITHOUT_FACTORS, exact_price
from runner.diagnose.problem import Problem

ROWS, ELEMENTS = 512, 1 << 21
"""Examples at once when the derivatives of a node are timed, and the most numbers in them."""
CALLS, DIRECTIONS, PAIR_SECONDS = 5, 8, 3e-3
"""Calls for each node and directions in each call, of products with the tensor part; seconds for each pair."""
CERTIFIED_COMPONENTS = 976
"""Components of all layers up to which their exact blocks are certified, too."""
COMPARED = 20
"""Gradients of all examples of a certificate, in float64, twice the cost of the network's own where that is float32."""
SECOND = 3
"""Cost of a row of second derivatives relative to one of first derivatives."""
BIDIAGONAL, DIFFERENCES = 16, 50
"""Products for σ₁ of a pair, and gradients for a certificate, where there is no graph."""


PASSES = 8
"""What Lanczos does with a new vector besides keeping it orthogonal, in vectors that it is kept orthogonal to."""
RANK_STEPS = 5
"""Golub–Kahan steps assumed for the largest singular value of a diagonal block."""
DENSITY_PROBES, DENSITY_STEPS, TRACE_PRODUCTS, BOUND_PROBES, PAIR_PROBES, COUPLING_PROBES = (
    4,
    60,
    60,
    40,
    10,
    30,
)


@dataclass(frozen=True)
class Cost:
    """Predicted cost of a part: gradients of all batches, bytes at once, and the method."""

    gradients: float
    bytes: float
    method: str


def impossible(error: Exception) -> Cost:
    """The cost of a part that cannot be measured."""
    return Cost(0, 0, f"cannot be measured: {' '.join(str(error).split())}")


class Layers:
    """Seconds of the methods between layers, for the first batch."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.dag = problem, problem.dag
        self.sizes = problem.sizes
        self.examples, self.outputs = len(self.dag.x), self.sizes[self.dag.output]

    @cached_property
    def routing(self) -> tuple[float, float, float]:
        """(operations as the engine counts them, seconds, bytes) of exact blocks; infinite where they do not fit."""
        dag, sizes = self.dag, self.sizes
        evaluation = evaluate(dag, dag.x)
        itemsize = evaluation.values[dag.output].element_size()
        operations = exact_price(dag, evaluation, dag.order, self.problem.options.budget)
        if math.isinf(operations):
            return math.inf, math.inf, math.inf
        chunk = plan_chunk(
            dag, sizes, dag.order, self.examples, itemsize, self.problem.options.budget, kept=2
        )
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
                seconds += (
                    self.examples
                    * (first + second)
                    * self._row_seconds(u, values, self.examples * first)
                )
        return operations, seconds, held

    @cached_property
    def _checks(self) -> float:
        """Seconds of the checks before a measurement."""
        return 2 * self.problem.seconds(
            lambda: check_before_measuring(self.dag, self.dag.x, self.dag.y), 2
        )

    def _matmul_rate(self) -> float:
        """Operations per second of a large matrix product in the precision of the network."""
        first = next(iter(self.problem.parameters.values()))
        a = torch.randn(8, 128, 128, device=first.device, dtype=torch.float32).to(first.dtype)
        torch.bmm(a, a)
        return 2.0 * 8 * 128**3 / self.problem.seconds(lambda: torch.bmm(a, a))

    def _row_seconds(self, u: str, values: dict[str, torch.Tensor], together: int) -> float:
        """Seconds per example of a forward and a backward pass of node u, for about `together` examples at once."""
        node, widest = self.dag.nodes[u], max(t[0].numel() for t in values.values())
        count = max(1, min(ROWS, together, ELEMENTS // max(widest, self.sizes[u])))
        rows = torch.arange(count, device=self.dag.x.device) % self.examples

        def once() -> None:
            with torch.enable_grad():
                given = [values[p][rows].detach() for p in node.parents]
                floating = [t.requires_grad_() for t in given if t.is_floating_point()]
                output = node(*(t.clone() for t in given))
                if floating and output.requires_grad:
                    torch.autograd.grad(
                        output, floating, torch.ones_like(output), allow_unused=True
                    )

        return self.problem.seconds(once, 2) / count

    @cached_property
    def whole(self) -> tuple[float, int]:
        """Seconds of a product on the whole batch of a network without a graph, and the number of such products."""
        dag, operator = self.dag, CurvatureOperator(self.dag, self.dag.x, self.dag.y)
        middle = dag.order[len(dag.order) // 2]
        one = torch.ones(1, operator.sizes[middle], dtype=operator.dtype, device=operator.device)
        squares = sum(2 * min(WITHOUT_FACTORS, d) for d in operator.sizes.values())
        count = squares + BIDIAGONAL * len(dag.order) * (len(dag.order) + 1) // 2
        return self.problem.seconds(lambda: operator.apply({middle: one})), count

    def cost(self) -> Cost:
        """Cost of the method that `inter_layer_metrics` will choose."""
        problem, dag = self.problem, self.dag
        if dag.no_graph:
            return self._cost_without_graph()
        network = Perturbed.of(dag, dag.x, dag.order)
        tensor = TensorPart(dag, dag.x, dag.y, network, network.moving, problem.options.budget)
        curved = tensor.curved_nodes(problem.generator("price"))
        count, total = len(dag.order), sum(self.sizes[v] for v in dag.order)
        each = PROBES + SWEPT
        by_factors = 2 * self.outputs * network.moving + (
            3 * network.moving * count * each if curved else 0
        )
        operations, seconds, exact_bytes = self.routing
        if curved and operations <= by_factors:
            return self._cost(self._checks + seconds, exact_bytes, "exact blocks")
        middle = dag.order[count // 2]
        one = torch.ones(DIRECTIONS, self.sizes[middle]).to(tensor.device, tensor.dtype)
        products = (
            CALLS * count * problem.seconds(lambda: tensor.apply({middle: one}), 2)
            if curved
            else 0.0
        )
        passes = (
            2 / 3 * self.outputs * problem.gradient.seconds * self.examples / sum(problem.examples)
        )
        held = self.examples * self.outputs * total * tensor.dtype.itemsize
        passes += self._checks + PAIR_SECONDS * count * (count + 1) / 2
        if not curved:
            return self._cost(
                passes,
                held,
                "Gauss-Newton factors: the network is piecewise linear after its nodes",
            )
        return self._cost(
            passes + products, held, f"Gauss-Newton factors, about {count * each} products"
        )

    def _cost_without_graph(self) -> Cost:
        one, count = self.whole
        how = f"about {count} products on the whole batch: there is no graph"
        return self._cost(one * count, 3 * self.problem.gradient.bytes, how)

    def _cost(self, seconds: float, held: float, method: str) -> Cost:
        return Cost(seconds / self.problem.gradient.seconds, held, method)


def _layers(problem: Problem) -> Layers:
    """Computed once for each problem. Raises ValueError for a network that mixes examples."""
    if "layers" not in problem.timings:
        problem.timings["layers"] = Layers(problem)
    layers: Layers = problem.timings["layers"]
    return layers


def cost_of_layers(problem: Problem) -> Cost:
    """Cost of R, C, D and gap between the named outputs."""
    try:
        return _layers(problem).cost()
    except ValueError as error:
        return impossible(error)


def cost_of_certificate(problem: Problem) -> Cost:
    """Cost of the certificate between layers: gradients, checks of one example, and exact blocks of few components."""
    try:
        dag = problem.dag
        if dag.no_graph:
            seconds = DIFFERENCES * _layers(problem).whole[0]
            how = "finite differences of gradients of the whole batch"
            return Cost(seconds / problem.gradient.seconds, 3 * problem.gradient.bytes, how)
        operator = CurvatureOperator(dag, dag.x[:1], dag.y[:1], check=False)
        one = problem.seconds(lambda: verify(operator, generator=problem.generator("price")), 2)
    except ValueError as error:
        return impossible(error)
    few = sum(operator.sizes.values()) <= CERTIFIED_COMPONENTS
    _, exact, held = _layers(problem).routing if few else (0.0, 0.0, 0.0)
    exact, held = (exact, held) if math.isfinite(exact) else (0.0, 0.0)
    how = "finite differences of gradients" + (", and of exact blocks" if exact else "")
    gradients = (one + exact) / problem.gradient.seconds + 2 * COMPARED
    return Cost(gradients, 3 * problem.gradient.bytes + held, how)


# ------------------------------------------------------------------ all other parts


def cost_of_network(problem: Problem) -> Cost:
    """Cost of the checks and of the other predictions; asked for last."""
    spent = (problem.clock() - problem.started) / problem.gradient.seconds
    return Cost(spent, problem.gradient.bytes, "checks and trial runs of the predictions")


def eigenpair_products(k: int, size: int) -> int:
    """Predicted products of the k largest eigenpairs."""
    return min(size, 20 + 5 * k)


def estimated_products(problem: Problem) -> dict[str, float]:
    """Predicted number of products of the estimators, by part."""
    k, groups = problem.options.eigenvalues, len(problem.operator.groups)
    return {
        "groups": (PAIR_PROBES + COUPLING_PROBES + 2 * RANK_STEPS) * groups,
        "eigenvalues": eigenpair_products(k, problem.operator.shape[0]) + 2 * 20,
        "density": DENSITY_PROBES * DENSITY_STEPS,
        "trace": TRACE_PRODUCTS + BOUND_PROBES,
    }


def is_exact(problem: Problem) -> bool:
    """Whether the whole matrix is cheaper than the estimates, and fits three times into the memory."""
    n = problem.operator.shape[0]
    fits = 3 * n * n * problem.operator.dtype.itemsize <= problem.options.budget
    return fits and n <= sum(estimated_products(problem).values())


def product_gradients(problem: Problem) -> tuple[float, float]:
    """Measured cost of a product with the Hessian, and with its Gauss–Newton part, in gradients."""
    if "products" not in problem.timings:
        costs = []
        for operator in (problem.operator, _smooth(problem)):
            v = torch.ones(operator.shape[0], dtype=operator.dtype, device=operator.device)
            operator.matvec(v)
            costs.append(problem.seconds(partial(operator.matvec, v)) / problem.gradient.seconds)
            operator.products = 0
        problem.timings["products"] = (costs[0], costs[1])
    one, two = problem.timings["products"]
    return one, two


def lanczos_seconds(operator: Any, vectors: float, problem: Problem) -> float:
    """What keeping a new vector orthogonal to `vectors` others adds to a product, timed with two."""
    basis = torch.ones(2, operator.shape[0], dtype=torch.float64, device=operator.device)
    vector = basis[0].clone()
    once = problem.seconds(lambda: torch.addmv(vector, basis.mT, basis @ vector))
    return once / 2 * (vectors + PASSES)


def _smooth(problem: Problem) -> Any:
    try:
        return problem.smooth
    except (ValueError, RuntimeError):  # the part that measures it reports this
        return problem.operator


def cost_of(part: str) -> Callable[[Problem], Cost]:
    """The cost of a part over the parameters; the first part that needs the whole matrix pays for it."""

    def cost(problem: Problem) -> Cost:
        try:
            operator = problem.operator
        except ValueError as error:
            return impossible(error)
        product, smooth = product_gradients(problem)
        n, itemsize = operator.shape[0], operator.dtype.itemsize
        certified = certificate_gradients(problem) if part == "eigenvalues" else 0.0
        if is_exact(problem):
            first = problem.timings.setdefault("matrix", part) == part
            how = (
                f"exact: the whole matrix from {n} products"
                if first
                else "exact, from the same matrix"
            )
            gradients = n * product * first + n * smooth * (part == "groups") + certified
            return Cost(gradients, 3 * n * n * itemsize + 3 * problem.gradient.bytes, how)
        products = estimated_products(problem)[part]
        more = PAIR_PROBES * len(operator.groups) * smooth if part == "groups" else 0.0
        vectors = {"eigenvalues": 3 * problem.options.eigenvalues + 20, "density": 64}.get(part, 8)
        basis = min(2 * DENSITY_STEPS * 8 * n, problem.options.budget) if part == "density" else 0
        held = (basis or vectors * n * itemsize) + 3 * problem.gradient.bytes
        if part in ("eigenvalues", "density"):
            kept = lanczos_seconds(operator, vectors / 2, problem)
            product += kept / problem.gradient.seconds
        return Cost(
            products * product + more + certified, held, f"estimated: about {products:.0f} products"
        )

    return cost


def certificate_gradients(problem: Problem) -> float:
    """Cost of the certificate over the parameters: in float64 four gradients of each batch and ten of the first, and an
    operator with one product for each batch."""
    batches = len(problem.batches)
    double = 1.0 if problem.operator.dtype == torch.float64 else 2.0
    alone = (
        problem.building / problem.gradient.seconds / batches
        + product_gradients(problem)[0] / batches
    )
    return double * (4 + 10 / batches) + batches * alone


def cost_of_noise(problem: Problem) -> Cost:
    """Cost of the gradient noise scale."""
    size = len(problem.batches) * problem.size * 8
    return Cost(1, problem.gradient.bytes + size, "one gradient of each batch")
