"""What the DAG paper says of Exps. 1 and 1b (Section 5.1, Figs. 2 and 3; Appendix N.1), decided
from the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from experiments.dag.protocol.scores import fit_of_means, jackknife, published_start, scored
from experiments.dag.protocol.statements import Groups, Judge
from experiments.dag.protocol.summary import first, seed_fits
from runner.contract import Claim, Statement, Tables
from runner.stats import judge
from runner.stats.tables import chosen, seed_values

VARIANT = ["depth", "arch", "checkpoint"]
ENDS = ("init", "final")
TEXT = "L={depth} {checkpoint}"
TABLES = "dag.tables, class B"
"""Root cause in the errata of sentences that the paper's own tables contradict."""
CHAIN = 8
"""Depth at which Section 5.1 speaks of the whole chain of Jacobians."""
DYNAMICS = {"rho_max": "rho", "lyapunov_1": "lyapunov_1", "test_acc_percent": "percent"}
"""Metric of Table 2 -> column of `networks`."""
EXPONENTS = {"QR": "lyapunov_1", "Eq. 8": "lyapunov_log_norm"}
"""Definition of the Lyapunov exponent -> column of `networks`."""
Parts = dict[str, list[float]]


def claims(tables: Tables, says: Mapping[str, Statement]) -> Iterator[Claim]:
    """One claim per statement; depths and checkpoints are its parts."""
    decide = Judge(says, published_start(tables))
    networks = first(tables["networks"])
    curves = Groups(at_ends(first(tables["distances"])), VARIANT, TEXT)
    plain = curves.only(arch="plain")
    residual = curves.only(arch="residual")
    yield from resonance(plain, residual, decide)
    yield from coupling(plain, residual, decide)
    yield decide.on_own("scale of R at init", plain.only(checkpoint="init").each(scale))
    yield decide.on_own("scale of R at the end", plain.only(checkpoint="final").each(scale))
    yield from chain(networks, decide)
    yield from after_training(networks, plain, decide)


def at_ends(table: pd.DataFrame) -> pd.DataFrame:
    """The rows before and after training."""
    return table[table["checkpoint"].isin(ENDS)]


def resonance(plain: Groups, residual: Groups, decide: Judge) -> Iterator[Claim]:
    """How R falls with distance."""
    name = "residual slower than plain"
    slow = {}
    for checkpoint in ENDS:
        ratios = slower(plain.only(checkpoint=checkpoint), residual)
        if ratios:
            slow[checkpoint] = decide.on_own(name, ratios)
    deep = decide.on_own("norms at L=12", plain.only(depth=12).each(fall))
    yield decide.on_own("plain R² of log R", plain.each(fit_of_means, "R"))
    yield residual_slope(residual, decide)
    yield decide.together(name, slow, "init")
    yield judge.minor_error(deep, TABLES)


def residual_slope(residual: Groups, decide: Judge) -> Claim:
    """One printed rate for six curves. It is the rate of each; where no curve has it and their mean
    rounds to it, the text does not say which it is: that the mean was meant is a reading that its
    fitting suggests, no evidence.
    """
    name = "residual slope"
    says = decide.says[name]
    curves = residual.each(rates)
    made = decide.on_own(name, curves)
    seeds = {tuple(sorted(set(rows["seed"]))) for _, rows in residual.items()}
    verdicts = {*made.variants.values(), *made.other_seeds.values()}
    if made.verdict != "refuted" or len(seeds) != 1 or "confirmed" in verdicts:
        return made
    means = [sum(values) / len(values) for values in zip(*curves.values(), strict=True)]
    pooled = judge.number(says, means)
    agrees = judge.digits_agree(pooled.statistic, says.number, says.rounding)
    if pooled.verdict == "refuted" or not agrees:
        return made
    each = ", ".join(f"{name} {sum(v) / len(v):.2g}" for name, v in curves.items())
    why = (
        f"{each}; their mean {pooled.statistic:.2g}, init and final together; that this mean is "
        "meant is not printed"
    )
    return replace(made, verdict="not comparable", detail=f"{why}; {made.detail}")


def coupling(plain: Groups, residual: Groups, decide: Judge) -> Iterator[Claim]:
    """How C falls with distance: at init, after training (a variant) and from one to the other."""
    name = "plain C monotone"
    falls = {}
    for checkpoint in ENDS:
        steps = plain.only(checkpoint=checkpoint).each(largest_step, "C")
        falls[checkpoint] = decide.on_own(name, steps)
    far = plain.only(depth=12, checkpoint="init").each(values_of, "C", 11)
    moved = shifts(plain, "plain") | shifts(residual, "residual")
    yield decide.on_own("plain C at the largest distance", far)
    yield judge.together(falls, main="init")
    yield decide.on_own("residual C", residual.values("C", "min"))
    yield decide.bound("C shifts upward", moved)


