"""What the DAG paper says of Exps. 3 and 3b (Section 5.3, Appendices N.4 and N.6), decided from the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from experiments.dag.protocol.summary import (
    first,
    gap,
    groups,
    long_format,
    over_seeds,
    seed_values,
    variance_components,
)
from runner import stats
from runner.contract.experiment import Claim, decide
from runner.stats import judge
from runner.training import CHECKPOINTS

if TYPE_CHECKING:
    import pandas as pd

PIECEWISE_LINEAR = ("relu", "leaky_relu")
SECTION = "Section 5.3"
PAPER_PROBES = 100
"""Probes behind the published Table N.6; its text says 30."""


def gap_and_curvature(gaps: pd.DataFrame, networks: pd.DataFrame, checkpoint: str) -> pd.DataFrame:
    """activation, gap and E[σ''²] at a checkpoint, means over seeds, on the papers' images."""
    part = first(gaps)[lambda t: t["checkpoint"] == checkpoint]
    curvature = first(networks)[lambda t: t["checkpoint"] == checkpoint]
    left = over_seeds(part, ["activation"], "gap").rename(columns={"mean": "gap"})
    right = over_seeds(curvature, ["activation"], "sigma_pp_squared").rename(columns={"mean": "curvature"})
    return left.merge(right[["activation", "curvature"]], on="activation")


def correlations(gaps: pd.DataFrame, networks: pd.DataFrame) -> list[stats.Statistic]:
    """Linear fit and Spearman's rank correlation of gap against E[σ''²] over the activations, by checkpoint."""
    found = []
    for checkpoint in CHECKPOINTS:
        points = gap_and_curvature(gaps, networks, checkpoint)
        about: stats.About = {"name": "gap against E[σ''²]", "group": f"checkpoint={checkpoint}"}
        about |= {"figure": "fig5_gap_and_curvature", "where": f"Fig. 5, {SECTION}"}
        found.append(stats.linear(points["curvature"], points["gap"], **about))
        about["name"] = "rank of gap and E[σ''²]"
        found.append(stats.spearman(points["curvature"], points["gap"], **about))
    return found


def rank_claim(name: str, gaps: pd.DataFrame, networks: pd.DataFrame, checkpoint: str, **about: Any) -> Claim:
    """The activations' gaps are in the order of E[σ''²]; activations of equal E[σ''²] may be in any order."""
    points = gap_and_curvature(gaps, networks, checkpoint)
    test = stats.spearman(points["curvature"], points["gap"], name="")
    best = stats.spearman(points["curvature"], points["curvature"].rank(method="first"), name="").statistic
    holds = None if gaps["seed"].nunique() < judge.FEWEST_SEEDS else test.statistic >= best - 1e-9
    order = ", ".join(f"{a} {g:.3g}" for a, g in zip(points["activation"], points["gap"], strict=True))
    detail = f"gaps {order}; ρ of an ordering without ties in the gap is at most {best:.3f}; exact p {test.p:.2g}"
    return Claim(
        name,
        where=SECTION,
        verdict=decide(holds),
        statistic=test.statistic,
        threshold=f">= {best:.3f}",
        detail=detail,
        **about,
    )


