"""How sharp a scorecard is: what it would still let pass, whether its z behave as chance would, and other criteria."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.stats import judge
from runner.stats.intervals import NAN, Part, Sample

if TYPE_CHECKING:
    import pandas as pd

FACTORS = (1.0, 1.1, 1.25, 2.0)
SCORED = ("exact match", "reproduced", "not reproduced", "inconclusive")
"""Verdicts that could have come out otherwise; all other rows are left out here."""
COLUMNS = ("what", "value", "of", "expected", "meaning")


def sharpness(scores: pd.DataFrame) -> pd.DataFrame:
    """Long table beside a scorecard: what, value, of (rows looked at), expected (where chance says what), meaning.

    - "passes at × f": rows that would count as reproduced if all our values (mean and spread) were multiplied by f;
    - "std of z", "share of |z| > 2": over the rows with a standard error, beside what Student's t with their degrees
      of freedom gives when both sides are draws of one distribution;
    - "std differs": rows whose printed and measured spread differ by the F test at 5 % (with the smallest p);
    - "rows not independent": rows that repeat the values of another one.
    """
    import pandas as pd

    kept = scores[scores["verdict"].isin(SCORED)] if len(scores) else scores
    rows = [*_passing(kept), *_of_z(kept), *_of_stds(kept)] if len(kept) else []
    return pd.DataFrame(rows, columns=list(COLUMNS))


def outcome_at(row: Mapping[str, Any], factor: float) -> str:
    """What the judge would say of a row of a scorecard if our values were `factor` times what they are."""
    ours = Sample(factor * row["measured_mean"], factor * row["measured_std"], int(row["n"]))
    if math.isnan(row["paper_mean"]):
        return judge.below(ours, row["upper_bound"])[0]
    theirs = Sample.printed(row["paper_mean"], row["paper_std"], int(row["n_seeds"]))
    rounding, pairs = (float(row.get(name, NAN)) for name in ("rounding_std", "rounding_df"))
    if not math.isnan(rounding):
        grown = Part((factor * rounding) ** 2, math.inf if math.isnan(pairs) else pairs)
        return judge.paired(ours, theirs, row["margin"], grown).outcome
    df = math.inf if math.isnan(row["image_df"]) else row["image_df"]
    images = Part(factor**2 * row["image_variance"], df) if row["image_variance"] > 0 else None
    return judge.equal(ours, theirs, row["margin"], images).outcome


def _passing(kept: pd.DataFrame) -> Iterator[dict[str, Any]]:
    records = [{str(k): v for k, v in row.items()} for row in kept.to_dict("records")]
    for factor in FACTORS:
        value = sum(outcome_at(row, factor) == "reproduced" for row in records)
        yield _row(
            f"passes at × {factor:g}",
            value,
            len(records),
            meaning="rows inside their margin if all our values were multiplied by this factor",
        )


def _of_z(kept: pd.DataFrame) -> Iterator[dict[str, Any]]:
    from scipy.stats import t

    part = kept[kept["z"].notna() & (kept["df"] > 0)]
    if len(part) < 3:
        return
    df = _freedom(part).clip(upper=1e6)
    spread = float((df[df > 2] / (df[df > 2] - 2)).mean() ** 0.5) if (df > 2).any() else NAN
    yield _row(
        "std of z",
        float(part["z"].std()),
        len(part),
        spread,
        "z = difference / its standard error, the rounding of the print in it",
    )
    tail = float((2 * t.sf(2, df)).mean())
    yield _row("share of |z| > 2", float((part["z"].abs() > 2).mean()), len(part), tail, "rows are not independent")
    yield _row(
        "shifted",
        int((part["shifted"] == "yes").sum()),
        len(part),
        meaning="inside the margin with zero outside the 95 % interval of the difference",
    )
    shared = int(kept["reason"].str.contains("no independent row").sum())
    yield _row("rows not independent", shared, len(kept), meaning="repeat the values of another row")


def _freedom(part: pd.DataFrame) -> pd.Series[float]:
    """Degrees of freedom of z (Welch–Satterthwaite): the rounding of the print, ± h, adds h²/3 without an error."""
    squared = part["standard_error"] ** 2
    return part["df"] * (1 + part["resolution"].fillna(0) ** 2 / (3 * squared)) ** 2


def _of_stds(kept: pd.DataFrame) -> Iterator[dict[str, Any]]:
    part = kept[kept["std_p"].notna()]
    if len(part):
        meaning = f"two-sided F test at 5 %; smallest p {part['std_p'].min():.2g}, "
        meaning += f"median ratio of the stds (ours over theirs) {part['std_ratio'].median():.2f}"
        yield _row("std differs", int((part["std_p"] < 0.05).sum()), len(part), 0.05 * len(part), meaning)


def _row(what: str, value: float, of: int, expected: float = NAN, meaning: str = "") -> dict[str, Any]:
    return {"what": what, "value": float(value), "of": of, "expected": expected, "meaning": meaning}


def rates(scorecards: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Rates by criterion: columns experiment, criterion, passed, of, share; the last rows are over all experiments.

    scorecards: by experiment. Rows without a printed mean, and rows that could not have come out otherwise or were
    fitted, are left out.
    """
    import pandas as pd

    kept = {name: s[s["verdict"].isin(SCORED) & s["paper_mean"].notna()] for name, s in scorecards.items() if len(s)}
    kept = {name: part for name, part in kept.items() if len(part)}
    if kept:
        kept["all"] = pd.concat(list(kept.values()), ignore_index=True)
    rows = []
    for name, part in kept.items():
        for criterion, passed, of in _criteria(part):
            share = passed / of if of else NAN
            rows.append({"experiment": name, "criterion": criterion, "passed": passed, "of": of, "share": share})
    return pd.DataFrame(rows, columns=["experiment", "criterion", "passed", "of", "share"])


