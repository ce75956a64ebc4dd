"""What each part will cost, told before it starts: in gradients of all batches, from the speed of this network here.

Operations alone do not tell a price: the gradient of a small network waits for its calls, while curvature routing is a
few large matrix products, tens of times faster for each operation. So what the parts are made of is run once, small: a
product of each kind, a matrix product, the derivatives of each node for a few rows, the certificate of one example.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from runner.curvature import CurvatureOperator, verify
from runner.curvature.certificate.verify import EXACT_SIZE
from runner.curvature.exact.derivatives import evaluate
from runner.curvature.graph.checks import plan_chunk
from runner.curvature.metrics.by_factors import PROBES
from runner.curvature.metrics.factors import Perturbed
from runner.curvature.metrics.measure import SWEPT
from runner.curvature.metrics.tensor_part import TensorPart
from runner.diagnose.problem import Problem

ESTIMATOR = 2
"""Of inter_layer_metrics, whose probes are counted."""
ROWS = 32
"""Examples at once when the derivatives of a node are timed."""
PER_EXAMPLE = 1 / 3
"""An example of a certificate over the first one, which looks for the step."""
SECOND = 3
"""Row of a second derivative over one of a first."""
RANK_STEPS = 5
"""Golub-Kahan steps that the largest singular value of a diagonal block is foretold to take."""
DENSITY_PROBES, DENSITY_STEPS, TRACE_PRODUCTS, BOUND_PROBES, PAIR_PROBES, COUPLING_PROBES = 4, 60, 60, 40, 10, 30


@dataclass(frozen=True)
class Price:
    """What a part will cost: gradients of all batches, bytes at once, and how it will be done."""

    gradients: float
    bytes: float
    how: str


def impossible(error: Exception) -> Price:
    """Of what cannot be measured; its row says so."""
    return Price(0, 0, f"cannot be measured: {' '.join(str(error).split())}")


def price_of_network(problem: Problem) -> Price:
    """Told last: it is what was spent on the checks and on telling the other prices."""
    spent = (problem.clock() - problem.started) / problem.gradient.seconds
    return Price(spent, problem.gradient.bytes, "the checks, and what was run to tell the price")


# ------------------------------------------------------------------ between layers


class Layers:
    """Seconds of the ways between layers, of the first batch."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.dag = problem, problem.dag
        self.sizes = problem.sizes
        self.examples, self.outputs = len(self.dag.x), self.sizes[self.dag.output]

    @cached_property
    def routing(self) -> tuple[float, float]:
        """(operations as the engine counts them when it chooses, seconds) of exact blocks; infinite where they do not
        fit into the memory."""
        dag, sizes = self.dag, self.sizes
        itemsize = dag.y.element_size() if dag.y.is_floating_point() else 4
        try:
            plan_chunk(dag, sizes, dag.order, self.examples, itemsize, self.problem.options.memory, kept=2)
        except ValueError:
            return math.inf, math.inf
        evaluation, rate = evaluate(dag, dag.x), self._matmul_rate()
        place = {name: i for i, name in enumerate(dag.order)}
        operations = seconds = 0.0
        for u in dag.order:
            parents = [p for p in dict.fromkeys(dag.nodes[u].parents) if p in place]
            closed = u in evaluation.structures
            for p in parents:
                later = sum(sizes[w] for w in dag.order if place[w] >= place[p])
                routed = 2.0 * self.examples * sizes[u] * sizes[p] * later
                derivatives = sizes[p] ** 2 if closed else 4 * (sizes[u] + sizes[p]) * sizes[p]
                operations += routed + 2.0 * self.examples * sizes[u] * derivatives
                seconds += routed / rate
            if parents and not closed:
                rows = self.examples * (sizes[u] + SECOND * sum(sizes[p] for p in parents))
                seconds += rows * self._row_seconds(u, {p: evaluation.values[p] for p in dag.nodes[u].parents})
        return operations, seconds

    def _matmul_rate(self) -> float:
        """Operations a second of a large matrix product in the network's precision."""
        first = next(iter(self.problem.parameters.values()))
        a = torch.randn(8, 128, 128, device=first.device, dtype=torch.float32).to(first.dtype)
        torch.bmm(a, a)
        return 2.0 * 8 * 128**3 / self.problem.seconds(lambda: torch.bmm(a, a))

    def _row_seconds(self, u: str, values: dict[str, torch.Tensor]) -> float:
        """Of a forward and a backward pass of one node for one example, many at once."""
        node = self.dag.nodes[u]
        rows = torch.arange(ROWS, device=self.dag.x.device) % self.examples

        def once() -> None:
            with torch.enable_grad():
                given = [values[p][rows].detach() for p in node.parents]
                floating = [t.requires_grad_() for t in given if t.is_floating_point()]
                found = node(*(t.clone() for t in given))
                if floating and found.requires_grad:
                    torch.autograd.grad(found, floating, torch.ones_like(found), allow_unused=True)

        return self.problem.seconds(once, 2) / ROWS

    def price(self) -> Price:
        """Of the way that `inter_layer_metrics` will choose."""
        problem, dag = self.problem, self.dag
        network = Perturbed.of(dag, dag.x, dag.order)
        tensor = TensorPart(dag, dag.x, dag.y, network, network.moving, problem.options.memory)
        curved = tensor.curved_nodes(problem.generator("price"))
        count, total = len(dag.order), sum(self.sizes[v] for v in dag.order)
        products = count * (PROBES[ESTIMATOR] + SWEPT)
        by_factors = 2 * self.outputs * network.moving + (3 * network.moving * products if curved else 0)
        operations, seconds = self.routing
        exact_bytes = 3 * total**2 * tensor.dtype.itemsize
        if curved and operations <= by_factors:
            return self._price(seconds, exact_bytes, "exact blocks")
        together = {v: torch.ones(tensor.copies, d).to(tensor.device, tensor.dtype) for v, d in tensor.sizes.items()}
        one = problem.seconds(lambda: tensor.apply(together), 2) / tensor.copies
        passes = 2 / 3 * self.outputs * problem.gradient.seconds * self.examples / sum(problem.examples)
        held = self.examples * self.outputs * total * tensor.dtype.itemsize
        if not curved:
            return self._price(passes, held, "Gauss-Newton factors: the network is piecewise linear after its nodes")
        return self._price(passes + one * products, held, f"Gauss-Newton factors, about {products} products")

    def _price(self, seconds: float, held: float, how: str) -> Price:
        return Price(seconds / self.problem.gradient.seconds, held, how)


