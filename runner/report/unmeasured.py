"""Verdicts that read cells which some seeds of the paper lack.

A seed without a cell that other seeds have is a missing value of whatever reads that cell. Which
verdicts read it is measured: the analysis is asked again with the lacking cells there, their
numbers missing or far from another seed's. What no such number moves keeps its verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.contract import Experiment, Tables
from runner.stats.intervals import joined
from runner.stats.tables import chosen
from runner.store.cells import Stored
from runner.store.identity import digest

if TYPE_CHECKING:
    import pandas as pd

FACTORS = (math.nan, -1.0, 1e-3, 1e3)
"""What the numbers of another seed are multiplied with to stand for what was not measured."""
UNDECIDABLE = (
    "confirmed",
    "refuted",
    "minor error",
    "exact match",
    "reproduced",
    "not reproduced",
)
"""Verdicts that a missing value makes inconclusive."""


@dataclass(frozen=True)
class Unmeasured:
    """A cell that a seed lacks. like: a seed that has it."""

    params: Mapping[str, Any]
    seed: int
    like: int


def unmeasured(
    paper: Experiment, cells: Sequence[Stored], seeds: Sequence[int]
) -> list[Unmeasured]:
    """The cells of the paper's grid that some of `seeds` have and others, which have any cell, have
    not. cells: those that verdicts read."""
    stored: dict[str, set[int]] = {}
    for cell in cells:
        stored.setdefault(digest(cell.meta["params"]), set()).add(cell.meta["seed"])
    begun = {cell.meta["seed"] for cell in cells} & {*seeds}
    found = []
    for wanted in paper.cells():
        there = stored.get(digest(dict(wanted.params)), set()) & begun
        lacking = sorted(begun - there) if there else []
        found += [Unmeasured(wanted.params, seed, min(there)) for seed in lacking]
    return found


def padded(tables: Tables, cells: Sequence[Unmeasured], factor: float) -> Tables:
    """Tables with rows for the unmeasured cells, as another seed has them, in which every float
    that is no parameter of the cell is multiplied with `factor`."""
    import pandas as pd

    made = {}
    for name, table in tables.items():
        rows = [table]
        for cell in cells:
            copied = chosen(table, **cell.params, seed=cell.like).assign(seed=cell.seed)
            floats = [c for c in copied.select_dtypes("float") if c not in cell.params]
            rows.append(copied.assign(**{c: copied[c] * factor for c in floats}))
        made[name] = pd.concat(rows, ignore_index=True)
    return made


def undecided(made: pd.DataFrame, other: pd.DataFrame, why: str, seeds: int) -> pd.DataFrame:
    """A table of verdicts, inconclusive where the row of `other` has another verdict.

    made: claims or a scorecard; claims that do not depend on the protocol stay as they are. other:
    the same with other values for what was not measured; without these rows no verdict is kept.
    why: first words of such a row, and of one that was inconclusive and reads what was not
    measured. seeds: of the paper, which would decide it.
    """
    said = "detail" if "detail" in made else "reason"
    changed = made["verdict"].isin(UNDECIDABLE)
    reads = made["verdict"].eq("inconclusive") & ~made[said].str.startswith(why)
    if len(other) == len(made):
        changed &= made["verdict"] != other["verdict"].to_list()
        reads &= made[said] != other[said].to_list()
    if "independent" in made:
        changed &= ~made["independent"].astype(bool)
        reads &= ~made["independent"].astype(bool)
    open_ended = made.copy()
    open_ended.loc[changed, "verdict"] = "inconclusive"
    open_ended.loc[changed, "seeds_needed"] = float(seeds)
    open_ended.loc[changed, "undecidable"] = ""
    first = changed | reads
    open_ended.loc[first, said] = [joined(why, text) for text in made.loc[first, said]]
    return open_ended
