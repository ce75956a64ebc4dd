"""Full-batch gradient descent of many starts at once.

One loop serves plain search and regularised training: a `Direction` says which way to go, `descend`
advances all starts together, applies the stop rule of the papers (gradient norm below a fraction of
its initial value), and drops the starts that have stopped. Several stop ratios can be followed in
one run, since they share the trajectory.

The width of the batch is kept a multiple of `LANES`, so that every column meets the same vector
instructions: the trajectory of a start then does not depend, to the last bit, on the starts it
shares the batch with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from runner.training.descent.directions import (
    Direction,
    LossGradient as LossGradient,
    RowDirection as RowDirection,
    RowFunction,
    Switch as Switch,
)

LANES = 48  # a common multiple of the widths of vector registers and of matrix-product tiles
BLOCK = 1008  # starts advanced together; more would leave the cache


@dataclass(frozen=True)
class Endpoints:
    """Where S starts were when they first met one stop ratio, or when the descent ended without
    meeting it.

    theta: (S, D). steps: (S,), number of updates made. converged: (S,). diverged: (S,), gradient no
    longer finite.
    """

    theta: Tensor
    steps: Tensor
    converged: Tensor
    diverged: Tensor

    @property
    def status(self) -> list[str]:
        """ "converged", "diverged" or "not converged", one per start."""
        words = ("not converged", "diverged", "converged")
        places = torch.where(self.converged, 2, self.diverged.long())
        return [words[place] for place in places.tolist()]


@dataclass(frozen=True)
class Trajectory:
    """Recorded points of one start: steps (T,), theta (T, D), the last one where the start
    stopped."""

    steps: Tensor
    theta: Tensor


@dataclass(frozen=True)
class DescentResult:
    """endpoints: per stop ratio. trajectories: per recorded start."""

    endpoints: dict[float, Endpoints]
    trajectories: dict[int, Trajectory] = field(default_factory=dict)

    @property
    def final(self) -> Endpoints:
        """The endpoints of the smallest stop ratio, where each start was retired."""
        return self.endpoints[min(self.endpoints)]


def descend(
    theta0: Tensor,
    direction: Direction | RowFunction,
    *,
    rate: float,
    max_steps: int,
    stop_ratios: Sequence[float] = (0.001,),
    stop_from: int = 0,
    record: Iterable[int] = (),
    record_every: int = 1,
) -> DescentResult:
    """theta <- theta − rate · direction(theta), for every row of theta0 (S, D), until the stop rule
    or max_steps.

    A start meets a ratio at the first step t >= stop_from with ||watched(theta_t)|| <= ratio ·
    ||watched(theta_0)|| (WS bound, Appendix C, with the loss gradient watched), and is retired when
    it has met the smallest one. A start whose watched norm is no longer finite is diverged. At most
    max_steps updates; the last point is judged too.

    record: indices of starts whose points are kept every `record_every` steps. Rate, ratios and
    steps are above zero, which the settings check.
    """
    ratios = sorted(set(stop_ratios), reverse=True)
    recorded = sorted(set(record))
    bound = direction if isinstance(direction, Direction) else RowDirection(direction)
    ends: list[list[Endpoints]] = []
    paths: dict[int, Trajectory] = {}
    for start in range(0, len(theta0), BLOCK):
        rows = range(start, min(start + BLOCK, len(theta0)))
        block = _Block(theta0, rows, ratios, recorded)
        block.run(bound, rate, max_steps, stop_from, record_every)
        ends.append(block.ends)
        paths |= block.paths()
    merged = zip(ratios, map(_join, zip(*ends, strict=True)), strict=True)
    return DescentResult(dict(merged), paths)


def _join(parts: Sequence[Endpoints]) -> Endpoints:
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return Endpoints(*map(torch.cat, columns))


class _Block:
    """The state of up to BLOCK starts, one column each; columns of stopped starts are dropped now
    and then."""

    def __init__(
        self, theta0: Tensor, rows: range, ratios: list[float], recorded: list[int]
    ) -> None:
        count = len(rows)
        dimension = theta0.shape[1]
        self.first = rows.start
        self.ratios = ratios
        self.squares = [ratio**2 for ratio in ratios]
        self.theta = _padded(theta0[rows.start : rows.stop].t(), 0.0)
        self.owner = _padded(torch.arange(count), -1)  # the start in each column, -1 for padding
        self.retired = self.owner < 0
        self.met = torch.zeros_like(self.owner)  # how many ratios the start in each column has met
        self.initial = self.threshold = theta0.new_zeros(len(self.owner))
        self.ends = [Endpoints(theta0.new_empty(count, dimension), *_flags(count)) for _ in ratios]
        wanted = [k - self.first for k in recorded if k in rows]
        self.points: dict[int, list[tuple[int, Tensor]]] = {k: [] for k in wanted}

    def run(
        self, direction: Direction, rate: float, max_steps: int, stop_from: int, record_every: int
    ) -> None:
        step = direction.bind(len(self.owner))
        for number in range(max_steps + 1):
            move, watched = step(self.theta, number)
            norm = torch.linalg.vecdot(watched, watched, dim=0)
            if number == 0:
                self.initial = norm.clone()
                self.threshold = norm * self.squares[0]
            if self.points and number % record_every == 0:
                self._record(number, ~self.retired)
            going = norm < torch.inf
            if number >= stop_from:
                going &= norm > self.threshold
            going |= self.retired
            if number == max_steps:
                self._finish(number, norm, going)
            elif bool(going.all()):
                self.theta.add_(move, alpha=-rate)
            else:
                self._judge(number, norm, ~going)
                self.theta.add_(move, alpha=-rate)
                if bool(self.retired.all()):
                    return
                if self._compact():
                    step = direction.bind(len(self.owner))

    def _judge(self, number: int, norm: Tensor, stopped: Tensor) -> None:
        """Write the endpoints of the columns in `stopped`, which met a ratio or diverged; retire
        the finished."""
        for column in stopped.nonzero()[:, 0].tolist():
            value = float(norm[column])
            initial = float(self.initial[column])
            met = int(self.met[column])
            lost = not value < float("inf")
            while met < len(self.ratios) and (lost or value <= self.squares[met] * initial):
                self._end(met, column, number, converged=not lost, diverged=lost)
                met += 1
            self.met[column] = met
            if met == len(self.ratios):
                self.retired[column] = True
                self._record_last(number, column)
            else:
                self.threshold[column] = self.squares[met] * initial

    def _finish(self, number: int, norm: Tensor, going: Tensor) -> None:
        self._judge(number, norm, ~going)
        for column in (~self.retired).nonzero()[:, 0].tolist():
            for met in range(int(self.met[column]), len(self.ratios)):
                self._end(met, column, number, converged=False, diverged=False)
            self._record_last(number, column)

    def _end(self, met: int, column: int, number: int, *, converged: bool, diverged: bool) -> None:
        start = int(self.owner[column])
        end = self.ends[met]
        end.theta[start] = self.theta[:, column]
        end.steps[start] = number
        end.converged[start] = converged
        end.diverged[start] = diverged

    def _compact(self) -> bool:
        """Drop retired columns once a quarter of the batch would go; True when the width
        changed."""
        keep = (~self.retired).nonzero()[:, 0]
        width = -(-len(keep) // LANES) * LANES
        if width > 3 * len(self.owner) // 4:
            return False
        self.theta = _padded(self.theta[:, keep], 0.0)
        self.owner = _padded(self.owner[keep], -1)
        self.retired = _padded(self.retired[keep], True)
        self.met = _padded(self.met[keep], 0)
        self.initial = _padded(self.initial[keep], 0.0)
        self.threshold = _padded(self.threshold[keep], 0.0)
        return True

    def _record(self, number: int, wanted: Tensor) -> None:
        for column in wanted.nonzero()[:, 0].tolist():
            path = self.points.get(int(self.owner[column]))
            if path is not None:
                path.append((number, self.theta[:, column].clone()))

    def _record_last(self, number: int, column: int) -> None:
        path = self.points.get(int(self.owner[column]))
        if path is not None and (not path or path[-1][0] != number):
            path.append((number, self.theta[:, column].clone()))

    def paths(self) -> dict[int, Trajectory]:
        """Trajectories by index into theta0."""
        trajectories = {}
        for start, path in self.points.items():
            numbers, points = zip(*path, strict=True)
            trajectory = Trajectory(torch.tensor(numbers), torch.stack(points))
            trajectories[start + self.first] = trajectory
        return trajectories


def _flags(count: int) -> tuple[Tensor, Tensor, Tensor]:
    flags = torch.zeros(2, count, dtype=torch.bool)
    return torch.zeros(count, dtype=torch.long), flags[0], flags[1]


def _padded(columns: Tensor, value: float) -> Tensor:
    """The last dimension filled up with `value` to a multiple of LANES."""
    missing = -columns.shape[-1] % LANES
    return torch.nn.functional.pad(columns, (0, missing), value=value).contiguous()


def duplicates(theta: Tensor) -> Tensor:
    """Mask (S,) of the rows of theta (S, D) that repeat an earlier, kept row.

    Two points are duplicates when their distance is below mean − 3 std of the distances of all
    pairs (WS bound, Appendix C); rows are visited in order and one instance of each is kept.
    Nothing is a duplicate when the threshold is negative, or with fewer than three points. O(S² D).
    """
    repeated = torch.zeros(len(theta), dtype=torch.bool)
    if len(theta) < 3:
        return repeated
    distance = torch.cdist(theta, theta, compute_mode="donot_use_mm_for_euclid_dist")
    pairs = distance[tuple(torch.triu_indices(len(theta), len(theta), offset=1))]
    near = distance < pairs.mean() - 3 * pairs.std(correction=0)
    for start in range(len(theta)):
        if not repeated[start]:
            repeated[start + 1 :] |= near[start, start + 1 :]
    return repeated
