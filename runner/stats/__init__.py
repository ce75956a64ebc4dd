"""Tests, fits, intervals and verdicts.

This module exports the functions that make `Statistic` rows for stats.csv, and what decides the
rows of a paper: `judge(read_statements(path).values(), tables)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.contract.records import About, Statistic
from runner.stats.fits import linear, log_linear, summary
from runner.stats.rows import read_statements
from runner.stats.tests import correct, holm, mann_whitney, spearman, wilcoxon

if TYPE_CHECKING:
    from runner.stats.statements import judge

__all__ = [
    "About",
    "Statistic",
    "correct",
    "holm",
    "judge",
    "linear",
    "log_linear",
    "mann_whitney",
    "read_statements",
    "spearman",
    "summary",
    "wilcoxon",
]


def __getattr__(name: str) -> Any:
    """`judge` is imported when it is asked for: pandas comes with it."""
    if name != "judge":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from runner.stats.statements import judge

    return judge
