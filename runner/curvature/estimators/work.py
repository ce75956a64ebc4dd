"""The loop of every estimator: a budget, a progress bar, and the result so far at Ctrl-C."""

from __future__ import annotations

import os
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor
from tqdm import tqdm

from runner.curvature.estimators.operator import NOT_FINITE, NotFiniteError, Symmetric
from runner.curvature.function.precision import full_precision

SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
DELAY = 2.0
"""Seconds before a bar appears."""
ENDED = "stopped, or out of budget, before there was a result"

Found = TypeVar("Found")


class Work(ABC, Generic[Found]):
    """An estimate in steps, which a budget or the user may end.

    planned: products in all, about. products: taken so far.
    """

    title: ClassVar[str]
    planned: int = 0
    products: int = 0

    @abstractmethod
    def steps(self) -> Iterator[int]:
        """Takes one step after the other; yields the products of each before it."""

    @abstractmethod
    def result(self) -> Found | None:
        """The result of the steps so far; None before there is one."""

    @abstractmethod
    def undefined(self, reason: str) -> Found:
        """NaN, with the reason."""

    def agreed(self, late: bool) -> bool:
        """`late` of the first process, where several measure together."""
        return late

    def run(self, budget: int | str | None, progress: bool | None) -> Found:
        """The result, or what there is of it when the budget ends.

        A KeyboardInterrupt carries the result so far as `.partial`.
        """
        limit = Budget.of(budget)
        try:
            with full_precision(), progress_bar(self.title, self.planned, progress) as bar:
                for ahead in self.steps():
                    bar.total = self.planned
                    bar.update(self.products - bar.n)
                    if not limit.allows(ahead, self):
                        break
        except NotFiniteError:
            return self.undefined(NOT_FINITE)
        except KeyboardInterrupt as stop:
            stop.partial = self.so_far()  # type: ignore[attr-defined]
            raise
        return self.so_far()

    def so_far(self) -> Found:
        """The result, or NaN with a reason."""
        result = self.result()
        return self.undefined(ENDED) if result is None else result


class Method(Work[Found]):
    """An estimate of one operator; from the whole matrix where n products cost no more."""

    def __init__(self, symmetric: Symmetric, planned: int) -> None:
        self.symmetric = symmetric
        self.planned = min(planned, symmetric.size)
        self.exact = planned >= symmetric.size
        self.whole: Found | None = None

    @abstractmethod
    def of_matrix(self, matrix: Tensor) -> Found:
        """The result, from `Symmetric.dense`."""

    @abstractmethod
    def ahead(self) -> int:
        """Products of the next step, 0 when finished."""

    @abstractmethod
    def step(self) -> None:
        """One step."""

    @property
    def products(self) -> int:  # type: ignore[override]
        return self.symmetric.products

    def agreed(self, late: bool) -> bool:
        return self.symmetric.agreed(late)

    def steps(self) -> Iterator[int]:
        if self.exact:
            yield self.symmetric.size
            self.whole = self.of_matrix(self.symmetric.dense())
            return
        while ahead := self.ahead():
            yield ahead
            self.step()

    def run(self, budget: int | str | None, progress: bool | None) -> Found:
        if self.symmetric.reason:
            return self.undefined(self.symmetric.reason)
        return super().run(budget, progress)

    def so_far(self) -> Found:
        if self.exact:
            if self.whole is None:
                return self.undefined(ENDED)
            return self.whole
        return super().so_far()


@dataclass(frozen=True)
class Budget:
    """What one estimate may use; None: as much as it needs."""

    products: int | None = None
    seconds: float | None = None
    started: float = field(default_factory=time.monotonic, compare=False)

    @classmethod
    def of(cls, given: int | str | None) -> Budget:
        """200: products; "30 s", "5 min", "1 h": time. Raises ValueError for anything else."""
        if given is None:
            return cls()
        if isinstance(given, int) and not isinstance(given, bool) and given > 0:
            return cls(products=given)
        match = re.fullmatch(r"\s*(\d+\.?\d*)\s*(s|min|h)\s*", str(given))
        if match is None:
            raise ValueError(
                'expected a budget as a number of products, 200, or a time, "30 s" or "5 min", '
                f"found {given!r}"
            )
        return cls(seconds=float(match[1]) * SECONDS[match[2]])

    def allows(self, ahead: int, work: Work[Any]) -> bool:
        """Whether `ahead` more products fit; all processes agree on it."""
        spent = work.products
        if self.products is not None and spent + ahead > self.products:
            return False
        if self.seconds is None:
            return True
        expected = time.monotonic() - self.started
        if spent:
            expected *= 1 + ahead / spent
        return not work.agreed(expected > self.seconds)


@contextmanager
def progress_bar(
    title: str, total: float, progress: bool | None, unit: str = " products"
) -> Iterator[Any]:
    """A bar that is updated with what was done. progress: shown or not; None: after two seconds in
    a terminal or notebook."""
    hidden = not progress
    delay = 0.0
    if progress is None:
        hidden = not interactive()
        delay = DELAY
    with tqdm(total=total, desc=title, unit=unit, disable=hidden, delay=delay, leave=False) as bar:
        yield bar


def interactive() -> bool:
    """Whether output goes to a terminal or a notebook."""
    if os.environ.get("TQDM_DISABLE"):
        return False
    return sys.stderr.isatty() or "ipykernel" in sys.modules
