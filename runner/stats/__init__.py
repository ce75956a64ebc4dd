"""Tests, fits, intervals and verdicts.

This module exports the functions that make `Statistic` rows for stats.csv; `runner.stats.judge`
reaches verdicts.
"""

from runner.contract.records import TESTS, About, Statistic
from runner.stats.fits import linear, log_linear, summary
from runner.stats.tests import Shift, correct, holm, mann_whitney, spearman, wilcoxon
