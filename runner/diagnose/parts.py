"""The parts of a diagnosis, and the tables that each gives.

A part that a network does not allow (no second derivative, no graph) is a row with the reason in `status`. Quantities
over the parameters come from the whole matrix where as many products as it has columns cost no more than the
estimates; otherwise from the estimators of `runner.curvature`, with their errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from runner.contract import Table
from runner.contract.records import certificate_row
from runner.curvature import (
    discarded_coupling,
    group_metrics,
    inter_layer_metrics,
    spectral_density,
    top_eigenpairs,
    trace_estimate,
    upper_bound_estimate,
    verify,
)
from runner.curvature.estimators.bounds import wolkowicz_styan_upper
from runner.diagnose import costs
from runner.diagnose.costs import Cost, is_exact
from runner.diagnose.problem import Problem

LAYERS = (
    "v",
    "w",
    "distance",
    "R",
    "R_error",
    "C",
    "C_error",
    "D",
    "D_error",
    "gap",
    "gap_error",
    "method",
    "status",
)
PAIRS = (
    "v",
    "w",
    "R",
    "R_error",
    "C",
    "C_error",
    "share",
    "D",
    "D_error",
    "gap",
    "gap_error",
    "method",
    "status",
)
GRID = 201
"""Points of the spectral density."""


@dataclass(frozen=True)
class Part:
    """A part: its predicted cost, its tables, the quantity that is missing where there is no operator over the
    parameters, and whether a problem allows it."""

    cost: Callable[[Problem], Cost]
    tables: Callable[[Problem], dict[str, Table]]
    quantity: str = ""
    allowed: Callable[[Problem], bool] = lambda problem: True

    def measure(self, problem: Problem) -> dict[str, Table]:
        """The tables of this part, or a row with the reason why there is no number."""
        if self.quantity:
            try:
                problem.operator  # noqa: B018  built here once, and kept
            except ValueError as error:
                return missing(self.quantity, error)
        return self.tables(problem)


class Rows:
    """Rows of a table of scalars: quantity, value, error, method, status."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float, float, str, str]] = []

    def add(
        self, quantity: str, value: float, error: float = 0.0, method: str = "", status: str = "ok"
    ) -> None:
        self.rows.append((quantity, float(value), float(error), method, status))

    def table(self) -> Table:
        return columns(("quantity", "value", "error", "method", "status"), self.rows)


def columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """Rows as columns."""
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def missing(quantity: str, error: Exception | str) -> dict[str, Table]:
    """A row with the reason why there is no number."""
    rows = Rows()
    rows.add(quantity, math.nan, math.nan, "", " ".join(str(error).split()))
    return {"scalars": rows.table()}


def certificate(what: str, verified: Callable[[], Any]) -> dict[str, Table]:
    """The row of a numerical check, or of the reason why there is none."""
    try:
        return {"certificate": [certificate_row(what, verified())]}
    except (ValueError, RuntimeError) as error:
        unknown = {
            "error": math.nan,
            "where": "",
            "tolerance": math.nan,
            "difference_step": math.nan,
        }
        return {
            "certificate": [
                {"what": what, "ok": 0, **unknown, "status": " ".join(str(error).split())}
            ]
        }


def network(problem: Problem) -> dict[str, Table]:
    """Loss, norm of its gradient, sizes; the nodes of the graph and notes on tracing."""
    rows = Rows()
    rows.add(
        "loss", problem.first_gradients.value, method="mean over the batches, by their examples"
    )
    rows.add("gradient norm", problem.first_gradients.norm, method="all batches")
    rows.add("parameters", problem.size)
    rows.add("examples", sum(problem.examples))
    notes = (
        ["the loader had more batches than were used (batches=N)"] if problem.snapshot.more else []
    )
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


def layers(problem: Problem) -> dict[str, Table]:
    """R, C, D and gap of every pair of named outputs, of the first batch (DAG paper, Definition 23)."""
    try:
        dag = problem.dag
        budget = problem.options.budget
        pairs = inter_layer_metrics(
            dag, dag.x, dag.y, generator=problem.generator("layers"), memory_budget=budget
        )
    except ValueError as error:
        return {
            "layers": columns(
                LAYERS, [("", "", math.nan, *[math.nan] * 8, "", " ".join(str(error).split()))]
            )
        }
    rows = []
    for (v, w), pair in pairs.items():
        named = {"R": pair.R, "C": pair.C, "D": pair.D, "gap": pair.gap}
        values = [x for e in named.values() for x in (e.value, e.error)]
        reasons = [f"{name}: {e.reason}" for name, e in named.items() if e.reason]
        rows.append((v, w, dag.distance(v, w), *values, pair.method, "; ".join(reasons) or "ok"))
    return {"layers": columns(LAYERS, rows)}


