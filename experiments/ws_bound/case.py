"""What the claims of one variant look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.ws_bound.analysis import PAPER_ACTIVATION, Variant
from runner.contract import Claim, Statement
from runner.stats.evidence import Evidence

if TYPE_CHECKING:
    import pandas as pd

    from experiments.ws_bound.settings import WsBound

Made = Iterator[tuple[str, Claim]]
"""(variant, claim)."""


@dataclass(frozen=True)
class Case:
    """What the claims of one variant look at. points: unique critical points of both widths."""

    experiment: WsBound
    variant: Variant
    points: pd.DataFrame
    evidence: Evidence
    says: Mapping[str, Statement]

    @property
    def narrow(self) -> pd.DataFrame:
        return self.points[self.points["hidden"] == self.experiment.portrait_hidden]

    @property
    def mark(self) -> str:
        """The variant in the marks of a row."""
        return mark(self.variant)


def mark(variant: Variant) -> str:
    """'fitted', or 'fitted tanh' for an activation beyond the paper, 'fitted polished' where its ends lead."""
    beyond = variant.activation != PAPER_ACTIVATION
    name = f"{variant.protocol} {variant.activation}" if beyond else variant.protocol
    return f"{name} polished" if variant.polished else name
