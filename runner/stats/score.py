"""One row of the scorecard: a published value (`runner.stats.numbers`), what was measured, and
what the equivalence tests of `runner.stats.intervals` say of the two."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from runner.contract.records import column
from runner.stats.intervals import (
    LEVEL,
    Difference,
    Sample,
    Variance,
    below,
    digits_agree,
    equal,
    joined,
    lost_text,
    margin_of,
    paired,
    withheld,
)
from runner.stats.numbers import NAN, ROUNDING, Printed
from runner.stats.over_seeds import only_so_many

FACTS = ("paired", "rounding_std", "rounding_df", "image_variance", "image_df")
"""What is known of a measured value, where it is (`scorecard`)."""


@dataclass(frozen=True)
class Measured:
    """Our value of one seed. keys: as canonical text; the others: `FACTS`."""

    keys: Mapping[str, str]
    seed: int
    value: float
    paired: bool = False
    rounding_std: float = NAN
    rounding_df: float = NAN
    image_variance: float = NAN
    image_df: float = NAN


@dataclass(frozen=True)
class Score:
    """One row of the scorecard, after its keys; `scorecard` states the rules."""

    paper_mean: float = column("printed value")
    paper_std: float = column("printed standard deviation (ddof 0)")
    upper_bound: float = column("printed bound")
    n_seeds: int = column("seeds of the paper")
    resolution: float = column("half a unit of the last printed digit")
    way: str = column("as described, authors' configuration, or recovered protocol", default="")
    statistic: str = column("mean over seeds, ratio of means, or one value", default="")
    results_std: float = column("standard deviation of the authors' public results", default=NAN)
    margin: float = column("largest difference that counts as reproduced", default=NAN)
    measured_mean: float = column("our mean", default=NAN)
    measured_std: float = column("our standard deviation (ddof 1)", default=NAN)
    n: int = column("our seeds", default=0)
    image_variance: float = column(
        "variance between sets of images",
        default=0.0,
    )
    image_df: float = column("degrees of freedom", default=NAN)
    rounding_std: float = column(
        "scatter from rounding or probes on the same networks",
        default=NAN,
    )
    rounding_df: float = column("degrees of freedom", default=NAN)
    ratio: float = column("measured over printed", default=NAN)
    difference: float = column("measured less printed", default=NAN)
    standard_error: float = column("of the difference", default=NAN)
    df: float = column("degrees of freedom", default=NAN)
    z: float = column("difference over its standard error", default=NAN)
    low: float = column("90 % interval of the difference", default=NAN)
    high: float = column("90 % interval of the difference", default=NAN)
    verdict: str = column("explained in Concepts", default="not run")
    equivalence: str = column("verdict of the equivalence test alone", default="")
    detectable: float = column("smallest difference that would have been found", default=NAN)
    significant: str = column(
        "whether it differs at 1 %, and in its digits",
        default="",
    )
    seeds_needed: float = column("seeds that would decide it; inf: no number would", default=NAN)
    sign_kept: str = column("whether the sign is the printed one", default="")
    order_kept: float = column(
        "share of the table's other values on the printed side of this one",
        default=NAN,
    )
    in_our_95: str = column("whether our 95 % interval contains the printed value", default="")
    in_their_prediction: str = column(
        "whether their 95 % prediction interval contains our mean", default=""
    )
    std_ratio: float = column("our standard deviation over the printed one", default=NAN)
    std_p: float = column("F test of equal standard deviations", default=NAN)
    reason: str = column("of the verdict", default="")
    source: str = column("place in the paper", default="")
    note: str = column("remark", default="")
    values: tuple[tuple[int, float | None], ...] = column(
        "our value of each seed, as JSON", default=()
    )
    replication: str = column(
        "verdict of the seeds declared for a second one (not counted)", default=""
    )
    undecidable: str = column("why no number of seeds would decide it", default="")


def score_of(
    paper: Printed,
    matching: Sequence[Measured],
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
    ours = Sample.of(one.value for one in matching)
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
    if len({one.seed for one in matching}) < len(matching):
        ambiguous = "several measured values for one seed: the key columns do not tell them apart"
    reason = reason or paper.not_comparable
    constructed = _constructed(paper, matching)
    if reason:
        score = replace(score, verdict="not comparable", reason=reason)
    elif ambiguous or not ours.n:
        score = replace(score, verdict="inconclusive", reason=ambiguous)
    elif constructed:
        score = replace(score, verdict="true by construction", reason=constructed)
    elif math.isnan(paper.mean):
        score = _calibrated(_bounded(score, ours), paper)
    else:
        score = _calibrated(_held(score, paper, ours, matching), paper)
    if missing and score.verdict in ("exact match", "reproduced", "not reproduced"):
        score = replace(score, verdict="inconclusive", reason=joined(missing, score.reason))
    lost = lost_text(ours.lost, len(matching), "seeds")
    verdict = withheld(score.verdict, ours.lost)
    needed = score.seeds_needed
    if ours.lost and verdict == "inconclusive" and math.isnan(needed):
        needed = float(len(matching))  # it waits for the seeds that are lost
    return replace(score, verdict=verdict, reason=joined(lost, score.reason), seeds_needed=needed)


def _constructed(paper: Printed, matching: Sequence[Measured]) -> str:
    """Why a row could not have come out otherwise; "" where it could."""
    may_be_zero = paper.mean == 0 or math.isnan(paper.mean)
    measured = [one.value for one in matching if not math.isnan(one.value)]
    if not paper.constructed and may_be_zero and not any(measured):
        return "an exact zero of the code"
    return paper.constructed


def _calibrated(score: Score, paper: Printed) -> Score:
    """The score, not counted where its protocol was chosen by looking at the numbers."""
    if not paper.calibrated or score.verdict == "exact match":
        return score
    return replace(score, verdict="calibrated", reason=joined(paper.calibrated, score.reason))


def _bounded(score: Score, ours: Sample) -> Score:
    """Against a printed upper bound on the mean."""
    outcome, needed = below(ours, score.upper_bound)
    reason = "a printed bound on the mean, one-sided at 5 %"
    return replace(score, verdict=outcome, equivalence=outcome, seeds_needed=needed, reason=reason)


RESULTS_STD = "standard deviation of the authors' public results"
PAIRED = "paired: same networks; the interval is that of other probes or another device's rounding"
NO_MORE = "the scatter of the probes contains both answers, and there are no more of these networks"
PAIRED_EXACT = "paired: same networks and images, nothing random is left"


def _held(score: Score, paper: Printed, ours: Sample, matching: Sequence[Measured]) -> Score:
    """Against a printed mean. Of fewer seeds than the paper's the networks are not the same."""
    std = paper.std
    if math.isnan(paper.std):
        std = paper.results_std
    theirs = Sample.printed(paper.mean, std, paper.n)
    margin = _margin(paper)
    variance = _mean(one.image_variance for one in matching)
    image_df = _mean(one.image_df for one in matching)
    rounding = NAN
    if ours.n == paper.n:
        rounding = _mean(one.rounding_std for one in matching)
    pairs = _mean(one.rounding_df for one in matching)
    if math.isnan(rounding):
        images = None
        if variance > 0:
            images = Variance(variance, _df(image_df))
        compared = equal(ours, theirs, margin, images)
        reasons = [compared.difference.how]
        if math.isnan(paper.std) and not math.isnan(std):
            reasons.append(RESULTS_STD)
    else:  # the same networks: the spread of what is left between the two is known
        compared = paired(ours, theirs, margin, Variance(rounding**2, _df(pairs)))
        reasons = [PAIRED if rounding > 0 else PAIRED_EXACT]
    verdict = compared.outcome
    if all(one.paired for one in matching):
        if _every_digit(paper, ours):
            verdict = "exact match"
            reasons = ["every printed digit"]
        else:
            reasons.append("same networks and data, but not every printed digit")
    never = ""
    if math.isinf(compared.seeds_needed):
        never = NO_MORE
        if math.isnan(rounding):
            never = only_so_many(paper.n)
    same_digits = digits_agree(ours.mean, paper.mean, paper.resolution)
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
    return margin_of(paper.mean, paper.resolution, stated)


def _df(value: float) -> float:
    """Degrees of freedom; infinite where none are given."""
    return math.inf if math.isnan(value) else value


def _every_digit(paper: Printed, ours: Sample) -> bool:
    """Whether every printed digit of mean and std agrees, over as many seeds."""
    if ours.n != paper.n or not digits_agree(ours.mean, paper.mean, paper.resolution):
        return False
    if math.isnan(paper.std):
        return True
    population = 0.0
    if ours.n > 1:
        population = population_std(ours.std, ours.n)
    return digits_agree(population, paper.std, paper.std_resolution)


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
    low, high = ours.interval(LEVEL)
    below, above = theirs.prediction(LEVEL, ours.n)
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


def _mean(values: Iterable[float]) -> float:
    """The mean of values, NaN where one is missing."""
    known = list(values)
    return math.fsum(known) / len(known)


def yes(holds: bool) -> str:
    return "yes" if holds else "no"
