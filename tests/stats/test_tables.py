"""Rows of measured tables by the values of their columns."""

import pandas as pd

from runner.stats.tables import chosen, first_seed, groups, seed_values
from tests.errors import refusal

TABLE = pd.DataFrame(
    {"seed": [43, 42, 43], "arch": ["plain", "plain", "residual"], "R": [3.0, 2.0, 5.0]}
)


def test_rows_have_every_value():
    assert list(chosen(TABLE, arch="plain", seed=43)["R"]) == [3.0]


def test_a_missing_column_leaves_no_row_and_all_columns():
    found = chosen(TABLE, depth=8)
    assert found.empty and list(found.columns) == list(TABLE.columns)


def test_the_smallest_seed_is_the_first():
    assert list(first_seed(TABLE)["R"]) == [2.0]


def test_groups_come_in_the_order_of_the_table():
    by_arch = {keys: list(rows["R"]) for keys, rows in groups(TABLE, ["arch"])}
    assert list(by_arch.items()) == [(("plain",), [3.0, 2.0]), (("residual",), [5.0])]
    assert [keys for keys, _ in groups(TABLE, ["arch", "seed"])][1] == ("plain", 42)


def test_values_by_seed():
    assert seed_values(chosen(TABLE, arch="plain"), "R") == {43: 3.0, 42: 2.0}


def test_two_rows_of_a_seed_are_refused():
    with refusal("expected one row per seed"):
        seed_values(TABLE, "R")
