"""Limits of fields: what they refuse and print, and names of functions that do not resolve."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from runner.contract import Experiment, Limits, SettingError, check, grid, setting
from runner.run.config.types import check_names

CASES = [
    ({"above": 0, "unit": "steps"}, [1, 0.5, [1, 2], {"a": 3}], [0, -1, float("nan"), [1, 0]], "> 0 steps"),
    ({"above": 0, "below": 1}, [0.5], [0, 1], "> 0 and < 1"),
    ({"at_least": 2, "at_most": 5}, [2, 5], [1, 6], ">= 2 and <= 5"),
    ({"at_least": 0, "off": -1}, [-1, 0], [-2], "-1 or >= 0"),
    ({"choices": ("relu", "tanh")}, ["relu", ["tanh"]], ["tanhh", ["relu", "x"]], "one of relu, tanh"),
    ({"keys": ("a",), "above": 0}, [{"a": 1}, {}], [{"b": 1}, {"a": 0}], "keys a; > 0"),
    ({"filled": True}, [[1]], [[]], ""),
]


@pytest.mark.parametrize(("limits", "accepted", "refused", "text"), CASES)
def test_limits_refuse_and_say_what_they_expect(limits, accepted, refused, text):
    found = Limits(**limits)
    assert str(found) == text
    for value in accepted:
        found.check("name", value)
    for value in refused:
        with pytest.raises(SettingError, match=r"^name: expected"):
            found.check("name", value)


@dataclass(frozen=True)
class Group:
    steps: int = setting(1, above=0)


@dataclass(frozen=True, kw_only=True)
class Grouped(Experiment):
    measure = "tests.contract.test_schema:nothing"
    k: list[int] = grid([1], above=0)
    training: Group = Group()


def test_an_experiment_checks_its_fields_and_its_groups():
    for wrong, name in (({"k": [0]}, "experiment.k"), ({"training": Group(0)}, "training.steps")):
        with pytest.raises(SettingError, match=f"^{name}: expected a value above zero, found 0$"):
            Grouped(**wrong)
    check(Grouped())


def test_a_name_that_does_not_resolve_is_one_line():
    with pytest.raises(SettingError, match=r"Grouped\.measure: tests\.contract\.test_schema has no nothing"):
        check_names(Grouped)