def without_norm(gaps: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
    """The claims of Exp. 3."""
    networks, found = tables["networks"], []
    test = {s.kind: s for s in correlations(gaps, networks)[:2]}
    enough = gaps["seed"].nunique() >= judge.FEWEST_SEEDS
    fit, rank = test["linear"], test["spearman"]
    statement = "the linear fit of Gap(init) on E[σ''²] has R² = 0.908 over five activations"
    detail = f"n = {fit.n_a} activations, means over seeds; slope {fit.slope:.3g}"
    close = decide(abs(fit.r2 - 0.908) <= 0.0005 if enough else None)
    where = f"Fig. 5, {SECTION}"
    found.append(Claim("linear fit of the gap", statement, where, close, fit.r2, "0.908 ± 0.0005", detail))
    statement = "Gap(init) is in the order of E[σ''²] (printed as ρ = 0.97 and as ρ = 1)"
    found.append(rank_claim("gap ranks as E[σ''²]", gaps, networks, "init", statement=statement))
    detail = f"exact, over all orders; the smallest p that the ties allow is {rank.p_min:.3g}"
    detail += "" if rank.p_min < 0.01 else ": five activations cannot give p < 0.01, whatever the data"
    small = decide(rank.p < 0.01 if enough else None)
    found.append(Claim("p of the ranking", "p < 0.01 at n = 5", where, small, rank.p, "< 0.01", detail))
    found += zero_tensor(tables["pairs"])
    found += accuracy(networks)
    if "stochastic" in tables:
        found += estimator(tables["stochastic"])
    return found


def zero_tensor(pairs: pd.DataFrame) -> Iterator[Claim]:
    """H^T = 0 without smooth nonlinearities."""
    for activation, part in pairs[pairs["activation"].isin(PIECEWISE_LINEAR)].groupby("activation", sort=False):
        largest = list(part.groupby("seed")["frob_tensor"].max())
        yield judge.bound(
            f"H^T of {activation}",
            largest,
            high=1e-7,
            known=1,
            where=SECTION,
            statement="‖H^T‖_F < 1e-7 for every pair and checkpoint",
        )


def accuracy(networks: pd.DataFrame) -> Iterator[Claim]:
    """Smooth activations do not learn without LayerNorm."""
    final = first(networks)[lambda t: t["checkpoint"] == "final"]
    for activation, part in final[~final["activation"].isin(PIECEWISE_LINEAR)].groupby("activation", sort=False):
        values = [100 * v for v in seed_values(part, "test_accuracy").values()]
        yield judge.bound(
            f"accuracy of {activation}",
            values,
            high=12,
            where=SECTION,
            statement="without LayerNorm smooth activations stay below 12 % accuracy",
        )


def estimator(stochastic: pd.DataFrame) -> Iterator[Claim]:
    """Statements about the estimate from 100 probes, over all draws of all seeds."""
    limits = {"init": 0.82, "final": 0.33}
    kept = stochastic[stochastic["status"] == "ok"]
    for (probes, checkpoint), part in groups(kept, ["probes", "checkpoint"]):
        if checkpoint not in limits:
            continue
        group = f"{probes} probes, {checkpoint}"
        single = part["discrepancy_percent"].abs()
        means = part.groupby("seed")["discrepancy_percent"].mean()
        yield judge.bound(
            "discrepancy of one estimate",
            list(part.assign(a=single).groupby("seed")["a"].mean()),
            high=limits[checkpoint],
            group=group,
            where="Appendix N.6",
            statement=f"exact and stochastic gap differ by at most {limits[checkpoint]} %",
        )
        yield judge.bound(
            "overestimation",
            list(means),
            low=0.0,
            group=group,
            where="Appendix N.6",
            statement="the stochastic estimator systematically overestimates the gap",
        )


def with_norm(gaps: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
    """The claims of Exp. 3b."""
    statement = "with LayerNorm the gap keeps the ranking by E[σ''²] (ρ = 1.0)"
    networks = tables["networks"]
    found = [rank_claim("gap ranks as E[σ''²]", gaps, networks, c, statement=statement, group=c) for c in CHECKPOINTS]
    final = first(networks)[lambda t: t["checkpoint"] == "final"]
    for activation, part in final.groupby("activation", sort=False):
        values = [100 * v for v in seed_values(part, "test_accuracy").values()]
        found.append(
            judge.bound(
                f"accuracy of {activation}",
                values,
                low=50,
                where=SECTION,
                statement="with LayerNorm all activations pass 50 % accuracy",
            )
        )
    return found


def measured(gaps: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Values of Tables 4, 5, N.5 and N.6, one row per seed."""
    import pandas as pd

    keys = ["activation", "checkpoint"]
    own, networks = first(gaps), first(tables["networks"])
    networks = networks.assign(percent=100 * networks["test_accuracy"])
    sums = {"frob_tensor_sum_over_pairs": "tensor", "frob_gn_sum_over_pairs": "gn", "gap": "gap"}
    parts = [
        long_format(own, keys, {"gap_global": "gap"}),
        long_format(networks, keys, {"E_sigma_pp_sq": "sigma_pp_squared", "test_acc_percent": "percent"}),
        long_format(first(tables["distances"]).assign(gap=gap), [*keys, "distance"], sums),
        changes(own),
    ]
    if "stochastic" in tables:
        parts.append(stochastic_values(tables["stochastic"]))
    return pd.concat(parts, ignore_index=True)


def changes(gaps: pd.DataFrame) -> pd.DataFrame:
    """Change from init to final in percent of the mean init gap, so that the mean over seeds is the change of means."""
    wide = gaps.pivot(index=["activation", "seed"], columns="checkpoint", values="gap").reset_index()
    scale = wide.groupby("activation")["init"].transform("mean")
    wide["value"] = 100 * (wide["final"] - wide["init"]) / scale.where(scale > 0)
    return wide[["activation", "seed", "value"]].assign(metric="gap_change_percent", checkpoint="init->final")


def stochastic_values(stochastic: pd.DataFrame) -> pd.DataFrame:
    """Table N.6 from the first draw of 100 probes: its discrepancies are of the means over seeds, without sign."""
    part = stochastic[(stochastic["probes"] == PAPER_PROBES) & (stochastic["draw"] == 0)]
    mean = part.groupby(["activation", "checkpoint"])[["gap_exact", "gap_stochastic"]].transform("mean")
    sign = (mean["gap_stochastic"] >= mean["gap_exact"]).map({True: 1.0, False: -1.0})
    shift = (part["gap_stochastic"] - part["gap_exact"]) / mean["gap_exact"].where(mean["gap_exact"] > 0)
    names = {"gap_exact": "gap_exact", "gap_stochastic": "gap_stochastic", "abs_rel_discrepancy_percent": "percent"}
    return long_format(part.assign(percent=100 * sign * shift), ["activation", "checkpoint"], names)


def notes(gaps: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Findings in plain words."""
    found = []
    for (activation,), part in groups(gaps[gaps["checkpoint"] == "init"], ["activation"]):
        own, c = first(part)["gap"].mean(), variance_components(part, "gap")
        random = part[part["images"] != 0].groupby("images")["gap"].mean()
        if own > 0 and not math.isnan(c.images):
            found.append(
                f"{activation}, init: gap {own:.3g} on the paper's images, {random.min():.3g} to {random.max():.3g} on "
                f"{len(random)} random sets of the same size (means over seeds); std {math.sqrt(c.within):.2g} between "
                f"sets of images of one network, {math.sqrt(c.seeds):.2g} between seeds."
            )
    init = first(gaps)[lambda t: t["checkpoint"] == "init"]
    for (activation,), part in groups(init[init["gap"] > 0], ["activation"]):
        found.append(
            f"{activation}, init: ratio of sums {part['gap'].mean():.3g} (the tables'), mean of Eq. 4 over pairs "
            f"{part['gap_of_pairs'].mean():.3g}."
        )
    return found
