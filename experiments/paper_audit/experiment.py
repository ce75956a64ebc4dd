"""Every formula of the five papers that numbers can check: what holds, what is misprinted, what is wrong.

The checks themselves live in the packages beside this module, one a paper; tests hold each to its expected
verdict. Here they are run, tabled, drawn, and written up as `errata.md`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from runner.contract.experiment import Analysis, Cell, Claim, Context, Experiment, Tables, grid, one_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PAPERS = {
    "ws_bound": "WS bound",
    "hsr": "HSR",
    "dag": "DAG",
    "scalar": "Scalar spectrum",
    "attention": "Attention",
}
SECONDS = {"ws_bound": 15.0, "hsr": 15.0, "dag": 30.0, "scalar": 15.0, "attention": 30.0}
VERDICTS = ("holds", "holds after correction", "fails")


@dataclass(frozen=True, kw_only=True)
class PaperAudit(Experiment):
    version: ClassVar[int] = 1
    title: ClassVar[str] = "Audit of every checkable formula"
    paper: ClassVar[str] = "all five"
    reproduces: ClassVar[str] = "every numbered equation, lemma and theorem that numbers can check; docs/errata.md"

    source: list[str] = grid()

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.source", self.source, PAPERS)

    def cells(self) -> Iterable[Cell]:
        return [Cell(params, seconds=SECONDS[str(params["source"])]) for params in self.combinations()]

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Any]:
        formulas = import_module(f"experiments.paper_audit.{cell.params['source']}").FORMULAS
        rows = []
        for i, formula in enumerate(formulas):
            ctx.progress(i, len(formulas), formula.id)
            ctx.log(f"checking {formula.id}")
            rows.append(_row(formula))
        return {"formulas": rows}

    def analyse(self, tables: Tables) -> Analysis:
        return PaperAuditAnalysis(self, tables)


class PaperAuditAnalysis(Analysis):
    """Readings of the table `formulas`, one row a formula whatever the number of seeds."""

    experiment: PaperAudit

    @cached_property
    def formulas(self) -> pd.DataFrame:
        return self.tables["formulas"].drop_duplicates("id")

    def claims(self) -> list[Claim]:
        return [_claim(row) for row in self.formulas.itertuples()]

    def figures(self) -> dict[str, Callable[[], Figure]]:
        return {"audit_errors": lambda: _figure(self.formulas)}

    def documents(self) -> dict[str, str]:
        return {"errata.md": _errata(self.formulas)}


def _row(formula: Any) -> dict[str, Any]:
    """One formula checked; a check that raises is a row that says so."""
    started = time.perf_counter()
    row: dict[str, Any] = {"id": formula.id, "place": formula.place, "statement": formula.statement}
    try:
        outcome = formula.check()
    except Exception as error:  # one broken check must not hide the others
        row |= {"verdict": "not checked", "printed_error": float("nan"), "corrected_error": float("nan")}
        row |= {"tolerance": float("nan"), "instances": 0, "counterexample": ""}
        row |= {"status": f"{type(error).__name__}: {error}"}
    else:
        corrected = float("nan") if outcome.corrected is None else float(outcome.corrected)
        row |= {"verdict": outcome.verdict, "printed_error": float(outcome.printed), "corrected_error": corrected}
        row |= {"tolerance": outcome.tolerance, "instances": outcome.instances}
        row |= {"counterexample": outcome.counterexample, "status": "ok"}
    row |= {"difference": formula.difference, "correction": formula.correction, "expected": formula.expected}
    return row | {"over_a_second": time.perf_counter() - started > 1.0}


def _claim(row: Any) -> Claim:
    verdict = {"holds": "confirmed", "not checked": "undecided"}.get(row.verdict, "refuted")
    detail = f"{row.verdict}; {row.difference}" if row.difference else row.verdict
    return Claim(
        name=row.id,
        statement=row.statement,
        where=f"{PAPERS[row.source]}, {row.place}",
        verdict=verdict,  # type: ignore[arg-type]
        statistic=row.printed_error,
        threshold=f"{row.tolerance:g}",
        detail=detail,
        group=PAPERS[row.source],
    )


def _figure(formulas: pd.DataFrame) -> Figure:
    """Largest relative error of each formula as printed, and after correction."""
    import numpy as np

    from runner.report.figures import new_figure

    present = [s for s in PAPERS if (formulas["source"] == s).any()]
    figure, axes = new_figure(1, len(present), width=2.6 * len(present) + 0.8, height=3.6, sharey=True)
    for axis, source in zip(np.atleast_1d(axes).ravel(), present, strict=True):
        part = formulas[formulas["source"] == source].reset_index(drop=True)
        floor = 1e-17
        printed = np.clip(part["printed_error"], floor, 1e6)
        axis.semilogy(printed.index, printed, "x", color="0.1", markersize=5, label="as printed")
        corrected = part["corrected_error"].dropna()
        axis.semilogy(corrected.index, np.clip(corrected, floor, 1e6), "o", mfc="none", color="0.45", label="corrected")
        axis.axhline(1e-9, color="0.5", linestyle="--", linewidth=0.8)
        holds = (part["verdict"] == "holds").sum()
        axis.set_title(f"{PAPERS[source]}: {holds} of {len(part)} hold", fontsize=9)
        axis.set_xlabel("formula, in the paper's order")
    first = np.atleast_1d(axes).ravel()[0]
    first.set_ylabel("largest relative error or violation")
    first.legend(fontsize=7, loc="center left")
    return figure


def _errata(formulas: pd.DataFrame) -> str:
    """The table of formulas as a Markdown page."""
    counts = {v: int((formulas["verdict"] == v).sum()) for v in VERDICTS}
    lines = [
        "# Errata of the five papers",
        "",
        "Made by `hess-run experiment=paper_audit`, which recomputes every line; `make errata` writes this page",
        "anew. A formula *holds* when it agrees with float64 automatic differentiation on random instances (largest",
        "relative error at most the tolerance), or, for an inequality, when no instance violates it. Counted here: "
        + ", ".join(f"{n} {v}" for v, n in counts.items())
        + ".",
        "",
        "Kinds of difference: a *misprint* is a slip that the paper's own derivation does not share; a *scan",
        "artefact* is lost in the text we have and may be right in print; a *wrong statement* is false as meant; a",
        "*missing assumption* is true once the named condition is added.",
        "",
    ]
    for source, title in PAPERS.items():
        part = formulas[formulas["source"] == source]
        if len(part):
            lines += _section(title, part)
    return "\n".join(lines) + "\n"


def _section(title: str, part: pd.DataFrame) -> list[str]:
    header = ("place", "statement", "verdict", "error as printed", "corrected", "instances")
    lines = [f"## {title}", "", f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    wrong = []
    for row in part.itertuples():
        corrected = "" if row.corrected_error != row.corrected_error else f"{row.corrected_error:.1e}"
        cells = [row.place, row.statement, row.verdict, f"{row.printed_error:.1e}", corrected, str(row.instances)]
        lines.append("| " + " | ".join(_cell(c) for c in cells) + " |")
        if row.verdict != "holds":
            wrong.append(row)
    lines.append("")
    if wrong:
        lines += [f"### What to use instead ({title})", ""]
    for row in wrong:
        lines.append(f"- **{row.place}** ({row.difference or row.status}). {row.correction}".rstrip())
        if row.counterexample:
            lines.append(f"  Counter-example: {row.counterexample}")
    return [*lines, ""] if wrong else lines


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")
