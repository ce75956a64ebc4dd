"""One recovery problem: data, weights and target; its starts; when an end counts as the data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.attention.levenberg_marquardt import LeastSquares, polished
from experiments.attention.newton_method import minimise
from experiments.attention.newton_steps import Objective, Step
from runner.closed_form import attention as att
from runner.contract import Context

POLISH_STEPS = 80
POLISHED = 1e-10  # gradient norm below which a followed point counts as stationary
EXACT = 1e-10  # |attention(X) - B| / |B| below which X solves the equations
SAME = 1e-4  # relative distance below which two solutions are one
FAR = 1e6  # of the data's norm: an end beyond is off to infinity


def recovery_objective(w: Tensor, v: Tensor, b: Tensor, gamma: float) -> Objective:
    """|attention(X) - B|_F^2 + gamma |vec X|^2 as a function of vec X (Theorem J.1); W, V (d, d)
    and B (n, d)."""
    d = w.shape[-1]

    def value(flat: Tensor) -> Tensor:
        return att.loss(att.unvec(flat, d), w, v, b, gamma)

    def gradient(flat: Tensor) -> Tensor:
        return att.vec(att.gradient(att.unvec(flat, d), w, v, b, gamma))

    def hessian(flat: Tensor) -> Tensor:
        return att.hessian(att.unvec(flat, d), w, v, b, gamma)

    return Objective(value, gradient, hessian)


@dataclass(frozen=True)
class Problem:
    """X (d, n) is the data, B (n, d) its attention output; W, V (d, d)."""

    x: Tensor
    w: Tensor
    v: Tensor
    b: Tensor

    @property
    def data(self) -> Tensor:
        """vec X."""
        return att.vec(self.x)

    @property
    def equations(self) -> LeastSquares:
        """attention(X) - B as a function of vec X."""
        d = len(self.w)

        def value(flat: Tensor) -> Tensor:
            return att.residual(att.unvec(flat, d), self.w, self.v, self.b).flatten(-2)

        def jacobian(flat: Tensor) -> Tensor:
            return att.jacobian(att.unvec(flat, d), self.w, self.v).flatten(-3, -2)

        return LeastSquares(value, jacobian)

    def objective(self, gamma: float) -> Objective:
        return recovery_objective(self.w, self.v, self.b, gamma)

    def predicted_shift(self, gamma: float) -> float:
        """|X* - X| / |X| to first order: the Gauss–Newton step at the data, (J^T J + gamma)^-1 (J^T
        c + gamma x)."""
        jac = self.equations.jacobian(self.data)
        residual = self.equations.value(self.data)
        right = jac.T @ residual + gamma * self.data
        values, vectors = torch.linalg.eigh(jac.T @ jac)
        shift = max(gamma, torch.finfo(values.dtype).tiny)
        inverse = 1 / (values.clamp_min(0.0) + shift)
        step = inverse * (vectors.T @ right)
        return float(step.norm() / self.data.norm())


def draw(n: int, d: int, scale: float, index: int, ctx: Context) -> Problem:
    """Problem `index` of a size, the same in every cell: standard normal X, normal W and V of
    variance scale^2 / d and 1 / d."""
    generator = ctx.torch_generator(f"attention_newton problem {index} tokens={n} width={d}")
    shapes = ((d, n), (d, d), (d, d))
    x, w, v = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    w = scale * w / d**0.5
    v = v / d**0.5
    b = att.outputs(x, w, v)
    return Problem(x, w, v, b)


def follow(
    objective: Objective,
    start: Tensor,
    step: Step = "line search",
    steps: int = POLISH_STEPS,
    tolerance: float = 1e-12,
    limit: float = POLISHED,
) -> tuple[Tensor, float, str]:
    """Minimiser that Newton's method reaches from start (N,): point, smallest eigenvalue, status.

    status: "ok", "not converged" (gradient norm above `limit`), or "not a minimum" (an eigenvalue
    below zero).
    """
    trace = minimise(objective, start.unsqueeze(0), step, steps, tolerance)
    point = trace.points[-1, 0]
    smallest = float(torch.linalg.eigvalsh(objective.hessian(point.unsqueeze(0)))[0, 0])
    gradient_norm = float(trace.gradient_norm[-1, 0])
    if not gradient_norm <= limit:
        return point, smallest, "not converged"
    if smallest > 0:
        return point, smallest, "ok"
    return point, smallest, "not a minimum"


def near(data: Tensor, distance: float, count: int, generator: torch.Generator) -> Tensor:
    """Starts (count, N) at the distance |X0 - X_true| / |X_true| from the data (N,), in random
    directions."""
    away = torch.randn(count, len(data), generator=generator, dtype=data.dtype)
    sizes = away.norm(dim=-1, keepdim=True)
    return data + distance * data.norm() * away / sizes


def invariances(w: Tensor, v: Tensor, n: int) -> Tensor:
    """Orthonormal basis (n d, k) of the moves of X, of any length, that change no output since W
    and V (d, d) do not see them.

    All tokens together by u where W u = 0 and V^T u = 0 (u^T W x_i shifts a row's scores by one
    constant); a single token by u where also W^T u = 0. No column where W or V is regular. At W =
    0, where every output is the mean token, there are more.
    """
    rows = torch.cat([w, v.mT])
    together = _null(rows)
    alone = _null(torch.cat([rows, w.mT]))
    ones = torch.ones(n, 1, dtype=w.dtype) / n**0.5
    single_moves = torch.kron(torch.eye(n, dtype=w.dtype), alone)
    common_moves = torch.kron(ones, together)
    moves = torch.cat([single_moves, common_moves], dim=1)
    if moves.shape[1] == 0:
        return moves
    vectors, values, _ = torch.linalg.svd(moves, full_matrices=False)
    return vectors[:, values > 1e-8]


def _null(matrix: Tensor) -> Tensor:
    """Orthonormal basis (N, k) of the null space."""
    _, values, vectors = torch.linalg.svd(matrix)
    rounding = 1e-10 * values[0].clamp_min(1e-300)
    rank = int((values > rounding).sum())
    return vectors[rank:].mT


@dataclass(frozen=True)
class Ended:
    """Polished ends of S starts: points (S, N); error (S,): |X - X_true| / |X_true|; exact (S,):
    the equations hold."""

    points: Tensor
    error: Tensor
    exact: Tensor


def relative_error(points: Tensor, data: Tensor) -> Tensor:
    """|X - X_true| / |X_true| of points (..., N), data (N,)."""
    return (points - data).norm(dim=-1) / data.norm()


def ended(problem: Problem, ends: Tensor) -> Ended:
    """Polish every end (S, N) by Newton's method on the equations; one off to infinity solves
    nothing: error inf."""
    data = problem.data
    sizes = ends.nan_to_num(torch.inf).norm(dim=-1)
    kept = torch.isfinite(ends).all(-1) & (sizes < FAR * data.norm())
    ends = torch.where(kept.unsqueeze(-1), ends, 0.0)
    points = polished(problem.equations, ends)
    error = relative_error(points, data)
    error = torch.where(kept, error, torch.inf)
    residual = problem.equations.value(points).norm(dim=-1)
    solved = residual <= EXACT * problem.b.norm()
    return Ended(points, error, kept & solved)


def distinct(points: Tensor) -> Tensor:
    """One of each group of points (S, N) that agree to SAME of their norm."""
    found: list[Tensor] = []
    for point in points:
        if all((point - other).norm() > SAME * other.norm() for other in found):
            found.append(point)
    if found:
        return torch.stack(found)
    return points[:0]


def symmetric_error(points: Tensor, data: Tensor, basis: Tensor, d: int) -> Tensor:
    """|X - X_true| / |X_true| (S,) up to the invariances and the order of the tokens."""
    from scipy.optimize import linear_sum_assignment

    reduced = points - (points @ basis) @ basis.mT
    truth = data - basis @ (basis.mT @ data)
    true_tokens = truth.unflatten(-1, (-1, d))
    errors = []
    for point in reduced:
        costs = torch.cdist(point.unflatten(-1, (-1, d)), true_tokens).square()
        row, column = linear_sum_assignment(costs.numpy())
        errors.append(costs[row, column].sum().sqrt() / data.norm())
    if errors:
        return torch.stack(errors)
    return points.new_zeros(0)
