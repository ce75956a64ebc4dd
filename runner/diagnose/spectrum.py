"""The Hessian in the parameters: eigenvalues, density, trace, the Wolkowicz–Styan bound, and what lies off its blocks.

Exact, from the whole matrix, where as many products as it has columns cost no more than the estimates together;
otherwise by the estimators of `runner.curvature`, whose errors stand beside the values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from runner.contract.certificate import certificate_row
from runner.curvature.spectra.bounds import wolkowicz_styan_upper
from runner.diagnose.parts import Rows, Table, certificate_failure, columns
from runner.diagnose.pricing import (
    BOUND_PROBES,
    COUPLING_PROBES,
    DENSITY_PROBES,
    DENSITY_STEPS,
    PAIR_PROBES,
    TRACE_PRODUCTS,
    is_exact,
)
from runner.diagnose.problem import Problem

PAIRS = ("v", "w", "R", "R_error", "C", "C_error", "share", "D", "D_error", "gap", "gap_error", "method", "status")


def scalar_failure(quantity: str, error: Exception) -> dict[str, Table]:
    """A row that says why there is no number."""
    rows = Rows()
    rows.add(quantity, math.nan, math.nan, "", " ".join(str(error).split()))
    return {"scalars": rows.table()}


# ------------------------------------------------------------------ eigenvalues


def measure_eigenvalues(problem: Problem) -> dict[str, Table]:
    """The k largest eigenvalues with residuals |Hu - lambda u|, the smallest one, and a certificate of the products."""
    try:
        operator = problem.operator
    except ValueError as error:
        return scalar_failure("lambda_1", error)
    k = min(problem.options.eigenvalues, operator.shape[0])
    rows = Rows()
    if is_exact(problem):
        values, _ = problem.eigen
        top = values.flip(0)[:k]
        found = [(i, float(value), 0.0, True) for i, value in enumerate(top)]
        rows.add("lambda_1", float(values[-1]), 0.0, "whole matrix")
        rows.add("lambda_n", float(values[0]), 0.0, "whole matrix")
    else:
        from runner.curvature import top_eigenpairs

        pairs = top_eigenpairs(operator, k, generator=problem.generator("eigenvalues"))
        end = top_eigenpairs(operator, 1, "smallest", generator=problem.generator("smallest"))
        each = zip(pairs.values.tolist(), pairs.residuals.tolist(), pairs.converged.tolist(), strict=True)
        found = [(i, *row) for i, row in enumerate(each)]
        for name, one in (("lambda_1", pairs), ("lambda_n", end)):
            method = f"{one.products} products, error: residual"
            status = "ok" if bool(one.converged[0]) else one.reason or "has not converged"
            rows.add(name, float(one.values[0]), float(one.residuals[0]), method, status)
    tables: dict[str, Table] = {
        "eigenvalues": columns(("index", "value", "residual", "converged"), found),
        "scalars": rows.table(),
    }
    return tables | certificate_of_parameters(problem)


def certificate_of_parameters(problem: Problem) -> dict[str, Table]:
    """The products against finite differences of gradients in the parameters."""
    from runner.curvature import verify

    try:
        found = verify(problem.operator, generator=problem.generator("certificate"))
    except (ValueError, RuntimeError) as error:
        return {"certificate": [certificate_failure("parameters", error)]}
    return {"certificate": [certificate_row("parameters", found)]}


# ------------------------------------------------------------------ density

GRID = 201


def measure_density(problem: Problem) -> dict[str, Table]:
    """The density of eigenvalues, smoothed by a normal curve of one hundredth of their range."""
    try:
        operator = problem.operator
    except ValueError as error:
        return scalar_failure("spectral density", error)
    if is_exact(problem):
        values, _ = problem.eigen
        width = max(float(values[-1] - values[0]) / 100, 1e-12 * float(values.abs().max()), 1e-300)
        grid = torch.linspace(float(values[0]) - 3 * width, float(values[-1]) + 3 * width, GRID, dtype=torch.float64)
        bells = torch.exp(-0.5 * ((grid[:, None] - values[None]) / width) ** 2) / (width * math.sqrt(2 * math.pi))
        density = bells.mean(1)
        found = list(zip(grid.tolist(), density.tolist(), density.tolist(), density.tolist(), strict=True))
    else:
        from runner.curvature import spectral_density

        estimate = spectral_density(operator, DENSITY_PROBES, DENSITY_STEPS, generator=problem.generator("density"))
        each = zip(estimate.grid.tolist(), estimate.density.tolist(), estimate.error.tolist(), strict=True)
        found = [(x, d, max(0.0, d - 1.96 * e), d + 1.96 * e) for x, d, e in each]
    return {"density": columns(("eigenvalue", "density", "low", "high"), found)}


# ------------------------------------------------------------------ trace and bound


def measure_trace(problem: Problem) -> dict[str, Table]:
    """tr H, and lambda_sup = mean + sqrt(n - 1) std of the spectrum, which bounds lambda_1 (WS bound, Eq. 7)."""
    try:
        operator = problem.operator
    except ValueError as error:
        return scalar_failure("trace", error)
    rows = Rows()
    if is_exact(problem):
        matrix = problem.matrix
        trace, squares = matrix.trace(), matrix.square().sum()
        rows.add("trace", float(trace), 0.0, "whole matrix")
        rows.add("trace of the square", float(squares), 0.0, "whole matrix")
        rows.add("lambda_sup", float(wolkowicz_styan_upper(len(matrix), trace, squares)), 0.0, "whole matrix")
    else:
        from runner.curvature import trace_estimate, upper_bound_estimate

        trace_of = trace_estimate(operator, TRACE_PRODUCTS, generator=problem.generator("trace"))
        method = f"{trace_of.method}, {trace_of.products} products, error: standard error"
        rows.add("trace", trace_of.value, trace_of.error, method, trace_of.reason or "ok")
        bound = upper_bound_estimate(operator, BOUND_PROBES, generator=problem.generator("bound"))
        method = f"{bound.products} products, error: standard error"
        rows.add("trace of the square", *bound.trace_of_square, method)
        method = f"{bound.products} products, error: half of the 95 % interval [{bound.low:.4g}, {bound.high:.4g}]"
        rows.add("lambda_sup", bound.value, (bound.high - bound.low) / 2, method)
    return {"scalars": rows.table()}


# ------------------------------------------------------------------ between groups


def measure_groups(problem: Problem) -> dict[str, Table]:
    """Phi = 1 - sum_v ||H_vv||^2 / ||H||^2, the share of curvature that block-diagonal methods (K-FAC) discard, and
    R, C, the share of ||H||^2 (the picture of what K-FAC keeps and drops), D and the gap between the groups of
    parameters, one for each module; estimated, D is that of the diagonal blocks."""
    try:
        operator = problem.operator
    except ValueError as error:
        return scalar_failure("discarded share", error)
    if len(operator.groups) < 2:
        return scalar_failure("discarded share", ValueError("one group of parameters: there is nothing between groups"))
    rows = Rows()
    if is_exact(problem):
        found = _from_matrix(problem)
        total = sum(r[2] ** 2 * (1 if r[0] == r[1] else 2) for r in found)
        inside = sum(r[2] ** 2 for r in found if r[0] == r[1])
        value = 1 - inside / total if total else math.nan
        rows.add("discarded share", value, 0.0, "whole matrix", "ok" if total else "the matrix is zero")
        return {"scalars": rows.table(), "groups": columns(PAIRS, found)}
    from runner.curvature import discarded_coupling

    share = discarded_coupling(operator, COUPLING_PROBES, generator=problem.generator("coupling"))
    method = f"{share.products} products, error: half of the 95 % interval [{share.low:.4g}, {share.high:.4g}]"
    rows.add("discarded share", share.value, (share.high - share.low) / 2, method, share.reason or "ok")
    return {"scalars": rows.table(), "groups": columns(PAIRS, _from_probes(problem))}


def _from_matrix(problem: Problem) -> list[tuple[Any, ...]]:
    """Rows of PAIRS from the whole matrix and its Gauss-Newton part."""
    whole, groups = problem.matrix, problem.operator.groups
    smooth = problem.smooth.dense().double()
    norms = {(v, w): float(whole[a, b].norm()) for v, a in groups.items() for w, b in groups.items()}
    rounding = 64 * torch.finfo(problem.operator.dtype).eps  # of two matrices that are equal
    found = []
    for v, w in _pairs(groups):
        block, flat = whole[groups[v], groups[w]], smooth[groups[v], groups[w]]
        sigma, gn = float(torch.linalg.matrix_norm(block, 2)), float(flat.norm())
        rank = (norms[v, w] / sigma) ** 2 if sigma else math.nan
        tensor = float((block - flat).norm())
        tensor = tensor if tensor > rounding * (norms[v, w] + gn) else 0.0
        gap = tensor / gn if gn else math.nan
        status = "ok" if sigma and gn else "block is numerically zero"
        share = norms[v, w] ** 2 * (1 if v == w else 2) / whole.square().sum().item() if whole.any() else math.nan
        coupling = _coupling(norms, v, w)
        found.append((v, w, norms[v, w], 0.0, coupling, 0.0, share, rank, 0.0, gap, 0.0, "whole matrix", status))
    return found


def _from_probes(problem: Problem) -> list[tuple[Any, ...]]:
    """Rows of PAIRS from products with random signs on each group, and D of the diagonal blocks."""
    from runner.curvature import group_metrics

    operator = problem.operator
    diagonal = [(g, g) for g in operator.groups]
    found = group_metrics(operator, probes=PAIR_PROBES, ranks=diagonal, generator=problem.generator("groups"))
    total = math.fsum(m.R.value**2 * (1 if v == w else 2) for (v, w), m in found.items())
    rows = []
    for (v, w), m in found.items():
        share = m.R.value**2 * (1 if v == w else 2) / total if total else math.nan
        asked = (("C", m.C), *((("D", m.D),) if v == w else ()), ("gap", m.gap))
        reasons = [f"{n}: {e.reason}" for n, e in asked if e.reason]
        numbers = (m.R.value, m.R.error, m.C.value, m.C.error, share, m.D.value, m.D.error, m.gap.value, m.gap.error)
        rows.append((v, w, *numbers, f"{PAIR_PROBES} probes a group", "; ".join(reasons) or "ok"))
    return rows


def _pairs(groups: Iterable[str]) -> list[tuple[str, str]]:
    names = list(groups)
    return [(v, w) for i, v in enumerate(names) for w in names[i:]]


def _coupling(norms: dict[tuple[str, str], float], v: str, w: str) -> float:
    scale = math.sqrt(norms[v, v] * norms[w, w])
    return norms[v, w] / scale if scale else math.nan
