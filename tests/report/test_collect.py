"""Departures from the paper's protocol follow from the YAML file alone; companions are read but not
reported."""

import re
import shutil
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest

from runner.contract import Analysis, Companion, Experiment, grid
from runner.report.answers.judged import scope_of
from runner.report.collect import collect
from runner.report.departures import departures
from runner.report.update import report
from runner.run import reports
from runner.run.config.experiment import preview
from runner.run.config.files import experiment_names
from runner.run.config.jobs import build_job
from runner.run.config.overrides import arguments
from runner.run.execute import run
from runner.store.job import Job
from tests.errors import mistakes

NAMES = experiment_names()


def against_the_paper(name, *words):
    experiment = build_job(arguments([f"experiment={name}", *words]).overrides).experiment
    return list(map(str, departures(experiment, preview(name))))


@pytest.mark.parametrize("name", NAMES)
def test_the_papers_own_settings_depart_in_nothing(name):
    scope = scope_of(preview(name), preview(name), "paper")
    assert against_the_paper(name) == [] and scope.is_papers and scope.seeds and not scope.how


CHANGED = """
ws_bound training.starts=20 | training.starts=20 instead of 500
ws_bound hidden=[3] line_points=11 draws=3 | nothing
ws_bound far=20 | far=20.0 instead of 25.0
exp1_resonance activation=tanh | activation=tanh instead of relu
exp1_resonance metric.subsamples=3 metric.double=true metric.memory_gib=1.0 | nothing
exp1_resonance metric.subsample=random | metric.subsample=random instead of first
exp1_resonance dataset=surrogate | dataset=surrogate instead of cifar10
exp1_resonance dataset=cifar100 | dataset=cifar100 instead of cifar10
exp3_gn_gap model.norm=true | model.norm=True instead of False
hsr_gradient hidden=4 draws=5 | hidden=4 instead of 3
hsr_regularization wide_radius=2.0 radius=0.2 | radius=0.2 instead of 0.1
attention_hessian instances=80 | nothing
"""
"""Of a grid, of a field that only reports read, and of a free one nothing departs."""


@pytest.mark.parametrize("words, expected", mistakes(CHANGED), ids=str)
def test_settings_that_matter_are_named(words, expected):
    assert (", ".join(against_the_paper(*words)) or "nothing") == expected


def test_an_entry_beside_the_papers_departs_in_nothing_and_a_changed_one_does():
    entry = "+experiment.protocols.{}={{training.rate: 0.5}}"
    assert against_the_paper("exp5_attention", entry.format("mine")) == []
    (found,) = against_the_paper("exp5_attention", entry.format("recovered"))
    assert found.startswith("protocols.recovered=") and found.endswith("instead of {}")


@pytest.mark.parametrize("name", NAMES)
def test_every_quick_profile_that_changes_numbers_departs_unless_free(name):
    quick, paper = build_job([f"experiment={name}", "profile=quick"]).experiment, preview(name)
    changed = [f for f in fields(paper) if getattr(quick, f.name) != getattr(paper, f.name)]
    plain = [f for f in changed if not {"grid", "report", "free"} & set(f.metadata)]
    found = list(map(str, departures(quick, paper)))
    assert bool(found) == bool(plain)
    assert all(re.match(r"[\w.-]+=.* instead of .*", phrase) for phrase in found)


SEEN = []


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
        return {
            "shifted": Companion(replace(self, shift=100.0), range(1, 3)),
            "later": Companion(self, range(5, 8)),
        }


def job(outputs, seed, shift=0.0):
    return Job("shifted", Shifted(shift=shift), seed, outputs)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    root = tmp_path_factory.mktemp("stored")
    for seed, shift in ((1, 0.0), (2, 0.0), (5, 0.0), (6, 0.0), (1, 100.0), (9, 100.0)):
        run(job(root, seed, shift))
    return root


@pytest.fixture
def outputs(stored, tmp_path):
    return Path(shutil.copytree(stored, tmp_path, dirs_exist_ok=True))


def protocol(name, profile):
    return Shifted()


def test_companions_stand_beside_and_their_seeds_are_no_part_of_the_report(outputs):
    found = collect([job(outputs, seed) for seed in (1, 2, 5)], protocol)
    assert found.seeds == (1, 2) and not found.missing
    assert {c.meta["seed"] for c in found.cells} == {1, 2}
    seeds = [(name, cell.meta["seed"]) for name, cells in found.beside.items() for cell in cells]
    shifted, later = [("shifted", 1)] * 2, [("later", 5)] * 2 + [("later", 6)] * 2
    assert sorted(seeds) == later + shifted
    further = Job("shifted", Shifted(k=[3]), 42, outputs)
    (missing,) = collect([further], protocol, any_seed=True).missing
    assert missing.seed == 1  # the first stored one


def test_seeds_of_a_companion_alone_are_reported_as_asked(outputs, tmp_path):
    run(job(tmp_path / "other", 6))
    found = collect([job(tmp_path / "other", 6)], protocol)
    assert found.seeds == (6,) and len(found.cells) == 2


def test_a_report_reads_them_and_is_made_anew_when_one_appears(outputs):
    def first_line():
        return report([job(outputs, 1), job(outputs, 2)], protocol)[1][0]

    SEEN.clear()
    first_line()
    assert SEEN[-1].tables["t"]["x"].max() < 3
    text = (outputs / "shifted" / "report.md").read_text()
    assert "shifted: [101.1, 101.2]" in text and "later: [5.1, 5.2, 6.1, 6.2]" in text
    assert "unchanged" in first_line()
    run(job(outputs, 2, 100.0))
    assert "unchanged" not in first_line()
    assert "102.2" in (outputs / "shifted" / "report.md").read_text()


def test_a_run_of_a_companions_seeds_is_complete_once_they_are_stored(outputs, monkeypatch):
    monkeypatch.setattr(reports, "protocol", protocol)
    assert reports.report_jobs([job(outputs, 1), job(outputs, 5)])
    assert reports.report_jobs([job(outputs, 6)])
    assert not reports.report_jobs([job(outputs, 1), job(outputs, 7)])


def test_one_report_that_fails_does_not_stop_the_others(outputs, monkeypatch, capsys):
    def fail_first(jobs, *about, **options):
        if jobs[0].name == "damaged":
            raise RuntimeError("unreadable")
        return report(jobs, *about, **options)

    monkeypatch.setattr(reports, "protocol", protocol)
    monkeypatch.setattr("runner.report.update.report", fail_first)
    assert not reports.report_jobs([Job("damaged", Shifted(), 1, outputs), job(outputs, 1)])
    out, err = capsys.readouterr()
    assert "damaged: no report (RuntimeError: unreadable)" in err and out.startswith("shifted: ")
