"""What Exp. 6 measured, as the judge reads it: tables with further columns, and the values that the
paper prints.

Printed numbers are compared with the paper's own kind of estimate (30 probes); statements about the
networks are compared with the engine's values, exact for ReLU. Statements on an exact zero are
compared with the estimates, whose products know nothing of the network's structure.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from experiments.dag.protocol.scores import (
    described,
    paired,
    probes,
    published_start,
    with_columns,
)
from experiments.dag.protocol.summary import gap, in_percent, long_format
from runner.contract import Tables
from runner.stats.quantities import WITHOUT_PROBES, Functions
from runner.stats.tables import chosen, groups

KEYS = ["activation", "arch", "checkpoint"]
ESTIMATORS = ("published", "engine")
METRICS = {name: name for name in ("R", "C", "D", "gap")}
NEGLIGIBLE = 1e-12
"""‖H‖₂² below which the paper leaves D out (Appendix N.8)."""
FUNCTIONS = Functions()


@FUNCTIONS.quantity("R")
def contrast_of_skips(rows: pd.DataFrame) -> float:
    """R(0)/R(4) of the plain network over that of the ResNet."""
    wide = rows.pivot(index="arch", columns="distance", values="R")
    ends = wide.reindex(index=["plain_resnet18", "resnet18"], columns=[0, 4])
    plain, resnet = ends[0] / ends[4]
    return float(plain / resnet)


def judged(tables: Tables) -> Tables:
    """The tables that statements read: the values by distance of one estimator, with the GN gap.

    engine: exact values; calibrated: likewise, of untrained networks whose BatchNorm has the
    statistics of training images (with the initial ones, as published, it is the identity);
    estimates: by probes, next to the exact R where the networks are the paper's own. blocks: see
    `blocks`.
    """
    if "distances" not in tables:
        return tables
    distances = tables["distances"].assign(gap=gap)
    engine = selected(distances, "engine")
    start = chosen(distances, estimator="engine", statistics="calibrated", checkpoint="init")
    trained = engine[engine["checkpoint"] != "init"]
    estimates = selected(distances, "published")
    if published_start(tables):
        keys = [*KEYS, "seed", "distance"]
        untrained = chosen(engine, checkpoint="init")[[*keys, "R"]]
        exact = untrained.rename(columns={"R": "R" + WITHOUT_PROBES})
        estimates = estimates.merge(exact, on=keys, how="left")
    return {
        **tables,
        "engine": engine,
        "calibrated": pd.concat([start, trained], ignore_index=True),
        "estimates": estimates,
        "blocks": blocks(selected(tables["pairs"], "engine")),
    }


def blocks(pairs: pd.DataFrame) -> pd.DataFrame:
    """square: ‖H‖_F²; small: likewise where ‖H‖₂² < 1e-12, else 0; faint: whether a network has
    any such block, or a missing one. A block without D counts in neither."""
    square = pairs["R"].where(np.isfinite(pairs["R"])) ** 2
    top = square / pairs["D"]
    faint = (top < NEGLIGIBLE) | square.isna()
    whole = square.where(top.notna() | square.isna(), 0.0)
    found = pairs.assign(square=whole, small=square.where(faint, 0.0), faint=faint)
    return found.assign(faint=found.groupby(KEYS)["faint"].transform("any"))


def selected(table: pd.DataFrame, estimator: str) -> pd.DataFrame:
    """Rows of one estimator, with the running statistics of BatchNorm."""
    return chosen(table, estimator=estimator, statistics="running")


def leaving_out(tables: Tables, estimator: str, negligible: float) -> pd.DataFrame:
    """Rows of `distances` with D averaged as published: over the blocks whose ‖H‖_F² is at least
    `negligible`."""
    keys = [*KEYS, "seed", "distance"]
    pairs = selected(tables["pairs"], estimator)
    kept = pairs[pairs["R"] ** 2 >= negligible]
    means = kept.groupby(keys, as_index=False)["D"].mean()
    distances = selected(tables["distances"], estimator).drop(columns="D")
    return distances.merge(means, on=keys, how="left")


def compared(tables: Tables, negligible: float) -> Tables:
    """The tables that Tables 8, 9, N.7, N.8, the text and the authors' results are read from.

    averages: the paper's estimates, with D averaged as published; described: D without probes and
    power steps, of which the paper's 50 steps are an estimate. Estimates are of other probes, and
    after 100 epochs networks of two processors are not the same.
    """
    found = dict(judged(tables))
    if "distances" in tables:
        keys = [*KEYS, "distance"]
        published, engine = (
            leaving_out(tables, name, negligible).assign(gap=gap) for name in ESTIMATORS
        )
        own, exact = (long_format(rows, keys, METRICS) for rows in (published, engine))
        of_probes = probes(own, exact, tables, KEYS).assign(paired=False)
        found["averages"] = with_columns(published, of_probes, keys)
        found["described"] = described(engine.dropna(subset="D"), keys)
    if "networks" in tables:
        networks = in_percent(chosen(tables["networks"], statistics="running"))
        known = paired(long_format(networks, KEYS, {"percent": "percent"}), tables, KEYS)
        known["paired"] &= known["checkpoint"].eq("init")
        found["networks"] = with_columns(networks, known, KEYS)
    return found


def devices(origin: pd.DataFrame) -> list[str]:
    """Which seeds' networks were trained on another device than the processor, one sentence for
    each device."""
    if "trained_on" not in origin:
        return []
    ended = chosen(origin, checkpoint="final").dropna(subset=["trained_on"])
    found = []
    for (device,), part in groups(ended, ["trained_on"]):
        seeds = ", ".join(map(str, sorted(set(part["seed"]))))
        found.append(f"The networks of seed {seeds} were trained on {device}.")
    return found
