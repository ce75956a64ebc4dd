"""Reading the merged tables: which rows belong together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from experiments.ws_bound.settings import WsBound

Tables = Mapping[str, "pd.DataFrame"]
PAPER_ACTIVATION = "sigmoid"


@dataclass(frozen=True)
class Variant:
    """One protocol with one activation; `rate` is the one that its claims and figures look at.

    polished: where its ends lead when they are not stopped, instead of the ends.
    """

    protocol: str
    activation: str
    rate: float
    polished: bool = False

    @property
    def group(self) -> str:
        """The `group` of claims and statistics."""
        beyond = "" if self.activation == PAPER_ACTIVATION else f" activation={self.activation}"
        return f"protocol={self.protocol}{beyond}{' polished' if self.polished else ''}"

    def figure(self, name: str) -> str:
        """The family of Holm's correction: the paper's activation under both protocols shares a figure."""
        family = name if self.activation == PAPER_ACTIVATION else f"{name} {self.activation}"
        return f"{family} polished" if self.polished else family

    def rows(self, table: pd.DataFrame, hidden: int | None = None, *, every_rate: bool = False) -> pd.DataFrame:
        """The rows of this variant; of one width, if given; at every scanned rate, if asked for."""
        keep = (table["protocol"] == self.protocol) & (table["activation"] == self.activation)
        if not every_rate:
            keep &= table["rate"] == self.rate
        if hidden is not None:
            keep &= table["hidden"] == hidden
        return table[keep]


def variants(experiment: WsBound, tables: Tables, *, paper_only: bool = False) -> list[Variant]:
    """The variants with stored cells: the paper's activation under both protocols first, then the others.

    A scanned protocol is represented by `portrait_rate`, or by its first stored rate when that one is not there.
    """
    if "search" not in tables:
        return []
    found: dict[tuple[str, str], list[float]] = {}
    for row in tables["search"][["protocol", "activation", "rate"]].drop_duplicates().itertuples(index=False):
        found.setdefault((str(row.protocol), str(row.activation)), []).append(float(row.rate))
    chosen = [
        Variant(protocol, activation, experiment.portrait_rate if experiment.portrait_rate in rates else rates[0])
        for (protocol, activation), rates in found.items()
        if activation == PAPER_ACTIVATION or not paper_only
    ]
    return sorted(chosen, key=lambda v: v.activation != PAPER_ACTIVATION)  # stable: the stored order otherwise


def polished_variants(experiment: WsBound, tables: Tables) -> list[Variant]:
    """The variants whose ends were polished, the paper's activation under both protocols first."""
    if "polished" not in tables:
        return []
    found = [replace(v, polished=True) for v in variants(experiment, tables)]
    return [v for v in found if len(unique_points(tables, v))]


ZERO_LOSS = 1e-8
"""A cross-entropy below this, where its gradient has vanished, is on its way to 0, a value that it never takes."""


def where_led(tables: Tables) -> pd.DataFrame:
    """The polished points; those whose loss vanishes run to infinity, whatever their Hessian, which vanishes too."""
    rows = tables["polished"]
    vanishing = (rows["kind"] == "degenerate") & (rows["loss"] < ZERO_LOSS)
    return rows.assign(kind=rows["kind"].mask(vanishing, "infinity"))


def unique_points(tables: Tables, variant: Variant, hidden: int | None = None) -> pd.DataFrame:
    """The paper's critical points: converged, and no duplicate of an earlier one.

    Of a polished variant where they lead, those left out that were still on their way.
    """
    if variant.polished:
        rows = variant.rows(tables["polished"], hidden)
        return rows[rows["kind"] != "unfinished"]
    rows = variant.rows(tables["critical_points"], hidden)
    return rows[(rows["status"] == "ok") & (rows["duplicate"] == 0)]


def by_seed(table: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    """(seed, rows) of each data set, in order."""
    for seed, rows in table.groupby("seed", sort=True):
        yield int(str(seed)), rows


def split_low_high(rows: pd.DataFrame, low_share: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The points with the smallest λ_sup and the rest (WS bound, Fig. 7: 317 and 36 of 353)."""
    ordered = rows.sort_values("lambda_sup", kind="stable")
    count = int(low_share * len(ordered))
    return ordered.iloc[:count], ordered.iloc[count:]
