"""`force=true` says how well cells measured again agree with the published ones."""

from itertools import chain

import numpy as np
import pandas as pd
import pytest

from runner.run import config
from runner.run.agreement import Agreement, agreement
from runner.run.execute import run
from runner.run.publish import publish
from tests.run.conftest import TWO_CELLS


@pytest.fixture
def job(layers):
    outputs, _ = layers
    job = config.build_job([*TWO_CELLS, f"outputs={outputs}", "force=true"])
    assert not run(job).failed
    publish("toy", [], outputs)
    return job


def test_cells_measured_again_are_compared_with_the_published_ones(job):
    found = agreement([job])
    assert found is not None and found.cells == 2
    assert {16} == set(chain(*found.digits.values())) and found.differing == 0
    assert "2 cells agree to 6 digits or more" in found.line and "fewer" not in found.line


def test_a_run_with_force_alone_prints_the_comparison(job, command):
    for words, printed in ((("force=true",), True), ((), False)):
        status, out, _ = command(*TWO_CELLS, *words)
        assert status == 0 and ("agree to 6 digits or more" in out) == printed


def test_without_published_cells_nothing_is_compared(job, monkeypatch, tmp_path):
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("HESS_PUBLISHED", str(tmp_path / "nothing"))
    assert agreement([job]) is None


def test_every_number_that_differs_is_counted():
    published = pd.DataFrame({"x": [1.0, 2.0, np.nan, np.inf], "text": ["a", "b", "c", "d"]})
    measured = pd.DataFrame({"x": [1.0, 2.002, np.nan, 4.0], "text": ["a", "b", "c", "e"]})
    found = Agreement()
    found.add("numbers", measured, published)
    assert found == Agreement(0, {"numbers.x": [16, 3], "numbers.text": []}, 6, 2)
    assert "1 of 2 numbers" in found.line
    assert found.line.endswith("fewer digits mostly in numbers.x (1); 2 of 6 other entries differ")
    found.add("numbers", measured[:3], published)
    assert (found.others, found.differing) == (14, 10)
