"""The judge: statements as rows, decided from tables.

`judge` knows no experiment, no store and no paper. What it must know of a table is in the table:
`seed`; `images`, of which number 0 is the paper's own set; `same`, whether a row is of the paper's
own network and images with nothing random left, so that its value alone decides
(`over_seeds.bound`);
`rival`, whether it is of a reading that counts as much as the one that decides (`_disputed`);
a column "X without probes", with which only the scatter of the probes decides
(`over_seeds.number`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace

import pandas as pd

from runner.contract import Claim, Statement, Tables, Verdict, decide
from runner.contract.records import Statistic
from runner.stats import data_sets, over_seeds
from runner.stats.claims import (
    claim,
    contradicted,
    incomplete,
    minor_error,
    one_draw,
    together,
)
from runner.stats.data_sets import LOST, compared, median, of_findings
from runner.stats.intervals import NAN, Values, digits_agree, joined, lost_text, withheld
from runner.stats.quantities import (
    WITHOUT_PROBES,
    Contrast,
    Functions,
    Part,
    Reader,
    groups_of,
    of_every,
    parts_of,
    rows_of,
)
from runner.stats.rows import RowError, fields_of, named
from runner.stats.tests import holm, mann_whitney, spearman, wilcoxon

SAME = "same"
RIVAL = "rival"
BOTH = {"confirmed", "refuted"}
OPEN = ("confirmed", "refuted", "inconclusive")
"""Verdicts that count for or against."""


def judge(
    rows: Iterable[Statement], tables: Tables, functions: Functions | None = None
) -> list[Claim]:
    """The verdict on each statement, in the order of the rows.

    Parameters
    ----------
    rows
        Statements (`runner.stats.rows.read_statements`).
    tables
        Tables by name, in long form with a column `seed`.
    functions
        The quantities and tests that rows name and that are not built in.

    Raises
    ------
    RowError
        For a row that names a column, statistic or test that there is not.
    """
    known = functions or Functions()
    return [finished(row, decided(row, tables, known)) for row in rows]


def decided(row: Statement, tables: Tables, functions: Functions) -> Claim:
    """The verdict of a row's test, every variant with its own."""
    named(f"{row.name}, test", row.test, (*TESTS, *STATED, *functions.decisions))
    if row.test in functions.decisions:
        return functions.decisions[row.test](row, tables)
    if row.test in STATED and not row.table:
        return STATED[row.test](row, NAN, "")
    rivals = set()
    parts: dict[str, dict[str, Claim]] = {}
    for reading in (row, *row.readings):
        table = rows_of(reading, tables)
        split = {reading.variant: table}
        if any(fields_of(reading.variant)):
            split = dict(groups_of(table, reading.variant))
        for name, part in split.items():
            of_variant = parts.setdefault(name, {})
            if reading.parts in of_variant:
                raise RowError(f"{row.name}, parts: expected names that tell {name!r} apart")
            of_variant[reading.parts] = decided_by(reading, part, functions)
            if RIVAL in part and part[RIVAL].eq(True).all():
                rivals.add(name)
    variants = {name: _of_parts(of_variant) for name, of_variant in parts.items()}
    if not variants:
        return decided_by(row, rows_of(row, tables), functions)
    if set(variants) == {""}:
        return variants[""]
    made = together(variants, main=row.decides or None)
    return _disputed(row, made, [variants[name].verdict for name in rivals])


def _disputed(row: Statement, made: Claim, rivals: Sequence[Verdict]) -> Claim:
    """A claim, or where a reading that counts as much says the opposite none, for the reason in
    `disputed`."""
    if not row.disputed or BOTH - {made.verdict, *rivals}:
        return made
    text = joined(f"{made.verdict}, and the opposite in another reading", row.disputed)
    detail = joined(made.detail, text)
    return replace(made, verdict="not comparable", detail=detail, seeds_needed=NAN)


def _of_parts(claims: Mapping[str, Claim]) -> Claim:
    """The claim of one variant, whose parts may have rows, and tests, of their own."""
    if len(claims) == 1:
        return next(iter(claims.values()))
    return together(claims)


def decided_by(row: Statement, table: pd.DataFrame, functions: Functions) -> Claim:
    """The verdict of a row's test on these rows, with its remark about them."""
    if row.test in OF_TESTS:
        made = OF_TESTS[row.test](row, tests_of(row, table))
    elif row.test in STATED and not row.quantity and len(table):
        made = STATED[row.test](row, NAN, "")
    elif row.test in STATED and not row.quantity:
        made = claim(row, "not run", detail="nothing measured")
    else:
        made = _by_values(row, table, functions)
    if not row.remark or table.empty:
        return made
    named(f"{row.name}, remark", row.remark, functions.remarks)
    return replace(made, detail=joined(made.detail, functions.remarks[row.remark](table)))


