"""Tests, fits, intervals and verdicts.

This module exports the functions that make `Statistic` rows for stats.csv; `runner.stats.judge`
reaches verdicts.
"""

from runner.contract.records import TESTS, About, Statistic
from runner.stats.tests import (
    Shift,
    correct,
    holm,
    linear,
    log_linear,
    mann_whitney,
    spearman,
    summary,
    wilcoxon,
)
