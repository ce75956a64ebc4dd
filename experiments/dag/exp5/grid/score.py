"""Every trained protocol and pair of blocks against all printed numbers of Exp. 5 at once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from experiments.dag.exp5.grid.norms import ATTENTION_PAIRS, RELU_PAIRS

if TYPE_CHECKING:
    import pandas as pd

PROTOCOL = ["response", "train", "noise", "spread", "offset", "rate", "epochs"]
PRINTED_PAIRS = ("q-k", "block0-block1")
Number = tuple[str, str, str]
"""Network, quantity ("full", "gn", "gap", "test_loss") and checkpoint."""
QUANTITIES = {"frob_full": "full", "frob_gn": "gn", "gap": "gap", "test_mse": "test_loss"}


def column_of(number: Number) -> str:
    """The column of `scored` that holds a number."""
    return " ".join(number)


@cache
def printed() -> dict[Number, float]:
    """The printed means that can fail, attention first, in the order of Table 7.

    ‖H^T‖ of attention repeats ‖H‖ in every printed digit, ‖H^GN‖ of the ReLU network is its ‖H‖, and its gap an exact
    zero: none of them is a number of its own.
    """
    from runner.report.collect import reference_path
    from runner.report.printed import published, read_reference

    path = reference_path("exp5_attention")
    assert path is not None
    found: dict[Number, float] = {}
    for row in read_reference(path).to_dict("records"):
        name = (str(row["network"]), QUANTITIES.get(str(row["metric"]), ""), str(row["checkpoint"]))
        repeated = name[0] == "relu_mlp" and name[1] in ("gn", "gap")
        if row["protocol"] == "printed" and name[1] and not repeated:
            found[name] = published({str(k): str(v) for k, v in row.items()}).mean
    return dict(sorted(found.items(), key=lambda item: item[0][0]))  # attention first; stable


def means(tables: Mapping[str, pd.DataFrame], steps: Mapping[str, float]) -> pd.DataFrame:
    """One row per protocol and pair of pairs, a column for each printed number: means over the seeds.

    Protocols that lack a network or a seed of the others are left out. The gap is the mean of the seeds' gaps. steps:
    the rate and the epochs of rows that name none.
    """
    import pandas as pd

    attention, relu = (_with_steps(tables[name], steps) for name in ("attention", "relu_mlp"))
    for pair in ATTENTION_PAIRS:
        attention[f"{pair} gap"] = attention[f"{pair} tensor"] / attention[f"{pair} gn"]
    by_network = {"attention": _wide(attention), "relu_mlp": _wide(relu)}
    both = by_network["attention"].index.intersection(by_network["relu_mlp"].index)
    if not len(both):
        return pd.DataFrame()
    rows = []
    for pairs in itertools.product(ATTENTION_PAIRS, RELU_PAIRS):
        columns = {}
        for network, quantity, checkpoint in printed():
            pair = pairs[0] if network == "attention" else pairs[1]
            column = quantity if quantity == "test_loss" else f"{pair} {quantity}" if network == "attention" else pair
            columns[column_of((network, quantity, checkpoint))] = by_network[network].loc[both, (column, checkpoint)]
        rows.append(pd.DataFrame(columns).assign(attention_pair=pairs[0], relu_pair=pairs[1]))
    return pd.concat(rows).reset_index()


def _with_steps(table: pd.DataFrame, steps: Mapping[str, float]) -> pd.DataFrame:
    there = {name: table[name].fillna(value) if name in table else value for name, value in steps.items()}
    return table.assign(**there)


def _wide(table: pd.DataFrame) -> pd.DataFrame:
    """Protocol -> (quantity, checkpoint), means over the seeds of protocols that have all of them."""
    values = [c for c in table.columns if c not in {*PROTOCOL, "network", "seed", "checkpoint"}]
    whole = table.groupby(PROTOCOL)["seed"].transform("nunique") == table["seed"].nunique()
    return table[whole].groupby([*PROTOCOL, "checkpoint"])[values].mean().unstack("checkpoint")


def scored(tables: Mapping[str, pd.DataFrame], margin: float, steps: Mapping[str, float]) -> pd.DataFrame:
    """`means` with `met`, how many of the printed numbers a mean lies within `margin` of, and `off`, the root mean
    square of log(mean / printed) over all of them; the best first: by met, then by off. printed_steps: whether rate
    and epochs are those of `steps`, the printed ones."""
    import numpy as np

    found = means(tables, steps)
    if found.empty:
        return found
    own = np.logical_and.reduce([np.isclose(found[name].astype(float), value) for name, value in steps.items()])
    ratios = np.column_stack(
        [found[column_of(name)].to_numpy(dtype=float) / value for name, value in printed().items()]
    )
    met = (np.abs(ratios - 1) <= margin).sum(1)
    off = np.sqrt(np.mean(np.log(ratios) ** 2, axis=1))
    found = found.assign(met=met, off=off, printed_steps=own)
    return found.sort_values(["met", "off"], ascending=[False, True], ignore_index=True)


def family(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """The rows of a family: "as printed" varies the noise alone, on the printed pairs; "printed teacher" has the tanh
    teacher, centred targets, and the printed numbers of sequences and epochs and rate; "all" is everything."""
    if name == "all":
        return rows
    kept = (rows["response"] == "tanh") & (rows["offset"] == 0) & (rows["train"] == 2048) & rows["printed_steps"]
    if name == "as printed":
        kept &= (rows["spread"] == 1) & (rows["attention_pair"] == PRINTED_PAIRS[0])
        kept &= rows["relu_pair"] == PRINTED_PAIRS[1]
    return rows[kept]


FAMILIES = ("as printed", "printed teacher", "all")


def words(row: pd.Series) -> str:
    """A protocol and its pairs in words."""
    teacher = {"tanh": "tanh teacher", "tanh_squared": "tanh² teacher"}[row["response"]]
    steps = "" if row["printed_steps"] else f"rate {row['rate']:g}, {row['epochs']:.0f} epochs, "
    return (
        f"{teacher}, {row['train']:.0f} sequences, {steps}noise {row['noise']:g}, targets of mean {row['offset']:g} "
        f"and spread {row['spread']:g}, {row['attention_pair']} and {row['relu_pair']}"
    )


def ratios_of(row: pd.Series) -> dict[Number, float]:
    """Each mean of a row of `scored` over the printed number."""
    return {name: float(row[column_of(name)]) / value for name, value in printed().items()}
