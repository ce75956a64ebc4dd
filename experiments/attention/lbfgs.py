"""L-BFGS, the opponent of Newton's method, from many starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from experiments.attention.newton_method import Trace
from experiments.attention.newton_steps import OK, STALLED, Objective

WINDOW = 20  # iterations of L-BFGS over which its decrease is judged: single ones vary


def lbfgs(
    objective: Objective,
    start: Tensor,
    max_steps: int = 500,
    tolerance: float = 1e-12,
    memory: int = 10,
    decrease: float = 0.0,
) -> Trace:
    """SciPy's L-BFGS-B without bounds, one start after the other, in the form of a Newton trace.

    Stops on the gradient only (its own test on the decrease of f is switched off), or where its
    line search fails (STALLED): near a minimum with f > 0 that happens once decreases are below the
    rounding of f. decrease: where positive, also once WINDOW iterations together lower f by less
    than this share of it.

    Its last digits follow the kernel that SciPy's OpenBLAS chooses for the processor
    (OPENBLAS_CORETYPE; cell.json names it), even where torch's are the same: cells of
    attention_newton measured under SkylakeX and under Haswell differed in the rows of this method
    alone, and repeat to the byte under either.
    """
    from scipy.optimize import minimize as scipy_minimise
    from threadpoolctl import threadpool_limits

    paths = []
    evaluations = []
    for row in start:
        path = [row.clone()]

        def evaluate(flat, row=row):  # type: ignore[no-untyped-def]
            # a copy: sums over SciPy's memory could depend on its alignment in the last digit
            row_of_point = torch.tensor(flat, dtype=row.dtype)
            point = row_of_point.unsqueeze(0)
            value = objective.value(point).item()
            gradient = objective.gradient(point)[0]
            return value, gradient.numpy()

        options = {"maxiter": max_steps, "maxfun": 20 * max_steps, "maxcor": memory, "ftol": 0.0}
        options["gtol"] = tolerance / row.numel() ** 0.5  # SciPy tests the largest entry
        callback = _recorder(path, decrease)
        # more BLAS threads only wait for each other on vectors this short
        with threadpool_limits(1):
            result = scipy_minimise(
                evaluate,
                row.numpy(),
                jac=True,
                method="L-BFGS-B",
                callback=callback,
                options=options,
            )
        paths.append(path)
        evaluations.append(float(result.nfev))
    return _lbfgs_trace(objective, paths, evaluations, max_steps, tolerance)


def _recorder(path: list[Tensor], decrease: float) -> Callable[..., None]:
    """SciPy's callback, known to it by the name of its argument: keeps the iterates, and ends a run
    that creeps."""
    values = []

    def keep(intermediate_result: Any) -> None:
        point = torch.as_tensor(intermediate_result.x, dtype=path[0].dtype)
        path.append(point.clone())
        values.append(float(intermediate_result.fun))
        if decrease <= 0 or len(values) <= WINDOW:
            return
        before = values[-1 - WINDOW]
        if values[-1] >= (1 - decrease) * before:
            raise StopIteration

    return keep


def _lbfgs_trace(
    objective: Objective,
    paths: list[list[Tensor]],
    evaluations: list[float],
    max_steps: int,
    tolerance: float,
) -> Trace:
    longest = max(len(path) for path in paths)
    padded = []
    for path in paths:
        missing = longest - len(path)
        rest = [path[-1]] * missing
        padded.append(torch.stack(path + rest))
    points = torch.stack(padded, dim=1)
    shape = points.shape[:2]
    flat = points.flatten(0, 1)
    loss = objective.value(flat).unflatten(0, shape)
    gradients = objective.gradient(flat)
    norm = gradients.norm(dim=-1).unflatten(0, shape)
    lengths = [len(path) - 1 for path in paths]
    steps = torch.tensor(lengths)
    converged = norm[-1] <= tolerance
    number = torch.arange(longest - 1).unsqueeze(-1)
    taken = number < steps
    last = number == steps - 1
    stalled = last & ~converged & (steps < max_steps)
    status = torch.where(stalled, STALLED, OK)
    evaluations_a_step = torch.tensor(evaluations) / steps.clamp_min(1)
    work = torch.where(taken, evaluations_a_step, 0.0)
    return Trace(points, loss, norm, status, work, steps, converged)
