"""Where the printed numbers, statements and sentences of the papers are: experiments/reference."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from runner.stats.numbers import read_numbers

if TYPE_CHECKING:
    import pandas as pd

REFERENCE = Path(__file__).resolve().parents[3] / "experiments" / "reference"
"""A folder for each paper: numbers.csv, statements.csv, texts.csv."""


@dataclass(frozen=True)
class Numbers:
    """The printed numbers of an experiment. experiment: "" for all of the file."""

    path: Path
    experiment: str = ""

    def read(self) -> pd.DataFrame:
        """`read_numbers`."""
        return read_numbers(self.path, self.experiment)


def numbers_of(name: str) -> Numbers | None:
    """The printed numbers of an experiment, where there are any."""
    known = (Numbers(path, name) for path in files("numbers") if name in _experiments(path))
    return next(known, None)


def files(kind: str) -> list[Path]:
    """The files of all papers: numbers, statements or texts."""
    return sorted(REFERENCE.glob(f"*/{kind}.csv"))


@cache
def _experiments(path: Path) -> frozenset[str]:
    with open(path, newline="", encoding="utf-8") as stream:
        return frozenset(row.get("experiment", "") for row in csv.DictReader(stream))
