"""The statements of the scalar-spectrum paper, and those made here about the edge of stability,
held to the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from experiments.printed import statements
from experiments.scalar_spectrum.settings import ScalarSpectrum
from runner.contract import Claim, Statement
from runner.stats import judge

TAIL = 20
"""Last steps of an edge run that tell whether it has settled."""
SOLVED = 1e-11
"""Relative distance of ⟨w,v⟩ from θ* at which a step counts as at the solution."""
FIG3 = "Section 2, Fig. 3"
MINOR_ERRORS = {"phases": ("θ* > 0", "scalar.phases, class B")}
"""Statements that fail as published, with the case in which they hold and the root cause in the
errata: nothing rests on the rest, so that their one verdict is *minor error*."""
WIGGLES, LAST = 3, 10
"""Changes of sign that count as wiggling, and values at the end that show where a run stays."""
RUN = ["network", "width", "start", "factor", "seed"]
OPEN = (
    "the scale of the wedge data is not printed and decides this: at a small one the second "
    "outlier changes sign "
)
OPEN += "once, at a large one it wiggles"
TARGETS = "the text does not say whether the targets are scaled with the inputs"

Tables = Mapping[str, pd.DataFrame]
Says = Mapping[str, Statement]
Made = Iterator[tuple[str, Claim]]
"""(variant, claim)."""


def claims(setup: ScalarSpectrum, tables: Tables) -> list[Claim]:
    """One claim per statement that the tables at hand can speak to."""
    says = statements("scalar_spectrum")
    makers: list[tuple[str, Callable[[ScalarSpectrum, Tables, Says], Made]]] = [
        ("scaling", _scaling),
        ("relu_cells", _cells),
        ("pairs", _closed_form),
        ("pairs", _phases),
        ("pairs", _pairs),
        ("bias", _bias),
        ("edge", _edge),
    ]
    made = [
        found
        for table, make in makers
        if len(tables.get(table, ()))
        for found in make(setup, tables, says)
    ]
    holds = {(claim.name, variant) for variant, claim in made if claim.verdict == "confirmed"}
    return [_protocol_unknown(_minor_error(claim, holds)) for claim in judge.gathered(made)]


def _minor_error(claim: Claim, holds: set[tuple[str, str]]) -> Claim:
    case, where = MINOR_ERRORS.get(claim.name, ("", ""))
    return judge.minor_error(claim, where) if (claim.name, case) in holds else claim


def _protocol_unknown(claim: Claim) -> Claim:
    """Fig. 3's sentences are not refuted by runs on data of another scale than the paper's, which
    is not printed, nor confirmed by what only a large scale shows.

    Proportionality is not refuted by targets that are kept: it holds where they are scaled with the
    inputs.
    """
    if (
        claim.name == "proportional"
        and "confirmed" in claim.variants.values()
        and claim.verdict == "refuted"
    ):
        return replace(claim, verdict="not comparable", detail=f"{claim.detail}; {TARGETS}")
    if claim.where == FIG3 and (
        claim.verdict == "refuted" or (claim.name, claim.verdict) == ("wiggles", "confirmed")
    ):
        return replace(claim, verdict="not comparable", detail=f"{claim.detail}; {OPEN}")
    return claim


def _exact(says: Statement, value: float, detail: str) -> Claim:
    return judge.exact(says, {"": value}, detail)


def _voted(setup: ScalarSpectrum, says: Statement, votes: pd.DataFrame) -> Claim:
    """A statement about random starts: a seed shows it when at least `share` of their runs show it.

    votes: columns seed and shown.
    """
    by = votes.groupby("seed")["shown"].mean() if len(votes) else pd.Series(dtype=float)
    found = {int(str(seed)): "yes" if share >= setup.share else "no" for seed, share in by.items()}
    verdict, text = judge.verdict_of_data_sets(found, judge.DataSetRule(setup.share, setup.runs))
    share = float(votes["shown"].mean()) if len(votes) else float("nan")
    detail = (
        f"{int(votes['shown'].sum())} of {len(votes)} runs; {text.replace('data sets', 'seeds')}"
    )
    return judge.claim(
        says, verdict, share, detail, threshold=f">= {setup.share:g} of the runs of a seed"
    )


def _scaling(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    frame = tables["scaling"]
    top = (
        frame[frame["targets"] == "fixed"]
        .groupby(["scaled_width", "seed", "sigma"])["eigenvalue"]
        .max()
        .unstack()
    )
    if 1.0 in top.columns and top.columns.min() < 1:
        low = top.columns.min()
        detail = f"sharpness at sigma = 1 over sigma = {low:g}, smallest over {len(top)} networks"
        yield "", _exact(says["normalising_sharpens"], float((top[1.0] / top[low]).min()), detail)
    for targets, part in frame.groupby("targets"):
        scaled = part.assign(unit=part["eigenvalue"] / part["sigma"] ** 2)
        extremes = scaled.groupby(["scaled_width", "seed", "sigma"])["unit"].agg(["max", "min"])
        spread = extremes.groupby(["scaled_width", "seed"]).agg(
            lambda s: np.ptp(s) / np.abs(s).max()
        )
        detail = "relative spread of (largest, smallest eigenvalue)/sigma^2 over sigma"
        yield (
            f"targets {targets}",
            _exact(says["proportional"], float(spread.to_numpy().max()), detail),
        )


def _cells(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    frame, density = tables["relu_cells"], tables["density"]
    largest = frame.groupby("seed")["dense"].transform(lambda s: s.abs().max())
    error = (frame["eigenvalue"] - frame["dense"]).abs() / largest
    unit = density.assign(unit=density["eigenvalue"] / density["share"])
    unit["rank"] = unit.groupby(["seed", "cell", "copies"])["unit"].rank(method="first")
    spread = unit.groupby(["seed", "cell", "rank"])["unit"].agg(
        lambda s: np.ptp(s) / np.abs(s).max()
    )
    yield (
        "",
        _exact(says["relu_closed_form"], float(error.max()), "relative to a dense eigensolver"),
    )
    detail = "relative spread of eigenvalue/density when samples x <= 0 are repeated"
    yield "", _exact(says["density"], float(spread.max()), detail)


def _closed_form(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    for network, part in tables["pairs"].groupby("network"):
        steps = f"{len(part)} steps"
        yield (
            str(network),
            _exact(says["closed_form_in_training"], float(part["dense_error"].max()), steps),
        )
        slack = ((part["bound"] - part["smallest"]) / part["trace"]).max()
        yield str(network), _exact(says["smallest_bound"], float(slack), steps)


def _phase_violation(part: pd.DataFrame, printed: bool) -> float:
    """How far λ1 − tr H or λ2 lies on the wrong side for its phase, relative to tr H; −inf without
    rows."""
    target, slope = part["target"], part["slope"]
    late = (slope >= target / 3) & (slope <= target) if printed else part["phase"] == "late"
    side = np.where(late, -1.0, 1.0)
    wrong = (
        np.maximum(side * (part["trace"] - part["first"]), side * part["second"]) / part["trace"]
    )
    return float(wrong.max()) if len(part) else float("-inf")


def _phases(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    frame = tables["pairs"]
    frame = frame[frame["status"] == "ok"]
    for name, part in (
        ("θ* > 0", frame[frame["target"] > 0]),
        ("θ* < 0", frame[frame["target"] < 0]),
    ):
        if len(part):
            yield name, _exact(says["phases"], _phase_violation(part, True), f"{len(part)} steps")
    yield (
        "any θ*",
        _exact(says["phases_corrected"], _phase_violation(frame, False), f"{len(frame)} steps"),
    )
    solved = frame[(frame["slope"] - frame["target"]).abs() <= SOLVED * frame["target"].abs()]
    if len(solved):
        off = (
            np.maximum((solved["first"] - solved["trace"]).abs(), solved["second"].abs())
            / solved["trace"]
        )
        yield "", _exact(says["rank_one"], float(off.max()), f"{len(solved)} steps at the solution")


def _pairs(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    """What Section 2 says of Fig. 3, run by run: the linear net, and the positive cell of the ReLU
    net."""
    frame = tables["pairs"].assign(cell=tables["pairs"]["cell"].fillna(""))
    frame = frame[(frame["cell"] != "-") & (frame["status"] == "ok")].sort_values("step")
    rates = sorted(frame["rate"].unique())
    for (network, left), part in frame.groupby(["network", "left"]):
        for rate in dict.fromkeys((rates[0], rates[-1])):
            runs = [
                (s, r["second"].to_numpy()) for s, r in part[part["rate"] == rate].groupby("seed")
            ]
            for name, test in (LOW if rate == rates[0] else HIGH).items():
                votes = pd.DataFrame(
                    [(s, test(second)) for s, second in runs], columns=["seed", "shown"]
                )
                yield (
                    f"{network} on {wedge_name(left)} at rate {rate:g}",
                    _voted(setup, says[name], votes),
                )
    yield "", _damping(setup, frame[frame["rate"] == rates[0]], says["damping"])


def _damping(setup: ScalarSpectrum, frame: pd.DataFrame, says: Statement) -> Claim:
    """When a low rate is low enough for the second outlier to reach zero from above: an overdamped
    heavy ball."""
    votes = []
    for (_, _, seed), run in frame.groupby(["network", "left", "seed"]):
        if run["phase"].iloc[0] == "early":
            overdamped = (
                run["trace"].iloc[-1] < (1 - setup.momentum**0.5) ** 2 / run["rate"].iloc[-1]
            )
            votes.append((seed, LOW["turns_positive"](run["second"].to_numpy()) == overdamped))
    return _voted(setup, says, pd.DataFrame(votes, columns=["seed", "shown"]))


def wedge_name(left: float) -> str:
    """The data y = x for x > 0, −left·x for x <= 0 in words."""
    return "y = |x|" if left == 1 else f"left slope {-left:g}"


def _seen(second: np.ndarray) -> np.ndarray:
    """The values that are not zero on the scale of the run: beyond them only rounding changes
    sign."""
    return second[np.abs(second) > 1e-6 * np.abs(second).max()]


def _changes(second: np.ndarray) -> int:
    return int((np.diff(np.sign(_seen(second))) != 0).sum())


LOW: dict[str, Callable[[np.ndarray], bool]] = {
    "starts_negative": lambda s: bool(s[0] < 0),
    "turns_positive": lambda s: bool(s[0] < 0 and _changes(s) == 1 and _seen(s)[-1] > 0),
}
HIGH: dict[str, Callable[[np.ndarray], bool]] = {
    "drops_first": lambda s: bool(s.min() < s[0] < s.max()),
    "wiggles": lambda s: _changes(s) >= WIGGLES,
    "ends_negative": lambda s: bool((_seen(s)[-LAST:] < 0).all()),
}
"""Name of a statement of Section 2 -> whether a run shows it, at a low and at a high rate."""


def _bias(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    frame = tables["bias"]
    inside = frame[frame["mix"] == 0]
    wrong = (inside["zeros"] != setup.bias_width - 1) | (inside["plus"] != setup.bias_width - 2)
    wrong |= inside["minus"] != setup.bias_width - 2
    triple = inside[inside["member"] == "triple"]
    outside = np.maximum(
        triple["lower"] - triple["theorem"], triple["theorem"] - triple["upper"]
    ).max()
    networks = f"{inside['seed'].nunique()} networks, m = {setup.bias_width}"
    yield "", _exact(says["theorem6"], float(inside["gap"].max()), networks)
    yield "", _exact(says["theorem6_multiplicities"], float(wrong.sum()), networks)
    yield "", _exact(says["triple_bounds"], float(outside), networks)
    yield (
        "",
        _exact(says["bias_closed_form"], float(frame["dense_error"].max()), f"{len(frame)} rows"),
    )


def edge_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per edge run: first, highest and last loss, range of sharpness·rate/2 over the last
    steps, settled."""
    frame = frame.sort_values("step").assign(ratio=frame["sharpness"] * frame["rate"] / 2)
    rows = []
    for key, run in frame.groupby(RUN):
        tail = run.tail(TAIL)
        loss = run["loss"].to_numpy()
        diverged = bool((run["status"] == "diverged").any())
        settled = not diverged and np.ptp(tail["loss"]) <= 1e-6 * tail["loss"].mean()
        rows.append(
            dict(zip(RUN, key, strict=True))
            | {
                "rose": bool(loss.max() > 1.01 * loss[0]),
                "low": tail["ratio"].min(),
                "high": tail["ratio"].max(),
                "diverged": diverged,
                "settled": settled,
            }
        )
    return pd.DataFrame(rows)