def certificate_between_layers(problem: Problem) -> dict[str, Table]:
    """Products between layers compared with finite differences of gradients, of the first batch."""

    def verified() -> Any:
        dag = problem.dag
        generator, most = problem.generator("certificate"), costs.CERTIFIED_COMPONENTS
        return verify(dag, dag.x, dag.y, generator=generator, components=most)

    return certificate("between layers", verified)


def eigenvalues(problem: Problem) -> dict[str, Table]:
    """The k largest eigenvalues with residuals |Hu - lambda u|, the smallest one, and a check of the products."""
    operator = problem.operator
    k = min(problem.options.eigenvalues, operator.shape[0])
    rows, table = Rows(), []
    if is_exact(problem):
        values, _ = problem.eigen
        table = [(i, float(value), 0.0, True) for i, value in enumerate(values.flip(0)[:k])]
        rows.add("lambda_1", float(values[-1]), 0.0, "whole matrix")
        rows.add("lambda_n", float(values[0]), 0.0, "whole matrix")
    else:
        budget = problem.options.budget
        pairs = top_eigenpairs(
            operator, k, memory_budget=budget, generator=problem.generator("eigenvalues")
        )
        end = top_eigenpairs(
            operator, 1, "smallest", memory_budget=budget, generator=problem.generator("smallest")
        )
        each = zip(
            pairs.values.tolist(), pairs.residuals.tolist(), pairs.converged.tolist(), strict=True
        )
        table = [(i, *row) for i, row in enumerate(each)]
        for name, one in (("lambda_1", pairs), ("lambda_n", end)):
            method = f"{one.products} products, error: residual"
            status = "ok" if bool(one.converged[0]) else one.reason or "has not converged"
            rows.add(name, float(one.values[0]), float(one.residuals[0]), method, status)
    tables: dict[str, Table] = {
        "eigenvalues": columns(("index", "value", "residual", "converged"), table),
        "scalars": rows.table(),
    }
    return tables | certificate(
        "parameters", lambda: verify(operator, generator=problem.generator("certificate"))
    )


def density(problem: Problem) -> dict[str, Table]:
    """The density of eigenvalues, smoothed by a normal density whose width is one hundredth of their range."""
    if is_exact(problem):
        values, _ = problem.eigen
        width = max(float(values[-1] - values[0]) / 100, 1e-12 * float(values.abs().max()), 1e-300)
        grid = torch.linspace(
            float(values[0]) - 3 * width, float(values[-1]) + 3 * width, GRID, dtype=torch.float64
        )
        bells = torch.exp(-0.5 * ((grid[:, None] - values[None]) / width) ** 2) / (
            width * math.sqrt(2 * math.pi)
        )
        curve = bells.mean(1).tolist()
        points = list(zip(grid.tolist(), curve, curve, curve, strict=True))
    else:
        probes, steps, budget = costs.DENSITY_PROBES, costs.DENSITY_STEPS, problem.options.budget
        generator = problem.generator("density")
        estimate = spectral_density(
            problem.operator, probes, steps, memory_budget=budget, generator=generator
        )
        each = zip(
            estimate.grid.tolist(), estimate.density.tolist(), estimate.error.tolist(), strict=True
        )
        points = [(x, d, max(0.0, d - 1.96 * e), d + 1.96 * e) for x, d, e in each]
    return {"density": columns(("eigenvalue", "density", "low", "high"), points)}


