"""What the DAG paper says of Exp. 6 (Section 5.6, Remark 39, Appendix N.8), decided from the tables.

Printed numbers are held against the paper's own kind of estimate (30 probes); statements about the networks against the
engine's values, exact for ReLU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from experiments.dag.protocol.summary import groups, long_format
from runner.contract.experiment import Claim
from runner.stats import judge

if TYPE_CHECKING:
    import pandas as pd

TEXT = "Section 5.6"
KEYS = ["activation", "arch", "checkpoint"]
LAST = 4
"""Distance between stem and layer4, the largest."""
DECAYS = {("relu", "resnet18"): (1.0, 0.5), ("relu", "plain_resnet18"): (627, 0.5)}
DECAYS |= {("silu", "resnet18"): (25, 0.5), ("silu", "plain_resnet18"): (47000, 500)}
"""Printed R(0)/R(4) at init and half a unit of its last digit."""
NEGLIGIBLE = 1e-12
"""‖H‖₂² below which the paper leaves D out (Appendix N.8)."""


def selected(table: pd.DataFrame, estimator: str, statistics: str = "running") -> pd.DataFrame:
    """Rows of one estimator and one kind of BatchNorm statistics."""
    return table[(table["estimator"] == estimator) & (table["statistics"] == statistics)]


def claims(tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
    """One claim per statement and condition."""
    if "distances" not in tables:
        return []
    published, engine = (selected(tables["distances"], e) for e in ("published", "engine"))
    found: list[Claim] = [*piecewise_linear(published), *smooth(engine), *decays(published)]
    for (activation, arch, checkpoint), part in groups(engine, KEYS):
        steps = [float(p.sort_values("distance")["C"].diff().max()) for _, p in part.groupby("seed")]
        found.append(
            judge.bound(
                "C monotone",
                steps,
                high=0.0,
                group=f"{activation} {arch} {checkpoint}",
                where=f"{TEXT} (H6.3)",
                statement="C(d) falls monotonically in all configurations: the largest step to d + 1 is below 0",
            )
        )
    found += slower(engine)
    found += negligible(selected(tables["pairs"], "engine"))
    return found


def decay_of(part: pd.DataFrame) -> dict[int, float]:
    """seed -> R(0)/R(4)."""
    table = part.pivot(index="seed", columns="distance", values="R")
    if not {0, LAST} <= set(table.columns):
        return {}
    return {int(s): float(r) for s, r in (table[0] / table[LAST]).dropna().items()}


def decays(distances: pd.DataFrame) -> Iterator[Claim]:
    """R(0)/R(4) at init in the four conditions."""
    for (activation, arch), part in groups(distances[distances["checkpoint"] == "init"], ["activation", "arch"]):
        if (activation, arch) in DECAYS:
            printed, half = DECAYS[activation, arch]
            yield judge.number(
                "decay at init",
                decay_of(part).values(),
                printed,
                half,
                group=f"{activation} {arch}",
                where=f"{TEXT}, Fig. 7",
                statement=f"R(0)/R(4) is about {printed:g} at init",
            )


def slower(distances: pd.DataFrame) -> Iterator[Claim]:
    """Skip connections slow the decay of C, network by network of one seed."""
    wide = distances[distances["distance"] == LAST].pivot_table(
        index=["activation", "checkpoint", "seed"], columns="arch", values="C"
    )
    if {"resnet18", "plain_resnet18"} <= set(wide.columns):
        gain = (wide["resnet18"] - wide["plain_resnet18"]).dropna().reset_index(name="gain")
        for (activation, checkpoint), part in groups(gain, ["activation", "checkpoint"]):
            yield judge.bound(
                "skips slow the decay",
                part["gain"],
                low=0.0,
                group=f"{activation} {checkpoint}",
                where=f"{TEXT} (H6.3)",
                statement="skip connections slow the decay of C: C(4) of ResNet minus C(4) of the plain twin above 0",
            )


def gaps(distances: pd.DataFrame) -> pd.DataFrame:
    """The rows with their GN-gap Σ‖H^T‖/Σ‖H^GN‖."""
    return distances.assign(gap=distances["tensor"] / distances["gn"].where(distances["gn"] > 0))


def piecewise_linear(distances: pd.DataFrame) -> Iterator[Claim]:
    """H6.1, on the estimates: the engine's tensor part of a ReLU network is zero by its structure."""
    relu = gaps(distances)[lambda t: t["activation"] == "relu"]
    for (arch, checkpoint), part in groups(relu, ["arch", "checkpoint"]):
        largest = list(part.groupby("seed")["gap"].max())
        group, where = f"{arch} {checkpoint}", f"{TEXT} (H6.1)"
        statement = "the gap of ReLU networks stays below 1e-5 at every distance and checkpoint"
        yield judge.bound("gap of ReLU", largest, high=1e-5, group=group, where=where, statement=statement)
        if checkpoint == "final":
            statement = "the gap of ReLU networks is below 2e-6 at all distances at the end"
            yield judge.bound("gap of ReLU, final", largest, high=2e-6, group=group, where=where, statement=statement)


