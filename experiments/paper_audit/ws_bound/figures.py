"""WS-bound paper, Section VI: what its discussion says of a figure."""

from __future__ import annotations

from scipy.stats import spearmanr

from experiments.paper_audit import effects
from experiments.paper_audit.checks import Entry, Outcome, Witness

LEVEL = 0.01


SEARCHES = (("fitted", 0.01), ("printed", 0.02), ("printed", 0.05), ("printed", 0.1))
"""Stopping rule and rate."""


def correlations(column: str, protocol: str, rate: float) -> list[tuple[float, float]]:
    """Rank correlation of a column with λ_sup, and its p-value, for each data set."""
    found = []
    for seed in effects.PUBLISHED_SEEDS:
        points = effects.critical_points(protocol, seed, rate)
        values = [float(row[column]) for row in points]
        test = spearmanr(values, [float(row["lambda_sup"]) for row in points])
        found.append((float(test.statistic), float(test.pvalue)))
    return found


def _list(found: list[tuple[float, float]]) -> str:
    return ", ".join(f"{value:+.2f}" for value, _ in found)


def input_weights() -> Outcome:
    """Fig. 10, right: no clear relationship of ‖W‖² and λ_sup. Share of five data sets whose rank correlation has
    p < 0.01 at the points of the calibrated search; corrected: it is negative in each, and for the printed rule too."""
    inputs = correlations("W_norm_sq", *SEARCHES[0])
    outputs = correlations("V_norm_sq", *SEARCHES[0])
    significant = sum(p < LEVEL for _, p in inputs)
    largest = max(value for search in SEARCHES for value, _ in correlations("W_norm_sq", *search))
    shown = [_list(inputs), _list(outputs)]
    witness = Witness(
        "ws_bound, calibrated search, N = 3, five data sets of 269 to 348 points: rank correlation of λ_sup with ‖W‖²",
        "none",
        "negative",
        f"{shown[0]}; with ‖V‖² {shown[1]}".replace("-", "−"),
    )
    return Outcome(significant / len(inputs), largest, 5 * len(SEARCHES), witness)


CHECKS: dict[str, Entry] = {"ws.fig10.input": input_weights}
