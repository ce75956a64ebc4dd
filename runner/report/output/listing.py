"""A table that a report shows as it is: of an experiment whose numbers are no rows of a paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Listing:
    """heading, table; lead: what it holds, in words."""

    heading: str
    table: pd.DataFrame
    lead: str = ""

    @property
    def columns(self) -> list[str]:
        return [str(column).replace("_", " ") for column in self.table.columns]

    @property
    def rows(self) -> list[list[str]]:
        """The values as texts."""
        return self.table.map(_text).to_numpy().tolist()


def _text(value: Any) -> str:
    if value != value:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
