"""Claims and verdicts put together: parts of a statement, its variants, and what the errata say of it.

`runner.stats.judge` is the face.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from runner.contract import Claim, Verdict


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on a statement from those on its parts."""
    kinds = set(verdicts)
    if "refuted" in kinds:
        return "refuted"
    if "minor error" in kinds:
        return "minor error"
    if "inconclusive" in kinds:
        return "inconclusive"
    if "confirmed" in kinds:
        return "confirmed"
    return next((v for v in ("true by construction", "not comparable") if v in kinds), "not run")  # type: ignore[return-value]


def variants_text(verdicts: Mapping[str, str]) -> str:
    """'confirmed: L=8, L=10; inconclusive: L=12'."""
    by: dict[str, list[str]] = {}
    for name, verdict in verdicts.items():
        by.setdefault(verdict, []).append(name)
    return "; ".join(f"{verdict}: {', '.join(names)}" for verdict, names in by.items())


def variants_of(text: str) -> dict[str, list[str]]:
    """Names by verdict from what `marked` wrote; {} for anything else."""
    by: dict[str, list[str]] = {}
    for part in text.split("; "):
        verdict, colon, names = part.partition(": ")
        if verdict not in get_args(Verdict) or not colon:
            return {}
        by.setdefault(verdict, []).extend(names.split(", "))
    return by


def together(claims: Mapping[str, Claim], main: str | None = None) -> Claim:
    """One row from the claims of a statement under several variants: `main` decides, the others are secondary results.

    Without `main` the variants are parts of the statement (`overall`). A variant whose own parts differ is marked by
    these. Raises ValueError for no claims at all.
    """
    if not claims:
        raise ValueError("expected the claims of at least one variant, found none")
    if main is not None and main in claims:
        chosen = claims[main]
    else:
        verdict = overall([c.verdict for c in claims.values()])
        chosen = next((c for c in claims.values() if c.verdict == verdict), next(iter(claims.values())))
    marks: dict[str, str] = {}
    for name, c in claims.items():
        marks |= _parts(name, c)
    needed = [c.seeds_needed for c in claims.values() if c.verdict == chosen.verdict and not math.isnan(c.seeds_needed)]
    worst = max(needed) if needed and main is None else chosen.seeds_needed
    return replace(chosen, variants=variants_text(marks) if len(marks) > 1 else chosen.variants, seeds_needed=worst)


def _parts(name: str, made: Claim) -> dict[str, str]:
    """part -> verdict of a variant; the variant alone where its parts agree."""
    by = variants_of(made.variants)
    if len(by) < 2:
        return {name: made.verdict}
    return {part if name in part else f"{name} {part}": v for v, parts in by.items() for part in parts}


def incomplete(made: Claim, missing: Sequence[str]) -> Claim:
    """A claim of which some parts were not measured: inconclusive where the others are confirmed; refuted where one is.

    No number of seeds decides it: it is parts that lack.
    """
    if not missing or made.verdict not in ("confirmed", "inconclusive", "refuted"):
        return made
    by = variants_of(made.variants) or {made.verdict: ["measured"]}
    marks = {part: v for v, parts in by.items() for part in parts} | dict.fromkeys(missing, "not run")
    verdict: Verdict = "inconclusive" if made.verdict == "confirmed" else made.verdict
    detail = f"not run: {', '.join(missing)}; {made.detail}"
    needed = math.inf if verdict == "inconclusive" else made.seeds_needed
    return replace(made, verdict=verdict, detail=detail, variants=variants_text(marks), seeds_needed=needed)


def gathered(claims: Iterable[tuple[str, Claim]], main: str | None = None) -> list[Claim]:
    """One row for each name among (variant, claim), in the order in which the names first occur (`together`)."""
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