def trace(problem: Problem) -> dict[str, Table]:
    """tr H, and lambda_sup = mean + sqrt(n - 1) std of the spectrum, which bounds lambda_1 (WS bound, Eq. 7)."""
    rows = Rows()
    if is_exact(problem):
        matrix = problem.matrix
        total, squares = matrix.trace(), matrix.square().sum()
        rows.add("trace", float(total), 0.0, "whole matrix")
        rows.add("trace of the square", float(squares), 0.0, "whole matrix")
        rows.add(
            "lambda_sup",
            float(wolkowicz_styan_upper(len(matrix), total, squares)),
            0.0,
            "whole matrix",
        )
    else:
        operator = problem.operator
        estimate = trace_estimate(
            operator, costs.TRACE_PRODUCTS, generator=problem.generator("trace")
        )
        method = f"{estimate.method}, {estimate.products} products, error: standard error"
        rows.add("trace", estimate.value, estimate.error, method, estimate.reason or "ok")
        bound = upper_bound_estimate(
            operator, costs.BOUND_PROBES, generator=problem.generator("bound")
        )
        method = f"{bound.products} products, error: standard error"
        rows.add("trace of the square", *bound.trace_of_square, method)
        method = f"{bound.products} products, error: half of the 95 % interval [{bound.low:.4g}, {bound.high:.4g}]"
        rows.add("lambda_sup", bound.value, (bound.high - bound.low) / 2, method)
    return {"scalars": rows.table()}


def groups(problem: Problem) -> dict[str, Table]:
    """Discarded share Phi = 1 - sum_v ||H_vv||^2 / ||H||^2, and R, C, share of ||H||^2, D and gap between the groups of
    parameters, one group for each module. Where they are estimated, D is that of the diagonal blocks."""
    operator = problem.operator
    if len(operator.groups) < 2:
        return missing(
            "discarded share", "one group of parameters: there is nothing between groups"
        )
    rows = Rows()
    if is_exact(problem):
        pairs = _from_matrix(problem)
        total = sum(r[2] ** 2 * (1 if r[0] == r[1] else 2) for r in pairs)
        inside = sum(r[2] ** 2 for r in pairs if r[0] == r[1])
        value = 1 - inside / total if total else math.nan
        rows.add(
            "discarded share", value, 0.0, "whole matrix", "ok" if total else "the matrix is zero"
        )
        return {"scalars": rows.table(), "groups": columns(PAIRS, pairs)}
    share = discarded_coupling(
        operator, costs.COUPLING_PROBES, generator=problem.generator("coupling")
    )
    method = f"{share.products} products, error: half of the 95 % interval [{share.low:.4g}, {share.high:.4g}]"
    rows.add(
        "discarded share", share.value, (share.high - share.low) / 2, method, share.reason or "ok"
    )
    return {"scalars": rows.table(), "groups": columns(PAIRS, _from_probes(problem))}


def _from_matrix(problem: Problem) -> list[tuple[Any, ...]]:
    """Rows of PAIRS from the whole matrix and its Gauss-Newton part."""
    whole, spans, why = problem.matrix, problem.operator.groups, ""
    try:
        smooth = problem.smooth.dense().double()
    except ValueError as error:
        smooth, why = torch.full_like(whole, torch.nan), f"gap: {' '.join(str(error).split())}"
    norms = {(v, w): float(whole[a, b].norm()) for v, a in spans.items() for w, b in spans.items()}
    rounding = (
        64 * torch.finfo(problem.operator.dtype).eps
    )  # of the difference of two equal matrices
    rows = []
    for v, w in _pairs(spans):
        block, flat = whole[spans[v], spans[w]], smooth[spans[v], spans[w]]
        sigma, gn = float(torch.linalg.matrix_norm(block, 2)), float(flat.norm())
        rank = (norms[v, w] / sigma) ** 2 if sigma else math.nan
        tensor = float((block - flat).norm())
        tensor = tensor if tensor > rounding * (norms[v, w] + gn) else 0.0
        gap = tensor / gn if gn else math.nan
        status = why or ("ok" if sigma and gn else "block is numerically zero")
        share = (
            norms[v, w] ** 2 * (1 if v == w else 2) / whole.square().sum().item()
            if whole.any()
            else math.nan
        )
        coupling = _coupling(norms, v, w)
        rows.append(
            (
                v,
                w,
                norms[v, w],
                0.0,
                coupling,
                0.0,
                share,
                rank,
                0.0,
                gap,
                0.0,
                "whole matrix",
                status,
            )
        )
    return rows


