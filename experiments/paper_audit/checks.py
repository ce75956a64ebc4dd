"""How a clause is checked, the same way for every paper: outcomes, equalities, inequalities and searches.

A verdict always follows from the numbers that a check returns and from the class of the root cause; it is never written
down. Cases come smallest first, so that the first failure is the one to recompute by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

Agreement = Literal["holds", "holds after correction", "fails"]
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Witness:
    """One instance small enough to recompute by hand: what is printed gives, what is right gives, and the reference."""

    instance: str
    printed: str
    corrected: str
    reference: str


@dataclass(frozen=True)
class Outcome:
    """Numbers of one check.

    printed: largest relative error of the formula as printed (inequality: largest violation, <= 0 when it holds).
    corrected: the same for the corrected formula, None where nothing needs correcting.
    instances: how many instances were tried, steps of a search for violations included.
    witness: the first instance on which the printed formula fails. tolerance: largest error that counts as agreement.
    mean: mean finite error of the printed formula over the instances, where the check has it.
    """

    printed: float
    corrected: float | None = None
    instances: int = 1
    witness: Witness | None = None
    tolerance: float = TOLERANCE
    mean: float = 0.0

    @property
    def agreement(self) -> Agreement:
        if self.printed <= self.tolerance:
            return "holds"
        if self.corrected is not None and self.corrected <= self.tolerance:
            return "holds after correction"
        return "fails"


Check = Callable[[], Outcome]
Dropped = tuple[tuple[str, Check], ...]


class Needs(NamedTuple):
    """A check, and the same check without one hypothesis each, which has to fail if the check means anything."""

    check: Check
    dropped: Dropped


def needs(check: Check, *dropped: tuple[str, Check]) -> Needs:
    """A check with (hypothesis, check without it) pairs."""
    return Needs(check, dropped)


Entry = Check | Needs
"""What a package's modules give for the id of a clause, in their dictionaries CHECKS."""


Case = TypeVar("Case")
Value = Callable[[Case], Tensor]
Error = Callable[[Tensor, Tensor], float]


def relative_error(found: Tensor, expected: Tensor) -> float:
    """max |found - expected| over max |expected| (over 1 where all of it is below 1e-12); NaN counts as infinite.

    Raises ValueError on different shapes, which broadcasting would hide.

    >>> round(relative_error(torch.tensor([1.0, 2.2]), torch.tensor([1.0, 2.0])), 6)
    0.1
    """
    if found.shape != expected.shape:
        raise ValueError(f"expected shape {tuple(expected.shape)}, found {tuple(found.shape)}")
    if not expected.numel():
        return 0.0
    scale = float(expected.abs().max())
    error = float((found - expected).abs().max()) / (scale if scale > 1e-12 else 1.0)
    return math.inf if math.isnan(error) else error


def apart(found: float, expected: float) -> float:
    """|found / expected − 1|, for two sides of an equality of numbers away from zero.

    >>> round(apart(1.1, -1.0), 6)
    2.1
    """
    return abs(found / expected - 1)


def excess(found: float, bound: float) -> float:
    """By how much a number exceeds its bound, relative to the bound; <= 0 where it does not.

    >>> round(excess(1.5, 1.0), 6)
    0.5
    """
    return (found - bound) / abs(bound)


def digits(value: Tensor | float) -> str:
    """A value in at most four entries of five digits."""
    entries = torch.as_tensor(value).flatten()
    shown = ", ".join(f"{float(entry):.5g}" for entry in entries[:4])
    if not torch.as_tensor(value).ndim:
        return shown
    more = ", ..." if len(entries) > 4 else ""
    return f"[{shown}{more}]"


def equality(
    cases: Iterable[Case],
    exact: Value[Case],
    printed: Value[Case] | None,
    corrected: Value[Case] | None = None,
    error: Error = relative_error,
    describe: Callable[[Case], str] = str,
    unusable: str = "nothing",
) -> Outcome:
    """Largest errors of the printed and of the corrected expression against the exact one.

    printed None: there is nothing to evaluate, for the reason `unusable`; its error counts as infinite.
    """
    worst, right, count, total, witness = 0.0, 0.0, 0, 0.0, None
    for case in cases:
        count += 1
        truth = exact(case)
        found = None if printed is None else printed(case)
        this = math.inf if found is None else error(found, truth)
        better = None if corrected is None else corrected(case)
        if better is not None:
            right = max(right, error(better, truth))
        if not this <= TOLERANCE and witness is None:
            shown = unusable if found is None else digits(found)
            witness = Witness(
                describe(case), shown, "" if better is None else digits(better), digits(truth)
            )
        worst, total = max(worst, this), total + (this if math.isfinite(this) else 0.0)
    return Outcome(
        worst, None if corrected is None else right, count, witness, mean=total / max(count, 1)
    )


def worst(
    cases: Iterable[Case],
    printed: Callable[[Case], float],
    corrected: Callable[[Case], float] | None = None,
    describe: Callable[[Case], str] = str,
    tolerance: float = TOLERANCE,
) -> Outcome:
    """Outcome of an error or violation function over the cases."""
    largest, right, count, total, witness = -math.inf, -math.inf, 0, 0.0, None
    for case in cases:
        count += 1
        this = printed(case)
        this = math.inf if math.isnan(this) else this
        better = None if corrected is None else corrected(case)
        right = right if better is None else max(right, better)
        if not this <= tolerance and witness is None:
            shown = "" if better is None else f"{better:.2g}"
            witness = Witness(describe(case), f"{this:.3g}", shown, "0")
        largest, total = max(largest, this), total + (this if math.isfinite(this) else 0.0)
    return Outcome(
        largest,
        None if corrected is None else right,
        count,
        witness,
        tolerance,
        total / max(count, 1),
    )


def exists(instance: str, reached: float, wanted: str, least: float = 1e-3) -> Outcome:
    """A statement that something *can* happen: `reached`, measured on the instance, has to be at least `least`."""
    failed = reached < least
    witness = Witness(instance, "found", "", f"{reached:.3g} where {wanted}") if failed else None
    return Outcome(0.0 if not failed else 1.0, instances=1, witness=witness)


def attack(
    excess: Callable[[Tensor], float],
    start: Tensor,
    steps: int = 80,
    spread: float = 0.5,
    seed: int = 0,
) -> tuple[float, Tensor]:
    """The best violation that a (1+1) evolution strategy with the one-fifth rule finds from `start`, and where.

    It needs values alone, so that a bound is attacked through the same code that tests it at random.

    >>> value, at = attack(lambda z: -float((z - 1).square().sum()), torch.zeros(2).double(), 200)
    >>> value > -1e-3
    True
    """
    generator = torch.Generator().manual_seed(seed)
    best, at, size = excess(start), start, spread
    for _ in range(steps):
        step = torch.randn(start.shape, generator=generator, dtype=start.dtype)
        trial = at + size * step
        value = excess(trial)
        if value > best:
            best, at, size = value, trial, size * 1.5
        else:
            size *= 0.9
    return best, at


def strongest(*outcomes: Outcome) -> Outcome:
    """Several checks of one clause as one: the largest errors, all instances, the first witness."""
    right = [o.corrected for o in outcomes if o.corrected is not None]
    return Outcome(
        max(o.printed for o in outcomes),
        max(right) if right else None,
        sum(o.instances for o in outcomes),
        next((o.witness for o in outcomes if o.witness), None),
        max(o.tolerance for o in outcomes),
        sum(o.mean for o in outcomes) / len(outcomes),
    )


def random_matrices(sizes: Sequence[tuple[int, int]], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(m, n, generator=generator, dtype=torch.float64) for m, n in sizes]