def _criteria(part: pd.DataFrame) -> Iterator[tuple[str, float, int]]:
    z, ratio = part["z"].abs(), (part["ratio"] - 1).abs()
    yield "identical: every printed digit", int((part["verdict"] == "exact match").sum()), len(part)
    inside = part["verdict"].isin(("exact match", "reproduced"))
    yield "equivalence: 90 % interval inside the margin", int(inside.sum()), len(part)
    outside = part["verdict"] == "not reproduced"
    yield "not refuted: 90 % interval not wholly outside the margin", len(part) - int(outside.sum()), len(part)
    yield "no significant difference: |z| <= 2", int((z <= 2).sum()), int(z.notna().sum())
    yield "loose: |z| <= 3", int((z <= 3).sum()), int(z.notna().sum())
    for column, text in (
        ("in_our_95", "published value in our 95 % interval"),
        ("in_their_prediction", "ours in the 95 % prediction interval of theirs"),
        ("sign_kept", "sign kept"),
    ):
        known = part[column].isin(("yes", "no"))
        yield text, int((part[column] == "yes").sum()), int(known.sum())
    order = part["order_kept"].dropna()
    yield "order kept (mean share of comparisons)", float(order.sum()), len(order)
    for limit in (0.1, 0.25):
        yield f"ratio within {100 * limit:g} %", int((ratio <= limit).sum()), int(ratio.notna().sum())


def write_rates(root: Path) -> None:
    """Write `root`/rates.csv: how many published values pass, by criterion and experiment (`rates`).

    Read from the scorecards of the main reports; one that an older version wrote, or that cannot be read, is left out.
    """
    from runner.store import tables

    found = {}
    for path in sorted(root.glob("*/scorecard.csv")):
        try:
            scores = tables.read(path)
        except (OSError, ValueError):
            continue
        if {"equivalence", "order_kept"} <= set(scores.columns):
            found[path.parent.name] = scores
    table = rates(found)
    if len(table):
        tables.write(table, root / "rates.csv")