def _from_probes(problem: Problem) -> list[tuple[Any, ...]]:
    """Rows of PAIRS from products with random signs on each group, and D of the diagonal blocks."""
    operator = problem.operator
    diagonal = [(g, g) for g in operator.groups]
    try:
        pairs = group_metrics(
            operator,
            probes=costs.PAIR_PROBES,
            ranks=diagonal,
            generator=problem.generator("groups"),
        )
    except ValueError as error:  # there is no Gauss-Newton matrix
        return [("", "", *[math.nan] * 9, "", " ".join(str(error).split()))]
    total = math.fsum(m.R.value**2 * (1 if v == w else 2) for (v, w), m in pairs.items())
    rows = []
    for (v, w), m in pairs.items():
        share = m.R.value**2 * (1 if v == w else 2) / total if total else math.nan
        asked = (("C", m.C), *((("D", m.D),) if v == w else ()), ("gap", m.gap))
        reasons = [f"{n}: {e.reason}" for n, e in asked if e.reason]
        numbers = (
            m.R.value,
            m.R.error,
            m.C.value,
            m.C.error,
            share,
            m.D.value,
            m.D.error,
            m.gap.value,
            m.gap.error,
        )
        rows.append(
            (v, w, *numbers, f"{costs.PAIR_PROBES} probes a group", "; ".join(reasons) or "ok")
        )
    return rows


def _pairs(groups: Iterable[str]) -> list[tuple[str, str]]:
    names = list(groups)
    return [(v, w) for i, v in enumerate(names) for w in names[i:]]


def _coupling(norms: dict[tuple[str, str], float], v: str, w: str) -> float:
    scale = math.sqrt(norms[v, v] * norms[w, w])
    return norms[v, w] / scale if scale else math.nan


def noise(problem: Problem) -> dict[str, Table]:
    """Gradient noise scale tr(Sigma) / |G|^2 in examples: the batch size at which noise and gradient are equal.

    From the gradients g_i of m batches of b examples: tr(Sigma) = b sum |g_i - mean|^2 / (m - 1), |G|^2 = |mean|^2 -
    tr(Sigma) / (b m). error: jackknife over the batches.
    """
    size = max(set(problem.examples), key=problem.examples.count)
    chosen = [b for b, n in zip(problem.batches, problem.examples, strict=True) if n == size]
    if len(chosen) < 3:
        return missing("gradient noise scale", f"needs 3 batches of one size, found {len(chosen)}")
    rows = Rows()
    stacked = torch.stack([problem.batch_gradient(batch)[1].double() for batch in chosen])
    gram = (stacked @ stacked.T).cpu()
    value, trace, signal = noise_scale(gram, size)
    keep = [[j for j in range(len(gram)) if j != i] for i in range(len(gram))]
    others = torch.tensor([noise_scale(gram[k][:, k], size)[0] for k in keep], dtype=torch.float64)
    error = math.sqrt((len(gram) - 1) / len(gram) * float((others - others.mean()).square().sum()))
    method = f"{len(chosen)} batches of {size}"
    if signal > 0:
        rows.add("gradient noise scale", value, error, method)
    else:
        why = "the gradient is smaller than its noise: more or larger batches are needed"
        rows.add("gradient noise scale", math.nan, math.nan, method, why)
    rows.add("trace of the gradient's covariance", trace, math.nan, method)
    return {"scalars": rows.table()}


def noise_scale(gram: Any, size: int) -> tuple[float, float, float]:
    """(tr(Sigma)/|G|^2, tr(Sigma), |G|^2) from the inner products of the gradients of m batches of `size` examples."""
    m = len(gram)
    mean = float(gram.mean())
    trace = size * (float(gram.trace()) - m * mean) / (m - 1)
    signal = mean - trace / (size * m)
    return (trace / signal if signal else math.nan), trace, signal


PARTS: dict[str, Part] = {
    "network": Part(costs.cost_of_network, network),
    "certificate": Part(costs.cost_of_certificate, certificate_between_layers),
    "layers": Part(costs.cost_of_layers, layers),
    "groups": Part(costs.cost_of("groups"), groups, "discarded share"),
    "eigenvalues": Part(costs.cost_of("eigenvalues"), eigenvalues, "lambda_1"),
    "density": Part(costs.cost_of("density"), density, "spectral density"),
    "trace": Part(costs.cost_of("trace"), trace, "trace"),
    "noise": Part(costs.cost_of_noise, noise, allowed=lambda problem: problem.snapshot.loader),
}
"""Every part by name, in the order in which they are measured."""
