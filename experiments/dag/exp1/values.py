"""What Exps. 1, 1b and 1 at depth measured, as the judge reads it: tables with further columns, and
the values that the paper prints (Tables 2, N.2 and N.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from experiments.dag.exp1.settings import DESCRIBED, DESCRIBED_TRAINED
from experiments.dag.protocol.inter_layer import ROUNDING
from experiments.dag.protocol.scores import (
    described,
    paired,
    printed,
    probes,
    with_columns,
    with_own,
    with_scores,
)
from experiments.dag.protocol.summary import first, in_percent, long_format, per_seed
from runner.contract import Claim, Statement, Tables
from runner.stats.intervals import digits_agree
from runner.stats.over_seeds import number
from runner.stats.quantities import WITHOUT_PROBES, Functions, Reader, parts_of, rows_of
from runner.stats.statements import decided
from runner.stats.tables import chosen
from runner.training.streams import PUBLISHED

CELL = ["depth", "arch"]
VARIANT = [*CELL, "checkpoint"]
DYNAMICS = ("rho", "lyapunov_1", "percent")
"""Columns of `networks` that Tables 2 and N.2 print."""
ESTIMATES = {"R": "R", "C_cut": "C_cut"}
"""Columns of `estimates` that Table N.3 prints."""
FUNCTIONS = Functions()


@FUNCTIONS.decision("one printed rate speaks of six curves, and the text does not say how")
def rate_of_six(says: Statement, tables: Tables) -> Claim:
    """The rate of each curve; where no curve has it and their mean rounds to it, the text does not
    say which it is: that the mean was meant is a reading that its fitting suggests, no evidence.
    """
    printed_rate = replace(says, test="number")
    made = decided(printed_rate, tables, FUNCTIONS)
    reader = Reader(printed_rate, FUNCTIONS)
    parts = parts_of(printed_rate, rows_of(printed_rate, tables))
    curves = {name: reader.values(part).by_unit for name, part in parts.items()}
    seeds = {tuple(values) for values in curves.values()}
    verdicts = {*made.variants.values(), *made.other_seeds.values()}
    if made.verdict != "refuted" or len(seeds) != 1 or "confirmed" in verdicts:
        return made
    pooled = number(says, list(pd.DataFrame(curves).mean(axis=1)))
    agrees = digits_agree(pooled.statistic, says.number, says.rounding)
    if pooled.verdict == "refuted" or not agrees:
        return made
    each = ", ".join(f"{name} {sum(v.values()) / len(v):.2g}" for name, v in curves.items())
    why = (
        f"{each}; their mean {pooled.statistic:.2g}, init and final together; that this mean is "
        "meant is not printed"
    )
    return replace(made, verdict="not comparable", detail=f"{why}; {made.detail}")


@FUNCTIONS.quantity("R")
def last_third(rows: pd.DataFrame) -> float:
    """Mean R(v,v) of the last third of the blocks over that of the others."""
    values = rows["R"].to_numpy()
    cut = len(values) - len(values) // 3
    return float(values[cut:].mean() / values[:cut].mean())


@FUNCTIONS.quantity("R")
def peak(rows: pd.DataFrame) -> float:
    """The largest R(v,v) of the last third over that of the middle block, which shows a rise that
    the input side would hide."""
    values = rows["R"].to_numpy()
    cut = len(values) - len(values) // 3
    return float(values[cut:].max() / values[len(values) // 2])


def judged(tables: Tables) -> Tables:
    """The tables with the columns that statements read.

    networks: accuracy in percent, ‖J_L … J_1‖₂. distances: half the depth; log10 R; survival, the
    norm of the mean block over the mean norm of the images' own. Both: whether they are the paper's
    own untrained networks.
    """
    found = dict(tables)
    if "networks" in tables:
        networks = in_percent(tables["networks"])
        chain = np.exp(networks["depth"] * networks["lyapunov_log_norm"])
        found["networks"] = with_own(networks.assign(chain_norm=chain), tables, CELL)
    if "distances" in tables:
        distances = tables["distances"]
        survival = distances["R"] / distances["R_examples"]
        found["distances"] = with_own(distances.assign(survival=survival), tables, CELL)
    return found


def judged_deep(tables: Tables) -> Tables:
    """The tables with the columns that rows on depths 16 and 32 read: half the depth, the largest
    distance, log10 R, and C cut at 1; of estimates, the values without probes of the paper's own
    networks. networks: as `judged`."""
    found = dict(judged(tables))
    for name in ("distances", "estimates"):
        if name in tables:
            depth = tables[name]["depth"]
            cut = tables[name]["C"].clip(upper=1.0)
            found[name] = tables[name].assign(half=depth // 2, last=depth - 1, C_cut=cut)
    if "distances" in found:
        distances = found["distances"]
        logarithms = np.log10(distances["R"].where(distances["R"] > 0))
        found["distances"] = distances.assign(log10_R=logarithms)
    if "distances" in found and "estimates" in found:
        exact = with_own(first(tables["distances"]), tables, CELL)
        exact = exact[exact["same"]]
        keys = [*VARIANT, "seed", "distance"]
        ending = {name: name + WITHOUT_PROBES for name in ("R", "C")}
        known = exact[[*keys, *ending]].rename(columns=ending)
        found["estimates"] = found["estimates"].merge(known, on=keys, how="left")
    return found


def printed_values(name: str) -> pd.DataFrame:
    """The printed numbers of an experiment, once."""
    return chosen(printed(name), initial=PUBLISHED)


def compared(tables: Tables, beside: Mapping[str, Tables]) -> Tables:
    """The tables that Tables 2 and N.2 are read from. beside: repeated trainings, and networks with
    He initialisation, as the text says, as far as they are stored."""
    found = dict(judged(tables))
    repeated = beside.get(ROUNDING, {}).get("networks")
    if repeated is not None:
        repeated = in_percent(repeated)
    found["networks"] = with_scores(found["networks"], DYNAMICS, VARIANT, tables, CELL, repeated)
    if (rows := as_described(beside, "networks")) is not None:
        found["networks as described"] = described(in_percent(rows), VARIANT)
    return found


def compared_deep(tables: Tables, beside: Mapping[str, Tables]) -> Tables:
    """The tables that Table N.3 is read from: R and C from 100 probes, as the paper's, ρ exact as
    there.

    Only ρ can be the published number to the digit: the probes are others. The authors cut
    estimated couplings at 1, pair by pair; at distance L − 1 there is one pair.
    """
    found = dict(judged_deep(tables))
    networks = found["networks"]
    exact = paired(long_format(first(networks), VARIANT, {"rho": "rho"}), tables, CELL)
    found["networks"] = with_columns(networks, exact, VARIANT)
    keys = [*VARIANT, "distance"]
    own = long_format(first(found["distances"]), keys, ESTIMATES)
    ours = long_format(found["estimates"], keys, ESTIMATES)
    of_probes = probes(ours, own, tables, CELL).assign(paired=False)
    found["estimates"] = with_columns(found["estimates"], of_probes, keys)
    for name, columns in (("networks", VARIANT), ("estimates", [*keys, "last"])):
        if (rows := as_described(beside, name)) is not None:
            rows = judged_deep({name: rows})[name]
            found[f"{name} as described"] = described(rows, columns)
    return found


def as_described(beside: Mapping[str, Tables], name: str) -> pd.DataFrame | None:
    """A table of networks with He initialisation, before training and through it."""
    parts = []
    for companion, untrained in ((DESCRIBED, True), (DESCRIBED_TRAINED, False)):
        if companion in beside:
            rows = beside[companion][name]
            parts.append(rows[rows["checkpoint"].eq("init") == untrained])
    return pd.concat(parts, ignore_index=True) if parts else None


def log_fall(rows: pd.DataFrame) -> list[float]:
    """log10 of R at d = 0 over that at d = L − 1, by seed."""
    wide = per_seed(rows, "R")
    return logs(wide[0] / wide[_depth(rows) - 1])


def log_end(rows: pd.DataFrame) -> list[float]:
    """log10 R at the largest distance, by seed."""
    return logs(per_seed(rows, "R")[_depth(rows) - 1])


def _depth(rows: pd.DataFrame) -> int:
    return int(rows["depth"].iloc[0])


def logs(values: Iterable[float]) -> list[float]:
    """log10 of the values; NaN where there is none."""
    return [float(np.log10(value)) if value > 0 else np.nan for value in values]
