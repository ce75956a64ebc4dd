"""Wilcoxon signed-rank tests between methods, paired by the start they share; every data set by itself.

Starts of one data set share that data set, so pooling them over seeds would count the same draw hundreds of times. What
holds over data sets is tested on one median per data set (`… over data sets`), where n is small and says so. Pairs in
which a method reached no critical point are left out, and counted in the note.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from experiments.hsr.regularization.analysis import (
    FIGURES,
    GROUPS,
    PAIRS,
    Tables,
    Variant,
    by_seed,
    variants,
    wide,
)
from runner import stats
from runner.stats import Statistic

if TYPE_CHECKING:
    import pandas as pd

    from experiments.hsr.regularization.settings import HsrRegularization


def statistics(experiment: HsrRegularization, tables: Tables) -> list[Statistic]:
    """Every test of every variant, without Holm's correction."""
    return [s for v in variants(experiment, tables) for s in _of_variant(v, v.rows(tables["endpoints"]))]


def _of_variant(variant: Variant, rows: pd.DataFrame) -> Iterator[Statistic]:
    for group in GROUPS:
        for quantity, figure in FIGURES.items():
            tables = {seed: wide(part, quantity) for seed, part in by_seed(rows[rows["group"] == group])}
            for a, b in PAIRS:
                name = f"{quantity}, {a} - {b}, {group} seeds"
                about: dict[str, Any] = {"where": f"Fig. {figure[3:].upper()}", "label_a": a, "label_b": b}
                about["figure"] = f"{figure} {variant.group}"
                medians = []
                for seed, table in tables.items():
                    yield stats.wilcoxon(table[a], table[b], name=name, group=f"{variant.group} seed={seed}", **about)
                    medians.append(float((table[a] - table[b]).median()))
                if tables:
                    known = [m for m in medians if not math.isnan(m)]
                    about |= {"label_a": f"median of {a} - {b}", "label_b": "0", "figure": about["figure"] + " all"}
                    yield stats.wilcoxon(known, name=f"{name}, over data sets", group=variant.group, **about)
