"""Measured tables of an experiment, as a report sees them."""

from collections.abc import Iterable

import pandas as pd

from runner.contract import Cell, Claim, Context, Experiment, analyse, measure
from runner.store.tables import frame


def merged(
    experiment: Experiment, seeds: tuple[int, ...], cells: Iterable[Cell] = ()
) -> dict[str, pd.DataFrame]:
    """These cells, or all, merged as the store would; measured at the first seed, and the same as
    the others."""
    parts: dict[str, list[pd.DataFrame]] = {}
    for cell in cells or experiment.cells():
        for name, table in measure(experiment, cell, Context(seed=seeds[0])).items():
            parts.setdefault(name, []).extend(
                frame(name, table, {**cell.params, "seed": seed}) for seed in seeds
            )
    return {name: pd.concat(frames, ignore_index=True) for name, frames in parts.items()}


def claims_of(experiment: Experiment, tables: dict[str, pd.DataFrame]) -> dict[str, Claim]:
    """name -> claim, of these tables."""
    return {claim.name: claim for claim in analyse(experiment, tables).claims()}
