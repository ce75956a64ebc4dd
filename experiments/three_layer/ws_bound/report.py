"""The report of the WS-bound study: tests, claims, values to compare with the paper's, notes and
figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pandas as pd

from experiments.printed import unchecked
from experiments.three_layer.alternatives import WS_BOUND
from experiments.three_layer.study import Study, tests_of_data_sets
from experiments.three_layer.ws_bound import analysis, figures, portrait_figures, values
from experiments.three_layer.ws_bound.analysis import Case, cases
from experiments.three_layer.ws_bound.settings import WsBound
from runner.contract import Figures, Redrawn, Tables, redraws
from runner.stats import Statistic

PARAMETERS = ("protocol", "activation")
"""Of cells, besides the width and rate that portraits are drawn with."""
SEARCH: dict[str, Any] = {"part": ["search"], "one_seed": True}


def _lost(tables: Tables) -> str:
    points = tables["critical_points"]
    counts = points["status"].value_counts()
    listed = ", ".join(f"{int(n)} {status}" for status, n in counts.items() if status != "ok")
    return f"Left out of every statistic: {listed or 'no start'} (of {len(points)} starts)."


def _not_reached(printed: Case) -> str:
    """Why the printed stop rule does not count where it says the opposite of the calibrated one."""
    trace, square = printed.largest_traces
    return (
        f"The printed stop rule at a rate of {printed.rate:g} contradicts no verdict: its largest "
        f"traces of H and H² are {trace:.3g} and {square:.3g}, and the axes of Fig. 9 reach "
        f"{printed.experiment.trace_axis:g} and {printed.experiment.square_axis:g}."
    )


def _of_points(figure: Redrawn, shown: Sequence[Case], **others: Any) -> Redrawn:
    """A figure of the end points of these searches."""
    rates = sorted({case.rate for case in shown if case.protocol == analysis.SCANNED})
    if rates:
        others["rate"] = rates
    points = pd.concat([case.points for case in shown])
    return figure.of(points, *PARAMETERS, part=["search"], **others)


class WsBoundAnalysis(Study):
    """The stored searches; a protocol with an activation is a variant."""

    experiment: WsBound
    changes = WS_BOUND
    functions = values.FUNCTIONS

    @cached_property
    def keyed(self) -> list[tuple[dict[str, Any], Statistic]]:
        """Every test with the columns that tell it apart."""
        return list(analysis.statistics(self))

    def tested(self) -> list[Statistic]:
        return [test for _, test in self.keyed]

    def judged(self) -> Tables:
        keys = [about for about, _ in self.keyed]
        return values.judged(self, tests_of_data_sets(keys, list(self.tests.values())))

    def compared(self) -> Tables:
        return {**self.judged(), **values.counted(cases(self, paper_only=True))}

    def notes(self) -> list[str]:
        """Findings for the report."""
        if "search" not in self.tables:
            return []
        lines = [_lost(self.tables)]
        for case in cases(self, paper_only=True):
            if case.mark == analysis.SCANNED and not case.rival:
                lines.append(_not_reached(case))
        return [*lines, *unchecked("ws_bound")]

    def figures(self) -> Figures:
        """The counterpart of every figure of the paper that the stored tables allow, and where the
        searches lead."""
        paper = [case for case in cases(self, paper_only=True) if len(case.points)]
        at_narrow = [case for case in paper if len(case.narrow)]
        widths = {self.experiment.portrait_hidden, self.experiment.compared_hidden}
        at_both = [case for case in at_narrow if widths <= set(case.points["hidden"])]
        found: dict[str, Any] = {}
        if paper:
            found["fig02_bound_and_eigenvalue"] = _of_points(
                redraws("Fig. 2", figures.bound_and_eigenvalue, paper), paper
            )
        if at_both and len(widths) > 1:
            found["fig11_width"] = _of_points(redraws("Fig. 11", figures.width, at_both), at_both)
        makers = {
            "fig06_distribution": ("Fig. 6", figures.distribution),
            "fig07_generalisation": ("Fig. 7", figures.generalisation),
            "fig10_norms": ("Fig. 10", figures.norms),
            "fig12_hidden_gram": ("Fig. 12", figures.hidden_gram),
        }
        if at_narrow:
            narrow = [self.experiment.portrait_hidden]
            for name, (place, make) in makers.items():
                found[name] = _of_points(redraws(place, make, at_narrow), at_narrow, hidden=narrow)
        found |= self._portraits(paper)
        led = [case for case in analysis.polished_cases(self) if len(case.rows("critical_points"))]
        if led:
            points = redraws("", portrait_figures.critical_points, led[0])
            found["critical_points"] = replace(points, cells={"part": ["search", "polish"]})
        if "draws" in self.tables:
            found["fig07_draws"] = redraws("Fig. 7", portrait_figures.draws, self.tables).of(
                self.tables["draws"], "part"
            )
        if "activations" in self.tables:
            curves = self.tables["activations"]
            first = curves[curves["hidden"] == curves["hidden"].iloc[0]]
            found["fig13_activations"] = redraws(
                "Fig. 13", figures.activation_curves, self.tables
            ).of(first, "activation", "hidden", protocol=["fitted"], **SEARCH)
        return dict(sorted(found.items()))

    def _portraits(self, paper: list[Case]) -> Figures:
        """Figs. 3-5, 8 and 9, of the variants whose sharpest and flattest points are followed in
        detail.
        """
        drawn = [case for case in paper if len(case.rows("portraits"))]
        if not drawn:
            return {}
        followed = pd.concat([case.rows("portraits") for case in drawn])
        dynamics = redraws("Fig. 5", portrait_figures.dynamics, drawn)
        hessian = redraws("Fig. 8", portrait_figures.hessian, drawn[0])
        found: dict[str, Any] = {
            "fig05_dynamics": dynamics.of(followed, *PARAMETERS, **SEARCH),
            "fig08_hessian": hessian.of(drawn[0].rows("portraits"), *PARAMETERS, part=["search"]),
            "fig09_traces": _of_points(redraws("Fig. 9", figures.traces, drawn), drawn),
        }
        for case in drawn:
            sides = (("fig03", "Fig. 3", "sharpest"), ("fig04", "Fig. 4", "flattest"))
            for name, place, side in sides:
                # a search may have found a single point
                if len(portrait_figures.portrayed(case, side)):
                    make = redraws(place, portrait_figures.extremes, case, side)
                    make = make.of(case.rows("portraits"), *PARAMETERS, **SEARCH)
                    found[f"{name}_{side}_{case.protocol}"] = make
        return found
