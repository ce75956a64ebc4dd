"""What the DAG paper says of Exps. 3 and 3b (Section 5.3, Appendix N.4), decided from the
tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from experiments.dag.protocol.scores import (
    facts,
    fit_of_means,
    jackknife,
    printed,
    published_start,
)
from experiments.dag.protocol.statements import Groups, Judge, Parts
from experiments.dag.protocol.summary import first, in_percent, over_seeds, per_seed
from runner import stats
from runner.contract import Claim, Statement, Tables, Verdict, decide
from runner.stats import judge
from runner.stats.intervals import joined, lost_text, withheld
from runner.stats.tables import chosen, seed_values
from runner.training import CHECKPOINTS

PIECEWISE_LINEAR = ("relu", "leaky_relu")
SECTION = "Section 5.3"
RANKING = "dag.ranking, class B"
"""Root cause in the errata of the printed p: the order stands, and scipy's default prints this
p."""
SCALING = "dag.scaling, class B"
"""Root cause in the errata of the power of σ'': T is linear in it (Eq. 1)."""
ZERO_TENSOR = "H^T of piecewise linear networks"
ZERO = (
    "the engine routes the activation's second derivative, an exact zero of the code; `hess-run "
    "audit dag.zeros.exp3` has the block by automatic differentiation"
)


def gap_and_curvature(gaps: pd.DataFrame, networks: pd.DataFrame, checkpoint: str) -> pd.DataFrame:
    """activation, gap and E[σ''²] at a checkpoint, means over seeds, on the papers' images."""
    rows = chosen(first(gaps), checkpoint=checkpoint)
    gap = over_seeds(rows, ["activation"], "gap")
    curvature = chosen(first(networks), checkpoint=checkpoint)
    means = over_seeds(curvature, ["activation"], "sigma_pp_squared")
    renamed = means.rename(columns={"mean": "curvature"})
    means = renamed[["activation", "curvature"]]
    gaps_of_means = gap.rename(columns={"mean": "gap"})
    return gaps_of_means.merge(means, on="activation")


def correlations(
    gaps: pd.DataFrame, networks: pd.DataFrame, figure: str = "fig5_gap_and_curvature"
) -> list[stats.Statistic]:
    """Linear fit and Spearman's rank correlation of gap against E[σ''²] over the activations, by
    checkpoint. figure: that shows them."""
    found = []
    for checkpoint in CHECKPOINTS:
        points = gap_and_curvature(gaps, networks, checkpoint)
        about = {
            "name": "gap against E[σ''²]",
            "group": f"checkpoint={checkpoint}",
            "figure": figure,
            "where": f"Fig. 5, {SECTION}",
        }
        line = stats.linear(points["curvature"], points["gap"], **about)
        found.append(line)
        about["name"] = "rank of gap and E[σ''²]"
        rank = stats.spearman(points["curvature"], points["gap"], **about)
        found.append(rank)
    return found


def by_activation(table: pd.DataFrame) -> Groups:
    """Groups named after the activation."""
    return Groups(table, ["activation"], "{activation}")


