"""`force=true` says how well cells measured again agree with the published ones."""

import pytest

from runner.run.config.jobs import build_job
from runner.run.execute import run
from runner.run.publish import publish
from runner.run.verify import agreement
from tests.run.conftest import TWO_CELLS


@pytest.fixture
def job(layers):
    outputs, _ = layers
    job = build_job([*TWO_CELLS, f"outputs={outputs}", "force=true"])
    assert not run(job).failed
    publish("toy", [], outputs)
    return job


def test_a_run_with_force_alone_prints_the_comparison(job, command):
    for words, printed in ((("force=true",), True), ((), False)):
        status, out, _ = command(*TWO_CELLS, *words)
        assert status == 0 and ("2 of 2 agree to a relative" in out) == printed


def test_cells_measured_again_are_compared_with_the_published_ones(job, monkeypatch, tmp_path):
    assert agreement([job]).endswith(
        "2 of 2 agree to a relative difference of 1e-06, 2 are identical"
    )
    for cell in list(job.store.all(published=False))[:1]:
        tables = {name: cell.table(name) for name in cell.meta["tables"]}
        tables["numbers"]["value"] *= 1 + 1e-3
        job.store.write(cell.id, tables, cell.meta)
    line = agreement([job])
    assert "1 of 2 agree" in line and "1 are identical; seed=42 " in line
    assert "differs: numbers.value row" in line
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("HESS_PUBLISHED", str(tmp_path / "nothing"))
    assert agreement([job]) == ""