def chain(networks: pd.DataFrame, decide: Judge) -> Iterator[Claim]:
    """Statements about the Jacobians of plain networks at init."""
    init = chosen(networks, arch="plain", checkpoint="init")
    depths = Groups(init, ["depth"], "L={depth}")
    at_chain = depths.only(depth=CHAIN)
    logs_of_norms = seed_values(at_chain.table, "lyapunov_log_norm").values()
    norms = {f"L={CHAIN} init": [math.exp(CHAIN * value) for value in logs_of_norms]}
    skips = by_variant(at_ends(chosen(networks, arch="residual")))
    readings = {}
    for definition, column in EXPONENTS.items():
        values = {f"L={CHAIN}": list(seed_values(at_chain.table, column).values())}
        readings[definition] = decide.on_own("Lyapunov exponent", values)
    yield decide.on_own("rho at init", depths.values("rho"))
    yield decide.on_own("rho of residual networks", skips.values("rho"))
    yield decide.on_own("norm of the chain", norms)
    yield judge.together(readings, main="QR")


def after_training(networks: pd.DataFrame, plain: Groups, decide: Judge) -> Iterator[Claim]:
    """Section 7: the decay is guaranteed at init by λ₁ < 0 and persists after training, where λ₁ >
    0."""
    init = by_variant(chosen(networks, arch="plain", checkpoint="init"))
    final = by_variant(chosen(networks, checkpoint="final"))
    readings = {}
    cancels = {}
    for definition, column in EXPONENTS.items():
        values = init.values(column)
        readings[definition] = decide.on_own("negative exponent at init", values)
    for checkpoint in dict.fromkeys(plain.table["checkpoint"]):
        shares = plain.only(checkpoint=checkpoint).each(cancellation)
        cancels[checkpoint] = decide.bound("cancellation", shares)
    cancelled = decide.bound("cancellation", {})
    if cancels:
        cancelled = judge.together(cancels, main="final")
    positive = final.values("lyapunov_1")
    yield judge.together(readings, main="QR")
    yield decide.bound("positive exponent after training", positive)
    yield decide.bound("decay after training", plain.only(checkpoint="final").each(rates))
    yield cancelled


def by_variant(networks: pd.DataFrame) -> Groups:
    """Groups named 'L=8 plain init'."""
    return Groups(networks, VARIANT, "L={depth} {arch} {checkpoint}")


def depth_of(rows: pd.DataFrame) -> int:
    return int(rows["depth"].iloc[0])


def cancellation(rows: pd.DataFrame) -> list[float]:
    """log10 of how much more the mean block's norm falls from d = 0 to L − 1 than the mean norm of
    the images' own."""
    excess = log_fall(rows, "R") - log_fall(rows, "R_examples")
    return [float(value) for value in excess]


def log_fall(rows: pd.DataFrame, column: str) -> pd.Series[float]:
    """log10 of the value at d = 0 over that at d = L − 1, by seed."""
    wide = rows.pivot(index="seed", columns="distance", values=column)
    return np.log10(wide[0] / wide[depth_of(rows) - 1])


def shifts(curves: Groups, arch: str) -> Parts:
    """Mean of C(d) over d >= 1, final less init, paired by seed."""
    found = {}
    init, final = (Groups(curves.only(checkpoint=c).table, ["depth"], "L={depth}") for c in ENDS)
    for name, before, later in init.pairs(final):
        found[f"{name} {arch}"] = list(mean_coupling(later) - mean_coupling(before))
    return found


def mean_coupling(rows: pd.DataFrame) -> pd.Series[float]:
    """Mean of C(d) over d >= 1, by seed."""
    return rows[rows["distance"] > 0].groupby("seed")["C"].mean()


def largest_step(part: pd.DataFrame, value: str) -> list[float]:
    """Pseudovalues over seeds of the largest step d → d + 1 of the mean over seeds."""
    wide = part.pivot(index="seed", columns="distance", values=value)
    return jackknife(wide, lambda t: float(t.mean().diff().max()))


def measured(tables: Tables) -> pd.DataFrame:
    """Values of Tables 2 and N.2, one row per seed."""
    networks = tables["networks"].assign(percent=lambda t: 100 * t["test_accuracy"])
    return scored(networks, VARIANT, DYNAMICS, tables, ["depth", "arch"])


def rates(part: pd.DataFrame) -> list[float]:
    """b of each seed's own fit of log R."""
    return [fit.decay for fit in seed_fits(part, "R")]


