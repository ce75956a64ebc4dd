"""Measured values against published ones: the scorecard, claims as a table, and how sharp a scorecard is (what it would
still let pass, whether its z behave as chance would, and other criteria). `runner.stats.judge` reaches the verdicts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from runner.contract import Claim
from runner.report.score import BIBLIOGRAPHIC, VALUE_COLUMNS, Score, published, resolution, score_of, text_of, yes
from runner.stats import judge
from runner.stats.intervals import NAN, Part, Sample

if TYPE_CHECKING:
    import pandas as pd


VERDICTS = (
    "exact match",
    "reproduced",
    "not reproduced",
    "inconclusive",
    "calibrated",
    "true by construction",
    "not comparable",
    "not run",
)


def scorecard(measured: pd.DataFrame, reference: pd.DataFrame, comparable_reason: str = "") -> pd.DataFrame:
    """Hold measured values against published ones: the keys of each reference row, then the fields of `Score`.

    reference: as `read_reference` gives it. measured: one row per seed with `seed`, `value`, those key columns that
    tell values apart, and any of the columns
    - `comparable`: why that value cannot be compared with the paper ('' where it can); overrides `comparable_reason`;
    - `calibrated`: why its protocol counts as chosen by looking at these numbers;
    - `constructed`: why it could not have come out otherwise;
    - `paired`: true where networks, data and order are the published ones, by seed and checksum;
    - `rounding_std`, `rounding_df`: of a paired value, by how much (root mean square) rounding alone moves one seed's
      value between two devices, and from how many pairs of trainings that is known;
    - `image_variance`, `image_df`: variance of the difference that comes from different sets of images, with its
      degrees of freedom; left out or 0 where both sides looked at the same images.

    Matching. A measured row belongs to a reference row when they agree on every key column that both have; numbers
    compare as numbers, and a blank key of the reference row matches anything. Two measured values for one seed, or
    reference rows that differ only in keys the measured rows lack (`experiment` and `table` aside), are "inconclusive".

    Verdicts, in this order: "not run" (no finite value); "not comparable"; "true by construction" (the reference or
    the measured rows say so, or the printed value is 0 or a bound and every value of ours is exactly 0); "exact match"
    (paired, as many seeds as the paper, every printed digit of mean and std); "calibrated"; a printed bound by
    `judge.below`; a printed mean by `judge.equal` against the margin.
    """
    import pandas as pd

    missing = [column for column in ("metric", "seed", "value") if column not in measured.columns]
    if missing:
        raise ValueError(f"measured values: expected columns metric, seed and value, missing {', '.join(missing)}")
    rows = [{str(k): str(v) for k, v in row.items()} for row in reference.to_dict("records")]
    keys = [column for column in reference.columns if column not in VALUE_COLUMNS]
    shared = [column for column in keys if column in measured.columns]
    found: list[dict[str, Any]] = [
        {str(k): text_of(v) for k, v in row.items()} | {"value": float(row["value"])}
        for row in measured.to_dict("records")
    ]
    groups = _ambiguous(rows, shared, [k for k in keys if k not in shared and k not in BIBLIOGRAPHIC])
    matched = [[m for m in found if all(not row[k].strip() or text_of(row[k]) == m[k] for k in shared)] for row in rows]
    scores = []
    for row, matching in zip(rows, matched, strict=True):
        printed = replace(published(row), resolution=resolution(row, rows), std_resolution=resolution(row, rows, "std"))
        reason = next((m["comparable"] for m in matching if "comparable" in m), comparable_reason)
        scores.append(score_of(printed, matching, reason, groups.get(_identity(row, shared), "")))
    scores = _repeated(rows, keys, matched, _ordered(rows, scores))
    table = [
        {k: row[k] for k in keys} | {f.name: getattr(s, f.name) for f in fields(Score)}
        for row, s in zip(rows, scores, strict=True)
    ]
    return pd.DataFrame(table, columns=[*keys, *(f.name for f in fields(Score))])


def _ordered(rows: Sequence[Mapping[str, str]], scores: Sequence[Score]) -> list[Score]:
    """The scores with sign and order against the other rows of their metric and table."""
    kin: dict[tuple[str, str], list[int]] = {}
    for i, (row, score) in enumerate(zip(rows, scores, strict=True)):
        if math.isfinite(score.paper_mean) and score.n:
            kin.setdefault((row["metric"], score.source), []).append(i)
    found = list(scores)
    for members in kin.values():
        signed = any(min(scores[i].paper_mean, scores[i].measured_mean) < 0 for i in members)
        for i in members:
            own = scores[i]
            others = [scores[j] for j in members if scores[j].paper_mean != own.paper_mean]
            kept = [(o.paper_mean > own.paper_mean) == (o.measured_mean > own.measured_mean) for o in others]
            sign = yes((own.paper_mean > 0) == (own.measured_mean > 0)) if signed and own.paper_mean else ""
            found[i] = replace(own, sign_kept=sign, order_kept=sum(kept) / len(kept) if kept else NAN)
    return found


def _repeated(
    rows: Sequence[Mapping[str, str]], keys: Sequence[str], matched: Sequence[Sequence[Mapping[str, Any]]], scores: list
) -> list[Score]:
    """The scores, with a word where the values are those of an earlier row: they share networks or streams."""
    seen: dict[tuple[Any, ...], str] = {}
    found = []
    for row, matching, score in zip(rows, matched, scores, strict=True):
        values = (row["metric"], *sorted((m["seed"], m["value"]) for m in matching))
        name = " ".join(f"{k}={row[k]}" for k in keys if k != "metric" and row[k])
        if values in seen and score.n > 1 and score.equivalence:
            shared = f"the same values as {seen[values]}: no independent row"
            score = replace(score, reason="; ".join(t for t in (score.reason, shared) if t))
        seen.setdefault(values, name)
        found.append(score)
    return found


def _identity(row: Mapping[str, str], shared: Sequence[str]) -> tuple[str, ...]:
    return tuple(text_of(row[k]) for k in shared)


def _ambiguous(rows: Sequence[Mapping[str, str]], shared: Sequence[str], absent: Sequence[str]) -> dict[Any, str]:
    """Identities on the shared keys whose reference rows differ in keys that measured values lack -> the reason."""
    seen: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for row in rows:
        values = seen.setdefault(_identity(row, shared), {k: set() for k in absent})
        for k in absent:
            values[k].add(text_of(row[k]))
    lacking = {identity: [k for k, v in values.items() if len(v) > 1] for identity, values in seen.items()}
    return {i: f"measured values do not say {', '.join(names)}" for i, names in lacking.items() if names}


def summarise(scores: pd.DataFrame) -> dict[str, int]:
    """How many rows of a scorecard have each verdict, in the order of `VERDICTS`."""
    counts = Counter(scores["verdict"])
    return {verdict: counts[verdict] for verdict in VERDICTS}


def claims_table(claims: Iterable[Claim]) -> pd.DataFrame:
    """Claims as rows, one column per field. Raises ValueError when name and group repeat."""
    import pandas as pd

    rows = [{f.name: getattr(claim, f.name) for f in fields(Claim)} for claim in claims]
    seen: set[tuple[str, str]] = set()
    for row in rows:
        key = (row["name"], row["group"])
        if key in seen:
            raise ValueError(f"claims: expected unique names within a group, found {key[0]!r} twice ({key[1]!r})")
        seen.add(key)
    return pd.DataFrame(rows, columns=[f.name for f in fields(Claim)])


FACTORS = (1.0, 1.1, 1.25, 2.0)
SCORED = ("exact match", "reproduced", "not reproduced", "inconclusive")
"""Verdicts that could have come out otherwise; all other rows are left out here."""
COLUMNS = ("what", "value", "of", "expected", "meaning")


def sharpness(scores: pd.DataFrame) -> pd.DataFrame:
    """Long table next to a scorecard: what, value, of (rows looked at), expected (where chance says what), meaning.

    - "passes at × f": rows that would count as reproduced if all our values (mean and spread) were multiplied by f;
    - "std of z", "share of |z| > 2": over the rows with a standard error, next to what Student's t with their degrees
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
    above = df[df > 2]
    spread = float((above / (above - 2)).mean() ** 0.5)
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
