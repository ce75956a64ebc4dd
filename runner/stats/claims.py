"""Verdicts put together: of the parts and variants of a statement, and of random draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from runner.contract import Claim, Statement, Verdict
from runner.stats.intervals import NAN, joined

RARE = 0.05
"""A printed result that fewer than one draw in twenty gives is not put down to chance."""
WHOLE = "statement"
"""Name of the part that is all of a statement."""


DECIDING: tuple[Verdict, ...] = (
    *("refuted", "minor error", "inconclusive", "confirmed"),
    *("true by construction", "not comparable"),
)
"""A statement has the first of these verdicts that one of its parts has."""


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
    """A row of claims.csv; details are followed by the reason of the criterion and, where it was
    changed, by what it was before.

    What could not have come out otherwise is not confirmed but *true by construction*.
    """
    if verdict == "confirmed" and statement.constructed:
        verdict = "true by construction"
        detail = joined(statement.constructed, detail)
    criterion = joined(statement.reason, statement.history)
    return Claim(
        name=statement.name,
        statement=statement.text,
        where=statement.place,
        verdict=verdict,
        statistic=statistic,
        threshold=threshold or statement.threshold,
        chosen=statement.chosen,
        detail=joined(detail, f"criterion: {criterion}" if criterion else ""),
        variants=variants or {},
        seeds_needed=seeds_needed,
        independent=statement.independent,
        extension=statement.extension,
    )


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on a statement from those on its parts."""
    return next((verdict for verdict in DECIDING if verdict in verdicts), "not run")


def together(claims: Mapping[str, Claim], main: str | None = None) -> Claim:
    """One row from the claims of a statement under several variants: `main` decides, the others are
    secondary results, and decide nothing where it is not measured.

    Without `main` the variants are parts of the statement (`overall`). Of a variant whose parts
    have different verdicts, each part is listed. Raises ValueError for no claims.
    """
    if not claims:
        raise ValueError("expected the claims of at least one variant, found none")
    chosen = claims.get(main or "") or _deciding(list(claims.values()))
    if main is not None and main not in claims:
        detail = joined(f"not measured: {main}", chosen.detail)
        chosen = replace(chosen, verdict="not run", detail=detail, seeds_needed=NAN)
    parts: dict[str, Verdict] = {}
    other_seeds: dict[str, Verdict] = {}
    for name, variant in claims.items():
        if len(set(variant.variants.values())) > 1:
            parts |= _named(name, variant.variants)
        else:
            parts[name] = variant.verdict
        other_seeds |= _named(name, variant.other_seeds)
    deciding = [variant for variant in claims.values() if variant.verdict == chosen.verdict]
    known = [one.seeds_needed for one in deciding if not math.isnan(one.seeds_needed)]
    return replace(
        chosen,
        variants=parts if len(parts) > 1 else chosen.variants,
        other_seeds=other_seeds,
        seeds_needed=max(known) if known and main is None else chosen.seeds_needed,
    )


def _deciding(claims: Sequence[Claim]) -> Claim:
    """The first of the claims that has the verdict of all together; else the first."""
    verdict = overall([one.verdict for one in claims])
    return next((one for one in claims if one.verdict == verdict), claims[0])


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
    interval = f"90 % interval [{100 * low:.0f}, {100 * high:.0f} %]"
    text = f"{kept} of {draws} draws keep it, {interval}"
    if high < RARE:
        return "refuted", text
    return "confirmed" if low > 1 - RARE else "inconclusive", text
