"""One suite for every experiment that has a YAML file: what the runner and the reader may rely on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runner.report.collect import reference_path
from runner.report.score import read_reference
from runner.run.config import build_job, experiment_names, preview
from runner.store.store import settings

HEAVY = ("torch", "pandas", "scipy", "matplotlib")
NAMES = experiment_names()
ROOT = Path(__file__).resolve().parents[2]


def test_there_are_experiments() -> None:
    assert "ws_bound" in NAMES


@pytest.fixture(scope="module")
def loaded_by() -> dict[str, list[str]]:
    """Experiment -> heavy packages that importing, composing and listing it pulls in; one fresh process each is slow,
    so a process forks for every experiment after the runner's own imports."""
    script = f"""
import json, os, sys
from runner.run.config import experiment_names, preview
found = {{"": [m for m in {HEAVY} if m in sys.modules]}}
for name in experiment_names():
    read, write = os.pipe()
    if os.fork() == 0:
        list(preview(name).cells())
        os.write(write, json.dumps([m for m in {HEAVY} if m in sys.modules]).encode())
        os._exit(0)
    os.close(write)
    found[name] = json.loads(os.read(read, 4096) or b'["failed"]')
print(json.dumps(found))
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    return dict(json.loads(result.stdout))


@pytest.mark.parametrize("name", ["", *NAMES])
def test_listing_imports_nothing_heavy(name: str, loaded_by: dict[str, list[str]]) -> None:
    assert loaded_by[name] == []


@pytest.mark.parametrize("name", NAMES)
def test_says_what_it_is(name: str) -> None:
    experiment = preview(name)
    assert experiment.title and experiment.paper and experiment.reproduces
    assert experiment.version >= 1


@pytest.mark.parametrize("name", NAMES)
def test_cells_are_distinct_and_cost_something(name: str) -> None:
    cells = list(preview(name).cells())
    assert cells
    assert len({cell.label for cell in cells}) == len(cells)
    for cell in cells:
        assert cell.seconds > 0 and cell.memory_gib > 0
        assert all(isinstance(value, str | int | float | bool) for value in cell.params.values())


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_json(name: str) -> None:
    found = settings(preview(name))
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize("name", NAMES)
def test_paper_profile_is_what_listings_show(name: str) -> None:
    job = build_job([f"experiment={name}"])
    assert settings(job.experiment) == settings(preview(name))
    assert [c.label for c in job.experiment.cells()] == [c.label for c in preview(name).cells()]


@pytest.mark.parametrize("name", NAMES)
def test_quick_profile_is_smaller(name: str) -> None:
    quick = build_job([f"experiment={name}", "profile=quick"]).experiment
    assert sum(c.seconds for c in quick.cells()) <= sum(c.seconds for c in preview(name).cells())


@pytest.mark.parametrize("name", NAMES)
def test_reference_can_be_read(name: str) -> None:
    path = reference_path(name)
    if path is None:
        pytest.skip("the paper prints no number for this experiment")
    table = read_reference(path)
    assert len(table)
    assert not table.duplicated([c for c in table.columns if c not in ("mean", "std", "note")]).any()
