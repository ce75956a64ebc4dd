"""A method from many starts without a cap on its steps: it steps in rounds.

A start ends where the method's own stop ends it (stationary, creeping, not finite). A start that
only the end of a round stopped gets another round if the least objective it has met fell in this
one at least to the share `progress` of its earlier value; otherwise it is given up. An objective
that halves in every round and starts below 1e6 is below the rounding of float64 after a hundred
rounds, so all starts end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


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
    points = start.clone()
    least = objective.clone()
    work = torch.zeros(len(start), dtype=start.dtype)
    rounds = torch.zeros(len(start), dtype=torch.long)
    given_up = torch.zeros(len(start), dtype=torch.bool)
    going = torch.arange(len(start))
    number = 0
    while len(going):
        number += 1
        last = once(start[going], number) if anew else once(points[going], 1)
        falls = last.least <= progress * least[going]
        points[going] = last.points
        least[going] = torch.minimum(least[going], last.least)
        spent = last.work.to(work.dtype)
        work[going] = spent if anew else work[going] + spent
        rounds[going] = number
        given_up[going] = last.open & ~falls
        going = going[last.open & falls]
    return Run(points, work, rounds, given_up)


def followed(once: Once, run: Run, start: Tensor, rounds: int, anew: bool = False) -> Tensor:
    """Where the starts that `run` gave up (G, N) are after so many further rounds, whatever
    progress they make."""
    left = run.given_up
    if not bool(left.any()):
        return run.points[left]
    if anew:
        used = int(run.rounds[left].max())
        return once(start[left], used + rounds).points
    return once(run.points[left], rounds).points
