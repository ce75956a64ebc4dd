"""Claims and figures: Phi by partition, classes, architecture and state of training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property, partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.phi_block_diagonal.alternatives import ALTERNATIVES
from experiments.phi_block_diagonal.settings import PhiBlockDiagonal
from runner.contract import Analysis, Claim, Figures, decide
from runner.report import figures as draw
from runner.report.figures import PlotStyles

STYLES = PlotStyles(
    (
        "mlp plain",
        "convnet plain",
        "transformer plain",
        "mlp residual",
        "convnet residual",
        "transformer residual",
    )
)
WHERE = "extension of the papers"
STATES = {"initial": "at the start", "final": "after training"}
NETWORK = ["architecture", "residual", "classes"]


class PhiBlockDiagonalAnalysis(Analysis):
    experiment: PhiBlockDiagonal
    alternatives = ALTERNATIVES

    @cached_property
    def phi(self) -> pd.DataFrame:
        """The Hessian's Phi at the first and last checkpoint, with a column `state`."""
        rows = self.tables["phi"]
        rows = rows[rows["part"] == "hessian"]
        steps = sorted(rows["step"].unique())
        return rows.assign(
            state=rows["step"].map({steps[-1]: "final"} | {steps[0]: "initial"})
        ).dropna(subset=["state"])

    def claims(self) -> list[Claim]:
        return list(self._claims()) if "phi" in self.tables else []

    def _claims(self) -> Iterator[Claim]:
        big, small = self.experiment.order_one, self.experiment.near
        for state, when in STATES.items():
            yield self._each(
                f"order-one error of layer blocks, {state}",
                "a block-diagonal approximation by layers discards an order-one share of the "
                f"curvature {when}",
                self._values("layer", state),
                lambda v: v >= big,
                f"Phi of layers >= {big:g} in every network",
            )
            last = max(self.experiment.classes)
            for name, partition, where in (
                ("near block-diagonal in neurons", "neuron", "the Hessian"),
                (
                    "near block-diagonal in output neurons",
                    "output neuron",
                    "the last layer's own Hessian",
                ),
            ):
                values = self._values(partition, state)
                yield self._each(
                    f"{name}, {state}",
                    f"with {last} classes {where} is nearly block-diagonal in neurons {when}",
                    values[values.index.get_level_values("classes") == last],
                    lambda v: v <= small,
                    f"Phi of {partition}s <= {small:g} in every network",
                )
            yield self._each(
                f"fewer couplings with more classes, {state}",
                f"the share between neurons falls as the number of classes grows {when}",
                self._ratios(self._values("neuron", state)),
                lambda v: v < 1,
                f"Phi of neurons at {last} classes below that at {min(self.experiment.classes)}, "
                "every architecture",
            )

    def _values(self, partition: str, state: str) -> pd.DataFrame:
        """Phi by network (rows) and seed (columns)."""
        rows = self.phi[(self.phi["partition"] == partition) & (self.phi["state"] == state)]
        return rows.pivot_table(index=NETWORK, columns="seed", values="phi")

    def _ratios(self, values: pd.DataFrame) -> pd.DataFrame:
        """Phi with the most classes over that with the fewest, by architecture and seed."""
        counts = values.index.get_level_values("classes")
        if counts.nunique() < 2:
            return values.iloc[:0]
        return values.xs(counts.max(), level="classes") / values.xs(counts.min(), level="classes")

    def _each(
        self,
        name: str,
        statement: str,
        values: pd.DataFrame,
        holds: Callable[[float], bool],
        threshold: str,
    ) -> Claim:
        """Confirmed when it holds in every network and seed, refuted when in some network it fails
        in every seed.

        The number is the median over the seeds of the network that decides: nearest to failing, or
        furthest beyond.
        """
        seeds = values.shape[1]
        if values.empty or seeds < self.experiment.data_sets:
            text = f"{seeds} of {self.experiment.data_sets} seeds"
            few = float(self.experiment.data_sets)
            return Claim(
                name, statement, WHERE, decide(None), math.nan, threshold, text, seeds_needed=few
            )
        held = values.map(holds).where(values.notna())
        always, never = held.eq(True).all(axis=1), held.eq(False).all(axis=1)
        verdict = True if always.all() else False if never.any() else None
        text = (
            f"holds in every seed for {int(always.sum())} of {len(held)} networks, in none for "
            f"{int(never.sum())}"
        )
        span = (
            f"medians from {values.median(axis=1).min():.3g} to {values.median(axis=1).max():.3g}"
        )
        medians = values.median(axis=1)
        deciding = medians.max() if holds(-math.inf) else medians.min()
        needed = (
            math.nan if verdict is not None else math.inf
        )  # seeds that disagree go on to, whatever their number
        return Claim(
            name,
            statement,
            WHERE,
            decide(verdict),
            float(deciding),
            threshold,
            f"{text}; {span}",
            seeds_needed=needed,
        )

    def figures(self) -> Figures:
        return (
            {
                name: partial(self._draw, name)
                for name in ("layer", "neuron", "parameter", "output-neuron")
            }
            if "phi" in self.tables
            else {}
        )

    def _draw(self, partition: str) -> Figure:
        """Phi against the number of classes, at the start and after training: mean over seeds, bars
        for the range."""

        def panel(ax: Axes, state: str) -> None:
            values = self._values(partition.replace("-", " "), state)
            for (architecture, residual), rows in values.groupby(
                level=["architecture", "residual"]
            ):
                label = f"{architecture} {'residual' if residual else 'plain'}"
                classes, mean = rows.index.get_level_values("classes"), rows.mean(axis=1)
                bars = [
                    (mean - rows.min(axis=1)).clip(lower=0),
                    (rows.max(axis=1) - mean).clip(lower=0),
                ]  # rounding
                ax.errorbar(
                    classes,
                    mean,
                    yerr=bars,
                    capsize=2,
                    label=label.replace("mlp", "MLP"),
                    **STYLES.style(label),
                )
            ax.set(xscale="log", ylim=(0, 1))

        return draw.panels(
            STATES,
            panel,
            x="classes",
            y=r"$\Phi$ of " + partition + "s",
            height=3.6,
            legend_columns=3,
        )
