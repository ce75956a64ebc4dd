"""Measured values against a paper's: the scorecard, and claims as a table.

A reference file (experiments/reference/<name>.csv) has one row per published value. `mean`, `std`, `upper_bound`,
`n_seeds`, `source`, `note` describe the value; every other column is a key that identifies it (`metric` always).
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.contract.experiment import Claim

if TYPE_CHECKING:
    import pandas as pd

VALUE_COLUMNS = ("mean", "std", "upper_bound", "n_seeds", "source", "note")
BIBLIOGRAPHIC = ("experiment", "table")
"""Keys that say where a value is printed, not which value it is; measured values need not carry them."""

VERDICTS = (
    "reproduced",
    "within bound",
    "not reproduced",
    "above bound",
    "undecided",
    "not comparable",
    "not measured",
)
CLAIM_VERDICTS = ("confirmed", "refuted", "undecided")
STANDARD_ERRORS = 3.0
NAN = float("nan")


@dataclass(frozen=True)
class Score:
    """One row of the scorecard, after its keys; `scorecard` states the rule behind the verdict.

    resolution: half a unit of the last printed digit of the paper's mean. difference = measured − paper; ratio =
    measured / paper (or / bound). std columns: measured with ddof 1, the paper's with ddof 0, as published.
    """

    paper_mean: float
    paper_std: float
    upper_bound: float
    n_seeds: int
    resolution: float
    measured_mean: float = NAN
    measured_std: float = NAN
    n: int = 0
    ratio: float = NAN
    difference: float = NAN
    standard_error: float = NAN
    z: float = NAN
    verdict: str = "not measured"
    reason: str = ""
    source: str = ""
    note: str = ""


def read_reference(path: Path) -> pd.DataFrame:
    """A reference file, every cell as text (so that the printed digits are not lost).

    Raises ValueError with one line for an unreadable file, missing columns, a row of another length, a number that
    is none, a negative std, or a row with neither mean nor upper_bound.
    """
    import pandas as pd

    try:
        with open(path, newline="", encoding="utf-8") as stream:
            rows = [row for row in csv.reader(stream) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: cannot be read as a CSV file ({error})") from None
    header = [name.strip() for name in rows[0]] if rows else []
    for column in ("metric", "mean"):
        if column not in header:
            raise ValueError(f"{path}: expected a column {column!r}, found {', '.join(header) or 'an empty file'}")
    if len(set(header)) < len(header):
        raise ValueError(f"{path}: column names repeat: {', '.join(header)}")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise ValueError(f"{path}, row {number}: expected {len(header)} fields, found {len(row)}")
        try:
            _published(dict(zip(header, row, strict=True)))
        except ValueError as error:
            raise ValueError(f"{path}, row {number}: {error}") from None
    return pd.DataFrame(rows[1:], columns=header, dtype=str)


def scorecard(measured: pd.DataFrame, reference: pd.DataFrame, comparable_reason: str = "") -> pd.DataFrame:
    """Hold measured values against published ones: the keys of each reference row, then the fields of `Score`.

    reference: as `read_reference` gives it. measured: one row per seed with `seed`, `value`, and those key columns
    that tell values apart; an optional column `comparable` holds a reason why that value cannot be held against the
    paper ('' where it can) and overrides `comparable_reason`.

    Matching. A measured row belongs to a reference row when they agree on every key column that both have; numbers
    compare as numbers, and a blank key of the reference row matches anything. Two measured values for one seed, or
    reference rows that differ only in keys the measured rows lack (`experiment` and `table` aside), are "undecided".

    Standard error. Over m measured seeds with sample std s, and the paper's n seeds with population std σ, hence
    sample std σ√(n/(n−1)): SE² = s²/m + σ²/(n−1). Where one of the two stds is unknown (a blank, or a single seed)
    the other stands in for it: SE = std·√(1/m + 1/n). A blank n_seeds counts as one seed. z = difference / SE.

    Verdicts, in this order:
    - "not measured": no measured row, or none with a finite value.
    - "not comparable": a reason is given; no z, never scored.
    - rows with an upper bound instead of a mean: "within bound" if measured mean <= bound, else "above bound".
    - "reproduced": |difference| <= resolution + 3 SE. resolution is half a unit of the last printed digit; a CSV
      file loses trailing zeros, so the digits are inferred from all values of the same source and metric (`_digits`).
    - "undecided": no SE (one seed on both sides, or no std anywhere) and outside the resolution.
    - "not reproduced": everything else.
    """
    import pandas as pd

    missing = [column for column in ("metric", "seed", "value") if column not in measured.columns]
    if missing:
        raise ValueError(f"measured values: expected columns metric, seed and value, missing {', '.join(missing)}")
    rows = [{str(k): str(v) for k, v in row.items()} for row in reference.to_dict("records")]
    keys = [column for column in reference.columns if column not in VALUE_COLUMNS]
    shared = [column for column in keys if column in measured.columns]
    found: list[dict[str, Any]] = [
        {str(k): _text(v) for k, v in row.items()} | {"value": float(row["value"])}
        for row in measured.to_dict("records")
    ]
    groups = _ambiguous(rows, shared, [k for k in keys if k not in shared and k not in BIBLIOGRAPHIC])
    scored = []
    for row in rows:
        matching = [m for m in found if all(not row[k].strip() or _text(row[k]) == m[k] for k in shared)]
        paper = replace(_published(row), resolution=_resolution(row, rows))
        reason = next((m["comparable"] for m in matching if "comparable" in m), comparable_reason)
        score = _score(paper, matching, reason, groups.get(_identity(row, shared), ""))
        scored.append({k: row[k] for k in keys} | {f.name: getattr(score, f.name) for f in fields(Score)})
    return pd.DataFrame(scored, columns=[*keys, *(f.name for f in fields(Score))])


def _score(paper: Score, matching: Sequence[Mapping[str, Any]], reason: str, ambiguous: str) -> Score:
    """Verdict on one published value from the measured rows that match it."""
    values = [m["value"] for m in matching if math.isfinite(m["value"])]
    if not values:
        return replace(paper, reason=f"{len(matching)} seeds without a value" if matching else "")
    m, mean = len(values), math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (m - 1)) if m > 1 else NAN
    target = paper.upper_bound if math.isnan(paper.paper_mean) else paper.paper_mean
    score = replace(
        paper,
        measured_mean=mean,
        measured_std=std,
        n=m,
        ratio=mean / target if target else NAN,
        difference=mean - target,
    )
    lost = f"{len(matching) - m} of {len(matching)} seeds without a value" if m < len(matching) else ""
    repeated = len({row["seed"] for row in matching}) < len(matching)
    if repeated:
        ambiguous = "several measured values for one seed: the key columns do not tell them apart"
    if ambiguous:
        return replace(score, verdict="undecided", reason=ambiguous)
    if reason:
        return replace(score, verdict="not comparable", reason=reason)
    if math.isnan(paper.paper_mean):
        verdict = "within bound" if mean <= paper.upper_bound else "above bound"
        return replace(score, verdict=verdict, reason=lost)
    error, how = _standard_error(score)
    distance = abs(score.difference)
    rounding = score.resolution * (1 + 1e-9)
    z = score.difference / error if error > 0 else NAN
    if distance <= rounding + (STANDARD_ERRORS * error if error > 0 else 0):
        verdict = "reproduced"
    else:
        verdict = "undecided" if math.isnan(error) else "not reproduced"
    if distance <= rounding:
        how = "; ".join(text for text in ("equal to the printed digits", how) if text)
    return replace(
        score, standard_error=error, z=z, verdict=verdict, reason="; ".join(text for text in (how, lost) if text)
    )


def _standard_error(score: Score) -> tuple[float, str]:
    """(combined standard error, how it was formed where a std is missing); NaN without any std."""
    m, n = score.n, score.n_seeds
    ours = score.measured_std
    theirs = score.paper_std * math.sqrt(n / (n - 1)) if n > 1 else NAN
    if math.isnan(ours) and math.isnan(theirs):
        return NAN, "no standard error: no std on either side"
    if math.isnan(theirs):
        return ours * math.sqrt(1 / m + 1 / n), "the paper gives no std: ours stands in"
    if math.isnan(ours):
        return theirs * math.sqrt(1 / m + 1 / n), "one measured seed: the paper's std stands in"
    return math.sqrt(ours**2 / m + theirs**2 / n), ""


def _published(row: Mapping[str, str]) -> Score:
    """The paper's side of a reference row; ValueError for numbers that are none."""
    mean, std, bound = (_number(row, column) for column in ("mean", "std", "upper_bound"))
    if math.isnan(mean) and math.isnan(bound):
        raise ValueError("expected a mean or an upper_bound, found neither")
    if std < 0:
        raise ValueError(f"expected std of zero or more, found {row['std']}")
    seeds = _number(row, "n_seeds")
    if not math.isnan(seeds) and (seeds < 1 or seeds != int(seeds)):
        raise ValueError(f"expected n_seeds as a whole number above zero, found {row['n_seeds']}")
    return Score(
        paper_mean=mean,
        paper_std=std,
        upper_bound=bound,
        n_seeds=1 if math.isnan(seeds) else int(seeds),
        resolution=NAN,
        source=row.get("source", ""),
        note=row.get("note", ""),
    )


