"""Measured values against published ones: the scorecard, and claims as a table.
`runner.stats.judge` reaches the verdicts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from runner.contract import Claim
from runner.report.reference import BIBLIOGRAPHIC, VALUE_COLUMNS, WAYS, published, text_of
from runner.report.score import Score, score_of, yes
from runner.stats.intervals import NAN

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


def scorecard(
    measured: pd.DataFrame, reference: pd.DataFrame, comparable_reason: str = ""
) -> pd.DataFrame:
    """Hold measured values against published ones: the keys of each reference row, then the fields
    of `Score`.

    reference: as `read_reference` gives it. comparable_reason: why no value can be compared (''
    where some can). measured: one row per seed with `seed`, `value`, those key columns that tell
    values apart, and any of the columns
    - `comparable`: why that value cannot be compared with the paper ('' where it can);
    - `calibrated`: why its protocol counts as chosen by looking at these numbers;
    - `constructed`: why it could not have come out otherwise;
    - `paired`: true where networks, data and order are the published ones, by seed and checksum;
    - `rounding_std`, `rounding_df`: of a paired value, by how much (root mean square) rounding
      alone moves one seed's value between two devices, and from how many pairs of trainings that is
      known;
    - `image_variance`, `image_df`: variance of the difference that comes from different sets of
      images, with its degrees of freedom; left out or 0 where both sides looked at the same images.

    Matching. A measured row belongs to a reference row when they agree on every key column that
    both have; numbers compare as numbers, and a blank key of the reference row matches anything.
    Two measured values for one seed, or reference rows that differ only in keys the measured rows
    lack (`experiment` and `table` aside), are "inconclusive".

    Verdicts, in this order: "not run" (no value); with an infinite or missing value "inconclusive"
    at best, its count first in the reason; "not comparable"; "true by construction" (the reference
    or the measured rows say so, or the printed value is 0 or a bound and every value of ours is
    exactly 0); "exact match" (paired, as many seeds as the paper, every printed digit of mean and
    std); "calibrated"; a printed bound by `judge.below`; a printed mean by `judge.equal` against
    the margin.
    """
    import pandas as pd

    missing = [column for column in ("metric", "seed", "value") if column not in measured.columns]
    if missing:
        raise ValueError(
            "measured values: expected columns metric, seed and value, "
            f"missing {', '.join(missing)}"
        )
    rows = [{str(k): str(v) for k, v in row.items()} for row in reference.to_dict("records")]
    keys = [column for column in reference.columns if column not in VALUE_COLUMNS]
    shared = [column for column in keys if column in measured.columns]
    found: list[dict[str, Any]] = [
        {str(k): text_of(v) for k, v in row.items()} | {"value": float(row["value"])}
        for row in measured.to_dict("records")
    ]
    groups = _ambiguous(
        rows, shared, [k for k in keys if k not in shared and k not in BIBLIOGRAPHIC]
    )
    matched = [
        [m for m in found if all(not row[k].strip() or text_of(row[k]) == m[k] for k in shared)]
        for row in rows
    ]
    scores = []
    for row, matching in zip(rows, matched, strict=True):
        printed = published(row)
        reason = comparable_reason or next(
            (m["comparable"] for m in matching if "comparable" in m), ""
        )
        score = score_of(printed, matching, reason, groups.get(_identity(row, shared), ""))
        scores.append(replace(score, values=tuple(map(_by_seed, matching))))
    scores = _repeated(rows, keys, matched, _ordered(rows, scores))
    table = [
        {k: row[k] for k in keys} | {f.name: getattr(s, f.name) for f in fields(Score)}
        for row, s in zip(rows, scores, strict=True)
    ]
    return pd.DataFrame(table, columns=[*keys, *(f.name for f in fields(Score))])


def _by_seed(row: Mapping[str, Any]) -> tuple[int, float | None]:
    """(seed, value) of a measured row."""
    value = row["value"]
    return int(float(row["seed"])), float(f"{value:.9g}") if math.isfinite(value) else None


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
            kept = [
                (o.paper_mean > own.paper_mean) == (o.measured_mean > own.measured_mean)
                for o in others
            ]
            sign = (
                yes((own.paper_mean > 0) == (own.measured_mean > 0))
                if signed and own.paper_mean
                else ""
            )
            found[i] = replace(
                own, sign_kept=sign, order_kept=sum(kept) / len(kept) if kept else NAN
            )
    return found


def _repeated(
    rows: Sequence[Mapping[str, str]],
    keys: Sequence[str],
    matched: Sequence[Sequence[Mapping[str, Any]]],
    scores: list,
) -> list[Score]:
    """The scores, with a word where the values are those of an earlier row: they share networks or
    streams."""
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


def _ambiguous(
    rows: Sequence[Mapping[str, str]], shared: Sequence[str], absent: Sequence[str]
) -> dict[Any, str]:
    """Identities on the shared keys whose reference rows differ in keys that measured values lack
    -> the reason."""
    seen: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for row in rows:
        values = seen.setdefault(_identity(row, shared), {k: set() for k in absent})
        for k in absent:
            values[k].add(text_of(row[k]))
    lacking = {
        identity: [k for k, v in values.items() if len(v) > 1] for identity, values in seen.items()
    }
    return {
        i: f"measured values do not say {', '.join(names)}" for i, names in lacking.items() if names
    }


def summarise(scores: pd.DataFrame) -> dict[str, int]:
    """How many rows of a scorecard have each verdict, in the order of `VERDICTS`."""
    counts = Counter(scores["verdict"])
    return {verdict: counts[verdict] for verdict in VERDICTS}


def by_way(scores: pd.DataFrame) -> dict[str, dict[str, int]]:
    """way -> verdict -> number of rows, of the ways that occur (`reference.WAYS`); `summarise` of
    each."""
    return {way: summarise(part) for way in WAYS if len(part := scores[scores["way"] == way])}


def claims_table(claims: Iterable[Claim]) -> pd.DataFrame:
    """Claims as rows, one column per field. Raises ValueError when name and group repeat."""
    import pandas as pd

    rows = [{f.name: getattr(claim, f.name) for f in fields(Claim)} for claim in claims]
    seen: set[tuple[str, str]] = set()
    for row in rows:
        key = (row["name"], row["group"])
        if key in seen:
            raise ValueError(
                f"claims: expected unique names within a group, found {key[0]!r} twice ({key[1]!r})"
            )
        seen.add(key)
    return pd.DataFrame(rows, columns=[f.name for f in fields(Claim)])
