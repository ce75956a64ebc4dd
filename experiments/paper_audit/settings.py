"""The audit of every clause of the five papers that numbers can check; one package of checks for
each paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from experiments.paper_audit.papers import ZEROS, errata, keys
from runner import contract as c


@dataclass(frozen=True, kw_only=True)
class PaperAudit(c.Experiment):
    """Every clause of the five papers that numbers can check, recomputed; docs/errata.md and
    docs/errata/ are made from it."""

    version: ClassVar[int] = 11
    title: ClassVar[str] = "Audit of every checkable formula"
    paper: ClassVar[str] = "all five"
    paper_seeds: ClassVar[tuple[int, ...]] = (42,)
    reads: ClassVar[tuple[str, ...]] = (
        "attention_newton",
        "exp1_resonance",
        "exp3_gn_gap",
        "exp5_attention",
        "hsr_gradient",
        "hsr_regularization",
        "ws_bound",
    )
    uncertified: ClassVar[str] = (
        "its rows are comparisons with automatic differentiation themselves"
    )
    reproduces: ClassVar[str] = (
        "every numbered statement that numbers can check, clause by clause; docs/errata.md"
    )
    measure = "experiments.paper_audit.measure:measure"
    analysis = "experiments.paper_audit.report:AuditAnalysis"

    source: list[str] = c.grid(
        choices=(*keys(), ZEROS), help="papers, by their folders; structural zeros of Exp. 4 and 5"
    )

    def cells(self) -> Iterable[c.Cell]:
        seconds = {key: float(errata(key)["seconds"]) for key in keys()} | {ZEROS: 10.0}
        return [
            c.Cell(params, seconds=seconds[str(params["source"])]) for params in self.combinations()
        ]

    @staticmethod
    def audit(arguments: Sequence[str]) -> int:
        """`hess-run audit PLACE`: one clause, printed and corrected, against its reference."""
        from experiments.paper_audit.measure import audit

        return audit(arguments)
