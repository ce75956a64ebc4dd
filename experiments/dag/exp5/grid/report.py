"""The report of the trained grid: how many protocols and pairs were tried, and the nearest of each family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from experiments.dag.exp5.grid import figures as draw
from experiments.dag.exp5.grid import score
from runner.contract import Analysis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.dag.exp5.grid.settings import Exp5ProtocolGrid

IN_WORDS = {
    "as printed": "As printed, but for the noise",
    "printed teacher": "With the printed teacher and centred targets, at any scale, noise and pairs",
    "all": "Over everything tried",
}
NAMES = {"full": "‖H‖", "gn": "‖H^GN‖", "gap": "gap", "test_loss": "test MSE"}


class GridAnalysis(Analysis):
    """Readings of the tables `attention` and `relu_mlp`."""

    experiment: Exp5ProtocolGrid

    @cached_property
    def scored(self) -> pd.DataFrame:
        """`score.scored`, empty while a network is missing."""
        import pandas as pd

        if not {"attention", "relu_mlp"} <= set(self.tables):
            return pd.DataFrame()
        training = self.experiment.training
        steps = {"rate": training.rate, "epochs": training.epochs}
        return score.scored(self.tables, self.experiment.margin, steps)

    @cached_property
    def best(self) -> dict[str, pd.Series]:
        """Family -> its nearest protocol and pairs."""
        if self.scored.empty:
            return {}
        parts = {name: score.family(self.scored, name) for name in score.FAMILIES}
        return {name: rows.iloc[0] for name, rows in parts.items() if len(rows)}

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        if self.scored.empty:
            return {}
        return {
            "nearest": lambda: draw.nearest(self.best, self.experiment.margin),
            "numbers_met": lambda: draw.numbers_met(self.scored),
        }

    def notes(self) -> list[str]:
        if self.scored.empty:
            return []
        seeds = int(self.tables["attention"]["seed"].nunique())
        protocols, tried = self.scored[score.PROTOCOL].drop_duplicates().shape[0], len(self.scored)
        total = len(score.printed())
        found = [
            f"{protocols} protocols trained at {seeds} seeds, {tried} with the pairs of blocks; each is held against "
            f"{total} printed numbers of init, mid and final together. Whatever comes nearest is fitted, one among "
            f"{tried}: no evidence of what the authors did."
        ]
        for name, row in self.best.items():
            count = len(score.family(self.scored, name))
            far = sorted(score.ratios_of(row).items(), key=lambda item: -abs(item[1] - 1))
            missed = [f"{_name(n)} {r:.2g} times" for n, r in far if abs(r - 1) > self.experiment.margin]
            found.append(
                f"{IN_WORDS[name]} ({count} tried): the best gives {row['met']:.0f} of {total} within "
                f"{self.experiment.margin:.0%}: {score.words(row)}. Not met: {', '.join(missed) or 'none'}."
            )
        return [*found, *self._steps(), self._relu(), self._pairs()]

    def _steps(self) -> list[str]:
        """What another rate or number of epochs makes of the two targets that were trained with it."""
        if self.scored["printed_steps"].all():
            return []
        parts, total = [], len(score.printed())
        for response, (noise, spread, offset) in self.experiment.other_targets.items():
            target = {"response": response, "noise": noise, "spread": spread, "offset": offset}
            own = self.scored[(self.scored[list(target)] == list(target.values())).all(axis=1)]
            best = own.sort_values("met", ascending=False).groupby(["rate", "epochs"]).first()["met"]
            listed = ", ".join(f"rate {rate:g} and {epochs:.0f} epochs {met}" for (rate, epochs), met in best.items())
            parts.append(f"{response.replace('_', ' ')} teacher, mean {offset:g} and spread {spread:g}: {listed}")
        return [
            "The text prints rate, epochs, batch and numbers of sequences; moved one at a time nevertheless, for the "
            f"printed and for the nearest target, the best pairs give, of {total}: {'; '.join(parts)}."
        ]

    def _relu(self) -> str:
        """‖H‖ of every pair of the ReLU network over the printed values, under the printed protocol."""
        rows = score.family(self.scored, "printed teacher")
        rows = rows[(rows["spread"] == 1) & (rows["attention_pair"] == score.PRINTED_PAIRS[0])]
        texts = []
        for pair, own in rows[rows["noise"] == rows["noise"].max()].groupby("relu_pair", sort=False):
            found = [r for n, r in score.ratios_of(own.iloc[0]).items() if n[:2] == ("relu_mlp", "full")]
            texts.append(f"{pair} {', '.join(f'{r:.2g}' for r in found)}")
        return (
            f"‖H‖ of the ReLU network over the printed values at init, mid and final, as printed with noise "
            f"{rows['noise'].max():g}, by pair: {'; '.join(texts)}. The paper names block0-block1."
        )

    def _pairs(self) -> str:
        """What each pair of the ReLU network and of attention could reach at best."""
        parts = []
        for column, label in (("relu_pair", "ReLU network"), ("attention_pair", "attention")):
            best = self.scored.groupby(column, sort=False)["met"].max().sort_values(ascending=False)
            parts.append(f"{label} {', '.join(f'{pair} {met}' for pair, met in best.items())}")
        return f"Most numbers met, by pair of blocks, everything else free: {'; '.join(parts)}."


def _name(number: score.Number) -> str:
    network, quantity, checkpoint = number
    return f"{network} {NAMES[quantity]} {checkpoint}"
