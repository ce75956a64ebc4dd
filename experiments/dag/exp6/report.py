"""The report of Exp. 6 and its figures, with the published values as black hollow marks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.dag.alternatives import RESNET
from experiments.dag.exp6 import values
from experiments.dag.exp6.settings import Exp6ResNet18
from experiments.dag.exp6.values import selected
from experiments.dag.protocol.authors import Results, WithAuthors
from experiments.dag.protocol.drawing import (
    BARS,
    LABELS,
    crossed,
    error_line,
    hollow,
    titles,
)
from experiments.dag.protocol.scores import printed
from experiments.dag.protocol.summary import gap, over_seeds
from runner.contract import Figures, Tables, redraws
from runner.report.answers.labels import label
from runner.report.figures import panels
from runner.stats.tables import chosen, groups
from runner.training import CHECKPOINTS

NAME = "exp6_resnet18"
DISTANCE = "distance $d$ between outputs"


class ResNetAnalysis(WithAuthors):
    """R, C, D and gap by distance, what BatchNorm's statistics make of them, and the error of 30
    probes."""

    experiment: Exp6ResNet18
    changes = RESNET
    functions = values.FUNCTIONS
    results = Results("exp6", ("activation", "arch", "checkpoint"))

    def figures(self) -> Figures:
        found: dict[str, Callable[[], Figure]] = {}
        if "distances" in self.tables:
            distances = self.tables["distances"]
            bent = selected(distances, "engine").assign(gap=gap)
            bent = bent[bent.groupby("activation")["gap"].transform("max") > 0]
            final = chosen(bent, checkpoint="final")
            found = {
                "fig7_resonance": redraws("Fig. 7", by_distance, distances, "R", log=True),
                "table9_coupling": redraws("Table 9", by_distance, distances, "C", log=False),
                "batchnorm_statistics": redraws("", calibration, distances).of(
                    chosen(distances, checkpoint="init"), "checkpoint"
                ),
            }
            drawn = (("table8_gap", "Table 8", final), ("tableN8_gap", "Table N.8", bent))
            for name, place, rows in drawn:
                if len(rows):
                    shown = redraws(place, by_distance, rows, "gap", log=True)
                    found[name] = shown.of(rows, "activation", "checkpoint")
        return found

    def captions(self) -> Mapping[str, str]:
        of = "against the distance between outputs, with and without skip connections"
        zero = "ReLU networks, whose gap is 0 (published: below 1e-5), are left out"
        return {
            "fig7_resonance": f"Resonance R {of}",
            "table9_coupling": f"Coupling C {of}",
            "table8_gap": f"GN gap after training {of}; {zero}",
            "tableN8_gap": f"GN gap {of}; {zero}",
        }

    def judged(self) -> Tables:
        return values.judged(self.tables)

    def compared(self) -> Tables:
        return values.compared(self.tables, self.experiment.negligible)

    def notes(self) -> list[str]:
        return values.devices(self.tables.get("origin", pd.DataFrame()))


def by_distance(distances: pd.DataFrame, value: str, *, log: bool) -> Figure:
    """R, C or gap against distance: a row per activation, a column per checkpoint, a line per
    architecture."""
    table = selected(distances, "engine").assign(gap=gap)
    paper = chosen(printed(NAME), metric=value)
    measured = set(zip(table["activation"], table["checkpoint"], strict=True))
    heads = {}
    panels_of_table = crossed(titles(table, "activation"), CHECKPOINTS)
    for key, head in panels_of_table.items():
        if key in measured:
            heads[key] = head

    def draw(ax: Axes, key: tuple[str, str]) -> None:
        activation, checkpoint = key
        shown = chosen(table, activation=activation, checkpoint=checkpoint)
        for (arch,), part in groups(shown, ["arch"]):
            means = over_seeds(part, ["distance"], value)
            means = means[means["mean"] > 0] if log else means
            if len(means):
                error_line(ax, means, "distance", arch, "init", text=label(arch))
            rows = chosen(paper, activation=activation, arch=arch, checkpoint=checkpoint)
            rows = rows.dropna(subset=["mean"])
            hollow(ax, list(rows["distance"]), rows, str(arch))

    columns = len({checkpoint for _, checkpoint in heads})
    y = LABELS.get(value, value)
    return panels(
        heads,
        draw,
        x=DISTANCE,
        y=y,
        integer=True,
        columns=columns,
        height=2.3 * len(heads) / columns + 0.8,
        log="y" if log else "",
        caption=BARS,
    )


STATISTICS = {"running": ("init", "0 and 1"), "calibrated": ("final", "of images")}
"""Style and name of lines by BatchNorm's statistics."""


def calibration(distances: pd.DataFrame) -> Figure:
    """R(d) before training with BatchNorm's statistics as published (0 and 1) and estimated from
    training images."""
    table = chosen(distances, checkpoint="init", estimator="engine")

    def draw(ax: Axes, activation: str) -> None:
        curves = groups(chosen(table, activation=activation), ["arch", "statistics"])
        for (arch, statistics), part in curves:
            style, kind = STATISTICS[statistics]
            text = f"{label(arch)}, statistics {kind}"
            error_line(ax, over_seeds(part, ["distance"], "R"), "distance", arch, style, text=text)

    y = LABELS["R"] + ",\nbefore training"
    return panels(
        titles(table, "activation"),
        draw,
        x=DISTANCE,
        y=y,
        log="y",
        integer=True,
        legend_columns=2,
        caption=BARS,
    )
