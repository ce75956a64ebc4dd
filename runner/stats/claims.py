"""Verdicts put together: of the parts and variants of a statement, of several data sets, of random
draws; and the statements of a paper, read from the file next to its printed numbers.
`runner.stats.judge` exports what others use.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner.contract import Claim, Statement, Verdict
from runner.stats.intervals import FEWEST_SEEDS, withheld

RARE = 0.05
"""A printed result that fewer than one draw in twenty gives is not put down to chance."""
NUMBERS = ("low", "high", "number", "rounding", "std", "margin")
OF_QUANTITY = ("wrong", "least", "most")
WORDS = ("reason", "constructed", "alternative")
COLUMNS = (
    "name",
    "statement",
    "where",
    *NUMBERS,
    *OF_QUANTITY,
    "n",
    "strict",
    "independent",
    *WORDS,
)
YES = ("1", "true", "yes")
WHOLE = "statement"
"""Name of the part that is all of a statement."""


DECIDING: tuple[Verdict, ...] = (
    *("refuted", "minor error", "inconclusive", "confirmed"),
    *("true by construction", "not comparable"),
)
"""A statement has the first of these verdicts that one of its parts has."""


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on a statement from those on its parts."""
    return next((verdict for verdict in DECIDING if verdict in verdicts), "not run")


def together(claims: Mapping[str, Claim], main: str | None = None) -> Claim:
    """One row from the claims of a statement under several variants: `main` decides, the others are
    secondary results.

    Without `main` the variants are parts of the statement (`overall`). Of a variant whose parts
    have different verdicts, each part is listed. Raises ValueError for no claims.
    """
    if not claims:
        raise ValueError("expected the claims of at least one variant, found none")
    if main is not None and main in claims:
        chosen = claims[main]
    else:
        verdict = overall([c.verdict for c in claims.values()])
        chosen = next(
            (c for c in claims.values() if c.verdict == verdict), next(iter(claims.values()))
        )
    parts: dict[str, Verdict] = {}
    other_seeds: dict[str, Verdict] = {}
    for name, c in claims.items():
        differs = len(set(c.variants.values())) > 1
        parts |= _named(name, c.variants) if differs else {name: c.verdict}
        other_seeds |= _named(name, c.other_seeds)
    needed = [c.seeds_needed for c in claims.values() if c.verdict == chosen.verdict]
    known = [seeds for seeds in needed if not math.isnan(seeds)]
    return replace(
        chosen,
        variants=parts if len(parts) > 1 else chosen.variants,
        other_seeds=other_seeds,
        seeds_needed=max(known) if known and main is None else chosen.seeds_needed,
    )


def _named(name: str, parts: Mapping[str, Verdict]) -> dict[str, Verdict]:
    """The parts of a variant, by the names of both."""
    return {_part(name, part): verdict for part, verdict in parts.items()}


def _part(name: str, part: str) -> str:
    if part == WHOLE:
        return name
    return part if name in part else f"{name} {part}"


def incomplete(made: Claim, missing: Sequence[str]) -> Claim:
    """A claim of which some parts were not measured: inconclusive where all others are confirmed,
    refuted where one is.

    More seeds do not decide it.
    """
    if not missing or made.verdict not in ("confirmed", "inconclusive", "refuted"):
        return made
    not_run: dict[str, Verdict] = dict.fromkeys(missing, "not run")
    parts = {**(made.variants or {"measured": made.verdict}), **not_run}
    verdict: Verdict = "inconclusive" if made.verdict == "confirmed" else made.verdict
    detail = f"not run: {', '.join(missing)}; {made.detail}"
    needed = math.inf if verdict == "inconclusive" else made.seeds_needed
    return replace(made, verdict=verdict, detail=detail, variants=parts, seeds_needed=needed)


def gathered(claims: Iterable[tuple[str, Claim]], main: str | None = None) -> list[Claim]:
    """One row for each name among (variant, claim), in the order in which the names first occur
    (`together`)."""
    by: dict[str, dict[str, Claim]] = {}
    for variant, found in claims:
        by.setdefault(found.name, {})[variant] = found
    return [together(variants, main) for variants in by.values()]


def minor_error(made: Claim, where: str) -> Claim:
    """A refuted claim about a statement that the errata list as a minor error; any other as it is.

    where: the root cause in the errata, for example "scalar.phases, class B".
    """
    if made.verdict != "refuted":
        return made
    return replace(made, verdict="minor error", detail=f"errata: {where}; {made.detail}")


def contradicted(made: Claim, where: str) -> Claim:
    """A statement that the paper's own table, result or definition contradicts: a minor error,
    whatever other networks give. where: as in `minor_error`."""
    detail = f"errata: {where}; in the networks here: {made.verdict}; {made.detail}"
    return replace(made, verdict="minor error", detail=detail, seeds_needed=math.nan)


# ------------------------------------------------------------------ several data sets

LOST = "infinite or missing"
"""What a data set shows whose value is infinite or missing."""


@dataclass(frozen=True)
class DataSetRule:
    """How the results of several data sets make one verdict.

    share: of the data sets with power, those that must show the effect for *confirmed*; least: data
    sets with power that are needed.
    """

    share: float = 0.8
    least: int = FEWEST_SEEDS


