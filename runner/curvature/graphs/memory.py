"""The memory of an exact computation: how many examples go through a graph at once."""

from __future__ import annotations

from runner.curvature.graphs.dag import INPUT, Dag

MEMORY_BUDGET = 1 << 30
"""Default bytes for one exact computation, working set and results together."""


def exact_elements(
    dag: Dag,
    sizes: dict[str, int],
    measured: tuple[str, ...],
    per_example: bool = False,
    kept: int = 3,
) -> tuple[int, int]:
    """Numbers stored per example while routing, and for the results, for the exact blocks of
    `measured`.

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
    result = kept * (total**2 + widest * total) // 2 + widest * total
    return working + (result if per_example else 0), 0 if per_example else result


def plan_chunk(
    dag: Dag,
    sizes: dict[str, int],
    measured: tuple[str, ...],
    examples: int,
    itemsize: int,
    budget: int,
    per_example: bool = False,
    kept: int = 3,
    reserved: int = 0,
) -> int:
    """How many examples fit at once into `budget` bytes, `reserved` of them set aside.

    Raises ValueError when not even one does (per_example: when not all do), naming the estimators
    to use instead."""
    working, result = exact_elements(dag, sizes, measured, per_example, kept)
    room = (budget - reserved) // itemsize - result
    chunk = 0
    if room > 0:
        chunk = min(examples, room // working)
    if chunk < (examples if per_example else 1):
        need = (result + working * (examples if per_example else 1)) * itemsize + reserved
        raise ValueError(
            f"exact blocks of {len(measured)} nodes need {_bytes(need)}, over the budget of "
            f"{_bytes(budget)}. Measure fewer nodes, raise memory_budget, or take "
            "graph_metrics, which estimates without the blocks"
        )
    return chunk


def _bytes(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"
