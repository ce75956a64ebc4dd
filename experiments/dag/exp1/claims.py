"""What the DAG paper says of Exps. 1 and 1b (Section 5.1, Figs. 2 and 3; Appendix N.1), decided from the tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from experiments.dag.protocol.scores import (
    PartName,
    facts,
    fit_of_means,
    jackknife,
    published_start,
    scored,
)
from experiments.dag.protocol.summary import first, groups, seed_fits, seed_values
from runner.contract import Claim, Statement
from runner.stats import judge

VARIANT = ["depth", "arch", "checkpoint"]
ENDS = ("init", "final")
TABLES = "dag.tables, class B"
"""Root cause in the errata of sentences that the paper's own tables contradict."""
CHAIN = 8
"""Depth at which Section 5.1 speaks of the whole chain of Jacobians."""
DYNAMICS = {"rho_max": "rho", "lyapunov_1": "lyapunov_1", "test_acc_percent": "percent"}
"""Metric of Table 2 -> column of `networks`."""
Parts = dict[str, list[float]]
Networks = Mapping[tuple[int, str, str], "pd.DataFrame"]
"""(depth, arch, checkpoint) -> rows by distance and seed."""


def claims(tables: Mapping[str, pd.DataFrame], says: Mapping[str, Statement]) -> list[Claim]:
    """One claim per statement; depths and checkpoints are its parts."""
    distances, networks = first(tables["distances"]), first(tables["networks"])
    parts = {keys: rows for keys, rows in groups(distances, VARIANT) if keys[2] in ENDS}
    plain = {k: rows for k, rows in parts.items() if k[1] == "plain"}
    residual = {k: rows for k, rows in parts.items() if k[1] == "residual"}
    same = published_start(tables)
    return [
        *resonance(plain, residual, says, same),
        *coupling(plain, residual, says, same),
        *scales(plain, says, same),
        *chain(networks, says, same),
        *after_training(networks, plain, says, same),
    ]


def resonance(
    plain: Networks, residual: Networks, says: Mapping[str, Statement], same: bool
) -> list[Claim]:
    """How R falls with distance; same: see `on_own`."""
    by = {e: slower({k: p for k, p in plain.items() if k[2] == e}, residual) for e in ENDS}
    slow = {
        e: on_own(says["residual slower than plain"], values, same)
        for e, values in by.items()
        if values
    }
    return [
        on_own(
            says["plain R² of log R"],
            {text(k): fit_of_means(p, "R") for k, p in plain.items()},
            same,
        ),
        residual_slope(says["residual slope"], residual, same),
        judge.together(slow, main="init")
        if slow
        else judge.claim(says["residual slower than plain"], "not run"),
        judge.minor_error(
            on_own(
                says["norms at L=12"],
                {text(k): decades(p, k[0]) for k, p in plain.items() if k[0] == 12},
                same,
            ),
            TABLES,
        ),
    ]


def residual_slope(says: Statement, residual: Networks, same: bool) -> Claim:
    """One printed rate for six curves. It is the rate of each; where no curve has it and their mean rounds to it, the
    text does not say which it is: that the mean was meant is a reading that its fitting suggests, no evidence.
    """
    curves = {text(k): rates(p) for k, p in residual.items()}
    made = on_own(says, curves, same)
    measured = {tuple(sorted(set(p["seed"]))) for p in residual.values()}
    parts = {*made.variants.values(), *made.other_seeds.values()}
    if made.verdict != "refuted" or len(measured) != 1 or "confirmed" in parts:
        return made
    pooled = judge.number(
        says, [sum(values) / len(values) for values in zip(*curves.values(), strict=True)]
    )
    if pooled.verdict == "refuted" or not judge.digits_agree(
        pooled.statistic, says.number, says.rounding
    ):
        return made
    each = ", ".join(f"{name} {sum(v) / len(v):.2g}" for name, v in curves.items())
    why = f"{each}; their mean {pooled.statistic:.2g}, init and final together; that this mean is meant is not printed"
    return replace(made, verdict="not comparable", detail=f"{why}; {made.detail}")


def coupling(
    plain: Networks, residual: Networks, says: Mapping[str, Statement], same: bool
) -> list[Claim]:
    """How C falls with distance: at init, after training (a variant) and from one to the other; same: see `on_own`."""
    far = {
        k: list(values_at(p, "C", 11).values())
        for k, p in plain.items()
        if (k[0], k[2]) == (12, "init")
    }
    falls = {
        checkpoint: on_own(
            says["plain C monotone"],
            {text(k): largest_step(p, "C") for k, p in plain.items() if k[2] == checkpoint},
            same,
        )
        for checkpoint in ENDS
    }
    smallest = {
        text(k): [float(r["C"].min()) for _, r in p.groupby("seed")] for k, p in residual.items()
    }
    return [
        on_own(says["plain C at the largest distance"], {text(k): v for k, v in far.items()}, same),
        judge.together(falls, main="init"),
        on_own(says["residual C"], smallest, same),
        judge.bound(says["C shifts upward"], shifts({**plain, **residual})),
    ]


