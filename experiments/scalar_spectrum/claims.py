"""The statements of the scalar-spectrum paper, and those made here about the edge of stability, held to the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from runner.contract.experiment import Claim, decide

if TYPE_CHECKING:
    from experiments.scalar_spectrum import ScalarSpectrum

EXACT = 1e-10
TAIL = 20
"""Last steps of an edge run that tell whether it has settled."""
RUN = ["network", "width", "start", "factor", "seed"]

Tables = Mapping[str, pd.DataFrame]


def claims(setup: ScalarSpectrum, tables: Tables) -> list[Claim]:
    """Every claim that the tables at hand can speak to."""
    makers: list[tuple[str, Callable[[ScalarSpectrum, Tables], list[Claim]]]] = [
        ("scaling", _scaling),
        ("relu_cells", _cells),
        ("pairs", _closed_form),
        ("pairs", _phases),
        ("pairs", _pairs),
        ("bias", _bias),
        ("edge", _edge),
    ]
    return [claim for table, make in makers if len(tables.get(table, ())) for claim in make(setup, tables)]


def _largest(name: str, statement: str, where: str, value: float, limit: float, detail: str, group: str = "") -> Claim:
    """A statement that holds where `value` stays at or below `limit`."""
    return Claim(name, statement, where, decide(bool(value <= limit)), value, f"<= {limit:g}", detail, group)


def _voted(
    setup: ScalarSpectrum, name: str, statement: str, where: str, votes: pd.Series, seeds: int, group: str
) -> Claim:
    """A statement about random starts: enough seeds, and at least `share` of the runs for it."""
    share = float(votes.mean()) if len(votes) else float("nan")
    verdict = decide(None if seeds < setup.runs or not len(votes) else share >= setup.share)
    detail = f"{int(votes.sum())} of {len(votes)} runs, {seeds} seeds"
    if seeds < setup.runs:
        detail += f"; undecided below {setup.runs} seeds"
    return Claim(name, statement, where, verdict, share, f">= {setup.share:g} of the runs", detail, group)


def _scaling(setup: ScalarSpectrum, tables: Tables) -> list[Claim]:
    frame = tables["scaling"]
    top = frame[frame["targets"] == "fixed"].groupby(["scaled_width", "seed", "sigma"])["eigenvalue"].max().unstack()
    found = []
    if 1.0 in top.columns and top.columns.min() < 1:
        low = top.columns.min()
        ratio = float((top[1.0] / top[low]).min())
        found.append(
            Claim(
                "normalising_sharpens",
                "normalising the data can significantly sharpen the spectrum",
                "Section 1, Fig. 1",
                decide(ratio >= 2),
                ratio,
                ">= 2",
                f"sharpness at sigma = 1 over sigma = {low:g}, smallest over {len(top)} networks",
            )
        )
    for targets, part in frame.groupby("targets"):
        scaled = part.assign(unit=part["eigenvalue"] / part["sigma"] ** 2)
        keys = ["scaled_width", "seed", "sigma"]
        extremes = scaled.groupby(keys)["unit"].agg(["max", "min"])
        spread = extremes.groupby(["scaled_width", "seed"]).agg(lambda s: np.ptp(s) / np.abs(s).max())
        found.append(
            _largest(
                "proportional",
                "the eigenvalues scale in proportion to the input variance",
                "Section 1",
                float(spread.to_numpy().max()),
                EXACT,
                "relative spread of (largest, smallest eigenvalue)/sigma^2 over sigma",
                f"targets {targets}",
            )
        )
    return found


def _cells(setup: ScalarSpectrum, tables: Tables) -> list[Claim]:
    frame, density = tables["relu_cells"], tables["density"]
    error = (frame["eigenvalue"] - frame["dense"]).abs() / frame.groupby("seed")["dense"].transform(
        lambda s: s.abs().max()
    )
    unit = density.assign(unit=density["eigenvalue"] / density["share"])
    unit["rank"] = unit.groupby(["seed", "cell", "copies"])["unit"].rank(method="first")
    spread = unit.groupby(["seed", "cell", "rank"])["unit"].agg(lambda s: np.ptp(s) / np.abs(s).max())
    return [
        _largest(
            "relu_closed_form",
            "the ReLU spectrum is the union of the cells' spectra, in closed form",
            "Theorem 4, Corollary 5",
            float(error.max()),
            EXACT,
            "relative to a dense eigensolver",
        ),
        _largest(
            "density",
            "eigenvalues scale in proportion to the density n+/n or n-/n of their cell",
            "Section 2",
            float(spread.max()),
            EXACT,
            "relative spread of eigenvalue/density when samples x <= 0 are repeated",
        ),
    ]


def _closed_form(setup: ScalarSpectrum, tables: Tables) -> list[Claim]:
    frame = tables["pairs"]
    found = []
    for network, part in frame.groupby("network"):
        where = "Theorem 1" if network == "linear" else "Corollary 5"
        found.append(
            _largest(
                "closed_form_in_training",
                "every eigenvalue in closed form, all along training",
                where,
                float(part["dense_error"].max()),
                EXACT,
                "relative to a dense eigensolver",
                str(network),
            )
        )
        slack = ((part["bound"] - part["smallest"]) / part["trace"]).max()
        found.append(
            _largest(
                "smallest_bound",
                "λ_min >= −√(2ℓ) σ",
                "Eq. 34",
                float(slack),
                EXACT,
                "largest violation relative to tr H, over all steps",
                str(network),
            )
        )
    return found


def _phase_violation(part: pd.DataFrame, printed: bool) -> float:
    """How far λ1 − tr H or λ2 lies on the wrong side for its phase, relative to tr H; −inf without rows."""
    target, slope = part["target"], part["slope"]
    late = (slope >= target / 3) & (slope <= target) if printed else part["phase"] == "late"
    side = np.where(late, -1.0, 1.0)
    wrong = np.maximum(side * (part["trace"] - part["first"]), side * part["second"]) / part["trace"]
    return float(wrong.max()) if len(part) else float("-inf")


def _phases(setup: ScalarSpectrum, tables: Tables) -> list[Claim]:
    frame = tables["pairs"]
    frame = frame[frame["status"] == "ok"]
    statement = "early and divergent: λ1 >= tr H, λ2 <= 0; late: λ1 <= tr H, λ2 >= 0"
    found = []
    for name, part in (("θ* > 0", frame[frame["target"] > 0]), ("θ* < 0", frame[frame["target"] < 0])):
        if len(part):
            found.append(
                _largest(
                    "phases",
                    f"{statement}, with θ*/3 <= ⟨w,v⟩ <= θ* as late",
                    "Section 1",
                    _phase_violation(part, True),
                    EXACT,
                    f"largest violation over {len(part)} steps",
                    name,
                )
            )
    found.append(
        _largest(
            "phases_corrected",
            f"{statement}, with 1/3 <= ⟨w,v⟩/θ* <= 1 as late",
            "Section 1, corrected",
            _phase_violation(frame, False),
            EXACT,
            f"largest violation over {len(frame)} steps",
            "any θ*",
        )
    )
    solved = frame[(frame["slope"] - frame["target"]).abs() <= 1e-11 * frame["target"].abs()]
    if len(solved):
        off = np.maximum((solved["first"] - solved["trace"]).abs(), solved["second"].abs()) / solved["trace"]
        found.append(
            _largest(
                "rank_one",
                "at the solution the Hessian has rank one with eigenvalue tr H",
                "Section 1",
                float(off.max()),
                1e-9,
                f"{len(solved)} steps at the solution",
            )
        )
    return found


def _pairs(setup: ScalarSpectrum, tables: Tables) -> list[Claim]:
    """What Section 2 says of Fig. 3, run by run: the linear net, and the positive cell of the ReLU net."""
    frame = tables["pairs"].assign(cell=tables["pairs"]["cell"].fillna(""))
    frame = frame[(frame["cell"] != "-") & (frame["status"] == "ok")].sort_values("step")
    rates = sorted(frame["rate"].unique())
    found = []
    for (network, left), part in frame.groupby(["network", "left"]):
        for rate in dict.fromkeys((rates[0], rates[-1])):
            runs = {s: r["second"].to_numpy() for s, r in part[part["rate"] == rate].groupby("seed")}
            group = f"{network}, {wedge_name(left)}, rate {rate:g}"
            for name, (statement, test) in (LOW if rate == rates[0] else HIGH).items():
                votes = pd.Series([test(second) for second in runs.values()], dtype=bool)
                found.append(_voted(setup, name, statement, "Section 2, Fig. 3", votes, len(runs), group))
    found.append(_damping(setup, frame[frame["rate"] == rates[0]]))
    return sorted(found, key=lambda claim: (claim.group, claim.name))


def _damping(setup: ScalarSpectrum, frame: pd.DataFrame) -> Claim:
    """When a low rate is low enough for the second outlier to reach zero from above: an overdamped heavy ball."""
    votes = []
    for _, run in frame.groupby(["network", "left", "seed"]):
        if run["phase"].iloc[0] == "early":
            overdamped = run["trace"].iloc[-1] < (1 - setup.momentum**0.5) ** 2 / run["rate"].iloc[-1]
            votes.append(LOW["turns_positive"][1](run["second"].to_numpy()) == overdamped)
    statement = "from the early phase, λ2 reaches zero from above exactly when λ1 < (1 − √momentum)²/rate at the end"
    series = pd.Series(votes, dtype=bool)
    return _voted(
        setup, "damping", statement, "Section 2, condition added", series, frame["seed"].nunique(), "low rate"
    )


def wedge_name(left: float) -> str:
    """The data y = x for x > 0, −left·x for x <= 0 in words."""
    return "y = |x|" if left == 1 else f"left slope {-left:g}"


def _seen(second: np.ndarray) -> np.ndarray:
    """The values that are not zero on the scale of the run: beyond them only rounding changes sign."""
    return second[np.abs(second) > 1e-6 * np.abs(second).max()]


def _changes(second: np.ndarray) -> int:
    return int((np.diff(np.sign(_seen(second))) != 0).sum())


LOW: dict[str, tuple[str, Callable[[np.ndarray], bool]]] = {
    "starts_negative": ("the second outlier starts out negative", lambda s: bool(s[0] < 0)),
    "turns_positive": (
        "it changes sign a little while into training and converges to zero from the positive side",
        lambda s: bool(s[0] < 0 and _changes(s) == 1 and _seen(s)[-1] > 0),
    ),
}
HIGH: dict[str, tuple[str, Callable[[np.ndarray], bool]]] = {
    "drops_first": (
        "at a high rate the second outlier first drops (below its start) and then increases",
        lambda s: bool(s.min() < s[0] < s.max()),
    ),
    "wiggles": ("beyond which it wiggles around 0", lambda s: _changes(s) >= 3),
    "ends_negative": (
        "and eventually becomes small and negative and remains like that",
        lambda s: bool((_seen(s)[-10:] < 0).all()),
    ),
}


def _bias(setup: ScalarSpectrum, tables: Tables) -> list[Claim]:
    frame = tables["bias"]
    inside = frame[frame["mix"] == 0]
    wrong = (inside["zeros"] != setup.bias_width - 1) | (inside["plus"] != setup.bias_width - 2)
    wrong |= inside["minus"] != setup.bias_width - 2
    triple = inside[inside["member"] == "triple"]
    outside = np.maximum(triple["lower"] - triple["theorem"], triple["theorem"] - triple["upper"]).max()
    return [
        _largest(
            "theorem6",
            "pair and triple of Theorem 6 are eigenvalues under its assumptions",
            "Theorem 6",
            float(inside["gap"].max()),
            EXACT,
            "distance to the nearest dense eigenvalue over the largest",
        ),
        _largest(
            "theorem6_multiplicities",
            "zero has multiplicity m−1, each of ±r has m−2 (left out in the theorem)",
            "Theorem 6, completed",
            float(wrong.sum()),
            0,
            f"networks with other counts, m = {setup.bias_width}",
        ),
        _largest("triple_bounds", "the triple lies within s/3 ± t'", "Section 3", float(outside), 0.0, "excess"),
        _largest(
            "bias_closed_form",
            "the 5×5 problem gives every eigenvalue, inside and outside the assumptions",
            "beyond Theorem 6",
            float(frame["dense_error"].max()),
            EXACT,
            "relative to a dense eigensolver",
        ),
    ]


def edge_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per edge run: first, highest and last loss, range of sharpness·rate/2 over the last steps, settled."""
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


