"""What cells and reports record in rows: statistics, statements of a paper with their verdicts,
numerical checks.

`runner.stats.judge` reaches the verdicts. A cell's table `certificate` says what was compared with
finite differences of gradients, and whether it agreed. A measuring experiment adds it to its other
tables:

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
TESTS = ("mann_whitney", "wilcoxon", "spearman")
"""Kinds whose p-values enter Holm's correction; the p of a fit describes its slope and stays as it
is."""


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """One row of stats.csv.

    name: unique together with group; kind: mann_whitney, wilcoxon, spearman, linear, log_linear or
    summary; figure: where it is drawn; where: place in the paper; group: variant, e.g.
    "protocol=fitted seed=42". family: figure, kind and number of the tests that Holm's correction
    takes together; "" for a test that cannot reach 0.05 and is left out. unconverged: how many of
    the pairs that enter have an end that missed the stop rule of its search.
    label_a, label_b, n_a, n_b: the samples, and how many values of each entered. lost: how many
    values are infinite or missing, which do not enter; effect_least, p_least, shift_least (lower
    limit of the shift) and effect_most, p_most, shift_most (upper limit): what the test gives if
    all of them are as small, or as large, as can be. statistic: U of `a`, W⁺, Spearman's ρ, or the
    mean. p, p_holm, p_min: two-sided, adjusted within the family, smallest attainable. effect:
    rank-biserial correlation. shift, shift_low, shift_high: Hodges–Lehmann shift and its confidence
    interval. slope, intercept, slope_error, r2: fits. mean, std (ddof 1), std_population (ddof 0),
    median: summaries, of `a`.
    """

    name: str
    kind: str
    figure: str = ""
    where: str = ""
    group: str = ""
    label_a: str = ""
    label_b: str = ""
    n_a: int = 0
    n_b: int = 0
    lost: int = 0
    unconverged: int = 0
    statistic: float = NAN
    p: float = NAN
    p_holm: float = NAN
    p_min: float = NAN
    family: str = ""
    effect: float = NAN
    shift: float = NAN
    shift_low: float = NAN
    shift_high: float = NAN
    effect_least: float = NAN
    p_least: float = NAN
    shift_least: float = NAN
    effect_most: float = NAN
    p_most: float = NAN
    shift_most: float = NAN
    slope: float = NAN
    intercept: float = NAN
    slope_error: float = NAN
    r2: float = NAN
    mean: float = NAN
    std: float = NAN
    std_population: float = NAN
    median: float = NAN
    method: str = ""
    note: str = ""

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


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One sentence of a paper, with the place where it is printed and the numbers that it holds.

    name: unique within the experiment; text: the sentence; where: its place. low, high: the limits
    that the quantity has to keep, `strict` where they themselves do not count. number, std, n: a
    printed value, its population std over n seeds, and `rounding`, half a unit of its last printed
    digit (a statement has limits or a number). margin: how far a value may lie from `number` and
    still be the same, NaN for the default of `judge.margin_of`. reason: why we chose these limits,
    '' where they are printed. history: what they were before they were changed with the result in
    view, '' where they were not. chosen: the limits are ours and not the paper's, so that only the
    uncertainty of a value decides. independent: of the protocol (a theorem, a formula, an exact
    zero), so that settings, data and seeds other than the paper's leave it its verdict.
    constructed: why it could not come out otherwise here, so that it is never counted as confirmed.
    extension: it is not in the paper: a correction, or what the paper leaves to others; reports
    count such statements apart, since their failing says nothing against a paper.
    least, most: what the quantity can be at all (a share is in [0, 1]); an interval does not go
    beyond.
    """

    name: str
    text: str
    where: str
    low: float = -math.inf
    high: float = math.inf
    strict: bool = False
    number: float = NAN
    rounding: float = 0.0
    std: float = NAN
    n: int = 1
    margin: float = NAN
    reason: str = ""
    history: str = ""
    chosen: bool = False
    independent: bool = False
    constructed: str = ""
    extension: bool = False
    least: float = -math.inf
    most: float = math.inf

    @property
    def threshold(self) -> str:
        """The limits or the number in words: '>= 0.91', '0.24 ± 0.005'; '' where there is
        neither."""
        if not math.isnan(self.number):
            return f"{self.number:g} ± {self.rounding:g}" if self.rounding else f"{self.number:g}"
        equal = "" if self.strict else "="
        sides = [f">{equal} {self.low:g}"] * math.isfinite(self.low)
        sides += [f"<{equal} {self.high:g}"] * math.isfinite(self.high)
        return " and ".join(sides)

    @property
    def decidable(self) -> bool:
        """Whether there is a limit or a number: without one no value could fail."""
        return math.isfinite(self.low) or math.isfinite(self.high) or not math.isnan(self.number)

    def holds(self, value: float) -> bool:
        """Whether a value keeps the limits."""
        if self.strict:
            return self.low < value < self.high
        return self.low <= value <= self.high

    def excludes(self, low: float, high: float) -> bool:
        """Whether an interval is wholly outside the limits.

        >>> positive = Statement(name="s", text="above 0", where="Eq. 1", low=0.0, strict=True)
        >>> positive.excludes(0.0, 0.0), positive.excludes(0.0, 0.1)
        (True, False)
        """
        if self.strict:
            return high <= self.low or low >= self.high
        return high < self.low or low > self.high


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, or an extension, decided from tables. One row for each statement.

    name: unique within the experiment; statement: what the paper says; where: place in the
    paper; extension: as of `Statement`; verdict: see `runner.stats.judge`;
    statistic: the measured quantity; threshold: the criterion; chosen: whether its limits are ours
    and not the paper's; detail: n, interval, p and effect size, or why nothing was decided; group:
    what it speaks of, where one experiment is about several papers; variants: part (a depth, a
    checkpoint, a protocol) -> its verdict; other_seeds: likewise of seeds other than the published
    networks', where those decide a part alone; seeds_needed: how many seeds would decide it if mean
    and spread stayed as they are (inf where none would, NaN where it is decided or no number can be
    given); undecidable: why no number of seeds would decide it, where that is known; independent:
    as of `Statement`; replication: the verdict of the seeds declared for a second one, which is not
    counted ("" where none are declared; the report fills it in); authors, authors_value: verdict
    and quantity of the authors' own published results, "" and NaN where these do not decide;
    alternative: what would have to be so for it to be false (`runner.contract.Alternative`; the
    report fills it in).
    """

    name: str
    statement: str
    where: str
    verdict: Verdict
    statistic: float = NAN
    threshold: str = ""
    detail: str = ""
    group: str = ""
    variants: Mapping[str, Verdict] = field(default_factory=dict)
    other_seeds: Mapping[str, Verdict] = field(default_factory=dict)
    seeds_needed: float = NAN
    undecidable: str = ""
    independent: bool = False
    chosen: bool = False
    extension: bool = False
    replication: str = ""
    authors: str = ""
    authors_value: float = NAN
    alternative: str = ""


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
    """What `runner.curvature.verify` returns, as far as it is stored."""

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
