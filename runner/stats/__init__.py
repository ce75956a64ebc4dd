"""Tests, fits, ranks and verdicts: `Statistic` rows for stats.csv, and the functions that make them."""

from runner.stats.tests import (
    TESTS,
    About,
    Shift,
    Statistic,
    correct,
    holm,
    linear,
    log_linear,
    mann_whitney,
    spearman,
    summary,
    wilcoxon,
)

__all__ = [
    "TESTS",
    "About",
    "Shift",
    "Statistic",
    "correct",
    "holm",
    "linear",
    "log_linear",
    "mann_whitney",
    "spearman",
    "summary",
    "wilcoxon",
]
