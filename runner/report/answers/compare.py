"""Verdicts on numbers counted, and claims as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING

from runner.contract import Claim
from runner.stats.numbers import WAYS

if TYPE_CHECKING:
    import pandas as pd


VERDICTS = (
    "exact match",
    "reproduced",
    "not reproduced",
    "inconclusive",
    "calibrated",
    "true by construction",
    "not comparable",
    "not run",
)


def summarise(scores: pd.DataFrame) -> dict[str, int]:
    """How many rows of a scorecard have each verdict, in the order of `VERDICTS`."""
    counts = Counter(scores["verdict"])
    return {verdict: counts[verdict] for verdict in VERDICTS}


def by_way(scores: pd.DataFrame) -> dict[str, dict[str, int]]:
    """way -> verdict -> number of rows, of the ways that occur (`numbers.WAYS`); `summarise` of
    each."""
    return {way: summarise(part) for way in WAYS if len(part := scores[scores["way"] == way])}


def claims_table(claims: Iterable[Claim]) -> pd.DataFrame:
    """Claims as rows, one column per field. Raises ValueError when name and group repeat."""
    import pandas as pd

    rows = [vars(claim) for claim in claims]
    seen: set[tuple[str, str]] = set()
    for row in rows:
        key = (row["name"], row["group"])
        if key in seen:
            raise ValueError(
                f"claims: expected unique names within a group, found {key[0]!r} twice ({key[1]!r})"
            )
        seen.add(key)
    return pd.DataFrame(rows, columns=[f.name for f in fields(Claim)])
