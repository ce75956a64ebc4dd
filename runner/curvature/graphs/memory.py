"""The memory of an exact computation: how many examples go through a graph at once."""

from __future__ import annotations

from typing import NamedTuple

from runner.curvature.graphs.dag import INPUT, Dag

MEMORY_BUDGET = 1 << 30
"""Default bytes for one exact computation, working set and results together."""


class Elements(NamedTuple):
    """Numbers stored for each example while routing, and for the results, of so many nodes."""

    each: int
    results: int
    nodes: int

    def fit(self, numbers: int) -> int:
        """How many examples fit where so many numbers do."""
        return max(0, numbers - self.results) // self.each


def exact_elements(
    dag: Dag,
    sizes: dict[str, int],
    measured: tuple[str, ...],
    per_example: bool = False,
    kept: int = 3,
) -> Elements:
    """Of the exact blocks of `measured`.

    kept: how many sets of blocks exist at once (Gauss-Newton alone 1, with the tensor part 2, both
    and their sum 3), each half of a square matrix, since the other half are transposed views."""
    routed = sum(sizes[v] for v in dag.order)
    widest = max(sizes[v] for v in dag.order)
    total = sum(sizes[v] for v in measured)
    edges = 0
    for u in dag.order:
        for p in set(dag.nodes[u].parents):
            if p != INPUT or INPUT in measured:
                edges += sizes[p] * (sizes[u] + sizes[p])
    working = 3 * routed * widest + edges + 3 * sizes[dag.output] * total
    results = kept * (total**2 + widest * total) // 2 + widest * total
    if per_example:
        return Elements(working + results, 0, len(measured))
    return Elements(working, results, len(measured))


def require_room(need: Elements, examples: int, itemsize: int, budget: int) -> None:
    """Raises ValueError where so many examples do not fit into `budget` bytes, naming the
    estimators to use instead."""
    if need.fit(budget // itemsize) < examples:
        wanted = _bytes((need.results + need.each * examples) * itemsize)
        raise ValueError(
            f"exact blocks of {need.nodes} nodes need {wanted}, over the budget of "
            f"{_bytes(budget)}. Measure fewer nodes, raise memory_budget, or take "
            "graph_metrics, which estimates without the blocks"
        )


def _bytes(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"
