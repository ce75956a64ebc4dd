"""The only place where verdicts are reached: on rows of a scorecard (`runner.stats.equivalence`, through this face),
and on statements of a paper.

Statements. *confirmed* or *refuted* when the 95 % interval over seeds lies wholly on one side of the limits, or enough
data sets show it; *inconclusive* when the interval holds both answers or the test cannot reach its level; *minor error*
when it is wrong as printed in a display or remark on which no result depends (classes B and C of the errata); *not run*
when nothing was measured or no instance meets the condition; *true by construction* when it could not have come out
otherwise.

Several conditions of one statement (depths, checkpoints) are parts of it: it is confirmed when every part is, and
refuted when a part is at the level that their number asks for (Bonferroni), so that a statement with many parts is not
refuted by chance.

Scope. A paper speaks of the networks that it measured. Where these very networks and images are at hand, and what was
measured on them has no chance in it (nothing trained, nothing estimated), a statement about them with limits of its own
is a fact and decided as one, for or against, whatever the spread over seeds (`same`). A criterion
that we chose is decided by the 95 % interval, in both directions. The result for further seeds is a variant of its
own, "(other seeds)".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from runner.contract import Claim, Statement, Verdict, decide
from runner.stats.data_sets import DataSetRule, data_sets_needed, finding_of, one_draw, verdict_of_data_sets
from runner.stats.equivalence import (
    EQUIVALENCE,
    FEWEST_SEEDS,
    LEVEL,
    Comparison,
    below,
    digits_agree,
    equal,
    margin_of,
    none_above,
    paired,
)
from runner.stats.intervals import NAN, Sample, seeds_for_limit
from runner.stats.variants import gathered, incomplete, minor_error, overall, together, variants_text

__all__ = [
    "EQUIVALENCE",
    "FEWEST_SEEDS",
    "LEVEL",
    "Comparison",
    "DataSetRule",
    "below",
    "bound",
    "claim",
    "constructed",
    "data_sets_needed",
    "digits_agree",
    "equal",
    "exact",
    "finding_of",
    "gathered",
    "incomplete",
    "margin_of",
    "minor_error",
    "none_above",
    "number",
    "one_draw",
    "overall",
    "paired",
    "stated",
    "together",
    "variants_text",
    "verdict_of_data_sets",
]


def claim(
    statement: Statement,
    verdict: Verdict,
    statistic: float = NAN,
    detail: str = "",
    *,
    threshold: str = "",
    variants: str = "",
    seeds_needed: float = NAN,
) -> Claim:
    """A row of claims.csv; the reason of the criterion follows the details."""
    text = "; ".join(t for t in (detail, f"criterion: {statement.reason}" if statement.reason else "") if t)
    return Claim(
        statement.name,
        statement.text,
        statement.where,
        verdict,
        statistic,
        threshold or statement.threshold,
        text,
        variants=variants,
        seeds_needed=seeds_needed,
    )


Parts = Mapping[str, Iterable[float]] | Iterable[float]
"""What a statement is held to: name of a part (a depth, a checkpoint) -> values over seeds; or the values alone."""


def stated(what: Statement | str, **about: Any) -> Statement:
    """A statement as it is, or one of this name with `text`, `where` and limits or a number."""
    return what if isinstance(what, Statement) else Statement(name=what, **about)


def bound(
    what: Statement | str,
    parts: Parts,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    known: int = FEWEST_SEEDS,
    over: str = "seeds",
    where: str = "",
    statement: str = "",
    same: Mapping[str, float] | None = None,
) -> Claim:
    """The mean over seeds keeps the statement's limits in every part. known: fewest seeds to decide.

    A part is confirmed when its 95 % interval lies within the limits, and refutes when its interval at the level
    1 − 0.05/parts lies wholly outside. what: a statement, or the name of one given by the other arguments.
    over: what varies, in words. same: part -> the paper's own statistic on its own networks and images, without chance;
    such a part is confirmed or refuted by that number alone, if the limits are the paper's own, too.
    """
    says = stated(what, text=statement, where=where, low=low, high=high)
    if not says.decidable:
        return _without_limits(says)
    samples = _samples(parts)
    level = 1 - (1 - LEVEL) / max(1, len(samples))
    found = {name: _limited(says, s, level, known) for name, s in samples.items()}
    facts = {n: v for n, v in (same or {}).items() if n in found and not math.isnan(v)}
    if not facts or not says.sharp:
        return _joined(says, samples, found, over=over)
    own: dict[str, tuple[Verdict, float]] = {n: (decide(says.holds(v)), NAN) for n, v in facts.items()}
    return _as_facts(_joined(says, samples, found | own, over=over), facts, found | own, found)


def number(
    what: Statement | str,
    parts: Parts,
    printed: float = NAN,
    rounding: float = 0.0,
    *,
    known: int = FEWEST_SEEDS,
    where: str = "",
    statement: str = "",
    same: Mapping[str, float] | None = None,
) -> Claim:
    """The mean over seeds is the printed number in every part: the equivalence test of the scorecard.

    what: a statement, or the name of one given by the other arguments (printed by one number of five seeds).
    same: part -> the paper's own statistic on its own networks and images, without chance; where that has every printed
    digit, the part is confirmed as *identical* rows of a scorecard are, whatever the spread over seeds, and refuted
    where it lies outside the margin.
    """
    says = stated(what, text=statement, where=where, number=printed, rounding=rounding, n=5)
    if math.isnan(says.number):
        return _without_limits(says)
    theirs = Sample.printed(says.number, says.std, says.n)
    margin = margin_of(says.number, says.rounding, says.margin)
    samples = _samples(parts)
    words: dict[str, Verdict] = {"reproduced": "confirmed", "not reproduced": "refuted", "inconclusive": "inconclusive"}
    found: dict[str, tuple[Verdict, float]] = {}
    for name, sample in samples.items():
        compared = equal(sample, theirs, margin)
        few = sample.n < known
        found[name] = ("inconclusive", float(known)) if few else (words[compared.outcome], compared.seeds_needed)
    facts = {n: v for n, v in (same or {}).items() if n in found and not math.isnan(v)}
    identical = [n for n, v in facts.items() if digits_agree(v, says.number, says.rounding)]
    own: dict[str, tuple[Verdict, float]] = {n: ("confirmed", NAN) for n in identical}
    own |= {n: ("refuted", NAN) for n, v in facts.items() if n not in own and abs(v - says.number) > margin}
    made = _joined(says, samples, found | own, f"{says.number:g} ± {margin:.3g}")
    if not own:
        return made
    made = _as_facts(made, {n: facts[n] for n in own}, found | own, found)
    if not identical:
        return made
    text = "every printed digit on the published networks and images" + f": {', '.join(identical)}" * (len(found) > 1)
    return replace(made, detail=f"{text}; {made.detail}")


def _as_facts(
    made: Claim,
    facts: Mapping[str, float],
    decided: Mapping[str, tuple[Verdict, float]],
    elsewhere: Mapping[str, tuple[Verdict, float]],
) -> Claim:
    """A claim some of whose parts are facts about the published networks, with a mark for what other seeds say of each.

    decided: verdict of every part; elsewhere: the verdicts by the interval over seeds.
    """
    alone = len(decided) == 1
    marks = {"published networks" if alone else n: v for n, (v, _) in decided.items()}
    marks |= {f"{n} (other seeds)" if n else "other seeds": elsewhere[n][0] for n in facts}
    numbers = ", ".join(f"{n}: {v:.4g}" if n else f"{v:.4g}" for n, v in facts.items())
    seeds = max(
        (n for v, n in (elsewhere[name] for name in facts) if v == "inconclusive" and math.isfinite(n)), default=NAN
    )
    text = f"on the published networks and images {numbers}"
    text += "" if math.isnan(seeds) else f"; {seeds:g} seeds would decide it for others"
    shown = next((facts.get(n, NAN) for n, (v, _) in decided.items() if v == made.verdict), NAN)
    value = made.statistic if math.isnan(shown) else shown
    return replace(made, statistic=value, detail=f"{text}; {made.detail}", variants=variants_text(marks))


def _samples(parts: Parts) -> dict[str, Sample]:
    """The parts that have values."""
    named = parts if isinstance(parts, Mapping) else {"": parts}
    samples = {name: Sample.of(values) for name, values in named.items()}
    return {name: s for name, s in samples.items() if s.n}


def exact(statement: Statement, parts: Mapping[str, float], detail: str = "") -> Claim:
    """A quantity without chance keeps the limits in every part; NaN is a part with nothing to test."""
    if not statement.decidable:
        return _without_limits(statement)
    if not math.isnan(statement.number):
        statement = replace(
            statement, low=statement.number - statement.rounding, high=statement.number + statement.rounding
        )
    found: dict[str, tuple[Verdict, float]] = {
        name: ("not run" if math.isnan(v) else decide(statement.holds(v)), NAN) for name, v in parts.items()
    }
    verdict = overall([v for v, _ in found.values()])
    value = next((parts[n] for n, (v, _) in found.items() if v == verdict), NAN)
    marks = variants_text({name: v for name, (v, _) in found.items()}) if len(found) > 1 else ""
    if not math.isnan(statement.number):
        statement = replace(statement, low=-math.inf, high=math.inf)
    return claim(statement, verdict, value, detail, variants=marks)


def _without_limits(statement: Statement) -> Claim:
    """Nothing could fail: neither the paper nor a criterion of ours sets a limit."""
    return claim(statement, "not run", detail="no limit and no number to hold it to")


def constructed(statement: Statement, why: str, value: float = NAN) -> Claim:
    """A statement that could not have come out otherwise here."""
    return claim(statement, "true by construction", value, why)


def _limited(statement: Statement, sample: Sample, level: float, known: int) -> tuple[Verdict, float]:
    """Verdict and seeds needed of one part of a bound."""
    if sample.n < known:
        return "inconclusive", float(known)
    inner = sample.interval(LEVEL) if sample.n > 1 else (sample.mean, sample.mean)
    outer = sample.interval(level) if sample.n > 1 else inner
    if statement.holds(inner[0]) and statement.holds(inner[1]):
        return "confirmed", NAN
    if outer[1] < statement.low or outer[0] > statement.high:
        return "refuted", NAN
    limits = [limit for limit in (statement.low, statement.high) if math.isfinite(limit)]
    asked = LEVEL if statement.holds(sample.mean) else level
    needed = [seeds_for_limit(sample, limit, asked) for limit in limits if not math.isnan(sample.std)]
    return "inconclusive", max(needed, default=NAN)


def _joined(
    statement: Statement,
    samples: Mapping[str, Sample],
    found: Mapping[str, tuple[Verdict, float]],
    threshold: str = "",
    over: str = "seeds",
) -> Claim:
    """One claim from the samples of its parts and what became of each."""
    verdict = overall([v for v, _ in found.values()])
    shown = next((n for n, (v, _) in found.items() if v == verdict), "")
    listed = []
    for name, sample in samples.items():
        low, high = sample.interval(LEVEL)
        interval = "" if math.isnan(low) else f" [{low:.4g}, {high:.4g}]"
        listed.append(f"{name}{': ' if name else ''}{sample.mean:.4g}{interval}, n = {sample.n}")
    detail = f"mean and 95 % interval over {over}: " + "; ".join(listed) if listed else "nothing measured"
    needed = [n for v, n in found.values() if v == "inconclusive" and not math.isnan(n)]
    return claim(
        statement,
        verdict,
        samples[shown].mean if shown in samples else NAN,
        detail,
        threshold=threshold,
        variants=variants_text({n: v for n, (v, _) in found.items()}) if len(found) > 1 else "",
        seeds_needed=max(needed) if needed and verdict == "inconclusive" else NAN,
    )
