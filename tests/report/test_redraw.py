"""A report that has changed redraws the figures whose tables have: no fewer, wherever the tables hide, and no more."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import pandas as pd
import pytest

from runner.contract import Analysis, Experiment
from runner.report import figures
from runner.report.sources import Sources
from runner.report.watched import NAMES, Held, Log, Watched, traced
from runner.report.write import write_report

TABLES = {name: pd.DataFrame({"seed": [42, 43], f"value_{name}": [1.0, 2.0]}) for name in ("a", "b", "c")}
CELLS = [{"id": f"{name}-{seed}", "seed": seed, "git_commit": name} for name in TABLES for seed in (42, 43)]
MANIFEST = {"experiment": "demo", "title": "Demo", "paper": "WS bound", "profile": "paper", "seeds": [42, 43]}
HELD: dict[str, str] = {"label": "one"}


@dataclass(frozen=True, kw_only=True)
class Demo(Experiment):
    title: ClassVar[str] = "Demo"
    paper: ClassVar[str] = "WS bound"

    def measure(self, cell, ctx):
        raise NotImplementedError

    def analysis(self, tables):
        return Readings(self, tables)


class Readings(Analysis):
    """Each figure has its tables by another way."""

    @cached_property
    def means(self):
        return [self.tables["a"]["value_a"].mean()]

    @cached_property
    def sums(self):
        return [m + self.tables["b"]["value_b"].sum() for m in self.means]

    def notes(self):
        return [f"{self.sums}"]  # computed before any figure is drawn

    def figures(self):
        whole, part = self.tables["b"], self.tables["c"][self.tables["c"]["seed"] > 42]
        label = HELD["label"]
        return {
            "direct": lambda: self._line(self.tables["a"]["value_a"]),
            "cached": lambda: self._line(self.sums),
            "held": partial(self._line, whole),
            "derived": lambda: self._line(part["value_c"]),
            "value": lambda: self._line([1, 2], label),
            "beside": lambda: self._line(self.beside["more"]["a"]["value_a"]),
            "absent": lambda: self._line([len(self.tables.get("d", ()))]),
        }

    def _line(self, values, label=""):
        """A line."""
        figure, axes = figures.new_figure()
        axes[0, 0].plot(values, label=label)
        return figure


def sources(**changed: str) -> Sources:
    content = {"a": "1", "b": "1", "c": "1", "more/a": "1"} | {k.replace("_", "/"): v for k, v in changed.items()}
    cells = {t: frozenset(c["id"] for c in CELLS if c["id"][0] == t) for t in TABLES}
    return Sources("common", content, cells)


@pytest.fixture
def redrawn(tmp_path):
    """Report, then report again with other sources; returns the figures that were drawn the second time."""

    def report(found: Sources | None, **changed: object) -> list[str]:
        said: list[str] = []
        manifest = {**MANIFEST, "cells": CELLS, **changed}
        beside = {"more": TABLES}
        write_report(tmp_path, "demo", Demo(), TABLES, manifest, beside=beside, sources=found, say=said.append)
        assert {p.stem for p in (tmp_path / "figures").iterdir()} == ALL
        assert set(json.loads((tmp_path / "manifest.json").read_text())["captions"]) == ALL
        return sorted(line.removeprefix("figure ") for line in said)

    assert set(report(sources())) == ALL
    report.folder = tmp_path  # type: ignore[attr-defined]
    return report


ALL = {"direct", "cached", "held", "derived", "value", "beside", "absent"}


@pytest.mark.parametrize(
    ("changed", "drawn"),
    [
        ({}, []),
        ({"a": "2"}, ["cached", "direct"]),
        ({"b": "2"}, ["cached", "derived", "held"]),  # the derived table may come from either table asked for before
        ({"c": "2"}, ["derived"]),
        ({"more_a": "2"}, ["beside"]),
        ({"d": "1"}, ["absent"]),
    ],
)
def test_a_changed_table_redraws_its_figures(redrawn, changed, drawn):
    before = {p.stem: p.read_bytes() for p in (redrawn.folder / "figures").iterdir()}
    manifest = json.loads((redrawn.folder / "manifest.json").read_text())
    assert redrawn(sources(**changed)) == drawn
    assert {p.stem: p.read_bytes() for p in (redrawn.folder / "figures").iterdir()} == before
    now = json.loads((redrawn.folder / "manifest.json").read_text())
    assert now["captions"] == manifest["captions"] and now["alts"] == manifest["alts"]


def test_code_warnings_values_and_a_lost_file_redraw_too(redrawn, monkeypatch):
    assert redrawn(replace(sources(), common="other code")) == sorted(ALL)
    assert redrawn(replace(sources(), common="other code"), surrogate=True) == sorted(ALL)
    redrawn(sources())
    monkeypatch.setitem(HELD, "label", "two")
    assert redrawn(sources()) == ["value"]
    (redrawn.folder / "figures" / "held.png").unlink()
    assert redrawn(sources()) == ["held"]
    assert redrawn(None) == sorted(ALL)


def test_new_cells_of_one_table_change_the_seeds_of_its_figures_alone(redrawn):
    more = [*CELLS, {"id": "a-44", "seed": 44, "git_commit": "a"}]
    found = sources(a="2")
    found = replace(found, cells={**found.cells, "a": found.cells["a"] | {"a-44"}})
    # those whose tables are not known carry the seeds of the whole report
    assert redrawn(found, cells=more, seeds=[42, 43, 44]) == ["absent", "beside", "cached", "direct", "value"]
    captions = json.loads((redrawn.folder / "manifest.json").read_text())["captions"]
    assert "Seeds 42–44 (n = 3); 3 cells of commit a; drawn from a.csv" in captions["direct"]
    assert "Seeds 42, 43 (n = 2); 2 cells of commit b; drawn from b.csv" in captions["held"]


def test_what_is_read_twice_is_asked_for_twice_and_all_that_is_held_is_found():
    log = Log()
    tables = Watched(TABLES, log)
    readings = traced(Readings(Demo(), tables, {}), log)
    with log.noting() as first:
        assert readings.sums
    with log.noting() as second:
        assert readings.sums and readings.means
    assert first == second == {"a", "b"}
    with log.noting() as asked:
        assert "d" not in tables and len(tables) == 3
    assert asked == {"d", NAMES}
    part = TABLES["b"][TABLES["b"]["seed"] > 42]
    held = Held(partial(lambda x, y=3: (x, part), TABLES["a"], sep={"k": (1.5, "s")}), TABLES)
    assert held.tables == {"a"} and held.alike == {"b"} and held.opaque
    assert {"1.5", "'s'", "3"} <= set(held.values)