def verdict_of_data_sets(found: Mapping[int, str], rule: DataSetRule) -> tuple[Verdict, str]:
    """One verdict from what each data set shows: "yes", "no", "opposite", "inconclusive" (a test
    without power), or `LOST` (an infinite or missing value, with which nothing is confirmed).

    confirmed: at least `share` of the data sets with power show it, none the opposite; refuted: at
    most half show it, or more than 1 − share show the opposite; inconclusive: between the two, or
    fewer than `least` with power; not run: no data set at all. An effect of exactly zero shows
    neither and counts as "no".
    """
    if not found:
        return "not run", "no data set"
    lost = sum(finding == LOST for finding in found.values())
    with_power = [finding for finding in found.values() if finding in ("yes", "no", "opposite")]
    count = {finding: with_power.count(finding) for finding in ("yes", "no", "opposite")}
    text = f"{lost} of {len(found)} data sets rest on infinite or missing values; " if lost else ""
    text += f"{count['yes']} of {len(with_power)} data sets show it"
    if count["opposite"]:
        text += f", {count['opposite']} the opposite"
    if len(with_power) + lost < len(found):
        text += f"; {len(found) - len(with_power) - lost} inconclusive"
    if len(with_power) < rule.least:
        return "inconclusive", f"{text}; at least {rule.least} are needed"
    known = len(with_power) + lost
    shown, against, open_share = count["yes"] / known, count["opposite"] / known, lost / known
    if shown >= rule.share and not count["opposite"]:
        return withheld("confirmed", lost), text
    # 1 of 5 is no more than 1 − 0.8, whatever floats say
    if shown + open_share <= 0.5 or against > 1 - rule.share + 1e-9:
        return "refuted", text
    return "inconclusive", text


def data_sets_needed(found: Mapping[int, str], rule: DataSetRule) -> float:
    """Number of data sets that would decide, if the share of those with power stayed the same.

    inf where no data set has power (each needs more values) and where the share itself is between a
    half and `share`, which more data sets do not change.
    """
    with_power = sum(finding in ("yes", "no", "opposite") for finding in found.values())
    if not found:
        return float(rule.least)
    few = 0 < with_power < rule.least
    return float(math.ceil(rule.least * len(found) / with_power)) if few else math.inf


def finding_of(value: float, statement: Statement) -> str:
    """What a data set shows whose quantity is `value`."""
    if not math.isfinite(value):
        return LOST
    return "yes" if statement.holds(value) else "no"


def one_draw(kept: int, draws: int) -> tuple[Verdict, str]:
    """Verdict on a printed result that was one random draw, from the share of our draws that keep
    it; and a text.

    refuted: the upper 95 % limit of the share (Clopper–Pearson, one-sided) is below RARE, which
    takes 59 draws; confirmed: the lower limit is above 1 − RARE; not run: no draws; inconclusive
    otherwise.
    """
    from scipy.stats import binomtest

    if not draws:
        return "not run", "no draws"
    low, high = binomtest(kept, draws).proportion_ci(0.9, method="exact")  # 5 % on either side
    verdict: Verdict = (
        "refuted" if high < RARE else "confirmed" if low > 1 - RARE else "inconclusive"
    )
    return (
        verdict,
        f"{kept} of {draws} draws keep it, 90 % interval [{100 * low:.0f}, {100 * high:.0f} %]",
    )


# ------------------------------------------------------------------ statements


def read_statements(path: Path) -> dict[str, Statement]:
    """name -> statement, in the order of the file; a blank field keeps the default of `Statement`.

    Raises ValueError with one line for an unreadable file, unknown columns, a number that is none,
    or a name twice.
    """
    try:
        with open(path, newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: cannot be read as a CSV file ({error})") from None
    found: dict[str, Statement] = {}
    for i, row in enumerate(rows, start=2):
        unknown = [str(c) for c in row if c not in COLUMNS]
        if unknown or None in row.values():
            raise ValueError(
                f"{path}, row {i}: expected the columns {', '.join(COLUMNS)}, "
                f"found {unknown or 'fewer'}"
            )
        try:
            statement = _statement(row)
        except ValueError as error:
            raise ValueError(f"{path}, row {i}: {error}") from None
        if statement.name in found:
            raise ValueError(
                f"{path}, row {i}: expected one row for {statement.name!r}, found another"
            )
        found[statement.name] = statement
    return found


def _statement(row: dict[str, str]) -> Statement:
    given = {c: row[c].strip() for c in row if row[c].strip()}
    for column in ("name", "statement", "where"):
        if column not in given:
            raise ValueError(f"expected a {column}, found none")
    if ("low" in given or "high" in given) and "number" in given:
        raise ValueError("expected limits or a number, found both")
    values: dict[str, Any] = {
        c: _number(c, given[c]) for c in (*NUMBERS, *OF_QUANTITY) if c in given
    }
    if ("alternative" in given) != ("wrong" in given):
        raise ValueError("expected an alternative with its wrong value, found one of them")
    return Statement(
        name=given["name"],
        text=given["statement"],
        where=given["where"],
        strict=given.get("strict", "").lower() in YES,
        n=int(_number("n", given.get("n", "1"))),
        sharp=True,
        independent=given.get("independent", "").lower() in YES,
        **values | {c: given.get(c, "") for c in WORDS},
    )


def _number(column: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected a number in column {column}, found {text!r}") from None
