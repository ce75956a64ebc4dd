"""Every clause of the five papers that numbers can check: what holds, what is a slip, what is wrong.

The checks live in the packages beside this module, one a paper; here they are run, tabled, drawn and written up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from experiments.paper_audit.papers import costs, keys
from runner.contract.experiment import Analysis, Cell, Claim, Context, Experiment, Tables, grid, one_of, positive, since

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARPNESS, HELD_OUT, SLIPS, ZEROS = "sharpness", "held_out", "slips", "zeros"


@dataclass(frozen=True, kw_only=True)
class PaperAudit(Experiment):
    version: ClassVar[int] = 4
    title: ClassVar[str] = "Audit of every checkable formula"
    paper: ClassVar[str] = "all five"
    uncertified: ClassVar[str] = "its rows are comparisons with automatic differentiation themselves"
    reproduces: ClassVar[str] = "every numbered statement that numbers can check, clause by clause; docs/errata.md"

    source: list[str] = grid()
    mutants: int = 50
    held_out: int = since(45)
    held_out_seed: int = since(20261122)
    slips: int = since(45)
    slips_seed: int = since(20261123)

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.source", self.source, [*keys(), SHARPNESS, HELD_OUT, SLIPS, ZEROS])
        positive("experiment.held_out", self.held_out)
        positive("experiment.slips", self.slips)

    def cells(self) -> Iterable[Cell]:
        seconds = costs() | {
            SHARPNESS: 1.5 * self.mutants,
            HELD_OUT: 1.5 * self.held_out,
            SLIPS: 1.5 * self.slips,
            ZEROS: 10.0,
        }
        return [Cell(params, seconds=seconds[str(params["source"])]) for params in self.combinations()]

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Any]:
        from experiments.paper_audit import papers, rows
        from experiments.paper_audit.sharpness import trials

        source = str(cell.params["source"])
        if source == SHARPNESS:
            return {"sharpness": trials.rows(self.mutants)}
        if source == HELD_OUT:
            return {"held_out": trials.held_out_rows(self.held_out, self.held_out_seed)}
        if source == SLIPS:
            return {"slips": trials.slip_rows(self.slips, self.slips_seed)}
        if source == ZEROS:
            from experiments.paper_audit.dag import untrained

            return {"zeros": untrained.rows()}
        return {"formulas": rows.check_all(papers.paper(source), ctx.progress)}

    def analyse(self, tables: Tables) -> Analysis:
        return AuditAnalysis(self, tables)

    @staticmethod
    def audit(arguments: Sequence[str]) -> int:
        """`hess-run audit PLACE`: one clause, printed and corrected, against its reference."""
        from experiments.paper_audit.command import main

        return main(arguments)


class AuditAnalysis(Analysis):
    """Readings of the rows of all papers, and of the errors that were injected."""

    experiment: PaperAudit

    @cached_property
    def formulas(self) -> list[dict[str, Any]]:
        return _rows(self.tables, "formulas")

    def claims(self) -> list[Claim]:
        from experiments.paper_audit import report
        from experiments.paper_audit.dag import untrained

        return [*report.claims(self.formulas), *untrained.claims(_rows(self.tables, ZEROS))]

    def figures(self) -> dict[str, Callable[[], Figure]]:
        from experiments.paper_audit import report

        return {"consequences": lambda: report.consequences(self.formulas)}

    def documents(self) -> dict[str, str]:
        from experiments.paper_audit import report

        return report.documents(self.formulas)


def _rows(tables: Any, name: str) -> list[dict[str, Any]]:
    """Rows of a table (none where it is missing), each formula once whatever the number of seeds; text as text."""
    if name not in tables:
        return []
    table = tables[name]
    table = table.drop_duplicates("id") if name == "formulas" else table[table["seed"] == table["seed"].min()]
    texts = [c for c in table.columns if table[c].dtype == object]
    return table.assign(**{c: table[c].fillna("") for c in texts}).to_dict("records")