def _by_values(row: Statement, table: pd.DataFrame, functions: Functions) -> Claim:
    parts, missing = of_every(row, table, parts_of(row, table))
    reader = Reader(row, functions)
    if len(table):
        reader.check(table, functions)
    values = {name: reader.values(part) for name, part in parts.items()}
    if row.test in STATED:
        return _stated(row, [value for of_part in values.values() for value in of_part])
    known = [value for of_part in values.values() for value in of_part if not math.isnan(value)]
    if row.zero and known and not any(known):
        made = claim(row, "true by construction", detail=row.zero)
        broken = row.errata and not row.holds(0.0)
        return contradicted(made, row.errata) if broken else made
    made = OF_VALUES[row.test](row, values, Facts(row, parts, reader))
    made = incomplete(made, missing)
    if row.shown and len(table):
        shown = Reader(replace(row, quantity=row.shown, over="rows"), functions)
        made = replace(made, statistic=shown.of(Part(table, None)))
    return made


def finished(row: Statement, made: Claim) -> Claim:
    """The claim with what is known of the statement from elsewhere."""
    made = replace(made, alternative=row.alternative)
    if row.contradicted:
        made = contradicted(made, row.errata)
    elif row.errata:
        made = minor_error(made, row.errata)
    if row.disputed and not row.decides and set(made.variants.values()) >= BOTH:
        detail = joined(made.detail, row.disputed)
        made = replace(made, verdict="not comparable", detail=detail, seeds_needed=NAN)
    if row.not_comparable and made.verdict in OPEN:
        detail = f"{made.detail}; {row.not_comparable}, under which it is {made.verdict}"
        return replace(made, verdict="not comparable", detail=detail, seeds_needed=NAN)
    return made


class Facts:
    """What is known of the parts from the paper's own networks."""

    def __init__(self, row: Statement, parts: Mapping[str, Part], reader: Reader) -> None:
        self.row = row
        self.parts = parts
        self.reader = reader

    def same(self, values: Mapping[str, Values]) -> dict[str, float]:
        """Part -> its statistic, where all its rows are the paper's own."""
        if self.row.spread:
            return {}
        own = [n for n, part in self.parts.items() if SAME in part.rows and part.rows[SAME].all()]
        return {name: values[name].mean for name in own}

    def without_probes(self) -> dict[str, list[float]]:
        """Part -> its values without probes, where they are known."""
        columns = self.reader.quantity.columns
        found = {}
        for name, part in self.parts.items():
            exact = {c: part.rows.get(c + WITHOUT_PROBES) for c in columns}
            if all(values is not None and values.notna().any() for values in exact.values()):
                found[name] = list(
                    self.reader.values(part._replace(rows=part.rows.assign(**exact)))
                )
        return found


def _bound(row: Statement, values: Mapping[str, Values], facts: Facts) -> Claim:
    made = over_seeds.bound(row, values, over=f"{facts.reader.over}s", same=facts.same(values))
    if facts.reader.nested and math.isfinite(made.seeds_needed):
        seeds = {seed for of_part in values.values() for seed, _ in of_part.by_unit}
        of_a_seed = max(map(len, values.values())) // len(seeds)
        return replace(made, seeds_needed=float(math.ceil(made.seeds_needed / of_a_seed)))
    return made


def _number(row: Statement, values: Mapping[str, Values], facts: Facts) -> Claim:
    exact = facts.without_probes()
    return over_seeds.number(row, values, same=facts.same(values), without_probes=exact)


def _exact(row: Statement, values: Mapping[str, Values], facts: Facts) -> Claim:
    parts = {name: of_part.mean for name, of_part in values.items()}
    listed = [f"{name}: {value:.4g}" for name, value in parts.items() if name]
    detail = "; ".join(listed) if parts else "no instance meets the condition"
    return over_seeds.exact(row, parts, detail)


def _occurs(row: Statement, values: Mapping[str, Values], facts: Facts) -> Claim:
    """It is said that something happens: one seed in which it does confirms a part; not to have met
    it refutes nothing, in however many."""
    if not values:
        return claim(row, "not run", detail="nothing measured")
    count = {name: sum(map(row.holds, of_part)) for name, of_part in values.items()}
    nearest = min if math.isfinite(row.high) else max
    value = nearest(nearest(of_part) for of_part in values.values())
    listed = ", ".join(f"{name}: {n} of {len(values[name])}" for name, n in count.items())
    detail = f"networks in which it occurs: {listed}"
    made = {}
    for name, n in count.items():
        verdict: Verdict = "confirmed" if n else "inconclusive"
        made[name] = claim(row, verdict, value, detail, seeds_needed=NAN if n else math.inf)
    return together(made)


