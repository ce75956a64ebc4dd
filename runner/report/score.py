"""One row of the scorecard: a published value (`runner.report.reference`), what was measured, and
what `runner.stats.judge` says of the two."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner.report.reference import NAN, ROUNDING, Printed
from runner.stats import judge
from runner.stats.intervals import Difference, Part, Sample, joined, lost_text, withheld

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Score:
    """One row of the scorecard, after its keys; `scorecard` states the rules.

    way, statistic: as the reference row has them. resolution: half a unit of the last printed digit
    of the paper's mean. margin: how far the means may lie apart. std columns: measured with ddof 1,
    the paper's with ddof 0, as published; results_std: of the authors' public results.
    image_variance, image_df: of the difference, where both sides looked at different sets of
    images. rounding_std, rounding_df: where both sides have the same networks, by how much the rest
    (rounding of another device, other probes) moves one seed's value. ratio = measured / paper (or
    / bound), difference = measured − paper with its standard error, degrees of freedom and 90 %
    interval [low, high]. equivalence: what the equivalence test says whatever the verdict;
    detectable: the smallest difference that would have been *not reproduced*, the margin and half
    an interval; significant: "yes" where zero is outside the 99 % interval of the difference and
    the digits are others; seeds_needed: how many would decide an inconclusive row. Other criteria,
    each "yes" or "no": sign_kept (where a sign can differ); in_our_95, the published value in our
    95 % interval; in_their_prediction, ours in the 95 % prediction interval of theirs. order_kept:
    share of the other rows of the metric and table that lie on the same side of this one as in the
    paper. std_ratio, std_p: our std over the paper's (both ddof 1), and the two-sided F test of
    their equality. values: ours, pairs (seed, value), nine digits, None for one that is not finite;
    JSON in scorecard.csv.
    replication: the verdict of the seeds declared for a second one, not counted; "" where none are
    declared. undecidable: why no number of our seeds would decide an inconclusive row.
    """

    paper_mean: float
    paper_std: float
    upper_bound: float
    n_seeds: int
    resolution: float
    way: str = ""
    statistic: str = ""
    results_std: float = NAN
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
    detectable: float = NAN
    significant: str = ""
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
    values: tuple[tuple[int, float | None], ...] = ()
    replication: str = ""
    undecidable: str = ""


def score_of(
    paper: Printed,
    matching: Sequence[Row],
    reason: str = "",
    ambiguous: str = "",
    missing: str = "",
) -> Score:
    """Verdict on one published value from the measured rows that match it.

    reason: why no value can be compared; ambiguous: why these rows may be of another value;
    missing: what they lack of the paper's seeds.
    """
    score = Score(
        paper_mean=paper.mean,
        paper_std=paper.std,
        upper_bound=paper.bound,
        n_seeds=paper.n,
        resolution=paper.resolution,
        way=paper.way,
        statistic=paper.statistic,
        results_std=paper.results_std,
        source=paper.source,
        note=paper.note,
    )
    if not matching:
        return score
    ours = Sample.of([value["value"] for value in matching])
    target = paper.mean
    if math.isnan(paper.mean):
        target = paper.bound
    score = replace(
        score,
        measured_mean=ours.mean,
        measured_std=ours.std,
        n=ours.n,
        ratio=ours.mean / target if target else NAN,
        difference=ours.mean - target,
    )
    seeds = {value["seed"] for value in matching}
    if len(seeds) < len(matching):
        ambiguous = "several measured values for one seed: the key columns do not tell them apart"
    reason = reason or _said(matching, "comparable")
    constructed = _constructed(paper, matching)
    if reason:
        score = replace(score, verdict="not comparable", reason=reason)
    elif ambiguous or not ours.n:
        score = replace(score, verdict="inconclusive", reason=ambiguous)
    elif constructed:
        score = replace(score, verdict="true by construction", reason=constructed)
    elif math.isnan(paper.mean):
        score = _calibrated(_bounded(score, ours), matching)
    else:
        score = _calibrated(_held(score, paper, ours, matching), matching)
    if missing and score.verdict in ("exact match", "reproduced", "not reproduced"):
        score = replace(score, verdict="inconclusive", reason=joined(missing, score.reason))
    lost = lost_text(ours.lost, len(matching), "seeds")
    verdict = withheld(score.verdict, ours.lost)
    needed = score.seeds_needed
    if ours.lost and verdict == "inconclusive" and math.isnan(needed):
        needed = float(len(matching))  # it waits for the seeds that are lost
    return replace(score, verdict=verdict, reason=joined(lost, score.reason), seeds_needed=needed)


def _constructed(paper: Printed, matching: Sequence[Row]) -> str:
    """Why a row could not have come out otherwise; "" where it could."""
    stated = paper.constructed or _said(matching, "constructed")
    may_be_zero = paper.mean == 0 or math.isnan(paper.mean)
    measured = [value["value"] for value in matching if not math.isnan(value["value"])]
    if not stated and may_be_zero and not any(measured):
        return "an exact zero of the code"
    return stated


def _calibrated(score: Score, matching: Sequence[Row]) -> Score:
    """The score, not counted where its protocol was chosen by looking at the numbers."""
    calibrated = _said(matching, "calibrated")
    if not calibrated or score.verdict == "exact match":
        return score
    return replace(score, verdict="calibrated", reason=joined(calibrated, score.reason))


def _bounded(score: Score, ours: Sample) -> Score:
    """Against a printed upper bound on the mean."""
    outcome, needed = judge.below(ours, score.upper_bound)
    reason = "a printed bound on the mean, one-sided at 5 %"
    return replace(score, verdict=outcome, equivalence=outcome, seeds_needed=needed, reason=reason)


RESULTS_STD = "standard deviation of the authors' public results"
PAIRED = "paired: same networks; the interval is that of other probes or another device's rounding"
NO_MORE = "the scatter of the probes contains both answers, and there are no more of these networks"
PAIRED_EXACT = "paired: same networks and images, nothing random is left"


def _held(score: Score, paper: Printed, ours: Sample, matching: Sequence[Row]) -> Score:
    """Against a printed mean. Of fewer seeds than the paper's the networks are not the same."""
    std = paper.std
    if math.isnan(paper.std):
        std = paper.results_std
    theirs = Sample.printed(paper.mean, std, paper.n)
    margin = _margin(paper)
    variance = _mean(matching, "image_variance")
    image_df = _mean(matching, "image_df")
    rounding = NAN
    if ours.n == paper.n:
        rounding = _mean(matching, "rounding_std")
    pairs = _mean(matching, "rounding_df")
    if math.isnan(rounding):
        images = None
        if variance > 0:
            images = Part(variance, _df(image_df))
        compared = judge.equal(ours, theirs, margin, images)
        reasons = [compared.difference.how]
        if math.isnan(paper.std) and not math.isnan(std):
            reasons.append(RESULTS_STD)
    else:  # the same networks: the spread of what is left between the two is known
        compared = judge.paired(ours, theirs, margin, Part(rounding**2, _df(pairs)))
        reasons = [PAIRED if rounding > 0 else PAIRED_EXACT]
    verdict = compared.outcome
    if all(value.get("paired") in ("true", "1") for value in matching):
        if _every_digit(paper, ours):
            verdict = "exact match"
            reasons = ["every printed digit"]
        else:
            reasons.append("same networks and data, but not every printed digit")
    never = ""
    if math.isinf(compared.seeds_needed):
        never = NO_MORE
        if math.isnan(rounding):
            never = judge.only_so_many(paper.n)
    same_digits = judge.digits_agree(ours.mean, paper.mean, paper.resolution)
    return replace(
        _criteria(score, ours, theirs, compared.difference),
        margin=margin,
        image_variance=variance if variance > 0 else 0.0,
        image_df=image_df,
        rounding_std=rounding,
        rounding_df=pairs,
        low=compared.low,
        high=compared.high,
        verdict=verdict,
        equivalence=compared.outcome,
        detectable=margin + (compared.high - compared.low) / 2,
        significant=yes(compared.significant and not same_digits),
        seeds_needed=compared.seeds_needed,
        undecidable=never,
        reason=joined(*reasons),
    )