def _number(row: Mapping[str, str], column: str) -> float:
    text = row.get(column, "").strip()
    if not text:
        return NAN
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"expected a number in column {column}, found {text!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number in column {column}, found {text!r}")
    return value


def _resolution(row: Mapping[str, str], rows: Iterable[Mapping[str, str]]) -> float:
    """Half a unit of the last printed digit of the row's mean (`_digits`); NaN without a mean."""
    if not row["mean"].strip():
        return NAN
    same = [
        r["mean"]
        for r in rows
        if r["mean"].strip() and r["metric"] == row["metric"] and r.get("source") == row.get("source")
    ]
    return 0.5 * 10.0 ** -_digits(row["mean"], same)


def _digits(text: str, same: Iterable[str]) -> int:
    """Decimal places to which `text` was printed, judged with the other values of its table and metric.

    A CSV file loses trailing zeros (2.5 for 2.50), so a value's own decimals are only a lower limit. A table prints
    either a fixed number of decimals or a fixed number of significant digits: whichever more of its values share,
    the coarser on a tie. Among 2.59 and 2.78, 2.5 is 2.50; beside 0.0068 and 0.35, 0.025 is 0.025; among 6.7e-08
    and 4.1e-09, 7e-08 is 7.0e-08; among 0.058, 0.246 and 0.618, 0.0 is 0.000.
    """
    own = Decimal(text.strip())
    numbers = [Decimal(t.strip()) for t in same]
    places, sharing_places = _commonest(_decimals(v.normalize()) for v in numbers)
    if own != 0:
        digits, sharing_digits = _commonest(_significant(v) for v in numbers if v != 0)
        by_digits = digits - 1 - own.adjusted()
        if sharing_digits != sharing_places:
            places = by_digits if sharing_digits > sharing_places else places
        else:
            places = min(places, by_digits)
    return max(_decimals(own), places)