def _edge(setup: ScalarSpectrum, tables: Tables) -> list[Claim]:
    runs, residual = edge_runs(tables["edge"]), tables["edge_runs"]["residual"]
    settled = runs[runs["settled"]]
    widest = int(runs["width"].max())
    where = "beyond the paper"
    found = [
        _largest(
            "settled_below_threshold",
            "no run settles at a point sharper than 2/rate",
            where,
            float(settled["high"].max()),
            1 + 1e-6,
            f"{len(settled)} settled runs: largest sharpness · rate / 2",
        ),
        _largest(
            "live_meter",
            "the O(m) sharpness is a Hessian eigenvalue at every width",
            where,
            float(residual.max()),
            EXACT,
            f"‖Hz − λz‖/λ by differentiation, widths up to {widest}",
        ),
    ]
    large, small = runs[runs["start"] == "large"], runs[runs["start"] == "small"]
    for network in sorted(runs["network"].unique()):
        of = {"large": large[large["network"] == network], "small": small[small["network"] == network]}
        seeds = runs["seed"].nunique()
        caught = of["large"][of["large"]["factor"].between(1, 1.6, inclusive="neither")]
        statement = "rate between 2/λ and 3.2/λ of the start: the loss rises, then settles flatter"
        for width, part in caught.groupby("width"):
            votes = part["rose"] & part["settled"]
            group = f"{network}, m = {width:,}"
            found.append(_voted(setup, "catapult", statement, "Section 1 (Ref. 5)", votes, seeds, group))
        lost = of["large"][of["large"]["factor"] > 2]
        found.append(
            _voted(
                setup,
                "divergence",
                "rate above 4/λ of the start: divergence",
                "Section 1 (Ref. 5)",
                lost["diverged"],
                seeds,
                network,
            )
        )
        climbed = of["small"][of["small"]["factor"] < 1]
        found.append(
            _voted(
                setup,
                "climbs",
                "from small weights the sharpness climbs to that of the flattest solution",
                where,
                climbed["settled"] & ((climbed["high"] / climbed["factor"] - 1).abs() < 0.02),
                seeds,
                network,
            )
        )
        beyond = of["small"][of["small"]["factor"].between(1, 1.1, inclusive="neither")]
        found.append(
            _voted(
                setup,
                "oscillates",
                "just above: no settling, the sharpness keeps crossing 2/rate",
                where,
                ~beyond["diverged"] & ~beyond["settled"] & (beyond["low"] < 1) & (beyond["high"] > 1),
                seeds,
                network,
            )
        )
    return [claim for claim in found if not np.isnan(claim.statistic)]


