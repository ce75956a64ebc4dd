"""What the claims of one variant look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.hsr.regularization.analysis import POLISHED, Tables, Variant
from runner.contract import Claim, Statement
from runner.stats.evidence import Evidence

if TYPE_CHECKING:
    import pandas as pd

    from experiments.hsr.regularization.settings import HsrRegularization

WIDE = {"asam": "asam_wide"}
"""Method of the paper -> the one beside it whose claims are marks."""
Made = Iterator[tuple[str, Claim]]
"""(variant, claim)."""


@dataclass(frozen=True)
class Case:
    """What the claims of one variant look at."""

    experiment: HsrRegularization
    variant: Variant
    tables: Tables
    evidence: Evidence
    says: Mapping[str, Statement]

    def rows(self, table: str, **where: str) -> pd.DataFrame:
        found = self.variant.rows(self.tables[table])
        for column, value in where.items():
            found = found[found[column] == value]
        return found

    def mark(self, method: str = "") -> str:
        """The variant in the marks of a row: 'fitted', 'printed second half', 'fitted with wide radius'."""
        readings = {self.experiment.reading[0]: "", POLISHED: POLISHED}
        reading = readings.get(self.variant.reading, "second half")
        wide = "with wide radius" if method in WIDE.values() else ""
        return " ".join(t for t in (self.variant.protocol, reading, wide) if t)

    def methods(self, method: str) -> tuple[str, ...]:
        """A method of the paper and the one beside it."""
        return (method, WIDE[method]) if method in WIDE else (method,)
