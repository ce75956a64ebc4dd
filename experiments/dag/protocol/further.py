"""How typical the published five seeds are: ten further seeds from named streams, and where the printed means fall.

A printed mean is held against the means of all subsets of as many seeds as the paper had, and against the 95 % interval
in which the mean of that many further seeds would fall. Values of further seeds are no part of a scorecard.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any

from experiments.dag.protocol.rounding import label_of

if TYPE_CHECKING:
    import pandas as pd

    from runner.stats import Statistic

FEWEST = 6
"""Seeds below which a subset of five says nothing."""
MOST = 5000


def percentile(values: Sequence[float], printed: float, n: int) -> float:
    """Share of the subsets of n values whose mean lies below the printed one, ties by half, in percent."""
    means = [math.fsum(c) / n for c in islice(combinations(values, n), MOST)]
    below = sum(m < printed for m in means) + 0.5 * sum(m == printed for m in means)
    return 100 * below / len(means)


def rows(measured: pd.DataFrame, reference: pd.DataFrame, figure: str = "") -> Iterator[Statistic]:
    """One statistic a printed mean (kind "typical"): mean and std of the further seeds, statistic = percentile, p.

    measured: values of the further seeds; reference: the file of printed values, as text. effect: (printed − mean) over
    the standard error of the difference of the means of n_b and of n_a seeds; p: two-sided, by Student's t.
    """
    from scipy.stats import t

    from runner.report.printed import published
    from runner.stats import Statistic

    for row, values in matched(measured, reference):
        number = published(row)
        n, m = len(values), number.n
        mean = math.fsum(values) / n
        std = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
        if std == 0 or n < max(FEWEST, m + 1):
            continue
        z = (number.mean - mean) / (std * math.sqrt(1 / m + 1 / n))
        low, high = (mean + sign * float(t.ppf(0.975, n - 1)) * std * math.sqrt(1 / m + 1 / n) for sign in (-1, 1))
        yield Statistic(
            name=f"{row['metric']}: the printed mean among further seeds",
            kind="typical",
            group=label_of(keys_of(row)),
            figure=figure,
            label_a="further seeds",
            label_b="printed",
            n_a=n,
            n_b=m,
            mean=mean,
            std=std,
            shift=number.mean,
            shift_low=low,
            shift_high=high,
            statistic=percentile(values, number.mean, m),
            effect=z,
            p=2 * float(t.sf(abs(z), n - 1)),
            method="percentile among the means of all subsets; 95 % prediction interval of the mean of n_b seeds",
            note=f"printed {number.mean:g}" + (f" ± {number.std:g}" if not math.isnan(number.std) else ""),
        )


def matched(measured: pd.DataFrame, reference: pd.DataFrame) -> Iterator[tuple[dict[str, str], list[float]]]:
    """(reference row, values over seeds) of every printed mean; keys are compared as the scorecard compares them."""
    from runner.report.printed import published, text_of

    found = [{str(k): v for k, v in r.items()} for r in measured.to_dict("records")]
    for record in reference.to_dict("records"):
        row = {str(k): str(v) for k, v in record.items()}
        if math.isnan(published(row).mean):
            continue
        shared = [k for k in keys_of(row) if k in measured.columns] + ["metric"]
        of = [
            float(m["value"])
            for m in found
            if all(not row[k].strip() or text_of(row[k]) == text_of(m[k]) for k in shared)
        ]
        values = [v for v in of if math.isfinite(v)]
        if len(values) >= FEWEST and len({m["seed"] for m in found}) >= len(values):
            yield row, values


def keys_of(row: Mapping[str, str]) -> dict[str, Any]:
    """The entries of a reference row that name its value, but for the metric."""
    from runner.report.printed import BIBLIOGRAPHIC, VALUE_COLUMNS

    return {k: v for k, v in row.items() if k not in (*VALUE_COLUMNS, *BIBLIOGRAPHIC, "metric")}


def said(found: Sequence[Statistic]) -> str:
    """The finding in one sentence; '' without further seeds."""
    if not found:
        return ""
    inside = sum(s.shift_low <= s.shift <= s.shift_high for s in found)
    far = max(found, key=lambda s: abs(s.effect))
    return (
        f"Further seeds ({found[0].n_a}, named streams): {inside} of {len(found)} printed means lie where the mean of "
        f"five further seeds falls with 95 %; the farthest is {far.name.split(':')[0]} ({far.group}), {far.note} for "
        f"{far.mean:.4g} ± {far.std:.2g}, at percentile {far.statistic:.0f} of the means of five."
    )
