"""Statements decided by values over seeds: limits, a printed number, one value without chance.

*confirmed* or *refuted* when the 95 % interval over seeds is wholly on one side of the
limits, or enough data sets show it; *inconclusive* when the interval contains both answers or the
test cannot reach its level; *minor error* when it is wrong as printed, in a display or remark on
which no result depends (classes B and C of the errata); *not run* when nothing was measured or no
instance meets the condition; *true by construction* when no other outcome was possible.

Infinite and missing values are counted, not forgotten: a run that diverged is evidence. A part with
one of them is *inconclusive*, its count in the first words of the detail. Statements about
divergence count runs instead.

Several conditions of one statement (depths, checkpoints) are its parts. A statement is confirmed
when every part is confirmed, and refuted when one part is refuted at the level corrected for their
number (Bonferroni). The value that is shown is that of the part nearest to its limit, among those
that have the verdict.

Scope. A paper speaks of the networks that it measured. Where the same networks and images are
available and the quantity is deterministic (nothing trained, nothing estimated), a statement with
limits from the paper is decided by this value alone, whatever the spread over seeds (`same`). A
criterion that we chose is decided by the 95 % interval, in both directions. The result for further
seeds stands next to it (`Claim.other_seeds`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from runner.contract import Claim, Statement, Verdict, decide
from runner.stats.claims import WHOLE, claim, overall
from runner.stats.intervals import (
    FEWEST_SEEDS,
    LEVEL,
    NAN,
    Sample,
    Variance,
    digits_agree,
    equal,
    joined,
    lost_text,
    margin_of,
    one_sided,
    paired,
    seeds_for_limit,
    two_sided,
    withheld,
)

PartVerdicts = Mapping[str, "PartVerdict"]
Parts = Mapping[str, Iterable[float]] | Iterable[float]
"""Name of a part of a statement (a depth, a checkpoint) -> values over seeds; or the values of a
single part."""
OUTCOMES: Mapping[str, Verdict] = {
    "reproduced": "confirmed",
    "not reproduced": "refuted",
    "inconclusive": "inconclusive",
}
"""Outcome of an equivalence test -> verdict on a part."""


class PartVerdict(NamedTuple):
    """Verdict on one part of a statement, and how many seeds would decide it."""

    verdict: Verdict
    seeds_needed: float = NAN


class Against(NamedTuple):
    """What parts are compared with. measures: sample -> its interval, p and sensitivity; never: why
    it may be that no number of seeds decides."""

    measures: Callable[[Sample], dict[str, Any]]
    threshold: str = ""
    never: str = "the mean lies on the limit"


def bound(
    statement: Statement,
    parts: Parts,
    *,
    over: str = "seeds",
    same: Mapping[str, float] | None = None,
) -> Claim:
    """Claim that the mean over seeds is within the statement's limits in every part.

    A part is confirmed when its 95 % interval is within the limits, and refuted when its interval
    at the level 1 − 0.05/parts is wholly outside.

    Parameters
    ----------
    over
        What varies, in words.
    same
        Part -> the paper's statistic on its own networks and images, if it is deterministic. This
        value alone decides the part if the limits are the paper's, too.
    """
    if not statement.decidable:
        return _without_limits(statement)
    samples = _samples(parts)
    level = 1 - (1 - LEVEL) / max(1, len(samples))
    over_seeds = {name: _limited(statement, s, level) for name, s in samples.items()}
    facts = {} if statement.chosen else _facts(same, samples)
    by_facts = {name: PartVerdict(decide(statement.holds(v))) for name, v in facts.items()}
    against = Against(partial(_against_limit, statement))
    made = _joined(statement, samples, over_seeds | by_facts, facts, against, over)
    return _as_facts(made, facts, by_facts, over_seeds)


def number(
    statement: Statement,
    parts: Parts,
    *,
    same: Mapping[str, float] | None = None,
    without_probes: Mapping[str, Sequence[float]] | None = None,
) -> Claim:
    """Claim that the mean over seeds is the printed number in every part: the equivalence test of
    the scorecard.

    Parameters
    ----------
    same
        Part -> the paper's statistic on its own networks and images, if it is deterministic. The
        part is confirmed where it has every printed digit, and refuted where it is outside the
        margin, whatever the spread over seeds.
    without_probes
        Part -> the same values without random probes, on the paper's own networks and images. There
        only the probes are others, so that their scatter decides the part, as in the scorecard.
    """
    printed = statement.number
    if math.isnan(printed):
        return _without_limits(statement)
    theirs = Sample.printed(printed, statement.std, statement.n)
    margin = margin_of(printed, statement.rounding, statement.margin)
    named = parts if isinstance(parts, Mapping) else {"": parts}
    samples = _samples(named)
    over_seeds = {name: _equal(sample, theirs, margin) for name, sample in samples.items()}
    facts = _facts(same, samples)
    identical = [n for n, v in facts.items() if digits_agree(v, printed, statement.rounding)]
    by_facts: dict[str, PartVerdict] = {}
    for name, value in facts.items():
        if name in identical:
            by_facts[name] = PartVerdict("confirmed")
        elif abs(value - printed) > margin:
            by_facts[name] = PartVerdict("refuted")
    for name, exact_values in (without_probes or {}).items():
        if len(exact_values) == statement.n:
            by_facts[name] = _by_probes(named[name], exact_values, theirs, margin)
            facts[name] = samples[name].mean
    threshold = f"{printed:g} ± {margin:.3g}"
    never = only_so_many(statement.n)
    # the limits of the equivalence test, so that the part nearest to one of them is shown
    within = replace(statement, low=printed - margin, high=printed + margin)
    deciding = {name: facts[name] for name in by_facts}
    against = Against(partial(_against_number, statement, margin=margin), threshold, never)
    made = _joined(within, samples, over_seeds | by_facts, deciding, against)
    made = _as_facts(made, facts, by_facts, over_seeds)
    if not identical:
        return made
    where = f": {', '.join(identical)}" if len(samples) > 1 else ""
    text = f"every printed digit on the published networks and images{where}"
    return replace(made, detail=f"{text}; {made.detail}")


def _equal(sample: Sample, theirs: Sample, margin: float) -> PartVerdict:
    """Verdict on one part of a printed number."""
    compared = equal(sample, theirs, margin)
    return PartVerdict(OUTCOMES[compared.outcome], compared.seeds_needed)


def only_so_many(seeds: int) -> str:
    """Why no number of our seeds decides a printed mean."""
    return f"the published mean is of {seeds} seeds, and its own interval contains both answers"


def _by_probes(
    values: Iterable[float], exact_values: Sequence[float], theirs: Sample, margin: float
) -> PartVerdict:
    """Verdict on one part of a printed number on its own networks, measured by random probes there
    and here: one seed's difference has √2 times the standard deviation of our probes' errors."""
    ours = Sample.of(values)
    errors = Sample.of(v - e for v, e in zip(values, exact_values, strict=True))
    if errors.n < FEWEST_SEEDS:
        return PartVerdict("inconclusive", float(FEWEST_SEEDS))
    deviation = errors.std
    if ours.log:
        deviation = errors.std * abs(ours.mean)
    compared = paired(ours, theirs, margin, Variance(2 * deviation**2, errors.n - 1))
    return PartVerdict(OUTCOMES[compared.outcome], compared.seeds_needed)


def _nearest(statement: Statement, values: Mapping[str, float]) -> str | None:
    """The part whose value is nearest to a limit of the statement; None where there is none."""
    known = [name for name, value in values.items() if not math.isnan(value)]
    return min(known, key=lambda name: _apart(statement, values[name]), default=None)


def _apart(statement: Statement, value: float) -> float:
    """How far a value is from the nearest limit."""
    limits = [limit for limit in (statement.low, statement.high) if math.isfinite(limit)]
    return min((abs(value - limit) for limit in limits), default=0.0)


def _against_limit(statement: Statement, sample: Sample) -> dict[str, float]:
    """Interval of a mean, its two-sided p against the nearest limit, and how far from it the mean
    would have to be."""
    low, high = interval_of(statement, sample, LEVEL)
    least, most = sample.interval(LEVEL)
    p = NAN
    if sample.error > 0:
        p = two_sided(_apart(statement, sample.mean) / sample.error, sample.n - 1)
    return {"n": sample.n, "low": low, "high": high, "p": p, "detectable": (most - least) / 2}


def _against_number(statement: Statement, sample: Sample, margin: float) -> dict[str, float]:
    """Interval of a mean, the p of its equivalence test with a printed one, and the smallest
    difference that would have been refuted."""
    theirs = Sample.printed(statement.number, statement.std, statement.n)
    found = equal(sample, theirs, margin)
    difference = found.difference
    low, high = interval_of(statement, sample, LEVEL)
    p = NAN
    if difference.error > 0:
        inside = (margin - abs(difference.value) * difference.unit) / difference.error
        p = one_sided(inside / difference.unit, difference.df)
    detectable = margin + (found.high - found.low) / 2
    return {"n": sample.n, "low": low, "high": high, "p": p, "detectable": detectable}


def _as_facts(
    made: Claim, facts: Mapping[str, float], by_facts: PartVerdicts, over_seeds: PartVerdicts
) -> Claim:
    """A claim with parts that values on the published networks decide.

    facts: part -> that value; by_facts: of the parts that they decide; over_seeds: by the interval
    over seeds, the verdict of other seeds.
    """
    if not by_facts:
        return made
    named = [f"{name}: {facts[name]:.4g}".removeprefix(": ") for name in by_facts]
    text = f"on the published networks and images {', '.join(named)}"
    undecided = [over_seeds[n] for n in by_facts if over_seeds[n].verdict == "inconclusive"]
    seeds = [other.seeds_needed for other in undecided if math.isfinite(other.seeds_needed)]
    if seeds:
        text += f"; {max(seeds):g} seeds would decide it for others"
    return replace(
        made,
        detail=f"{text}; {made.detail}",
        other_seeds={name or WHOLE: over_seeds[name].verdict for name in by_facts},
    )


def _facts(same: Mapping[str, float] | None, samples: Mapping[str, Sample]) -> dict[str, float]:
    """The values that decide a part alone: finite, and of parts in which no value is lost."""
    whole = [name for name, sample in samples.items() if not sample.lost]
    return {n: v for n, v in (same or {}).items() if n in whole and math.isfinite(v)}


def _samples(parts: Parts) -> dict[str, Sample]:
    """The parts that have values, infinite and missing ones included."""
    named = parts if isinstance(parts, Mapping) else {"": parts}
    samples = {name: Sample.of(values) for name, values in named.items()}
    return {name: s for name, s in samples.items() if s.n + s.lost}


def exact(statement: Statement, parts: Mapping[str, float] | float, detail: str = "") -> Claim:
    """Claim that a deterministic quantity is within the limits, in every part where there are
    several; not run where every part is NaN.

    An infinite or missing value among others makes the claim inconclusive at best.
    """
    if not statement.decidable:
        return _without_limits(statement)
    limits = statement
    if not math.isnan(statement.number):
        low = statement.number - statement.rounding
        high = statement.number + statement.rounding
        limits = replace(statement, low=low, high=high)
    named = parts if isinstance(parts, Mapping) else {"": parts}
    verdicts: dict[str, Verdict] = {}
    for name, value in named.items():
        verdicts[name] = decide(limits.holds(value) if math.isfinite(value) else None)
    variants = verdicts if len(verdicts) > 1 else {}
    if all(math.isnan(value) for value in named.values()):
        return claim(statement, "not run", detail=detail, variants=variants)
    verdict = overall(list(verdicts.values()))
    deciding = {name: named[name] for name, one in verdicts.items() if one == verdict}
    part = _nearest(limits, deciding)
    value = NAN if part is None else deciding[part]
    lost = sum(not math.isfinite(value) for value in named.values())
    detail = joined(lost_text(lost, len(named)), detail)
    return claim(statement, verdict, value, detail, variants=variants)


def _without_limits(statement: Statement) -> Claim:
    """The claim of a statement without limits, from the paper or chosen by us: no check could
    fail."""
    return claim(statement, "not run", detail="no limit and no number to compare it with")


def interval_of(statement: Statement, sample: Sample, level: float) -> tuple[float, float]:
    """The interval of a sample, within what the quantity of the statement can be; NaN below two
    values."""
    low, high = sample.interval(level)
    if math.isnan(low):
        return low, high
    return max(low, statement.least), min(high, statement.most)


def _limited(statement: Statement, sample: Sample, level: float) -> PartVerdict:
    """Verdict on one part of a bound, and the seeds needed."""
    if sample.n < statement.fewest or not sample.n:
        return PartVerdict("inconclusive", float(statement.fewest))
    inner = outer = (sample.mean, sample.mean)
    if sample.n > 1:
        inner = interval_of(statement, sample, LEVEL)
        outer = interval_of(statement, sample, level)
    if statement.holds(inner[0]) and statement.holds(inner[1]):
        return PartVerdict(withheld("confirmed", sample.lost))
    if statement.excludes(*outer):
        return PartVerdict(withheld("refuted", sample.lost))
    if math.isnan(sample.std):
        return PartVerdict("inconclusive")
    asked = LEVEL if statement.holds(sample.mean) else level
    needed = [
        seeds_for_limit(sample, limit, asked)
        for limit in (statement.low, statement.high)
        if math.isfinite(limit)
    ]
    return PartVerdict("inconclusive", max(needed, default=NAN))


def _joined(
    statement: Statement,
    samples: Mapping[str, Sample],
    decided: PartVerdicts,
    facts: Mapping[str, float],
    against: Against,
    over: str = "seeds",
) -> Claim:
    """One claim from the samples and verdicts of its parts. facts: values that decide a part in
    the place of its mean."""
    verdicts = {name: one.verdict for name, one in decided.items()}
    verdict = overall(list(verdicts.values()))
    values = {name: sample.mean for name, sample in samples.items()} | dict(facts)
    deciding = {name: values[name] for name, one in verdicts.items() if one == verdict}
    described = [_described(statement, name, sample) for name, sample in samples.items()]
    text = "nothing measured"
    if described:
        text = f"mean and 95 % interval over {over}: {'; '.join(described)}"
    lost = sum(sample.lost for sample in samples.values())
    total = lost + sum(sample.n for sample in samples.values())
    undecided = [one.seeds_needed for one in decided.values() if one.verdict == "inconclusive"]
    needed = [seeds for seeds in undecided if not math.isnan(seeds)]
    part = _nearest(statement, deciding)
    made = claim(
        statement,
        verdict,
        NAN if part is None else deciding[part],
        joined(lost_text(lost, total), text),
        threshold=against.threshold,
        variants=verdicts if len(verdicts) > 1 else {},
    )
    if part is not None:
        made = replace(made, **against.measures(samples[part]))
    if verdict != "inconclusive" or not needed:
        return made
    seeds = max(needed)
    return replace(made, seeds_needed=seeds, undecidable=against.never if math.isinf(seeds) else "")


def _described(statement: Statement, name: str, sample: Sample) -> str:
    """'init: 1.2 [1.1, 1.3], n = 5'."""
    low, high = interval_of(statement, sample, LEVEL)
    interval = "" if math.isnan(low) else f" [{low:.4g}, {high:.4g}]"
    head = f"{name}: " if name else ""
    return f"{head}{sample.mean:.4g}{interval}, n = {sample.n}"
