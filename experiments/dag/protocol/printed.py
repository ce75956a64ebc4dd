"""The paper's printed values in figures: hollow marks beside the measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.dag.protocol.plot_styles import STYLES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

PAPER = "printed in the paper (± where printed)"
KEYS = ("depth", "d_u", "distance", "probes", "branch_depth")
"""Keys of reference files that are whole numbers."""


def printed(name: str) -> pd.DataFrame:
    """experiments/reference/<name>.csv with mean, std and the whole-number keys as numbers."""
    import pandas as pd

    from runner.report.collect import reference_path
    from runner.report.compare import read_reference

    path = reference_path(name)
    if path is None:
        raise ValueError(f"{name}: expected a file of printed values in experiments/reference, found none")
    table = read_reference(path)
    for column in ("mean", "std", "upper_bound", *(k for k in KEYS if k in table.columns)):
        table[column] = pd.to_numeric(table[column], errors="coerce")
    return table


def chosen(table: pd.DataFrame, **keys: Any) -> pd.DataFrame:
    """The printed rows whose key columns have these values; none where a column is missing."""
    for column, value in keys.items():
        if column not in table.columns:
            return table.iloc[:0]
        table = table[table[column] == value]
    return table


def mark(ax: Axes, x: float, y: float, label: str) -> None:
    """One printed value as a black-edged hollow mark in the shape of `label`."""
    shape = STYLES.style(label)["marker"]
    look: dict[str, Any] = {"facecolors": "none", "edgecolors": "black", "s": 64, "marker": shape, "zorder": 5}
    ax.scatter([x], [y], label=PAPER, **look)


def hollow(ax: Axes, x: Sequence[Any], rows: pd.DataFrame, label: str) -> None:
    """Printed means at x as black-edged hollow marks in the shape of `label`, with the printed ± where there is one."""
    if rows.empty or rows["mean"].isna().all():
        return
    ax.errorbar(
        x,
        rows["mean"],
        yerr=rows["std"].fillna(0),
        marker=STYLES.style(label)["marker"],
        markerfacecolor="none",
        markeredgecolor="black",
        ecolor="black",
        elinewidth=0.8,
        capsize=2,
        markersize=8,
        linestyle="none",
        label=PAPER,
        zorder=5,
    )
