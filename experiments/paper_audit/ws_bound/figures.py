"""WS-bound paper, Section VI: what its discussion says of a figure."""

from __future__ import annotations

from scipy.stats import spearmanr

from experiments.paper_audit.checks import Checks, Outcome, worked
from experiments.paper_audit.published import PUBLISHED_SEEDS, critical_points

CHECKS = Checks()
LEVEL = 0.01
CALIBRATED = ("fitted", 0.01)
SEARCHES = (CALIBRATED, ("printed", 0.02), ("printed", 0.05), ("printed", 0.1))
"""Stopping rule and rate."""


def correlations(column: str, protocol: str, rate: float) -> list[tuple[float, float]]:
    """Rank correlation of a column with λ_sup, and its p-value, for each data set."""
    tests = []
    for seed in PUBLISHED_SEEDS:
        points = critical_points(protocol, seed, rate)
        values = [float(row[column]) for row in points]
        bounds = [float(row["lambda_sup"]) for row in points]
        test = spearmanr(values, bounds)
        tests.append((float(test.statistic), float(test.pvalue)))
    return tests


def _list(tests: list[tuple[float, float]]) -> str:
    return ", ".join(f"{value:+.2f}" for value, _ in tests).replace("-", "−")


@CHECKS.clause("ws.fig10.input")
def input_weights() -> Outcome:
    """Fig. 10, right: no clear relationship of ‖W‖² and λ_sup. Share of five data sets whose rank
    correlation has p < 0.01 at the points of the calibrated search; corrected: it is negative in
    each, and for the printed rule too."""
    inputs = correlations("W_norm_sq", *CALIBRATED)
    outputs = correlations("V_norm_sq", *CALIBRATED)
    significant = sum(p < LEVEL for _, p in inputs)
    every = []
    for search in SEARCHES:
        every += [value for value, _ in correlations("W_norm_sq", *search)]
    witness = worked(
        "ws_bound, calibrated search, N = 3, five data sets of 269 to 348 points: rank "
        "correlation of λ_sup with ‖W‖²",
        "none",
        "negative",
        f"{_list(inputs)}; with ‖V‖² {_list(outputs)}",
    )
    return Outcome(significant / len(inputs), max(every), len(every), witness)