def measured(setup: ScalarSpectrum, tables: Tables) -> pd.DataFrame | None:
    """The counts that the paper's corollary and theorem state, counted among dense eigenvalues."""
    rows = []
    for seed, frame in tables.get("relu_cells", pd.DataFrame({"seed": []})).groupby("seed"):
        near = 1e-9 * frame["dense"].abs().max()
        for cell, part in frame.groupby("cell"):
            value = part.loc[part["kind"] == "bulk", "eigenvalue"].abs()
            if len(value):
                count = int(((frame["dense"].abs() - value.iloc[0]).abs() <= near).sum())
                rows.append({"metric": "bulk_multiplicity", "cell": cell, "seed": seed, "value": count / 2})
                rows.append({"metric": "outliers", "cell": cell, "seed": seed, "value": len(part) - count})
    for seed, frame in tables.get("bias", pd.DataFrame({"seed": []})).groupby("seed"):
        first = frame[frame["mix"] == 0].iloc[0]
        count = 3 * setup.bias_width - int(first["zeros"] + first["plus"] + first["minus"])
        rows.append({"metric": "outliers", "cell": "bias", "seed": seed, "value": count})
    return pd.DataFrame(rows) if rows else None


def notes(setup: ScalarSpectrum, tables: Tables) -> list[str]:
    """Findings in plain words."""
    found = []
    if len(tables.get("pairs", ())):
        frame = tables["pairs"]
        below = frame[frame["target"] < 0]
        if len(below):
            found.append(
                f"{len(below)} of {len(frame)} recorded steps belong to a network or cell with θ* < 0, where the "
                "phases must be read by ⟨w,v⟩/θ*; the printed order along the real line fails there."
            )
        found.append(
            "The paper does not define its wedge data. On y = |x| the linear network's θ* is close to zero and its "
            "second outlier tiny; the bent line (left slope 0.5) gives it something to learn."
        )
    if len(tables.get("bias", ())):
        by_mix = tables["bias"].groupby("mix")["gap"].max()
        found.append(
            f"With b turned {by_mix.index[-1]:.0%} of the way from orthogonal to parallel to v, Theorem 6's values "
            f"miss the spectrum by up to {by_mix.iloc[-1]:.0%} of its largest eigenvalue; the 5×5 problem does not."
        )
    if len(tables.get("edge", ())):
        runs = edge_runs(tables["edge"])
        found.append(
            f"{len(runs)} runs at the edge of stability, up to {runs['width'].max():,} neurons: "
            f"{int(runs['settled'].sum())} settle, {int(runs['diverged'].sum())} diverge, the others keep oscillating."
        )
    return found
