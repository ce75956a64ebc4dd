"""What the DAG paper says of Exp. 1 (Section 5.1, Figs. 2 and 3), decided from the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from experiments.dag.protocol.comparisons import seed_fits
from experiments.dag.protocol.summary import first, groups, seed_values, variance_components
from runner.contract.experiment import Claim
from runner.stats import judge

if TYPE_CHECKING:
    import pandas as pd

VARIANT = ["depth", "arch", "checkpoint"]
ENDS = ("init", "final")


def claims(tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
    """One claim per statement, depth and checkpoint."""
    distances, networks = first(tables["distances"]), first(tables["networks"])
    found: list[Claim] = []
    for (depth, arch, checkpoint), part in groups(distances, VARIANT):
        if checkpoint in ENDS:
            group = f"L={depth} {checkpoint}"
            found += list((plain if arch == "plain" else residual)(part, depth, checkpoint, group))
    found += list(slopes(distances))
    found += list(chain(networks))
    return found


def plain(part: pd.DataFrame, depth: int, checkpoint: str, group: str) -> Iterator[Claim]:
    """Statements about the plain networks of one depth at one checkpoint."""
    fits = [f.r2 for f in seed_fits(part, "R")]
    yield judge.bound(
        "plain R² of log R",
        fits,
        low=0.91,
        group=group,
        where="Section 5.1, Fig. 3",
        statement="log R(d) = a − b d holds with R² > 0.91 in plain networks",
    )
    start = values_at(part, "R", 0)
    printed = {"init": (-1.0, "R(0) is of order 0.1 at init"), "final": (0.0, "R(0) is of order 1 at the end")}
    order, statement = printed[checkpoint]
    yield judge.bound(
        "scale of R",
        map(math.log10, start.values()),
        low=order - 0.5,
        high=order + 0.5,
        group=group,
        where="Fig. 3",
        statement=f"{statement}: log10 R(0) rounds to {order:g}",
    )
    if depth in (12, 32):
        orders = decades(part, depth)
        low, high, text = (2.5, 4.5, "3 to 4 orders") if depth == 12 else (12.5, math.inf, "to 1e-14")
        yield judge.bound(
            f"norms at L={depth}",
            orders,
            low=low,
            high=high,
            group=group,
            where="Section 5.1",
            statement=f"norms fall by {text} from d = 0 to d = L−1: log10 of the ratio",
        )
    if (depth, checkpoint) == (12, "init"):
        last = values_at(part, "C", depth - 1)
        yield judge.number(
            "plain C at the largest distance",
            last.values(),
            0.24,
            0.005,
            group=group,
            where="Fig. 2",
            statement="C(d) falls from 1 to 0.24 at L = 12, init",
        )


def residual(part: pd.DataFrame, depth: int, checkpoint: str, group: str) -> Iterator[Claim]:
    """Statements about the residual networks of one depth at one checkpoint."""
    rates = [f.decay for f in seed_fits(part, "R")]
    yield judge.number(
        "residual slope",
        rates,
        0.02,
        0.005,
        group=group,
        where="Section 5.1, Fig. 3",
        statement="R(d) stabilises with b = 0.02 in residual networks",
    )
    lowest = [float(p["C"].min()) for _, p in part.groupby("seed")]
    yield judge.bound(
        "residual C",
        lowest,
        low=0.93,
        group=group,
        where="Fig. 2",
        statement="C(d) > 0.93 at all distances in residual networks",
    )


def slopes(distances: pd.DataFrame) -> Iterator[Claim]:
    """The residual decay is two orders slower than the plain one."""
    for (depth, checkpoint), part in groups(distances, ["depth", "checkpoint"]):
        by_arch = {arch: seed_fits(p, "R") for arch, p in part.groupby("arch")}
        if checkpoint in ENDS and {"plain", "residual"} <= set(by_arch):
            ratios = [
                math.log10(abs(a.decay / b.decay)) for a, b in zip(by_arch["plain"], by_arch["residual"], strict=False)
            ]
            statement = "the residual decay rate is two orders below the plain one: log10 of the ratio rounds to 2"
            yield judge.bound(
                "residual slower than plain",
                ratios,
                low=1.5,
                high=2.5,
                group=f"L={depth} {checkpoint}",
                where="Section 5.1",
                statement=statement,
            )


def chain(networks: pd.DataFrame) -> Iterator[Claim]:
    """Statements about the Jacobians of plain networks at L = 8, init."""
    part = networks[(networks["arch"] == "plain") & (networks["depth"] == 8) & (networks["checkpoint"] == "init")]
    if part.empty:
        return
    group = "L=8 init"
    norms = [math.exp(8 * v) for v in seed_values(part, "lyapunov_log_norm").values()]
    yield judge.number(
        "norm of the chain",
        norms,
        5,
        0.5,
        group=group,
        where="Section 5.1",
        statement="‖J_8 … J_1‖₂ is about 5 (geometric mean over the images)",
    )
    for column, definition in (("lyapunov_1", "QR"), ("lyapunov_log_norm", "Eq. 8")):
        yield judge.number(
            f"Lyapunov exponent by {definition}",
            seed_values(part, column).values(),
            -0.02,
            0.005,
            group=group,
            where="Section 5.1",
            statement=f"λ₁ is about −0.02, {definition}",
        )


def values_at(part: pd.DataFrame, value: str, distance: int) -> dict[int, float]:
    """seed -> value at one distance."""
    return seed_values(part[part["distance"] == distance], value)


def decades(part: pd.DataFrame, depth: int) -> list[float]:
    """log10 R(0)/R(L−1) of each seed."""
    start, end = values_at(part, "R", 0), values_at(part, "R", depth - 1)
    return [math.log10(start[s] / end[s]) for s in start if end.get(s)]


def notes(tables: Mapping[str, pd.DataFrame], plain_name: str) -> list[str]:
    """Findings in plain words."""
    found = [power_note(tables["distances"])]
    found += spread_note(tables["distances"])
    found += examples_note(tables["distances"], plain_name)
    networks = first(tables["networks"])
    part = networks[(networks["arch"] == plain_name) & (networks["checkpoint"] == "init")]
    for (depth,), rows in groups(part, ["depth"]):
        qr, log_norm = rows["lyapunov_1"].mean(), rows["lyapunov_log_norm"].mean()
        found.append(
            f"λ₁ at L = {depth}, {plain_name}, init: {qr:.3f} by QR from Q = I (what the paper's tables hold), "
            f"{log_norm:.3f} by Eq. 8, (1/L) log ‖J_L … J_1‖₂."
        )
    return [note for note in found if note]


def power_note(distances: pd.DataFrame) -> str:
    """What the tests per distance can show at this number of seeds."""
    n = distances["seed"].nunique()
    smallest = 2 / math.comb(2 * n, n)
    if n < 2:
        return "One seed: no test between architectures or checkpoints."
    return (
        f"With {n} seeds the smallest p is {smallest:.2g} (Mann–Whitney) and {2.0 ** (1 - n):.2g} (Wilcoxon): "
        "after Holm's correction over the distances of a figure no single distance can reach 0.05; read the effect "
        "sizes (±1: the two groups do not overlap)."
    )


def spread_note(distances: pd.DataFrame) -> list[str]:
    """How the two sources of variance compare at distance 0."""
    found = []
    for (depth, arch, checkpoint), part in groups(distances[distances["distance"] == 0], VARIANT):
        c = variance_components(part, "R")
        if checkpoint in ENDS and c.seeds > 0:
            found.append(f"L = {depth} {arch} {checkpoint} {math.sqrt(c.within / c.seeds):.1f}")
    text = "Std of R(0) between sets of images of one network over that between training seeds: "
    return [text + "; ".join(found) + "."] if found else []


def examples_note(distances: pd.DataFrame, plain_name: str) -> list[str]:
    """The norm of the mean block beside the mean norm of the images' own blocks (Remark 38)."""
    found = []
    table = first(distances)[lambda t: t["arch"] == plain_name]
    for (depth, checkpoint), part in groups(table, ["depth", "checkpoint"]):
        if checkpoint in ENDS:
            means = part.groupby("distance")[["R", "R_examples"]].mean()
            near, far = means.loc[0], means.loc[depth - 1]
            found.append(
                f"{plain_name}, L = {depth}, {checkpoint}: the mean block has norm {near['R']:.3g} at d = 0 and "
                f"{far['R']:.3g} at d = {depth - 1}; the images' own blocks have {near['R_examples']:.3g} and "
                f"{far['R_examples']:.3g} on average. The tables hold the first, Remark 38 writes the second."
            )
    return found