def _layers(problem: Problem) -> Layers:
    """Kept for the next price. Raises ValueError for a network without a graph."""
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
        operator = CurvatureOperator(dag, dag.x[:1], dag.y[:1], check=False)
        one = problem.seconds(lambda: verify(operator, generator=problem.generator("price")), 2)
    except ValueError as error:
        return impossible(error)
    layers = _layers(problem)
    exact = layers.routing[1] if sum(operator.sizes.values()) <= EXACT_SIZE else 0.0
    exact = exact if math.isfinite(exact) else 0.0
    seconds = one * (1 + PER_EXAMPLE * (layers.examples - 1)) + exact
    how = "finite differences of gradients of each example" + (", and of exact blocks" if exact else "")
    return Price(seconds / problem.gradient.seconds, 3 * problem.gradient.bytes, how)


# ------------------------------------------------------------------ over the parameters


def estimated_products(problem: Problem) -> dict[str, float]:
    """Products that the estimators are foretold to take, by part. Lanczos: two or three restarts for each end."""
    k, groups = problem.options.eigenvalues, len(problem.operator.groups)
    return {
        "groups": (PAIR_PROBES + COUPLING_PROBES + 2 * RANK_STEPS) * groups,
        "eigenvalues": 4 * max(2 * k + 1, 20) + k + 2 * 20,
        "density": DENSITY_PROBES * DENSITY_STEPS,
        "trace": TRACE_PRODUCTS + BOUND_PROBES,
    }


def is_exact(problem: Problem) -> bool:
    """Whether the whole matrix is cheaper than the estimates, and fits three times into the memory."""
    n = problem.operator.shape[0]
    fits = 3 * n * n * problem.operator.dtype.itemsize <= problem.options.memory
    return fits and n <= sum(estimated_products(problem).values())


def product_gradients(problem: Problem) -> tuple[float, float]:
    """Gradients that a product with the Hessian, and with its Gauss-Newton part, costs: measured."""
    if "products" not in problem.told:
        found = []
        for operator in (problem.operator, _smooth(problem)):
            v = torch.ones(operator.shape[0], dtype=operator.dtype, device=operator.device)
            operator.matvec(v)
            found.append(problem.seconds(lambda o=operator, v=v: o.matvec(v)) / problem.gradient.seconds)
            operator.products = 0
        problem.told["products"] = (found[0], found[1])
    one, two = problem.told["products"]
    return one, two


def _smooth(problem: Problem) -> Any:
    try:
        return problem.smooth
    except (ValueError, RuntimeError):  # told where it is measured
        return problem.operator


def price_of(part: str) -> Callable[[Problem], Price]:
    """The price of a part: of the whole matrix for the first that needs it."""

    def price(problem: Problem) -> Price:
        try:
            operator = problem.operator
        except ValueError as error:
            return impossible(error)
        product, smooth = product_gradients(problem)
        n, itemsize = operator.shape[0], operator.dtype.itemsize
        certified = certificate_gradients(problem) if part == "eigenvalues" else 0.0
        if is_exact(problem):
            first = problem.told.setdefault("matrix", part) == part
            how = f"exact: the whole matrix from {n} products" if first else "exact, from the same matrix"
            gradients = n * product * first + n * smooth * (part == "groups") + certified
            return Price(gradients, 3 * n * n * itemsize + 3 * problem.gradient.bytes, how)
        products = estimated_products(problem)[part]
        more = PAIR_PROBES * len(operator.groups) * smooth if part == "groups" else 0.0
        vectors = {"eigenvalues": 3 * problem.options.eigenvalues + 20, "density": 64}.get(part, 8)
        held = vectors * n * itemsize + 3 * problem.gradient.bytes
        return Price(products * product + more + certified, held, f"estimated: about {products:.0f} products")

    return price


def certificate_gradients(problem: Problem) -> float:
    """Of the certificate of the products: four gradients of each batch in float64, ten of the first, and for each batch
    an operator of its own with one product."""
    batches = len(problem.batches)
    double = 1.0 if problem.operator.dtype == torch.float64 else 2.0
    alone = problem.building / problem.gradient.seconds / batches + product_gradients(problem)[0] / batches
    return double * (4 + 10 / batches) + batches * alone


# ------------------------------------------------------------------ gradient noise


def price_of_noise(problem: Problem) -> Price:
    size = len(problem.batches) * problem.size * 8
    return Price(1, problem.gradient.bytes + size, "one gradient of each batch")
