"""The contract: analyses are made for each report and compute once; what fields decide, refuse and
print."""

from dataclasses import dataclass, fields
from functools import cached_property

import pandas as pd
import pytest

from runner.contract import (
    Analysis,
    Cell,
    Context,
    Experiment,
    Limits,
    SettingError,
    check,
    free,
    grid,
    measure,
    report_only,
    setting,
    short,
    whole_number,
)
from runner.contract.schema import identifying
from tests.errors import refusal


@dataclass(frozen=True, kw_only=True)
class Plain(Experiment):
    width: list[int] = grid([1, 2])
    draws: int = free(3)
    levels: list[float] = free([0.5])
    shown: int = report_only(4)
    needed: int = free()

    def measure(self, cell, ctx):
        return {"numbers": {"value": [0.0]}}


def test_an_analysis_that_adds_nothing_gives_empty_answers():
    bare = Analysis(Plain(needed=1), {})
    assert bare.captions() == bare.figures() == bare.documents() == {} and not list(bare.notes())


class Counted(Analysis):
    experiment: Plain

    @cached_property
    def mean(self):
        self.tables["counter"]["calls"] += 1
        return self.tables["numbers"]["value"].mean()

    def notes(self):
        return [f"mean {self.mean:g}"]

    def measured(self):
        return pd.DataFrame({"metric": ["mean"], "seed": [0], "value": [self.mean]})


def test_answers_share_what_they_compute_and_analyses_share_nothing():
    def tables(value):
        return {"numbers": pd.DataFrame({"value": [value]}), "counter": {"calls": 0}}

    one, two = (Counted(Plain(needed=1), tables(value)) for value in (1.0, 5.0))
    assert one.notes() == ["mean 1"] and one.measured()["value"].tolist() == [1.0]
    assert two.notes() == ["mean 5"]
    assert one.tables["counter"] == two.tables["counter"] == {"calls": 1}


def test_free_fields_decide_numbers_and_no_departure():
    found = {f.name: dict(f.metadata) for f in fields(Plain)}
    assert found["draws"] == found["levels"] == found["needed"] == {"free": True}
    assert identifying(Plain(needed=1)) == {"draws": 3, "levels": [0.5], "needed": 1}
    with pytest.raises(TypeError, match="needed"):
        Plain()
    first, second = Plain(needed=1), Plain(needed=1)
    assert first.levels == second.levels and first.levels is not second.levels


INF, NAN = float("inf"), float("nan")
CASES = [
    ({"above": 0, "unit": "steps"}, [1, 0.5, [1, 2], {"a": 3}], [0, -1, NAN, [1, 0]], "> 0 steps"),
    ({"above": 0, "below": 1}, [0.5], [0, 1], "> 0 and < 1"),
    ({"at_least": 2, "at_most": 5}, [2, 5], [1, 6], ">= 2 and <= 5"),
    ({"at_least": 0, "off": -1}, [-1, 0], [-2], "-1 or >= 0"),
    ({"choices": ("a", "b")}, ["a", ["b"]], ["bb", ["a", "x"]], "one of a, b"),
    ({"keys": ("a",), "above": 0}, [{"a": 1}, {}], [{"b": 1}, {"a": 0}], "keys a; > 0"),
    ({"length": 2}, [[1, 1]], [[], [1], [1, 2, 3]], "2 values"),
    ({"filled": True}, [[1]], [[], [2, 1, 2]], ""),
    ({}, [1, 1e308, "inf"], [INF, NAN, {"a": [-INF]}], ""),
    ({}, [2**63 - 1, -(2**63) + 1, 1e30], [2**63, [-(10**30)]], ""),
    ({"infinite": True}, [INF, -INF, 1.0], [NAN], ""),
    ({"above": 0, "infinite": True}, [INF], [-INF, NAN], "> 0"),
    ({"above": 0}, [1e308], [INF], "> 0"),
]


@pytest.mark.parametrize("limits, accepted, refused, text", CASES)
def test_limits_refuse_and_say_what_they_expect(limits, accepted, refused, text):
    found = Limits(**limits)
    assert str(found) == text
    for value in accepted:
        found.check("name", value)
    for value in refused:
        with refusal(r"^name: expected", SettingError):
            found.check("name", value)


@dataclass(frozen=True)
class Group:
    steps: int = setting(1, above=0)


@dataclass(frozen=True, kw_only=True)
class Grouped(Experiment):
    measure = "tests.contract.test_analysis:nothing"
    k: list[int] = grid([1], above=0)
    training: Group = Group()


@dataclass(frozen=True)
class Numbers:
    rate: float = 0.1
    names: dict[str, float] | None = None


def test_a_number_without_limits_is_finite():
    for wrong in (Numbers(NAN), Numbers(INF), Numbers(names={"a": -INF})):
        with refusal(r"^training\.\w+: expected a finite number, found", SettingError):
            check(wrong, "training")


@pytest.mark.parametrize("text", [" 42 ", "+42", "00042", "4_2", "4e1", "٤٢", "", "-", "1" * 40])
def test_a_whole_number_is_written_in_one_way(text):
    assert [whole_number("n", good) for good in ("0", "42", "-7")] == [0, 42, -7]
    with refusal(r"^n: expected a whole number, found", SettingError):
        whole_number("n", text)


def test_a_users_words_are_short_and_without_control_characters():
    assert short("a\x1b[31mb\r\n c\u202e\x9b\x00") == "a\\x1b[31mb c\\u202e\\x9b\\x00"
    assert len(short("x" * 10_000)) < 100 and "(10000 characters)" in short("x" * 10_000)
    assert short("ä ✓ 漢") == "ä ✓ 漢"


def test_an_experiment_checks_its_fields_and_its_groups():
    for wrong, name in (({"k": [0]}, "experiment.k"), ({"training": Group(0)}, "training.steps")):
        with refusal(f"^{name}: expected a value above zero, found 0$", SettingError):
            Grouped(**wrong)
    check(Grouped())


def test_a_name_that_does_not_resolve_is_one_line():
    with refusal(r"Grouped\.measure: .*:nothing cannot be loaded: ", SettingError):
        measure(Grouped(), Cell({}), Context(seed=7))


def test_checkpoints_are_opened_for_the_training_and_its_seed():
    asked = []
    context = Context(seed=7, open_checkpoints=lambda key: asked.append(dict(key)) or "store")
    assert context.checkpoints({"width": 3}) == "store" and asked == [{"width": 3, "seed": 7}]
    assert Context(seed=7).checkpoints({"width": 3}) is None
