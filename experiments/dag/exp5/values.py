"""What Exp. 5 measured, as the judge reads it: tables with further columns, and the values that the
paper prints (Table 7 and Section 5.5)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from experiments.dag.exp5.settings import Exp5Attention
from experiments.dag.protocol.scores import image_spread, with_columns
from experiments.dag.protocol.summary import first, long_format
from runner.contract import Tables
from runner.kinds.dataset import AttentionData
from runner.stats.quantities import Functions
from runner.stats.tables import chosen
from runner.training import CHECKPOINTS
from runner.training.streams import PUBLISHED_SEEDS

KEYS = ["protocol", "network", "checkpoint"]
BLOCKS = ("full", "gn", "tensor", "gap")
"""Columns of `blocks` that Table 7 prints."""
RECOVERED = "recovered"
"""The protocol that decides; the other targets are variants."""
FUNCTIONS = Functions()


@FUNCTIONS.quantity("train_loss")
def rising(rows: pd.DataFrame) -> float:
    """Share of the epochs in which the training loss rises; none is known before training."""
    losses = rows["train_loss"]
    known = np.isfinite(losses.iloc[1:]).all()
    return float((losses.diff() > 0).mean()) if known else math.nan


def judged(tables: Tables, experiment: Exp5Attention) -> Tables:
    """The tables of the paper's two networks, with the columns that statements read.

    time: number of the checkpoint; same: the network is the authors' own; over_a_constant: test
    loss over that of the best constant prediction. A further table, `sizes`: parameters of all
    networks.
    """
    found = {"sizes": tables["networks"].dropna(subset=["parameters"])}
    exact = authors_own(tables)
    for name in ("blocks", "networks", "history"):
        table = of_paper(tables[name], experiment.control)
        found[name] = table.assign(same=exact & table["protocol"].eq(RECOVERED))
    for name in ("blocks", "networks"):
        checkpoint = found[name]["checkpoint"].astype(str)
        found[name] = found[name].assign(time=checkpoint.map(CHECKPOINTS.index))
    networks = found["networks"]
    constant = {p: target_variance(experiment.under(p)[0]) for p in networks["protocol"].unique()}
    over = networks["test_loss"] / networks["protocol"].map(constant)
    return {**tables, **found, "networks": networks.assign(over_a_constant=over)}


def of_paper(table: pd.DataFrame, control: Mapping[str, str]) -> pd.DataFrame:
    """The rows that the paper's statements are about: attention, and the ReLU network that
    `control` names for the protocol."""
    named = table["network"] == table["protocol"].map(control)
    return table[named | (table["network"] == "attention")]


def authors_own(tables: Tables) -> bool:
    """Whether inputs, initial networks and orders of the examples are the authors', for all five of
    their seeds."""
    if "origin" not in tables:
        return False
    origin = chosen(tables["origin"], protocol=RECOVERED)
    ours = origin[origin["network"] != "relu_mlp"]
    published = (ours[["inputs", "initial", "order"]] == "published").all(axis=None)
    all_five = set(ours["seed"]) == set(PUBLISHED_SEEDS)
    return all_five and bool(published)


def target_variance(data: AttentionData) -> float:
    """Variance of the targets, which is the test loss of the best constant prediction.

    Standardised targets have `spread`². Of y = ‖x‖_F/√n + ε with n = S d standard normal entries it
    is 1 − E[χ_n]²/n + noise², E[χ_n] = √2 Γ((n+1)/2)/Γ(n/2); NaN for other targets.
    """
    if data.standardised:
        return data.spread**2
    if data.response != "norm":
        return math.nan
    entries = data.tokens * data.width
    root_mean = math.sqrt(2 / entries)
    mean = root_mean * math.exp(math.lgamma((entries + 1) / 2) - math.lgamma(entries / 2))
    return 1 - mean**2 + data.noise**2


def compared(tables: Tables, judged_tables: Tables) -> Tables:
    """The tables that Table 7 and the test losses of the text are read from. How far rounding moves
    a trained network is not known."""
    found = dict(judged_tables)
    spread = image_spread(tables["blocks"], KEYS, {column: column for column in BLOCKS})
    known = long_format(first(found["blocks"]), KEYS, {column: column for column in BLOCKS})
    known = known.merge(spread, on=[*KEYS, "metric"], how="left")
    known = with_paired(known, tables)
    known["image_variance"] = known["image_variance"].where(~known["paired"], 0.0)
    found["blocks"] = with_columns(found["blocks"], known, KEYS)
    losses = with_paired(long_format(found["networks"], KEYS, {"test_loss": "test_loss"}), tables)
    found["networks"] = with_columns(found["networks"], losses, KEYS)
    return found


def with_paired(values: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    """Values with the columns `paired` and `rounding_std`."""
    ours = (values["network"] != "relu_mlp") & (values["protocol"] == RECOVERED)
    zero = (values["network"] != "attention") & values["metric"].isin(("gap", "tensor"))
    return values.assign(paired=ours & ~zero & authors_own(tables), rounding_std=math.nan)