def scales(plain: Networks, says: Mapping[str, Statement], same: bool) -> list[Claim]:
    """Order of magnitude of R(0)."""
    found = []
    for name, checkpoint in (("scale of R at init", "init"), ("scale of R at the end", "final")):
        scale = {
            text(k): logs(values_at(p, "R", 0)) for k, p in plain.items() if k[2] == checkpoint
        }
        found.append(on_own(says[name], scale, same))
    return found


def on_own(statement: Statement, parts: Parts, same: bool) -> Claim:
    """A printed number or limits on a mean; same: whether the networks at init are the paper's own, on its images."""
    decide = judge.bound if math.isnan(statement.number) else judge.number
    return decide(statement, parts, same=facts(parts, same))


def chain(networks: pd.DataFrame, says: Mapping[str, Statement], same: bool) -> list[Claim]:
    """Statements about the Jacobians of plain networks at init."""
    init = networks[(networks["arch"] == "plain") & (networks["checkpoint"] == "init")]
    part = init[init["depth"] == CHAIN]
    skips = networks[(networks["arch"] == "residual") & networks["checkpoint"].isin(ENDS)]
    depths = {f"L={k[0]}": list(seed_values(p, "rho").values()) for k, p in groups(init, ["depth"])}
    norms = [math.exp(CHAIN * v) for v in seed_values(part, "lyapunov_log_norm").values()]
    exponent = says["Lyapunov exponent"]
    readings = {
        name: on_own(exponent, {f"L={CHAIN}": list(seed_values(part, column).values())}, same)
        for name, column in (("QR", "lyapunov_1"), ("Eq. 8", "lyapunov_log_norm"))
    }
    return [
        on_own(says["rho at init"], depths, same),
        on_own(says["rho of residual networks"], by_variant(skips, "rho"), same),
        on_own(says["norm of the chain"], {f"L={CHAIN} init": norms}, same),
        judge.together(readings, main="QR"),
    ]


def after_training(
    networks: pd.DataFrame, plain: Networks, says: Mapping[str, Statement], same: bool
) -> list[Claim]:
    """Section 7: the decay is guaranteed at init by λ₁ < 0 and persists after training, where λ₁ > 0."""
    init = networks[(networks["arch"] == "plain") & (networks["checkpoint"] == "init")]
    readings = {
        name: on_own(says["negative exponent at init"], by_variant(init, column), same)
        for name, column in (("QR", "lyapunov_1"), ("Eq. 8", "lyapunov_log_norm"))
    }
    final = networks[networks["checkpoint"] == "final"]
    trained = {text(k): rates(p) for k, p in plain.items() if k[2] == "final"}
    cancels = {
        checkpoint: judge.bound(
            says["cancellation"],
            {text(k): cancellation(p, k[0]) for k, p in plain.items() if k[2] == checkpoint},
        )
        for checkpoint in dict.fromkeys(k[2] for k in plain)
    }
    return [
        judge.together(readings, main="QR"),
        judge.bound(says["positive exponent after training"], by_variant(final, "lyapunov_1")),
        judge.bound(says["decay after training"], trained),
        judge.together(cancels, main="final") if cancels else judge.bound(says["cancellation"], {}),
    ]


def by_variant(networks: pd.DataFrame, column: str) -> Parts:
    """'L=8 plain init' -> values over seeds."""
    found = groups(networks, VARIANT)
    return {
        PartName(f"L={k[0]} {k[1]} {k[2]}", k[2]): list(seed_values(p, column).values())
        for k, p in found
    }


def cancellation(part: pd.DataFrame, depth: int) -> list[float]:
    """log10 of how much more the mean block's norm falls from d = 0 to L − 1 than the mean norm of the images' own."""
    means, own = (
        part.pivot(index="seed", columns="distance", values=name) for name in ("R", "R_examples")
    )
    return [float(v) for v in fall_of(means, depth) - fall_of(own, depth)]


def fall_of(wide: pd.DataFrame, depth: int) -> pd.Series[float]:
    """log10 of the value at d = 0 over that at d = L − 1, by seed."""
    return np.log10(wide[0] / wide[depth - 1])


def shifts(parts: Networks) -> Parts:
    """Mean of C(d) over d >= 1, final less init, paired by seed."""
    found: Parts = {}
    for (depth, arch, checkpoint), part in parts.items():
        other = parts.get((depth, arch, "final"))
        if checkpoint == "init" and other is not None:
            before, later = (
                p[p["distance"] > 0].groupby("seed")["C"].mean() for p in (part, other)
            )
            found[f"L={depth} {arch}"] = list(later - before)
    return found


def largest_step(part: pd.DataFrame, value: str) -> list[float]:
    """Pseudovalues over seeds of the largest step d → d + 1 of the mean over seeds."""
    wide = part.pivot(index="seed", columns="distance", values=value)
    return jackknife(wide, lambda t: float(t.mean().diff().max()))


