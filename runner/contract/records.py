"""What cells and reports record in rows: statistics, verdicts on statements, numerical checks.

`runner.stats` reaches the verdicts. A cell's table `certificate` says what was compared with finite
differences of gradients, and whether it agreed. A measuring experiment adds it to its other tables:

    found = verify(dag, x, y, blocks=blocks)
    tables["certificate"] = [certificate_row("blocks", found, checkpoint="final")]

It is not part of a cell's identity: a cell that was stored before the experiment made one keeps its
id and its bytes, and a report says that it has none. An experiment whose cells never have one says
why in `uncertified`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Required, TypedDict, get_args

NAN = float("nan")
LEAST = "with all lost values as small as can be; of the shift, its lower end"
MOST = "with all lost values as large as can be; of the shift, its upper end"
"""Meanings of three columns each."""
TESTS = ("mann_whitney", "wilcoxon", "spearman")
"""Kinds whose p-values enter Holm's correction; the p of a fit describes its slope and stays as it
is."""


def column(meaning: str, **default: Any) -> Any:
    """A field of a row that a report writes as a CSV column, with its meaning
    (docs/columns.md)."""
    return field(metadata={"help": meaning}, **default)


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """One row of stats.csv."""

    name: str = column("unique within its group")
    kind: str = column(
        "mann_whitney (independent samples), wilcoxon (pairs), spearman, a fit, or summary"
    )
    figure: str = column("where it is drawn", default="")
    where: str = column("place in the paper", default="")
    group: str = column("variant", default="")
    label_a: str = column("what the samples are", default="")
    label_b: str = column("what the samples are", default="")
    n_a: int = column("sizes of the samples", default=0)
    n_b: int = column("sizes of the samples", default=0)
    lost: int = column("infinite or missing values, left out", default=0)
    unconverged: int = column("pairs with an end that missed the stop rule", default=0)
    statistic: float = column(
        "U (Mann–Whitney), W⁺ (Wilcoxon), ρ (Spearman), or the mean", default=NAN
    )
    p: float = column("two-sided p-value", default=NAN)
    p_holm: float = column(
        "p after Holm's correction; empty where p_min is 0.05 or more",
        default=NAN,
    )
    p_min: float = column("smallest p that samples of this size can give", default=NAN)
    family: str = column("tests that Holm's correction takes together", default="")
    effect: float = column(
        "rank-biserial correlation: share of pairs with larger a less share with smaller a",
        default=NAN,
    )
    shift: float = column("Hodges–Lehmann estimate of a − b", default=NAN)
    shift_low: float = column("its 95 % interval", default=NAN)
    shift_high: float = column("its 95 % interval", default=NAN)
    effect_least: float = column(LEAST, default=NAN)
    p_least: float = column(LEAST, default=NAN)
    shift_least: float = column(LEAST, default=NAN)
    effect_most: float = column(MOST, default=NAN)
    p_most: float = column(MOST, default=NAN)
    shift_most: float = column(MOST, default=NAN)
    slope: float = column("of a fit", default=NAN)
    intercept: float = column("of a fit", default=NAN)
    slope_error: float = column("standard error of the slope", default=NAN)
    r2: float = column("R² of a fit", default=NAN)
    mean: float = column("of a, in summaries", default=NAN)
    std: float = column("standard deviation (ddof 1)", default=NAN)
    std_population: float = column("standard deviation (ddof 0)", default=NAN)
    median: float = column("of a, in summaries", default=NAN)
    method: str = column("exact, asymptotic, or least squares", default="")
    note: str = column("remark", default="")

    @property
    def decay(self) -> float:
        """b of log y = a − b x: the negative slope."""
        return -self.slope

    @property
    def has_power(self) -> bool:
        """Whether the test can reach p < 0.05 at all."""
        return self.p_min < 0.05


class About(TypedDict, total=False):
    """What every function of `runner.stats` takes besides its samples: see the fields of
    `Statistic`."""

    name: Required[str]
    figure: str
    where: str
    group: str
    label_a: str
    label_b: str
    note: str


Verdict = Literal[
    "confirmed",
    "refuted",
    "minor error",
    "inconclusive",
    "not run",
    "true by construction",
    "not comparable",
]
CLAIM_VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, or an extension, decided from tables: one row of claims.csv."""

    name: str = column("unique within the experiment")
    statement: str = column("what the paper says")
    where: str = column("place in the paper")
    verdict: Verdict = column("explained in Concepts")
    statistic: float = column("measured quantity, of the part nearest to its limit", default=NAN)
    threshold: str = column("criterion", default="")
    detail: str = column("n, interval, p and effect size, or why nothing was decided", default="")
    group: str = column("paper, where one experiment is about several", default="")
    variants: Mapping[str, Verdict] = column("verdict of each part, as JSON", default_factory=dict)
    other_seeds: Mapping[str, Verdict] = column(
        "the same of seeds other than the published networks'",
        default_factory=dict,
    )
    seeds_needed: float = column(
        "seeds that would decide it; inf: no number would",
        default=NAN,
    )
    undecidable: str = column("why no number of seeds would decide it", default="")
    independent: bool = column(
        "whether it is true of every protocol (a theorem, a formula)",
        default=False,
    )
    chosen: bool = column("whether the limits are ours", default=False)
    extension: bool = column("whether it is not in the paper", default=False)
    replication: str = column(
        "verdict of the seeds declared for a second one (not counted)", default=""
    )
    authors: str = column("verdict from the authors' public results", default="")
    authors_value: float = column("the quantity in those results", default=NAN)
    alternative: str = column("what would be so if it were false", default="")
    low: float = column("95 % interval over seeds", default=NAN)
    high: float = column("95 % interval over seeds", default=NAN)
    n: int = column("our seeds", default=0)
    p: float = column(
        "two-sided p against the limit, or of the equivalence test",
        default=NAN,
    )
    detectable: float = column(
        "smallest difference that would have been found",
        default=NAN,
    )


