"""Measured tables as they would be if a statement were false: labels or columns exchanged, an order
reversed or broken, values changed (`runner.contract.Alternative`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from runner.contract import Tables

if TYPE_CHECKING:
    import pandas as pd

Change = Callable[[Tables], Tables]
Order = Callable[[Sequence[Any]], Sequence[Any]]


def exchanged(column: str, first: Hashable, second: Hashable) -> Change:
    """Two labels of a column exchange their places."""
    labels = {first: second, second: first}
    return changed(lambda values: values.map(lambda v: labels.get(v, v)), column)


def columns_exchanged(*pairs: tuple[str, str]) -> Change:
    """Two columns exchange their places, pair by pair, in every table that has both."""

    def renamed(table: pd.DataFrame) -> pd.DataFrame:
        names: dict[str, str] = {}
        for first, second in pairs:
            if first in table and second in table:
                names |= {first: second, second: first}
        return table.rename(columns=names)

    return _of_each(renamed)


def changed(edit: Callable[[pd.Series[Any]], Any], *columns: str) -> Change:
    """edit(values) in place of the values of some columns, in every table that has them."""

    def edited(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(**{c: edit(table[c]) for c in columns if c in table})

    return _of_each(edited)


def _of_each(edited: Callable[[pd.DataFrame], pd.DataFrame]) -> Change:
    return lambda tables: {name: edited(table) for name, table in tables.items()}


def scaled(factor: float, *columns: str) -> Change:
    """Values of some columns are `factor` times as large."""
    return changed(lambda values: values * factor, *columns)


def shifted(difference: float, *columns: str) -> Change:
    """Values of some columns are larger by a difference."""
    return changed(lambda values: values + difference, *columns)


def to_power(power: float, *columns: str) -> Change:
    """Values of some columns are to a power what they were."""
    return changed(lambda values: values**power, *columns)


def shuffled(column: str) -> Change:
    """The values of a column change places among all rows at random."""
    return changed(lambda values: values.sample(frac=1, random_state=0).to_numpy(), column)


def reversed_order(column: str, *by: str) -> Change:
    """The largest value of a column becomes the smallest, all rows of one value together.

    by: columns within whose groups.
    """
    return _relabelled(column, by, lambda values: values[::-1])


def random_order(column: str, *by: str) -> Change:
    """The values of a column change places at random, all rows of one value together."""
    return _relabelled(column, by, _permuted)


def _permuted(values: Sequence[Any]) -> Sequence[Any]:
    import numpy as np

    return [values[i] for i in np.random.default_rng(0).permutation(len(values))]


def _relabelled(column: str, by: Sequence[str], order: Order) -> Change:
    """`order` of the sorted values of a column takes their place."""

    def labels(values: pd.Series[Any]) -> pd.Series[Any]:
        known = sorted(values.dropna().unique())
        return values.map(dict(zip(known, order(known), strict=True)))

    def relabelled(table: pd.DataFrame) -> pd.DataFrame:
        if column not in table:
            return table
        groups = [name for name in by if name in table]
        if groups:
            return table.assign(**{column: table.groupby(groups)[column].transform(labels)})
        return table.assign(**{column: labels(table[column])})

    return _of_each(relabelled)
