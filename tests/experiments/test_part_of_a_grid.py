"""Reports of part of a grid: whatever is measured alone, nothing that a report asks for raises.

Every day one experiment of most papers; all of them in the slow run."""

import random
from collections import defaultdict
from collections.abc import Callable
from functools import partial

import pytest

from runner.report.answers.findings import Failures, Material, Subject, ask
from runner.report.answers.reference import numbers_of
from runner.report.answers.scope import Scope
from runner.report.output.draw import made
from runner.run.config.files import experiment_names
from runner.run.config.jobs import build_job
from runner.store.store import Store, Stored, merge
from tests.slow import daily, slow

DAILY = ("attention_hessian", "exp5_attention", "hsr_gradient", "scalar_spectrum", "paper_audit")
Parts = Callable[[list[Stored]], dict[str, list[Stored]]]


def along_axes(cells):
    """'axis=value' -> cells: the first, the middle and the last value of each axis that has
    several, of one seed."""
    seed = min(int(c.meta["seed"]) for c in cells)
    by = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        if cell.meta["seed"] == seed:
            for axis, value in cell.meta["params"].items():
                by[axis][str(value)].append(cell)
    found = {}
    for axis, values in by.items():
        names = sorted(values)
        for name in {names[0], names[len(names) // 2], names[-1]} if len(names) > 1 else ():
            found[f"{axis}={name}"] = values[name]
    return found


def drawn(cells):
    """'any N' -> N cells of any seed: what an interrupted sweep may leave."""
    draws = random.Random(7)
    counts = (2, -(-len(cells) // 3))
    return {f"any {count}": draws.sample(cells, min(count, len(cells))) for count in counts}


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize("parts", [drawn, slow(along_axes)])
@pytest.mark.parametrize(
    "name",
    daily(experiment_names(), DAILY),
)
def test_whatever_is_measured_alone_the_report_of_it_fails_nowhere(name, parts, tmp_path):
    job = build_job([f"experiment={name}"])
    cells = [c for c in Store(tmp_path, name).all() if c.meta["settings_key"] == job.identity.key]
    if not cells:
        pytest.skip("nothing is stored of it")
    failed = {}
    for part, own in parts(cells).items():
        failures = Failures()
        subject = Subject(job.experiment, merge(own))
        about = {"shown": subject, "judged": subject, "reference": numbers_of(name)}
        found = ask(Material(scope=Scope(paper=job.experiment.paper), **about), failures)
        for figure, maker in found.figures.items():
            failures.guard("figure", partial(made, maker, partial=True), None, figure)
        if failures.records:
            failed[part] = failures.lines()
    assert not failed