def slower(plain: Groups, residual: Groups) -> Parts:
    """log10 of the plain decay rate over the residual one, by depth and checkpoint."""
    found = {}
    for name, rows, other in plain.pairs(residual):
        pairs = zip(rates(rows), rates(other), strict=False)
        found[name] = [math.log10(abs(a / b)) for a, b in pairs]
    return found


def logs(values: Mapping[int, float]) -> list[float]:
    """log10 of the values; NaN where there is none."""
    return [math.log10(value) if value > 0 else math.nan for value in values.values()]


def values_at(part: pd.DataFrame, value: str, distance: int) -> dict[int, float]:
    """seed -> value at one distance."""
    return seed_values(chosen(part, distance=distance), value)


def values_of(rows: pd.DataFrame, value: str, distance: int) -> list[float]:
    """`values_at` without the seeds."""
    return list(values_at(rows, value, distance).values())


def scale(rows: pd.DataFrame) -> list[float]:
    """Order of magnitude of R(0)."""
    return logs(values_at(rows, "R", 0))


def decades(part: pd.DataFrame, depth: int) -> list[float]:
    """log10 R(0)/R(L−1) of each seed."""
    start = values_at(part, "R", 0)
    end = values_at(part, "R", depth - 1)
    ratios = {}
    for seed in start:
        if seed in end:
            ratios[seed] = start[seed] / end[seed] if end[seed] else math.nan
    return logs(ratios)


def fall(rows: pd.DataFrame) -> list[float]:
    """`decades` of the rows' own depth."""
    return decades(rows, depth_of(rows))


PLAIN = "plain_sn"
SHALLOW = 8
DEEP = 16
"""The least depth, at which rho reaches 1 in training, and the one whose decay Fig. N.1 puts into
orders."""


def spectral_norm_claims(tables: Tables, says: Mapping[str, Statement]) -> Iterator[Claim]:
    """The claims of Exp. 1b, one per statement; depths and checkpoints are its parts."""
    decide = Judge(says, published_start(tables))
    networks = first(tables["networks"])
    yield from dynamics(normalised(networks), decide)
    yield from decay(normalised(first(tables["distances"])), decide)
    yield from accuracies(networks, decide)


def normalised(table: pd.DataFrame) -> Groups:
    """The spectrally normalised networks before and after training."""
    return Groups(at_ends(chosen(table, arch=PLAIN)), VARIANT, TEXT)


def accuracies(networks: pd.DataFrame, decide: Judge) -> Iterator[Claim]:
    """Accuracy of the spectrally normalised networks by depth, and of the residual ones."""
    final = chosen(networks, checkpoint="final")
    plain = Groups(chosen(final, arch=PLAIN), ["depth"], "L={depth}").each(
        seed_values, "test_accuracy"
    )
    start = plain.pop(f"L={SHALLOW}", {})
    shares = {}
    for name, values in plain.items():
        shares[name] = [values[seed] / start[seed] for seed in values if seed in start]
    residual = chosen(final, arch="residual").assign(percent=lambda t: 100 * t["test_accuracy"])
    percent = Groups(residual, ["depth"], "L={depth}").values("percent")
    yield decide.bound("accuracy drops", shares)
    yield decide.number("accuracy of residual networks", percent)


def dynamics(networks: Groups, decide: Judge) -> Iterator[Claim]:
    """rho and λ₁ by depth and checkpoint."""
    init = networks.only(checkpoint="init")
    final = networks.only(checkpoint="final")
    after = final.only(depth=SHALLOW).values("rho")
    yield decide.on_own("contracting", networks.values("lyapunov_1"))
    yield decide.on_own("exponent at init", init.values("lyapunov_1"))
    yield decide.bound("exponent after training", final.values("lyapunov_1"))
    yield decide.on_own("rho below 1", init.values("rho"))
    yield decide.bound("rho after training", after)


def decay(curves: Groups, decide: Judge) -> Iterator[Claim]:
    """R(d) by depth and checkpoint."""
    init = curves.only(checkpoint="init")
    final = curves.only(checkpoint="final")
    shallow = final.only(depth=SHALLOW)
    deeper = Groups(final.table[final.table["depth"] > SHALLOW], VARIANT, TEXT)
    yield decide.on_own("R² of log R", init.each(fit_of_means, "R"))
    yield decide.on_own("decay in orders", init.only(depth=DEEP).each(fall))
    yield decide.bound("decay after training", deeper.each(fall))
    yield decide.number("plateau of R", shallow.values("R", "mean"))
    yield decide.bound("flatness of R", shallow.each(losses))


def losses(rows: pd.DataFrame) -> list[float]:
    """Share of R(0) that is lost at the largest distance, seed by seed."""
    start = values_at(rows, "R", 0)
    end = values_at(rows, "R", int(rows["distance"].max()))
    return [1 - end[seed] / start[seed] for seed in start if seed in end]