def _each(row: Statement, values: Mapping[str, Values], facts: Facts) -> Claim:
    """Confirmed where it holds in every part and seed, refuted where in some part it fails in every
    seed. The value is the median over the seeds of the part that decides."""
    seeds = min((len(of_part) for of_part in values.values()), default=0)
    if seeds < row.fewest:
        detail = f"{seeds} of {row.fewest} seeds"
        return claim(row, "inconclusive", detail=detail, seeds_needed=float(row.fewest))
    held = {}
    for name, of_part in values.items():
        held[name] = {row.holds(value) if math.isfinite(value) else None for value in of_part}
    always = sum(found == {True} for found in held.values())
    never = sum(found == {False} for found in held.values())
    medians = [float(pd.Series(list(of_part)).median()) for of_part in values.values()]
    nearest = max(medians) if math.isfinite(row.high) else min(medians)
    detail = (
        f"holds in every seed for {always} of {len(held)} networks, in none for {never}; medians "
        f"from {min(medians):.3g} to {max(medians):.3g}"
    )
    if never:
        return claim(row, "refuted", nearest, detail)
    if always == len(held):
        return claim(row, "confirmed", nearest, detail)
    # seeds that disagree go on to, whatever their number
    return claim(row, "inconclusive", nearest, detail, seeds_needed=math.inf)


def _always(row: Statement, values: Mapping[str, Values], facts: Facts) -> Claim:
    """Decided by every single value: one outside the limits refutes a part, whatever others are
    missing; with a missing one it is not confirmed. The value is the worst."""
    if not values:
        return claim(row, "not run", detail="nothing measured")
    return together({name: _worst(row, list(of_part)) for name, of_part in values.items()})


def _worst(row: Statement, values: Sequence[float]) -> Claim:
    known = [value for value in values if math.isfinite(value)]
    lost = lost_text(len(values) - len(known), len(values))
    if not known:
        return claim(row, "inconclusive", detail=lost)
    worst = min(known, key=lambda value: min(value - row.low, row.high - value))
    holds = row.holds(worst)
    verdict = decide(None if holds and lost else holds)
    detail = joined(lost, f"{len(known)} values from {min(known):.3g} to {max(known):.3g}")
    return claim(row, verdict, worst, detail)


def _runs(row: Statement, values: Mapping[str, Values], facts: Facts) -> Claim:
    """A data set shows it where `share` of its runs keep the limits. The value is that share of all
    runs."""
    of_parts = values or {"": Values({})}
    return together({name: _of_runs(row, of_part) for name, of_part in of_parts.items()})


def _of_runs(row: Statement, values: Values) -> Claim:
    by_seed: dict[int, list[float]] = {}
    for (_, seed), value in values.by_unit.items():
        by_seed.setdefault(int(seed), []).append(value)
    least, most, findings = {}, {}, {}
    for seed, runs in by_seed.items():
        known = [value for value in runs if math.isfinite(value)]
        kept = sum(map(row.holds, known))
        possible = kept + len(runs) - len(known)
        least[seed] = "yes" if kept / len(runs) >= row.share else "no"
        most[seed] = "yes" if possible / len(runs) >= row.share else "no"
        findings[seed] = least[seed] if least[seed] == most[seed] else LOST
    kept = sum(row.holds(value) for value in values if math.isfinite(value))
    detail = f"{kept} of {len(values)} runs"
    threshold = f">= {row.share:g} of the runs of a seed"
    made = of_findings(row, findings, {}, threshold, detail, (least, most))
    return replace(made, statistic=kept / len(values) if len(values) else NAN)


def _unanimous(row: Statement, values: Mapping[str, Values], facts: Facts) -> Claim:
    """Confirmed where a statistic of all seeds holds, whichever seed is left out, refuted where it
    never does."""
    made = {}
    for name, of_part in values.items():
        every = [of_part.whole, *of_part.without.values()]
        held = [_holds(row, value) for value in every]
        lost = sum(math.isnan(value) for value in of_part)
        verdict: Verdict = "inconclusive"
        if len(of_part.without) >= row.fewest and all(held):
            verdict = "confirmed"
        elif len(of_part.without) >= row.fewest and not any(held):
            verdict = "refuted"
        text = f"{of_part.whole:.4g}, {min(every):.4g} to {max(every):.4g} without a seed"
        detail = joined(lost_text(lost, len(of_part), "seeds"), f"{name}: {text}".strip(": "))
        made[name] = claim(row, withheld(verdict, lost), of_part.whole, detail)
    return together(made) if made else claim(row, "not run", detail="nothing measured")