def _commonest(values: Iterable[int]) -> tuple[int, int]:
    """(most frequent value, the largest of them on a tie; how often it occurs)."""
    counts = Counter(values)
    value = max(counts, key=lambda v: (counts[v], v))
    return value, counts[value]


def _decimals(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _significant(value: Decimal) -> int:
    """Significant digits without trailing zeros, which may come from the CSV file or pad a whole number."""
    return len(value.normalize().as_tuple().digits)


def _text(value: Any) -> str:
    """A key as canonical text: 8, 8.0 and '8' are equal, as are True and 'true'; NaN is ''."""
    text = str(value).strip()
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text.lower() if text.lower() in ("true", "false") else text
    if number.is_nan():
        return ""
    return str(number.normalize()) if number.is_finite() else text


def _identity(row: Mapping[str, str], shared: Sequence[str]) -> tuple[str, ...]:
    return tuple(_text(row[k]) for k in shared)


def _ambiguous(rows: Sequence[Mapping[str, str]], shared: Sequence[str], absent: Sequence[str]) -> dict[Any, str]:
    """Identities on the shared keys whose reference rows differ in keys that measured values lack -> the reason."""
    seen: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for row in rows:
        values = seen.setdefault(_identity(row, shared), {k: set() for k in absent})
        for k in absent:
            values[k].add(_text(row[k]))
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