def measured(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Values of Tables 2 and N.2, one row per seed."""
    networks = tables["networks"].assign(percent=lambda t: 100 * t["test_accuracy"])
    return scored(networks, VARIANT, DYNAMICS, tables, ["depth", "arch"])


def text(keys: tuple[int, str, str]) -> str:
    """'L=8 init', a `PartName`."""
    return PartName(f"L={keys[0]} {keys[2]}", keys[2])


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
    """log10 of the values; NaN where there is none."""
    return [math.log10(v) if v > 0 else math.nan for v in values.values()]


def values_at(part: pd.DataFrame, value: str, distance: int) -> dict[int, float]:
    """seed -> value at one distance."""
    return seed_values(part[part["distance"] == distance], value)


def decades(part: pd.DataFrame, depth: int) -> list[float]:
    """log10 R(0)/R(L−1) of each seed."""
    start, end = values_at(part, "R", 0), values_at(part, "R", depth - 1)
    return logs({s: start[s] / end[s] if end[s] else math.nan for s in start if s in end})


PLAIN = "plain_sn"
SHALLOW, DEEP = 8, 16
"""The least depth, at which rho reaches 1 in training, and the one whose decay Fig. N.1 puts into orders."""


def spectral_norm_claims(
    tables: Mapping[str, pd.DataFrame], says: Mapping[str, Statement]
) -> list[Claim]:
    """The claims of Exp. 1b, one per statement; depths and checkpoints are its parts."""
    networks, same = first(tables["networks"]), published_start(tables)
    return [
        *dynamics(networks, says, same),
        *decay(first(tables["distances"]), says, same),
        *accuracies(networks, says),
    ]


def accuracies(networks: pd.DataFrame, says: Mapping[str, Statement]) -> list[Claim]:
    """Accuracy of the spectrally normalised networks by depth, and of the residual ones."""
    plain = {
        k[0]: seed_values(rows, "test_accuracy") for k, rows in rows_of(networks, "final").items()
    }
    start = plain.get(SHALLOW, {})
    shares = {
        f"L={depth}": [values[s] / start[s] for s in values if s in start]
        for depth, values in plain.items()
        if depth != SHALLOW
    }
    final = networks[(networks["arch"] == "residual") & (networks["checkpoint"] == "final")]
    percent = {
        f"L={k[0]}": [100 * v for v in seed_values(rows, "test_accuracy").values()]
        for k, rows in groups(final, ["depth"])
    }
    return [
        judge.bound(says["accuracy drops"], shares),
        judge.number(says["accuracy of residual networks"], percent),
    ]


def rows_of(
    table: pd.DataFrame, checkpoint: str | None = None
) -> dict[tuple[int, str, str], pd.DataFrame]:
    """(depth, arch, checkpoint) -> rows of the spectrally normalised networks, at one checkpoint or at both ends."""
    wanted = (checkpoint,) if checkpoint else ENDS
    return {k: rows for k, rows in groups(table[table["arch"] == PLAIN], VARIANT) if k[2] in wanted}


def dynamics(networks: pd.DataFrame, says: Mapping[str, Statement], same: bool) -> list[Claim]:
    """rho and λ₁ by depth and checkpoint; same: see `on_own`."""

    def values(column: str, checkpoint: str | None = None) -> dict[str, list[float]]:
        found = rows_of(networks, checkpoint)
        return {text(k): list(seed_values(rows, column).values()) for k, rows in found.items()}

    after = {
        text(k): list(seed_values(rows, "rho").values())
        for k, rows in rows_of(networks, "final").items()
        if k[0] == SHALLOW
    }
    return [
        on_own(says["contracting"], values("lyapunov_1"), same),
        on_own(says["exponent at init"], values("lyapunov_1", "init"), same),
        judge.bound(says["exponent after training"], values("lyapunov_1", "final")),
        on_own(says["rho below 1"], values("rho", "init"), same),
        judge.bound(says["rho after training"], after),
    ]


def decay(distances: pd.DataFrame, says: Mapping[str, Statement], same: bool) -> list[Claim]:
    """R(d) by depth and checkpoint; same: see `on_own`."""
    init, final = rows_of(distances, "init"), rows_of(distances, "final")
    shallow = {text(k): rows for k, rows in final.items() if k[0] == SHALLOW}
    deep = {text(k): decades(rows, k[0]) for k, rows in init.items() if k[0] == DEEP}
    return [
        on_own(
            says["R² of log R"],
            {text(k): fit_of_means(rows, "R") for k, rows in init.items()},
            same,
        ),
        judge.number(says["decay in orders"], deep, same=facts(deep, same)),
        judge.bound(
            says["decay after training"],
            {text(k): decades(rows, k[0]) for k, rows in final.items() if k[0] > SHALLOW},
        ),
        judge.number(
            says["plateau of R"],
            {
                k: [float(p["R"].mean()) for _, p in rows.groupby("seed")]
                for k, rows in shallow.items()
            },
        ),
        judge.bound(says["flatness of R"], {k: losses(rows) for k, rows in shallow.items()}),
    ]


def losses(rows: pd.DataFrame) -> list[float]:
    """Share of R(0) that is lost at the largest distance, seed by seed."""
    start, end = values_at(rows, "R", 0), values_at(rows, "R", int(rows["distance"].max()))
    return [1 - end[seed] / start[seed] for seed in start if seed in end]
