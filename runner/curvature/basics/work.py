"""The loop of every estimator: a progress bar, and the result so far at Ctrl-C."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor
from tqdm import tqdm

from runner.curvature.basics.adapters import NOT_FINITE, NotFiniteError, Symmetric
from runner.curvature.basics.precision import full_precision

DELAY = 2.0
"""Seconds before a bar appears."""
ENDED = "stopped before there was a result"

Found = TypeVar("Found")


class Work(ABC, Generic[Found]):
    """An estimate in steps, which the user may end.

    planned: products in all, about. products: taken so far.
    """

    title: ClassVar[str]
    planned: int = 0
    products: int = 0

    @abstractmethod
    def steps(self) -> Iterator[None]:
        """Takes one step after the other; yields before each."""

    @abstractmethod
    def result(self) -> Found | None:
        """The result of the steps so far; None before there is one."""

    @abstractmethod
    def undefined(self, reason: str) -> Found:
        """NaN, with the reason."""

    def run(self, progress: bool | None) -> Found:
        """The result. A KeyboardInterrupt carries the result so far as `.partial`."""
        try:
            with full_precision(), progress_bar(self.title, self.planned, progress) as bar:
                for _ in self.steps():
                    bar.total = self.planned
                    bar.update(self.products - bar.n)
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
    def search(self) -> Iterator[None]:
        """The steps where the matrix is too large; yields before each."""

    @property
    def products(self) -> int:  # type: ignore[override]
        return self.symmetric.products

    def steps(self) -> Iterator[None]:
        if self.exact:
            yield
            self.whole = self.of_matrix(self.symmetric.dense())
        else:
            yield from self.search()

    def run(self, progress: bool | None) -> Found:
        if self.symmetric.reason:
            return self.undefined(self.symmetric.reason)
        return super().run(progress)

    def so_far(self) -> Found:
        if self.exact:
            if self.whole is None:
                return self.undefined(ENDED)
            return self.whole
        return super().so_far()


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
