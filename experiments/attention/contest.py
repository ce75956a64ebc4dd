"""All methods from the same starts, blind and near: which recover the data, at what cost, and what
else they find.

There is no cap on the steps: a method steps in rounds. A start ends where the method's own stop
ends it (stationary, creeping, not finite). A start that only the end of a round stopped gets
another round if the least objective it has met fell in this one at least to the share `progress` of
its earlier value; otherwise it is given up. An objective that halves in every round and starts
below 1e6 is below the rounding of float64 after a hundred rounds, so all starts end.

Seconds differ between machines, counts do not. The contest stores counts; the study `price` times a
few steps of every method from the same blind starts in one process. Seconds over counts are its
price: with all starts stepped together (L-BFGS cannot: one after the other), and one start at a
time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from experiments.attention.bounds import certificate
from experiments.attention.levenberg_marquardt import along_ladder, levenberg_marquardt
from experiments.attention.newton_method import (
    INDEFINITE,
    NOT_FINITE,
    SINGULAR,
    STALLED,
    Objective,
    Trace,
    lbfgs,
    minimise,
)
from experiments.attention.problem import (
    Problem,
    distinct,
    draw,
    ended,
    equations,
    invariances,
    symmetric_error,
)
from experiments.attention.settings import AttentionNewton
from runner.contract import Context
from runner.curvature.closed_form import attention as att

Row = dict[str, Any]
BLIND = "blind"
CONTINUED = ", continued"
LM = "levenberg-marquardt"
TOGETHER, ALONE = "together", "one by one"


def operations(n: int, d: int) -> dict[str, float]:
    """Multiply-adds of each part of a step, leading order, as derived in
    `curvature.closed_form.attention`."""
    size = n * d
    return {
        "value": 2 * n * n * d + 2 * n * d * d,
        "gradient": 5 * n * n * d + 5 * n * d * d,
        "product": 15 * n * n * d + 10 * n * d * d,
        "hessian": n * size**2 + size**3,
        "jacobian": 3 * n * n * d * d + size**3,  # with J^T J
        "cholesky": size**3 / 6 + size**2,
        "eigenvalues": 9 * size**3,
    }


def contest_rows(setup: AttentionNewton, n: int, d: int, ctx: Context) -> dict[str, list[Row]]:
    """Tables `contest`, a row per problem, method and origin of the starts, and `solutions`, a row
    per problem."""
    contest, solutions = [], []
    for index in range(setup.problems):
        problem = draw(n, d, 0.0, setup.score_scale, index, ctx)
        start, blocks = starts(
            setup, problem, ctx.torch_generator(f"attention_newton blind starts {index} {n} {d}")
        )
        exact = []
        for number, method in enumerate(setup.method):
            ctx.progress(
                index * len(setup.method) + number, setup.problems * len(setup.method), method
            )
            begin = (
                start
                if not method.startswith("l-bfgs")
                else _few(start, blocks, setup.lbfgs_starts)
            )
            used = blocks if begin is start else _few_blocks(blocks, setup.lbfgs_starts)
            run, late = run_and_follow(setup, method, problem, begin)
            least = equations(problem.layer, problem.b)
            found = ended(least, run.points, problem.data, problem.b)
            exact.append(found.points[found.exact])
            for origin, block in used.items():
                right = found.error[block] <= setup.recovered
                row = {
                    "problem": index,
                    "method": method,
                    "origin": origin,
                    "starts": block.stop - block.start,
                }
                counts = {
                    "recovered": int(right.sum()),
                    "exact": int(found.exact[block].sum()),
                    "wrong": int((found.exact[block] & ~right).sum()),
                    "given_up": int(run.given_up[block].sum()),
                    "late": int((late[block] & ~right).sum()),
                }
                contest.append(row | counts | {"work": float(run.work[block].sum())})
        solutions.append({"problem": index} | solution_row(setup, problem, torch.cat(exact)))
    return {"contest": contest, "solutions": solutions}


def starts(
    setup: AttentionNewton, problem: Problem, generator: torch.Generator
) -> tuple[Tensor, dict[str, slice]]:
    """Starts (S, N) and where each origin's lie: "blind", standard normal like the data but
    independent of them, and the distances |X0 - X_true| / |X_true| in random directions."""
    data = problem.data
    blind = torch.randn(setup.blind_starts, len(data), generator=generator, dtype=data.dtype)
    parts, blocks, at = [blind], {BLIND: slice(0, len(blind))}, len(blind)
    for distance in setup.distance:
        away = torch.randn(setup.near_starts, len(data), generator=generator, dtype=data.dtype)
        parts.append(data + distance * data.norm() * away / away.norm(dim=-1, keepdim=True))
        blocks[f"{distance:g}"] = slice(at, at + len(away))
        at += len(away)
    return torch.cat(parts), blocks


def _few_blocks(blocks: dict[str, slice], count: int) -> dict[str, slice]:
    """Where the first `count` starts of each origin lie once they are taken together."""
    found, at = {}, 0
    for origin, block in blocks.items():
        kept = min(count, block.stop - block.start)
        found[origin] = slice(at, at + kept)
        at += kept
    return found


def _few(start: Tensor, blocks: dict[str, slice], count: int) -> Tensor:
    """The first `count` starts of each origin."""
    return torch.cat([start[block][:count] for block in blocks.values()])


def solution_row(setup: AttentionNewton, problem: Problem, exact: Tensor) -> Row:
    """The distinct exact solutions that all methods together found, and what the wrong ones are."""
    d, n = problem.x.shape
    found = distinct(exact)
    errors = (found - problem.data).norm(dim=-1) / problem.data.norm()
    wrong = found[errors > setup.recovered]
    proofs = [certificate(att.unvec(point, d), problem.w, problem.v, problem.b) for point in wrong]
    up_to = symmetric_error(wrong, problem.data, invariances(problem.layer, n), d)
    values = torch.linalg.svdvals(problem.layer.jacobian(problem.x).flatten(0, 1))
    return {
        "distinct": len(found),
        "wrong": len(wrong),
        "wrong_certified": sum(proof.certified for proof in proofs),
        "wrong_by_symmetry": int((up_to <= setup.recovered).sum()),
        "nearest_wrong": float(errors[errors > setup.recovered].min())
        if len(wrong)
        else float("nan"),
        "truth_found": int(len(wrong) < len(found)),
        "sigma_min": float(values[-1]),
    }


def run_method(
    setup: AttentionNewton, method: str, problem: Problem, start: Tensor, progress: float
) -> Run:
    """One method from all starts, at gamma = 0 or along the falling ladder of gamma first;
    progress: of `in_rounds`."""
    start, work = _rungs(setup, method, problem, start)
    return _run(setup, method, problem, start, work, progress)


def run_and_follow(
    setup: AttentionNewton, method: str, problem: Problem, start: Tensor
) -> tuple[Run, Tensor]:
    """`run_method`, and which of the starts (S,) that it gave up recover the data when they are
    followed."""
    start, work = _rungs(setup, method, problem, start)
    run = _run(setup, method, problem, start, work, setup.progress)
    once, anew = partial(_rounds, setup, method, problem), _remembers(method)
    beyond = followed(once, run, start, setup.further_rounds, anew)
    late = torch.zeros_like(run.given_up)
    if len(beyond):
        found = ended(equations(problem.layer, problem.b), beyond, problem.data, problem.b)
        late[run.given_up] = found.error <= setup.recovered
    return run, late


def _remembers(method: str) -> bool:
    """Whether a step of the method knows more of the steps before it than where they led."""
    return method.removesuffix(CONTINUED) in (LM, "l-bfgs")


def _run(
    setup: AttentionNewton,
    method: str,
    problem: Problem,
    start: Tensor,
    work: Tensor,
    progress: float,
) -> Run:
    """The rounds at gamma = 0; work (S,): what the ladder cost."""
    value, once = problem.objective(0.0).value(start), partial(_rounds, setup, method, problem)
    run = in_rounds(once, start, value, progress, _remembers(method))
    return replace(run, work=work + run.work)


def _rungs(
    setup: AttentionNewton, method: str, problem: Problem, start: Tensor
) -> tuple[Tensor, Tensor]:
    """Where the ladder of gamma leads from the starts, and what it costs; nowhere and nothing
    without continuation."""
    d, n = problem.x.shape
    name, counts = method.removesuffix(CONTINUED), operations(n, d)
    total = torch.zeros(len(start), dtype=start.dtype)
    if name == method:
        return start, total
    if name == LM:
        least = equations(problem.layer, problem.b)
        ends = along_ladder(
            least, start, setup.ladder, rung_steps=setup.rung_steps, decrease=setup.decrease
        )
        return ends.points, ends.steps * _trial(counts)
    for gamma in setup.ladder:
        short = setup.rung_steps * (10 if name == "l-bfgs" else 1)
        trace = _descend(setup, name, problem.objective(gamma), start, short, 1e-2 * gamma)
        start, total = trace.points[-1], total + _work(name, trace, counts)
    return start, total


def _rounds(
    setup: AttentionNewton, method: str, problem: Problem, start: Tensor, rounds: int
) -> Round:
    """So many rounds of at most `steps` steps of a method at gamma = 0."""
    d, n = problem.x.shape
    name, counts = method.removesuffix(CONTINUED), operations(n, d)
    least, cap = equations(problem.layer, problem.b), rounds * setup.steps[name]
    if name == LM:
        ends = levenberg_marquardt(least, start, max_steps=cap, decrease=setup.decrease)
        return Round(ends.points, ends.square, ends.steps * _trial(counts), ends.capped)
    trace = _descend(setup, name, problem.objective(0.0), start, cap, setup.tolerance)
    lowest = trace.loss.nan_to_num(torch.inf).amin(0)
    return Round(trace.points[-1], lowest, _work(name, trace, counts), _open(trace, cap))


def _trial(counts: dict[str, float]) -> float:
    """Multiply-adds of a trial of Levenberg-Marquardt; every one is charged as if it had been
    accepted."""
    return 2 * counts["value"] + counts["jacobian"] + counts["cholesky"]


def _open(trace: Trace, cap: int) -> Tensor:
    """Starts whose last allowed step was neither at a stationary point nor a stall."""
    last = trace.status[-1] if len(trace.status) else torch.zeros_like(trace.steps)
    return ~trace.converged & (trace.steps >= cap) & (last != STALLED) & (last != NOT_FINITE)


def _descend(
    setup: AttentionNewton, method: str, objective: Objective, start: Tensor, cap: int, goal: float
) -> Trace:
    """Newton's methods and L-BFGS, with the stop of Levenberg-Marquardt: a start that creeps is
    given up."""
    if method == "l-bfgs":
        return lbfgs(objective, start, cap, goal, setup.lbfgs_memory, setup.decrease)
    return minimise(objective, start, method, cap, goal, setup.decrease)  # type: ignore[arg-type]


def _work(method: str, trace: Trace, counts: dict[str, float]) -> Tensor:
    """Multiply-adds of each start of a trace; the trials of Newton's line searches are not
    charged."""
    steps, work = trace.steps.double(), trace.work.sum(0).double()
    if method == "l-bfgs":
        return work * (counts["value"] + counts["gradient"])
    per_step = counts["gradient"] + counts["value"]
    if method == "truncated CG":
        return steps * per_step + work * counts["product"]
    taken = torch.arange(len(trace.status)).unsqueeze(-1) < trace.steps
    spectral = (((trace.status == INDEFINITE) | (trace.status == SINGULAR)) & taken).sum(0)
    return (
        steps * (per_step + counts["hessian"] + counts["cholesky"])
        + spectral * counts["eigenvalues"]
    )


# ------------------------------------------------------------------ rounds


@dataclass(frozen=True)
class Round:
    """S starts after one round: points (S, N); least (S,), the smallest objective met; work (S,);
    open (S,): the start was still on its way at its last step."""

    points: Tensor
    least: Tensor
    work: Tensor
    open: Tensor


Once = Callable[[Tensor, int], Round]
"""At most so many rounds at once from points (S, N)."""


@dataclass(frozen=True)
class Run:
    """Ends of the starts (S, N), multiply-adds spent on each (S,), rounds it took (S,), and whether
    it was given up."""

    points: Tensor
    work: Tensor
    rounds: Tensor
    given_up: Tensor


def in_rounds(
    once: Once, start: Tensor, objective: Tensor, progress: float, anew: bool = False
) -> Run:
    """Rounds of `once` from start (S, N), where the objective is (S,), until every start has ended
    or is given up.

    progress: 0.5 asks for a fall by half in a round; 0 gives one round to all. anew: for methods
    with a memory (damping, pairs of L-BFGS), which would lose it: round k goes from the start
    again, k rounds at once. That is the same path, and is charged once.

    >>> halving = lambda x, rounds: Round(x / 2, x[:, 0] / 2, torch.ones(len(x)), x[:, 0] > 1)
    >>> in_rounds(halving, torch.tensor([[8.0], [0.5]]), torch.tensor([8.0, 0.5]), 0.5).work
    tensor([4., 1.])
    """
    points, least, work = (
        start.clone(),
        objective.clone(),
        torch.zeros(len(start), dtype=start.dtype),
    )
    rounds, given_up = (
        torch.zeros(len(start), dtype=torch.long),
        torch.zeros(len(start), dtype=torch.bool),
    )
    going, number = torch.arange(len(start)), 0
    while len(going):
        number += 1
        found = once(start[going], number) if anew else once(points[going], 1)
        falls = found.least <= progress * least[going]
        points[going], least[going] = found.points, torch.minimum(least[going], found.least)
        spent = found.work.to(work.dtype)
        work[going], rounds[going] = spent if anew else work[going] + spent, number
        given_up[going] = found.open & ~falls
        going = going[found.open & falls]
    return Run(points, work, rounds, given_up)


def followed(once: Once, run: Run, start: Tensor, rounds: int, anew: bool = False) -> Tensor:
    """Where the starts that `run` gave up (G, N) are after so many further rounds, whatever
    progress they make."""
    left = run.given_up
    if not bool(left.any()):
        return run.points[left]
    if anew:
        return once(start[left], int(run.rounds[left].max()) + rounds).points
    return once(run.points[left], rounds).points


# ------------------------------------------------------------------ processor time


def price_rows(setup: AttentionNewton, n: int, d: int, ctx: Context) -> list[dict[str, Any]]:
    """A row per method without continuation (which repeats the same steps), way of running and
    repeat."""
    problem = draw(n, d, 0.0, setup.score_scale, 0, ctx)
    start, blocks = starts(
        setup, problem, ctx.torch_generator(f"attention_newton blind starts 0 {n} {d}")
    )
    blind = start[blocks[BLIND]]
    short = replace(
        setup, steps={name: min(cap, setup.price_steps) for name, cap in setup.steps.items()}
    )
    methods = [method for method in setup.method if "," not in method]
    rows: list[dict[str, Any]] = []
    for number, method in enumerate(methods):
        ctx.progress(number, len(methods), method)
        run_method(
            short, method, problem, blind[:1], 0.0
        )  # first calls pay for what later ones find ready
        few = blind[: setup.lbfgs_starts]
        for repeat in range(setup.price_repeats):
            for how, batches in ((TOGETHER, [blind]), (ALONE, list(few.split(1)))):
                begun = time.process_time()
                work = sum(
                    float(run_method(short, method, problem, batch, 0.0).work.sum())
                    for batch in batches
                )
                seconds = time.process_time() - begun
                about = {
                    "method": method,
                    "how": how,
                    "repeat": repeat,
                    "starts": sum(len(b) for b in batches),
                }
                rows.append(about | {"work": work, "cpu_seconds": round(seconds, 6)})
    return rows