def decide(holds: bool | None) -> Verdict:
    """confirmed for True, refuted for False, inconclusive for None."""
    if holds is None:
        return "inconclusive"
    return "confirmed" if holds else "refuted"


CERTIFICATE = "certificate"
"""Name of the table."""

NUMBERS = ("error", "tolerance", "difference_step")
"""Columns that say how well it agreed: rounding, which no two kinds of processor share."""

VERSION = 3
"""Version of the check, in the column `version`. Certificates without one are of the first, which
could not tell a kink within the step from a wrong block; 2 compared examples alone as well."""


class Verified(Protocol):
    """What `runner.curvature.uses.verify` returns, as far as it is stored."""

    @property
    def ok(self) -> bool: ...
    @property
    def nodes(self) -> Mapping[str, float]: ...
    @property
    def tolerance(self) -> float: ...
    @property
    def step(self) -> float: ...
    @property
    def reasons(self) -> Sequence[str]: ...
    @property
    def inconclusive(self) -> Sequence[str]: ...


def certificate_row(what: str, found: Verified, **columns: Any) -> dict[str, Any]:
    """One row: the columns given (a checkpoint, a part), what was verified, ok (1 or 0; nothing
    where it is inconclusive), the largest relative error, the node it is at, the tolerance, the
    step of the differences, "ok" or the reasons in `status`, and the version of the check."""

    def error(node: str) -> float:
        value = found.nodes[node]
        return math.inf if math.isnan(value) else value

    worst = max(found.nodes, key=error)
    return {
        **columns,
        "what": what,
        "ok": None if found.inconclusive else int(found.ok),
        "error": found.nodes[worst],
        "where": worst,
        "tolerance": found.tolerance,
        "difference_step": found.step,
        "status": " ".join("; ".join(found.reasons).split()) or "ok",
        "version": VERSION,
    }
