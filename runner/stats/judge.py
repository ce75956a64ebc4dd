"""The only module that reaches verdicts: on published numbers (equivalence tests of
`runner.stats.intervals`) and on statements of a paper.

Statements. *confirmed* or *refuted* when the 95 % interval over seeds is wholly on one side of the
limits, or enough data sets show it; *inconclusive* when the interval contains both answers or the
test cannot reach its level; *minor error* when it is wrong as printed, in a display or remark on
which no result depends (classes B and C of the errata); *not run* when nothing was measured or no
instance meets the condition; *true by construction* when no other outcome was possible.

Infinite and missing values are counted, not forgotten: a run that diverged is evidence. A statement
with one of them is *inconclusive* at best, its count in the first words of the detail. Statements
about divergence count runs instead.

Several conditions of one statement (depths, checkpoints) are its parts. A statement is confirmed
when every part is confirmed, and refuted when one part is refuted at the level corrected for their
number (Bonferroni).

Scope. A paper speaks of the networks that it measured. Where the same networks and images are
available and the quantity is deterministic (nothing trained, nothing estimated), a statement with
limits from the paper is decided by this value alone, whatever the spread over seeds (`same`). A
criterion that we chose is decided by the 95 % interval, in both directions. The result for further
seeds stands next to it (`Claim.other_seeds`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from runner.contract import Claim, Statement, Verdict, decide
from runner.contract.records import Statistic
from runner.stats.claims import (
    LOST,
    WHOLE,
    DataSetRule as DataSetRule,
    contradicted as contradicted,
    data_sets_needed as data_sets_needed,
    finding_of,
    gathered as gathered,
    incomplete as incomplete,
    minor_error as minor_error,
    one_draw as one_draw,
    overall as overall,
    together as together,
    verdict_of_data_sets as verdict_of_data_sets,
)
from runner.stats.intervals import (
    EQUIVALENCE as EQUIVALENCE,
    FEWEST_SEEDS as FEWEST_SEEDS,
    LEVEL as LEVEL,
    NAN,
    Sample,
    below as below,
    digits_agree as digits_agree,
    equal as equal,
    lost_text,
    margin_of as margin_of,
    paired as paired,
    seeds_for_limit,
    withheld,
)

if TYPE_CHECKING:
    import pandas as pd


def claim(
    statement: Statement,
    verdict: Verdict,
    statistic: float = NAN,
    detail: str = "",
    *,
    threshold: str = "",
    variants: Mapping[str, Verdict] | None = None,
    seeds_needed: float = NAN,
) -> Claim:
    """A row of claims.csv; the reason of the criterion follows the details.

    What could not have come out otherwise is not confirmed but *true by construction*.
    """
    if verdict == "confirmed" and statement.constructed:
        verdict, detail = "true by construction", f"{statement.constructed}; {detail}"
    text = "; ".join(
        t for t in (detail, f"criterion: {statement.reason}" if statement.reason else "") if t
    )
    return Claim(
        statement.name,
        statement.text,
        statement.where,
        verdict,
        statistic,
        threshold or statement.threshold,
        text,
        variants=variants or {},
        seeds_needed=seeds_needed,
        independent=statement.independent,
    )


Parts = Mapping[str, Iterable[float]] | Iterable[float]
"""Name of a part of a statement (a depth, a checkpoint) -> values over seeds; or the values of a
single part."""


def bound(
    says: Statement,
    parts: Parts,
    *,
    known: int = FEWEST_SEEDS,
    over: str = "seeds",
    same: Mapping[str, float] | None = None,
) -> Claim:
    """Claim that the mean over seeds is within the statement's limits in every part.

    A part is confirmed when its 95 % interval is within the limits, and refuted when its interval
    at the level 1 − 0.05/parts is wholly outside.

    Parameters
    ----------
    known
        Fewest seeds that decide.
    over
        What varies, in words.
    same
        Part -> the paper's statistic on its own networks and images, if it is deterministic. This
        value alone decides the part if the limits are the paper's, too.
    """
    if not says.decidable:
        return _without_limits(says)
    samples = _samples(parts)
    level = 1 - (1 - LEVEL) / max(1, len(samples))
    found = {name: _limited(says, s, level, known) for name, s in samples.items()}
    facts = _facts(same, samples)
    if not facts or not says.sharp:
        return _joined(says, samples, found, over=over)
    own: dict[str, tuple[Verdict, float]] = {
        n: (decide(says.holds(v)), NAN) for n, v in facts.items()
    }
    return _as_facts(_joined(says, samples, found | own, over=over), facts, found | own, found)


def number(says: Statement, parts: Parts, *, same: Mapping[str, float] | None = None) -> Claim:
    """Claim that the mean over seeds is the printed number in every part: the equivalence test of
    the scorecard.

    Parameters
    ----------
    same
        Part -> the paper's statistic on its own networks and images, if it is deterministic. The
        part is confirmed where it has every printed digit, and refuted where it is outside the
        margin, whatever the spread over seeds.
    """
    if math.isnan(says.number):
        return _without_limits(says)
    theirs = Sample.printed(says.number, says.std, says.n)
    margin = margin_of(says.number, says.rounding, says.margin)
    samples = _samples(parts)
    words: dict[str, Verdict] = {
        "reproduced": "confirmed",
        "not reproduced": "refuted",
        "inconclusive": "inconclusive",
    }
    found: dict[str, tuple[Verdict, float]] = {}
    for name, sample in samples.items():
        compared = equal(sample, theirs, margin)
        few = sample.n < FEWEST_SEEDS
        found[name] = (
            ("inconclusive", float(FEWEST_SEEDS))
            if few
            else (words[compared.outcome], compared.seeds_needed)
        )
    facts = _facts(same, samples)
    identical = [n for n, v in facts.items() if digits_agree(v, says.number, says.rounding)]
    own: dict[str, tuple[Verdict, float]] = {n: ("confirmed", NAN) for n in identical}
    own |= {
        n: ("refuted", NAN)
        for n, v in facts.items()
        if n not in own and abs(v - says.number) > margin
    }
    made = _joined(says, samples, found | own, f"{says.number:g} ± {margin:.3g}")
    if not own:
        return made
    made = _as_facts(made, {n: facts[n] for n in own}, found | own, found)
    if not identical:
        return made
    text = (
        "every printed digit on the published networks and images"
        + f": {', '.join(identical)}" * (len(found) > 1)
    )
    return replace(made, detail=f"{text}; {made.detail}")


def _as_facts(
    made: Claim,
    facts: Mapping[str, float],
    decided: Mapping[str, tuple[Verdict, float]],
    elsewhere: Mapping[str, tuple[Verdict, float]],
) -> Claim:
    """A claim with parts that values on the published networks decide, and the verdict of other
    seeds on each.

    facts: part -> that value; decided: verdict of every part; elsewhere: the verdicts by the
    interval over seeds.
    """
    parts = {n: v for n, (v, _) in decided.items()}
    numbers = ", ".join(f"{n}: {v:.4g}" if n else f"{v:.4g}" for n, v in facts.items())
    seeds = max(
        (
            n
            for v, n in (elsewhere[name] for name in facts)
            if v == "inconclusive" and math.isfinite(n)
        ),
        default=NAN,
    )
    text = f"on the published networks and images {numbers}"
    text += "" if math.isnan(seeds) else f"; {seeds:g} seeds would decide it for others"
    shown = next((facts.get(n, NAN) for n, (v, _) in decided.items() if v == made.verdict), NAN)
    value = made.statistic if math.isnan(shown) else shown
    return replace(
        made,
        statistic=value,
        detail=f"{text}; {made.detail}",
        variants=parts if len(parts) > 1 else {},
        other_seeds={n or WHOLE: elsewhere[n][0] for n in facts},
    )


def _facts(same: Mapping[str, float] | None, samples: Mapping[str, Sample]) -> dict[str, float]:
    """The values that decide a part alone: finite, and of parts in which no value is lost."""
    return {
        n: v
        for n, v in (same or {}).items()
        if n in samples and not samples[n].lost and math.isfinite(v)
    }


def _samples(parts: Parts) -> dict[str, Sample]:
    """The parts that have values, infinite and missing ones included."""
    named = parts if isinstance(parts, Mapping) else {"": parts}
    samples = {name: Sample.of(values) for name, values in named.items()}
    return {name: s for name, s in samples.items() if s.n + s.lost}


def exact(statement: Statement, parts: Mapping[str, float], detail: str = "") -> Claim:
    """Claim that a deterministic quantity is within the limits in every part; not run where every
    part is NaN.

    An infinite or missing value among others makes the claim inconclusive at best.
    """
    if not statement.decidable:
        return _without_limits(statement)
    if not math.isnan(statement.number):
        statement = replace(
            statement,
            low=statement.number - statement.rounding,
            high=statement.number + statement.rounding,
        )
    lost = sum(not math.isfinite(v) for v in parts.values())
    nothing = all(math.isnan(v) for v in parts.values())
    found: dict[str, Verdict] = {
        name: decide(statement.holds(v) if math.isfinite(v) else None) for name, v in parts.items()
    }
    verdict = "not run" if nothing else overall(list(found.values()))
    value = next((parts[n] for n, v in found.items() if v == verdict), NAN)
    detail = "; ".join(t for t in ("" if nothing else lost_text(lost, len(parts)), detail) if t)
    if not math.isnan(statement.number):
        statement = replace(statement, low=-math.inf, high=math.inf)
    return claim(statement, verdict, value, detail, variants=found if len(found) > 1 else {})


def _without_limits(statement: Statement) -> Claim:
    """The claim of a statement without limits, from the paper or chosen by us: no check could
    fail."""
    return claim(statement, "not run", detail="no limit and no number to compare it with")


def constructed(statement: Statement, why: str, value: float = NAN) -> Claim:
    """The claim of a statement for which no other outcome was possible here."""
    return claim(statement, "true by construction", value, why)


def interval_of(statement: Statement, sample: Sample, level: float) -> tuple[float, float]:
    """The interval of a sample, within what the quantity of the statement can be; NaN below two
    values."""
    low, high = sample.interval(level)
    if math.isnan(low):
        return low, high
    return max(low, statement.least), min(high, statement.most)


def _limited(
    statement: Statement, sample: Sample, level: float, known: int
) -> tuple[Verdict, float]:
    """Verdict on one part of a bound, and the seeds needed."""
    if sample.n < known or not sample.n:
        return "inconclusive", float(known)
    inner = interval_of(statement, sample, LEVEL) if sample.n > 1 else (sample.mean, sample.mean)
    outer = interval_of(statement, sample, level) if sample.n > 1 else inner
    if statement.holds(inner[0]) and statement.holds(inner[1]):
        return withheld("confirmed", sample.lost), NAN
    if outer[1] < statement.low or outer[0] > statement.high:
        return "refuted", NAN
    limits = [limit for limit in (statement.low, statement.high) if math.isfinite(limit)]
    asked = LEVEL if statement.holds(sample.mean) else level
    needed = [
        seeds_for_limit(sample, limit, asked) for limit in limits if not math.isnan(sample.std)
    ]
    return "inconclusive", max(needed, default=NAN)


def _joined(
    statement: Statement,
    samples: Mapping[str, Sample],
    found: Mapping[str, tuple[Verdict, float]],
    threshold: str = "",
    over: str = "seeds",
) -> Claim:
    """One claim from the samples and verdicts of its parts."""
    verdict = overall([v for v, _ in found.values()])
    shown = next((n for n, (v, _) in found.items() if v == verdict), "")
    listed = []
    for name, sample in samples.items():
        low, high = interval_of(statement, sample, LEVEL)
        interval = "" if math.isnan(low) else f" [{low:.4g}, {high:.4g}]"
        listed.append(f"{name}{': ' if name else ''}{sample.mean:.4g}{interval}, n = {sample.n}")
    detail = (
        f"mean and 95 % interval over {over}: " + "; ".join(listed)
        if listed
        else "nothing measured"
    )
    lost, total = sum(s.lost for s in samples.values()), sum(s.n + s.lost for s in samples.values())
    detail = "; ".join(t for t in (lost_text(lost, total), detail) if t)
    needed = [n for v, n in found.values() if v == "inconclusive" and not math.isnan(n)]
    return claim(
        statement,
        verdict,
        samples[shown].mean if shown in samples else NAN,
        detail,
        threshold=threshold,
        variants={n: v for n, (v, _) in found.items()} if len(found) > 1 else {},
        seeds_needed=max(needed) if needed and verdict == "inconclusive" else NAN,
    )


# ------------------------------------------------------------------ tests of several data sets


def by_seed(table: pd.DataFrame, of: Callable[[pd.DataFrame], float]) -> dict[int, float]:
    """seed -> of(rows of that seed), in the order of the seeds."""
    return {int(str(seed)): of(rows) for seed, rows in table.groupby("seed", sort=True)}


def median(values: Mapping[int, float]) -> float:
    """Median of the finite values; NaN without any."""
    from statistics import median as middle

    finite = [v for v in values.values() if math.isfinite(v)]
    return float(middle(finite)) if finite else math.nan


def _directions(row: Statistic, level: float) -> tuple[int | None, int | None]:
    """The least and the largest sign of the effect that a test allows, whatever its lost values
    are.

    0: not significant at this level; None: the test can never be significant at it, or was not
    made.
    """
    ends = [(row.effect, row.p)] * 2
    if row.lost:
        ends = [(row.effect_least, row.p_least), (row.effect_most, row.p_most)]
    if any(math.isnan(p) for _, p in ends) or row.p_min >= level:
        return None, None
    least, most = ((effect > 0) - (effect < 0) if p < level else 0 for effect, p in ends)
    return least, most


def _direction(row: Statistic, level: float) -> int | None:
    """The sign of the effect; None where lost values decide it, or the test can never be
    significant."""
    least, most = _directions(row, level)
    return least if least == most else None


def _unknown(row: Statistic) -> str:
    """What a data set shows whose test does not decide."""
    return LOST if row.lost else "inconclusive"


@dataclass(frozen=True)
class Evidence:
    """The tests and numbers of one variant, from which its claims are decided.

    Each data set (seed) is judged by itself, since its points share its random draw; then data sets
    are counted (`verdict_of_data_sets`).

    Parameters
    ----------
    rule
        How data sets make a verdict.
    level
        Of a single test, uncorrected as in the papers: agreement of several data sets is required
        instead. The number of tests below it after Holm's correction is reported.
    group
        The variant, with which the groups of its tests begin.
    tests
        (name, group) -> Holm-corrected test.
    """

    rule: DataSetRule
    level: float
    group: str = ""
    tests: Mapping[tuple[str, str], Statistic] = field(default_factory=dict)

    def of_seeds(self, test: str) -> dict[int, Statistic]:
        """Seed -> the test of this name in that data set."""
        prefix = f"{self.group} seed=" if self.group else "seed="
        return {
            int(group.removeprefix(prefix)): row
            for (name, group), row in self.tests.items()
            if name == test and group.startswith(prefix) and group.removeprefix(prefix).isdigit()
        }

    def claim(
        self,
        statement: Statement,
        found: Mapping[int, str],
        values: Mapping[int, float],
        threshold: str,
        detail: str,
    ) -> Claim:
        """The claim from what each data set shows, with the median of the quantity over data
        sets."""
        verdict, text = verdict_of_data_sets(found, self.rule)
        detail = "; ".join(t for t in (text, detail) if t)
        needed = data_sets_needed(found, self.rule) if verdict == "inconclusive" else math.nan
        return claim(
            statement, verdict, median(values), detail, threshold=threshold, seeds_needed=needed
        )

    def tested(self, statement: Statement, test: str, *, sign: int) -> Claim:
        """Claim decided by one test in every data set. sign: of the effect claimed, 0 for
        either."""
        found, rows = {}, self.of_seeds(test)
        for seed, row in rows.items():
            direction = _direction(row, self.level)
            if direction is None:
                found[seed] = _unknown(row)
            elif direction == 0:
                found[seed] = "no"
            else:
                found[seed] = "yes" if direction == sign or not sign else "opposite"
        strict = sum(row.p_holm < self.level for row in rows.values())
        listed = ", ".join(f"{r.effect:+.2f} (p {r.p:.2g})" for r in rows.values())
        threshold = f"p < {self.level:g} in a data set" + (
            f", effect {'> 0' if sign > 0 else '< 0'}" if sign else ""
        )
        detail = f"effects {listed}; {strict} below {self.level:g} after Holm" if rows else ""
        return self.claim(
            statement, found, {s: r.effect for s, r in rows.items()}, threshold, detail
        )

    def unrelated(self, statement: Statement, test: str) -> Claim:
        """Claim that there is no relation, by the test that decides that there is one: a data set
        with a significant effect, of either sign, does not show it."""
        directions = {
            seed: _direction(row, self.level) for seed, row in self.of_seeds(test).items()
        }
        rows = self.of_seeds(test)
        found = {
            seed: _unknown(rows[seed]) if sign is None else "no" if sign else "yes"
            for seed, sign in directions.items()
        }
        listed = ", ".join(f"{r.effect:+.2f} (p {r.p:.2g})" for r in rows.values())
        threshold = f"p >= {self.level:g} in a data set"
        effects = {seed: row.effect for seed, row in rows.items()}
        return self.claim(statement, found, effects, threshold, f"effects {listed}")

    def within(self, statement: Statement, test: str) -> Claim:
        """Claim decided by the 95 % interval of the Hodges–Lehmann shift in every data set,
        compared with the limits.

        A data set shows it when the interval is within them, the opposite when it is wholly
        outside; otherwise it is inconclusive.
        """
        found, rows = {}, self.of_seeds(test)
        for seed, row in rows.items():
            low, high = (
                (row.shift_least, row.shift_most) if row.lost else (row.shift_low, row.shift_high)
            )
            if all(map(statement.holds, (low, high))):
                found[seed] = "yes"
            else:
                outside = high < statement.low or low > statement.high
                found[seed] = "opposite" if outside else _unknown(row)
        listed = ", ".join(
            f"{r.shift:.2g} [{r.shift_low:.2g}, {r.shift_high:.2g}]" for r in rows.values()
        )
        threshold = f"interval of the shift {statement.threshold}"
        detail = f"shifts {listed}" if rows else ""
        return self.claim(
            statement, found, {s: r.shift for s, r in rows.items()}, threshold, detail
        )

    def unharmed(self, statement: Statement, test: str) -> Claim:
        """Claim of no harm: a data set shows the opposite where the effect is significantly below
        zero."""
        found, rows = {}, self.of_seeds(test)
        for seed, row in rows.items():
            least, most = _directions(row, self.level)
            if most is not None and most < 0:
                found[seed] = "opposite"
            else:
                found[seed] = _unknown(row) if least is None or least < 0 else "yes"
        listed = ", ".join(f"{r.effect:+.2f} (p {r.p:.2g})" for r in rows.values())
        threshold = f"no effect < 0 with p < {self.level:g}"
        return self.claim(
            statement, found, {s: r.effect for s, r in rows.items()}, threshold, f"effects {listed}"
        )

    def compared(
        self, statement: Statement, values: Mapping[int, float], threshold: str = ""
    ) -> Claim:
        """Claim decided by one number of every data set, compared with the limits."""
        found = {seed: finding_of(v, statement) for seed, v in values.items()}
        listed = "values " + ", ".join(f"{v:.3g}" for v in values.values()) if values else ""
        return self.claim(statement, found, values, threshold or statement.threshold, listed)
