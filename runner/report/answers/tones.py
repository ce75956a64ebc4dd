"""Verdicts as the pages show them: what each says, and its tone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

TONES = {
    **dict.fromkeys(("exact match", "reproduced", "confirmed"), "good"),
    **dict.fromkeys(("not reproduced", "refuted"), "bad"),
    **dict.fromkeys(
        ("minor error", "calibrated", "true by construction", "not comparable"), "neutral"
    ),
}
MEANINGS = {
    "exact match": "same networks and data; every printed digit agrees",
    "reproduced": "within the margin, by an equivalence test",
    "confirmed": "the statement meets its criterion",
    "not reproduced": "outside the margin",
    "refuted": "the statement does not meet its criterion",
    "minor error": "wrong as printed; no result depends on it",
    "inconclusive": "the interval allows both answers",
    "calibrated": "the protocol was chosen to match these numbers; not counted as evidence",
    "true by construction": "could not have come out otherwise; not counted",
    "not comparable": "other data, or a protocol that the paper does not state",
    "not run": "not measured",
}
"""Verdict -> what it says, in the order of tiles."""
COUNTED = (
    "refuted",
    "not reproduced",
    "minor error",
    "inconclusive",
    "confirmed",
    "reproduced",
    "exact match",
)
"""Verdicts that are counted, the worst first."""
OF_NUMBERS = tuple(v for v in MEANINGS if v not in ("confirmed", "refuted", "minor error"))
"""Verdicts of printed numbers."""


def tone(verdict: str) -> str:
    """good, bad, neutral or open: the colour of a verdict, always next to its word and sign."""
    return TONES.get(verdict, "open")


def outcome_of(verdicts: Mapping[str, int]) -> str:
    """Whether a table, figure or theorem holds, from the verdicts of all its rows; "" where none is
    judged.

    >>> outcome_of({"exact match": 15, "reproduced": 2, "calibrated": 1})
    'holds: 17 of 17 judged rows agree'
    >>> outcome_of({"confirmed": 2, "refuted": 1})
    'does not hold in every row: 2 of 3 judged rows agree; disagree: 1'
    >>> outcome_of({"reproduced": 1, "inconclusive": 3})
    'holds as far as it is decided: 1 of 4 judged rows agree; inconclusive: 3'
    >>> outcome_of({"inconclusive": 1})
    'is inconclusive: 1 judged row'
    """
    counts: Counter[str] = Counter()
    for verdict, count in verdicts.items():
        if is_judged(verdict):
            counts[tone(verdict)] += count
    judged = counts["good"] + counts["bad"] + counts["open"]
    if not judged:
        return ""
    if judged == counts["open"]:
        return f"is inconclusive: {judged} judged row{'' if judged == 1 else 's'}"
    parts = [f"{counts['good']} of {judged} judged rows agree"]
    if counts["bad"]:
        parts.append(f"disagree: {counts['bad']}")
    if counts["open"]:
        parts.append(f"inconclusive: {counts['open']}")
    outcome = "holds as far as it is decided"
    if counts["bad"]:
        outcome = "does not hold in every row"
    elif not counts["open"]:
        outcome = "holds"
    return f"{outcome}: {'; '.join(parts)}"


def is_judged(verdict: str) -> bool:
    """Whether a verdict counts for or against the place of its row."""
    return verdict != "not run" and tone(verdict) != "neutral"


def in_order(*counts: Mapping[str, int]) -> dict[str, int]:
    """The sum of some counts by verdict, in the order of tiles."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    rest = sorted(set(total) - set(MEANINGS))
    return {verdict: total[verdict] for verdict in (*MEANINGS, *rest) if total[verdict]}