def smooth(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of activations with curvature."""
    return table[~table["activation"].isin(PIECEWISE_LINEAR)]


def piecewise_linear(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of activations without curvature."""
    return table[table["activation"].isin(PIECEWISE_LINEAR)]


def percents(networks: pd.DataFrame) -> Parts:
    """Accuracy after training in percent, by activation and seed."""
    final = chosen(first(networks), checkpoint="final")
    return by_activation(in_percent(final)).values("percent")


def without_norm(
    gaps: pd.DataFrame, tables: Tables, says: Mapping[str, Statement]
) -> Iterator[Claim]:
    """The claims of Exp. 3."""
    networks = tables["networks"]
    same = published_start(tables)
    judged = Judge(says, same)
    fits = {c: r2_of_means(gaps, networks, c) for c in CHECKPOINTS}
    start = {"": fits.pop("init")}
    power = {"init": power_of_curvature(gaps, networks, "init")}
    falls = decays(first(tables["distances"]))
    percent = percents(smooth(networks))
    at_start = facts(start, same)
    known = printed_again(percent) if same else {}
    accuracy = judge.bound(
        says["accuracy of smooth activations"],
        percent,
        same=known,
    )
    yield from zero_tensor(tables, says)
    yield judge.number(says["linear fit of the gap"], start, same=at_start)
    yield judge.bound(says["R² above 0.9"], start, same=at_start)
    yield rank_claim(says["rank correlation"], gaps, networks, ("init",))
    yield p_of_ranking(says["p of the ranking"], gaps, networks)
    yield judged.bound("correlation persists", fits)
    yield judge.minor_error(judged.on_own("scaling of H^T", power), SCALING)
    yield judged.on_own("decay of the parts", falls)
    yield judge.constructed(
        says["H^T at the largest distance"], "the recursion has no tensor term there"
    )
    yield accuracy
    yield judged.bound("gap stabilises", late_changes(gaps))


def with_norm(gaps: pd.DataFrame, tables: Tables, says: Mapping[str, Statement]) -> Iterator[Claim]:
    """The claims of Exp. 3b."""
    networks = tables["networks"]
    judged = Judge(says)
    trained = chosen(first(gaps), checkpoint="final")
    final = by_activation(trained).each(seed_values, "gap")
    relu = final.get("relu", {})
    flat = {}
    added = {}
    for activation, values in final.items():
        if activation in PIECEWISE_LINEAR:
            flat[activation] = list(values.values())
        else:
            added[activation] = [values[seed] - relu[seed] for seed in values if seed in relu]
    rank = says["gap ranks as E[σ''²]"]
    yield rank_claim(rank, smooth(gaps), networks, CHECKPOINTS, main="final")
    yield judged.number("gap of piecewise linear networks", flat)
    yield judged.bound("smooth activations add", added)
    yield judged.bound("accuracy", percents(networks))
    yield judged.bound("gap stabilises", late_changes(gaps))


def printed_again(percent: Parts) -> dict[str, float]:
    """activation -> mean accuracy after training, where it is the printed one in every digit: the
    trained networks are then the paper's as far as the table shows."""
    paper = chosen(printed("exp3_gn_gap"), metric="test_acc_percent", checkpoint="final")
    found = {}
    for activation, values in percent.items():
        rows = chosen(paper, activation=activation)
        mean = sum(values) / len(values)
        if len(rows) and abs(mean - rows["mean"].iloc[0]) <= 0.05:
            found[activation] = mean
    return found


def wide_points(
    gaps: pd.DataFrame, networks: pd.DataFrame, checkpoint: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Gap and E[σ''²] on the papers' images: a row per seed, a column per activation. A gap without
    its E[σ''²] is missing."""
    gap = chosen(first(gaps), checkpoint=checkpoint)
    curvature = chosen(first(networks), checkpoint=checkpoint)
    left = per_seed(gap, "gap", "activation")
    right = per_seed(curvature, "sigma_pp_squared", "activation")
    right = right.reindex(index=left.index, columns=left.columns)
    return left.where(np.isfinite(right)), right


def r2_of_means(gaps: pd.DataFrame, networks: pd.DataFrame, checkpoint: str) -> list[float]:
    """Pseudovalues over seeds of R² of the linear fit of the mean gaps on the mean E[σ''²]."""
    gap, curvature = wide_points(gaps, networks, checkpoint)

    def r2(sample: pd.DataFrame) -> float:
        means = curvature.loc[sample.index].mean()
        return stats.linear(means, sample.mean(), name="").r2

    return jackknife(gap, r2)


def power_of_curvature(gaps: pd.DataFrame, networks: pd.DataFrame, checkpoint: str) -> list[float]:
    """Pseudovalues over seeds of the exponent: slope of log gap on log E[σ''²] over the smooth
    activations' means."""
    gap, curvature = wide_points(smooth(gaps), networks, checkpoint)
    if len(gap.columns) < 3:
        return []
    x = np.log(curvature)

    def slope(sample: pd.DataFrame) -> float:
        y = np.log(sample.mean())
        means = x.loc[sample.index].mean()
        return stats.linear(means, y, name="").slope

    return jackknife(gap, slope)


def late_changes(gaps: pd.DataFrame) -> Parts:
    """Pseudovalues over seeds of the change of the mean gap from mid to final, as a share, where
    there is a gap."""
    found: Parts = {}
    for activation, part in by_activation(first(gaps)).items():
        wide = per_seed(part, "gap", "checkpoint")
        trained = {"mid", "final"} <= set(wide.columns)
        if trained and (wide["mid"] > 0).any():
            found[activation] = jackknife(wide[["mid", "final"]], _late_change)
    return found


def _late_change(sample: pd.DataFrame) -> float:
    middle = sample["mid"].mean()
    return float(sample["final"].mean() / middle - 1)


def rank_claim(
    says: Statement,
    gaps: pd.DataFrame,
    networks: pd.DataFrame,
    checkpoints: Sequence[str],
    main: str | None = None,
) -> Claim:
    """The activations' mean gaps are in the order of E[σ''²], whichever seed is left out:
    `judge.together` of the checkpoints.

    Confirmed when ρ keeps the statement's limits for all seeds and without each, refuted when it
    never does, inconclusive between the two or below `judge.FEWEST_SEEDS` seeds.
    """
    found = {}
    listed = []
    lost = total = 0
    for checkpoint in checkpoints:
        every, curvature = wide_points(gaps, networks, checkpoint)
        complete = np.isfinite(every).all(axis=1)
        gap = every[complete]
        lost += len(every) - len(gap)
        total += len(every)
        samples = [gap]
        if len(gap) > 1:
            samples += [gap.drop(seed) for seed in gap.index]
        rho = []
        for sample in samples:
            means = curvature.loc[sample.index].mean()
            rank = stats.spearman(means, sample.mean(), name="")
            rho.append(rank.statistic)
        kept = [agrees(says, value) for value in rho]
        verdict = _unanimous(kept) if len(gap) >= judge.FEWEST_SEEDS else decide(None)
        of_checkpoint = withheld(verdict, len(every) - len(gap))
        found[checkpoint] = judge.claim(says, of_checkpoint, rho[0])
        ordered = gap.mean().sort_values()
        order = ", ".join(f"{a} {g:.3g}" for a, g in ordered.items())
        listed.append(
            f"{checkpoint}: ρ = {rho[0]:.3f}, {min(rho):.3f} to {max(rho):.3f} without a seed "
            f"({order})"
        )
    made = judge.together(found, main)
    lost_seeds = lost_text(lost, total, "seeds")
    return replace(made, detail=joined(lost_seeds, *listed, made.detail))


def _unanimous(kept: Sequence[bool]) -> Verdict:
    """Confirmed where all hold, refuted where none does."""
    if all(kept):
        return decide(True)
    if any(kept):
        return decide(None)
    return decide(False)


def agrees(says: Statement, value: float) -> bool:
    """Whether a value keeps the limits or, where a number is printed, rounds to it."""
    if math.isnan(says.number):
        return says.holds(value)
    return judge.digits_agree(value, says.number, says.rounding)


def p_of_ranking(says: Statement, gaps: pd.DataFrame, networks: pd.DataFrame) -> Claim:
    """The exact p of the rank correlation at init, with the smallest that five activations
    allow."""
    fits = correlations(gaps, networks)
    ranks = [s for s in fits if s.kind == "spearman"]
    rank = ranks[0]
    detail = (
        f"n = {rank.n_a} activations, ρ = {rank.statistic:.3f}; exact over all orders; the "
        f"smallest p that the ties allow is {rank.p_min:.3g}"
    )
    if gaps["seed"].nunique() < judge.FEWEST_SEEDS:
        return judge.claim(says, "inconclusive", rank.p, detail)
    if not says.holds(rank.p_min):
        detail += ": no data could give the printed p by an exact test"
    made = judge.exact(says, rank.p, detail)
    return judge.minor_error(made, RANKING)


def zero_tensor(tables: Tables, says: Mapping[str, Statement]) -> list[Claim]:
    """H^T = 0 without smooth nonlinearities: by products that know nothing of it, where they are
    stored."""
    norm = says[ZERO_TENSOR]
    ratio = says["gap of piecewise linear networks"]
    pairs = piecewise_linear(tables["pairs"])
    zero = judge.constructed(norm, ZERO)
    if (pairs["frob_tensor"].dropna() != 0).any():
        largest = by_activation(pairs).values("frob_tensor", "max")
        zero = judge.bound(norm, largest, known=1)
    if "stochastic" not in tables:
        return [zero]
    part = piecewise_linear(tables["stochastic"])
    networks = Groups(part, ["activation", "checkpoint"], "{activation} {checkpoint}")
    largest_gap = networks.values("gap_stochastic", "max")
    return [zero, judge.bound(ratio, largest_gap, known=2)]


def decays(distances: pd.DataFrame) -> dict[str, list[float]]:
    """Pseudovalues of R² of log Σ‖H^T‖ and log Σ‖H^GN‖ against d at init, smooth activations."""
    found: Parts = {}
    init = smooth(chosen(distances, checkpoint="init"))
    for activation, part in by_activation(init).items():
        last = part["distance"].max()
        shorter = part[part["distance"] < last]
        found[f"{activation} H^GN"] = fit_of_means(part, "gn")
        found[f"{activation} H^T"] = fit_of_means(shorter, "tensor")
    return found
