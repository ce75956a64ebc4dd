"""What the tables of Exps. 1 and 1b show, in plain words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import TYPE_CHECKING

from experiments.dag.exp1.claims import ENDS, VARIANT, decades, logs, values_at
from experiments.dag.protocol.summary import first, groups, variance_components

if TYPE_CHECKING:
    import pandas as pd


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


def norms_note(distances: pd.DataFrame, deeper: pd.DataFrame | None) -> list[str]:
    """Section 5.1's fall of the norms, in spectrally normalised networks. deeper: `distances` at L = 32, if any."""
    said = []
    for depth, table in ((12, distances), (32, deeper)):
        for checkpoint in ENDS if table is not None else ():
            rows = first(table)
            part = rows[(rows["depth"] == depth) & (rows["arch"] == "plain_sn") & (rows["checkpoint"] == checkpoint)]
            fall, end = decades(part, depth), logs(values_at(part, "R", depth - 1))
            if fall:
                said.append(
                    f"L = {depth} {checkpoint}: {fmean(fall):.2f} orders, to 10^{fmean(end):.1f} (seeds "
                    f"{min(fall):.2f} to {max(fall):.2f}, n = {len(fall)})"
                )
    text = (
        "Section 5.1 says of plain networks that norms decrease by 3 to 4 orders of magnitude at L = 12 and to 1e-14 "
        "at L = 32 (the exponent is damaged in our text). With LayerNorm, as in Exp. 1, they do not (claims there). "
        "Two kinds of networks come near it: those without LayerNorm (findings of exp1_resonance) and the spectrally "
        "normalised ones of this experiment: "
    )
    return [text + "; ".join(said) + "."] if said else []


SMALL = 1e-12
"""Norm of a diagonal block below which the authors' Exp. 1b counts a coupling as 0."""


def small_blocks_note(pairs: pd.DataFrame) -> list[str]:
    """What the authors' convention for small diagonal blocks does to C, on the paper's images."""
    keys = ["depth", "arch", "seed", "checkpoint"]
    own = pairs[pairs["v"] == pairs["w"]].set_index([*keys, "v"])["R"]
    index = [pairs.set_index([*keys, side]).index for side in ("v", "w")]
    small = (own.reindex(index[0]).to_numpy() < SMALL) | (own.reindex(index[1]).to_numpy() < SMALL)
    if not small.any():
        return []
    where = pairs[small].groupby(["depth", "checkpoint"]).size()
    listed = "; ".join(f"L = {depth} {checkpoint}: {n} pairs" for (depth, checkpoint), n in where.items())
    return [
        f"The authors count C = 0 where ‖H_vv‖ < 1e-12. Here this concerns {int(small.sum())} of {len(pairs)} pairs "
        f"({listed}), whose mean C is {pairs[small]['C'].mean():.3f}. The figure of C shows these measured values; no "
        "printed number depends on the convention."
    ]


def without_norm_note(distances: pd.DataFrame | None) -> list[str]:
    """Section 5.1's fall of the norms in untrained networks without LayerNorm; distances: theirs, if any."""
    said = []
    for (depth,), part in groups(first(distances), ["depth"]) if distances is not None else ():
        fall, end = decades(part, depth), logs(values_at(part, "R", depth - 1))
        said.append(f"L = {depth}: {fmean(fall):.2f} orders, to 10^{fmean(end):.1f} (n = {len(fall)})")
    text = (
        "Untrained plain networks without LayerNorm give nearly what Section 5.1 says of the norms (3 to 4 orders at "
    )
    text += "L = 12, 1e-14 at L = 32): "
    other = "Spectrally normalised networks are the other explanation (findings of exp1b_spectral_norm)."
    return [f"{text}{'; '.join(said)}. {other}"] if said else []


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
