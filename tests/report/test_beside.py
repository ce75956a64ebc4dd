"""Cells of other settings and seeds beside those of a report: read where they are stored, never part of its own."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from runner.contract import Analysis, Companion, Experiment, grid
from runner.report.collect import collect
from runner.report.update import report
from runner.run import reports
from runner.run.execute import run
from runner.store.job import Job

SEEN: list[Analysis] = []


class Seen(Analysis):
    def notes(self):
        SEEN.append(self)
        return [f"{name}: {sorted(t['t']['x'])}" for name, t in self.beside.items()]


@dataclass(frozen=True, kw_only=True)
class Shifted(Experiment):
    analysis = Seen

    k: list[int] = grid([1, 2])
    shift: float = 0.0

    def measure(self, cell, ctx):
        return {"t": {"x": [self.shift + ctx.seed + cell.params["k"] / 10]}}

    def companions(self):
        if self.shift:
            return {}
        return {"shifted": Companion(replace(self, shift=100.0), range(1, 3)), "later": Companion(self, range(5, 8))}


def job(outputs: Path, seed: int, shift: float = 0.0) -> Job:
    return Job("shifted", Shifted(shift=shift), seed, outputs)


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    for seed, shift in ((1, 0.0), (2, 0.0), (5, 0.0), (6, 0.0), (1, 100.0), (9, 100.0)):
        run(job(tmp_path, seed, shift))
    return tmp_path


def protocol(name: str, profile: str) -> Experiment:
    return Shifted()


def test_companions_stand_beside_and_their_seeds_are_no_part_of_the_report(outputs):
    found = collect([job(outputs, seed) for seed in (1, 2, 5)], protocol)
    assert {c.meta["seed"] for c in found.cells} == {1, 2} and found.seeds == (1, 2) and not found.missing
    assert {name: sorted(c.meta["seed"] for c in cells) for name, cells in found.beside.items()} == {
        "shifted": [1, 1],
        "later": [5, 5, 6, 6],
    }


def test_seeds_of_a_companion_alone_are_reported_as_asked(outputs, tmp_path):
    run(job(tmp_path / "other", 6))
    found = collect([job(tmp_path / "other", 6)], protocol)
    assert found.seeds == (6,) and len(found.cells) == 2


def test_a_report_reads_them_and_is_made_anew_when_one_appears(outputs):
    SEEN.clear()
    report([job(outputs, 1), job(outputs, 2)], protocol)
    assert SEEN[-1].tables["t"]["x"].max() < 3
    text = (outputs / "shifted" / "report.md").read_text()
    assert "shifted: [101.1, 101.2]" in text and "later: [5.1, 5.2, 6.1, 6.2]" in text
    assert "unchanged" in report([job(outputs, 1), job(outputs, 2)], protocol)[1][0]
    run(job(outputs, 2, 100.0))
    assert "unchanged" not in report([job(outputs, 1), job(outputs, 2)], protocol)[1][0]
    assert "102.2" in (outputs / "shifted" / "report.md").read_text()


def test_a_run_of_a_companions_seeds_is_complete_once_they_are_stored(outputs, monkeypatch):
    monkeypatch.setattr(reports.config, "protocol", protocol)
    assert reports.report_jobs([job(outputs, 1), job(outputs, 5)])
    assert reports.report_jobs([job(outputs, 6)])
    assert not reports.report_jobs([job(outputs, 1), job(outputs, 7)])
