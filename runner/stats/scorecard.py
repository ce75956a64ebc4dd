"""Measured values against printed ones: the scorecard."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from runner.stats.intervals import NAN, joined
from runner.stats.numbers import BIBLIOGRAPHIC, VALUE_COLUMNS, published, text_of
from runner.stats.score import FACTS, Measured, Score, score_of, yes

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]


def scorecard(
    measured: pd.DataFrame, reference: pd.DataFrame, comparable_reason: str = "", lost: str = ""
) -> pd.DataFrame:
    """Compare measured values with published ones: the keys of each reference row, then the fields
    of `Score`.

    reference: as `read_reference` gives it. comparable_reason: why no value can be compared (''
    where some can). lost: what the measured values lack of the paper's seeds. measured: one row
    per seed with `seed`, `value`, those key columns that tell values apart, and any of the columns
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

    Verdicts, in this order: "not run" (no value); "not comparable"; with an infinite or missing
    value or seed "inconclusive", its count first in the reason; "true by construction" (the
    reference says so, or the printed value is 0 or a bound and every value of ours is exactly
    0); "exact match" (paired, as many seeds as the paper, every printed digit of
    mean and std); "calibrated"; a printed bound by `intervals.below`; a printed mean by `equal`
    against the margin.
    """
    import pandas as pd

    missing = [column for column in ("metric", "seed", "value") if column not in measured.columns]
    if missing:
        raise ValueError(
            "measured values: expected columns metric, seed and value, "
            f"missing {', '.join(missing)}"
        )
    rows = [_texts(row) for row in reference.to_dict("records")]
    keys = [column for column in reference.columns if column not in VALUE_COLUMNS]
    shared = [column for column in keys if column in measured.columns]
    absent = [key for key in keys if key not in shared and key not in BIBLIOGRAPHIC]
    values = [_measured(row, shared) for row in measured.to_dict("records")]
    matched = [_matching(row, values, shared) for row in rows]
    ambiguous = _ambiguous(rows, shared, absent)
    scores = []
    for row, matching in zip(rows, matched, strict=True):
        of_others = ambiguous.get(_identity(row, shared), "")
        score = score_of(published(row), matching, comparable_reason, of_others, lost)
        scores.append(replace(score, values=tuple(map(_by_seed, matching))))
    scores = _repeated(rows, keys, matched, _ordered(rows, scores))
    table = []
    for row, score in zip(rows, scores, strict=True):
        table.append({key: row[key] for key in keys} | vars(score))
    return pd.DataFrame(table, columns=[*keys, *(f.name for f in fields(Score))])


def _texts(row: Mapping[Any, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in row.items()}


def _measured(row: Mapping[Any, Any], shared: Sequence[str]) -> Measured:
    """A measured value, its keys as text."""
    facts = {fact: text_of(row[fact]) for fact in FACTS if fact in row}
    paired = facts.pop("paired", "") in ("true", "1")
    numbers = {fact: float(text or "nan") for fact, text in facts.items()}
    keys = {key: text_of(row[key]) for key in shared}
    return Measured(keys, int(row["seed"]), float(row["value"]), paired, **numbers)


def _matching(row: Row, values: Sequence[Measured], shared: Sequence[str]) -> list[Measured]:
    """The measured rows that agree with a reference row on every shared key that it has."""
    wanted = {key: text_of(row[key]) for key in shared if row[key].strip()}
    return [one for one in values if wanted.items() <= one.keys.items()]


def _by_seed(one: Measured) -> tuple[int, float | None]:
    return one.seed, float(f"{one.value:.9g}") if math.isfinite(one.value) else None


def _ordered(rows: Sequence[Row], scores: Sequence[Score]) -> list[Score]:
    """The scores with sign and order against the other rows of their metric, table and way."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for i, (row, score) in enumerate(zip(rows, scores, strict=True)):
        if math.isfinite(score.paper_mean) and score.n:
            groups.setdefault((row["metric"], score.source, score.way), []).append(i)
    ordered = list(scores)
    for members in groups.values():
        group = [scores[i] for i in members]
        signed = any(min(one.paper_mean, one.measured_mean) < 0 for one in group)
        for i in members:
            ordered[i] = _in_order(scores[i], group, signed)
    return ordered


def _in_order(score: Score, group: Sequence[Score], signed: bool) -> Score:
    """A score with its sign and order against the others of its group. signed: any is negative."""
    kept = []
    for other in group:
        if other.paper_mean != score.paper_mean:
            measured = other.measured_mean - score.measured_mean
            kept.append(measured * (other.paper_mean - score.paper_mean) > 0)
    sign = ""
    if signed and score.paper_mean:
        sign = yes((score.paper_mean > 0) == (score.measured_mean > 0))
    return replace(score, sign_kept=sign, order_kept=sum(kept) / len(kept) if kept else NAN)


def _repeated(
    rows: Sequence[Row],
    keys: Sequence[str],
    matched: Sequence[Sequence[Measured]],
    scores: Sequence[Score],
) -> list[Score]:
    """The scores, with a word where the values are those of an earlier row: they share networks or
    streams."""
    seen: dict[tuple[Any, ...], str] = {}
    said = []
    for row, matching, score in zip(rows, matched, scores, strict=True):
        values = (row["metric"], *sorted((one.seed, one.value) for one in matching))
        if values in seen and score.n > 1 and score.equivalence:
            shared = f"the same values as {seen[values]}: no independent row"
            score = replace(score, reason=joined(score.reason, shared))
        name = " ".join(f"{key}={row[key]}" for key in keys if key != "metric" and row[key])
        seen.setdefault(values, name)
        said.append(score)
    return said


def _identity(row: Row, shared: Sequence[str]) -> tuple[str, ...]:
    return tuple(text_of(row[key]) for key in shared)


def _ambiguous(
    rows: Sequence[Row], shared: Sequence[str], absent: Sequence[str]
) -> dict[tuple[str, ...], str]:
    """Identities on the shared keys whose reference rows differ in keys that measured values lack
    -> the reason."""
    texts: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for row in rows:
        of_identity = texts.setdefault(_identity(row, shared), {})
        for key in absent:
            of_identity.setdefault(key, set()).add(text_of(row[key]))
    reasons = {}
    for identity, of_identity in texts.items():
        names = [key for key, values in of_identity.items() if len(values) > 1]
        if names:
            reasons[identity] = f"measured values do not say {', '.join(names)}"
    return reasons
