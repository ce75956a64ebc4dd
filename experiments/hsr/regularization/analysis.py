"""Reading the merged tables: variants, and the values of two methods from the same starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from experiments.hsr.regularization.settings import HsrRegularization

Tables = Mapping[str, "pd.DataFrame"]
GROUPS = ("sharp", "flat")
NAMES = {
    "gd": "plain descent",
    "trace": "Hessian trace",
    "asam": "A-SAM",
    "asam_wide": "A-SAM, wide radius",
    "hsr": "HSR",
}
POLISHED = "polished"
"""In the column `reading` of endpoints: the ends of the first reading, led on downhill."""
PAIRS = (
    ("trace", "gd"),
    ("asam", "gd"),
    ("asam_wide", "gd"),
    ("hsr", "gd"),
    ("asam", "trace"),
    ("asam_wide", "trace"),
    ("hsr", "trace"),
    ("hsr", "asam"),
    ("hsr", "asam_wide"),
)
FIGURES = {
    "lambda_max": "fig12a",
    "log_lambda_max": "fig12a",
    "mean": "fig12b",
    "std": "fig12c",
    "lambda_min": "fig12d",
    "f1": "fig14",
    "boundary_length": "fig15",
}
"""Quantity -> figure, the family of Holm's correction."""


@dataclass(frozen=True)
class Variant:
    """One protocol under one reading of the stop rule, or POLISHED."""

    protocol: str
    reading: str

    @property
    def group(self) -> str:
        """The `group` of claims and statistics."""
        return f"protocol={self.protocol} stop={self.reading}"

    @property
    def text(self) -> str:
        when = {
            "every_step": "stop rule from the start",
            "second_half": "stop rule in the second half",
            POLISHED: "where the ends lead",
        }
        return f"{self.protocol}, {when[self.reading]}"

    def rows(self, table: pd.DataFrame) -> pd.DataFrame:
        keep = table["protocol"] == self.protocol
        found = table[keep & (table["reading"] == self.reading)] if "reading" in table else table[keep]
        return found.infer_objects()  # beside a cell without any critical point columns are not numbers yet


def variants(experiment: HsrRegularization, tables: Tables) -> list[Variant]:
    """Those with endpoints, in the order of the settings."""
    if "endpoints" not in tables:
        return []
    rows = tables["endpoints"]
    stored = set(zip(rows["protocol"], rows["reading"], strict=True))
    order = [Variant(p, r) for p in experiment.protocol for r in (*experiment.reading, POLISHED)]
    return [v for v in order if (v.protocol, v.reading) in stored]


def by_seed(table: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    """(seed, rows) of each data set, in order."""
    for seed, rows in table.groupby("seed", sort=True):
        yield int(str(seed)), rows


def wide(rows: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """One row per start, one column per method; NaN where a method did not reach a critical point from it."""
    import numpy as np

    column = "lambda_max" if quantity == "log_lambda_max" else quantity
    values = rows[column].where(rows["status"] == "ok")
    if quantity == "log_lambda_max":
        values = np.log(values.where(values > 0))
    table = rows.assign(value=values).pivot_table(index="start", columns="method", values="value", dropna=False)
    return table.reindex(columns=list(NAMES))
