"""No cap on the steps: a start goes on as long as it makes progress, and is given up by one rule for every method.

A method steps in rounds. A start that the method's own stop (stationary, creeping, not finite) ended in a round has
ended. One that only the end of the round stopped goes on with another, provided that the least objective it has met
fell in this one at least to the share `progress` of what it was before; else it is given up. An objective that falls by
half in every round and starts below 1e6 is beneath the rounding of float64 after a hundred of them: all starts end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Round:
    """S starts after one round: points (S, N); least (S,), the smallest objective met; work (S,); open (S,): the start
    was still on its way at its last step."""

    points: Tensor
    least: Tensor
    work: Tensor
    open: Tensor


@dataclass(frozen=True)
class Run:
    """Ends of the starts (S, N), multiply-adds spent on each (S,), and whether each was given up (S,)."""

    points: Tensor
    work: Tensor
    given_up: Tensor


def in_rounds(once: Callable[[Tensor], Round], start: Tensor, objective: Tensor, progress: float) -> Run:
    """Rounds of `once` from start (S, N), where the objective is (S,), until every start has ended or is given up.

    progress: 0.5 asks for a fall by half in a round; 0 gives one round to all.

    >>> halving = lambda x: Round(x / 2, x[:, 0] / 2, torch.ones(len(x)), x[:, 0] > 1)
    >>> in_rounds(halving, torch.tensor([[8.0], [0.5]]), torch.tensor([8.0, 0.5]), 0.5).work
    tensor([4., 1.])
    """
    points, least, work = start.clone(), objective.clone(), torch.zeros(len(start), dtype=start.dtype)
    given_up = torch.zeros(len(start), dtype=torch.bool)
    going = torch.arange(len(start))
    while len(going):
        found = once(points[going])
        falls = found.least <= progress * least[going]
        points[going], least[going] = found.points, torch.minimum(least[going], found.least)
        work[going] += found.work.to(work.dtype)
        given_up[going] = found.open & ~falls
        going = going[found.open & falls]
    return Run(points, work, given_up)


def followed(once: Callable[[Tensor], Round], run: Run, rounds: int) -> Tensor:
    """Where the starts that `run` gave up (G, N) are after so many further rounds, whatever progress they make."""
    points = run.points[run.given_up]
    for _ in range(rounds if len(points) else 0):
        points = once(points).points
    return points