def smooth(distances: pd.DataFrame) -> Iterator[Claim]:
    """H6.2 and Remark 39: the gap of SiLU networks, and its collapse at the linear head."""
    silu = gaps(distances)[lambda t: t["activation"] == "silu"]
    for (arch, checkpoint), part in groups(silu, ["arch", "checkpoint"]):
        group = f"{arch} {checkpoint}"
        inner = list(part[part["distance"] < LAST].groupby("seed")["gap"].min())
        statement = "the gap of SiLU networks is above 0 at every d < 4: the smallest of them above 1e-5"
        where = f"{TEXT} (H6.2)"
        yield judge.bound("gap of SiLU", inner, low=1e-5, group=group, where=where, statement=statement)
        last = list(part[part["distance"] == LAST]["gap"])
        statement = "at d = 4, before the linear head, the gap of SiLU networks collapses below 1e-5"
        yield judge.bound("gap before the head", last, high=1e-5, group=group, where="Remark 39", statement=statement)
        if (arch, checkpoint) == ("resnet18", "final"):
            inner_part = part[part["distance"] < LAST].sort_values("distance")
            steps = [float(p["gap"].diff().max()) for _, p in inner_part.groupby("seed")]
            statement = "the gap falls with distance, 0.43 at d = 0 to 0.15 at d = 3: the largest step is below 0"
            yield judge.bound("gap falls", steps, high=0.0, group=group, where=where, statement=statement)
    yield from through_training(silu)


def through_training(silu: pd.DataFrame) -> Iterator[Claim]:
    """How the gap of SiLU networks changes from init to final: grows in plain networks at d <= 1, falls in ResNets."""
    wide = silu.pivot_table(index=["arch", "distance", "seed"], columns="checkpoint", values="gap")
    if not {"init", "final"} <= set(wide.columns):
        return
    change = (wide["final"] - wide["init"]).dropna().reset_index(name="change")
    for arch, distances, sign in (("plain_resnet18", (0, 1), 1), ("resnet18", (1, 2, 3), -1)):
        part = change[(change["arch"] == arch) & change["distance"].isin(distances)]
        values = [sign * float(v) for v in part.groupby("seed")["change"].mean()]
        if values:
            direction = "grows at d <= 1" if sign > 0 else "falls at d = 1 to 3"
            statement = f"the gap {direction} through training: mean change, in that direction, above 0"
            yield judge.bound(
                "gap through training", values, low=0.0, group=arch, where="Appendix N.8", statement=statement
            )


def negligible(pairs: pd.DataFrame) -> Iterator[Claim]:
    """The rule for D: where it applies."""
    known = pairs.assign(top=pairs["R"] ** 2 / pairs["D"])
    for (activation, arch, checkpoint), part in groups(known[known["top"].notna()], KEYS):
        if checkpoint == "init":
            yield judge.bound(
                "negligible blocks",
                [math.log10(v) for v in part.groupby("seed")["top"].min()],
                high=math.log10(NEGLIGIBLE),
                group=f"{activation} {arch} init",
                where="Appendix N.8",
                statement="some segment has ‖H‖₂² < 1e-12, so that D is left out: log10 of the smallest ‖H‖₂²",
            )


def measured(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Values of Tables 8, 9, N.7, N.8 and of the text, one row per seed, by the paper's estimates."""
    import pandas as pd

    parts = []
    if "distances" in tables:
        own = gaps(selected(tables["distances"], "published"))
        parts.append(long_format(own, [*KEYS, "distance"], {name: name for name in ("R", "C", "D", "gap")}))
    networks = tables["networks"][tables["networks"]["statistics"] == "running"]
    networks = networks.assign(percent=100 * networks["test_accuracy"])
    parts.append(long_format(networks, KEYS, {"test_acc_percent": "percent"}))
    return pd.concat(parts, ignore_index=True)


def notes(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Findings in plain words."""
    if "distances" not in tables:
        return []
    distances, found = tables["distances"], []
    init = distances[(distances["checkpoint"] == "init") & (distances["estimator"] == "engine")]
    for (activation, arch), part in groups(init, ["activation", "arch"]):
        ratios = {s: list(decay_of(p).values()) for (s,), p in groups(part, ["statistics"])}
        if all(ratios.get(s) for s in ("running", "calibrated")):
            means = {s: sum(v) / len(v) for s, v in ratios.items()}
            found.append(
                f"{activation} {arch}, init: R(0)/R(4) = {means['running']:.3g} with BatchNorm's statistics at 0 and "
                f"1, as published, {means['calibrated']:.3g} once they are those of training images (means over seeds)."
            )
    keys = [*KEYS, "seed", "distance"]
    both = selected(distances, "published").merge(selected(distances, "engine"), on=keys, suffixes=("", "_engine"))
    for (activation, arch, checkpoint), part in groups(both, KEYS):
        shift = 100 * (part["R"] / part["R_engine"] - 1)
        found.append(
            f"{activation} {arch}, {checkpoint}: R(d) from 30 probes is off by {shift.abs().mean():.1f} % on average, "
            f"{shift.abs().max():.1f} % at most (one network, against the engine's value)."
        )
    return found
