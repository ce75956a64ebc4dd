"""The report of the comparison of methods: tests, claims, values to compare with the paper's, notes
and figures.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

from experiments.printed import unchecked
from experiments.three_layer.alternatives import REGULARIZATION
from experiments.three_layer.hsr_regularization import analysis, figures, network_figures, values
from experiments.three_layer.hsr_regularization.settings import NAMES, HsrRegularization
from experiments.three_layer.study import tests_of_data_sets
from runner.contract import Figures, Tables, redraws
from runner.stats import Statistic

METHODS: dict[str, Any] = {"part": ["methods"]}
"""The cells that train with methods, and the search before them."""


class HsrRegularizationAnalysis(analysis.RegularizationStudy):
    """The stored data sets; a protocol under a reading of the stop rule is a variant."""

    experiment: HsrRegularization
    changes = REGULARIZATION
    functions = values.FUNCTIONS

    @cached_property
    def keyed(self) -> list[tuple[dict[str, Any], Statistic]]:
        """Every test with the columns that tell it apart."""
        return list(analysis.tests(self))

    def tested(self) -> list[Statistic]:
        return [test for _, test in self.keyed]

    def judged(self) -> Tables:
        tests = tests_of_data_sets([about for about, _ in self.keyed], list(self.tests.values()))
        return values.judged(self.tables, tests, self.experiment)

    def compared(self) -> Tables:
        found = dict(self.judged())
        if "search" in found:
            search = found["search"]
            found["search"] = search.assign(seeds=search["sharp"] + search["flat"])
        return found

    def notes(self) -> list[str]:
        """Findings for the report."""
        experiment = self.experiment
        if "endpoints" not in self.tables:
            return []
        lines = [
            "The stop rule while training with a method is read in two ways: judged from the first "
            "step, as in the search (every_step), and from the second half of the steps on "
            "(second_half).",
            "Adaptive SAM's normalisation operator is |w| + 0.01 for weights and 1 for biases, as "
            f"its authors have it; its radius is the paper's {experiment.radius:g}, and "
            f"{experiment.wide_radius:g} next to it (wide radius).",
        ]
        rows = self.tables["endpoints"]
        for (protocol, reading), part in rows.groupby(["protocol", "reading"], sort=False):
            lost = part[part["status"] != "ok"]["method"].value_counts()
            listed = ", ".join(f"{NAMES[m]} {lost.get(m, 0)}" for m in NAMES)
            lines.append(
                f"{protocol}, {reading}: ends that miss the stop rule after all steps, which enter "
                f"the tests with their values: {listed}, of {len(part) // len(NAMES)} each."
            )
        if "critical_points" in self.tables:
            lines.append(values.where_the_search_led(self.tables["critical_points"]))
        return lines + unchecked("hsr")

    def figures(self) -> Figures:
        """The counterparts of Figs. 8-15, and what five data sets say of the comparisons
        together."""
        experiment = self.experiment
        tables = self.tables
        found: dict[str, Any] = {}
        if "data" in tables:
            found["fig08_data"] = redraws("Fig. 8", figures.data, tables).of(
                tables["data"], "protocol", one_seed=True, **METHODS
            )
        if "critical_points" in tables:
            stored = set(tables["critical_points"]["protocol"])
            with_points = [p for p in experiment.protocol if p in stored]
            found["fig09_bound"] = redraws("Fig. 9", figures.bound, tables, with_points).of(
                tables["critical_points"], "protocol", **METHODS
            )
        if "draws" in tables:
            margin = self.says["HSR comparable to A-SAM on F1"].high
            found["fig14_draws"] = redraws("Fig. 14", figures.draws, margin, tables).of(
                tables["draws"], "part"
            )
        known = analysis.variants(self)
        for protocol in dict.fromkeys(variant.protocol for variant in known):
            about = (tables, protocol)
            saddles = network_figures.saddle_check
            of_protocol = {
                "fig10_dynamics": redraws("Fig. 10", network_figures.dynamics, *about),
                "fig11_along_u1": redraws("Fig. 11", network_figures.along_u1, *about),
                "fig13_saddle_check": redraws("Fig. 13", saddles, *about, "nearest"),
                "fig13_where_stopped": redraws("Fig. 13", saddles, *about, "stopped"),
                "fig15_boundaries": redraws("Fig. 15", network_figures.boundaries, *about),
            }
            cells = {**METHODS, "protocol": [protocol]}
            for name, figure in of_protocol.items():
                found[f"{name}_{protocol}"] = replace(figure, cells=cells, one_seed=True)
        for variant in known:
            of_variant = {
                "fig12_spectrum": redraws("Fig. 12", figures.spectrum, variant),
                "fig14_f1": redraws("Fig. 14", figures.f1, variant),
                "effects": redraws("", figures.effects, variant),
            }
            cells = {**METHODS, "protocol": [variant.protocol]}
            for name, figure in of_variant.items():
                found[f"{name}_{variant.protocol}_{variant.reading}"] = replace(figure, cells=cells)
        return dict(sorted(found.items()))
