"""Tests, fits, ranks and verdicts.

The face holds what makes `Statistic` rows for stats.csv; verdicts are reached in `runner.stats.judge` alone, data sets
are counted in `runner.stats.evidence`, and printed statements are read by `runner.stats.statements`.
"""

from runner.contract.statistic import TESTS, About, Statistic
from runner.stats.fits import linear, log_linear, summary
from runner.stats.tests import Shift, correct, holm, mann_whitney, spearman, wilcoxon

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
