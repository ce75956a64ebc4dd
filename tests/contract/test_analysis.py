"""The contract: an analysis is empty until told otherwise, is made afresh for each report, and computes once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import pandas as pd
import pytest

from runner.contract import Analysis, Experiment, analyse, free, grid, report_only
from runner.store.store import settings


@dataclass(frozen=True, kw_only=True)
class Plain(Experiment):
    width: list[int] = grid([1, 2])
    draws: int = free(3)
    levels: list[float] = free([0.5])
    shown: int = report_only(4)
    needed: int = free()

    def measure(self, cell, ctx):
        return {"numbers": {"value": [0.0]}}


class Counted(Analysis):
    experiment: Plain

    @cached_property
    def mean(self) -> float:
        self.tables["counter"]["calls"] += 1
        return self.tables["numbers"]["value"].mean()

    def notes(self):
        return [f"mean {self.mean:g}"]

    def measured(self):
        return pd.DataFrame({"metric": ["mean"], "seed": [0], "value": [self.mean]})


def test_an_experiment_without_an_analysis_has_an_empty_one():
    analysis = analyse(Plain(needed=1), {"numbers": pd.DataFrame()})
    assert analysis.experiment == Plain(needed=1) and list(analysis.tables) == ["numbers"]
    assert not any((analysis.figures(), analysis.claims(), analysis.statistics(), analysis.documents()))
    assert analysis.notes() == [] and analysis.measured() is None


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
    assert settings(Plain(needed=1)) == {"draws": 3, "levels": [0.5], "needed": 1}
    with pytest.raises(TypeError, match="needed"):
        Plain()
    first, second = Plain(needed=1), Plain(needed=1)
    assert first.levels == second.levels and first.levels is not second.levels
