"""How a clause is checked, the same way for every paper: outcomes, equalities, inequalities and
searches.

A verdict always follows from the numbers that a check returns and from the class of the root cause;
it is never written down. Cases come smallest first, so that the first failure is the one to
recompute by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

Agreement = Literal["holds", "holds after correction", "fails"]
TOLERANCE = 1e-9


Worked = dict[str, str]
"""A worked check: texts of the columns instance, printed, corrected, reference."""


def worked(instance: str, printed: str, corrected: str, reference: str) -> Worked:
    """One instance small enough to recompute by hand: what is printed gives, what is right gives,
    and the reference."""
    return {
        "instance": instance,
        "printed": printed,
        "corrected": corrected,
        "reference": reference,
    }


@dataclass(frozen=True)
class Outcome:
    """Numbers of one check.

    printed: largest relative error of the formula as printed (inequality: largest violation, <= 0
    when it holds). corrected: the same for the corrected formula, None where nothing needs
    correcting. instances: how many instances were tried, steps of a search for violations included.
    witness: the first instance on which the printed formula fails. tolerance: largest error that
    counts as agreement. mean: mean finite error of the printed formula over the instances, where
    the check has it.
    """

    printed: float
    corrected: float | None = None
    instances: int = 1
    witness: Worked | None = None
    tolerance: float = TOLERANCE
    mean: float = 0.0

    @property
    def agreement(self) -> Agreement:
        if self.printed <= self.tolerance:
            return "holds"
        if self.corrected is not None and self.corrected <= self.tolerance:
            return "holds after correction"
        return "fails"


Case = TypeVar("Case")
Check = Callable[[], Outcome]
Errors = Iterator[float]
"""What a check yields: the error of the printed line on each instance."""
BothErrors = Generator[tuple[float, float], None, Worked | None]
"""What a check yields: the errors of the printed and of the corrected line on each instance; it
returns its worked check."""
Steps = Iterable[float] | BothErrors


class Checks(dict[str, Check]):
    """The checks of one module, by the id of the clause.

    `without`: checks of a clause without one of its hypotheses, by (id, hypothesis). They have to
    fail, or the check means nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.without: dict[tuple[str, str], Check] = {}

    def clause(
        self, name: str, instances: int | None = None, tolerance: float = TOLERANCE
    ) -> Callable[[Callable[..., Outcome | Steps]], Callable[..., Outcome]]:
        """Decorate the check of the clause with this id, which returns an outcome, or yields
        errors (`outcome_of`)."""

        def register(check: Callable[..., Outcome | Steps]) -> Callable[..., Outcome]:
            @wraps(check)
            def outcome(*arguments: Any, **named: Any) -> Outcome:
                result = check(*arguments, **named)
                if isinstance(result, Outcome):
                    return result
                return outcome_of(result, instances, tolerance)

            self[name] = outcome
            return outcome

        return register

    def errors(
        self, name: str, cases: Callable[[], Iterable[Case]]
    ) -> Callable[[Callable[[Case], float]], Callable[[Case], float]]:
        """Decorate the error, or violation, of the clause with this id on one of these cases."""

        def register(error: Callable[[Case], float]) -> Callable[[Case], float]:
            self[name] = lambda: worst(cases(), error)
            return error

        return register


Value = Callable[[Case], Tensor]
Error = Callable[[Tensor, Tensor], float]


