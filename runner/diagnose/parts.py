"""The parts of a diagnosis: the tables that each gives, and the work that it takes.

The predicted time of a part is its number of products times the time of one product. What a network
does not allow is a row with the reason in `status`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from runner.contract import Table
from runner.contract.records import certificate_row
from runner.curvature import (
    LayerOperator,
    ParameterOperator,
    batch_errors,
    inter_layer_metrics,
    spectral_density,
    top_eigenpairs,
    trace_estimate,
    upper_bound_estimate,
    verify,
)
from runner.curvature.pairs.ratios import InterLayerMetrics
from runner.curvature.uses.batch_errors import jackknife
from runner.diagnose.problem import Problem

FEW = 512
"""Parameters, or outputs of layers, up to which every number is exact, from as many products."""
DENSITY_PROBES = 4
DENSITY_STEPS = 60
TRACE_PRODUCTS = 60
BOUND_PROBES = 40
FIRST_PROBES = 30
"""On each group, of products with both matrices."""
GROUP_ERROR = 0.25
"""Relative error asked of R, C and gap between groups of parameters."""
NODE_PRODUCTS = 150
"""Products with both matrices for each node, where R, C, D and gap are estimated."""
VERIFIED = 24
"""Gradients of both numerical checks; up to 120 where kinks are near."""
SMALLEST = 20
"""Products for the smallest eigenvalue."""
BATCH_PRODUCTS = 20
"""Products with each batch for errors over batches of larger ones."""

Row = dict[str, Any]
Tables = dict[str, Table]
Work = Mapping[str, float]
"""How many of "gradient", "product", "product_together" and "product_between", whose seconds are
attributes of the problem."""


class Part(NamedTuple):
    """A part: its tables, the work that it takes, and whether a snapshot allows it."""

    tables: Callable[[Problem], Tables]
    work: Callable[[Problem], Work]
    allowed: Callable[[Problem], bool] = lambda problem: True


def scalar(
    quantity: str, value: float, error: float = 0.0, method: str = "", status: str = ""
) -> Row:
    """A row of the table of scalars."""
    row = {"quantity": quantity, "value": float(value), "error": float(error)}
    return row | {"method": method, "status": status or "ok"}


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def size_of(problem: Problem) -> int:
    return int(problem.operator.shape[0])


def enough(problem: Problem, products: int) -> int:
    """A number of products, or where there are few parameters one that makes the result exact."""
    size = size_of(problem)
    return max(products, size) if size <= FEW else products


# ------------------------------------------------------------------ network and numerical check


def network(problem: Problem) -> Tables:
    """Loss, norm of its gradient, sizes; the layers, and notes."""
    snapshot = problem.snapshot
    notes = list(problem.warnings)
    rows = [
        scalar("loss", problem.first.loss, method="mean over the batches, by their weights"),
        scalar("gradient norm", problem.first.norm, method="all batches"),
        scalar("parameters", size_of(problem)),
        scalar("examples", problem.operator.examples),
    ]
    if snapshot.more:
        notes.append("the loader had more batches than were used (batches=N)")
    if snapshot.state:
        notes.append(f"step {snapshot.step}: the state of {snapshot.state}")
    sizes: dict[str, int] = {}
    try:
        sizes = problem.layers.sizes
    except ValueError as error:
        notes.append(f"layers cannot be measured: {one_line(error)}")
    nodes: Table = {"node": list(sizes), "size": list(sizes.values())}
    return {"scalars": rows, "nodes": nodes, "notes": {"note": notes}}


def certificate(problem: Problem) -> Tables:
    """Products between layers and over the parameters next to differences of gradients."""
    rows = []
    for what, name in (("between layers", "layers"), ("parameters", "operator")):
        try:
            operator = getattr(problem, name)
            checked = verify(operator, generator=problem.generator("certificate"))
            rows.append(certificate_row(what, checked))
        except ValueError as error:
            nothing = dict.fromkeys(("error", "tolerance", "difference_step"), math.nan)
            status = one_line(error)
            rows.append({"what": what, "ok": 0, "where": "", **nothing, "status": status})
    return {"certificate": rows}


def work_of_certificate(problem: Problem) -> Work:
    return {"gradient": VERIFIED if problem.operator.dtype == torch.float64 else 2 * VERIFIED}


# ------------------------------------------------------------------ between layers and groups


def layers(problem: Problem) -> Tables:
    """R, C, D and gap of every pair of named outputs (DAG paper, Definition 23)."""
    try:
        pairs = inter_layer_metrics(problem.layers, generator=problem.generator("layers"))
    except ValueError as error:
        nothing = dict.fromkeys(("R", "C", "D", "gap"), math.nan)
        return {"layers": [{"v": "", "w": "", **nothing, "method": "", "status": one_line(error)}]}
    return {"layers": pair_rows(pairs)}


def work_of_layers(problem: Problem) -> Work:
    size = problem.layers.shape[0]
    products = 2 * size if size <= FEW else NODE_PRODUCTS * len(problem.layers.nodes)
    return {"product_between": products}


def groups(problem: Problem) -> Tables:
    """Discarded share Phi = 1 - sum_v ||H_vv||^2 / ||H||^2, and R, C, D, gap and share of ||H||^2
    between the groups of parameters, one group for each module."""
    operator = problem.operator
    name = "discarded share"
    if len(operator.groups) < 2:
        why = "one group of parameters: there is nothing between groups"
        return {"scalars": [scalar(name, math.nan, math.nan, status=why)]}
    pairs = inter_layer_metrics(
        operator,
        relative_error=GROUP_ERROR,
        ranks=keeps_directions(problem),
        generator=problem.generator("groups"),
    )
    rows = pair_rows(pairs)
    squares = [row["R"] ** 2 * (1 if row["v"] == row["w"] else 2) for row in rows]
    total = math.fsum(squares)
    for row, square in zip(rows, squares, strict=True):
        row["share"] = square / total if total else math.nan
    return {"scalars": [of_interval(name, pairs.phi)], "groups": rows}


def keeps_directions(problem: Problem) -> bool:
    """Whether the directions that D between groups needs fit the memory."""
    vectors = 2 * FIRST_PROBES * len(problem.operator.groups)
    return 8 * size_of(problem) * vectors <= problem.options.budget


def work_of_groups(problem: Problem) -> Work:
    size = size_of(problem)
    count = len(problem.operator.groups)
    estimated = NODE_PRODUCTS / 2 * count
    return {"product_together": 2 * size if size <= FEW else estimated}


def pair_rows(pairs: InterLayerMetrics) -> list[Row]:
    """A row for each pair."""
    rows = []
    for (v, w), metrics in pairs.items():
        named = {name: getattr(metrics, name).reason for name in ("R", "C", "D", "gap")}
        reasons = [f"{name}: {reason}" for name, reason in named.items() if reason]
        rows.append({"v": v, "w": w, **metrics.to_dict(), "status": "; ".join(reasons) or "ok"})
    return rows


# ------------------------------------------------------------------ spectrum


def eigenvalues(problem: Problem) -> Tables:
    """The k largest eigenvalues with residuals |Hu - lambda u|, and the smallest one."""
    k = min(problem.options.eigenvalues, size_of(problem))
    rows = []
    largest = eigenpairs(problem, k, "largest")
    ends = {"lambda_1": largest, "lambda_n": eigenpairs(problem, 1, "smallest")}
    for name, pairs in ends.items():
        method = f"{pairs.products} products, error: residual"
        why = ""
        if not bool(pairs.converged[0]):
            why = pairs.reason or "has not converged"
        rows.append(scalar(name, pairs.values[0], pairs.residuals[0], method, why))
    table = {
        "index": list(range(k)),
        "value": largest.values.tolist(),
        "residual": largest.residuals.tolist(),
        "converged": largest.converged.tolist(),
    }
    return {"eigenvalues": table, "scalars": rows}


def eigenpairs(problem: Problem, k: int, end: Any) -> Any:
    generator = problem.generator(end)
    budget = problem.options.budget
    return top_eigenpairs(problem.operator, k, end, memory_budget=budget, generator=generator)


def eigenpair_products(k: int, size: int) -> int:
    """Predicted products of the k largest eigenpairs."""
    return min(size, 20 + 5 * k)


def work_of_eigenvalues(problem: Problem) -> Work:
    size = size_of(problem)
    largest = eigenpair_products(problem.options.eigenvalues, size)
    return {"product": largest + min(size, SMALLEST)}


def density(problem: Problem) -> Tables:
    """The density of eigenvalues, smoothed by a normal density."""
    found = spectral_density(
        problem.operator,
        DENSITY_PROBES,
        math.ceil(enough(problem, DENSITY_PROBES * DENSITY_STEPS) / DENSITY_PROBES),
        points=201,
        memory_budget=problem.options.budget,
        generator=problem.generator("density"),
    )
    curves = {name: getattr(found, name).tolist() for name in ("density", "low", "high")}
    return {"density": {"eigenvalue": found.grid.tolist(), **curves}}


def trace(problem: Problem) -> Tables:
    """tr H, and lambda_sup = mean + sqrt(n - 1) std of the spectrum, which bounds lambda_1 (WS
    bound, Eq. 7)."""
    operator = problem.operator
    generator = problem.generator("trace")
    total = trace_estimate(operator, enough(problem, TRACE_PRODUCTS), generator=generator)
    method = f"{total.method}, {total.products} products, error: standard error"
    generator = problem.generator("bound")
    bound = upper_bound_estimate(operator, enough(problem, BOUND_PROBES), generator=generator)
    square, error = bound.trace_of_square
    of_square = f"{bound.products} products, error: standard error"
    rows = [
        scalar("trace", total.value, total.error, method, total.reason),
        scalar("trace of the square", square, error, of_square, bound.reason),
        of_interval("lambda_sup", bound),
    ]
    return {"scalars": rows}


def of_interval(name: str, result: Any) -> Row:
    """A row of a result with the ends of its 95 % interval."""
    half = (result.high - result.low) / 2
    method = f"exact, {result.products} products"
    if half > 0:
        ends = f"[{result.low:.4g}, {result.high:.4g}]"
        method = f"{result.products} products, error: half of the 95 % interval {ends}"
    return scalar(name, result.value, half, method, result.reason)


# ------------------------------------------------------------------ batches


def noise(problem: Problem) -> Tables:
    """Gradient noise scale tr(Sigma) / |G|^2 in examples: the batch size at which noise and
    gradient are equal.

    From the gradients g_i of m batches of b examples: tr(Sigma) = b sum |g_i - mean|^2 / (m - 1),
    |G|^2 = |mean|^2 - tr(Sigma) / (b m). error: jackknife over the batches.
    """
    counts = problem.operator.counts
    name = "gradient noise scale"
    size = max(set(counts), key=counts.count)
    count = counts.count(size)
    if count < 3:
        why = f"needs 3 batches of one size, found {count}"
        return {"scalars": [scalar(name, math.nan, math.nan, status=why)]}
    each = problem.operator.batch_gradients()
    stacked = torch.stack([g.double() for place, _, g in each if counts[place] == size])
    gram = (stacked @ stacked.mT).cpu()
    _, total, signal = noise_scale(gram, size)
    method = f"{count} batches of {size}"
    covariance = scalar("trace of the gradient's covariance", total, math.nan, method)
    if signal <= 0:
        why = "the gradient is smaller than its noise: more or larger batches are needed"
        return {"scalars": [scalar(name, math.nan, math.nan, method, why), covariance]}

    def of_batches(shares: torch.Tensor) -> dict[str, float]:
        kept = shares > 0
        return {name: noise_scale(gram[kept][:, kept], size)[0]}

    shares = torch.full((count,), 1 / count, dtype=torch.float64)
    value, error = jackknife(of_batches, shares)[name]
    return {"scalars": [scalar(name, value, error, method), covariance]}


def noise_scale(gram: torch.Tensor, size: int) -> tuple[float, float, float]:
    """(tr(Sigma)/|G|^2, tr(Sigma), |G|^2) from the inner products of the gradients of m batches of
    `size` examples."""
    m = len(gram)
    mean = float(gram.mean())
    trace = size * (float(gram.trace()) - m * mean) / (m - 1)
    signal = mean - trace / (size * m)
    return (trace / signal if signal else math.nan), trace, signal


def batches(problem: Problem) -> Tables:
    """Standard errors over batches: lambda_1 and trace, and R, C, D and gap between layers."""
    generator = problem.generator("batches")
    weights = problem.weights
    of_parameters = problem.of_batches(ParameterOperator, groups={"all": "**"})
    found = batch_errors(of_parameters, weights=weights, generator=generator)
    estimates = {name: found[name] for name in ("lambda_1", "trace")}
    failed = []
    try:
        whole = problem.of_batches(LayerOperator)
        flat = [operator.with_part("gauss_newton") for operator in whole]
        between = batch_errors(whole, weights=weights, gauss_newton=flat, generator=generator)
        estimates |= {name: one for name, one in between.items() if "[" in name}
    except ValueError as error:
        failed = [{"quantity": "between layers", "value": math.nan, "status": one_line(error)}]
    rows = []
    for name, one in estimates.items():
        rows.append({"quantity": name, **one.to_dict(), "status": one.reason or "ok"})
    return {"batches": rows + failed}


def work_of_batches(problem: Problem) -> Work:
    """A product with one batch costs a share of one with all."""
    size = size_of(problem)
    between = problem.layers.shape[0]
    by_probes = BATCH_PRODUCTS * (len(problem.layers.nodes) + 2)
    return {
        "product_together": size if size <= FEW else 4 * BATCH_PRODUCTS,
        "product_between": 2 * between if between <= FEW else by_probes,
    }


def of_density(problem: Problem) -> Work:
    size = size_of(problem)
    return {"product_together": size if size <= FEW else DENSITY_PROBES * DENSITY_STEPS}


def of_trace(problem: Problem) -> Work:
    return {"product_together": enough(problem, TRACE_PRODUCTS) + enough(problem, BOUND_PROBES)}


def one_gradient(problem: Problem) -> Work:
    return {"gradient": 1}


PARTS: dict[str, Part] = {
    "network": Part(network, one_gradient),
    "certificate": Part(certificate, work_of_certificate),
    "layers": Part(layers, work_of_layers),
    "groups": Part(groups, work_of_groups),
    "eigenvalues": Part(eigenvalues, work_of_eigenvalues),
    "density": Part(density, of_density),
    "trace": Part(trace, of_trace),
    "noise": Part(noise, one_gradient, lambda problem: problem.snapshot.loader),
    "batches": Part(batches, work_of_batches, lambda problem: len(problem.snapshot.batches) > 1),
}
"""Every part by name, in the order in which they are measured."""
