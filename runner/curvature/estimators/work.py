"""The loop of every estimator: a budget, a progress bar, and the result so far at Ctrl-C."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from tqdm import tqdm

from runner.curvature.estimators.operator import NOT_FINITE, NotFiniteError, Symmetric
from runner.curvature.function.precision import full_precision

SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
DELAY = 2.0
"""Seconds before a bar appears."""
ENDED = "the budget ended before there was a result"

Found = TypeVar("Found", covariant=True)


class Method(Protocol[Found]):
    """An estimator in steps. `ahead`: products of the next step, 0 when finished; `planned`:
    products in all, about; `result` at any time, `undefined` with the reason of a NaN."""

    planned: int

    def ahead(self) -> int: ...
    def step(self) -> None: ...
    def result(self) -> Found: ...
    def undefined(self, reason: str) -> Found: ...


@dataclass(frozen=True)
class Budget:
    """What one estimate may use; None: as much as it needs."""

    products: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, given: int | str | None) -> Budget:
        """200: products; "30 s", "5 min", "1 h": time. Raises ValueError for anything else."""
        if given is None:
            return cls()
        if isinstance(given, int) and not isinstance(given, bool) and given > 0:
            return cls(products=given)
        match = (
            re.fullmatch(r"\s*(\d+\.?\d*)\s*(s|min|h)\s*", given)
            if isinstance(given, str)
            else None
        )
        if match is None:
            raise ValueError(
                'expected a budget as a number of products, 200, or a time, "30 s" or "5 min", '
                f"found {given!r}"
            )
        return cls(seconds=float(match[1]) * SECONDS[match[2]])


class Work(Generic[Found]):
    """A method at work on one operator."""

    def __init__(
        self, symmetric: Symmetric, title: str, budget: int | str | None, progress: bool | None
    ) -> None:
        self.symmetric, self.title, self.progress = symmetric, title, progress
        self.budget = Budget.of(budget)
        self.started = time.monotonic()

    def allows(self, ahead: int) -> bool:
        """Whether the next step fits the budget; all processes agree on it."""
        spent, most = self.symmetric.products, self.budget.products
        if most is not None and spent + ahead > most:
            return False
        if self.budget.seconds is None:
            return True
        now = time.monotonic() - self.started
        expected = now * (1 + ahead / spent) if spent else now
        late = torch.tensor([[float(expected > self.budget.seconds)]], device="cpu")
        return not bool(self.symmetric.first(late.to(self.symmetric.device)).item())

    def run(self, method: Method[Found]) -> Found:
        """The result of the method, or what there is of it when the budget ends.

        A KeyboardInterrupt carries the result so far as `.partial`.
        """
        if self.symmetric.reason:
            return method.undefined(self.symmetric.reason)
        try:
            with full_precision(), progress_bar(self.title, method.planned, self.progress) as bar:
                while (ahead := method.ahead()) and self.allows(ahead):
                    before = self.symmetric.products
                    method.step()
                    bar.update(self.symmetric.products - before)
        except NotFiniteError:
            return method.undefined(NOT_FINITE)
        except KeyboardInterrupt as stop:
            stop.partial = method.result()  # type: ignore[attr-defined]
            raise
        return method.result()


@contextmanager
def progress_bar(
    title: str, total: float, progress: bool | None, unit: str = " products"
) -> Iterator[Any]:
    """A bar that is updated with what was done. progress: shown or not; None: after two seconds in
    a terminal or notebook."""
    shown = interactive() if progress is None else progress
    with tqdm(
        total=total,
        desc=title,
        unit=unit,
        disable=not shown,
        delay=DELAY if progress is None else 0.0,
        leave=False,
    ) as bar:
        yield bar


def interactive() -> bool:
    """Whether output goes to a terminal or a notebook."""
    if os.environ.get("TQDM_DISABLE"):
        return False
    return sys.stderr.isatty() or "ipykernel" in sys.modules
