"""R, C, D and the GN-gap of pairs of nodes at the least cost, exact where the structure allows.

Operation count, F operations for one forward pass of the batch through the part behind the first
measured node, n measured nodes, P = n (n+1)/2 pairs, K outputs:

    usual way      30 probes and 20 power steps, pair by pair: 3 F (30 P + 40 P) for R and D,
                   6 F 30 P for the gap
    factors        F + (K-1) F backward passes give every Gauss-Newton block (factors.py), 3 F one
                   product with the tensor part T: where it is zero (piecewise linear after the
                   measured nodes) everything is exact
    products       where it is not: 3 F 8 n more for R, C and gap: 8 probes on each node, each of
                   which serves all pairs of its row and column; for D again about 3 F 14 n: sweeps
                   over the nodes, in which all pairs take half a step of a block Krylov iteration
                   together (pairs/singular_values.py)
    exact blocks   2 B sum d_u d_p d_w over edges (p, u) and nodes w after p (curvature routing),
                   all of it exact

A product counts 3 F at most: a tangent pass, from its node up, and two for the elementwise work and
the pass down. Convolutions are linear maps here (function/modes.py): torch's own second derivative
adds one F for the weights. Several go through the network at once: a convolution on 8 x 8 maps and
a product of 32 rows wait for their weights.

ResNet-18 (n = 5, P = 15, K = 10): usual 3150 F for R and D, factors 13 F, with products 260 F. MLP
with L = 6, width 256, B = 32 (n = 6, P = 21; F = 25 Mflop): usual 4400 F = 0.11 Tflop in small
steps, products 400 F = 10 Gflop, exact blocks 36 Gflop in large ones, at the rate of a large matrix
product."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from runner.curvature.basics.adapters import own_generator
from runner.curvature.basics.symmetric import Pair
from runner.curvature.graphs.blocks import split_blocks
from runner.curvature.graphs.by_factors import PROBES, FactorMetrics
from runner.curvature.graphs.checks import checked_evaluation
from runner.curvature.graphs.dag import INPUT, Dag
from runner.curvature.graphs.derivatives import (
    Evaluation,
    evaluate,
    naming_node,
    require_floating,
)
from runner.curvature.graphs.factors import OutputFactors, PerturbedNetwork, TensorPart
from runner.curvature.graphs.memory import MEMORY_BUDGET, exact_elements
from runner.curvature.graphs.state import differentiable, undisturbed
from runner.curvature.operators.users import LayerOperator
from runner.curvature.pairs.by_products import ProductMetrics
from runner.curvature.pairs.probes import SWEPT
from runner.curvature.pairs.ratios import (
    MOST_PROBES,
    Asked,
    InterLayerMetrics,
    Measurement,
    metrics_of_blocks,
    require_error,
)

AFFORDABLE = 3.0
"""Cost of exact blocks, in costs of the probes, up to which they are exact where no error is asked
for."""
OUTPUTS = 15
"""Outputs for each product, from which on a backward pass for each output costs more than ten times
what the products cost."""


class RoutedMetrics(Measurement):
    """From blocks by curvature routing, which takes no products."""

    def __init__(self, asked: Asked, measure: Callable[[], InterLayerMetrics]) -> None:
        super().__init__(asked)
        self.measure = measure

    def steps(self) -> Iterator[None]:
        yield
        self.found = self.measure()


def metrics_from_blocks(
    dag: Dag, x: Tensor, y: Tensor, nodes: tuple[str, ...], asked: Asked, memory_budget: int
) -> InterLayerMetrics:
    """Exact R, C, D, gap of the pairs `asked`."""
    split = split_blocks(dag, x, y, nodes, memory_budget=memory_budget, check=False)
    largest = [float(split.total[v, v].abs().max()) for v in nodes]
    scale = max(largest, default=0.0)
    unit = scale if scale > 0 else 1.0

    def scaled(pair: Pair) -> list[Tensor]:
        parts = (split.total, split.gauss_newton, split.tensor)
        return [part[pair].double() / unit for part in parts]

    eps = float(torch.finfo(split.total[nodes[0], nodes[0]].dtype).eps)
    return metrics_of_blocks(scaled, asked, scale, eps)


@undisturbed
def graph_metrics(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    nodes: Iterable[str] | None = None,
    pairs: Iterable[Pair] | None = None,
    *,
    relative_error: float | None = None,
    generator: torch.Generator | None = None,
    ranks: bool = True,
    memory_budget: int = MEMORY_BUDGET,
    check: bool = True,
    progress: bool | None = None,
) -> InterLayerMetrics:
    """R, C, D and Gauss-Newton gap of each pair of nodes of a stated graph, with the method that
    costs least.

    R = ||H[v,w]||_F, C = R(v,w) / sqrt(R(v,v) R(w,w)), D = ||H[v,w]||_F^2 / sigma_1^2,
    gap = ||T[v,w]||_F / ||GN[v,w]||_F of the batch-mean blocks (DAG paper, Definition 23, Eqs. 4,
    7).

    Parameters
    ----------
    nodes
        Default: all.
    pairs
        (v, w); default every pair of `nodes`, v at or before w.
    relative_error
        Asked of every value. Default: exact where that costs at most three times as much, else 8
        probes a node. A value that would need more than 4096 probes comes with the error it has.
    generator
        Of the probes; default: a new one.
    ranks
        False leaves D out (NaN), which is more than half of the cost of smooth networks.
    memory_budget
        Bytes for the factors or the exact blocks, or for products under way; directions on each
        node with their images, of which sigma_1 is made, come on top.
    check
        False skips the checks of the graph and the batch.
    progress
        True or False: a bar, or none. None: a bar after two seconds in a terminal or notebook.

    Returns
    -------
    InterLayerMetrics
        As of `inter_layer_metrics`. method: "factors" (exact: the tensor part is zero, shown by
        one product with it on all nodes), "factors, products" (Gauss-Newton exact, tensor part
        from probes), "exact blocks" (curvature routing), "products" (more outputs than factors are
        worth). NaN with a reason where the block is numerically zero.

    Raises
    ------
    ValueError
        Where the numbers would be wrong, for unknown nodes in pairs, and for relative_error <= 0.

    Examples
    --------
    >>> dag = Dag.from_sequential([torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)])
    >>> found = graph_metrics(dag, torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 0]), ["0"])
    >>> found["0", "0"].method, found["0", "0"].gap.value
    ('factors', 0.0)
    """
    require_error(relative_error)
    names, wanted = _asked(dag, nodes, pairs)
    x, y = differentiable(x=x, y=y)
    asked = Asked(wanted, relative_error, own_generator(generator), ranks)
    evaluation = checked_evaluation(dag, x, y) if check else evaluate(dag, x)
    require_floating(evaluation.values, names)
    return _cheapest(dag, x, y, evaluation, names, asked, memory_budget).run(progress)


def _cheapest(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    evaluation: Evaluation,
    names: tuple[str, ...],
    asked: Asked,
    memory_budget: int,
) -> Measurement:
    """The way with the least operations."""
    forward, routing = operations(dag, evaluation, names)
    outputs = evaluation.size(dag.output)
    probes = PROBES
    if asked.error is not None:
        probes = max(PROBES, min(MOST_PROBES, math.ceil(3e-3 / asked.error**2)))
    products = len(names) * (probes + (SWEPT if asked.ranks else 0))
    network = PerturbedNetwork.of(dag, x, names)
    tensor = TensorPart(dag, x, y, network, forward, memory_budget)
    with naming_node(dag, evaluation.values, evaluation.structures):
        curved = tensor.curved_nodes(asked.generator)
    bytes_of_factors = len(x) * outputs * sum(tensor.sizes.values()) * tensor.dtype.itemsize
    without = bytes_of_factors > memory_budget or outputs > OUTPUTS * products
    margin = AFFORDABLE if asked.error is None else 1.0
    cheap = curved and routing <= margin * forward * (2 * outputs + 3 * products)
    if (cheap or without) and blocks_fit(dag, evaluation, names, memory_budget):
        measure = partial(metrics_from_blocks, dag, x, y, names, asked, memory_budget)
        return RoutedMetrics(asked, measure)
    if without:
        module = dag.as_module()
        operator = LayerOperator(
            module, dag.loss, (x, y), names, memory_budget=memory_budget, check=False
        )

        def bent(w: str, z: Tensor, _: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {v: tensor.scale * t.double() for v, t in tensor.apply({w: z}).items()}

        return ProductMetrics(operator, bent, asked)
    factors = OutputFactors(network, dag.loss.hessian(network.output.detach(), y))
    if not (math.isfinite(factors.scale) and math.isfinite(tensor.scale)):
        raise ValueError(
            "the loss has derivatives that are not finite at this batch: check the input and "
            "the weights"
        )
    return FactorMetrics(factors, tensor, curved, asked)


def _asked(
    dag: Dag, nodes: Iterable[str] | None, pairs: Iterable[Pair] | None
) -> tuple[tuple[str, ...], list[Pair]]:
    """The measured nodes in order, and the pairs."""
    if pairs is None:
        names = dag.select(nodes)
        return names, list(combinations_with_replacement(names, 2))
    asked = [tuple(pair) for pair in pairs]
    if bad := [pair for pair in asked if len(pair) != 2]:
        raise ValueError(f"pairs must name two nodes each, got {bad}")
    used = dag.select({u for pair in asked for u in pair})
    if nodes is not None and (extra := set(used) - set(dag.select(nodes))):
        raise ValueError(
            f"pairs name nodes {sorted(extra)} that are not among nodes={sorted(dag.select(nodes))}"
        )
    return used, [(v, w) for v, w in asked]


def blocks_fit(
    dag: Dag, evaluation: Evaluation, names: tuple[str, ...], memory_budget: int
) -> bool:
    """Whether the exact blocks of one example fit the memory."""
    sizes = {v: evaluation.size(v) for v in evaluation.values}
    itemsize = evaluation.values[dag.output].element_size()
    return exact_elements(dag, sizes, names, kept=2).fit(memory_budget // itemsize) > 0


def operations(dag: Dag, evaluation: Evaluation, names: tuple[str, ...]) -> tuple[float, float]:
    """Of a forward pass and of curvature routing, by the sizes of the nodes, as of full matrices
    between them."""
    sizes = {v: evaluation.size(v) for v in evaluation.values}
    examples = len(evaluation.values[INPUT])
    place = {name: i for i, name in enumerate((INPUT, *dag.order))}
    first = min(place[v] for v in names)
    forward = 0.0
    routing = 0.0
    for u in dag.order:
        for p in set(dag.nodes[u].parents):
            if place[p] < first:
                continue
            later = sum(sizes[w] for w in names if place[w] >= place[p])
            derivatives = sizes[p] ** 2
            if u not in evaluation.structures:
                derivatives = 4 * (sizes[u] + sizes[p]) * sizes[p]
            forward += 2.0 * examples * sizes[u] * sizes[p]
            routing += 2.0 * examples * sizes[u] * (sizes[p] * later + derivatives)
    return forward, routing