def _holds(row: Statement, value: float) -> bool:
    """Whether a value keeps the limits or, where a number is printed, rounds to it."""
    if math.isnan(row.number):
        return row.holds(value)
    return digits_agree(value, row.number, row.rounding)


def _draw(row: Statement, values: Mapping[str, Values], facts: Facts) -> Claim:
    """A printed result that was one random draw: the share of our draws that keep it."""
    every = [value for of_part in values.values() for value in of_part]
    verdict, text = one_draw(sum(map(row.holds, every)), len(every))
    # it is one result of the paper that is asked about
    needed = math.inf if verdict == "inconclusive" else NAN
    return claim(row, verdict, sum(every) / max(1, len(every)), text, seeds_needed=needed)


def _data_sets(row: Statement, values: Mapping[str, Values], facts: Facts) -> Claim:
    """Decided by one number of every data set, part by part."""
    made = {}
    for name, of_part in values.items() or [("", Values({}, NAN))]:
        numbers = {int(seed): of_part.by_unit[seed] for seed in sorted(of_part.by_unit)}
        made[name] = compared(row, numbers)
    return together(made)


def _stated(row: Statement, values: Sequence[float]) -> Claim:
    """What decides nothing, with the median of the values; not run without any."""
    if not values:
        return claim(row, "not run", detail="nothing measured")
    listed = ", ".join(f"{value:.3g}" for value in values)
    text = "" if row.over == "rows" else f"values {listed}"
    return STATED[row.test](row, median(dict(enumerate(values))), text)


def _constructed(row: Statement, value: float, text: str) -> Claim:
    return claim(row, "true by construction", value, joined(row.constructed, text))


def _not_comparable(row: Statement, value: float, text: str) -> Claim:
    return claim(row, "not comparable", value, joined(row.not_comparable, text))


# ------------------------------------------------------------------ tests of data sets


def tests_of(row: Statement, table: pd.DataFrame) -> dict[int, Statistic]:
    """Seed -> its test: the rows of a table of tests; of measured values the signed-rank test of
    the contrast, paired by `along`, or the rank-sum test without; of two columns ("x, y") the rank
    correlation."""
    if not row.quantity:
        names = [f.name for f in fields(Statistic)]
        found = {}
        for values in table.to_dict("records"):
            found[int(values["seed"])] = Statistic(**{str(k): values[k] for k in names})
        return found
    tests = {}
    for seed, rows in table.groupby("seed", sort=True):
        tests[int(str(seed))] = _test(row, rows)
    adjusted = holm(test.p for test in tests.values())
    pairs = zip(tests.items(), adjusted, strict=True)
    return {seed: replace(test, p_holm=p) for (seed, test), p in pairs}


def _test(row: Statement, rows: pd.DataFrame) -> Statistic:
    columns = [column.strip() for column in row.quantity.split(",")]
    for column in columns:
        named(f"{row.name}, quantity: column of {row.table}", column, rows.columns)
    contrast = Contrast.of(row)
    if len(columns) == 2:
        return spearman(rows[columns[0]], rows[columns[1]], name=row.name)
    if contrast is None:
        return wilcoxon(rows[columns[0]], name=row.name)
    a, b = (contrast.side(rows, value) for value in (contrast.a, contrast.b))
    if not row.along:
        return mann_whitney(a[columns[0]], b[columns[0]], name=row.name)
    both = pd.concat([side.set_index(row.along)[columns[0]] for side in (a, b)], axis=1)
    return wilcoxon(both.iloc[:, 0], both.iloc[:, 1], name=row.name)


OF_VALUES: Mapping[str, Callable[[Statement, Mapping[str, Values], Facts], Claim]] = {
    "bound": _bound,
    "number": _number,
    "exact": _exact,
    "occurs": _occurs,
    "draw": _draw,
    "unanimous": _unanimous,
    "each": _each,
    "always": _always,
    "runs": _runs,
    "data sets": _data_sets,
}
OF_TESTS: Mapping[str, Callable[[Statement, data_sets.Tests], Claim]] = {
    "rank": data_sets.tested,
    "unrelated": data_sets.unrelated,
    "unharmed": data_sets.unharmed,
    "shift": data_sets.within,
}
STATED: Mapping[str, Callable[[Statement, float, str], Claim]] = {
    "constructed": _constructed,
    "not comparable": _not_comparable,
}
"""What a row says of itself, with the value that is shown next to it."""
TESTS = (*OF_VALUES, *OF_TESTS)
"""Tests that a row can name: limits on a mean over seeds; a printed number; one value without
chance; something that happens; one random draw; a statistic whichever seed is left out; limits in
every seed of every part; every single value; a share of the runs of a data set; one number of every
data set; the rank test of every data set, with a sign; no relation; no harm; the interval of a
shift."""
