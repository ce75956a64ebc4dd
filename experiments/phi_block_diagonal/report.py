"""Claims and figures: Phi by partition, classes, architecture and state of training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.phi_block_diagonal.alternatives import ALTERNATIVES
from experiments.phi_block_diagonal.settings import PhiBlockDiagonal
from runner.contract import Analysis, Claim, Figures, decide
from runner.report import figures as draw
from runner.report.figures import PlotStyles
from runner.stats.tables import chosen

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
STATES = {"initial": "at the start", "final": "after training"}
NETWORK = ["architecture", "residual", "classes"]


class PhiBlockDiagonalAnalysis(Analysis):
    experiment: PhiBlockDiagonal
    alternatives = ALTERNATIVES

    @cached_property
    def phi(self) -> pd.DataFrame:
        """The Hessian's Phi at the first and last checkpoint, with a column `state`."""
        rows = self.tables["phi"]
        rows = chosen(rows, part="hessian")
        steps = sorted(rows["step"].unique())
        states = {steps[-1]: "final"} | {steps[0]: "initial"}
        names = rows["step"].map(states)
        return rows.assign(state=names).dropna(subset=["state"])

    def claims(self) -> list[Claim]:
        if "phi" not in self.tables:
            return []
        return [claim for state in STATES for claim in self._claims_of(state)]

    def _claims_of(self, state: str) -> Iterator[Claim]:
        setup = self.experiment
        when = STATES[state]
        of_layers = self._values("layer", state)
        yield self._each(
            f"order-one error of layer blocks, {state}",
            "a block-diagonal approximation by layers discards an order-one share of the curvature "
            f"{when}",
            of_layers,
            lambda v: v >= setup.order_one,
            f"Phi of layers >= {setup.order_one:g} in every network",
        )
        last = max(setup.classes)
        parts = {"neuron": "the Hessian", "output neuron": "the last layer's own Hessian"}
        for partition, matrix in parts.items():
            values = self._values(partition, state)
            of_last = values.index.get_level_values("classes") == last
            yield self._each(
                f"near block-diagonal in {partition}s, {state}",
                f"with {last} classes {matrix} is nearly block-diagonal in neurons {when}",
                values[of_last],
                lambda v: v <= setup.near,
                f"Phi of {partition}s <= {setup.near:g} in every network",
            )
        ratios = self._ratios(self._values("neuron", state))
        yield self._each(
            f"fewer couplings with more classes, {state}",
            f"the share between neurons falls as the number of classes grows {when}",
            ratios,
            lambda v: v < 1,
            f"Phi of neurons at {last} classes below that at {min(setup.classes)}, every "
            "architecture",
            chosen=False,
        )

    def _values(self, partition: str, state: str) -> pd.DataFrame:
        """Phi by network (rows) and seed (columns)."""
        rows = chosen(self.phi, partition=partition, state=state)
        return rows.pivot_table(index=NETWORK, columns="seed", values="phi")

    def _ratios(self, values: pd.DataFrame) -> pd.DataFrame:
        """Phi with the most classes over that with the fewest, by architecture and seed."""
        counts = values.index.get_level_values("classes")
        if counts.nunique() < 2:
            return values.iloc[:0]
        most = values.xs(counts.max(), level="classes")
        fewest = values.xs(counts.min(), level="classes")
        return most / fewest

    def _each(
        self,
        name: str,
        statement: str,
        values: pd.DataFrame,
        holds: Callable[[float], bool],
        threshold: str,
        *,
        chosen: bool = True,
    ) -> Claim:
        """Confirmed when it holds in every network and seed, refuted when in some network it fails
        in every seed.

        The number is the median over the seeds of the network that decides: nearest to failing, or
        furthest beyond. chosen: whether the limit is ours.
        """
        claim = Claim(
            name, statement, "", decide(None), threshold=threshold, chosen=chosen, extension=True
        )
        seeds = values.shape[1]
        needed = self.experiment.data_sets
        if values.empty or seeds < needed:
            return replace(claim, detail=f"{seeds} of {needed} seeds", seeds_needed=float(needed))
        held = values.map(holds).where(values.notna())
        always = held.eq(True).all(axis=1)
        never = held.eq(False).all(axis=1)
        medians = values.median(axis=1)
        lowest = medians.min()
        highest = medians.max()
        counts = (
            f"holds in every seed for {int(always.sum())} of {len(held)} networks, in none for "
            f"{int(never.sum())}"
        )
        detail = f"{counts}; medians from {lowest:.3g} to {highest:.3g}"
        deciding = highest if holds(-math.inf) else lowest
        claim = replace(claim, statistic=float(deciding), detail=detail)
        if always.all():
            return replace(claim, verdict=decide(True))
        if never.any():
            return replace(claim, verdict=decide(False))
        # seeds that disagree go on to, whatever their number
        return replace(claim, seeds_needed=math.inf)

    def figures(self) -> Figures:
        if "phi" not in self.tables:
            return {}
        return {"layer": self._of_layers}

    def _of_layers(self) -> Figure:
        """Phi of layers, the share of the squared norm outside their blocks, against the number of
        classes, at the start and after training: mean over seeds, bars for the range."""

        def panel(ax: Axes, state: str) -> None:
            values = self._values("layer", state)
            networks = values.groupby(level=["architecture", "residual"])
            for (architecture, residual), rows in networks:
                kind = "residual" if residual else "plain"
                label = f"{architecture} {kind}"
                classes = rows.index.get_level_values("classes")
                mean = rows.mean(axis=1)
                lower = mean - rows.min(axis=1)
                below = lower.clip(lower=0)  # rounding
                upper = rows.max(axis=1) - mean
                above = upper.clip(lower=0)
                style = STYLES.style(label) | {"capsize": 2, "label": label.replace("mlp", "MLP")}
                ax.errorbar(classes, mean, yerr=[below, above], **style)
            ax.set(xscale="log", ylim=(0, 1.02))
            counts = set(values.index.get_level_values("classes"))
            ax.set_xticks(sorted(counts), minor=False)
            ax.xaxis.set_major_formatter("{x:g}")
            ax.minorticks_off()

        y = "share $\\Phi$ outside blocks\nof layers"
        return draw.panels(STATES, panel, x="number of classes", y=y, height=3.6, legend_columns=3)
