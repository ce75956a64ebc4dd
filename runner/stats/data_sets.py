"""One verdict from what each of several data sets, or draws of chance, shows. `runner.stats.judge` is the face."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from runner.contract import Statement, Verdict
from runner.stats.equivalence import FEWEST_SEEDS


@dataclass(frozen=True)
class DataSetRule:
    """The rule by which data sets make one verdict.

    share: of the data sets with power that have to show it for *confirmed*; least: how many with power are needed.
    """

    share: float = 0.8
    least: int = FEWEST_SEEDS


def verdict_of_data_sets(found: Mapping[int, str], rule: DataSetRule) -> tuple[Verdict, str]:
    """One verdict from what each data set shows: "yes", "no", "opposite", or "inconclusive" (a test without power).

    confirmed: at least `share` of the data sets with power show it, none the opposite; refuted: at most half show it,
    or more than 1 − share show the opposite; inconclusive: between the two, or fewer than `least` with power; not run:
    no data set at all. An effect of exactly zero shows neither and counts as "no".
    """
    if not found:
        return "not run", "no data set"
    heard = [finding for finding in found.values() if finding != "inconclusive"]
    count = {finding: heard.count(finding) for finding in ("yes", "no", "opposite")}
    text = f"{count['yes']} of {len(heard)} data sets show it"
    if count["opposite"]:
        text += f", {count['opposite']} the opposite"
    if len(heard) < len(found):
        text += f"; {len(found) - len(heard)} without power"
    if len(heard) < rule.least:
        return "inconclusive", f"{text}; at least {rule.least} are needed"
    shown, against = count["yes"] / len(heard), count["opposite"] / len(heard)
    if shown >= rule.share and not count["opposite"]:
        return "confirmed", text
    if shown <= 0.5 or against > 1 - rule.share + 1e-9:  # 1 of 5 is no more than 1 − 0.8, whatever floats say
        return "refuted", text
    return "inconclusive", text


def data_sets_needed(found: Mapping[int, str], rule: DataSetRule) -> float:
    """How many data sets would decide votes without power, were their shares those seen.

    As many as bring `least` with power, where some tests have it; inf where none has (values within a data set lack,
    not data sets) and where the share itself lies between a half and `share`, which no number changes.
    """
    heard = sum(finding != "inconclusive" for finding in found.values())
    if not found:
        return float(rule.least)
    return math.inf if not heard or heard >= rule.least else float(math.ceil(rule.least * len(found) / heard))


def finding_of(value: float, statement: Statement) -> str:
    """The vote of a data set whose quantity is `value`."""
    return "inconclusive" if math.isnan(value) else "yes" if statement.holds(value) else "no"


RARE = 0.05
"""A printed result that fewer than one draw in twenty gives is not put down to chance."""


def one_draw(kept: int, draws: int) -> tuple[Verdict, str]:
    """Verdict on a printed result that was one draw of chance, from how many of ours keep it; and that in words.

    refuted: the upper 95 % limit of the share (Clopper–Pearson, one-sided) lies below RARE, which takes 59 draws;
    confirmed: the lower one above 1 − RARE; not run: no draws; inconclusive between the two: such a draw is neither a
    surprise nor a property.
    """
    from scipy.stats import binomtest

    if not draws:
        return "not run", "no draws"
    low, high = binomtest(kept, draws).proportion_ci(0.9, method="exact")  # 5 % on either side
    verdict: Verdict = "refuted" if high < RARE else "confirmed" if low > 1 - RARE else "inconclusive"
    return verdict, f"{kept} of {draws} draws keep it, 90 % interval [{100 * low:.0f}, {100 * high:.0f} %]"
