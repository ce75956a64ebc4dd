"""One row of the scorecard: a published value, what was measured, and what `runner.stats.judge` says of the two.

A reference file (experiments/reference/<name>.csv) has one row per published value. `mean`, `std`, `upper_bound`,
`n_seeds`, `source`, `note` describe the value; `margin` and `margin_reason` say how far another value may lie from it
and still be the same ("rounding" for the rounding of the print; blank for the default of `judge.margin_of`);
`constructed` says why the row could not come out otherwise. Every other column is a key (`metric` always).
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.stats import judge
from runner.stats.intervals import Difference, Part, Sample, withheld

if TYPE_CHECKING:
    import pandas as pd


VALUE_COLUMNS = (
    "mean",
    "std",
    "upper_bound",
    "n_seeds",
    "margin",
    "margin_reason",
    "constructed",
    "source",
    "note",
)
BIBLIOGRAPHIC = ("experiment", "table")
"""Keys that say where a value is printed, not which value it is; measured values need not carry them."""
ROUNDING = "rounding"
NAN = float("nan")


@dataclass(frozen=True)
class Printed:
    """One published value. resolution, std_resolution: half a unit of the last printed digit of mean and std."""

    mean: float
    std: float
    bound: float
    n: int
    margin: str
    constructed: str
    source: str
    note: str
    resolution: float = NAN
    std_resolution: float = NAN


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
            raise ValueError(
                f"{path}: expected a column {column!r}, found {', '.join(header) or 'an empty file'}"
            )
    if len(set(header)) < len(header):
        raise ValueError(f"{path}: column names repeat: {', '.join(header)}")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise ValueError(
                f"{path}, row {number}: expected {len(header)} fields, found {len(row)}"
            )
        try:
            published(dict(zip(header, row, strict=True)))
        except ValueError as error:
            raise ValueError(f"{path}, row {number}: {error}") from None
    return pd.DataFrame(rows[1:], columns=header, dtype=str)


def published(row: Mapping[str, str]) -> Printed:
    """The paper's side of a reference row; ValueError for numbers that are none."""
    mean, std, bound = (_number(row, column) for column in ("mean", "std", "upper_bound"))
    if math.isnan(mean) and math.isnan(bound):
        raise ValueError("expected a mean or an upper_bound, found neither")
    if std < 0:
        raise ValueError(f"expected std of zero or more, found {row['std']}")
    seeds = _number(row, "n_seeds")
    if not math.isnan(seeds) and (seeds < 1 or seeds != int(seeds)):
        raise ValueError(f"expected n_seeds as a whole number above zero, found {row['n_seeds']}")
    margin = row.get("margin", "").strip()
    if margin not in ("", ROUNDING) and not _number(row, "margin") >= 0:
        raise ValueError(
            f"expected a margin of zero or more, or {ROUNDING!r}, found {row['margin']}"
        )
    return Printed(
        mean=mean,
        std=std,
        bound=bound,
        n=1 if math.isnan(seeds) else int(seeds),
        margin=margin,
        constructed=row.get("constructed", "").strip(),
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


def resolution(
    row: Mapping[str, str], rows: Iterable[Mapping[str, str]], column: str = "mean"
) -> float:
    """Half a unit of the last printed digit of the row's mean or std (`_digits`); NaN where there is none."""
    if not row.get(column, "").strip():
        return NAN
    same = [
        r[column]
        for r in rows
        if r[column].strip()
        and r["metric"] == row["metric"]
        and r.get("source") == row.get("source")
    ]
    return 0.5 * 10.0 ** -_digits(row[column], same)


def _digits(text: str, same: Iterable[str]) -> int:
    """Decimal places to which `text` was printed, judged with the other values of its table and metric.

    A CSV file loses trailing zeros (2.5 for 2.50), so a value's own decimals are only a lower limit. A table prints
    either a fixed number of decimals or a fixed number of significant digits: whichever more of its values share,
    the coarser on a tie. Among 2.59 and 2.78, 2.5 is 2.50; next to 0.0068 and 0.35, 0.025 is 0.025; among 6.7e-08
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


def text_of(value: Any) -> str:
    """A key as canonical text: 8, 8.0 and '8' are equal, as are True and 'true'; NaN is ''."""
    text = str(value).strip()
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text.lower() if text.lower() in ("true", "false") else text
    if number.is_nan():
        return ""
    return str(number.normalize()) if number.is_finite() else text


@dataclass(frozen=True)
class Score:
    """One row of the scorecard, after its keys; `scorecard` states the rules.

    resolution: half a unit of the last printed digit of the paper's mean. margin: how far the means may lie apart.
    std columns: measured with ddof 1, the paper's with ddof 0, as published. image_variance, image_df: of the
    difference, where both sides looked at different sets of images. rounding_std, rounding_df: of a paired row, by how
    much rounding moves one seed's value between two devices. ratio = measured / paper (or / bound), difference
    = measured − paper with its standard error, degrees of freedom and 90 % interval [low, high]. equivalence: what the
    equivalence test says whatever the verdict; shifted: "yes" where the values agree within the margin and differ all
    the same (zero outside the 95 % interval); seeds_needed: how many would decide an inconclusive row.
    Other criteria, each "yes" or "no": sign_kept (where a sign can differ); in_our_95, the published value in our 95 %
    interval; in_their_prediction, ours in the 95 % prediction interval of theirs. order_kept: share of the other rows
    of the metric and table that lie on the same side of this one as in the paper. std_ratio, std_p: our std over the
    paper's (both ddof 1), and the two-sided F test of their equality. values: ours, as "42:1.52 43:1.49" by seed.
    replication: the verdict of the seeds declared for a second one, not counted; "" where none are declared.
    """

    paper_mean: float
    paper_std: float
    upper_bound: float
    n_seeds: int
    resolution: float
    margin: float = NAN
    measured_mean: float = NAN
    measured_std: float = NAN
    n: int = 0
    image_variance: float = 0.0
    image_df: float = NAN
    rounding_std: float = NAN
    rounding_df: float = NAN
    ratio: float = NAN
    difference: float = NAN
    standard_error: float = NAN
    df: float = NAN
    z: float = NAN
    low: float = NAN
    high: float = NAN
    verdict: str = "not run"
    equivalence: str = ""
    shifted: str = ""
    seeds_needed: float = NAN
    sign_kept: str = ""
    order_kept: float = NAN
    in_our_95: str = ""
    in_their_prediction: str = ""
    std_ratio: float = NAN
    std_p: float = NAN
    reason: str = ""
    source: str = ""
    note: str = ""
    values: str = ""
    replication: str = ""


def score_of(
    paper: Printed, matching: Sequence[Mapping[str, Any]], reason: str, ambiguous: str
) -> Score:
    """Verdict on one published value from the measured rows that match it."""
    score = Score(
        paper.mean,
        paper.std,
        paper.bound,
        paper.n,
        paper.resolution,
        source=paper.source,
        note=paper.note,
    )
    if not matching:
        return score
    values = [m["value"] for m in matching]
    ours = Sample.of(values)
    lost = ours.lost_text.replace(" infinite", " seeds infinite")
    if not ours.n:
        return replace(score, verdict="inconclusive", reason=lost)
    target = paper.bound if math.isnan(paper.mean) else paper.mean
    score = replace(
        score,
        measured_mean=ours.mean,
        measured_std=ours.std,
        n=ours.n,
        ratio=ours.mean / target if target else NAN,
        difference=ours.mean - target,
    )
    if len({row["seed"] for row in matching}) < len(matching):
        ambiguous = "several measured values for one seed: the key columns do not tell them apart"
    if ambiguous:
        return replace(score, verdict="inconclusive", reason=joined(lost, ambiguous))
    if reason:
        return replace(score, verdict="not comparable", reason=joined(lost, reason))
    constructed = paper.constructed or _said(matching, "constructed")
    if not constructed and not any(values) and (math.isnan(paper.mean) or paper.mean == 0):
        constructed = "an exact zero of the code"
    if constructed:
        return replace(
            score,
            verdict=withheld("true by construction", ours.lost),
            reason=joined(lost, constructed),
        )
    score = _bounded(score, ours) if math.isnan(paper.mean) else _held(score, paper, ours, matching)
    calibrated = _said(matching, "calibrated")
    if calibrated and score.verdict != "exact match":
        score = replace(score, verdict="calibrated", reason=joined(calibrated, score.reason))
    return replace(
        score, verdict=withheld(score.verdict, ours.lost), reason=joined(lost, score.reason)
    )


def joined(*texts: str) -> str:
    """The texts that are not empty, separated by semicolons."""
    return "; ".join(text for text in texts if text)


def _bounded(score: Score, ours: Sample) -> Score:
    """Against a printed upper bound on the mean."""
    outcome, needed = judge.below(ours, score.upper_bound)
    reason = "a printed bound on the mean, one-sided at 5 %"
    return replace(score, verdict=outcome, equivalence=outcome, seeds_needed=needed, reason=reason)


def _held(
    score: Score, paper: Printed, ours: Sample, matching: Sequence[Mapping[str, Any]]
) -> Score:
    """Against a printed mean."""
    theirs = Sample.printed(paper.mean, paper.std, paper.n)
    named = NAN if paper.margin in ("", ROUNDING) else float(paper.margin)
    margin = (
        paper.resolution
        if paper.margin == ROUNDING
        else judge.margin_of(paper.mean, paper.resolution, named)
    )
    variance, image_df = (_mean(matching, c) for c in ("image_variance", "image_df"))
    images = (
        Part(variance, math.inf if math.isnan(image_df) else image_df) if variance > 0 else None
    )
    paired = all(m.get("paired") in ("true", "1") for m in matching)
    rounding, pairs = (
        _mean(matching, c) if paired else NAN for c in ("rounding_std", "rounding_df")
    )
    if math.isnan(rounding):
        compared, how = judge.equal(ours, theirs, margin, images), ""
    else:  # the same networks: what is left between the two is rounding, its spread measured beforehand
        grown = Part(rounding**2, math.inf if math.isnan(pairs) else pairs)
        compared = judge.paired(ours, theirs, margin, grown)
        printed = judge.digits_agree(ours.mean, paper.mean, paper.resolution)
        compared = replace(compared, shifted=compared.shifted and not printed)
        how = "paired: same networks, data and order; the interval is that of another device's rounding"
    difference = compared.difference
    reasons = [how or difference.how]
    verdict = compared.outcome
    if paired:
        agree = judge.digits_agree(ours.mean, paper.mean, paper.resolution) and ours.n == paper.n
        if agree and not math.isnan(paper.std):
            population = ours.std * math.sqrt((ours.n - 1) / ours.n) if ours.n > 1 else 0.0
            agree = judge.digits_agree(population, paper.std, paper.std_resolution)
        verdict = "exact match" if agree else verdict
        said = "same networks and data, but not every printed digit"
        reasons = ["every printed digit"] if agree else [*reasons, said]
    if compared.shifted and verdict == "reproduced":
        reasons.append("shifted")
    return replace(
        _criteria(score, ours, theirs, difference),
        margin=margin,
        image_variance=variance if variance > 0 else 0.0,
        image_df=image_df,
        rounding_std=rounding,
        rounding_df=pairs,
        low=compared.low,
        high=compared.high,
        verdict=verdict,
        equivalence=compared.outcome,
        shifted=yes(compared.shifted),
        seeds_needed=compared.seeds_needed,
        reason=joined(*reasons),
    )


def _criteria(score: Score, ours: Sample, theirs: Sample, difference: Difference) -> Score:
    """The other criteria that replication studies use."""
    low, high = ours.interval(judge.LEVEL)
    below, above = theirs.prediction(judge.LEVEL, ours.n)
    ratio, p = NAN, NAN
    if ours.std > 0 and theirs.std > 0:
        from scipy.stats import f

        ratio = ours.std / theirs.std
        cumulative = float(f.cdf(ratio**2, ours.n - 1, theirs.n - 1))
        p = 2 * min(cumulative, 1 - cumulative)
    return replace(
        score,
        standard_error=difference.error,
        df=difference.df,
        z=z_of(difference, score.resolution),
        in_our_95="" if math.isnan(low) else yes(low <= theirs.mean <= high),
        in_their_prediction="" if math.isnan(below) else yes(below <= ours.mean <= above),
        std_ratio=ratio,
        std_p=p,
    )


def z_of(difference: Difference, rounding: float) -> float:
    """difference / √(SE² + h²/3): a printed digit is known to ± h, which is all that parts identical rows.

    NaN without a standard error above zero.
    """
    if not difference.error > 0:
        return NAN
    return difference.value / math.hypot(
        difference.error, (rounding if rounding > 0 else 0.0) / math.sqrt(3)
    )


def _said(matching: Sequence[Mapping[str, Any]], column: str) -> str:
    return next((m[column] for m in matching if m.get(column)), "")


def _mean(matching: Sequence[Mapping[str, Any]], column: str) -> float:
    """Mean of a numeric column of the matching rows; NaN where a row lacks it."""
    texts = [m.get(column, "") for m in matching]
    return math.fsum(float(t) for t in texts) / len(texts) if texts and all(texts) else NAN


def yes(holds: bool) -> str:
    return "yes" if holds else "no"