def _margin(paper: Printed) -> float:
    if paper.margin == ROUNDING:
        return paper.resolution
    stated = float(paper.margin) if paper.margin else NAN
    return judge.margin_of(paper.mean, paper.resolution, stated)


def _df(value: float) -> float:
    """Degrees of freedom; infinite where none are given."""
    return math.inf if math.isnan(value) else value


def _every_digit(paper: Printed, ours: Sample) -> bool:
    """Whether every printed digit of mean and std agrees, over as many seeds."""
    if ours.n != paper.n or not judge.digits_agree(ours.mean, paper.mean, paper.resolution):
        return False
    if math.isnan(paper.std):
        return True
    population = 0.0
    if ours.n > 1:
        population = population_std(ours.std, ours.n)
    return judge.digits_agree(population, paper.std, paper.std_resolution)


def has_one_digit(mean: float, resolution: float) -> bool:
    """Whether a number is printed with one significant digit. resolution: half a unit of it.

    >>> has_one_digit(0.04, 0.005), has_one_digit(0.12, 0.005)
    (True, False)
    """
    return resolution > 0 and round(abs(mean) / (2 * resolution)) < 10


def population_std(std: float, n: float) -> float:
    """The standard deviation with ddof 0, as papers print it, of one with ddof 1 over n values."""
    if n > 1:
        return std * math.sqrt((n - 1) / n)
    return NAN


def _criteria(score: Score, ours: Sample, theirs: Sample, difference: Difference) -> Score:
    """The other criteria that replication studies use."""
    low, high = ours.interval(judge.LEVEL)
    below, above = theirs.prediction(judge.LEVEL, ours.n)
    ratio = NAN
    p = NAN
    if ours.std > 0 and theirs.std > 0:
        from scipy.stats import f

        ratio = ours.std / theirs.std
        cumulative = float(f.cdf(ratio**2, ours.n - 1, theirs.n - 1))
        p = 2 * min(cumulative, 1 - cumulative)
    return replace(
        score,
        standard_error=difference.error * difference.unit,
        df=difference.df,
        z=z_of(difference, score.resolution),
        in_our_95="" if math.isnan(low) else yes(low <= theirs.mean <= high),
        in_their_prediction="" if math.isnan(below) else yes(below <= ours.mean <= above),
        std_ratio=ratio,
        std_p=p,
    )


def z_of(difference: Difference, rounding: float) -> float:
    """difference / √(SE² + h²/3): a printed digit is known to ± h, which is all that parts
    identical rows.

    NaN without a standard error above zero.
    """
    if not difference.error > 0:
        return NAN
    known = rounding if rounding > 0 else 0.0
    printed = known / (math.sqrt(3) * difference.unit)
    return difference.value / math.hypot(difference.error, printed)


def _said(matching: Sequence[Row], column: str) -> str:
    return next((m[column] for m in matching if m.get(column)), "")


def _mean(matching: Sequence[Row], column: str) -> float:
    """Mean of a numeric column of the matching rows; NaN where a row lacks it."""
    texts = [m.get(column, "") for m in matching]
    if texts and all(texts):
        return math.fsum(float(t) for t in texts) / len(texts)
    return NAN


def yes(holds: bool) -> str:
    return "yes" if holds else "no"