def relative_error(found: Tensor, expected: Tensor) -> float:
    """max |found - expected| over max |expected| (over 1 where all of it is below 1e-12); NaN
    counts as infinite.

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


class Tally:
    """Errors of the printed and of the corrected expression, instance by instance; the first
    failure is the witness."""

    def __init__(self, corrected: bool, tolerance: float, least: float) -> None:
        self.tolerance = tolerance
        self.printed = least
        self.corrected = least if corrected else None
        self.count = 0
        self.finite = 0.0
        self.witness: Worked | None = None

    def add(self, printed: float, corrected: float | None, witness: Worked) -> None:
        """One instance."""
        self.count += 1
        self.printed = max(self.printed, printed)
        if math.isfinite(printed):
            self.finite += printed
        if self.corrected is not None and corrected is not None:
            self.corrected = max(self.corrected, corrected)
        if not printed <= self.tolerance and self.witness is None:
            self.witness = witness

    def outcome(self) -> Outcome:
        mean = self.finite / max(self.count, 1)
        return Outcome(self.printed, self.corrected, self.count, self.witness, self.tolerance, mean)


def equality(
    cases: Iterable[Case],
    exact: Value[Case],
    printed: Value[Case] | None,
    corrected: Value[Case] | None = None,
    error: Error = relative_error,
    unusable: str = "nothing",
) -> Outcome:
    """Largest errors of the printed and of the corrected expression against the exact one.

    printed None: there is nothing to evaluate, for the reason `unusable`; its error counts as
    infinite.
    """
    tally = Tally(corrected is not None, TOLERANCE, least=0.0)
    for case in cases:
        truth = exact(case)
        of_printed = math.inf
        shown = unusable
        if printed is not None:
            found = printed(case)
            of_printed = error(found, truth)
            shown = digits(found)
        of_corrected = None
        right = ""
        if corrected is not None:
            better = corrected(case)
            of_corrected = error(better, truth)
            right = digits(better)
        tally.add(of_printed, of_corrected, worked(str(case), shown, right, digits(truth)))
    return tally.outcome()


def matches(
    cases: Callable[[], Iterable[Case]],
    exact: Value[Case],
    printed: Value[Case],
    corrected: Value[Case] | None = None,
) -> Check:
    """The check of an equality on these cases."""
    return lambda: equality(cases(), exact, printed, corrected)


def worst(
    cases: Iterable[Case],
    printed: Callable[[Case], float],
    corrected: Callable[[Case], float] | None = None,
    describe: Callable[[Case], str] = str,
) -> Outcome:
    """Outcome of an error or violation function over the cases."""
    tally = Tally(corrected is not None, TOLERANCE, least=-math.inf)
    for case in cases:
        error = printed(case)
        if math.isnan(error):
            error = math.inf
        of_corrected = None
        right = ""
        if corrected is not None:
            of_corrected = corrected(case)
            right = f"{of_corrected:.2g}"
        tally.add(error, of_corrected, worked(describe(case), f"{error:.3g}", right, "0"))
    return tally.outcome()


def outcome_of(steps: Steps, instances: int | None = None, tolerance: float = TOLERANCE) -> Outcome:
    """Outcome of errors, or of pairs of errors (printed, corrected), one for each instance unless
    `instances` says otherwise.

    >>> outcome_of([0.5, 0.25]).printed
    0.5
    """
    witness: Worked | None = None

    def collected() -> Iterator[Any]:
        nonlocal witness
        witness = yield from steps  # what a generator returns; None of any other collection

    errors = list(collected())
    count = len(errors) if instances is None else instances
    if not isinstance(errors[0], tuple):
        return Outcome(max(errors), None, count, witness, tolerance)
    printed, corrected = zip(*errors, strict=True)
    return Outcome(max(printed), max(corrected), count, witness, tolerance)


def exists(instance: str, reached: float, wanted: str, least: float = 1e-3) -> Outcome:
    """A statement that something *can* happen: `reached`, measured on the instance, has to be at
    least `least`."""
    if reached >= least:
        return Outcome(0.0, instances=1)
    witness = worked(instance, "found", "", f"{reached:.3g} where {wanted}")
    return Outcome(1.0, instances=1, witness=witness)


def attack(
    excess: Callable[[Tensor], float],
    start: Tensor,
    steps: int = 80,
    spread: float = 0.5,
    seed: int = 0,
) -> float:
    """The best violation that a (1+1) evolution strategy with the one-fifth rule finds from
    `start`.

    It needs values alone, so that a bound is attacked through the same code that tests it at
    random.

    >>> attack(lambda z: -float((z - 1).square().sum()), torch.zeros(2).double(), 200) > -1e-3
    True

    """
    generator = torch.Generator().manual_seed(seed)
    best = excess(start)
    at = start
    size = spread
    for _ in range(steps):
        step = torch.randn(start.shape, generator=generator, dtype=start.dtype)
        trial = at + size * step
        value = excess(trial)
        if value > best:
            best = value
            at = trial
            size = size * 1.5
        else:
            size *= 0.9
    return best


def strongest(*outcomes: Outcome) -> Outcome:
    """Several checks of one clause as one: the largest errors, all instances, the first witness."""
    right = [o.corrected for o in outcomes if o.corrected is not None]
    witnesses = [o.witness for o in outcomes if o.witness]
    return Outcome(
        printed=max(o.printed for o in outcomes),
        corrected=max(right, default=None),
        instances=sum(o.instances for o in outcomes),
        witness=next(iter(witnesses), None),
        tolerance=max(o.tolerance for o in outcomes),
        mean=sum(o.mean for o in outcomes) / len(outcomes),
    )
