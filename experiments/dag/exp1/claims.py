"""What the DAG paper says of Exp. 1 (Section 5.1, Figs. 2 and 3), decided from the tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.dag.protocol.comparisons import seed_fits
from experiments.dag.protocol.scores import fit_of_means, scored
from experiments.dag.protocol.summary import first, groups, seed_values, variance_components
from experiments.printed import statements
from runner.contract.claim import Claim, Statement
from runner.stats import judge

if TYPE_CHECKING:
    import pandas as pd

VARIANT = ["depth", "arch", "checkpoint"]
ENDS = ("init", "final")
CHAIN = 8
"""Depth at which Section 5.1 speaks of the whole chain of Jacobians."""
DYNAMICS = {"rho_max": "rho", "lyapunov_1": "lyapunov_1", "test_acc_percent": "percent"}
"""Metric of Table 2 -> column of `networks`."""
Parts = dict[str, list[float]]


def claims(tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
    """One claim per statement; depths and checkpoints are its parts."""
    says = statements("exp1_resonance")
    distances, networks = first(tables["distances"]), first(tables["networks"])
    parts = {keys: rows for keys, rows in groups(distances, VARIANT) if keys[2] in ENDS}
    plain = {k: rows for k, rows in parts.items() if k[1] == "plain"}
    residual = {k: rows for k, rows in parts.items() if k[1] == "residual"}
    found = [
        judge.bound(says["plain R² of log R"], {text(k): fit_of_means(p, "R") for k, p in plain.items()}),
        judge.number(says["residual slope"], {text(k): rates(p) for k, p in residual.items()}),
        judge.bound(says["residual slower than plain"], slower(plain, residual)),
        judge.bound(says["norms at L=12"], {text(k): decades(p, k[0]) for k, p in plain.items() if k[0] == 12}),
        judge.bound(says["norms at L=32"], {text(k): tail(p, k[0]) for k, p in plain.items() if k[0] == 32}),
        judge.number(
            says["plain C at the largest distance"],
            {text(k): list(values_at(p, "C", 11).values()) for k, p in plain.items() if (k[0], k[2]) == (12, "init")},
        ),
        judge.bound(
            says["residual C"],
            {text(k): [float(r["C"].min()) for _, r in p.groupby("seed")] for k, p in residual.items()},
        ),
    ]
    for name, checkpoint in (("scale of R at init", "init"), ("scale of R at the end", "final")):
        scale = {text(k): logs(values_at(p, "R", 0)) for k, p in plain.items() if k[2] == checkpoint}
        found.append(judge.bound(says[name], scale))
    return found + chain(networks, says)


def chain(networks: pd.DataFrame, says: Mapping[str, Statement]) -> list[Claim]:
    """Statements about the Jacobians of plain networks at init."""
    init = networks[(networks["arch"] == "plain") & (networks["checkpoint"] == "init")]
    part = init[init["depth"] == CHAIN]
    depths = {f"L={k[0]}": list(seed_values(p, "rho").values()) for k, p in groups(init, ["depth"])}
    norms = [math.exp(CHAIN * v) for v in seed_values(part, "lyapunov_log_norm").values()]
    exponent = says["Lyapunov exponent"]
    readings = {
        name: judge.number(exponent, {f"L={CHAIN}": list(seed_values(part, column).values())})
        for name, column in (("QR", "lyapunov_1"), ("Eq. 8", "lyapunov_log_norm"))
    }
    return [
        judge.number(says["rho at init"], depths),
        judge.number(says["norm of the chain"], {f"L={CHAIN} init": norms}),
        judge.together(readings, main="QR"),
    ]


def measured(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Values of Tables 2 and N.2, one row per seed."""
    networks = tables["networks"].assign(percent=lambda t: 100 * t["test_accuracy"])
    return scored(networks, VARIANT, DYNAMICS, tables, ["depth", "arch"])


def text(keys: tuple[int, str, str]) -> str:
    """'L=8 init'."""
    return f"L={keys[0]} {keys[2]}"


def rates(part: pd.DataFrame) -> list[float]:
    """b of each seed's own fit of log R."""
    return [f.decay for f in seed_fits(part, "R")]


def slower(plain: Mapping[Any, pd.DataFrame], residual: Mapping[Any, pd.DataFrame]) -> Parts:
    """log10 of the plain decay rate over the residual one, by depth and checkpoint."""
    found = {}
    for keys, part in plain.items():
        other = residual.get((keys[0], "residual", keys[2]))
        if other is not None:
            pairs = zip(rates(part), rates(other), strict=False)
            found[text(keys)] = [math.log10(abs(a / b)) for a, b in pairs]
    return found


def logs(values: Mapping[int, float]) -> list[float]:
    """log10 of the positive values."""
    return [math.log10(v) for v in values.values() if v > 0]


def tail(part: pd.DataFrame, depth: int) -> list[float]:
    """log10 R(L−1) of each seed."""
    return logs(values_at(part, "R", depth - 1))


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
