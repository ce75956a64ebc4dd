"""Every kind of row, by made-up tables in which it is confirmed, refuted and inconclusive."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest

from runner.contract import Statement
from runner.stats.quantities import CURVES, SCALES, Functions, Reader, parts_of, rows_of
from runner.stats.rows import RowError
from runner.stats.statements import TESTS, judge
from tests.errors import refusal

SEEDS = (42, 43, 44, 45, 46)


def says(**columns):
    given = {"table": "t", "quantity": "x", "test": "bound", **columns}
    return Statement(name="s", text="a statement", place="Section 1", **given)


def table(values, **keys):
    """One value a seed."""
    return pd.DataFrame({"seed": SEEDS[: len(values)], "x": values, **keys})


def verdict(row, rows, functions=None):
    (claim,) = judge([row], {"t": rows}, functions)
    return claim.verdict


NEAR, FAR, WIDE = [1.0, 1.1, 0.9, 1.05, 0.95], [3.0, 3.1, 2.9, 3.0, 3.05], [0.5, 3.5, 1, 3, 2]
DECIDED = ("confirmed", "refuted", "inconclusive")
DRAWS = np.random.default_rng(0)


def runs(values):
    """As many runs in every seed."""
    return pd.concat(table([value] * 5) for value in values)


def points(*shifts):
    """Twelve pairs a seed, whose second value is larger by a shift."""
    parts = []
    for seed, shift in zip(SEEDS, shifts, strict=True):
        a = DRAWS.normal(0, 0.1, 12)
        for kind, x in (("a", a), ("b", a + shift + DRAWS.normal(0, 0.01, 12))):
            of_kind = {"seed": seed, "start": range(12), "kind": kind, "x": x, "y": a}
            parts.append(pd.DataFrame(of_kind))
    return pd.concat(parts)


PAIRED = {"along": "start", "contrast": "kind b - a"}
KINDS = {
    "bound": (says(high=2.0), *map(table, (NEAR, FAR, WIDE))),
    "number": (says(test="number", number=1.0, n=5), *map(table, (NEAR, FAR, WIDE))),
    "exact": (
        says(test="exact", high=2.0, over="rows", parts="{seed}"),
        *map(table, (NEAR, FAR, [math.nan, 1.0])),
    ),
    "draw": (
        says(test="draw", high=2.0, over="draw", quantity="x"),
        pd.DataFrame({"draw": range(60), "x": 1.0}),
        pd.DataFrame({"draw": range(60), "x": 3.0}),
        pd.DataFrame({"draw": range(60), "x": [1.0, 3.0] * 30}),
    ),
    "unanimous": (
        says(test="unanimous", high=2.0, over="jackknife"),
        *map(table, (NEAR, FAR, [1.9, 2.0, 2.1, 2.0, 2.2])),
    ),
    "each": (says(test="each", high=2.0), *map(table, (NEAR, FAR, [1, 1, 3, 1, 1]))),
    "always": (
        says(test="always", high=2.0, over="row"),
        *map(table, (NEAR, [1, 1, 3, 1, math.nan], [1, 1, math.nan, 1, 1])),
    ),
    "runs": (
        says(test="runs", high=2.0, over="row"),
        *map(runs, ([1, 1, 1, 1, 3], [1, 3, 1, 3, 3], [1, 1, 1, 1, math.nan, math.nan])),
    ),
    "data sets": (
        says(test="data sets", high=2.0),
        *map(table, (NEAR, FAR, [1, 1, 1, 3, 3])),
    ),
    "rank": (
        says(test="rank", sign=1, **PAIRED),
        points(1, 1, 1, 1, 1),
        points(-1, -1, -1, -1, -1),
        points(1, 1, 1, -1, 1),
    ),
    "unharmed": (
        says(test="unharmed", **PAIRED),
        points(1, 1, 1, 1, 1),
        points(-1, -1, -1, -1, -1),
        points(1, 1, 1, -1, 1),
    ),
    "unrelated": (
        says(test="unrelated", contrast="kind b - a"),
        points(0, 0, 0, 0, 0),
        points(1, 1, 1, 1, -1),
        points(0, 0, 0, 1, 1),
    ),
    "shift": (
        says(test="shift", high=0.5, **PAIRED),
        points(0, 0, 0, 0, 0),
        points(1, 1, 1, 1, 1),
        points(0, 0, 0, 0, 1),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_test_confirms_refutes_and_leaves_open(kind):
    row, *tables = KINDS[kind]
    assert tuple(verdict(row, rows) for rows in tables) == DECIDED


def test_every_test_has_its_tables():
    assert set(KINDS) | {"occurs"} == set(TESTS)


def test_what_occurs_once_is_confirmed_and_never_refuted():
    row = says(test="occurs", high=1.0, strict=True)
    assert verdict(row, table(NEAR)) == "confirmed"
    (claim,) = judge([row], {"t": table(FAR)})
    assert claim.verdict == "inconclusive" and math.isinf(claim.seeds_needed)
    assert verdict(row, table([])) == "not run"


def test_a_table_of_tests_is_read_as_it_is():
    """Of the tests of an experiment, which stats.csv has with the whole family."""
    from runner.contract.records import Statistic

    tests = [Statistic(name="t", kind="wilcoxon", p=0.001, p_min=0.001, effect=0.9)] * 5
    rows = pd.DataFrame([vars(t) for t in tests]).assign(seed=SEEDS)
    assert verdict(says(quantity="", test="rank", sign=1), rows) == "confirmed"
    assert verdict(says(quantity="", test="rank", sign=-1), rows) == "refuted"


def test_rank_correlation_of_two_columns():
    rows = points(0, 0, 0, 0, 0)
    assert verdict(says(test="rank", sign=1, quantity="x, y"), rows) == "confirmed"


def test_nothing_measured_is_not_run():
    rows = table(NEAR, depth=8)
    for row in (says(high=2.0, where="depth == 9"), says(high=2.0, table="u")):
        assert verdict(row, rows) == "not run"
    assert verdict(says(test="constructed", constructed="so it is"), rows) == "true by construction"


def test_what_a_row_says_of_itself_has_its_value():
    given = {"constructed": "so it is", "not_comparable": "no step is printed"}
    for test, why in zip(("constructed", "not comparable"), given.values(), strict=True):
        (claim,) = judge([says(test=test, **given)], {"t": table(FAR)})
        assert claim.statistic == 3.0 and why in claim.detail and "3.1" in claim.detail
        assert verdict(says(test=test, **given), table([])) == "not run"


def test_data_sets_are_counted_part_by_part():
    rows = pd.concat([table(NEAR, kind="a"), table(FAR, kind="b")])
    (claim,) = judge([says(test="data sets", high=2.0, parts="{kind}")], {"t": rows})
    assert claim.verdict == "refuted" and claim.variants == {"a": "confirmed", "b": "refuted"}


def test_readings_that_contradict_each_other_leave_it_open_where_the_row_says_so():
    row = says(high=2.0, variant="{kind}", disputed="no range is printed")
    for values, expected in ((NEAR, "confirmed"), (WIDE, "inconclusive"), (FAR, "not comparable")):
        rows = pd.concat([table(NEAR, kind="a"), table(values, kind="b")])
        (claim,) = judge([row], {"t": rows})
        assert claim.verdict == expected
        assert ("no range" in claim.detail) == (expected == "not comparable")
    assert verdict(row, pd.concat([table(FAR, kind="a"), table(FAR, kind="b")])) == "refuted"


def test_a_remark_tells_of_the_rows_that_decide():
    functions = Functions()

    @functions.remark
    def counted(rows):
        return f"{len(rows)} rows"

    rows = pd.concat([table(NEAR, kind="a"), table(NEAR[:4], kind="b")])
    row = says(high=2.0, variant="{kind}", decides="b", remark="counted")
    (claim,) = judge([row], {"t": rows}, functions)
    assert claim.detail.endswith("4 rows")
    with refusal("counted", RowError):
        judge([replace(row, remark="count")], {"t": rows}, functions)


def test_draws_of_each_seed_count_one_by_one_and_what_would_decide_is_counted_in_seeds():
    rows = pd.concat([table(WIDE, draw=draw) for draw in range(4)])
    rows = rows.assign(x=rows["x"] + 0.01 * rows["draw"])
    (of_draws,) = judge([says(high=2.5, over="draw in seed")], {"t": rows})
    (of_one,) = judge([says(high=2.5, over="draw")], {"t": rows[rows["seed"] == 43]})
    assert "n = 20" in of_draws.detail and "over draws" in of_draws.detail
    assert of_draws.verdict == "inconclusive" and 5 < of_draws.seeds_needed < 40
    assert "n = 4" in of_one.detail


def test_parts_of_one_reading_may_have_tests_of_their_own():
    below, above = says(high=2.0, parts="below", variant="x"), says(low=-1, parts="above")
    for values, expected in ((NEAR, "confirmed"), (FAR, "refuted"), (WIDE, "inconclusive")):
        row = replace(below, decides="x", readings=(replace(above, variant="x"),))
        (claim,) = judge([row], {"t": table(values)})
        assert claim.verdict == expected
    assert claim.variants == {"x below": "inconclusive", "x above": "confirmed"}
    with refusal("parts", RowError):
        judge([replace(row, readings=(replace(below),))], {"t": table(NEAR)})


def test_parts_and_variants():
    rows = pd.concat(
        table(values, depth=depth, at=at)
        for depth, at, values in ((8, "init", NEAR), (12, "init", NEAR), (8, "final", FAR))
    )
    row = says(high=2.0, parts="L={depth} {at}", variant="{at}", decides="init")
    (claim,) = judge([row], {"t": rows})
    assert claim.verdict == "confirmed"
    assert claim.variants == {"init": "confirmed", "final": "refuted"}
    (without,) = judge([replace(row, decides="")], {"t": rows})
    assert without.verdict == "refuted"
    both = replace(row, variant="x", readings=(replace(row, variant="y", where="depth == 8"),))
    (claim,) = judge([replace(both, decides="y")], {"t": rows})
    assert set(claim.variants) == {
        *("x L=8 init", "x L=12 init", "x L=8 final", "y L=8 init", "y L=8 final")
    }


def test_the_worst_of_all_values_is_shown():
    row = says(test="always", over="row", low=0.0, high=2.0)
    (claim,) = judge([row], {"t": table([1.0, 0.5, 1.9])})
    assert (claim.verdict, claim.statistic) == ("confirmed", 1.9)
    (claim,) = judge([replace(row, variant="{depth}")], {"t": table([1.0, 2.5], depth=[1, 2])})
    assert claim.variants == {"1": "confirmed", "2": "refuted"} and claim.statistic == 2.5


def test_runs_that_are_missing_are_left_out_of_no_share():
    row = says(test="runs", over="row", high=2.0)
    for values, expected in (([1, 1, 1, 1, math.nan], "confirmed"), ([3, 3, math.inf], "refuted")):
        assert verdict(row, runs(values)) == expected
    (claim,) = judge([row], {"t": runs([1, 1, 3])})
    assert claim.statistic == pytest.approx(2 / 3) and claim.detail.startswith("0 of 5 data sets")


def test_a_missing_value_is_no_failure_in_every_seed():
    assert verdict(says(test="each", high=2.0), table([math.nan] * 5)) == "inconclusive"
    assert verdict(says(test="each", low=0.0), table([math.inf] * 5)) == "inconclusive"


def test_a_contrast_is_paired_by_seed():
    apart = [1.0, 10.0, 100.0, 1000.0, 10000.0]
    rows = pd.concat([table(apart, at="init"), table([2 * x for x in apart], at="final")])
    row = says(contrast="at final / init", low=1.99, high=2.01)
    assert verdict(row, rows) == "confirmed"
    lacking = rows[~((rows["seed"] == 44) & (rows["at"] == "init"))]
    (claim,) = judge([row], {"t": lacking})
    assert claim.verdict == "inconclusive" and claim.detail.startswith("1 of 5 infinite or missing")


def test_every_other_value_against_one():
    rows = pd.concat(table(d * np.array(NEAR), depth=d) for d in (8, 16, 24))
    row = says(contrast="depth * / 8", parts="L={depth}", low=1.9)
    (claim,) = judge([row], {"t": rows})
    assert claim.variants == {"L=16": "confirmed", "L=24": "confirmed"}
    assert claim.statistic == pytest.approx(2)


def curves(*shapes):
    """A curve of four places for each seed."""
    parts = []
    for seed, shape in zip(SEEDS, shapes, strict=True):
        parts.append(pd.DataFrame({"seed": seed, "d": range(1, len(shape) + 1), "x": shape}))
    return pd.concat(parts).sample(frac=1, random_state=0)


FALLING = [[8.0 * a, 4.0 * a, 2.0 * a, 1.0 * a] for a in (1, 2, 3, 4, 5)]


@pytest.mark.parametrize(
    "statistic, value",
    [
        ("start", 24),
        ("end", 3),
        ("fall", 8),
        ("kept", 1 / 8),
        ("loss", 7 / 8),
        ("step", -3),
        ("least_step", -12),
        ("range", 8),
        ("place", 4),
        ("rate", math.log(2)),
        ("log_r2", 1),
        ("best_r2", 1),
        ("min", 3),
        ("max", 24),
    ],
)
def test_statistics_of_a_curve_of_means(statistic, value):
    """The mean curve is 24, 12, 6, 3."""
    row = says(quantity=f"x.{statistic}", along="d", over="jackknife")
    reader = Reader(row, Functions())
    (part,) = parts_of(row, rows_of(row, {"t": curves(*FALLING)})).values()
    assert reader.values(part).mean == pytest.approx(value)


def test_every_curve_is_finite_or_missing_where_a_value_is():
    rows = curves(*FALLING)
    lost = rows["seed"] == 44
    for statistic, value in product(CURVES, (math.nan, math.inf)):
        rows.loc[lost & ((rows["d"] == 1) | (rows["d"] == 4)), "x"] = value
        row = says(quantity=f"x.{statistic}", along="d")
        (part,) = parts_of(row, rows).values()
        values = Reader(row, Functions()).values(part).by_unit
        assert math.isnan(values[44]) and math.isfinite(values[42]), statistic


def test_a_curve_needs_every_value_that_is_named():
    row = says(quantity="x.range", along="d", high=9.0, every="d 1, 2, 3, 4", parts="{kind}")
    whole = curves(*FALLING).assign(kind="a")
    part = whole[whole["d"] < 4].assign(kind="b")
    for rows, expected in (
        (whole, "confirmed"),
        (part, "not run"),
        (pd.concat([whole, part]), "inconclusive"),
    ):
        (claim,) = judge([row], {"t": rows})
        assert claim.verdict == expected
    assert claim.variants["b"] == "not run"
    both = pd.concat([whole, part])
    assert verdict(replace(row, high=2.0), both) == "refuted"
    with refusal("did you mean d", RowError):
        judge([replace(row, every="dd 1, 2")], {"t": both})


def test_a_statement_on_all_values_of_a_column_is_open_while_one_is_missing():
    row = says(parts="{at}", high=2.0, every="at init, mid")
    init, mid = table(NEAR, at="init"), table(NEAR, at="mid")
    assert verdict(row, pd.concat([init, mid])) == "confirmed"
    (claim,) = judge([row], {"t": init})
    assert claim.verdict == "inconclusive" and claim.variants["mid"] == "not run"
    assert verdict(row, table(FAR, at="init")) == "refuted"


def test_the_jackknife_is_the_spread_of_a_mean():
    """Of a mean itself, pseudovalues are the values."""
    row = says(quantity="x.start", along="d", over="jackknife", low=1.0)
    (claim,) = judge([row], {"t": curves(*FALLING)})
    (plain,) = judge([says(where="d == 1", low=1.0)], {"t": curves(*FALLING)})
    assert claim.statistic == plain.statistic == 24
    assert claim.detail.split("[")[1] == plain.detail.split("[")[1]


def test_ratios_have_the_interval_of_their_logarithm():
    (claim,) = judge([says(over="seed log", low=0.1)], {"t": table([1.0, 10.0, 100.0])})
    assert claim.statistic == pytest.approx(10)
    low, high = (float(x) for x in claim.detail.split("[")[1].split("]")[0].split(", "))
    assert low > 0 and low * high == pytest.approx(100, rel=1e-3)


def test_shares_are_ratios_of_sums():
    rows = pd.DataFrame({"seed": [1, 1, 2, 2, 3], "x": [1, 0, 1, 1, 1], "n": [1, 3, 2, 2, 2]})
    row = says(quantity="x/n", low=0.2, most=1)
    (part,) = parts_of(row, rows).values()
    assert Reader(row, Functions()).values(part).by_unit == {1: 0.25, 2: 0.5, 3: 0.5}


@pytest.mark.parametrize("scale", SCALES)
def test_scales(scale):
    expected = {
        "": 2.0,
        "log10": math.log10(2),
        "log10 of size": math.log10(2),
        "percent": 200,
        "percent above": 100,
        "percent below": -100,
        "excess": 1,
        "negative": -2,
    }
    (claim,) = judge([says(scale=scale, low=-1e6)], {"t": table([2.0] * 5)})
    assert claim.statistic == pytest.approx(expected[scale])


def test_an_exact_zero_confirms_nothing_and_contradicts_what_excludes_it():
    row = says(zero="a zero of the code", high=2.0, errata="x.zero, class B")
    zeros = table([0.0] * 5)
    assert verdict(row, zeros) == "true by construction"
    assert verdict(row, table(NEAR)) == "confirmed"
    (claim,) = judge([replace(row, low=0.0, strict=True)], {"t": zeros})
    assert claim.verdict == "minor error" and "a zero of the code" in claim.detail


def test_lost_rows_count_as_missing():
    rows = table(NEAR, status=["ok", "ok", "diverged", "ok", "ok"])
    (claim,) = judge([says(high=2.0, lost="status != 'ok'")], {"t": rows})
    assert claim.verdict == "inconclusive" and claim.detail.startswith("1 of 5 infinite or missing")


def test_seeds_and_images_are_chosen():
    rows = pd.concat([table(NEAR, images=0), table(FAR, images=1)])
    assert verdict(says(high=2.0), rows) == "confirmed"
    (claim,) = judge([says(high=2.0, seeds="42-44 46")], {"t": rows})
    assert "n = 4" in claim.detail


def test_columns_of_another_table():
    other = table([2 * x for x in NEAR]).rename(columns={"x": "y"})
    row = says(quantity="y/x", join="u: y", low=1.99, high=2.01)
    (claim,) = judge([row], {"t": table(NEAR), "u": other})
    assert claim.verdict == "confirmed"


def test_the_papers_own_networks_decide_alone():
    row = says(low=0.9, strict=True, parts="{at}")
    rows = pd.concat([table(WIDE, at="init", same=True), table(FAR, at="final", same=False)])
    (claim,) = judge([row], {"t": rows})
    assert claim.verdict == "confirmed" and claim.other_seeds == {"init": "inconclusive"}
    (by_spread,) = judge([replace(row, spread=True)], {"t": rows})
    assert by_spread.verdict == "inconclusive"
    (ours,) = judge([replace(row, chosen=True)], {"t": rows})
    assert ours.verdict == "inconclusive"


def test_on_the_papers_own_networks_the_probes_decide():
    exact = np.array([0.5, 0.8, 1.0, 1.2, 1.5])
    near = exact * [1.01, 0.99, 1.0, 1.01, 0.99]
    row = says(test="number", number=1.0, rounding=0.005, n=5)
    assert verdict(row, table(near)) == "inconclusive"
    rows = table(near).assign(**{"x without probes": exact})
    assert verdict(row, rows) == "confirmed"
    rows.loc[2, "x without probes"] = math.nan  # the others tell how far probes scatter
    assert verdict(row, rows) == "confirmed"


def test_exact_zeros_are_true_by_construction():
    row = says(high=1.0, zero="a zero of the code")
    assert verdict(row, table([0.0] * 5)) == "true by construction"
    assert verdict(row, table([0.0, 0.0, 0.0, 0.0, 1e-9])) == "confirmed"


@pytest.mark.parametrize(
    "known, values, expected",
    [
        ({"errata": "root, class B"}, FAR, "minor error"),
        ({"errata": "root, class B"}, NEAR, "confirmed"),
        ({"errata": "root, class B", "contradicted": True}, NEAR, "minor error"),
        ({"not_comparable": "nothing is printed"}, NEAR, "not comparable"),
        ({"not_comparable": "nothing is printed"}, FAR, "not comparable"),
        ({"constructed": "so it is"}, NEAR, "true by construction"),
        ({"constructed": "so it is"}, FAR, "refuted"),
    ],
)
def test_what_is_known_from_elsewhere(known, values, expected):
    assert verdict(says(high=2.0, **known), table(values)) == expected


def test_registered_functions():
    functions = Functions()

    @functions.quantity("x")
    def doubled(rows):
        return 2 * float(rows["x"].sum())

    @functions.decision("no row can say it")
    def as_it_is(row, tables):
        (claim,) = judge([replace(row, test="bound", high=float(len(tables)))], tables)
        return claim

    assert verdict(says(quantity="doubled", low=1.5), table(NEAR), functions) == "confirmed"
    assert verdict(says(test="as_it_is"), table(FAR), functions) == "refuted"
    assert functions.reasons == {"as_it_is": "no row can say it"}


@pytest.mark.parametrize(
    "columns, words",
    [
        ({"quantity": "z"}, "column of t: expected one of seed, x, depth"),
        ({"quantity": "x.man"}, "did you mean mean"),
        ({"quantity": "x.fall"}, "along: expected a column"),
        ({"where": "dept == 8"}, "did you mean depth"),
        ({"test": "bund"}, "did you mean bound"),
        ({"contrast": "depth 8 12"}, "expected 'column a - b'"),
        ({}, "expected one row for each part and seed, found 2"),
        ({"quantity": "x.fall", "along": "seed"}, "expected one row for each seed"),
    ],
)
def test_rows_that_do_not_fit_their_table_are_refused(columns, words):
    rows = pd.concat([table(NEAR, depth=8), table(NEAR, depth=8)])
    with refusal(words, RowError):
        judge([says(high=2.0, **columns)], {"t": rows})


def test_coverage_and_level_of_a_bound():
    """Of true statements 95 % at least are not refuted, and of a limit on the mean itself half of
    5 % are confirmed or refuted."""
    draws = np.random.default_rng(1)
    parts = []
    for i, seed in product(range(2000), SEEDS[:4]):
        parts.append((i, seed, draws.normal(1.0, 0.3)))
    rows = pd.DataFrame(parts, columns=["trial", "seed", "x"])
    row = says(low=1.0)
    found = [verdict(row, of_trial) for _, of_trial in rows.groupby("trial")]
    for one in ("confirmed", "refuted"):
        assert found.count(one) / 2000 == pytest.approx(0.025, abs=0.011)


def test_a_tie_says_nothing_and_a_value_far_off_the_opposite():
    row = says(test="data sets", low=0.8, opposite=0.2, tie=0.5)
    assert verdict(row, table([0.9] * 5)) == "confirmed"
    assert verdict(row, table([0.9] * 4 + [0.3])) == "confirmed"
    assert verdict(row, table([0.9] * 3 + [0.2] * 2)) == "refuted"
    assert verdict(row, table([0.9] * 4 + [0.2])) == "inconclusive"
    assert verdict(row, table([0.9] * 3 + [0.5] * 2)) == "confirmed"
    assert verdict(row, table([0.9] * 2 + [0.5] * 3)) == "inconclusive"
    above = replace(row, low=-math.inf, high=0.2, opposite=0.8)
    assert verdict(above, table([0.1] * 3 + [0.9] * 2)) == "refuted"


@pytest.mark.parametrize(
    "of_fit, of_rival, becomes",
    [(NEAR, FAR, "not comparable"), (FAR, NEAR, "not comparable"), (NEAR, NEAR, "confirmed")],
)
def test_a_reading_that_counts_as_much_disputes_the_one_that_decides(of_fit, of_rival, becomes):
    row = says(test="data sets", high=2.0, variant="{mark}", decides="a", disputed="no rate")
    a, b, c = (table(v, mark=m) for v, m in ((of_fit, "a"), (of_rival, "b"), (FAR, "c")))
    rows = pd.concat([a.assign(rival=False), b.assign(rival=True), c.assign(rival=False)])
    (made,) = judge([row], {"t": rows})
    assert made.verdict == becomes and ("no rate" in made.detail) == (becomes == "not comparable")
    (made,) = judge([row], {"t": rows.assign(rival=False)})
    assert made.verdict == ("confirmed" if of_fit is NEAR else "refuted")


def test_what_is_true_by_construction_has_the_variants_of_its_table():
    row = says(quantity="", test="constructed", constructed="by the formula", variant="{mark}")
    rows = pd.concat([table(NEAR, mark="a"), table(FAR, mark="b")])
    (made,) = judge([row], {"t": rows})
    assert made.variants == dict.fromkeys("ab", "true by construction")
    assert math.isnan(made.statistic) and verdict(row, rows[:0]) == "not run"
