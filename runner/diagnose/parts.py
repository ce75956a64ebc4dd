"""What one command measures, part by part: the tables that come out.

A part that a network does not allow (no second derivative, no graph) is a row with the reason in `status`; the others
are measured all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.contract.certificate import certificate_row
from runner.diagnose.pricing import Price
from runner.diagnose.problem import Problem

Table = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Part:
    """One part: its name, the price before it starts, and its tables."""

    name: str
    price: Callable[[Problem], Price]
    measure: Callable[[Problem], dict[str, Table]]
    wanted: Callable[[Problem], bool] = lambda problem: True


class Rows:
    """Rows of a table of scalars: quantity, value, error, method, status."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float, float, str, str]] = []

    def add(self, quantity: str, value: float, error: float = 0.0, method: str = "", status: str = "ok") -> None:
        self.rows.append((quantity, float(value), float(error), method, status))

    def table(self) -> Table:
        names = ("quantity", "value", "error", "method", "status")
        return {name: [row[i] for row in self.rows] for i, name in enumerate(names)}


def columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """Rows as columns."""
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


# ------------------------------------------------------------------ the network itself


def measure_network(problem: Problem) -> dict[str, Table]:
    """Loss, norm of its gradient, sizes; the nodes of the graph and what tracing decided."""
    rows = Rows()
    rows.add("loss", problem.first_gradients.value, method="mean over the batches, by their examples")
    rows.add("gradient norm", problem.first_gradients.norm, method="all batches")
    rows.add("parameters", problem.size)
    rows.add("examples", sum(problem.examples))
    notes = ["the loader had more batches than were taken (batches=N)"] if problem.snapshot.more else []
    nodes: list[Sequence[Any]] = []
    try:
        dag = problem.dag
    except ValueError as error:
        notes.append(f"no graph between layers: {error}")
    else:
        notes += dag.notes
        sizes = problem.sizes
        nodes = [(name, sizes[name], " ".join(dag.nodes[name].parents)) for name in dag.order]
    return {
        "scalars": rows.table(),
        "nodes": columns(("node", "size", "parents"), nodes),
        "notes": columns(("note",), [(note,) for note in notes]),
    }


# ------------------------------------------------------------------ between layers


LAYERS = ("v", "w", "distance", "R", "R_error", "C", "C_error", "D", "D_error", "gap", "gap_error", "method", "status")


def measure_layers(problem: Problem) -> dict[str, Table]:
    """R, C, D and gap of every pair of named outputs, of the first batch (DAG paper, Definition 23)."""
    from runner.curvature import inter_layer_metrics

    try:
        dag = problem.dag
        found = inter_layer_metrics(dag, dag.x, dag.y, generator=problem.generator("layers"))
    except ValueError as error:
        return {"layers": columns(LAYERS, [("", "", math.nan, *[math.nan] * 8, "", " ".join(str(error).split()))])}
    rows = []
    for (v, w), pair in found.items():
        values = [x for e in (pair.R, pair.C, pair.D, pair.gap) for x in (e.value, e.error)]
        reasons = [f"{n}: {e.reason}" for n, e in zip("RCD", (pair.R, pair.C, pair.D), strict=True) if e.reason]
        reasons += [f"gap: {pair.gap.reason}"] if pair.gap.reason else []
        rows.append((v, w, dag.distance(v, w), *values, pair.method, "; ".join(reasons) or "ok"))
    return {"layers": columns(LAYERS, rows)}


# ------------------------------------------------------------------ certificate


def measure_certificate(problem: Problem) -> dict[str, Table]:
    """Products between layers against finite differences of gradients, of the first batch."""
    from runner.curvature import verify

    try:
        dag = problem.dag
        found = verify(dag, dag.x, dag.y, generator=problem.generator("certificate"))
    except ValueError as error:
        return {"certificate": [certificate_failure("between layers", error)]}
    return {"certificate": [certificate_row("between layers", found)]}


def certificate_failure(what: str, error: Exception) -> dict[str, Any]:
    """The row of what could not be verified."""
    unknown = {"error": math.nan, "where": "", "tolerance": math.nan, "difference_step": math.nan}
    return {"what": what, "ok": 0, **unknown, "status": " ".join(str(error).split())}


# ------------------------------------------------------------------ gradient noise


def measure_noise(problem: Problem) -> dict[str, Table]:
    """Gradient noise scale tr(Sigma) / |G|^2 in examples: the batch size at which noise and gradient are equal.

    From the gradients g_i of m batches of b examples: tr(Sigma) = b sum |g_i - mean|^2 / (m - 1), |G|^2 = |mean|^2 -
    tr(Sigma) / (b m). error: jackknife over the batches.
    """
    import torch

    size = max(set(problem.examples), key=problem.examples.count)
    chosen = [b for b, n in zip(problem.batches, problem.examples, strict=True) if n == size]
    rows = Rows()
    if len(chosen) < 3:
        rows.add("gradient noise scale", math.nan, math.nan, "", f"needs 3 batches of one size, found {len(chosen)}")
        return {"scalars": rows.table()}
    stacked = torch.stack([problem.batch_gradient(batch)[1].double() for batch in chosen])
    gram = (stacked @ stacked.T).cpu()
    value, trace, signal = noise_scale(gram, size)
    keep = [[j for j in range(len(gram)) if j != i] for i in range(len(gram))]
    others = torch.tensor([noise_scale(gram[k][:, k], size)[0] for k in keep], dtype=torch.float64)
    error = math.sqrt((len(gram) - 1) / len(gram) * float((others - others.mean()).square().sum()))
    method = f"{len(chosen)} batches of {size}"
    status = "ok" if signal > 0 else "the gradient is smaller than its noise: more or larger batches are needed"
    rows.add(
        "gradient noise scale", value if signal > 0 else math.nan, error if signal > 0 else math.nan, method, status
    )
    rows.add("trace of the gradient's covariance", trace, math.nan, method)
    return {"scalars": rows.table()}


def noise_scale(gram: Any, size: int) -> tuple[float, float, float]:
    """(tr(Sigma)/|G|^2, tr(Sigma), |G|^2) from the inner products of the gradients of m batches of `size` examples."""
    m = len(gram)
    mean = float(gram.mean())
    trace = size * (float(gram.trace()) - m * mean) / (m - 1)
    signal = mean - trace / (size * m)
    return (trace / signal if signal else math.nan), trace, signal
