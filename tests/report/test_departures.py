"""Departures from the paper's protocol follow from the YAML file alone."""

import re
from dataclasses import fields

import pytest

from runner.report.departures import departures, not_comparable
from runner.run.config import arguments, build_job, experiment_names, preview

NAMES = experiment_names()


def against_the_paper(name: str, *words: str) -> list[str]:
    experiment = build_job(arguments([f"experiment={name}", *words]).overrides).experiment
    return departures(experiment, preview(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_papers_own_settings_depart_in_nothing(name):
    assert against_the_paper(name) == [] and not_comparable(preview(name), preview(name)) == ""


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("ws_bound", ["training.starts=20"], ["training.starts=20 instead of 500"]),
        ("ws_bound", ["hidden=[3]", "tight=2.0", "line_points=11"], []),  # grid, report only, free
        ("exp1_resonance", ["activation=tanh"], ["activation=tanh instead of relu"]),
        ("exp1_resonance", ["metric.subsamples=3", "metric.double=true", "metric.memory_gib=1.0"], []),
        ("exp1_resonance", ["metric.subsample=random"], ["metric.subsample=random instead of first"]),
        ("exp3_gn_gap", ["model.norm=true"], ["model.norm=True instead of False"]),
        ("hsr_gradient", ["hidden=4", "draws=5"], ["hidden=4 instead of 3"]),
        ("hsr_regularization", ["wide_radius=2.0", "radius=0.2"], ["radius=0.2 instead of 0.1"]),
        ("attention_hessian", ["instances=80"], []),
    ],
)
def test_settings_that_matter_are_named(name, words, expected):
    assert against_the_paper(name, *words) == expected


def test_other_data_are_one_departure_whatever_else_differs_with_them():
    assert against_the_paper("exp1_resonance", "dataset=surrogate") == ["dataset=surrogate instead of cifar10"]
    assert against_the_paper("exp1_resonance", "dataset=cifar100") == ["dataset=cifar100 instead of cifar10"]


def test_an_entry_beside_the_papers_departs_in_nothing_and_a_changed_one_does():
    more = "+experiment.protocols.mine={training.rate: 0.5}"
    assert against_the_paper("exp5_attention", more) == []
    (found,) = against_the_paper("exp5_attention", "+experiment.protocols.recovered={training.rate: 0.5}")
    assert found.startswith("protocols.recovered=") and found.endswith("instead of {}")


@pytest.mark.parametrize("name", NAMES)
def test_every_quick_profile_that_changes_numbers_departs_unless_free(name):
    quick, paper = build_job([f"experiment={name}", "profile=quick"]).experiment, preview(name)
    changed = [f for f in fields(paper) if getattr(quick, f.name) != getattr(paper, f.name)]
    plain = [f for f in changed if not {"grid", "report", "free"} & set(f.metadata)]
    found = departures(quick, paper)
    assert bool(found) == bool(plain)
    assert all(re.match(r"[\w.-]+=.* instead of .*", phrase) for phrase in found)