def _edge(setup: ScalarSpectrum, tables: Tables, says: Says) -> Made:
    runs, residual = edge_runs(tables["edge"]), tables["edge_runs"]["residual"]
    settled = runs[runs["settled"]]
    yield (
        "",
        _exact(
            says["settled_below_threshold"],
            float(settled["high"].max()),
            f"{len(settled)} settled runs",
        ),
    )
    widest = f"widths up to {int(runs['width'].max()):,}"
    yield "", _exact(says["live_meter"], float(residual.max()), widest)
    large, small = runs[runs["start"] == "large"], runs[runs["start"] == "small"]

    def within(part: pd.DataFrame, name: str) -> pd.DataFrame:
        limits = says[name]
        return part[(part["factor"] > limits.low) & (part["factor"] < limits.high)]

    near = says["climbs"].high
    for network in sorted(runs["network"].unique()):
        top, low = large[large["network"] == network], small[small["network"] == network]
        for width, part in within(top, "catapult").groupby("width"):
            shown = part.assign(shown=part["rose"] & part["settled"])
            yield f"{network} m={width:,}", _voted(setup, says["catapult"], shown)
        lost = within(top, "divergence")
        yield network, _voted(setup, says["divergence"], lost.assign(shown=lost["diverged"]))
        climbed = low[low["factor"] < 1]
        there = climbed["settled"] & ((climbed["high"] / climbed["factor"] - 1).abs() < near)
        yield network, _voted(setup, says["climbs"], climbed.assign(shown=there))
        beyond = within(low, "oscillates")
        crossing = (
            ~beyond["diverged"] & ~beyond["settled"] & (beyond["low"] < 1) & (beyond["high"] > 1)
        )
        yield network, _voted(setup, says["oscillates"], beyond.assign(shown=crossing))


def measured(setup: ScalarSpectrum, tables: Tables) -> pd.DataFrame | None:
    """The counts that the paper's corollary and theorem state, counted among dense eigenvalues."""
    rows = []
    for seed, frame in tables.get("relu_cells", pd.DataFrame({"seed": []})).groupby("seed"):
        near = 1e-9 * frame["dense"].abs().max()
        for cell, part in frame.groupby("cell"):
            value = part.loc[part["kind"] == "bulk", "eigenvalue"].abs()
            if len(value):
                count = int(((frame["dense"].abs() - value.iloc[0]).abs() <= near).sum())
                rows.append(
                    {"metric": "bulk_multiplicity", "cell": cell, "seed": seed, "value": count / 2}
                )
                rows.append(
                    {"metric": "outliers", "cell": cell, "seed": seed, "value": len(part) - count}
                )
    for seed, frame in tables.get("bias", pd.DataFrame({"seed": []})).groupby("seed"):
        first = frame[frame["mix"] == 0].iloc[0]
        count = 3 * setup.bias_width - int(first["zeros"] + first["plus"] + first["minus"])
        rows.append({"metric": "outliers", "cell": "bias", "seed": seed, "value": count})
    return pd.DataFrame(rows) if rows else None
